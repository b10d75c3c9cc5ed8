"""The iteration on a frozen frame, compiled, for many instances at once.

Inside, rows go last: gathers, scatters and matrix products then run over contiguous memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from feasibly.answer.frame import Frame, Rows, lagrangian_pieces
from feasibly.model.complementarity import solve
from feasibly.precision import double
from feasibly.problem.core import Problem

Array = NDArray[np.float64]

BUCKETS = (1, 32, 256)
"""Batch sizes that are ever compiled; a batch is filled up to the next one."""

CHUNK = BUCKETS[-1]


class State(NamedTuple):
    """Where each instance stands; rows first outside `Iteration`, last inside."""

    y: Any
    nu: Any
    lam: Any
    active: Any


class Residuals(NamedTuple):
    """How far each instance is from resting: largest equality and candidate violation, and by which share of itself
    the cost changed in the last move."""

    equality: Array
    inequality: Array
    change: Array


class Iteration:
    """Compiled moves for one problem and one set of candidates; frames come and go as arguments."""

    def __init__(self, problem: Problem, rows: Rows, flips: int) -> None:
        self._run = _compile(problem, rows, flips)

    def run(
        self,
        frame: Frame,
        x: Array,
        mean: Array,
        state: State,
        steps: int,
        *,
        centred: bool,
        rest: float = 1e-9,
    ) -> tuple[State, Residuals]:
        """At most `steps` moves for every row, fewer when the last change of every row was below `rest`.

        `centred` pulls towards `mean`, the belief (conditioning); otherwise nothing does (polishing).
        """
        outs = []
        with double():
            for first in range(0, len(x), CHUNK):
                part = slice(first, min(first + CHUNK, len(x)))
                width = _bucket(part.stop - part.start)
                args = [_padded(a[part], width).T for a in (x, mean, *state)]
                out = self._run(frame.matrices, *args, steps, rest, centred)
                outs.append([np.asarray(o).T[: part.stop - part.start] for o in out])
        y, nu, lam, active, eq, ineq, change = (np.concatenate(parts) for parts in zip(*outs, strict=True))
        return State(y, nu, lam, active), Residuals(eq, ineq, change)


def _bucket(rows: int) -> int:
    return next(size for size in BUCKETS if size >= rows)


def _padded(rows: NDArray[Any], width: int) -> NDArray[Any]:
    if len(rows) == width:
        return rows
    return np.concatenate([rows, np.repeat(rows[-1:], width - len(rows), axis=0)])


def _compile(problem: Problem, rows: Rows, flips: int) -> Callable[..., tuple[Any, ...]]:
    free = np.flatnonzero(problem.lower < problem.upper)
    pieces = lagrangian_pieces(problem, rows)
    n_low, n_high = len(rows.lower), len(rows.upper)
    lower, upper = problem.lower, problem.upper
    position = np.full(problem.n_outputs, -1)
    position[free] = np.arange(len(free))
    low, high = position[rows.lower], position[rows.upper]
    slope = jax.vmap(jax.grad(pieces.lagrangian, argnums=1), in_axes=-1, out_axes=-1)
    equality = jax.vmap(pieces.equality, in_axes=-1, out_axes=-1)
    inequality = jax.vmap(pieces.inequality, in_axes=-1, out_axes=-1)
    objective = jax.vmap(lambda x, y: problem.objective(x, y), in_axes=-1, out_axes=-1)
    limit_low, limit_high = lower[rows.lower][:, None], upper[rows.upper][:, None]
    has_rows = len(rows) > 0

    def constraints(x: Any, y: Any) -> tuple[Any, Any]:
        at = jnp.concatenate([limit_low - y[rows.lower], y[rows.upper] - limit_high, inequality(x, y)])
        return equality(x, y), at

    def change(now: Any, before: Any) -> Any:
        return jnp.abs(now - before) / jnp.maximum(jnp.abs(now), 1e-12)

    @jax.jit
    def run(
        m: Any, x: Any, mean: Any, y: Any, nu: Any, lam: Any, active: Any, steps: Any, rest: Any, centred: Any
    ) -> tuple[Any, ...]:
        n = len(free)

        def move(carry: tuple[Any, ...]) -> tuple[Any, ...]:
            y, nu, lam, active, g, a, cost, _, count = carry
            lam_h = lam[n_low + n_high :]
            r = slope(x, y, nu, lam_h)[free]
            pull = jax.lax.cond(centred, lambda: m.precision @ (y - mean)[free], lambda: jnp.zeros_like(r))
            r = r + pull
            d = m.move @ jnp.concatenate([r, g])
            if has_rows:
                # The gradient above holds the candidates' inequalities at their old multipliers; take them out again.
                d = d - m.push[:, n_low + n_high :] @ lam_h
                step = d[:n]
                q = jnp.concatenate([-step[low], step[high], m.normals @ step]) + a
                lam_new, active, _ = solve(m.pivoted, q, lam, active, flips)
                d = d + m.push @ lam_new
            else:
                lam_new = lam
            # A frozen frame is trusted as far as the data reach; further, the step is shortened, never turned.
            share = 1.0 / jnp.maximum(jnp.max(jnp.abs(d[:n]) / m.span[:, None], axis=0), 1.0) if n else 1.0
            dy = share * d[:n]
            y_new = y.at[free].add(dy)
            nu_new = nu + share * d[n:]
            lam = lam + share * (lam_new - lam)
            g_new, a_new = constraints(x, y_new)
            return y_new, nu_new, lam, active, g_new, a_new, objective(x, y_new), cost, count + 1

        def unfinished(carry: tuple[Any, ...]) -> Any:
            return (carry[8] < steps) & ~jnp.all(change(carry[6], carry[7]) < rest)

        g, a = constraints(x, y)
        carry = (y, nu, lam, active, g, a, objective(x, y), jnp.full(y.shape[1], jnp.inf), 0)
        y, nu, lam, active, g, a, cost, before, _ = jax.lax.while_loop(unfinished, move, carry)
        worst_g = jnp.max(jnp.abs(g), axis=0) if g.shape[0] else jnp.zeros(y.shape[1])
        worst_a = jnp.max(jnp.maximum(a, 0.0), axis=0) if a.shape[0] else jnp.zeros(y.shape[1])
        return y, nu, lam, active, worst_g, worst_a, change(cost, before)

    return run
