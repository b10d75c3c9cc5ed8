"""Primitives that fold many elements into one, choose between elements, or multiply matrices."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import casadi
import numpy as np

from feasibly.solve._elementwise import ROUNDING
from feasibly.solve._movement import Params
from feasibly.solve._values import (
    Symbolic,
    Value,
    as_column,
    as_matrix,
    dense,
    pick,
    positions_of,
    stretch,
    take,
)


def _fold(combine: Callable[[Any, Any], Any], parts: list[Any]) -> Any:
    """Combine neighbours pairwise: a shallow expression tree, whose rounding errors do not add up."""
    while len(parts) > 1:
        pairs = [combine(a, b) for a, b in zip(parts[::2], parts[1::2], strict=False)]
        parts = pairs + ([parts[-1]] if len(parts) % 2 else [])
    return parts[0]


def _layers(operand: Value, axes: Sequence[int]) -> tuple[list[Any], tuple[int, ...]]:
    """The slices along `axes` as columns, and the shape that is left."""
    kept = [axis for axis in range(len(operand.shape)) if axis not in axes]
    shape = tuple(operand.shape[axis] for axis in kept)
    count = math.prod(operand.shape[axis] for axis in axes)
    order = np.transpose(positions_of(operand.shape), [*axes, *kept]).reshape(count, math.prod(shape))
    column = as_column(operand)
    return [take(column, row) for row in order], shape


def _reduce(combine: Callable[[Any, Any], Any], empty: float) -> Callable[[Params, Value], Value]:
    def rule(params: Params, operand: Value) -> Value:
        layers, shape = _layers(operand, params["axes"])
        if not layers:
            return dense(casadi.SX(casadi.DM(np.full(math.prod(shape), empty))), shape)
        return dense(_fold(combine, layers), shape)

    return rule


def _reduce_sum(params: Params, operand: Value) -> Value:
    axes = params["axes"]
    kept = [axis for axis in range(len(operand.shape)) if axis not in axes]
    shape = tuple(operand.shape[axis] for axis in kept)
    rows, columns = math.prod(shape), math.prod(operand.shape[axis] for axis in axes)
    order = np.transpose(positions_of(operand.shape), [*axes, *kept]).ravel(order="F")
    matrix = casadi.reshape(take(as_column(operand), order), columns, rows)
    return dense(casadi.sum1(matrix).T, shape)


def _cumulate(combine: Callable[[Any, Any], Any]) -> Callable[[Params, Value], Value]:
    def rule(params: Params, operand: Value) -> Value:
        axis = params["axis"]
        layers, _ = _layers(operand, [axis])
        if params["reverse"]:
            layers.reverse()
        for place in range(1, len(layers)):
            layers[place] = combine(layers[place - 1], layers[place])
        if params["reverse"]:
            layers.reverse()
        stacked = (operand.shape[axis], *np.delete(operand.shape, axis))
        result = dense(casadi.vertcat(*layers), stacked)
        return pick([result], np.moveaxis(positions_of(stacked), 0, axis))

    return rule


def _dot_general(params: Params, left: Value, right: Value) -> Value:
    (left_sum, right_sum), (left_batch, right_batch) = params["dimension_numbers"]
    left_free = [axis for axis in range(len(left.shape)) if axis not in (*left_sum, *left_batch)]
    right_free = [axis for axis in range(len(right.shape)) if axis not in (*right_sum, *right_batch)]
    batch = tuple(left.shape[axis] for axis in left_batch)
    rows = tuple(left.shape[axis] for axis in left_free)
    columns = tuple(right.shape[axis] for axis in right_free)
    inner = math.prod(left.shape[axis] for axis in left_sum)
    left_places = np.transpose(positions_of(left.shape), [*left_batch, *left_free, *left_sum])
    right_places = np.transpose(positions_of(right.shape), [*right_batch, *right_sum, *right_free])
    left_places = left_places.reshape(math.prod(batch), math.prod(rows), inner)
    right_places = right_places.reshape(math.prod(batch), inner, math.prod(columns))
    products = []
    for a, b in zip(left_places, right_places, strict=True):
        product = casadi.mtimes(as_matrix(left, a), as_matrix(right, b))
        products.append(casadi.reshape(casadi.densify(product).T, a.shape[0] * b.shape[1], 1))
    return dense(casadi.vertcat(*products), (*batch, *rows, *columns))


def choose(which: Value, cases: Sequence[Value]) -> Value:
    """`cases[which]`, element by element; `which` may be one number for all of them."""
    shape = cases[0].shape
    if isinstance(which, np.ndarray):
        places = np.stack([positions_of(shape, k * math.prod(shape)) for k in range(len(cases))])
        return pick(
            cases, np.take_along_axis(places, np.broadcast_to(which, shape)[None].astype(np.int64), 0)[0]
        )
    column, shown = which.column, as_column(cases[0])
    for k, case in enumerate(cases[1:], start=1):
        test = column if len(cases) == 2 else (column == k if k + 1 < len(cases) else column >= k)
        shown = casadi.if_else(test, as_column(case), shown)
    return dense(shown, shape)


def _select_n(params: Params, which: Value, *cases: Value) -> Value:
    return choose(which, cases)


def _clamp(params: Params, low: Value, operand: Value, high: Value) -> Value:
    above = casadi.fmax(as_column(operand), stretch(low, operand.shape))
    return dense(casadi.fmin(above, stretch(high, operand.shape)), operand.shape)


def _integer_pow(params: Params, operand: Value) -> Value:
    return dense(as_column(operand) ** int(params["y"]), operand.shape)


def _round(params: Params, operand: Value) -> Value:
    return dense(ROUNDING[int(params["rounding_method"])](as_column(operand)), operand.shape)


def _convert_element_type(params: Params, operand: Symbolic) -> Value:
    # CasADi knows doubles only: narrower floats keep full precision, and truth is one or zero.
    if np.dtype(params["new_dtype"]).kind == "b":
        return dense(operand.column != 0.0, operand.shape)
    return operand


REDUCTION: Mapping[str, Callable[..., Value]] = {
    "reduce_sum": _reduce_sum,
    "reduce_prod": _reduce(lambda a, b: a * b, 1.0),
    "reduce_max": _reduce(casadi.fmax, -np.inf),
    "reduce_min": _reduce(casadi.fmin, np.inf),
    "reduce_and": _reduce(casadi.logic_and, 1.0),
    "reduce_or": _reduce(casadi.logic_or, 0.0),
    "cumsum": _cumulate(lambda a, b: a + b),
    "cumprod": _cumulate(lambda a, b: a * b),
    "cummax": _cumulate(casadi.fmax),
    "cummin": _cumulate(casadi.fmin),
    "dot_general": _dot_general,
    "select_n": _select_n,
    "clamp": _clamp,
    "integer_pow": _integer_pow,
    "round": _round,
    "convert_element_type": _convert_element_type,
}
