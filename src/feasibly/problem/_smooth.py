"""Functions that are not smooth in the outputs: found in their traces, named with what to write instead."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from numpy.typing import NDArray

from feasibly.precision import double, twin
from feasibly.replay import replay

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

_PROGRAMS = ("jaxpr", "call_jaxpr")
_SUMS = ("reduce_sum", "dot_general", "square", "integer_pow", "mul", "add", "add_any")


def find_kinks(function: Callable[..., Any], x: NDArray[Any], y: NDArray[Any]) -> list[str]:
    """The kinds of kinks (keys of `ADVICE`) that a function of `(x, y)` has in `y`, in the order of appearance.

    A root counts where nothing but sums of squares of outputs stands under it: there it has none of the constants
    that would keep it from zero. What depends on the inputs alone is as it is, and no matter.
    """
    with double():
        closed = jax.make_jaxpr(twin(function))(x, y)
    found: dict[str, None] = {}
    replay(closed, [_STILL, _MOVES], functools.partial(_note, found), lambda value: _STILL)
    return list(found)


class _Value(NamedTuple):
    """What is known of a value: whether it depends on the outputs, and whether it is a sum of nothing but such."""

    moves: bool
    sums: bool = False


_STILL, _MOVES = _Value(False), _Value(True)


def _note(found: dict[str, None], equation: Any, values: list[_Value]) -> list[_Value]:
    """Follow what depends on the outputs through one operation, and note a kink that it makes of it."""
    name, moves = equation.primitive.name, any(value.moves for value in values)
    inner = next((equation.params[key] for key in _PROGRAMS if key in equation.params), None)
    if inner is not None:
        if name == "scan":  # values go around: whatever one of them moves is taken to move all
            values = [_Value(moves)] * len(values)
        return replay(inner, values, functools.partial(_note, found), lambda value: _STILL)
    if not moves:
        pass
    elif name in _KINKS:
        found[_KINKS[name]] = None
    elif name == "select_n" and values[0].moves:
        found["where"] = None
    elif name == "sqrt" and values[0].sums:
        found["norm"] = None
    sums = name in _SUMS and all(value.moves for value in values)
    return [_Value(moves, sums)] * len(equation.outvars)
