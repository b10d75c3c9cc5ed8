"""The interior-point method for many rows at a time: every lane has a row of its own until that row is done."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from feasibly.problem.point import Point
from feasibly.solve.interior import Interior
from feasibly.solve.lanes.evaluate import Rows
from feasibly.solve.lanes.formulas import SETTINGS
from feasibly.solve.lanes.iteration import Iteration
from feasibly.solve.lanes.ways import FIRST, FOLLOWING, LEAST_FROM_AFAR, NEAR, End, Start, Way
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

    Raises:
        UnsupportedError: the problem has an operation that lanes do not know.
    """

    def __init__(self, interior: Interior, nominal: Point) -> None:
        self._interior, self._model, self._settings = interior, interior.model, interior.settings
        self._iteration = Iteration(self._model, self._settings)
        self._slim = Rows(self._model.slim)
        self._fixed = Rows(self._model.fixed) if len(self._model.fixed_outputs) else None
        self._bounds = None if self._model.bounds is None else Rows(self._model.bounds)
        self._centres = [np.concatenate([c.y, c.nu, c.s, c.z]) for c in interior.centres]
        self._nominal = nominal
        model, unit = self._model, self._model.objective_scale
        sizes = (
            np.abs(nominal.duals.equality * unit / model.equality_scale).max(initial=0.0),
            np.abs(nominal.duals.inequality * unit / model.inequality_scale).max(initial=0.0),
        )
        self._weight = 1.0 / (self._settings.price * max(*sizes, 1.0))

    # ---- solving ---------------------------------------------------------------------------------------

    def solve(
        self, x: Array, starts: Point | None, given: Mask, go_on: Callable[[], bool] = lambda: True
    ) -> Finished:
        """Solve rows, from `starts` where `given`, and in the other ways (`ways`) where that is not enough.

        Args:
            x: `(rows, n_inputs)`.
            starts: a point a row.
            given: which rows have one that is to be used.
            go_on: asked before a row is begun.
        """
        rows = max(_MOST_BYTES // (16 * len(self._iteration.state)), self._iteration.width)
        parts = []
        for first in range(0, max(len(x), 1), rows):
            some = slice(first, first + rows)
            parts.append(
                self._solve(x[some], None if starts is None else starts.take(some), given[some], go_on)
            )
        if len(parts) == 1:
            return parts[0]
        masks = (
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("converged", "infeasible", "iterations", "tried")
        )
        return Finished(Point.join([part.point for part in parts]), *masks)

    def _solve(self, x: Array, starts: Point | None, given: Mask, go_on: Callable[[], bool]) -> Finished:
        begun = np.full((len(x), len(self._iteration.state)), np.nan)
        if starts is not None and given.any():
            begun[given] = self._begin(x[given], starts.take(given))
        given = given & np.isfinite(begun).all(axis=1)
        lanes = _Lanes(self, x, begun, given, go_on)
        lanes.run()
        point = self._points(x, lanes.state, lanes.converged)
        return Finished(point, lanes.converged, lanes.infeasible, lanes.iterations, lanes.tried)

    def start(self, way: Way, row: int, x: Array, begun: Array) -> Array:
        """Where a row begins on a way."""
        plain = np.zeros(len(self._iteration.state))
        if way.start in (Start.GIVEN, Start.FOUND):
            return begun[row]
        if way.start in (Start.NEAR, Start.WIDE):
            centre = self._centres[0 if way.start is Start.NEAR else -1]
            plain[: len(centre)] = centre
            return plain
        y = self._nominal.y if way.start is Start.NOMINAL else self._model.start
        return self._begin_elastic(x[row], y)

    def weight(self, way: Way) -> float:
        """What the objective counts on a way."""
        if not way.costs:
            return 0.0
        if not way.elastic:
            return 1.0
        return self._weight / (self._settings.dearer if way.dear else 1.0)

    def _begin(self, x: Array, starts: Point) -> Array:
        """An interior point near each start, by as much as it is wrong (see `Interior.begin`)."""
        model, newton, s = self._model, self._iteration.newton, self._settings
        free, unit = model.free, model.objective_scale
        lower, upper = self._search(x)
        y = np.clip(starts.y[:, free], lower, upper)
        nu = starts.duals.equality * (unit / model.equality_scale)
        padding = np.ones((len(x), newton.padding))
        held = starts.duals.inequality * (unit / model.inequality_scale)
        bounds = starts.duals.lower[:, free][:, newton.below], starts.duals.upper[:, free][:, newton.above]
        duals = np.concatenate([held, *(part * unit for part in bounds), padding], axis=1)
        _, equality, inequality, _ = self._slim(y, x, nu, held)
        gaps = self._gaps(y, inequality, lower, upper)
        wrong = np.maximum(np.abs(equality).max(axis=1, initial=0.0), -gaps.min(axis=1, initial=0.0))
        inside = np.clip(s.inside_share * wrong, *s.inside_range)[:, None]
        slack = np.maximum(gaps, inside)
        amounts = np.zeros((len(x), 2 * model.n_equalities + model.n_inequalities))
        z = np.maximum(duals, s.inside_complementarity * inside / slack)
        return np.concatenate([y, nu, slack, z, amounts], axis=1)

    def _begin_elastic(self, x: Array, y: Array) -> Array:
        """A point near `y` that breaks whatever it breaks: inside of everything, complementary, all prices fair."""
        model, newton, s = self._model, self._iteration.newton, self._settings
        ne, ni = model.n_equalities, model.n_inequalities
        lower, upper = self._search(x[None])
        y = np.clip(y[model.free][None], lower, upper)
        _, equality, inequality, _ = self._slim(y, x[None], np.zeros((1, ne)), np.zeros((1, ni)))
        slack = np.maximum(self._gaps(y, inequality, lower, upper)[0], s.elastic_inside)
        slack[:ni] = np.maximum(-inequality[0], 0.0) + s.elastic_inside
        z = s.inside_complementarity * s.elastic_inside / slack
        z[:ni] = s.elastic_price
        broken = equality[0], -equality[0], inequality[0]
        amounts = [np.maximum(part, 0.0) + s.elastic_inside for part in broken]
        assert len(slack) == newton.rows
        return np.concatenate([y[0], np.zeros(ne), slack, z, *amounts])

    def without_amounts(self, state: Array, way: Way) -> Array:
        """The end of an elastic way as a state of the problem itself: near its central path, and nearly feasible."""
        at, plain, weight = self._iteration.parts, np.zeros(len(state)), self.weight(way)
        for name, unit in (("y", 1.0), ("nu", weight), ("s", 1.0), ("z", weight)):
            plain[at[name]] = state[at[name]] / unit
        return plain

    def _gaps(self, y: Array, inequality: Array, lower: Array, upper: Array) -> Array:
        """By how much each row of `Newton` holds."""
        newton = self._iteration.newton
        below, above = (y - lower)[:, newton.below], (upper - y)[:, newton.above]
        return np.concatenate([-inequality, below, above, np.ones((len(y), newton.padding))], axis=1)

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

    def _points(self, x: Array, state: Array, converged: Mask) -> Point:
        """States as points in the problem's own units; NaN where there is none."""
        model, newton = self._model, self._iteration.newton
        rows, size = len(x), len(model.lower)
        sizes = size, model.n_equalities, model.n_inequalities, size, size
        parts = [np.full((rows, n), np.nan) for n in sizes]
        if converged.any():
            found, at = state[converged], self._iteration.parts
            lower, upper = self._limits(x[converged])
            y, low, high = lower.copy(), np.zeros_like(lower), np.zeros_like(lower)
            free, ni, nl = model.free, model.n_inequalities, len(newton.below)
            y[:, free] = np.clip(found[:, at["y"]], lower[:, free], upper[:, free])
            z, nu = found[:, at["z"]], found[:, at["nu"]]
            low[:, free[newton.below]] = z[:, ni : ni + nl]
            high[:, free[newton.above]] = z[:, ni + nl : ni + nl + len(newton.above)]
            pinned = lower >= upper
            if self._fixed is not None and pinned.any():
                pull = np.zeros_like(y)
                (pull[:, model.fixed_outputs],) = self._fixed(y, x[converged], nu, z[:, :ni])
                low[pinned], high[pinned] = (np.maximum(s * pull[pinned], 0.0) for s in (1.0, -1.0))
            unit = model.objective_scale
            held = nu * (model.equality_scale / unit), z[:, :ni] * (model.inequality_scale / unit)
            for part, values in zip(parts, (y, *held, low / unit, high / unit), strict=True):
                part[converged] = values
        return Point.of(*parts)


class _Lanes:
    """The lanes, filled with rows as they become free, and what has become of all rows."""

    def __init__(self, batch: Batch, x: Array, begun: Array, given: Mask, go_on: Callable[[], bool]) -> None:
        self._batch, self._iteration, self._interior = batch, batch._iteration, batch._interior
        self._settings = batch._settings
        self._x, self._begun, self._go_on = x, begun, go_on
        count = len(x)
        self.state = np.full_like(begun, np.nan)
        self.converged, self.infeasible = np.zeros(count, dtype=bool), np.zeros(count, dtype=bool)
        self.tried, self.iterations = np.zeros(count, dtype=bool), np.zeros(count, dtype=np.int64)
        self._fresh = deque((row, FIRST if own else NEAR) for row, own in enumerate(given.tolist()))
        self._hard: deque[tuple[int, Way]] = deque()
        """Elastic lanes hold up the others: they wait until the others are done."""
        width = self._iteration.width
        self._doing: list[tuple[int, Way] | None] = [None] * width
        self._count, self._short, self._settled = (np.zeros(width, dtype=np.int64) for _ in range(3))
        self._shortest, self._most = np.zeros(width), np.full(width, _NEVER)
        self._limit, self._tolerances = np.full(width, _NEVER), np.full((3, width), -1.0)
        self._allowed = np.full(width, np.inf)
        self._guarded, self._shift = np.zeros(width, dtype=bool), np.zeros(width)
        self._elastic = np.zeros(width, dtype=bool)
        self._again, self._busy = np.zeros(width, dtype=bool), np.zeros(width, dtype=bool)
        self._acceptable: dict[int, tuple[Array, bool]] = {}

    def run(self) -> None:
        """Until nothing is left to do."""
        iteration = self._iteration
        for lane in range(iteration.width):
            self._fill(lane, None)
        while any(self._doing):
            iteration()
            done, ended = self._look()
            self._look_again(done, ended)
            if self._guarded.any():
                self._guard(ended)
            if not ended.any():
                np.copyto(iteration.state, iteration.moved)
                continue
            following = {
                lane: self._end(lane, bool(done[lane]))
                for lane in np.flatnonzero(ended).tolist()
                if self._doing[lane] is not None
            }
            np.copyto(iteration.state, iteration.moved)
            for lane, way in following.items():
                self._fill(lane, way)

    def _look(self) -> tuple[Mask, Mask]:
        """Lanes that have converged, and those whose way has ended."""
        iteration, s = self._iteration, self._settings
        info, pairs = iteration.info, iteration.newton.rows
        sound = info.max(axis=0) < s.runaway  # false for NaN
        complementary = info[3] * pairs <= self._allowed
        holds = info[:3] <= self._tolerances
        near = sound & holds.all(axis=0)
        still = sound & complementary & holds[2] & (holds[1] | self._elastic) & (info[0] <= s.settled_error)
        self._settled = np.where(still, self._settled + 1, 0)
        enough = np.where(self._elastic, s.elastic_settled, s.settled)
        done = (near & complementary) | (self._settled >= enough)
        self._count += 1
        self._short = np.where(info[4:6].min(axis=0) < self._shortest, self._short + 1, 0)
        kept = near & ~done
        if kept.any():
            for lane in np.flatnonzero(kept).tolist():
                known, up = self._acceptable.get(lane), iteration.curves_up(lane)
                if up or known is None or not known[1]:
                    self._acceptable[lane] = iteration.state[:, lane].copy(), up
        close = info[:3].max(axis=0) <= s.close
        late = self._count >= np.where(close, 2 * self._limit, self._limit)
        ended = done | ~sound | (self._short >= self._most) | late
        return done, ended & self._busy

    def _look_again(self, done: Mask, ended: Mask) -> None:
        """Keep lanes that are done at what may be a saddle for one more iteration, with a Hessian shifted a little.

        Where the cost is flat, rounding decides whether it curves upwards.
        """
        iteration, flat = self._iteration, self._settings.flat
        shift, weight = SETTINGS.index("shift"), SETTINGS.index("weight")
        searches = self._elastic & (iteration.settings[weight] == 0.0)
        looked_at = done & ~self._again & (searches | ~self._elastic)
        if not looked_at.any():
            return
        up = iteration.inertia() == iteration.model.n_equalities
        for lane in np.flatnonzero(looked_at & ~(up & (iteration.settings[shift] <= flat))).tolist():
            self._again[lane] = True
            iteration.settings[shift, lane] = flat
            iteration.moved[:, lane] = iteration.state[:, lane]
            done[lane] = ended[lane] = False

    def _guard(self, ended: Mask) -> None:
        """Keep guarded lanes whose matrix does not curve upwards where they are, and shift their Hessian further.

        Nobody waits for them: the next iteration tries again, and the others go on.
        """
        iteration, (first, factor, last) = self._iteration, self._settings.lane_shifts
        up = iteration.inertia() == iteration.model.n_equalities
        guarded = self._guarded & ~self._again
        stays = guarded & ~up & ~ended
        self._shift = np.where(
            stays,
            np.maximum(first, factor * self._shift),
            np.where(guarded & up, self._shift / self._settings.ease, self._shift),
        )
        self._shift[self._shift < first] = 0.0
        if stays.any():
            iteration.moved[:, stays] = iteration.state[:, stays]
            self._short[stays] = self._settled[stays] = 0
        ended |= self._shift > last
        iteration.settings[SETTINGS.index("shift"), guarded] = self._shift[guarded]

    def _end(self, lane: int, done: bool) -> tuple[int, Way] | None:
        """Note how a lane's way ended; what its row does next, if anything."""
        iteration, doing = self._iteration, self._doing[lane]
        assert doing is not None
        row, way = doing
        self.iterations[row] += self._count[lane]
        state, up = self._acceptable.pop(lane, (None, False))
        if done:
            up = up or way.elastic or self._curves_up(lane)
            state = iteration.state[:, lane].copy()
        end = End.CONVERGED if state is not None and up else End.STUCK
        if way.elastic and end is End.CONVERGED:
            end = self._broken(lane, way)
            if end is End.CONVERGED and way.costs:
                assert state is not None
                self._begun[row] = self._batch.without_amounts(state, way)
        elif end is End.CONVERGED:
            assert state is not None
            self.state[row], self.converged[row] = state, True
            return None
        if way is LEAST_FROM_AFAR and end is End.BROKEN:
            self.infeasible[row] = True
        later = FOLLOWING.get((way, end))
        return None if later is None else (row, later)

    def _broken(self, lane: int, way: Way) -> End:
        """Whether constraints are broken where an elastic lane has converged.

        A search for a feasible point counts as one only where it ended at a minimum.
        """
        iteration, s = self._iteration, self._settings
        broken, mu = iteration.info[6, lane], iteration.info[3, lane]
        pairs = iteration.newton.rows + iteration.model.n_inequalities + 2 * iteration.model.n_equalities
        if not broken - mu * pairs > max(s.clearly, s.clearer * iteration.info[7, lane]):
            return End.CONVERGED
        return End.BROKEN if way.costs or self._curves_up(lane) else End.STUCK

    def _curves_up(self, lane: int) -> bool:
        """Whether a lane's last matrix does, with what it was shifted by."""
        return int(self._iteration.inertia()[lane]) == self._iteration.model.n_equalities

    def _fill(self, lane: int, doing: tuple[int, Way] | None) -> None:
        """Give a lane something to do: its row's next way, the next row, or one that waits for an elastic way."""
        if doing is not None and doing[1].elastic and self._fresh:
            self._hard.append(doing)
            doing = None
        if doing is None:
            waiting = self._fresh or self._hard
            if not waiting or not self._go_on():
                self._doing[lane] = None
                self._shortest[lane], self._most[lane], self._limit[lane] = 0.0, _NEVER, _NEVER
                self._tolerances[:, lane], self._guarded[lane], self._shift[lane] = -1.0, False, 0.0
                self._elastic[lane] = False
                self._busy[lane] = False
                for name in ("elastic", "refined below"):
                    self._iteration.settings[SETTINGS.index(name), lane] = 0.0
                return
            doing = waiting.popleft()
        row, way = doing
        self.tried[row] = True
        iteration, interior, batch, s = self._iteration, self._interior, self._batch, self._settings
        iteration.state[:, lane] = batch.start(way, row, self._x, self._begun)
        iteration.moved[:, lane] = iteration.state[:, lane]  # with amounts that only elastic lanes move
        iteration.x[:, lane] = self._x[row]
        barrier = s.elastic_barrier if way.elastic else interior.barrier
        own = float(way.elastic), batch.weight(way), 0.0 if way.costs else s.pull
        large = way.manner == "hasty" and len(interior.model.free) >= s.large_from
        manner: Manner = s.large if large else getattr(s, way.manner)
        iteration.settings[:, lane] = [*manner.settings(barrier), *own]
        self._doing[lane], self._busy[lane] = doing, True
        self._count[lane] = self._short[lane] = self._settled[lane] = 0
        self._shortest[lane], self._most[lane] = manner.short, manner.most
        self._limit[lane] = s.elastic_iterations if way.elastic else s.most_iterations
        self._tolerances[:, lane] = s.elastic_tolerances if way.elastic else interior.tolerance
        self._allowed[lane] = np.inf if way.elastic else interior.held_up
        self._guarded[lane], self._shift[lane], self._again[lane] = way.guarded, 0.0, False
        self._elastic[lane] = way.elastic


_NEVER = int(np.iinfo(np.int64).max) // 2
