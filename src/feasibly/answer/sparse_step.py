"""The step of `step.py` with a sparse factorisation: residuals compiled, linear systems and active sets on the host."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from feasibly.answer.candidates import Candidates, in_order
from feasibly.answer.derivatives import lagrangian_pieces
from feasibly.answer.settings import Settings
from feasibly.answer.sparse import SparseOperator
from feasibly.answer.step import Residuals, State
from feasibly.arrays import padded
from feasibly.precision import double
from feasibly.problem.core import Problem

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

WIDTHS = (1, 8, 32)
"""Batch sizes that are compiled. Wider ones gain nothing: the factors, not the calls, take the time."""


class SparseIteration:
    """Steps for one problem and its candidates; operators come and go as arguments."""

    def __init__(self, problem: Problem, candidates: Candidates, settings: Settings) -> None:
        self._problem, self._candidates, self._settings = problem, candidates, settings
        self._residuals = _compile(problem, candidates)
        self._floor, self._ceiling = problem.lower[candidates.lower], problem.upper[candidates.upper]

    def run(
        self,
        operator: SparseOperator,
        x: Array,
        mean: Array,
        state: State,
        steps: int,
        *,
        proximal: bool,
        rest: float,
        rounds: tuple[int, int],
        single: bool = False,
        until: float = np.inf,
    ) -> tuple[State, Residuals]:
        """As `Iteration.run`, which see; no further step is begun after `until`."""
        parts = [
            self._batch(
                operator, x[rows], mean[rows], state.take(rows), steps, proximal, rest, sum(rounds), until
            )
            for rows in (slice(first, first + WIDTHS[-1]) for first in range(0, len(x), WIDTHS[-1]))
        ]
        states, residuals = zip(*parts, strict=True)
        return (
            State(*(np.concatenate(part) for part in zip(*states, strict=True))),
            Residuals(*(np.concatenate(part) for part in zip(*residuals, strict=True))),
        )

    def _batch(
        self,
        operator: SparseOperator,
        x: Array,
        mean: Array,
        state: State,
        steps: int,
        proximal: bool,
        rest: float,
        rounds: int,
        until: float,
    ) -> tuple[State, Residuals]:
        s, free = self._settings, operator.free
        y, nu, lam, active = (np.array(part) for part in state)
        costs = [np.full(len(x), np.inf)] * 2
        before_last: tuple[list[Array], list[Array]] | None = None
        for number in range(steps):
            outside = ~operator.base
            lam[:, outside] = np.where(active[:, outside], lam[:, outside], 0.0)
            cost, g, a, r = self._look(operator, x, y, nu, lam)
            changed = _relative(cost, costs[0]).max()
            if changed < rest or time.monotonic() > until:
                break
            broken = np.maximum(
                _worst(g) / s.equality_tolerance, _worst(np.maximum(a, 0.0)) / s.inequality_tolerance
            )
            if proximal and changed < s.settling_change and np.all(broken < 1.0):
                break
            costs = [cost, costs[0]]
            if proximal:
                r = r + operator.precision * (y - mean)[:, free]
            step, found, active = self._solve(operator, g, a, r, lam, active, rounds)
            d = step[: len(free)].T
            share = 1.0 / np.maximum(np.max(np.abs(d) / operator.trust, axis=1), 1.0)[:, None]
            point = [y[:, free], nu, lam]
            moves = [share * d, share * step[len(free) : operator.rows[1]].T, share * (found - lam)]
            further = moves
            if number >= s.sparse_settled:
                further = _extrapolated(point, moves, before_last, operator.precision, s.sparse_furthest)
            before_last = point, moves
            y[:, free], nu, lam = (part + move for part, move in zip(point, further, strict=True))
            lam = np.maximum(lam, 0.0)
        cost, g, a, _ = self._look(operator, x, y, nu, lam)
        change, previous = _relative(cost, costs[0]), _relative(costs[0], costs[1])
        ratio = np.clip(change / np.maximum(previous, 1e-300), 0.0, s.slowest_contraction)
        remaining = np.where(np.isfinite(costs[1]), change * ratio / (1.0 - ratio), np.inf)
        return State(y, nu, lam, active), Residuals(_worst(g), _worst(np.maximum(a, 0.0)), change, remaining)

    def _look(
        self, operator: SparseOperator, x: Array, y: Array, nu: Array, lam: Array
    ) -> tuple[Array, Array, Array, Array]:
        """Costs, equalities, candidates as `<= 0`, and gradients of the Lagrangian over the free outputs."""
        c = self._candidates
        at_lower, at_upper, pressing = c.split(lam, axis=1)
        width = next(w for w in WIDTHS if w >= len(x))
        with double():
            parts = self._residuals(*(padded(part, width) for part in (x, y, nu, pressing)))
        cost, g, h, slope = (np.asarray(part)[: len(x)] for part in parts)
        a = np.concatenate(in_order(self._floor - y[:, c.lower], y[:, c.upper] - self._ceiling, h), axis=1)
        slope = np.array(slope)
        slope[:, c.lower] -= at_lower
        slope[:, c.upper] += at_upper
        return cost, g, a, slope[:, operator.free]

    def _solve(
        self, operator: SparseOperator, g: Array, a: Array, r: Array, lam: Array, active: Mask, rounds: int
    ) -> tuple[Array, Array, Mask]:
        """The step of each row (columns), the candidates' new multipliers and their active set."""
        base = operator.base
        # Multipliers of unusual candidates come back with the flips.
        unusual = np.where(base, 0.0, lam)
        r = r - np.asarray(operator.transposed @ unusual.T).T
        right = -np.concatenate([r.T, g.T, a.T[base]])
        step = operator.solve(right)
        flipped = active != base
        first = operator.values(a.T, lam.T, step).T
        # Multipliers are prices, slacks are not: each has its own idea of nothing.
        prices = np.abs(first[:, base]).max(axis=1, initial=0.0)[:, None]
        nothing = self._settings.sparse_rounding * np.where(base, 1.0 + prices, 1.0)
        for _ in range(self._settings.sparse_looks):
            amounts = np.zeros_like(lam)
            operator.know(np.flatnonzero(flipped.any(axis=0)))
            known = operator.flips.which
            flipped &= operator.flips.place >= 0
            small, flipped[:, known] = settle(
                operator.flips.matrix, first[:, known], flipped[:, known], rounds, self._settings
            )
            amounts[:, known] = small
            used = np.flatnonzero(small.any(axis=0))
            moved = step - (small[:, used] @ operator.flips.columns[used]).T
            values = operator.values(a.T, lam.T, moved).T + operator.softness * amounts
            missed = (values < -nothing) & ~flipped
            missed[:, known] = False
            if not missed.any():
                break
            flipped |= missed
        found = np.where(base, np.where(flipped, 0.0, values), np.where(flipped, amounts, 0.0))
        return moved, np.maximum(found, 0.0), flipped != base


def _extrapolated(
    point: list[Array],
    moves: list[Array],
    earlier: tuple[list[Array], list[Array]] | None,
    weight: Array,
    furthest: tuple[float, float],
) -> list[Array]:
    """The moves to where this step and the last one, taken as a line, point: Anderson's acceleration of depth one.

    Two steps that go back and forth end in their middle, and a slow one goes on to where it leads. `weight` measures
    the first part, by which the others follow.
    """
    if earlier is None:
        return moves
    turned = moves[0] - earlier[1][0]
    along = np.sum(moves[0] * turned * weight, axis=1) / np.maximum(
        np.sum(turned**2 * weight, axis=1), 1e-300
    )
    along = np.clip(along, *furthest)[:, None]
    return [
        move - along * ((now - then) + (move - last))
        for now, move, then, last in zip(point, moves, *earlier, strict=True)
    ]


def settle(matrix: Array, first: Array, flipped: Mask, rounds: int, settings: Settings) -> tuple[Array, Mask]:
    """What flips have to be, row by row: `(rows, known)` amounts and which are flipped.

    `first + matrix @ amounts` must not be negative where nothing is flipped and is zero where something is, and amounts
    are not negative either. Every wrong sign is flipped, and from where that goes round in circles the last one alone.
    """
    rows, size = first.shape
    if not size:
        return np.zeros((rows, 0)), flipped
    scale = 1.0 / np.sqrt(np.maximum(np.abs(np.diag(matrix)), 1e-300))
    scaled = matrix * scale[:, None] * scale
    start = first * scale
    tolerance = settings.sparse_rounding * (1.0 + np.max(np.abs(start), axis=1, keepdims=True))
    patient, hard = settings.complementarity.patience, settings.complementarity.hard
    fewest, patience = np.full(rows, size + 1), np.full(rows, patient)
    flipped, amounts = flipped.copy(), np.zeros((rows, size))
    left = np.arange(rows)
    for _ in range(max(rounds, 1)):
        here = flipped[left]
        amounts[left] = tried = _amounts(scaled, start[left], here, hard)
        wrong = np.where(here, tried, start[left] + tried @ scaled.T) < -tolerance[left]
        count = wrong.sum(axis=1)
        left, wrong, count = left[count > 0], wrong[count > 0], count[count > 0]
        if not len(left):
            return amounts * scale, flipped
        patience[left] = np.where(count < fewest[left], patient, patience[left] - 1)
        fewest[left] = np.minimum(fewest[left], count)
        last = np.arange(size) == np.max(np.where(wrong, np.arange(size), -1), axis=1, keepdims=True)
        flipped[left] ^= np.where((patience[left] >= 0)[:, None], wrong, wrong & last)
    amounts[left] = _amounts(scaled, start[left], flipped[left], hard)
    return amounts * scale, flipped


def _amounts(matrix: Array, start: Array, flipped: Mask, hard: float) -> Array:
    most = int(flipped.sum(axis=1).max())
    amounts = np.zeros_like(start)
    if not most:
        return amounts
    where = np.argsort(~flipped, axis=1, kind="stable")[:, :most]
    valid = np.take_along_axis(flipped, where, axis=1)
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
