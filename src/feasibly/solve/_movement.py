"""Primitives that only move elements: each is worked out on integer positions and used as an index.

A rule takes `(params, *values)` and returns the moved value (a list of them where the primitive has several).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import casadi
import numpy as np
from numpy.typing import NDArray

from feasibly.solve._values import Value, as_column, dense, pick, positions_of

Positions = NDArray[np.int64]
Params = Mapping[str, Any]


class NotStaticError(Exception):
    """An index depends on the problem's inputs or outputs, so the movement is not known while translating."""


def known(value: Value) -> NDArray[Any]:
    """The value as a NumPy array; `NotStaticError` if it is symbolic."""
    if not isinstance(value, np.ndarray):
        raise NotStaticError
    return value


def _reshape(params: Params, operand: Value) -> Value:
    return pick([operand], positions_of(operand.shape).reshape(params["new_sizes"]))


def _broadcast_in_dim(params: Params, operand: Value) -> Value:
    shape = params["shape"]
    sizes = [1] * len(shape)
    for axis, target in enumerate(params["broadcast_dimensions"]):
        sizes[target] = operand.shape[axis]
    return pick([operand], np.broadcast_to(positions_of(operand.shape).reshape(sizes), shape))


def _squeeze(params: Params, operand: Value) -> Value:
    return pick([operand], np.squeeze(positions_of(operand.shape), axis=tuple(params["dimensions"])))


def _transpose(params: Params, operand: Value) -> Value:
    return pick([operand], np.transpose(positions_of(operand.shape), params["permutation"]))


def _rev(params: Params, operand: Value) -> Value:
    return pick([operand], np.flip(positions_of(operand.shape), axis=tuple(params["dimensions"])))


def _slice(params: Params, operand: Value) -> Value:
    strides = params["strides"] or (1,) * len(operand.shape)
    window = tuple(
        slice(*ends) for ends in zip(params["start_indices"], params["limit_indices"], strides, strict=True)
    )
    return pick([operand], positions_of(operand.shape)[window])


def _split(params: Params, operand: Value) -> list[Value]:
    ends = np.cumsum(params["sizes"])[:-1]
    return [
        pick([operand], part) for part in np.split(positions_of(operand.shape), ends, axis=params["axis"])
    ]


def _stack(params: Params, *operands: Value) -> Value:
    size = math.prod(operands[0].shape)
    parts = [positions_of(operand.shape, k * size) for k, operand in enumerate(operands)]
    return pick(operands, np.stack(parts, axis=params["axis"]))


def _unstack(params: Params, operand: Value) -> list[Value]:
    places = np.moveaxis(positions_of(operand.shape), params["axis"], 0)
    return [pick([operand], part) for part in places]


def _tile(params: Params, operand: Value) -> Value:
    return pick([operand], np.tile(positions_of(operand.shape), params["reps"]))


def _leave(params: Params, *operands: Value) -> list[Value]:
    return list(operands)


def _concatenate(params: Params, *operands: Value) -> Value:
    parts, first = [], 0
    for operand in operands:
        parts.append(positions_of(operand.shape, first))
        first += parts[-1].size
    return pick(operands, np.concatenate(parts, axis=params["dimension"]))


def _pad(params: Params, operand: Value, padding: Value) -> Value:
    places, kept, shape = [], [], []
    for size, (low, high, interior) in zip(operand.shape, params["padding_config"], strict=True):
        length = max(low + high + size + interior * max(size - 1, 0), 0)
        place = low + np.arange(size) * (interior + 1)
        inside = (place >= 0) & (place < length)
        places.append(place[inside])
        kept.append(np.flatnonzero(inside))
        shape.append(length)
    source = positions_of(operand.shape)
    target = np.full(shape, source.size)
    target[np.ix_(*places)] = source[np.ix_(*kept)]
    return pick([operand, padding], target)


def _window(shape: Sequence[int], sizes: Sequence[int], starts: Sequence[Value]) -> Positions:
    window = []
    for axis, start in enumerate(starts):
        first = int(np.clip(known(start), 0, shape[axis] - sizes[axis]))
        window.append(slice(first, first + sizes[axis]))
    return positions_of(shape)[tuple(window)]


def _dynamic_slice(params: Params, operand: Value, *starts: Value) -> Value:
    return pick([operand], _window(operand.shape, params["slice_sizes"], starts))


def _dynamic_update_slice(params: Params, operand: Value, update: Value, *starts: Value) -> Value:
    target = positions_of(operand.shape)
    place = _window(operand.shape, update.shape, starts)
    target.reshape(-1)[place.ravel()] = target.size + np.arange(place.size)
    return pick([operand, update], target)


def window_positions(
    shape: Sequence[int],
    indices: NDArray[Any],
    *,
    index_map: Sequence[int],
    collapsed: Sequence[int],
    operand_batching: Sequence[int],
    indices_batching: Sequence[int],
    sizes: Sequence[int],
    window_dims: Sequence[int],
    clip: bool,
) -> Positions:
    """Where in an operand of `shape` each element of a gather's result (or a scatter's updates) stands.

    An index vector names the corner of a window of `sizes`; the window's axes appear in the result at
    `window_dims`. Windows that do not fit are shifted inside with `clip`, and -1 throughout without.
    """
    batch_shape = indices.shape[:-1]
    corner = np.zeros((*batch_shape, len(shape)), dtype=np.int64)
    for k, axis in enumerate(index_map):
        corner[..., axis] = indices[..., k]
    for axis, batch_axis in zip(operand_batching, indices_batching, strict=True):
        along = [1] * len(batch_shape)
        along[batch_axis] = batch_shape[batch_axis]
        corner[..., axis] = np.arange(batch_shape[batch_axis]).reshape(along)
    last = np.asarray(shape) - np.asarray(sizes)
    fits = np.all((corner >= 0) & (corner <= last), axis=-1)
    corner = np.clip(corner, 0, np.maximum(last, 0))
    strides = np.append(np.cumprod(np.asarray(shape)[::-1])[::-1][1:], 1).astype(np.int64)
    windowed = [axis for axis in range(len(shape)) if axis not in collapsed and axis not in operand_batching]
    inner = np.zeros((), dtype=np.int64)
    for axis in windowed:
        inner = inner[..., None] + strides[axis] * np.arange(sizes[axis])
    outer = corner @ strides if len(shape) else np.zeros(batch_shape, dtype=np.int64)
    ones = (1,) * inner.ndim
    positions = outer.reshape((*batch_shape, *ones)) + inner
    if not clip:
        positions = np.where(fits.reshape((*batch_shape, *ones)), positions, -1)
    rank = positions.ndim
    batch_dims = [axis for axis in range(rank) if axis not in window_dims]
    order = np.argsort(np.asarray([*batch_dims, *sorted(window_dims)], dtype=int))
    return np.transpose(positions, order)


def _is_clipped(mode: Any) -> bool:
    return mode is not None and mode.name in ("CLIP", "PROMISE_IN_BOUNDS")


def _gather(params: Params, operand: Value, indices: Value) -> Value:
    numbers = params["dimension_numbers"]
    positions = window_positions(
        operand.shape,
        known(indices),
        index_map=numbers.start_index_map,
        collapsed=numbers.collapsed_slice_dims,
        operand_batching=numbers.operand_batching_dims,
        indices_batching=numbers.start_indices_batching_dims,
        sizes=params["slice_sizes"],
        window_dims=numbers.offset_dims,
        clip=_is_clipped(params["mode"]),
    )
    outside = positions < 0
    if not outside.any():
        return pick([operand], positions)
    size = int(np.prod(operand.shape, dtype=int))
    if isinstance(operand, np.ndarray) and params["fill_value"] is None and operand.dtype.kind != "f":
        raise NotStaticError
    fill = np.asarray(np.nan if params["fill_value"] is None else params["fill_value"])
    return pick([operand, fill], np.where(outside, size, positions))


def _scatter_positions(params: Params, operand: Value, indices: Value, updates: Value) -> Positions:
    numbers = params["dimension_numbers"]
    fixed = set(numbers.inserted_window_dims) | set(numbers.operand_batching_dims)
    widths = iter([updates.shape[axis] for axis in sorted(numbers.update_window_dims)])
    sizes = [1 if axis in fixed else next(widths) for axis in range(len(operand.shape))]
    return window_positions(
        operand.shape,
        known(indices),
        index_map=numbers.scatter_dims_to_operand_dims,
        collapsed=numbers.inserted_window_dims,
        operand_batching=numbers.operand_batching_dims,
        indices_batching=numbers.scatter_indices_batching_dims,
        sizes=sizes,
        window_dims=numbers.update_window_dims,
        clip=_is_clipped(params["mode"]),
    )


def _scatter(params: Params, operand: Value, indices: Value, updates: Value) -> Value:
    place = _scatter_positions(params, operand, indices, updates).ravel()
    target = positions_of(operand.shape)
    source = target.size + np.arange(place.size)
    # Where two updates meet, the last one stays: NumPy's assignment keeps that order, as JAX does on a CPU.
    target.reshape(-1)[place[place >= 0]] = source[place >= 0]
    return pick([operand, updates], target)


def _sum_at(sign: float) -> Callable[..., Value]:
    def rule(params: Params, operand: Value, indices: Value, updates: Value) -> Value:
        return _scatter_sum(sign, params, operand, indices, updates)

    return rule


def _scatter_sum(sign: float, params: Params, operand: Value, indices: Value, updates: Value) -> Value:
    place = _scatter_positions(params, operand, indices, updates).ravel()
    columns = np.flatnonzero(place >= 0)
    rows = int(np.prod(operand.shape, dtype=int))
    pattern = casadi.Sparsity.triplet(rows, place.size, place[columns].tolist(), columns.tolist())
    total = as_column(operand) + casadi.mtimes(casadi.DM(pattern, sign), as_column(updates))
    return dense(total, operand.shape)


def _combine_at(combine: Callable[[Any, Any], Any]) -> Callable[..., Value]:
    def rule(params: Params, operand: Value, indices: Value, updates: Value) -> Value:
        place = _scatter_positions(params, operand, indices, updates).ravel()
        column, change = casadi.SX(as_column(operand)), as_column(updates)
        for source, target in enumerate(place.tolist()):
            if target >= 0:
                column[target] = combine(column[target], change[source])
        return dense(column, operand.shape)

    return rule


def _iota(params: Params) -> Value:
    shape, axis = params["shape"], params["dimension"]
    along = [1] * len(shape)
    along[axis] = shape[axis]
    return np.broadcast_to(np.arange(shape[axis]).reshape(along), shape).astype(params["dtype"])


MOVEMENT: Mapping[str, Callable[..., Value | list[Value]]] = {
    "reshape": _reshape,
    "broadcast_in_dim": _broadcast_in_dim,
    "squeeze": _squeeze,
    "transpose": _transpose,
    "rev": _rev,
    "slice": _slice,
    "split": _split,
    "stack": _stack,
    "unstack": _unstack,
    "tile": _tile,
    "concatenate": _concatenate,
    "device_put": _leave,
    "optimization_barrier": _leave,
    "pad": _pad,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "gather": _gather,
    "scatter": _scatter,
    "iota": _iota,
}
"""Rules that serve known and symbolic values alike."""

SCATTER: Mapping[str, Callable[..., Value]] = {
    "scatter-add": _sum_at(1.0),
    "scatter-sub": _sum_at(-1.0),
    "scatter-mul": _combine_at(lambda a, b: a * b),
    "scatter-min": _combine_at(casadi.fmin),
    "scatter-max": _combine_at(casadi.fmax),
}
