"""What is tried for one row, in which order, and when: a table (`FALLBACKS`) and what its lines do.

Every line is asked in turn whether it applies, and makes its attempts if it does; `Solver.solve` stops at the first
that finds a solution, and once enough of them say that there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

import numpy as np

from feasibly.problem.point import Point
from feasibly.solve._attempt import AttemptEnd
from feasibly.solve.feasibility import Feasibility
from feasibly.solve.interior import InteriorPoint
from feasibly.solve.ipopt import Ipopt
from feasibly.solve.model import NlpModel
from feasibly.solve.outcome import Outcome
from feasibly.solve.records import Array, AttemptResult
from feasibly.solve.settings import SolverSettings
from feasibly.solve.status import AttemptStatus, RowStatus, SearchEnd

if TYPE_CHECKING:
    from feasibly.solve.lanes.batch import BatchSolver


class Methods(Protocol):
    """What attempts are made with; each is built when it is first asked for."""

    model: NlpModel
    settings: SolverSettings
    ipopt: Ipopt

    @property
    def interior(self) -> InteriorPoint:
        """Our own interior-point method."""

    @property
    def feasibility(self) -> Feasibility:
        """The search for a feasible point."""

    @property
    def batch(self) -> BatchSolver | None:
        """The interior-point method in lanes, where it is to be had."""


@dataclass
class RowAttempts:
    """The attempts at one row, and what is known of it so far.

    Attributes:
        methods: to try it with.
        warm: `SolverOptions.warm`.
        x: its input.
        start: a start of its own.
        nominal: the nominal solution; `None` where there is none.
        centred: whether the nominal central path is known.
        thorough: start IPOPT cold even where a search has found no feasible point.
        tried: the interior-point method has been tried elsewhere, in lanes.
        searches: where each search for a feasible point ended, the one from the nominal solution and the one from the
            first guess; both at once where attempts from both sides have told already.
        outcomes: of cold starts so far.
    """

    methods: Methods
    warm: Literal["interior", "ipopt", "none"]
    x: Array
    start: Point | None
    nominal: Point | None
    centred: bool
    thorough: bool
    tried: bool
    searches: list[SearchEnd] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)

    def run(self) -> Iterator[AttemptResult]:
        """One attempt after the other, in the order of the table; none is made before it is asked for."""
        for fallback in FALLBACKS:
            if fallback.applies(self):
                yield from fallback.attempts(self)

    # ---- when lines of the table apply -------------------------------------------------------------------

    @property
    def may_be_feasible(self) -> bool:
        """No search has ended at an infeasible point, or another has found a feasible one."""
        return self.met_feasible or SearchEnd.INFEASIBLE not in self.searches

    @property
    def met_feasible(self) -> bool:
        """A search has ended at a feasible point."""
        return SearchEnd.FEASIBLE in self.searches

    @property
    def by_interior(self) -> bool:
        """The interior-point method comes first, and has not been tried."""
        return self.warm == "interior" and not self.tried

    @property
    def by_lanes(self) -> bool:
        """The interior-point method has come to nothing, and elastic constraints may tell why."""
        return self.by_interior and self.centred and self.may_be_feasible

    @property
    def searched(self) -> bool:
        """Searches for a feasible point have somewhere to start."""
        return self.nominal is not None and self.warm != "none"

    @property
    def last_warm(self) -> bool:
        """There may be a solution, and a nominal one to start from."""
        return self.warm == "interior" and self.nominal is not None and self.may_be_feasible

    @property
    def cold(self) -> bool:
        """Cold starts are worth it."""
        return self.thorough or self.may_be_feasible

    # ---- what they do ------------------------------------------------------------------------------------

    def interior_from_start(self) -> list[AttemptResult]:
        """A start that ends far from feasible most likely belongs to a row without a solution: that is looked at."""
        assert self.start is not None
        end = self.methods.interior.solve_from(self.x, self.start)
        if end.violation > self.methods.settings.far_from_feasible and self.searched:
            self._search(1)
        return [self._result(end)]

    def interior_from_nominal(self) -> list[AttemptResult]:
        """The nominal central path; two attempts that agree from both sides tell as much as two searches."""
        end = self.methods.interior.solve(self.x)
        if end.status is AttemptStatus.INFEASIBLE_POINT and not self.searches:
            self.searches = [SearchEnd.INFEASIBLE] * 2
        return [self._result(end)]

    def interior_inertia_corrected(self) -> list[AttemptResult]:
        """The nominal central path with the inertia corrected in every step."""
        return [self._result(self.methods.interior.solve_inertia_corrected(self.x))]

    def lanes(self) -> list[AttemptResult]:
        """All attempts of `lanes`."""
        if self.methods.batch is None:
            return []
        done = self.methods.batch.solve(self.x[None], None, np.zeros(1, dtype=bool))
        iterations = int(done.iterations[0])
        if done.status[0] == RowStatus.INFEASIBLE and not self.met_feasible:
            self.searches = [SearchEnd.INFEASIBLE] * 2
            return [
                AttemptResult(None, Outcome.INFEASIBLE, iterations),
                AttemptResult(None, Outcome.INFEASIBLE, 0),
            ]
        if done.status[0] != RowStatus.CONVERGED:
            return [AttemptResult(None, Outcome.NUMERICAL, iterations)]
        return [AttemptResult(done.point.take(0), Outcome.OK, iterations)]

    def feasibility(self) -> list[AttemptResult]:
        """Both searches for a feasible point, as far as they are not known."""
        self._search(2)
        return [AttemptResult(None, Outcome.INFEASIBLE, 0)] * self.searches.count(SearchEnd.INFEASIBLE)

    def ipopt_from_start(self) -> list[AttemptResult]:
        """IPOPT from the row's own start."""
        return [self.methods.ipopt.attempt("warm", self.x, self.start)]

    def ipopt_from_nominal(self) -> list[AttemptResult]:
        """IPOPT from the nominal solution."""
        return [self.methods.ipopt.attempt("warm", self.x, self.nominal)]

    def ipopt_cold(self) -> list[AttemptResult]:
        """IPOPT from the first guess."""
        return self._cold("cold")

    def ipopt_raised(self) -> list[AttemptResult]:
        """IPOPT from above the first guess."""
        return self._cold("raised")

    def ipopt_other(self) -> list[AttemptResult]:
        """IPOPT from the first guess with other options."""
        return self._cold("other")

    def feasibility_from_guess(self) -> list[AttemptResult]:
        """A search for a feasible point from the first guess alone."""
        end = self.methods.feasibility.search(self.x, self.methods.model.start)
        self.searches.append(end)
        return [AttemptResult(None, Outcome.INFEASIBLE, 0)] if end is SearchEnd.INFEASIBLE else []

    # ---- parts -------------------------------------------------------------------------------------------

    def _search(self, most: int) -> None:
        """Search for a feasible point from the nominal solution and the first guess, until `most` are known."""
        assert self.nominal is not None
        for y in (self.nominal.y, self.methods.model.start)[len(self.searches) : most]:
            self.searches.append(self.methods.feasibility.search(self.x, y))

    def _result(self, end: AttemptEnd) -> AttemptResult:
        outcome = Outcome.OK if end.converged else Outcome.NUMERICAL
        return AttemptResult(self.methods.interior.point(self.x, end.iterate), outcome, end.iterations)

    def _cold(self, kind: str) -> list[AttemptResult]:
        result = self.methods.ipopt.attempt(kind, self.x)
        self.outcomes.append(result.outcome)
        return [result]


class Fallback(NamedTuple):
    """A line of the table."""

    attempts: Callable[[RowAttempts], list[AttemptResult]]
    applies: Callable[[RowAttempts], bool]


FALLBACKS = (
    # A start of the row's own: near the answer, a few iterations.
    Fallback(RowAttempts.interior_from_start, lambda row: row.by_interior and row.start is not None),
    # The nominal central path, unless the first ended far from any feasible point and there is none near.
    Fallback(
        RowAttempts.interior_from_nominal, lambda row: row.by_interior and row.centred and row.may_be_feasible
    ),
    # `warm="ipopt"` and `warm="none"`: IPOPT from a start that is given, and from the nominal solution.
    Fallback(RowAttempts.ipopt_from_start, lambda row: row.warm != "interior" and row.start is not None),
    Fallback(RowAttempts.ipopt_from_nominal, lambda row: row.warm == "ipopt" and row.nominal is not None),
    # Past saddles: half of the rows with a solution that get here, in a quarter of the time of the searches below
    # (179_goc__api, 24__api, 162__api).
    Fallback(RowAttempts.interior_inertia_corrected, lambda row: row.last_warm and row.centred),
    # Elastic constraints settle nearly every row that is left, most of which have no solution, sooner than searches and
    # IPOPT do, and find more solutions. Of large problems the searches end at zero pivots, and IPOPT takes minutes.
    Fallback(RowAttempts.lanes, lambda row: row.by_lanes),
    # Two searches for a feasible point: IPOPT takes long to find out that there is none.
    Fallback(RowAttempts.feasibility, lambda row: row.searched),
    # There may be a solution: once more from the nominal solution.
    Fallback(RowAttempts.ipopt_from_nominal, lambda row: row.last_warm),
    # Cold starts, unless searches say that there is no feasible point and nobody asked to be thorough.
    Fallback(RowAttempts.ipopt_cold, lambda row: row.cold),
    # Without a nominal solution cold starts are all there is: one more from further up,
    Fallback(RowAttempts.ipopt_raised, lambda row: row.cold and row.nominal is None),
    # one with another barrier strategy,
    Fallback(RowAttempts.ipopt_other, lambda row: row.cold),
    # and a search from the first guess if they only broke down.
    Fallback(
        RowAttempts.feasibility_from_guess,
        lambda row: row.cold and row.nominal is None and Outcome.INFEASIBLE not in row.outcomes,
    ),
)
