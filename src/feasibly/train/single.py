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

_NARROW = {"float64": np.float32, "int64": np.int32, "uint64": np.uint32, "complex128": np.complex64}

_NESTED = ("jit", "pjit", "closed_call", "core_call")

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
    constants = [_narrow(np.array(value)) for value in closed.consts]

    def run(*args: Any) -> jax.Array:
        (result,) = _run(closed.jaxpr, constants, args)
        return result

    return run


def _is_simple(jaxpr: core.Jaxpr) -> bool:
    for equation in jaxpr.eqns:
        name = equation.primitive.name
        if name in _NESTED:
            if not _is_simple(equation.params["jaxpr"].jaxpr):
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


def _run(jaxpr: core.Jaxpr, constants: Any, args: Any) -> list[Any]:
    values: dict[Any, Any] = dict(zip(jaxpr.constvars, constants, strict=True))
    values.update(zip(jaxpr.invars, args, strict=True))

    def read(variable: Any) -> Any:
        return _narrow(np.asarray(variable.val)) if isinstance(variable, core.Literal) else values[variable]

    for equation in jaxpr.eqns:
        inputs = [read(variable) for variable in equation.invars]
        if equation.primitive.name in _NESTED:
            inner = equation.params["jaxpr"]
            outputs = _run(inner.jaxpr, [_narrow(np.array(value)) for value in inner.consts], inputs)
        elif equation.primitive.name in _SCATTERS:
            keys = ("dimension_numbers", "indices_are_sorted", "unique_indices", "mode")
            outputs = [
                _SCATTERS[equation.primitive.name](*inputs, **{key: equation.params[key] for key in keys})
            ]
        else:
            params = {key: _narrow_dtype(value) for key, value in equation.params.items()}
            result = equation.primitive.bind(*inputs, **params)
            outputs = result if equation.primitive.multiple_results else [result]
        values.update(zip(equation.outvars, outputs, strict=True))
    return [read(variable) for variable in jaxpr.outvars]


def _narrow(value: Any) -> Any:
    return value.astype(_NARROW.get(value.dtype.name, value.dtype))


def _narrow_dtype(value: Any) -> Any:
    return np.dtype(_NARROW[value.name]) if isinstance(value, np.dtype) and value.name in _NARROW else value
