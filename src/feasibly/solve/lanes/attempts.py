"""What is tried for a row in a lane: the attempts, and the table of which follows how the last one ended.

In this order, as `FOLLOWING` has it. A row goes down a line for each attempt that stalls (LEAST and LEAST_FROM_GUESS:
left to others); where another end leads somewhere else, that is said.

    starts    FIRST                from a start of its own, if it has one; stalled: NEAR
              NEAR, or WIDE_FAST   on the nominal central path, near its end or at a larger barrier parameter
              WIDE                 at the larger one with safeguarded steps
              CORRECTED            the same with the inertia corrected
              WIDER_CORRECTED      the same where the barrier parameter is larger still
    elastic   ELASTIC              constraints may be violated at an l1 penalty; stalled: left to others
                                   feasible: FINISH
                                   infeasible: LEAST, then LEAST_FROM_GUESS, the least that can be violated from two
                                     sides; infeasible from both: no solution; feasible from one: PENALISED
              PENALISED            ELASTIC at a higher penalty; feasible: FINISH_PENALISED, else left to others
    finish    FINISH               from the elastic end, without elastic variables
              FOLLOWED             from there elastic to the optimum; infeasible: PENALISED
              FINISH_SAFEGUARDED   as FINISH, with safeguarded steps; stalled: left to others
              FINISH_PENALISED, FOLLOWED_PENALISED: as the two above, after PENALISED; then FINISH_SAFEGUARDED
    again     AGAIN, AGAIN_FROM_GUESS   a row that has converged further down than WIDE was led there by shifts or
                                        penalties, and there may be a better minimum elsewhere; the best is kept

Any other row that converges is done. Rows of large problems go another way from the central path to WIDE, on which two
ends at infeasible points tell (`LARGE_FOLLOWING`), and none is solved again:

    starts    NEAR                 infeasible: GUESS; stalled: WIDE_FAST_CORRECTED
              WIDE_FAST            infeasible: GUESS; stalled: NEAR
              GUESS                from the first guess; infeasible again: no solution; stalled: WIDE_FAST_CORRECTED
              WIDE_FAST_CORRECTED  WIDE_FAST with the inertia corrected; infeasible: LEAST_FROM_GUESS; stalled: WIDE
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from feasibly.solve.status import AttemptStatus

CONVERGED, INFEASIBLE, STALLED = (
    AttemptStatus.CONVERGED, AttemptStatus.INFEASIBLE_POINT, AttemptStatus.STALLED
)  # fmt: skip


class StartPoint(enum.Enum):
    """Where an attempt starts."""

    GIVEN = "the row's own start"
    NEAR = "the nominal input's central path, near its end"
    WIDE = "the same where the barrier parameter is larger"
    WIDER = "the same where it is larger still"
    NOMINAL = "the nominal solution, elastic"
    GUESS = "the problem's first guess"
    ELASTIC_END = "where the elastic attempt ended, as an iterate of the problem itself"
    STILL_ELASTIC = "where it ended, elastic as it was"


@dataclass(frozen=True, eq=False)
class Attempt:
    """One attempt: where it starts, how its steps are made, and what it solves. Each is there once, and equal to itself
    alone: they are looked up for every row.

    Attributes:
        start: where it starts.
        step: which of the steps in `SolverSettings`.
        elastic: constraints may be violated at an l1 penalty (`formulas`).
        correct_inertia: the Hessian is shifted where its inertia is wrong.
        with_objective: the objective counts. Where it does not, a proximal term makes what is found unique.
        higher_penalty: violating a constraint costs more than usual.
        to_optimum: an elastic one is to end as near to the optimum as others.
        concludes: it comes after another that ended at an infeasible point; ending at one too, it shows that there is
            no solution.
        again: it looks for a better minimum than the one that the row has; what becomes of it, the row is solved.
    """

    start: StartPoint
    step: Literal["fast", "safeguarded", "elastic"]
    elastic: bool = False
    correct_inertia: bool = False
    with_objective: bool = True
    higher_penalty: bool = False
    to_optimum: bool = False
    concludes: bool = False
    again: bool = False


FIRST = Attempt(StartPoint.GIVEN, "fast")
"""With fast steps where one row at a time has others (`warm_start`): failing costs little here, and refining more than
it brings. 118 buses 0.42 ms a row instead of 0.53, 197_snem 0.63 instead of 1.03, 60_c__api 0.38 instead of 0.46."""
NEAR = Attempt(StartPoint.NEAR, "fast")
WIDE_FAST = Attempt(StartPoint.WIDE, "fast")
"""Instead of that one, where much changes with the input: on congested grids, and where costs and ratings do, it takes
a quarter fewer iterations; on others some more."""
WIDE = Attempt(StartPoint.WIDE, "safeguarded")
CORRECTED = replace(WIDE, correct_inertia=True)
"""From where the last one went to a saddle, as every fifth row of 197_snem__sad does, this goes to a minimum."""
GUESS = Attempt(StartPoint.GUESS, "fast", concludes=True)
"""From the problem's first guess, once an attempt from the nominal solution has ended at an infeasible stationary
point."""
WIDE_FAST_CORRECTED = replace(WIDE_FAST, correct_inertia=True)
"""For large problems, before safeguarded ones: rows of case9241_pegase that end at a saddle end at a minimum beside it
in 25 iterations more, and safeguarded steps stall at once where there are thousands of outputs."""
WIDER_CORRECTED = replace(CORRECTED, start=StartPoint.WIDER)
"""Two of 160 rows of 179_goc__api that have a solution were called infeasible, for searches from both sides ended at
local minima of the violation; from further up they are solved in 15 and 20 iterations."""
ELASTIC = Attempt(StartPoint.NOMINAL, "elastic", elastic=True, correct_inertia=True)
FINISH = Attempt(StartPoint.ELASTIC_END, "fast")
FINISH_SAFEGUARDED = Attempt(StartPoint.ELASTIC_END, "safeguarded")
LEAST = replace(ELASTIC, with_objective=False)
LEAST_FROM_GUESS = replace(LEAST, start=StartPoint.GUESS, concludes=True)
PENALISED = replace(ELASTIC, higher_penalty=True)
"""For rows that violated constraints for their cost and have points that violate none: at the edge of feasibility
multipliers are large. One row in 500 of case57_ieee, which took half as long as all others together."""
FOLLOWED = replace(ELASTIC, start=StartPoint.STILL_ELASTIC, to_optimum=True)
"""Further where it ended, for rows whose constraints leave no interior: they stall on whatever is not elastic. Two of
40 rows of case588_sdet__sad, each of which took IPOPT as long as lanes take for all others."""
FINISH_PENALISED, FOLLOWED_PENALISED = (replace(one, higher_penalty=True) for one in (FINISH, FOLLOWED))

AGAIN = replace(WIDER_CORRECTED, again=True)
"""Of 200 rows of 197_snem__sad two, and of 162_ieee_dtc (correlated) two, ended above the optimum that IPOPT finds with
CORRECTED alone; with this one of the four does. A tenth of the rows of such grids come here, of others hardly any."""
AGAIN_FROM_GUESS = replace(AGAIN, start=StartPoint.GUESS)

FOLLOWING: dict[tuple[Attempt, AttemptStatus], Attempt] = {
    # ---- starts
    (FIRST, STALLED): NEAR,  # the start was not near enough
    (NEAR, STALLED): WIDE,  # the row is congested: a more central start
    (WIDE_FAST, STALLED): WIDE,  # fast steps stalled
    (WIDE, STALLED): CORRECTED,  # it may have gone to a saddle
    (CORRECTED, STALLED): WIDER_CORRECTED,  # a start that is more central still
    (WIDER_CORRECTED, STALLED): ELASTIC,  # it is at the edge of feasibility, or beyond
    # ---- elastic: where it is feasible it is finished, else it is asked whether anything is
    (ELASTIC, CONVERGED): FINISH,  # near the row's own central path: a few iterations
    (ELASTIC, INFEASIBLE): LEAST,  # for its cost, or because there is no feasible point?
    (LEAST, INFEASIBLE): LEAST_FROM_GUESS,  # a local minimum of the violation is no proof
    (LEAST, CONVERGED): PENALISED,  # it was for its cost
    (LEAST_FROM_GUESS, CONVERGED): PENALISED,  # the same
    (PENALISED, CONVERGED): FINISH_PENALISED,  # as after ELASTIC
    # ---- finish
    (FINISH, STALLED): FOLLOWED,  # its constraints leave no interior
    (FOLLOWED, INFEASIBLE): PENALISED,  # it violated constraints for its cost
    (FOLLOWED, STALLED): FINISH_SAFEGUARDED,  # one more kind of step
    (FINISH_PENALISED, STALLED): FOLLOWED_PENALISED,  # as after FINISH
    (FOLLOWED_PENALISED, INFEASIBLE): FINISH_SAFEGUARDED,  # one more kind of step
    (FOLLOWED_PENALISED, STALLED): FINISH_SAFEGUARDED,  # the same
    # ---- again: solved, with shifts or penalties that may have led it away from a better minimum
    **{
        (attempt, CONVERGED): AGAIN
        for attempt in (
            CORRECTED, FINISH, FOLLOWED, FINISH_SAFEGUARDED, FINISH_PENALISED, FOLLOWED_PENALISED
        )
    },
    (WIDER_CORRECTED, CONVERGED): AGAIN_FROM_GUESS,
    (AGAIN, CONVERGED): AGAIN_FROM_GUESS,
    (AGAIN, STALLED): AGAIN_FROM_GUESS,
}  # fmt: skip
"""What is tried next; nothing comes back to what was tried before. An end that is not here counts as stalled; a row for
which nothing follows, and which has not converged, is left to others."""
LARGE_FOLLOWING = {
    key: attempt
    for key, attempt in FOLLOWING.items()
    if not attempt.again  # which takes them long
} | {
    (NEAR, STALLED): WIDE_FAST_CORRECTED,  # safeguarded steps stall at once
    (CORRECTED, STALLED): ELASTIC,  # from further up they do, too
    (NEAR, INFEASIBLE): GUESS,  # is it infeasible from elsewhere, too?
    (WIDE_FAST, STALLED): NEAR,  # the other central point
    (WIDE_FAST, INFEASIBLE): GUESS,  # is it infeasible from elsewhere, too?
    (GUESS, STALLED): WIDE_FAST_CORRECTED,  # it is not known
    (WIDE_FAST_CORRECTED, STALLED): WIDE,  # one more kind of step
    (WIDE_FAST_CORRECTED, INFEASIBLE): LEAST_FROM_GUESS,  # a search from elsewhere decides
}
"""The same for large problems: other ways from the central path to WIDE, none from further up, and no row is solved
again."""


@dataclass(frozen=True)
class AttemptPlan:
    """What rows begin with, and the table of what follows.

    Attributes:
        given: for rows that have a start of their own.
        near, large_barrier: for the others, on the nominal central path near its end or where the barrier parameter is
            larger (`Calibration.large_barrier`).
        following: the table.
    """

    given: Attempt = FIRST
    near: Attempt = NEAR
    large_barrier: Attempt = WIDE_FAST
    following: Mapping[tuple[Attempt, AttemptStatus], Attempt] = field(default_factory=lambda: FOLLOWING)

    def after(self, attempt: Attempt, status: AttemptStatus) -> Attempt | None:
        """What follows an attempt that ended like this, if anything."""
        later = self.following.get((attempt, status))
        return later if later or status is CONVERGED else self.following.get((attempt, STALLED))


PLAN, LARGE_PLAN = AttemptPlan(), AttemptPlan(following=LARGE_FOLLOWING)
