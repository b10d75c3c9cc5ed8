"""Many small systems cut out of one matrix, a system a row: as XLA compiles them anywhere, and as one kernel on a GPU.

`matrix[which, which] found = right` for the first `total` places of each row; what is left over of `which` is ignored
and found to be zero. Rows go last in every array. What the systems are cut out of was positive definite before it was
pivoted, so that no pivot is zero and no rows need to change places; one refinement makes up for what that costs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from feasibly.precision import double

Solver = Callable[[Any, Any, Any, Any], Any]
"""From the matrix, places `(size, rows)`, how many of them count, and right-hand sides to what is found."""

A_WARP = 1024
"""Entries of a system that 32 threads hold in their registers."""
WIDEST = 128
"""Larger systems would need more threads than a program may have."""


def by_pivots(matrix: Any, which: Any, total: Any, right: Any) -> Any:
    """Two principal pivots at a time for all rows together, through the device's memory."""
    size = which.shape[0]
    valid = jnp.arange(size)[:, None] < total
    both = valid[:, None] & valid[None]
    small = jnp.where(both, matrix[which[:, None], which[None]], jnp.eye(size)[:, :, None])
    right = jnp.where(valid, right, 0.0)
    inverse = _invert(small)
    found = jnp.sum(inverse * right[None], axis=1)
    found = found + jnp.sum(inverse * (right - jnp.sum(small * found[None], axis=1))[None], axis=1)
    return jnp.where(valid, found, 0.0)


def _invert(small: Any) -> Any:
    """After all pivots, the inverse is left. The size is even."""
    size, rows = small.shape[1:]

    def sweep(turn: Any, left: Any) -> Any:
        first = 2 * turn
        pair = jax.lax.dynamic_slice(left, (first, 0, 0), (2, size, rows))
        columns = jax.lax.dynamic_slice(left, (0, first, 0), (size, 2, rows))
        (pivot, side), (below, end) = jax.lax.dynamic_slice(pair, (0, first, 0), (2, 2, rows))
        rest = end - below * side / pivot
        corner = jnp.stack(
            [
                jnp.stack([(1.0 + side * below / (pivot * rest)) / pivot, -side / (pivot * rest)]),
                jnp.stack([-below / (pivot * rest), 1.0 / rest]),
            ]
        )
        corner, pair, columns = jax.lax.optimization_barrier((corner, pair, columns))
        across = corner[:, :1] * pair[None, 0] + corner[:, 1:] * pair[None, 1]
        away = -(columns[:, :1] * corner[None, 0] + columns[:, 1:] * corner[None, 1])
        # A barrier: what is overwritten is read first.
        across, away = jax.lax.optimization_barrier((across, away))
        left = left - columns[:, :1] * across[None, 0] - columns[:, 1:] * across[None, 1]
        left = jax.lax.dynamic_update_slice(left, across, (first, 0, 0))
        left = jax.lax.dynamic_update_slice(left, away, (0, first, 0))
        return jax.lax.dynamic_update_slice(left, corner, (first, first, 0))

    return jax.lax.fori_loop(0, size // 2, sweep, small)


def in_registers(matrix: Any, which: Any, total: Any, right: Any, *, interpret: bool = False) -> Any:
    """A system a program of 32 threads or more, which hold it in their registers: nothing of it is ever stored."""
    from jax.experimental import pallas
    from jax.experimental.pallas import triton

    size, rows = which.shape
    width = max(1 << (size - 1).bit_length(), 4)
    if width > WIDEST:
        return by_pivots(matrix, which, total, right)
    filled = ((0, 0), (0, width - size))
    line = pallas.BlockSpec((None, width), lambda row: (row, 0))
    found = pallas.pallas_call(
        functools.partial(_one_system, size=width),
        grid=(rows,),
        in_specs=[
            pallas.BlockSpec(matrix.shape, lambda row: (0, 0)),
            line,
            pallas.BlockSpec((1,), lambda row: (row,)),
            line,
        ],
        out_specs=line,
        out_shape=jax.ShapeDtypeStruct((rows, width), right.dtype),
        interpret=interpret,
        compiler_params=triton.CompilerParams(num_warps=max(1, width * width // A_WARP), num_stages=1),
    )(matrix, jnp.pad(which.T, filled), jnp.minimum(total, size).astype(jnp.int32), jnp.pad(right.T, filled))
    return found.T[:size]


def _one_system(matrix: Any, which: Any, total: Any, right: Any, out: Any, *, size: int) -> None:
    from jax.experimental.pallas import triton

    count, at = total[0], which[:]
    down = jax.lax.broadcasted_iota(jnp.int32, (size, size), 0)
    across = jax.lax.broadcasted_iota(jnp.int32, (size, size), 1)
    line = jax.lax.broadcasted_iota(jnp.int32, (size,), 0)
    inside = (down < count) & (across < count)
    right = jnp.where(line < count, right[:], 0.0)

    def small() -> Any:
        cut = triton.load(matrix.at[at[:, None], at[None, :]])
        return jnp.where(inside, cut, jnp.where(down == across, 1.0, 0.0))

    def sweep(k: Any, left: Any) -> Any:
        # A register has no address: a row, a column and the pivot are sums of what is masked.
        row = jnp.sum(jnp.where(down == k, left, 0.0), axis=0)
        column = jnp.sum(jnp.where(across == k, left, 0.0), axis=1)
        pivot = 1.0 / jnp.sum(jnp.where(line == k, row, 0.0))
        row = row * pivot
        left = left - column[:, None] * row[None, :]
        left = jnp.where(down == k, row[None, :], left)
        left = jnp.where(across == k, -(column * pivot)[:, None], left)
        return jnp.where((down == k) & (across == k), pivot, left)

    inverse = jax.lax.fori_loop(0, count, sweep, small())
    found = jnp.sum(inverse * right[None, :], axis=1)
    missing = right - jnp.sum(small() * found[None, :], axis=1)
    out[:] = found + jnp.sum(inverse * missing[None, :], axis=1)


@functools.cache
def fastest() -> Solver:
    """The kernel where the default device is a GPU that compiles it and gets it right, and what runs anywhere else."""
    if jax.default_backend() != "gpu":
        return by_pivots
    rng = np.random.default_rng(0)
    root = rng.standard_normal((40, 40))
    matrix = root @ root.T + np.eye(40)
    which = np.stack([rng.permutation(40)[:24] for _ in range(64)], axis=1).astype(np.int32)
    total = rng.integers(0, 25, 64).astype(np.int32)
    right = rng.standard_normal((24, 64))
    try:
        with double():
            found, known = (
                np.asarray(jax.jit(way)(matrix, which, total, right)) for way in (in_registers, by_pivots)
            )
    except Exception:  # whatever keeps this kernel from being compiled or run there, there is another way
        return by_pivots
    return in_registers if np.allclose(found, known, rtol=1e-8, atol=1e-8) else by_pivots
