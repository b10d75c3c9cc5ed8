"""The numbers, operators and functions that case files compute with."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from feasibly.problem.matpower.tokens import Matrix


def scalar(value: float) -> Matrix:
    """A number as MATLAB has it: a table of one entry."""
    return np.array([[float(value)]])


def _total(value: Matrix, axis: Matrix | None = None) -> Matrix:
    if axis is not None:
        return value.sum(axis=int(axis[0, 0]) - 1, keepdims=True)
    return np.asarray(value.sum(axis=1 if value.shape[0] == 1 else 0, keepdims=True), dtype=np.float64)


def _size(value: Matrix, axis: Matrix | None = None) -> Matrix:
    if axis is not None:
        return scalar(value.shape[int(axis[0, 0]) - 1])
    return np.array([[float(n) for n in value.shape]])


def _filled(number: float) -> Callable[..., Matrix]:
    def fill(rows: Matrix, columns: Matrix | None = None) -> Matrix:
        height = int(rows[0, 0])
        width = height if columns is None else int(columns[0, 0])
        if max(height, 0) * max(width, 0) > 50_000_000:
            raise ValueError
        return np.full((height, width), number, dtype=np.float64)

    return fill


def _found(value: Matrix) -> Matrix:
    places = np.flatnonzero(value.ravel(order="F") != 0.0) + 1.0
    return np.asarray(places, dtype=np.float64).reshape(
        (1, -1) if value.shape[0] == 1 and value.shape[1] != 1 else (-1, 1)
    )


def _extreme(pick: Callable[..., Any], both: Callable[..., Any]) -> Callable[..., Matrix]:
    def extreme(value: Matrix, other: Matrix | None = None) -> Matrix:
        if other is not None:
            return np.asarray(both(value, other))
        return np.asarray(pick(value, axis=1 if value.shape[0] == 1 else 0, keepdims=True))

    return extreme


def _sparse(*parts: Matrix) -> Matrix:
    """`sparse(A)`, or `sparse(i, j, v, m, n)`, where values at one place add up; kept as a full table."""
    if len(parts) == 1:
        return parts[0]
    i, j, v = (np.ravel(part, order="F") for part in parts[:3])
    height, width = (
        (int(part[0, 0]) for part in parts[3:5]) if len(parts) == 5 else (int(i.max()), int(j.max()))
    )
    count = max(len(i), len(j), len(v))
    i, j, v = (np.broadcast_to(part, count) if part.size == 1 else part for part in (i, j, v))
    if not len(i) == len(j) == len(v) or height * width > 50_000_000:
        raise ValueError
    found = np.zeros((height, width))
    np.add.at(found, (i.astype(np.int64) - 1, j.astype(np.int64) - 1), v)
    return found


NUMBERS = {"pi": math.pi, "Inf": math.inf, "inf": math.inf, "NaN": math.nan, "nan": math.nan, "eps": 2.0**-52,
            "true": True, "false": False}  # fmt: skip

OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, ".*": operator.mul, "/": operator.truediv,
    "./": operator.truediv, "^": operator.pow, ".^": operator.pow, "<": operator.lt, "<=": operator.le,
    ">": operator.gt, ">=": operator.ge, "==": operator.eq, "~=": operator.ne, "!=": operator.ne,
    "&": lambda a, b: (a != 0) & (b != 0), "|": lambda a, b: (a != 0) | (b != 0),
}  # fmt: skip

FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "sparse": _sparse, "full": lambda table: table,
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan,
    "sqrt": np.sqrt, "exp": np.exp, "log": np.log, "log10": np.log10, "abs": np.abs, "sign": np.sign,
    "round": lambda v: np.sign(v) * np.floor(np.abs(v) + 0.5), "floor": np.floor, "ceil": np.ceil,
    "isinf": np.isinf, "isnan": np.isnan, "isfinite": np.isfinite,
    "sum": _total, "size": _size, "length": lambda v: max(v.shape) if v.size else 0, "numel": np.size,
    "zeros": _filled(0.0), "ones": _filled(1.0), "find": _found,
    "max": _extreme(np.max, np.maximum), "min": _extreme(np.min, np.minimum),
    "isempty": lambda v: v.size == 0,
    "any": lambda v: np.any(v != 0.0, axis=1 if v.shape[0] == 1 else 0, keepdims=True),
    "all": lambda v: np.all(v != 0.0, axis=1 if v.shape[0] == 1 else 0, keepdims=True),
}  # fmt: skip
