"""The interior-point method for many rows at a time: every lane has a row of its own until that row is done."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from feasibly.problem.point import Point
from feasibly.solve.interior import Interior
from feasibly.solve.lanes.evaluate import Rows
from feasibly.solve.lanes.iteration import Iteration
from feasibly.solve.lanes.run import Lanes, Rules
from feasibly.solve.lanes.tangents import Tangents
from feasibly.solve.lanes.ways import Start, Way
from feasibly.solve.model import Model
from feasibly.solve.records import Array
from feasibly.solve.settings import Manner

Mask = NDArray[np.bool_]

_MOST_BYTES = 200_000_000
"""Of the states that are kept at a time."""


@dataclass(frozen=True, eq=False)
class Finished:
    """What became of some rows."""

    point: Point
    """NaN where a row has not converged."""
    converged: Mask
    infeasible: Mask
    """Rows for which two searches for a feasible point ended without one."""
    iterations: NDArray[np.int64]
    tried: Mask
    """Rows that were begun; the others met the end of the time."""


class Batch:
    """One problem's rows, as `Interior` solves them and further, a lane each; one thread at a time.

    `model` may keep some of the inequalities alone (`Model.keeping`): a grid has thousands that no row ever comes near,
    and they take half of the time. Whoever leaves some out looks at all of them in the end.

    Raises:
        UnsupportedError: the problem has an operation that lanes do not know.
    """

    def __init__(self, interior: Interior, nominal: Point, model: Model | None = None) -> None:
        self._interior, self._whole, self.settings = interior, interior.model, interior.settings
        self._model = self._whole if model is None else model
        every = np.arange(self._whole.n_inequalities)
        self._kept = every if self._model.kept is None else self._model.kept
        self.iteration = Iteration(self._model, self.settings)
        self._slim = Rows(self._model.slim)
        self._fixed = Rows(self._model.fixed) if len(self._model.fixed_outputs) else None
        self._bounds = None if self._model.bounds is None else Rows(self._model.bounds)
        amounts = np.zeros(2 * self._model.n_equalities + self._model.n_inequalities)
        bounds = np.arange(len(every), len(interior.centres[0].s))
        rows = np.concatenate([self._kept, bounds])
        padding = np.ones(self.iteration.newton.rows - len(rows))
        self._centres = [
            np.concatenate([c.y, c.nu, c.s[rows], padding, c.z[rows], padding, amounts])
            for c in interior.centres
        ]
        self._rules: dict[Way, Rules] = {}
        self._nominal = nominal
        model, unit = self._model, self._model.objective_scale
        sizes = (
            np.abs(nominal.duals.equality * unit / model.equality_scale).max(initial=0.0),
            np.abs(nominal.duals.inequality[self._kept] * unit / model.inequality_scale).max(initial=0.0),
        )
        self._weight = 1.0 / (self.settings.price * max(*sizes, 1.0))

    @functools.cached_property
    def tangents(self) -> Tangents | None:
        """How solutions move with the input; `None` where bounds do, too."""
        return Tangents(self.iteration, self._kept) if self._whole.bounds is None else None

    # ---- solving ---------------------------------------------------------------------------------------

    def solve(
        self,
        x: Array,
        starts: Point | None,
        given: Mask,
        go_on: Callable[[], bool] = lambda: True,
        wide: bool = False,
    ) -> Finished:
        """Solve rows, from `starts` where `given`, and in the other ways (`ways`) where that is not enough.

        Args:
            x: `(rows, n_inputs)`.
            starts: a point a row.
            given: which rows have one that is to be used.
            go_on: asked before a row is begun.
            wide: whether the others begin where the central path is wider.
        """
        rows = max(_MOST_BYTES // (16 * len(self.iteration.state)), self.iteration.width)
        parts = []
        for first in range(0, max(len(x), 1), rows):
            some = slice(first, first + rows)
            parts.append(
                self._solve(x[some], None if starts is None else starts.take(some), given[some], go_on, wide)
            )
        if len(parts) == 1:
            return parts[0]
        masks = (
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("converged", "infeasible", "iterations", "tried")
        )
        return Finished(Point.join([part.point for part in parts]), *masks)

    def _solve(
        self, x: Array, starts: Point | None, given: Mask, go_on: Callable[[], bool], wide: bool
    ) -> Finished:
        begun: dict[int, Array] = {}
        if starts is not None and given.any():
            states = self._begin(x[given], starts.take(given))
            sound = np.isfinite(states).all(axis=1)
            begun = dict(zip(np.flatnonzero(given)[sound].tolist(), states[sound], strict=True))
        lanes = Lanes(self, x, begun, go_on, wide)
        lanes.run()
        point = self._points(x, lanes.found, lanes.converged)
        return Finished(point, lanes.converged, lanes.infeasible, lanes.iterations, lanes.tried)

    def start(self, way: Way, x: Array, begun: Array | None) -> Array:
        """Where a row begins on a way."""
        if way.start in (Start.GIVEN, Start.FOUND, Start.ELASTIC):
            assert begun is not None
            return begun
        if way.start in (Start.NEAR, Start.WIDE):
            return self._centres[0 if way.start is Start.NEAR else -1]
        y = self._nominal.y if way.start is Start.NOMINAL else self._model.start
        return self._begin_elastic(x, y) if way.elastic else self._begin_central(x, y)

    def rules(self, way: Way) -> Rules:
        """What holds for a lane on a way."""
        if way not in self._rules:
            self._rules[way] = self._ruled(way)
        return self._rules[way]

    @property
    def large(self) -> bool:
        """Whether there are so many outputs that one of their bounds is always near."""
        return len(self._model.free) >= self.settings.large_from

    def _ruled(self, way: Way) -> Rules:
        s, interior = self.settings, self._interior
        own = float(way.elastic), self.weight(way), 0.0 if way.costs else s.pull
        large = way.manner == "hasty" and self.large
        manner: Manner = s.large if large else getattr(s, way.manner)
        tolerances, barrier, held_up = (interior.tolerance,) * 3, interior.barrier, interior.held_up
        if way.firm:
            # What counts in the objective's own units counts as much less here as that does.
            barrier = max(barrier * own[1], s.smallest_barrier)
            least = max(interior.tolerance * own[1], s.firm_error * barrier)
            tolerances = least, interior.tolerance, least
            held_up = max(held_up * own[1], s.central * barrier * self.iteration.newton.rows)
        elif way.elastic:
            tolerances, barrier, held_up = s.elastic_tolerances, s.elastic_barrier, np.inf
        return Rules(
            settings=np.array([*manner.settings(barrier), *own]),
            limits=np.array([
                *tolerances, held_up / self.iteration.newton.rows,
                manner.short, manner.most, s.elastic_iterations if way.elastic else s.most_iterations,
                s.elastic_settled if way.elastic else s.settled,
            ]),
            finishing=np.array([*s.finishing.settings(barrier), *own]) if large else None,
        )  # fmt: skip

    def weight(self, way: Way) -> float:
        """What the objective counts on a way."""
        if not way.costs:
            return 0.0
        if not way.elastic:
            return 1.0
        return self._weight / (self.settings.dearer if way.dear else 1.0)

    def _begin(self, x: Array, starts: Point) -> Array:
        """An interior point near each start, by as much as it is wrong (see `Interior.begin`)."""
        model, newton, s = self._model, self.iteration.newton, self.settings
        free, unit = model.free, model.objective_scale
        lower, upper = self._search(x)
        y = np.clip(starts.y[:, free], lower, upper)
        nu = starts.duals.equality * (unit / model.equality_scale)
        padding = np.ones((len(x), newton.padding))
        held = starts.duals.inequality[:, self._kept] * (unit / model.inequality_scale)
        bounds = starts.duals.lower[:, free][:, newton.below], starts.duals.upper[:, free][:, newton.above]
        duals = np.concatenate([held, *(part * unit for part in bounds), padding], axis=1)
        _, equality, inequality, _ = self._slim(y, x, nu, held)
        gaps = newton.slacks(y, inequality, lower, upper)
        wrong = np.maximum(np.abs(equality).max(axis=1, initial=0.0), -gaps.min(axis=1, initial=0.0))
        inside = np.clip(s.inside_share * wrong, *s.inside_range)[:, None]
        slack = np.maximum(gaps, inside)
        amounts = np.zeros((len(x), 2 * model.n_equalities + model.n_inequalities))
        z = np.maximum(duals, s.inside_complementarity * inside / slack)
        return np.concatenate([y, nu, slack, z, amounts], axis=1)

    def _begin_central(self, x: Array, y: Array) -> Array:
        """A point near `y`, well inside of everything and as central as that is (see `Interior.from_afar`)."""
        s, at = self.settings, self.iteration.parts
        state = np.zeros(len(self.iteration.state))
        begun = self._begin_elastic(x, y)
        state[at["y"]], state[at["s"]] = begun[at["y"]], begun[at["s"]]
        state[at["z"]] = s.centres[-1] / begun[at["s"]]
        return state

    def _begin_elastic(self, x: Array, y: Array) -> Array:
        """A point near `y` that breaks whatever it breaks: inside of everything, complementary, all prices fair."""
        model, newton, s = self._model, self.iteration.newton, self.settings
        ne, ni = model.n_equalities, model.n_inequalities
        lower, upper = self._search(x[None])
        y = np.clip(y[model.free][None], lower, upper)
        _, equality, inequality, _ = self._slim(y, x[None], np.zeros((1, ne)), np.zeros((1, ni)))
        slack = np.maximum(newton.slacks(y, inequality, lower, upper)[0], s.elastic_inside)
        slack[:ni] = np.maximum(-inequality[0], 0.0) + s.elastic_inside
        z = s.inside_complementarity * s.elastic_inside / slack
        z[:ni] = s.elastic_price
        broken = equality[0], -equality[0], inequality[0]
        amounts = [np.maximum(part, 0.0) + s.elastic_inside for part in broken]
        assert len(slack) == newton.rows
        return np.concatenate([y[0], np.zeros(ne), slack, z, *amounts])

    def without_amounts(self, state: Array, way: Way) -> Array:
        """The end of an elastic way as a state of the problem itself: near its central path, and nearly feasible."""
        at, plain, weight = self.iteration.parts, np.zeros(len(state)), self.weight(way)
        for name, unit in (("y", 1.0), ("nu", weight), ("s", 1.0), ("z", weight)):
            plain[at[name]] = state[at[name]] / unit
        return plain

    def _limits(self, x: Array) -> tuple[Array, Array]:
        """Bounds of all outputs, a row each."""
        if self._bounds is None:
            shape = len(x), len(self._model.lower)
            return np.broadcast_to(self._model.lower, shape), np.broadcast_to(self._model.upper, shape)
        lower, upper = self._bounds(x)
        return lower, upper

    def _search(self, x: Array) -> tuple[Array, Array]:
        """Bounds of the free outputs, the usual ones where they meet for one input alone."""
        model = self._model
        lower, upper = (part[:, model.free] for part in self._limits(x))
        if model.bounds is None:
            return lower, upper
        closed = lower >= upper
        usual = model.lower[model.free], model.upper[model.free]
        return np.where(closed, usual[0], lower), np.where(closed, usual[1], upper)

    def _points(self, x: Array, found: Array, converged: Mask) -> Point:
        """States as points in the problem's own units; NaN where there is none."""
        if converged.all():
            return self._point(x, found)
        size, model = len(self._model.lower), self._whole
        sizes = size, model.n_equalities, model.n_inequalities, size, size
        points = Point.of(*(np.full((len(x), n), np.nan) for n in sizes))
        if converged.any():
            points.put(np.flatnonzero(converged), self._point(x[converged], found[converged]))
        return points

    def _point(self, x: Array, found: Array) -> Point:
        model, newton, at, unit = (
            self._model,
            self.iteration.newton,
            self.iteration.parts,
            self._model.objective_scale,
        )
        lower, upper = self._limits(x)
        y, low, high = lower.copy(), np.zeros_like(lower), np.zeros_like(lower)
        free, ni, nl = model.free, model.n_inequalities, len(newton.below)
        y[:, free] = np.clip(found[:, at["y"]], lower[:, free], upper[:, free])
        z, nu = found[:, at["z"]], found[:, at["nu"]]
        low[:, free[newton.below]] = z[:, ni : ni + nl] / unit
        high[:, free[newton.above]] = z[:, ni + nl : ni + nl + len(newton.above)] / unit
        pinned = lower >= upper
        if self._fixed is not None and pinned.any():
            pull = np.zeros_like(y)
            (pull[:, model.fixed_outputs],) = self._fixed(y, x, nu, z[:, :ni])
            low[pinned], high[pinned] = (np.maximum(s * pull[pinned], 0.0) for s in (1.0 / unit, -1.0 / unit))
        inequality = np.zeros((len(x), self._whole.n_inequalities))
        inequality[:, self._kept] = z[:, :ni] * (model.inequality_scale / unit)
        return Point.of(y, nu * (model.equality_scale / unit), inequality, low, high)
