"""Primitives that act on one element at a time: the CasADi counterpart of each.

`NUMPY` holds what is evaluated when all operands are known; anything missing there is run by JAX itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import casadi
import numpy as np

Elementwise = Callable[..., Any]


def _identity(a: Any) -> Any:
    return a


def _logistic(a: Any) -> Any:
    # Through tanh: the quotient of exponentials has derivative inf / inf far from zero.
    return 0.5 + 0.5 * casadi.tanh(0.5 * a)


def _cube_root(a: Any) -> Any:
    return casadi.sign(a) * casadi.fabs(a) ** (1.0 / 3.0)


def _round_half_even(a: Any) -> Any:
    below = casadi.floor(a)
    rest = a - below
    odd = below - 2.0 * casadi.floor(0.5 * below)
    return below + (rest > 0.5) + (rest == 0.5) * odd


def _round_half_away(a: Any) -> Any:
    return casadi.sign(a) * casadi.floor(casadi.fabs(a) + 0.5)


UNARY: Mapping[str, Elementwise] = {
    "neg": lambda a: -a,
    "sin": casadi.sin,
    "cos": casadi.cos,
    "tan": casadi.tan,
    "asin": casadi.asin,
    "acos": casadi.acos,
    "atan": casadi.atan,
    "sinh": casadi.sinh,
    "cosh": casadi.cosh,
    "tanh": casadi.tanh,
    "asinh": casadi.asinh,
    "acosh": casadi.acosh,
    "atanh": casadi.atanh,
    "exp": casadi.exp,
    "exp2": lambda a: casadi.exp(float(np.log(2.0)) * a),
    "expm1": casadi.expm1,
    "log": casadi.log,
    "log1p": casadi.log1p,
    "sqrt": casadi.sqrt,
    "rsqrt": lambda a: 1.0 / casadi.sqrt(a),
    "cbrt": _cube_root,
    "square": lambda a: a * a,
    "abs": casadi.fabs,
    "sign": casadi.sign,
    "floor": casadi.floor,
    "ceil": casadi.ceil,
    "erf": casadi.erf,
    "erfc": lambda a: 1.0 - casadi.erf(a),
    "logistic": _logistic,
    "is_finite": lambda a: casadi.fabs(a) < casadi.inf,
    "not": casadi.logic_not,
    # JAX's ways of saying "the same value". The solver differentiates the value: a stopped gradient goes on.
    "copy": _identity,
    "stop_gradient": _identity,
    "name": _identity,
    "reduce_precision": _identity,
}

BINARY: Mapping[str, Elementwise] = {
    "add": lambda a, b: a + b,
    "add_any": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "rem": casadi.fmod,
    "pow": lambda a, b: a**b,
    "atan2": casadi.atan2,
    "max": casadi.fmax,
    "min": casadi.fmin,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "and": casadi.logic_and,
    "or": casadi.logic_or,
    "xor": lambda a, b: a != b,
}

INTEGER_DIFFERS = frozenset({"div", "rem", "pow", "integer_pow", "and", "or", "xor", "not"})
"""Primitives that mean something else for integers, where a symbolic integer is refused."""

ROUNDING: Mapping[int, Elementwise] = {0: _round_half_away, 1: _round_half_even}

NUMPY: Mapping[str, Callable[..., Any]] = {
    "neg": np.negative,
    "sin": np.sin,
    "cos": np.cos,
    "exp": np.exp,
    "sqrt": np.sqrt,
    "abs": np.abs,
    "square": np.square,
    "add": np.add,
    "add_any": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.invert,
    "copy": _identity,
    "stop_gradient": _identity,
}
