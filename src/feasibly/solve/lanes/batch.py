"""The interior-point method for many rows at a time: every lane has a row of its own until that row is done."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from feasibly.problem.point import Point
from feasibly.solve.interior import InteriorPoint
from feasibly.solve.lanes.attempts import LARGE_PLAN, PLAN, Attempt
from feasibly.solve.lanes.evaluate import LaneFunction
from feasibly.solve.lanes.iteration import LaneIteration, LanePrograms
from feasibly.solve.lanes.monitor import LaneRules, Limits
from feasibly.solve.lanes.run import LaneRun
from feasibly.solve.lanes.starts import LaneStarts
from feasibly.solve.lanes.tangents import Tangents
from feasibly.solve.model import NlpModel
from feasibly.solve.records import Array
from feasibly.solve.settings import StepSettings
from feasibly.solve.status import RowStatus

Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class BatchResult:
    """What became of some rows."""

    point: Point
    """NaN where a row has not converged."""
    status: NDArray[np.int8]
    """Of each row, a `RowStatus`."""
    iterations: NDArray[np.int64]
    least: dict[int, Array]
    """Of rows for which a search ended there, the iterate where constraints are violated least (`least_violating`)."""

    @property
    def converged(self) -> Mask:
        """Rows that have a solution here."""
        return np.asarray(self.status == RowStatus.CONVERGED)

    @property
    def infeasible(self) -> Mask:
        """Rows for which two attempts ended at infeasible stationary points."""
        return np.asarray(self.status == RowStatus.INFEASIBLE)

    @property
    def tried(self) -> Mask:
        """Rows that were begun; the others met the end of the time."""
        return np.asarray(self.status != RowStatus.NOT_STARTED)


class BatchSolver:
    """One problem's rows, as `InteriorPoint` solves them and further, a lane each; one thread at a time.

    `model` may keep some of the inequalities alone (`NlpModel.keeping`): a grid has thousands that no row ever comes
    near, and they take half of the time. Whoever leaves some out looks at all of them in the end.

    Attributes:
        settings: numbers of the method.
        plan: what is tried for a row.
        iteration: of all lanes, where there is more than one row.
        most_bytes: of the iterates that are kept at a time.

    Raises:
        UnsupportedError: the problem has an operation that lanes do not know.
    """

    most_bytes = 200_000_000

    def __init__(self, interior: InteriorPoint, nominal: Point, model: NlpModel | None = None) -> None:
        self._interior, self._whole, self.settings = interior, interior.model, interior.settings
        self._model = model = self._whole if model is None else model
        self._kept = np.arange(self._whole.n_inequalities) if model.kept is None else model.kept
        self.plan = LARGE_PLAN if self.large else PLAN
        self.iteration = LaneIteration(LanePrograms(model, self.settings))
        self._lane_starts = LaneStarts(self.iteration, interior, self._kept, nominal)
        self._fixed_gradient = LaneFunction(model.fixed_gradient) if len(model.fixed_outputs) else None
        self._rules: dict[Attempt, LaneRules] = {}
        unit = model.objective_scale
        largest = (
            np.abs(nominal.duals.equality * unit / model.equality_scale).max(initial=0.0),
            np.abs(nominal.duals.inequality[self._kept] * unit / model.inequality_scale).max(initial=0.0),
        )
        self._weight = 1.0 / (self.settings.penalty * max(*largest, 1.0))

    @functools.cached_property
    def _single(self) -> LaneIteration:
        """For one row alone: one lane takes half of the time of eight."""
        return LaneIteration(self.iteration.programs, 1)

    @functools.cached_property
    def tangents(self) -> Tangents:
        """How solutions move with the input."""
        return Tangents(self.iteration, self._kept, self._lane_starts.bounds)

    @property
    def large(self) -> bool:
        """Whether there are so many outputs that one of their bounds is always near."""
        return self._interior.large

    # ---- solving ---------------------------------------------------------------------------------------

    def solve(
        self,
        x: Array,
        starts: Point | None,
        given: Mask,
        go_on: Callable[[], bool] = lambda: True,
        large_barrier: bool = False,
    ) -> BatchResult:
        """Solve rows, from `starts` where `given`, and by further attempts (`attempts`) where that is not enough.

        Args:
            x: `(rows, n_inputs)`.
            starts: a point a row.
            given: which rows have one that is to be used.
            go_on: asked before a row is begun.
            large_barrier: whether the others start at the central point with the larger barrier parameter.
        """
        rows = max(self.most_bytes // (16 * len(self.iteration.iterate)), self.iteration.width)
        parts = []
        for first in range(0, max(len(x), 1), rows):
            some = slice(first, first + rows)
            own = None if starts is None else starts.take(some)
            parts.append(self._solve(x[some], own, given[some], go_on, large_barrier))
        if len(parts) == 1:
            return parts[0]
        least = {rows * k + row: end for k, part in enumerate(parts) for row, end in part.least.items()}
        status, iterations = (
            np.concatenate([getattr(part, name) for part in parts]) for name in ("status", "iterations")
        )
        return BatchResult(Point.join([part.point for part in parts]), status, iterations, least)

    def _solve(
        self, x: Array, starts: Point | None, given: Mask, go_on: Callable[[], bool], large_barrier: bool
    ) -> BatchResult:
        plain_starts: dict[int, Array] = {}
        if starts is not None and given.any():
            iterates = self._lane_starts.push_inside(x[given], starts.take(given))
            sound = np.isfinite(iterates).all(axis=1)
            plain_starts = dict(zip(np.flatnonzero(given)[sound].tolist(), iterates[sound], strict=True))
        iteration = self._single if len(x) == 1 else self.iteration
        lanes = LaneRun(self, iteration, x, plain_starts, go_on, large_barrier)
        lanes.run()
        status = np.where(self._model.opens(x), RowStatus.UNSOLVED, lanes.status).astype(np.int8)
        point = self._points(x, lanes.found, status == RowStatus.CONVERGED)
        return BatchResult(point, status, lanes.iterations, lanes.least)

    # ---- attempts --------------------------------------------------------------------------------------

    def start(self, attempt: Attempt, x: Array, known: Array | None) -> Array:
        """The iterate that an attempt at a row starts at; `known` is the one that belongs to the row."""
        return self._lane_starts.start(attempt, x, known)

    def cost(self, x: Array, iterate: Array) -> float:
        """The scaled objective of a row's iterate."""
        return self._lane_starts.cost(x, iterate)

    def rules(self, attempt: Attempt) -> LaneRules:
        """What holds for a lane during an attempt."""
        if attempt not in self._rules:
            self._rules[attempt] = self._make_rules(attempt)
        return self._rules[attempt]

    def _make_rules(self, attempt: Attempt) -> LaneRules:
        s, interior, slacks = self.settings, self._interior, self.iteration.newton.n_slacks
        weight = self.weight(attempt)
        own = float(attempt.elastic), weight, 0.0 if attempt.with_objective else s.proximal_weight
        large = attempt.step == "fast" and self.large
        step: StepSettings = s.fast_large if large else getattr(s, attempt.step)
        tolerances, barrier, gap = (interior.tolerance,) * 3, interior.barrier, interior.largest_gap
        rounded = s.rounding_error
        if attempt.to_optimum:
            # What counts in the objective's own units counts as much less here as that does.
            barrier = max(barrier * weight, s.smallest_barrier)
            least = max(interior.tolerance * weight, s.elastic_error_factor * barrier)
            tolerances = least, interior.tolerance, least
            gap = max(gap * weight, s.centrality * barrier * slacks)
            rounded = max(rounded * weight, least)
        elif attempt.elastic:
            tolerances, barrier, gap = s.elastic_tolerances, s.elastic_barrier, np.inf
        return LaneRules(
            parameters=np.array([*step.parameters(barrier), *own]),
            limits=Limits(
                *tolerances, gap / slacks, rounded,
                s.elastic_rounding_iterations if attempt.elastic else s.rounding_iterations,
                step.short_step, step.most_short_steps,
                s.elastic_iterations if attempt.elastic else s.most_iterations,
            ),
            final_parameters=np.array([*s.final_large.parameters(barrier), *own]) if large else None,
        )  # fmt: skip

    def weight(self, attempt: Attempt) -> float:
        """Of the objective; the l1 penalty of an elastic attempt is one."""
        if not attempt.with_objective:
            return 0.0
        if not attempt.elastic:
            return 1.0
        return self._weight / (self.settings.penalty_increase if attempt.higher_penalty else 1.0)

    def without_elastic(self, iterate: Array, attempt: Attempt) -> Array:
        """The end of an elastic attempt as an iterate of the problem itself: near its central path, nearly feasible."""
        parts, plain, weight = self.iteration.parts, np.zeros(len(iterate)), self.weight(attempt)
        for name, unit in (("y", 1.0), ("nu", weight), ("s", 1.0), ("z", weight)):
            plain[parts[name]] = iterate[parts[name]] / unit
        return plain

    # ---- results ---------------------------------------------------------------------------------------

    def least_violating(self, x: Array, result: BatchResult) -> tuple[NDArray[np.int64], Point]:
        """Rows for which a search for a feasible point ended where constraints are violated least, and those points.

        Their multipliers are those of a cost of nothing, up to one factor.
        """
        rows = np.array(sorted(result.least), dtype=np.int64)
        if not len(rows):
            return rows, result.point.take(rows)
        return rows, self._point(x[rows], np.stack([result.least[row] for row in rows.tolist()]))

    def _points(self, x: Array, found: Array, converged: Mask) -> Point:
        """Iterates as points in the problem's own units; NaN where there is none."""
        if converged.all():
            return self._point(x, found)
        size, model = len(self._model.lower), self._whole
        sizes = size, model.n_equalities, model.n_inequalities, size, size
        points = Point.of(*(np.full((len(x), n), np.nan) for n in sizes))
        if converged.any():
            points.put(np.flatnonzero(converged), self._point(x[converged], found[converged]))
        return points

    def _point(self, x: Array, found: Array) -> Point:
        model, newton, parts = self._model, self.iteration.newton, self.iteration.parts
        unit = model.objective_scale
        lower, upper = self._lane_starts.bounds(x)
        y, low, high = lower.copy(), np.zeros_like(lower), np.zeros_like(lower)
        free, ni, nl = model.free, model.n_inequalities, len(newton.below)
        y[:, free] = np.clip(found[:, parts["y"]], lower[:, free], upper[:, free])
        z, nu = found[:, parts["z"]], found[:, parts["nu"]]
        low[:, free[newton.below]] = z[:, ni : ni + nl] / unit
        high[:, free[newton.above]] = z[:, ni + nl : ni + nl + len(newton.above)] / unit
        pinned = lower >= upper
        if self._fixed_gradient is not None and pinned.any():
            gradient = np.zeros_like(y)
            (gradient[:, model.fixed_outputs],) = self._fixed_gradient(y, x, nu, z[:, :ni])
            low[pinned], high[pinned] = (
                np.maximum(s * gradient[pinned], 0.0) for s in (1.0 / unit, -1.0 / unit)
            )
        inequality = np.zeros((len(x), self._whole.n_inequalities))
        inequality[:, self._kept] = z[:, :ni] * (model.inequality_scale / unit)
        return Point.of(y, nu * (model.equality_scale / unit), inequality, low, high)
