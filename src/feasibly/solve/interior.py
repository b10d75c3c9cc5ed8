"""A sparse primal-dual interior-point method for many nearby instances of one problem.

IPOPT spends most of a warm solve on what does not change from row to row: it analyses the pattern of its linear system
anew, and keeps slacks and their constraints in it. Here the slacks are eliminated, the pattern is analysed once, and an
iteration is one CasADi function (`_newton`, `iteration`). A row is solved in attempts (`_attempt`), in the order of
`ATTEMPTS`: each starts on the central path of the *nominal* input, which is traced once (`find_central_points`). There
is no line search: a row that does not end at a minimum is left to others (`fallbacks`).
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from feasibly.problem.point import Point
from feasibly.solve._attempt import AttemptEnd, Goal, InteriorAttempt
from feasibly.solve._newton import Newton
from feasibly.solve.compiled import Compiled
from feasibly.solve.iteration import InteriorIterate, RowIteration
from feasibly.solve.model import NlpModel
from feasibly.solve.records import Array
from feasibly.solve.settings import SolverSettings, StepSettings
from feasibly.solve.status import AttemptStatus

_UNSOLVED = frozenset({AttemptStatus.STALLED, AttemptStatus.INFEASIBLE_POINT})


class Planned(NamedTuple):
    """An attempt at a row without a start of its own."""

    start: Literal["near", "wide", "guess"]
    """The nominal central path near its end, the same where its barrier parameter is larger, the first guess."""
    step: Literal["fast", "fast_large", "safeguarded"]
    """Which of the steps in `SolverSettings`."""
    correct_inertia: bool = False
    after: frozenset[AttemptStatus] = frozenset()
    """It is made if the one before ended like this."""


ATTEMPTS = (
    # Most rows end here.
    Planned("near", "fast"),
    # Congested ones do not get away from there.
    Planned("wide", "safeguarded", after=_UNSOLVED),
)
LARGE_ATTEMPTS = (
    Planned("near", "fast_large"),
    # One that ended at a saddle ends at a minimum beside it.
    Planned("wide", "fast_large", correct_inertia=True, after=frozenset({AttemptStatus.STALLED})),
    # One that ends at an infeasible stationary point from here too, as far from feasible, has no solution.
    Planned("guess", "fast_large", after=frozenset({AttemptStatus.INFEASIBLE_POINT})),
    # Last, since safeguarded steps mostly stall at once where there are thousands of outputs.
    Planned("wide", "safeguarded", after=_UNSOLVED),
)


class InteriorPoint:
    """The method for one model. Its functions are built once; `solve` only evaluates them.

    Attributes:
        central_points: of the nominal input's central path, by rising barrier parameter; empty until found.
        barrier: the least `mu` that rows aim at.
        largest_gap: the duality gap that a solved row may have.
    """

    def __init__(self, model: NlpModel, tolerance: float, settings: SolverSettings) -> None:
        self.model = model
        self.tolerance = tolerance
        self.settings = settings
        self._newton = Newton(model, settings)
        self.iteration = RowIteration(self._newton)
        self._fixed_gradient = Compiled(model.fixed_gradient)
        self._first_order = Compiled(model.first_order)
        self.central_points: list[InteriorIterate] = []
        self.barrier, self.largest_gap = settings.final_barrier, np.inf

    @property
    def large(self) -> bool:
        """Whether there are so many outputs that one of their bounds is always near."""
        return len(self.model.free) >= self.settings.large_from

    @property
    def wide_points(self) -> list[InteriorIterate]:
        """The central points that are not near the path's end; that one where there is no other."""
        return self.central_points[1:] or self.central_points

    # ---- the nominal central path ----------------------------------------------------------------------

    def find_central_points(self, nominal: Point) -> bool:
        """Find the points of the nominal input's central path that rows start at; `False` if there is none."""
        s, x = self.settings, self.model.nominal
        start = self.push_inside(x, nominal)
        cost = abs(self.cost(x, start))
        if cost > 0.0:
            self.largest_gap = s.centrality * s.relative_gap * cost
            barrier = s.relative_gap * cost / self._newton.n_slacks
            self.barrier = float(np.clip(barrier, s.smallest_barrier, s.final_barrier))
        self.central_points = self._trace_upwards(start) or self._trace_downwards(nominal)
        return bool(self.central_points)

    @property
    def _barriers(self) -> tuple[float, ...]:
        """The barrier parameters of the points that are looked for; large problems do with near and wide."""
        return self.settings.start_barriers[: 2 if self.large else None]

    def _trace_upwards(self, start: InteriorIterate) -> list[InteriorIterate]:
        """The central points found from the nominal solution with rising barrier parameters, as far as that leads."""
        s = self.settings
        found: list[InteriorIterate] = []
        iterate: InteriorIterate | None = start
        barrier = s.start_barriers[0]
        barriers = self._barriers
        while barrier <= barriers[-1] and iterate is not None:
            iterate = self._central_point(iterate, barrier)
            if iterate is not None and barrier in barriers:
                found.append(iterate)
            larger = [each for each in barriers if each > barrier]
            barrier = min([s.barrier_increase * barrier, *larger]) if larger else np.inf
        return found

    def _trace_downwards(self, nominal: Point) -> list[InteriorIterate]:
        """The same with falling ones: of 70,000 outputs some are at their bounds, and lead nowhere upwards.

        It starts well inside of everything, as central as that is, near the nominal solution.
        """
        s = self.settings
        found: list[InteriorIterate] = []
        barriers = self._barriers
        barrier = barriers[-1]
        iterate: InteriorIterate | None = self._centred(self.model.nominal, nominal)
        while barrier >= barriers[0] and iterate is not None:
            iterate = self._central_point(iterate, barrier)
            if iterate is not None and barrier in barriers:
                found.append(iterate)
            smaller = [each for each in barriers if each < barrier]
            barrier = max([barrier / s.barrier_increase, *smaller]) if smaller else -np.inf
        return found[::-1]

    def _central_point(self, iterate: InteriorIterate, barrier: float) -> InteriorIterate | None:
        """The point of the nominal input's central path with this barrier parameter, or `None`."""
        s = self.settings
        for _ in range(s.most_iterations):
            step = self.iteration.step(iterate, self.model.nominal, barrier, s.safeguarded)
            if not np.max(step.info) < s.divergence:  # NaN included
                return None
            central = barrier / s.centrality <= step.mu <= s.centrality * barrier
            if max(step.errors[:2]) <= s.check_below and central:
                return iterate
            iterate = step.following
        return None

    # ---- starts ----------------------------------------------------------------------------------------

    def push_inside(self, x: Array, start: Point, push: float | None = None) -> InteriorIterate:
        """An interior point near a given one, every slack at least `push` (without: a share of its violation)."""
        model, newton, s = self.model, self._newton, self.settings
        lower, upper = (bound[model.free] for bound in model.search_at(x))
        y, nu, z = newton.scaled(start)
        y, z = np.clip(y, lower, upper), np.concatenate([z, np.ones(newton.padding)])
        _, equality, inequality, _ = self._first_order(y, x, nu, z[: model.n_inequalities])
        slack = newton.slacks(y, inequality, lower, upper)
        if push is None:
            violation = max(np.abs(equality).max(initial=0.0), -slack.min(initial=0.0))
            push = float(np.clip(s.push_share * violation, *s.push_range))
        slack = np.maximum(slack, push)
        return InteriorIterate(y, nu, slack, np.maximum(z, s.push_complementarity * push / slack))

    def _centred(self, x: Array, point: Point) -> InteriorIterate:
        """An interior point near a given one, well inside of everything, with multipliers that make it central."""
        s = self.settings
        inside = self.push_inside(x, point, s.elastic_push)
        return InteriorIterate(inside.y, inside.nu, inside.s, s.wide_barrier / inside.s)

    def _start(self, planned: Planned, x: Array) -> InteriorIterate:
        if planned.start != "guess":
            return self.central_points[0] if planned.start == "near" else self.wide_points[0]
        model = self.model
        n, ne, ni = len(model.lower), model.n_equalities, model.n_inequalities
        return self._centred(x, Point.of(model.start, np.zeros(ne), np.zeros(ni), np.zeros(n), np.zeros(n)))

    # ---- solving ---------------------------------------------------------------------------------------

    def solve(self, x: Array) -> AttemptEnd:
        """The attempts from the nominal central path, one after the other.

        The row's status is that of the last one; `INFEASIBLE_POINT` only where two from different starts agree.
        """
        if not self.central_points:
            raise ValueError("there is no central point to start from")
        ends: list[AttemptEnd] = []
        for planned in LARGE_ATTEMPTS if self.large else ATTEMPTS:
            if ends and ends[-1].status not in planned.after:
                continue
            step: StepSettings = getattr(self.settings, planned.step)
            ends.append(self._attempt(x, self._start(planned, x), step, planned.correct_inertia))
            if planned.start == "guess" and self._agree(ends):
                status = AttemptStatus.INFEASIBLE_POINT
                break
        else:
            status = AttemptStatus.CONVERGED if ends[-1].converged else AttemptStatus.STALLED
        last = ends[-1]
        return AttemptEnd(last.iterate, status, sum(end.iterations for end in ends), last.violation)

    def solve_from(self, x: Array, start: Point) -> AttemptEnd:
        """One attempt from a given point, which is expected to be near the answer."""
        return self._attempt(x, self.push_inside(x, start), self.settings.warm_start)

    def solve_from_afar(self, x: Array, start: Point, push: float) -> AttemptEnd:
        """One attempt from a point that may be anywhere, `push` inside of everything, with safeguarded steps."""
        return self._attempt(x, self.push_inside(x, start, push), self.settings.safeguarded)

    def solve_inertia_corrected(self, x: Array) -> AttemptEnd:
        """From the wide central points with the inertia corrected in every step; the better one of what they end at.

        Shifted steps may go astray: one in 200 rows of 162_ieee_dtc, 179_goc__sad and 197_snem__sad ended at a local
        optimum up to 1e-3 above the one that IPOPT finds, and none from both points. Rows without a shift never did.
        """
        ends = [
            self._attempt(x, start, self.settings.safeguarded, correct_inertia=True)
            for start in self.wide_points
        ]
        solved = [end for end in ends if end.converged]
        best = min(solved, key=lambda end: self.cost(x, end.iterate)) if solved else ends[0]
        return AttemptEnd(best.iterate, best.status, sum(end.iterations for end in ends), best.violation)

    def cost(self, x: Array, iterate: InteriorIterate) -> float:
        """The scaled objective."""
        return float(
            self._first_order(iterate.y, x, iterate.nu, iterate.z[: self.model.n_inequalities])[0][0]
        )

    def _attempt(
        self, x: Array, start: InteriorIterate, step: StepSettings, correct_inertia: bool = False
    ) -> AttemptEnd:
        goal = Goal(self.tolerance, self.barrier, self.largest_gap, self.large)
        return InteriorAttempt(self.iteration, goal, self.settings, x, start, step, correct_inertia).run()

    def _agree(self, ends: list[AttemptEnd]) -> bool:
        """Whether the last two ended at infeasible stationary points that violate constraints by as much."""
        one, other = ends[-2:]
        both = one.status is other.status is AttemptStatus.INFEASIBLE_POINT
        return both and abs(other.violation - one.violation) <= self.settings.violation_apart * one.violation

    # ---- results ---------------------------------------------------------------------------------------

    def point(self, x: Array, iterate: InteriorIterate) -> Point:
        """An iterate as a point in the problem's own units, multipliers of fixed outputs included."""
        model = self.model
        newton = self._newton
        ni, n_lower, n_upper = model.n_inequalities, len(newton.below), len(newton.above)
        lower, upper = model.bounds_at(x)
        y = lower.copy()
        y[model.free] = np.clip(iterate.y, lower[model.free], upper[model.free])
        low, high = np.zeros(len(y)), np.zeros(len(y))
        low[model.free[newton.below]] = iterate.z[ni : ni + n_lower]
        high[model.free[newton.above]] = iterate.z[ni + n_lower : ni + n_lower + n_upper]
        pinned = lower >= upper
        if pinned.any():
            gradient = np.zeros(len(y))
            (gradient[model.fixed_outputs],) = self._fixed_gradient(y, x, iterate.nu, iterate.z[:ni])
            low[pinned], high[pinned] = (np.maximum(s * gradient[pinned], 0.0) for s in (1.0, -1.0))
        unit = model.objective_scale
        return Point.of(
            y,
            iterate.nu * model.equality_scale / unit,
            iterate.z[:ni] * model.inequality_scale / unit,
            low / unit,
            high / unit,
        )
