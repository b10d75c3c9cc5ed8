"""A problem's functions of one row, compiled for many: batches of a few sizes, in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from feasibly.arrays import over_chunks
from feasibly.precision import double, twin
from feasibly.quick import quick

if TYPE_CHECKING:
    from feasibly.problem.core import Problem

Array = NDArray[np.float64]
Compiled = Callable[..., jax.Array]

_SIZES = (1, 32, 256, 1024)
"""Batch sizes that are ever compiled."""


def run_rows(evaluate: Compiled, x: Array, y: Array) -> Array:
    """What a compiled function gives for these rows."""
    with double():
        return over_chunks(evaluate, _SIZES, x, y)


def compile_functions(problem: Problem) -> Mapping[str, Compiled]:
    """Those of objective, equality, inequality and violation that there are."""

    def over_rows(function: Callable[[Any, Any], Any]) -> Compiled:
        # Rows go last inside: gathers and scatters then move contiguous runs of one variable, which
        # is many times faster on a CPU than one row at a time.
        inner = jax.vmap(quick(function), in_axes=-1, out_axes=-1)
        return jax.jit(lambda x, y: inner(x.T, y.T).T)

    names = ("objective", "equality", "inequality", "violation")
    return {name: over_rows(getattr(problem, name)) for name in names if getattr(problem, name) is not None}


def compile_bounds(problem: Problem) -> Compiled:
    """Lower bounds, then upper ones, of the first argument."""
    both = jax.vmap(twin(lambda x: jnp.concatenate(problem.limits.at(x))))
    return jax.jit(lambda x, _: both(x))


def compile_worst(problem: Problem) -> Compiled:
    """Cost, largest |equality| and largest inequality in natural units."""

    def parts(x: Any, y: Any) -> Any:
        natural = problem.inequality if problem.violation is None else problem.violation
        equal = jnp.zeros(0) if problem.equality is None else problem.equality(x, y)
        return problem.objective(x, y), equal, jnp.zeros(0) if natural is None else natural(x, y)

    inner = jax.vmap(quick(parts), in_axes=-1, out_axes=-1)

    def three(x: Any, y: Any) -> Any:
        # Without the barrier XLA computes every flow again for each entry that its maximum looks at.
        cost, equal, over = jax.lax.optimization_barrier(inner(x.T, y.T))
        largest = (jnp.max(part, axis=0, initial=0.0) for part in (jnp.abs(equal), over))
        return jnp.stack([cost, *largest]).T

    return jax.jit(three)
