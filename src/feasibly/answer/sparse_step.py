"""The step of `step.py` with a sparse factorisation: residuals compiled, linear systems and active sets on the host.

With the usual active set `b` in the matrix, one solve gives the step that a row would take if its own set were `b`. It
is wrong where a multiplier of `b`, or the slack of another candidate, comes out negative. Let `v` be these values (the
multipliers of usual candidates, the slacks of others) and `t` by how much the row differs at each candidate: the slack
of a usual one that is let go, the multiplier of another that presses. Both follow from the matrix,

    v = first + M t,        v >= 0,        t >= 0,        v t = 0,

with `M` the Schur complement between the candidates (`Differences.matrix`): `settle` solves it among those met so far.
A second solve takes `t` into the step; what is negative after that is met now, and looked at again.

A row's life in a batch: looked at, judged, stepped, looked at, ... A row that has converged takes one step more and
leaves; one that has taken all its steps leaves as it is; the next row takes its place, and is looked at first.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from feasibly.answer.acceleration import Acceleration
from feasibly.answer.candidates import Candidates, in_order
from feasibly.answer.derivatives import lagrangian_pieces
from feasibly.answer.settings import Settings
from feasibly.answer.sparse import SparseOperator
from feasibly.answer.step import Iterate, Residuals, has_converged
from feasibly.arrays import padded
from feasibly.precision import double
from feasibly.problem.core import Problem

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

BATCH = 32
"""Rows that are solved for at a time: factors are read once for all of them."""
WIDTHS = (1, 2)
"""Rows whose residuals are computed at a time, as compiled. Whatever is computed of a row on the way fits into a core's
own cache then: with 32, case9241_pegase takes five times as long a row, and case2000_goc no less."""


class SparseIteration:
    """Steps for one problem and its candidates; operators come and go as arguments."""

    def __init__(self, problem: Problem, candidates: Candidates, settings: Settings) -> None:
        self._candidates, self._settings = candidates, settings
        self._residuals = _compile(problem, candidates)
        self._floor, self._ceiling = problem.lower[candidates.lower], problem.upper[candidates.upper]

    def run(
        self,
        operator: SparseOperator,
        x: Array,
        mean: Array,
        state: Iterate,
        steps: int,
        *,
        proximal: bool,
        cost_tolerance: float,
        rounds: tuple[int, int],
        single: bool = False,
        until: float = np.inf,
    ) -> tuple[Iterate, Residuals]:
        """As `DenseIteration.run`, which see; a row that has converged makes room for the next.

        No further step is begun after `until`.
        """
        batch = _Batch(
            operator, self._settings, x, mean, state, proximal, rest=proximal or cost_tolerance > 0.0
        )
        coming = np.arange(len(batch))
        while len(batch):
            self._look(operator, batch, coming)
            coming = batch.judge(steps if time.monotonic() <= until else 0)
            if len(coming) or not len(batch):
                continue
            with operator.differences.turn:
                solved = self._solve(operator, batch, sum(rounds))
            batch.move(*solved)
            coming = np.arange(len(batch))
        return batch.state, batch.residuals

    def _look(self, operator: SparseOperator, batch: _Batch, places: Ints) -> None:
        """What is seen of the rows at these places of a batch."""
        c = self._candidates
        x, y, nu, lam = (part[places] for part in (batch.x, batch.y, batch.nu, batch.lam))
        at_lower, at_upper, pressing = c.split(lam, axis=1)
        width = WIDTHS[min(len(x), len(WIDTHS)) - 1]
        with double():
            for first in range(0, len(x), width):
                some = slice(first, first + width)
                parts = self._residuals(*(padded(part[some], width) for part in (x, y, nu, pressing)))
                own = places[some]
                cost, g, h, slope = (np.asarray(part)[: len(own)] for part in parts)
                slope = slope.copy()
                slope[:, c.lower] -= at_lower[some]
                slope[:, c.upper] += at_upper[some]
                batch.cost[own], batch.g[own], batch.r[own] = cost, g, slope[:, operator.free]
                batch.a[own] = np.concatenate(
                    in_order(self._floor - y[some, c.lower], y[some, c.upper] - self._ceiling, h), axis=1
                )

    def _solve(self, operator: SparseOperator, batch: _Batch, rounds: int) -> tuple[Array, Array, Mask, Mask]:
        """The step of each row (columns), the candidates' new multipliers, their active set, and whether it settled."""
        base, a, lam, settings = operator.base, batch.a, batch.lam, self._settings
        # Multipliers of unusual candidates come back where rows differ.
        unusual = np.where(base, 0.0, lam)
        r = batch.pulled() - np.asarray(operator.transposed @ unusual.T).T
        step = operator.solve(-np.concatenate([r.T, batch.g.T, a.T[base]]))
        differs = batch.active != base
        first = operator.values(a.T, lam.T, step).T
        # Multipliers are prices, slacks are not: each has its own idea of nothing.
        prices = np.abs(first[:, base]).max(axis=1, initial=0.0)[:, None]
        nothing = settings.sparse_rounding * np.where(base, 1.0 + prices, 1.0)
        for _ in range(settings.sparse_looks):
            operator.know(np.flatnonzero(differs.any(axis=0)))
            known = operator.differences.which
            differs &= operator.differences.place >= 0
            small, differs[:, known] = settle(
                operator.differences.matrix, first[:, known], differs[:, known], rounds, settings
            )
            moved = operator.changed(step, small)
            values = operator.values(a.T, lam.T, moved).T
            values[:, known] += operator.differences.softness[known] * small
            missed = (values < -nothing) & ~differs
            missed[:, known] = False
            if not missed.any():
                break
            for kind in (base, ~base):
                differs[:, kind] |= missed[:, kind] & _worst_of(
                    np.where(missed[:, kind], values[:, kind], 0.0), settings
                )
        amounts = np.zeros_like(lam)
        amounts[:, known] = small
        found = np.where(base, np.where(differs, 0.0, values), np.where(differs, amounts, 0.0))
        slack = np.where(base, np.where(differs, amounts, 0.0), np.where(differs, 0.0, values))
        settled = np.all(
            (found >= -settings.sparse_sound * (1.0 + prices)) & (slack >= -settings.sparse_sound), axis=1
        )
        return moved, np.maximum(found, 0.0), differs != base, settled


class _Batch:
    """The rows at work, at most `BATCH` of all of them; the place of one that leaves is taken by the next.

    Attributes:
        x, mean, y, nu, lam, active: of the rows at work.
        cost, g, a, r: what was last seen of them: costs, equalities, candidates as `<= 0`, and gradients of the
            Lagrangian over the free outputs.
        state, residuals: of all rows; those at work are not in them yet.
    """

    def __init__(
        self,
        operator: SparseOperator,
        settings: Settings,
        x: Array,
        mean: Array,
        state: Iterate,
        proximal: bool,
        rest: bool,
    ) -> None:
        self._operator, self._settings, self._proximal, self._rest = operator, settings, proximal, rest
        self._given = x, mean, *(np.asarray(part) for part in state)
        self.state = Iterate(*(np.array(part) for part in state))
        equality, inequality, change, remaining = np.full((4, len(x)), np.inf)
        self.residuals = Residuals(equality, inequality, change, remaining, np.zeros(len(x), dtype=np.int64))
        self._rows = np.arange(min(len(x), BATCH))
        self._next = count = len(self._rows)
        self.x, self.mean, self.y, self.nu, self.lam, self.active = (
            np.array(part[self._rows]) for part in self._given
        )
        self.cost, self.g, self.a = np.empty(count), np.empty_like(self.nu), np.empty_like(self.lam)
        self.r = np.empty((count, len(operator.free)))
        self._costs = np.full((2, count), np.inf)
        self._taken = np.zeros(count, dtype=np.int64)
        self._moved = np.full(count, np.inf)
        """How far the last step moved each row, in its free outputs."""
        self._settled = np.zeros(count, dtype=bool)
        """Whether the last step's active set was that of its own complementarity problem."""
        self._last = np.zeros(count, dtype=bool)
        """Rows that leave after one more step: answers are then the same to a digit more, whatever else was known."""
        self._acceleration = Acceleration(
            settings.acceleration_depth, 1.0 / np.maximum(operator.radius, 1e-300) ** 2
        )

    def __len__(self) -> int:
        return len(self._rows)

    def pulled(self) -> Array:
        """The gradients, with the belief's pull where it has one."""
        if not self._proximal:
            return self.r
        return self.r + self._operator.precision * (self.y - self.mean)[:, self._operator.free]

    def judge(self, most: int) -> Ints:
        """Look at how rows stand: those that have converged take one more step, others that have taken `most` leave.

        Returned are the places that further rows have taken.
        """
        s = self._settings
        change, previous = _relative(self.cost, self._costs[0]), _relative(*self._costs)
        ratio = np.clip(change / np.maximum(previous, 1e-300), 0.0, s.slowest_contraction)
        remaining = np.where(np.isfinite(self._costs[1]), change * ratio / (1.0 - ratio), np.inf)
        seen = Residuals(_worst(self.g), _worst(np.maximum(self.a, 0.0)), change, remaining, self._taken)
        done = has_converged(s, self.y, seen, self._proximal) & self._rest & (self._moved < s.settled_step)
        done &= self._settled
        self._last = done & (most > 0)
        for whole, part in zip(self.residuals, seen, strict=True):
            whole[self._rows] = part
        return self._leave(np.flatnonzero(~self._last & (self._taken >= most)))

    def _leave(self, leaving: Ints) -> Ints:
        """Let rows go; the places that further ones have taken."""
        if not len(leaving):
            return leaving
        for whole, part in zip(self.state, (self.y, self.nu, self.lam, self.active), strict=True):
            whole[self._rows[leaving]] = part[leaving]
        coming = np.arange(self._next, min(self._next + len(leaving), len(self.state.y)))
        self._next += len(coming)
        places = leaving[: len(coming)]
        working = self.x, self.mean, self.y, self.nu, self.lam, self.active
        for part, given in zip(working, self._given, strict=True):
            part[places] = given[coming]
        self._rows[places], self._taken[places], self._costs[:, places] = coming, 0, np.inf
        self._last[places], self._moved[places], self._settled[places] = False, np.inf, False
        self._acceleration.forget(places)
        if len(leaving) > len(coming):
            self._keep(np.setdiff1d(np.arange(len(self._rows)), leaving[len(coming) :]))
            places = np.flatnonzero(np.isin(self._rows, coming))
        return places

    def _keep(self, places: Ints) -> None:
        for name in (
            "x",
            "mean",
            "y",
            "nu",
            "lam",
            "active",
            "cost",
            "g",
            "a",
            "r",
            "_rows",
            "_taken",
            "_last",
            "_settled",
            "_moved",
        ):
            setattr(self, name, getattr(self, name)[places])
        self._costs = self._costs[:, places]
        self._acceleration.keep(places)

    def move(self, step: Array, found: Array, active: Mask, settled: Mask) -> None:
        """Take the steps (columns) that lead to these multipliers and this active set; rows that had converged leave.

        Where those end up is not looked at again: a step contracts.
        """
        operator, free = self._operator, self._operator.free
        d = step[: len(free)].T
        share = self._share(d)
        point = [self.y[:, free], self.nu, self.lam]
        moves = [share * d, share * step[len(free) : operator.rows[1]].T, share * (found - self.lam)]
        afresh = (active != self.active).any(axis=1) | (share[:, 0] < 1.0)
        afresh |= self._taken < self._settings.accelerated_from
        further = self._acceleration(point, moves, afresh)
        share = self._share(further[0])
        self.y[:, free] = point[0] + share * further[0]
        self.nu = point[1] + share * further[1]
        lam = np.maximum(point[2] + share * further[2], 0.0)
        outside = ~operator.base
        lam[:, outside] = np.where(active[:, outside], lam[:, outside], 0.0)
        self.lam, self.active, self._settled = lam, active, settled
        self._costs = np.stack([self.cost, self._costs[0]])
        self._taken, self._moved = self._taken + 1, np.abs(moves[0]).max(axis=1, initial=0.0)
        self._leave(np.flatnonzero(self._last))

    def _share(self, d: Array) -> Array:
        """How much of a step over the free outputs is within what frozen derivatives are trusted with."""
        return np.asarray(1.0 / np.maximum(np.max(np.abs(d) / self._operator.radius, axis=1), 1.0)[:, None])


def settle(matrix: Array, first: Array, differs: Mask, rounds: int, settings: Settings) -> tuple[Array, Mask]:
    """By how much rows differ from the usual active set: `(rows, known)` amounts, and where they do.

    `first + matrix @ amounts` must not be negative where a row does not differ and is zero where it does, and amounts
    are not negative either. The worst of the wrong signs are changed, and from where that goes round in circles the
    last one alone.
    """
    rows, size = first.shape
    if not size:
        return np.zeros((rows, 0)), differs
    scale = 1.0 / np.sqrt(np.maximum(np.abs(np.diag(matrix)), 1e-300))
    scaled = matrix * scale[:, None] * scale
    start = first * scale
    tolerance = settings.sparse_rounding * (1.0 + np.max(np.abs(start), axis=1, keepdims=True))
    patient, hard = settings.complementarity.patience, settings.complementarity.hard
    fewest, patience = np.full(rows, size + 1), np.full(rows, patient)
    differs, amounts = differs.copy(), np.zeros((rows, size))
    left = np.arange(rows)
    for _ in range(max(rounds, 1)):
        here = differs[left]
        amounts[left] = tried = _amounts(scaled, start[left], here, hard)
        value = np.where(here, tried, start[left] + tried @ scaled.T)
        wrong = value < -tolerance[left]
        count = wrong.sum(axis=1)
        wrong &= _worst_of(value, settings)
        left, wrong, count = left[count > 0], wrong[count > 0], count[count > 0]
        if not len(left):
            return amounts * scale, differs
        patience[left] = np.where(count < fewest[left], patient, patience[left] - 1)
        fewest[left] = np.minimum(fewest[left], count)
        last = np.arange(size) == np.max(np.where(wrong, np.arange(size), -1), axis=1, keepdims=True)
        differs[left] ^= np.where((patience[left] >= 0)[:, None], wrong, wrong & last)
    amounts[left] = _amounts(scaled, start[left], differs[left], hard)
    return amounts * scale, differs


def _worst_of(value: Array, settings: Settings) -> Mask:
    """What is nearly as negative as anything in its row: most of the rest is negative because of it."""
    return np.asarray(value <= settings.complementarity.worst * value.min(axis=1, keepdims=True, initial=0.0))


def _amounts(matrix: Array, start: Array, differs: Mask, hard: float) -> Array:
    most = int(differs.sum(axis=1).max())
    amounts = np.zeros_like(start)
    if not most:
        return amounts
    where = np.argsort(~differs, axis=1, kind="stable")[:, :most]
    valid = np.take_along_axis(differs, where, axis=1)
    both = valid[:, :, None] & valid[:, None, :]
    chosen = matrix[where[:, :, None], where[:, None, :]] + hard * np.eye(most)
    small = np.where(both, chosen, np.eye(most))
    right = np.where(valid, -np.take_along_axis(start, where, axis=1), 0.0)
    np.put_along_axis(amounts, where, np.linalg.solve(small, right[..., None])[..., 0] * valid, axis=1)
    return amounts


def _compile(problem: Problem, candidates: Candidates) -> Callable[..., Any]:
    pieces = lagrangian_pieces(problem, candidates)

    def look(x: Any, y: Any, nu: Any, lam: Any) -> Any:
        (cost, g, h), back = jax.vjp(
            lambda at: (pieces.objective(x, at), pieces.equality(x, at), pieces.inequality(x, at)), y
        )
        return cost, g, h, back((jnp.ones_like(cost), nu, lam))[0]

    rows_last = jax.vmap(look, in_axes=-1, out_axes=-1)
    return jax.jit(lambda x, y, nu, lam: tuple(part.T for part in rows_last(x.T, y.T, nu.T, lam.T)))


def _worst(residuals: Array) -> Array:
    return np.asarray(np.max(np.abs(residuals), axis=1, initial=0.0))


def _relative(now: Array, before: Array) -> Array:
    with np.errstate(invalid="ignore"):
        return np.asarray(np.abs(now - before) / np.maximum(np.abs(now), 1e-12))
