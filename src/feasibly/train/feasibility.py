"""How far answers are from feasible, in float32 and differentiable: what training minimises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from feasibly.problem.core import Problem
from feasibly.train.single import single

ROWS = 256
"""Rows evaluated together: more no longer fit a core's cache, which is three times slower on 2048 rows of case118."""


def residuals(problem: Problem) -> Callable[[Any, Any], tuple[jax.Array, jax.Array]]:
    """A function of rows-last `x` and `y` that gives the equalities and what every inequality exceeds, bounds last.

    Both come as `(constraints, rows)`, unclipped: an inequality that holds is negative.
    """
    low, high = np.flatnonzero(np.isfinite(problem.lower)), np.flatnonzero(np.isfinite(problem.upper))
    lower, upper = (bound.astype(np.float32)[:, None] for bound in (problem.lower[low], problem.upper[high]))
    # Rows go last, as in `Problem`: gathers then move contiguous runs.
    batched = {
        name: jax.vmap(single(function, problem.n_inputs, problem.n_outputs), in_axes=-1, out_axes=-1)
        for name, function in (("equality", problem.equality), ("inequality", problem.inequality))
        if function is not None
    }

    def evaluate(x: Any, y: Any) -> tuple[jax.Array, jax.Array]:
        none = jnp.zeros((0, y.shape[1]), y.dtype)
        equal = batched["equality"](x, y) if "equality" in batched else none
        unequal = batched["inequality"](x, y) if "inequality" in batched else none
        return equal, jnp.concatenate([unequal, lower - y[low], y[high] - upper])

    return evaluate


def feasibility(
    problem: Problem, lambda_e: float = 1.0, lambda_i: float = 1.0, rows: int = ROWS
) -> Callable[[Any, Any], jax.Array]:
    """The paper's F: `lambda_e |g|^2 + lambda_i |max(h, 0)|^2` of every row, bounds among the inequalities.

    The function returned takes `x` `(rows, n_inputs)` and `y` `(rows, n_outputs)` and gives `(rows,)`. It may be
    differentiated once, in `y` alone. Each row's F knows no other row, so value and gradient are made together, a
    cache-sized block of rows at a time.
    """
    evaluate = residuals(problem)

    def block(x: Any, y: Any) -> jax.Array:
        equal, unequal = evaluate(x, y)
        violation = jax.nn.relu(unequal)
        return lambda_e * jnp.sum(equal * equal, axis=0) + lambda_i * jnp.sum(violation * violation, axis=0)

    def block_with_gradient(pair: tuple[Any, Any]) -> tuple[jax.Array, jax.Array]:
        x, y = pair[0].T, pair[1].T
        value, pull = jax.vjp(lambda y: block(x, y), y)
        return value, pull(jnp.ones_like(value))[0].T

    def rowwise(x: Any, y: Any) -> jax.Array:
        fixed = jax.lax.stop_gradient(y)
        value, gradient = in_blocks(block_with_gradient, x, fixed, rows)
        # The second term is zero and carries the gradient.
        return value + jnp.sum(gradient * (y - fixed), axis=1)

    return rowwise


def in_blocks(function: Callable[[tuple[Any, Any]], Any], x: Any, y: Any, rows: int) -> Any:
    """Apply a row-wise function to blocks of rows and put the results together again."""
    count = len(x)
    if count <= rows:
        return function((x, y))
    blocks = -(-count // rows)
    padding = ((0, blocks * rows - count), (0, 0))
    # The last rows are repeated rather than filled with zeros, where a user's function might be undefined.
    x, y = (jnp.pad(part, padding, mode="edge").reshape(blocks, rows, part.shape[1]) for part in (x, y))
    result = jax.lax.map(function, (x, y))
    return jax.tree.map(lambda part: part.reshape(blocks * rows, *part.shape[2:])[:count], result)
