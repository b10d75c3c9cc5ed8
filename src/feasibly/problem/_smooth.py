"""Functions that are not smooth in the outputs: found in their traces, named with what to write instead."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import jax
from jax.extend import core
from numpy.typing import NDArray

from feasibly.precision import double, twin

ADVICE = {
    "abs": "write |a| as an output t with t >= a and t >= -a",
    "max": "write max(a, b) as an output t with t >= a and t >= b (min with <=)",
    "norm": "square it, or add a small constant under the root",
    "where": "let the pieces meet with equal slopes, or write them as constraints",
    "step": "leave out rounding and signs: their slopes are zero or undefined",
}

_KINKS = {
    "abs": "abs", "max": "max", "min": "max", "clamp": "max", "reduce_max": "max", "reduce_min": "max",
    "cummax": "max", "cummin": "max", "sort": "max", "sign": "step", "floor": "step", "ceil": "step", "round": "step",
    "rem": "step",
}  # fmt: skip

_SUMS = ("reduce_sum", "dot_general", "square", "integer_pow", "mul", "add", "add_any")


def find_kinks(function: Callable[..., Any], x: NDArray[Any], y: NDArray[Any]) -> list[str]:
    """The kinds of kinks (keys of `ADVICE`) that a function of `(x, y)` has in `y`, in the order of appearance.

    A root counts where nothing but sums of squares of outputs stands under it: there it has none of the constants
    that would keep it from zero. What depends on the inputs alone is as it is, and no matter.
    """
    with double():
        closed = jax.make_jaxpr(twin(function))(x, y)
    found: dict[str, None] = {}
    _walk(closed.jaxpr, [False, True], found)
    return list(found)


def _walk(jaxpr: core.Jaxpr, moving: Iterable[bool], found: dict[str, None]) -> list[bool]:
    """Follow what depends on the outputs through a program; which of its results do."""
    moves = dict(zip(jaxpr.invars, moving, strict=False))
    makers: dict[Any, Any] = {}

    def moved(variable: Any) -> bool:
        return not isinstance(variable, core.Literal) and moves.get(variable, False)

    for equation in jaxpr.eqns:
        name = equation.primitive.name
        inputs = [moved(variable) for variable in equation.invars]
        inner = _program(equation)
        if inner is not None:
            # Loops carry values around; whatever one of them moves is taken to move all.
            same = len(inner.invars) == len(inputs)
            outputs = _walk(inner, inputs if same else [any(inputs)] * len(inner.invars), found)
            if len(outputs) != len(equation.outvars):
                outputs = [any(inputs)] * len(equation.outvars)
        else:
            if any(inputs):
                _note(equation, name, inputs, makers, moved, found)
            outputs = [any(inputs)] * len(equation.outvars)
        for variable, moves_too in zip(equation.outvars, outputs, strict=True):
            moves[variable] = moves_too
            makers[variable] = equation
    return [moved(variable) for variable in jaxpr.outvars]


def _program(equation: Any) -> core.Jaxpr | None:
    for key in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
        value = equation.params.get(key)
        if value is not None:
            return value.jaxpr if hasattr(value, "jaxpr") else value
    return None


def _note(
    equation: Any,
    name: str,
    inputs: list[bool],
    makers: dict[Any, Any],
    moved: Callable[[Any], bool],
    found: dict[str, None],
) -> None:
    if name in _KINKS:
        found[_KINKS[name]] = None
    elif name == "select_n" and inputs[0]:
        found["where"] = None
    elif name == "sqrt":
        maker = makers.get(equation.invars[0])
        if maker is None or maker.primitive.name not in _SUMS:
            return
        if all(moved(variable) for variable in maker.invars):
            found["norm"] = None
