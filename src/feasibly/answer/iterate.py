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

from feasibly.answer.derivatives import lagrangian_pieces
from feasibly.answer.frame import Bounds, Frame
from feasibly.answer.rows import Rows
from feasibly.model.complementarity import solve
from feasibly.precision import double
from feasibly.problem.core import Problem

Array = NDArray[np.float64]

BUCKETS = (1, 16, 256)
"""Batch sizes that are ever compiled, which takes seconds each."""


HELD = (1e-7, 1e-6)
"""Equalities and inequalities below these hold. Conditioning goes on for one move after they do in every row."""


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
    """Compiled moves for one problem and its candidate inequalities; frames come and go as arguments, and with them
    which bounds are candidates (their number stays)."""

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
        rounds: tuple[int, int],
        single: bool = False,
    ) -> tuple[State, Residuals]:
        """At most `steps` moves for every row, fewer when every row has come to rest.

        Polishing rests when the last change of the cost was below `rest`, conditioning when the constraints hold.

        `centred` pulls towards `mean`, the belief (conditioning); otherwise nothing does (polishing). `rounds`
        are those of the complementarity problem, soft and hard: few suffice at first, since the next move goes on from
        where they end, and the last rows of a batch to settle hold up all others. `single` is for callers who will
        ask for one row at a time again: a program of that width is then worth compiling.
        """
        outs = []
        with double():
            for part, width in _batches(len(x), single):
                args = [_padded(a[part], width).T for a in (x, mean, *state)]
                out = self._run(frame.matrices, *args, steps, rest, centred, rounds)
                outs.append([np.asarray(o).T[: part.stop - part.start] for o in out])
        y, nu, lam, active, eq, ineq, change = (np.concatenate(parts) for parts in zip(*outs, strict=True))
        return State(y, nu, lam, active), Residuals(eq, ineq, change)


def _batches(rows: int, single: bool = False) -> list[tuple[slice, int]]:
    """Rows cut into batches, each with the size it is filled up to.

    Several small batches where they waste less than a large one.
    """
    small, large = BUCKETS[1:]
    found = []
    first = 0
    while first < rows:
        left = rows - first
        width = 1 if single and rows == 1 else large if left > large // 2 else small
        found.append((slice(first, min(first + width, rows)), width))
        first += width
    return found


def _padded(rows: NDArray[Any], width: int) -> NDArray[Any]:
    if len(rows) == width:
        return rows
    return np.concatenate([rows, np.repeat(rows[-1:], width - len(rows), axis=0)])


def _compile(problem: Problem, rows: Rows, flips: int) -> Callable[..., tuple[Any, ...]]:
    free = np.flatnonzero(problem.lower < problem.upper)
    pieces = lagrangian_pieces(problem, rows)
    n_low, n_high = len(rows.lower), len(rows.upper)
    parts = jax.vmap(
        lambda x, y: (pieces.objective(x, y), pieces.equality(x, y), pieces.inequality(x, y)),
        in_axes=-1,
        out_axes=-1,
    )
    has_rows = len(rows) > 0

    def slacks(b: Bounds, y: Any, h: Any) -> Any:
        inside = y[free]
        return jnp.concatenate([b.floor[:, None] - inside[b.low], inside[b.high] - b.ceiling[:, None], h])

    def worst(residuals: Any) -> Any:
        return jnp.max(jnp.abs(residuals), axis=0, initial=0.0)

    def change(now: Any, before: Any) -> Any:
        return jnp.abs(now - before) / jnp.maximum(jnp.abs(now), 1e-12)

    def apply(matrix: Any, vectors: Any) -> Any:
        return (matrix @ vectors.astype(matrix.dtype)).astype(vectors.dtype)

    @jax.jit
    def run(
        m: Any,
        x: Any,
        mean: Any,
        y: Any,
        nu: Any,
        lam: Any,
        active: Any,
        steps: Any,
        rest: Any,
        centred: Any,
        rounds: Any,
    ) -> tuple[Any, ...]:
        n = len(free)

        def move(carry: tuple[Any, ...]) -> tuple[Any, ...]:
            y, nu, lam, active, before, _, _, count = carry
            low, high = m.bounds.low, m.bounds.high
            lam_h = lam[n_low + n_high :]
            (cost, g, h), backwards = jax.vjp(lambda at: parts(x, at), y)
            a = slacks(m.bounds, y, h)
            r = backwards((jnp.ones_like(cost), nu, lam_h))[0][free]
            r = r.at[low].add(-lam[:n_low]).at[high].add(lam[n_low : n_low + n_high])
            r = r + jax.lax.cond(
                centred, lambda: apply(m.precision, (y - mean)[free]), lambda: jnp.zeros_like(r)
            )
            d = apply(m.move, jnp.concatenate([r, g]))
            if has_rows:
                step = d[:n]
                q = jnp.concatenate([-step[low], step[high], apply(m.normals, step)]) + a + m.gram @ lam
                lam_new, active, _ = solve(m.pivoted, q, lam, active, flips, rounds)
                d = d + apply(m.push, lam_new - lam)
            else:
                lam_new = lam
            # A frozen frame is trusted as far as the data reach; further, the step is shortened, never turned.
            share = 1.0 / jnp.maximum(jnp.max(jnp.abs(d[:n]) / m.span[:, None], axis=0), 1.0) if n else 1.0
            dy = share * d[:n]
            y_new = y.at[free].add(dy)
            nu_new = nu + share * d[n:]
            lam = lam + share * (lam_new - lam)
            broken = jnp.max(jnp.maximum(worst(g) / HELD[0], worst(jnp.maximum(a, 0.0)) / HELD[1]))
            return y_new, nu_new, lam, active, cost, before, broken, count + 1

        def unfinished(carry: tuple[Any, ...]) -> Any:
            rested = jnp.all(change(carry[4], carry[5]) < rest) | (centred & (carry[6] < 1.0))
            return (carry[7] < steps) & ~rested

        unknown = jnp.full(y.shape[1], jnp.inf)
        carry = (y, nu, lam, active, unknown, unknown, jnp.inf, 0)
        y, nu, lam, active, before, _, _, _ = jax.lax.while_loop(unfinished, move, carry)
        cost, g, h = parts(x, y)
        a = worst(jnp.maximum(slacks(m.bounds, y, h), 0.0))
        return y, nu, lam, active, worst(g), a, change(cost, before)

    return run
