"""The ways a row is tried in, one after the other: which comes first, and which follows how the last one ended.

A row that converges is done wherever it stands. Otherwise, downwards:

    FIRST      from a start of its own, if it has one
    NEAR       or WIDER: the nominal central path      (large problems: the other of the two, guarded, comes next; a
                                                        way that stands still at a broken constraint leads to AFAR)
    WIDE       the same with careful steps
    GUARDED    the same with the Hessian made to curve upwards
    ELASTIC    constraints may be broken at a price
      broken   LEAST, then LEAST_FROM_AFAR: the least that can be broken
                 broken from both: no solution; else DEARER, a higher price
      unbroken FINISH: from there without the price; stuck: FIRM, with it to the end
    FINISH_CAREFULLY, and then it is left to others
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import Literal


class Start(enum.Enum):
    """Where a way begins."""

    GIVEN = "the row's own start"
    NEAR = "the nominal input's central path, near its end"
    WIDE = "the same where the path is wider"
    NOMINAL = "the nominal solution, elastic"
    GUESS = "the problem's first guess"
    FOUND = "where the elastic problem ended"
    ELASTIC = "the same, still elastic"


class End(enum.Enum):
    """How a way ended."""

    CONVERGED = "at a point that satisfies the optimality conditions"
    BROKEN = "at a point that breaks constraints less than any near it"
    STUCK = "anything else"


@dataclass(frozen=True)
class Way:
    """One attempt."""

    start: Start
    manner: Literal["hasty", "careful", "elastic"]
    """Which of the manners in `SolverSettings`."""
    elastic: bool = False
    guarded: bool = False
    """Whether the Hessian is made to curve upwards on the constraints."""
    costs: bool = True
    """Whether the objective counts; where it does not, staying near the first guess makes what is found unique."""
    dear: bool = False
    """Whether breaking a constraint costs more than usual."""
    firm: bool = False
    """Whether an elastic one is to end as near to the optimum as others."""


FIRST = Way(Start.GIVEN, "hasty")
"""Bold where one row at a time is not (`warm`): failing costs little here, and refining more than it brings. 118 buses
0.42 ms a row instead of 0.53, 197_snem 0.63 instead of 1.03, 60_c__api 0.38 instead of 0.46."""
NEAR = Way(Start.NEAR, "hasty")
WIDER = Way(Start.WIDE, "hasty")
"""Instead of that one, where much changes with the input: on congested grids, and where costs and ratings do, it takes
a quarter fewer iterations; on others some more."""
WIDE = Way(Start.WIDE, "careful")
GUARDED = replace(WIDE, guarded=True)
"""From where the last one went to a saddle, as every fifth row of 197_snem__sad does, this goes to a minimum."""
AFAR = Way(Start.GUESS, "hasty")
"""From the problem's first guess, once a way from the nominal solution has ended at a least infeasible point: a row
that ends there from both sides has no solution."""
WIDER_GUARDED = replace(WIDER, guarded=True)
"""For large problems, before careful ones: rows of case9241_pegase that end at a saddle end at a minimum beside it in
25 iterations more, and careful steps get stuck at once where there are thousands of outputs."""
ELASTIC = Way(Start.NOMINAL, "elastic", elastic=True, guarded=True)
FINISH = Way(Start.FOUND, "hasty")
FINISH_CAREFULLY = Way(Start.FOUND, "careful")
LEAST = replace(ELASTIC, costs=False)
LEAST_FROM_AFAR = replace(LEAST, start=Start.GUESS)
DEARER = replace(ELASTIC, dear=True)
"""For rows that broke constraints for their cost and have points that break none: at the edge of feasibility
multipliers are large. One row in 500 of case57_ieee, which took half as long as all others together."""

FIRM = replace(ELASTIC, start=Start.ELASTIC, firm=True)
"""Further where it ended, for rows whose constraints leave no room inside: they get stuck on whatever is not elastic.
Two of 40 rows of case588_sdet__sad, each of which took IPOPT as long as lanes take for all others."""
FINISH_DEARER, FIRM_DEARER = replace(FINISH, dear=True), replace(FIRM, dear=True)

FOLLOWING: dict[tuple[Way, End], Way] = {
    (FIRST, End.STUCK): NEAR,
    (NEAR, End.STUCK): WIDE,
    (WIDER, End.STUCK): WIDE,
    (WIDE, End.STUCK): GUARDED,
    (GUARDED, End.STUCK): ELASTIC,
    (ELASTIC, End.CONVERGED): FINISH,
    (FINISH, End.STUCK): FIRM,
    (FIRM, End.BROKEN): DEARER,
    (FIRM, End.STUCK): FINISH_CAREFULLY,
    (ELASTIC, End.BROKEN): LEAST,
    (LEAST, End.BROKEN): LEAST_FROM_AFAR,
    (LEAST, End.CONVERGED): DEARER,
    (LEAST_FROM_AFAR, End.CONVERGED): DEARER,
    (DEARER, End.CONVERGED): FINISH_DEARER,
    (FINISH_DEARER, End.STUCK): FIRM_DEARER,
    (FIRM_DEARER, End.BROKEN): FINISH_CAREFULLY,
    (FIRM_DEARER, End.STUCK): FINISH_CAREFULLY,
}
"""What is tried next; nothing comes back to what was tried before. A row whose two searches for a feasible point both
end at a broken constraint has none; one for which nothing follows, and which has not converged, is left to others."""
LAST_SEARCHES = frozenset({LEAST_FROM_AFAR, AFAR})
"""Each comes after another that ended at a point that breaks constraints; one that does too settles the matter."""
LARGE_FOLLOWING = FOLLOWING | {
    (NEAR, End.STUCK): WIDER_GUARDED,
    (NEAR, End.BROKEN): AFAR,
    (WIDER, End.STUCK): NEAR,
    (WIDER, End.BROKEN): AFAR,
    (AFAR, End.STUCK): WIDER_GUARDED,
    (WIDER_GUARDED, End.STUCK): WIDE,
    (WIDER_GUARDED, End.BROKEN): LEAST_FROM_AFAR,
}
"""The same for large problems."""
