"""A problem's functions in float32, without ever tracing them in float32.

JAX remembers, for as long as any compiled program uses it, in which precision it first met a NumPy array that a
function captures, and hands that version to every later trace, whatever the mode. A function traced for training
would so be measured with constants rounded to float32, and one that was measured first cannot be traced for
training at all. So a problem's functions are traced in `double()` alone, as everywhere else, and training runs the
recorded operations in float32, on constants of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.extend import core

from feasibly.precision import double, twin
from feasibly.replay import called, perform, replay

_NARROW = {"float64": np.float32, "int64": np.int32, "uint64": np.uint32, "complex128": np.complex64}

# These carry a little program of the wrong precision with them, so they are asked for anew.
_SCATTERS = {
    "scatter": jax.lax.scatter,
    "scatter-add": jax.lax.scatter_add,
    "scatter-mul": jax.lax.scatter_mul,
    "scatter-min": jax.lax.scatter_min,
    "scatter-max": jax.lax.scatter_max,
}


def single(function: Callable[..., Any], *lengths: int) -> Callable[..., jax.Array]:
    """`function` of vectors of these `lengths`, in float32.

    Control flow and custom derivatives cannot be taken apart here; a function with any is traced as it stands, and
    is then subject to the trap above if it captures NumPy arrays.
    """
    with double():
        shapes = [jax.ShapeDtypeStruct((length,), np.float64) for length in lengths]
        closed = jax.make_jaxpr(twin(function))(*shapes)
    if not _is_simple(closed.jaxpr):
        return twin(function)
    constants = {id(value): _narrow(value) for value in closed.consts}  # copied once, not in every trace

    def run(*args: Any) -> jax.Array:
        result: jax.Array
        (result,) = replay(
            closed,
            args,
            _in_single,
            lambda value: constants[id(value)] if id(value) in constants else _narrow(value),
        )
        return result

    return run


def _is_simple(jaxpr: core.Jaxpr) -> bool:
    for equation in jaxpr.eqns:
        name, inner = equation.primitive.name, called(equation)
        if inner is not None:
            if not _is_simple(inner.jaxpr):
                return False
        elif name not in _SCATTERS and any(_holds_program(value) for value in equation.params.values()):
            return False
    return True


def _holds_program(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return any(_holds_program(part) for part in value)
    return isinstance(value, core.Jaxpr | core.ClosedJaxpr) or (
        callable(value) and not isinstance(value, type)
    )


def _in_single(equation: Any, values: list[Any]) -> list[Any]:
    name, inner = equation.primitive.name, called(equation)
    if inner is not None:
        return replay(inner, values, _in_single, _narrow)
    if name in _SCATTERS:
        keys = ("dimension_numbers", "indices_are_sorted", "unique_indices", "mode")
        return [_SCATTERS[name](*values, **{key: equation.params[key] for key in keys})]
    return perform(equation, values, {key: _narrow_dtype(value) for key, value in equation.params.items()})


def _narrow(value: Any) -> Any:
    array = np.array(value)
    return array.astype(_NARROW.get(array.dtype.name, array.dtype))


def _narrow_dtype(value: Any) -> Any:
    return np.dtype(_NARROW[value.name]) if isinstance(value, np.dtype) and value.name in _NARROW else value
