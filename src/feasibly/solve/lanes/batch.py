"""The interior-point method for many rows at a time: every lane has a row of its own until that row is done."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from feasibly.problem.point import Point
from feasibly.solve._newton import CAREFUL, HASTY, WARM, Manner
from feasibly.solve.interior import RUNAWAY, SHIFTS, Interior
from feasibly.solve.lanes.evaluate import Rows
from feasibly.solve.lanes.iteration import Iteration
from feasibly.solve.lanes.machine import WIDTH
from feasibly.solve.records import Array

Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Finished:
    """What became of some rows."""

    point: Point
    """NaN where a row has not converged."""
    converged: Mask
    iterations: NDArray[np.int64]
    feasibility: Array
    """The largest violation, in scaled units, that the last attempt of a row was left with."""
    tried: Mask
    """Rows that were begun; the others met the end of the time."""


class _Way(NamedTuple):
    """One way to try a row."""

    start: Array | None
    """`None` for the row's own."""
    manner: Manner
    guarded: bool = False
    """Whether the Hessian is made to curve upwards: a lane whose matrix has the wrong inertia stays where it is, and its
    Hessian is shifted further in the next iteration; nobody waits for it."""


class _Attempt(NamedTuple):
    """A row, and which of its ways it is on."""

    row: int
    number: int


class Batch:
    """One problem's rows, as `Interior` solves them, `WIDTH` at a time; one thread at a time.

    Raises:
        UnsupportedError: the problem has an operation that lanes do not know.
    """

    def __init__(self, interior: Interior) -> None:
        self._interior, self._model = interior, interior.model
        self._iteration = Iteration(self._model)
        self._slim = Rows(self._model.slim)
        self._fixed = Rows(self._model.fixed) if len(self._model.fixed_outputs) else None
        self._bounds = None if self._model.bounds is None else Rows(self._model.bounds)
        self._centres = [np.concatenate([c.y, c.nu, c.s, c.z]) for c in interior.centres]

    # ---- solving ---------------------------------------------------------------------------------------

    def solve(
        self, x: Array, starts: Point | None, given: Mask, go_on: Callable[[], bool] = lambda: True
    ) -> Finished:
        """Solve rows from `starts` where `given`, then as `Interior.solve` does from the nominal central path.

        Args:
            x: `(rows, n_inputs)`.
            starts: a point a row.
            given: which rows have one that is to be used.
            go_on: asked before a row is begun.
        """
        count = len(x)
        begun = np.full((count, len(self._iteration.state)), np.nan)
        if starts is not None and given.any():
            begun[given] = self._begin(x[given], starts.take(given))
        given = given & np.isfinite(begun).all(axis=1)
        work = _Work(self._ladder(given), begun, count)
        lanes = _Lanes(self._iteration, self._interior, work, x, go_on)
        lanes.run()
        point = self._points(x, work.state, work.converged)
        return Finished(point, work.converged, work.iterations, work.feasibility, work.tried)

    def _ladder(self, given: Mask) -> list[list[_Way]]:
        near, wide = self._centres[0], self._centres[-1]
        centred = [_Way(near, HASTY), _Way(wide, CAREFUL), _Way(wide, CAREFUL, guarded=True)]
        warm = [_Way(None, WARM), *centred]
        return [warm if own else centred for own in given]

    def _begin(self, x: Array, starts: Point) -> Array:
        """An interior point near each start, by as much as it is wrong (see `Interior.begin`)."""
        model, newton = self._model, self._iteration.newton
        free, unit = model.free, model.objective_scale
        lower, upper = self._search(x)
        y = np.clip(starts.y[:, free], lower, upper)
        nu = starts.duals.equality * (unit / model.equality_scale)
        padding = np.ones((len(x), newton.padding))
        held = starts.duals.inequality * (unit / model.inequality_scale)
        bounds = starts.duals.lower[:, free][:, newton.below], starts.duals.upper[:, free][:, newton.above]
        duals = np.concatenate([held, *(part * unit for part in bounds), padding], axis=1)
        _, equality, inequality, _ = self._slim(y, x, nu, held)
        gaps = np.concatenate(
            [-inequality, (y - lower)[:, newton.below], (upper - y)[:, newton.above], padding], axis=1
        )
        wrong = np.maximum(np.abs(equality).max(axis=1, initial=0.0), -gaps.min(axis=1, initial=0.0))
        inside = np.clip(0.02 * wrong, 1e-6, 1e-2)[:, None]
        slack = np.maximum(gaps, inside)
        return np.concatenate([y, nu, slack, np.maximum(duals, 1e-2 * inside / slack)], axis=1)

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
        parts = [
            np.full((rows, n), np.nan) for n in (size, model.n_equalities, model.n_inequalities, size, size)
        ]
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
            own = (
                y,
                nu * (model.equality_scale / unit),
                z[:, :ni] * (model.inequality_scale / unit),
                low / unit,
                high / unit,
            )
            for part, values in zip(parts, own, strict=True):
                part[converged] = values
        return Point.of(*parts)


class _Work:
    """What is to be done, and what has come of it."""

    def __init__(self, ladder: list[list[_Way]], begun: Array, count: int) -> None:
        self.ladder, self.begun = ladder, begun
        self.state = np.full_like(begun, np.nan)
        self.converged = np.zeros(count, dtype=bool)
        self.iterations = np.zeros(count, dtype=np.int64)
        self.feasibility = np.full(count, np.inf)
        self.tried = np.zeros(count, dtype=bool)

    def start(self, attempt: _Attempt) -> tuple[Array, _Way]:
        """Where an attempt begins, and how it goes on."""
        way = self.ladder[attempt.row][attempt.number]
        return (self.begun[attempt.row] if way.start is None else way.start), way

    def following(self, attempt: _Attempt) -> _Attempt | None:
        """What is tried when an attempt has failed."""
        later = attempt.number + 1
        return _Attempt(attempt.row, later) if later < len(self.ladder[attempt.row]) else None


class _Lanes:
    """The lanes, filled with rows as they become free."""

    def __init__(
        self, iteration: Iteration, interior: Interior, work: _Work, x: Array, go_on: Callable[[], bool]
    ) -> None:
        self.iteration, self.interior, self.work, self.x, self.go_on = iteration, interior, work, x, go_on
        self.waiting: Iterator[int] = iter(range(len(x)))
        self.attempts: list[_Attempt | None] = [None] * WIDTH
        self.count = np.zeros(WIDTH, dtype=np.int64)
        self.short = np.zeros(WIDTH, dtype=np.int64)
        self.shortest, self.most = np.zeros(WIDTH), np.full(WIDTH, np.iinfo(np.int64).max)
        self.guarded, self.shift = np.zeros(WIDTH, dtype=bool), np.zeros(WIDTH)
        self.acceptable: dict[int, tuple[Array, bool]] = {}

    def run(self) -> None:
        busy = 0
        for lane in range(WIDTH):
            busy += self._fill(lane)
        iteration, interior = self.iteration, self.interior
        rows = iteration.newton.rows
        while busy:
            iteration()
            info = iteration.info
            error = info[:3].max(axis=0)
            sound = info.max(axis=0) < RUNAWAY  # false for NaN
            near = error <= interior.tolerance
            done = sound & near & (info[3] * rows <= interior.held_up)
            self.count += 1
            self.short = np.where(info[4:].min(axis=0) < self.shortest, self.short + 1, 0)
            ended = done | ~sound | (self.short >= self.most) | (self.count >= interior.most_iterations)
            kept = near & sound & ~done
            if kept.any():
                for own in np.flatnonzero(kept).tolist():
                    self.acceptable[own] = iteration.state[:, own].copy(), iteration.curves_up(own)
            if self.guarded.any():
                self._guard(ended)
            if not ended.any():
                np.copyto(iteration.state, iteration.moved)
                continue
            finished = [(int(lane), bool(done[lane])) for lane in np.flatnonzero(ended)]
            ends = {lane: self._end(lane, ok) for lane, ok in finished if self.attempts[lane] is not None}
            np.copyto(iteration.state, iteration.moved)
            for lane, following in ends.items():
                busy += self._fill(lane, following) - 1

    def _guard(self, ended: Mask) -> None:
        """Guarded lanes whose matrix does not curve upwards stay where they are, with a larger shift."""
        iteration, (first, factor, last) = self.iteration, SHIFTS
        up = iteration.inertia() == iteration.model.n_equalities
        stays = self.guarded & ~up & ~ended
        for lane in np.flatnonzero(stays).tolist():
            self.shift[lane] = max(first, self.shift[lane] * factor)
            iteration.moved[:, lane] = iteration.state[:, lane]
            self.short[lane] = 0
        eased = self.guarded & up
        self.shift[eased] = np.where(self.shift[eased] > first, self.shift[eased] / factor, 0.0)
        iteration.settings[1, self.guarded] = self.shift[self.guarded]
        ended |= self.shift > last

    def _end(self, lane: int, done: bool) -> _Attempt | None:
        """Note how a lane's attempt ended; what its row tries next, if anything."""
        work, attempt = self.work, self.attempts[lane]
        assert attempt is not None
        row = attempt.row
        work.iterations[row] += self.count[lane]
        work.feasibility[row] = self.iteration.info[1, lane]
        state, up = self.acceptable.pop(lane, (None, False))
        if done:
            state, up = self.iteration.state[:, lane].copy(), self.iteration.curves_up(lane)
        if state is not None and up:
            work.state[row], work.converged[row] = state, True
            return None
        return work.following(attempt)

    def _fill(self, lane: int, attempt: _Attempt | None = None) -> int:
        """Give a lane something to do: a row's next attempt, or the next row. How many it was given, 0 or 1."""
        while attempt is None:
            row = next(self.waiting, None)
            if row is None or not self.go_on():
                self.attempts[lane] = None
                self.shortest[lane], self.most[lane] = 0.0, np.iinfo(np.int64).max
                self.guarded[lane], self.shift[lane] = False, 0.0
                return 0
            self.work.tried[row] = True
            attempt = _Attempt(row, 0) if self.work.ladder[row] else None
        state, way = self.work.start(attempt)
        iteration = self.iteration
        iteration.state[:, lane] = state
        iteration.x[:, lane] = self.x[attempt.row]
        iteration.settings[:, lane] = way.manner.settings(self.interior.barrier)
        self.attempts[lane], self.count[lane], self.short[lane] = attempt, 0, 0
        self.shortest[lane], self.most[lane] = way.manner.short, way.manner.most
        self.guarded[lane], self.shift[lane] = way.guarded, 0.0
        return 1
