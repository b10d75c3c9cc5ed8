"""The complementarity problem of `model.complementarity` in operations that every runtime has.

The same rule, round by round; a row's differences from the usual set are picked by matrices of zeros and ones instead
of gathers and scatters, and the small systems between them are solved by elimination instead of a library.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from feasibly.model.complementarity import Pivoted
from feasibly.model.settings import DEFAULT, ComplementaritySettings


def solve_plainly(
    pivoted: tuple[Pivoted, Pivoted],
    q: Any,
    previous: Any,
    max_changes: int,
    rounds: tuple[int, int],
    settings: ComplementaritySettings = DEFAULT,
) -> tuple[Any, Any]:
    """Multipliers and whether a row settled, `(rows, size)` and `(rows,)`, for `q` of shape `(rows, size)`.

    Every row starts from the usual set; otherwise as `model.complementarity.solve`, whose arrays have rows last.
    """
    soft, hard = pivoted
    usual = jnp.zeros_like(q)
    roughly, found, _ = _settle(soft, q, previous, usual, max_changes, rounds[0], settings)
    exactly, _, settled = _settle(hard, q, previous, found, max_changes, rounds[1], settings)
    return jnp.where(settled[:, None], exactly, roughly), settled


def _settle(
    pivoted: Pivoted,
    q: Any,
    previous: Any,
    flipped: Any,
    max_changes: int,
    rounds: int,
    settings: ComplementaritySettings,
) -> tuple[Any, Any, Any]:
    """Sets are numbers, 1 for a member: some runtimes know little of what can be done with booleans."""
    scale, regularisation, offset, matrix = (
        pivoted.scale,
        pivoted.regularisation,
        pivoted.offset,
        pivoted.matrix,
    )
    base = pivoted.base.astype(float)
    size = len(scale)
    most = min(max_changes, size)
    start = (q * scale + regularisation * previous / scale) @ offset.T
    tolerance = settings.rounding * (1.0 + jnp.max(jnp.abs(start), axis=1, keepdims=True))
    places = jnp.arange(1.0, size + 1.0)

    def look(state: tuple[Any, ...]) -> tuple[Any, ...]:
        flipped, _, _, _, fewest, patience, round_ = state
        order = jnp.cumsum(flipped, axis=1) * flipped
        pick = (order[:, None, :] == jnp.arange(1.0, most + 1.0)[None, :, None]).astype(float)
        taken = jnp.sum(pick, axis=2)
        small = jnp.matmul(jnp.matmul(pick, matrix), jnp.swapaxes(pick, 1, 2))
        small = small + jnp.eye(most) * (1.0 - taken)[:, :, None]
        right = -jnp.sum(pick * start[:, None, :], axis=2)
        found = _eliminate(small, right, most)
        z = jnp.sum(pick * found[:, :, None], axis=1)
        flipped = jnp.sum(pick, axis=1)
        values = start + z @ matrix.T
        wrong = (jnp.where(flipped > 0.5, z, values) < -tolerance).astype(float)
        count = jnp.sum(wrong, axis=1)
        better = count < fewest
        patience = jnp.where(better, float(settings.patience), patience - 1.0)
        fewest = jnp.minimum(count, fewest)
        last = (places == jnp.max(wrong * places, axis=1, keepdims=True)).astype(float)
        turn = jnp.where((patience >= 0.0)[:, None], wrong, wrong * last)
        return jnp.abs(flipped - turn), z, values, flipped, fewest, patience, round_ + 1.0

    def unsettled(state: tuple[Any, ...]) -> Any:
        return (state[6] < rounds) & (jnp.max(state[4]) > 0.0)

    blank = jnp.zeros_like(start)
    row = jnp.zeros_like(start[:, 0])
    state = (flipped, blank, blank, flipped, row + (size + 1.0), row + settings.patience, jnp.asarray(0.0))
    _, z, values, flipped, fewest, _, _ = jax.lax.while_loop(unsettled, look, state)
    inside, outside = base * (1.0 - flipped) * values, (1.0 - base) * flipped * z
    multipliers = jnp.maximum(inside + outside, 0.0)
    return multipliers * scale, flipped, fewest == 0.0


def _eliminate(matrix: Any, right: Any, size: int) -> Any:
    """Solve `(rows, size, size)` systems. Their leading minors are positive (the matrix that is pivoted is positive
    definite), so that no rows need to change places; one round of refinement makes up for what that costs."""

    one = jnp.zeros_like(matrix) + jnp.eye(size)
    whole = jnp.concatenate([matrix, one], axis=2)
    for k in range(size):
        pivot = whole[:, k : k + 1, :] / whole[:, k : k + 1, k : k + 1]
        only = jnp.eye(size)[:, k : k + 1]
        whole = only * pivot + (1.0 - only) * (whole - whole[:, :, k : k + 1] * pivot)
    inverse = whole[:, :, size:]

    def apply(square: Any, vector: Any) -> Any:
        return jnp.matmul(square, vector[:, :, None])[:, :, 0]

    found = apply(inverse, right)
    return found + apply(inverse, right - apply(matrix, found))
