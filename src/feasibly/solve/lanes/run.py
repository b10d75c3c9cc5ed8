"""Lanes at work: each is given a row, watched until its way has ended, and given the next."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from feasibly.solve.lanes.formulas import SETTINGS
from feasibly.solve.lanes.ways import (
    FIRST,
    FOLLOWING,
    LARGE_FOLLOWING,
    LAST_SEARCHES,
    NEAR,
    WIDER,
    End,
    Start,
    Way,
)
from feasibly.solve.records import Array

if TYPE_CHECKING:
    from feasibly.solve.lanes.batch import Batch

Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Rules:
    """What holds for a lane on one way."""

    settings: Array
    """Of the iteration, as `SETTINGS` names them."""
    limits: Array
    """The largest errors of a row that has converged (stationarity, feasibility, complementarity) and its largest mean
    complementarity; steps shorter than the next, so many in a row, mean that it is stuck; the most iterations; and how
    many a row has to have settled for that will not become stationary."""
    finishing: Array | None = None
    """The settings once a lane is feasible and complementary, where they are others then."""


_IDLE = np.array([-1.0, -1.0, -1.0, -1.0, 0.0, np.inf, np.inf, np.inf])
_BARRIER, _SHIFT, _WEIGHT, _ELASTIC, _REFINED = (
    SETTINGS.index(name) for name in ("barrier", "shift", "weight", "elastic", "refined below")
)


class Lanes:
    """The lanes, filled with rows as they become free, and what has become of all rows.

    Each iteration takes a fraction of a millisecond for all of them: what is done here beside it counts.

    Attributes:
        found: the states that rows have converged at, as far as they are needed.
        converged, infeasible, tried: rows.
        iterations: of each row.
    """

    def __init__(
        self, batch: Batch, x: Array, begun: dict[int, Array], go_on: Callable[[], bool], wide: bool
    ) -> None:
        self._batch, self._iteration, self._settings = batch, batch.iteration, batch.settings
        self._x, self._begun, self._go_on = x, begun, go_on
        count, width = len(x), self._iteration.width
        self._following = LARGE_FOLLOWING if batch.large else FOLLOWING
        self.found = np.empty((count, self._iteration.parts["z"].stop))
        self.converged, self.infeasible = np.zeros(count, dtype=bool), np.zeros(count, dtype=bool)
        self.tried, self.iterations = np.zeros(count, dtype=bool), np.zeros(count, dtype=np.int64)
        self._fresh = deque((row, FIRST if row in begun else WIDER if wide else NEAR) for row in range(count))
        self._hard: deque[tuple[int, Way]] = deque()
        """Elastic lanes hold up the others: they wait until the others are done."""
        self._doing: list[tuple[int, Way] | None] = [None] * width
        self._limits = np.tile(_IDLE[:, None], width)
        self._errors = self._limits[:4]
        self._shortest, self._most, self._limit, self._enough = self._limits[4:]
        self._count, self._short, self._settled = (np.zeros(width, dtype=np.int64) for _ in range(3))
        self._still, self._off = np.zeros(width, dtype=np.int64), np.full(width, np.inf)
        """Whole steps in a row that left what a lane's constraints are off by as it was, and what that was."""
        self._guarded, self._shift = np.zeros(width, dtype=bool), np.zeros(width)
        self._elastic = np.zeros(width, dtype=bool)
        self._lax = np.zeros(width, dtype=bool)
        """Elastic ones on a way that is not to end at the optimum."""
        self._again, self._busy = np.zeros(width, dtype=bool), np.zeros(width, dtype=bool)
        self._changes = np.zeros(width, dtype=bool)
        """Lanes whose settings become others once they are feasible and complementary."""
        self._amounts = slice(self._iteration.parts["z"].stop, len(self._iteration.state))
        """The amounts by which constraints are broken, among the entries of a state."""
        self._acceptable: dict[int, tuple[Array, bool]] = {}
        self._least: dict[int, float] = {}
        """What constraints are off by where a row has stood."""
        self._ends: dict[int, Array] = {}
        """Where elastic ways have converged."""

    def run(self) -> None:
        """Until nothing is left to do."""
        iteration = self._iteration
        for lane in range(iteration.width):
            self._fill(lane, None)
        while any(self._doing):
            iteration()
            done, ended = self._look()
            if done.any():
                self._look_again(done, ended)
            if self._guarded.any():
                self._guard(ended)
            if self._changes.any():
                self._finish()
            following = [(lane, self._end(lane, bool(done[lane]))) for lane in np.flatnonzero(ended).tolist()]
            np.copyto(iteration.state, iteration.moved)
            for lane, way in following:
                self._fill(lane, way)

    def _look(self) -> tuple[Mask, Mask]:
        """Lanes that have converged, and those whose way has ended."""
        info, s = self._iteration.info, self._settings
        sound = info.max(axis=0) < s.runaway  # false for NaN
        stationary, feasible, complementary, central = info[:4] <= self._errors
        near = sound & stationary & feasible & complementary
        still = sound & central & complementary & (feasible | self._lax) & (info[0] <= s.settled_error)
        self._settled += 1
        self._settled *= still
        done = (near & central) | (self._settled >= self._enough)
        self._count += 1
        self._short += 1
        self._short *= np.minimum(info[4], info[5]) < self._shortest
        self._keep(near & ~done)
        ended = done | ~sound | (self._short >= self._most)
        if self._batch.large:
            ended |= self._stands(info)
        late = self._count >= self._limit
        if late.any():
            errors = info[:3].max(axis=0)
            late &= ~((errors <= s.close) & (self._count < 2.0 * self._limit))
            done |= late & sound & central & (info[:3] <= s.acceptable * self._errors[:3]).all(axis=0)
            ended |= late
        return done, ended & self._busy

    def _stands(self, info: Array) -> Mask:
        """Lanes at a least infeasible point: whole steps have left what their constraints are off by as it was.

        Multipliers of constraints that cannot hold then grow by as much in every step (the matrix's small corner lets
        them), and everything else has converged. Small problems hardly ever end so: they get stuck before.
        """
        s = self._settings
        whole = np.minimum(info[4], info[5]) >= s.whole_step
        as_it_was = (info[1] >= s.clearly) & (np.abs(info[1] - self._off) <= s.standing_change * info[1])
        self._still += 1
        self._still *= whole & as_it_was & ~self._elastic & ~self._again
        self._off = info[1].copy()
        return np.asarray(self._still >= s.standing)

    def _keep(self, acceptable: Mask) -> None:
        """Where lanes stand that are as good as done: they may yet get stuck."""
        if not acceptable.any():
            return
        iteration = self._iteration
        curved = iteration.curves_up() & (iteration.settings[_SHIFT] == 0.0)
        for lane in np.flatnonzero(acceptable).tolist():
            known, up = self._acceptable.get(lane), bool(curved[lane])
            if up or known is None or not known[1]:
                self._acceptable[lane] = iteration.state[:, lane].copy(), up

    def _look_again(self, done: Mask, ended: Mask) -> None:
        """Keep lanes that are done at what may be a saddle for one more iteration, with a Hessian shifted a little.

        Where the cost is flat, rounding decides whether it curves upwards.
        """
        iteration, weight = self._iteration, self._iteration.settings[_WEIGHT]
        # Where the objective counts less, so does its curvature.
        flat = self._settings.flat * np.where(weight > 0.0, weight, 1.0)
        looked_at = done & ~self._again & ((weight == 0.0) | ~self._lax)
        certain = iteration.curves_up() & (iteration.settings[_SHIFT] <= flat)
        for lane in np.flatnonzero(looked_at & ~certain).tolist():
            self._again[lane] = True
            iteration.settings[_SHIFT, lane] = flat[lane]
            iteration.moved[:, lane] = iteration.state[:, lane]
            done[lane] = ended[lane] = False

    def _guard(self, ended: Mask) -> None:
        """Keep guarded lanes whose matrix does not curve upwards where they are, and shift their Hessian further.

        Nobody waits for them: the next iteration tries again, and the others go on.
        """
        iteration, (first, factor, last) = self._iteration, self._settings.lane_shifts
        up, guarded = iteration.curves_up(), self._guarded & ~self._again
        stays = guarded & ~up & ~ended
        self._shift = np.where(
            stays,
            np.maximum(first, factor * self._shift),
            np.where(guarded & up, self._shift / self._settings.ease, self._shift),
        )
        self._shift[self._shift < first] = 0.0
        if stays.any():
            iteration.moved[:, stays] = iteration.state[:, stays]
            self._short[stays] = self._settled[stays] = self._still[stays] = 0
        ended |= self._shift > last
        iteration.settings[_SHIFT, guarded] = self._shift[guarded]

    def _finish(self) -> None:
        """Lanes of large problems that are feasible and complementary: what is left is in their multipliers."""
        info, s = self._iteration.info, self._settings
        there = (
            self._changes
            & ~self._again
            & (info[1] <= s.nearly)
            & (info[3] <= s.central * self._iteration.settings[_BARRIER])
        )
        for lane in np.flatnonzero(there).tolist():
            doing = self._doing[lane]
            assert doing is not None
            shift = self._iteration.settings[_SHIFT, lane]
            self._iteration.settings[:, lane] = self._batch.rules(doing[1]).finishing
            self._iteration.settings[_SHIFT, lane] = shift
            self._changes[lane] = False

    def _end(self, lane: int, done: bool) -> tuple[int, Way] | None:
        """Note how a lane's way ended; what its row does next, if anything."""
        iteration, doing = self._iteration, self._doing[lane]
        assert doing is not None
        row, way = doing
        self.iterations[row] += self._count[lane]
        state, up = self._acceptable.pop(lane, (None, False)) if self._acceptable else (None, False)
        if done:
            # What another way follows is looked at where that ends.
            here = bool(self._lax[lane] or iteration.curves_up()[lane])
            if here or not up:
                state, up = iteration.state[:, lane], here
        end = End.CONVERGED if state is not None and up else End.STUCK
        if state is None and self._still[lane] >= self._settings.standing:
            end = self._stood(row, float(self._off[lane]))
        if way.elastic and end is End.CONVERGED:
            end = self._broken(lane, way)
            assert state is not None
            if end is End.CONVERGED and way.firm:
                self.found[row] = self._batch.without_amounts(state, way)[: self.found.shape[1]]
                self.converged[row] = True
                return None
            if end is End.CONVERGED and way.costs:
                self._begun[row] = self._batch.without_amounts(state, way)
                self._ends[row] = state.copy()
        elif end is End.CONVERGED:
            assert state is not None
            self.found[row], self.converged[row] = state[: self.found.shape[1]], True
            return None
        if way in LAST_SEARCHES and end is End.BROKEN:
            self.infeasible[row] = True
            return None
        later = self._following.get((way, end)) or self._following.get((way, End.STUCK))
        return None if later is None else (row, later)

    def _stood(self, row: int, off: float) -> End:
        """How a way ended that stands at a least infeasible point; one from elsewhere has to agree with the first."""
        known = self._least.setdefault(row, off)
        return End.BROKEN if abs(off - known) <= self._settings.standing_apart * known else End.STUCK

    def _broken(self, lane: int, way: Way) -> End:
        """Whether constraints are broken where an elastic lane has converged.

        A search for a feasible point counts as one only where it ended at a minimum.
        """
        iteration, s = self._iteration, self._settings
        if way.firm:
            amounts = iteration.state[self._amounts, lane].max(initial=0.0)
            return End.CONVERGED if amounts <= s.firmly else End.BROKEN
        broken, mu = iteration.info[6, lane], iteration.info[3, lane]
        pairs = iteration.newton.rows + iteration.model.n_inequalities + 2 * iteration.model.n_equalities
        if not broken - mu * pairs > max(s.clearly, s.clearer * iteration.info[7, lane]):
            return End.CONVERGED
        return End.BROKEN if way.costs or iteration.curves_up()[lane] else End.STUCK

    def _fill(self, lane: int, doing: tuple[int, Way] | None) -> None:
        """Give a lane something to do: its row's next way, the next row, or one that waits for an elastic way."""
        if doing is not None and doing[1].elastic and self._fresh:
            self._hard.append(doing)
            doing = None
        if doing is None:
            waiting = self._fresh or self._hard
            if not waiting or not self._go_on():
                self._rest(lane)
                return
            doing = waiting.popleft()
        row, way = doing
        self.tried[row] = True
        iteration, rules = self._iteration, self._batch.rules(way)
        known = self._ends if way.start is Start.ELASTIC else self._begun
        iteration.state[:, lane] = start = self._batch.start(way, self._x[row], known.get(row))
        # Plain iterations do not write those of `moved`: they are whatever an elastic one has left there.
        iteration.moved[self._amounts, lane] = start[self._amounts]
        iteration.x[:, lane] = self._x[row]
        iteration.settings[:, lane], self._limits[:, lane] = rules.settings, rules.limits
        self._doing[lane], self._busy[lane] = doing, True
        self._count[lane] = self._short[lane] = self._settled[lane] = self._still[lane] = 0
        self._off[lane] = np.inf
        self._guarded[lane], self._shift[lane], self._again[lane] = way.guarded, 0.0, False
        self._elastic[lane], self._lax[lane] = way.elastic, way.elastic and not way.firm
        self._changes[lane] = rules.finishing is not None

    def _rest(self, lane: int) -> None:
        """Leave a lane to itself: it costs what it costs, and counts for nothing."""
        self._doing[lane], self._busy[lane] = None, False
        self._limits[:, lane], self._guarded[lane] = _IDLE, False
        self._elastic[lane] = self._lax[lane] = self._changes[lane] = False
        self._shift[lane] = self._count[lane] = 0
        for setting in (_ELASTIC, _REFINED):
            self._iteration.settings[setting, lane] = 0.0
