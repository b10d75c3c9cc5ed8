"""Arrays during translation: known NumPy arrays, and symbolic ones of CasADi scalars.

A symbolic array is one dense CasADi column in row-major order beside its NumPy shape. Whole columns go
through CasADi at once, some twenty times faster than one Python object a scalar.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import casadi
import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Symbolic:
    """CasADi scalars in row-major order, `column` of size `(prod(shape), 1)`, never with structural zeros.

    `places` says where in the problem's outputs the elements stand, if they are nothing but some of those.
    """

    column: Any
    shape: tuple[int, ...]
    places: NDArray[np.int64] | None = None


Value = NDArray[Any] | Symbolic


def is_known(*values: Value) -> bool:
    """Whether none of the values depends on the problem's inputs or outputs."""
    return all(isinstance(value, np.ndarray) for value in values)


def as_column(value: Value) -> Any:
    """The value as a dense CasADi column in row-major order."""
    if isinstance(value, Symbolic):
        return value.column
    return casadi.SX(casadi.DM(np.asarray(value, dtype=np.float64).ravel()))


def dense(expression: Any, shape: Sequence[int]) -> Symbolic:
    """A symbolic array of a CasADi column, structural zeros filled in."""
    shape = tuple(int(size) for size in shape)
    return Symbolic(casadi.densify(casadi.reshape(expression, int(np.prod(shape, dtype=int)), 1)), shape)


def pick(sources: Sequence[Value], positions: NDArray[Any]) -> Value:
    """The array `flat[positions]` where `flat` strings all sources together, each in row-major order."""
    if is_known(*sources):
        flat = np.concatenate([np.asarray(source).ravel() for source in sources])
        return np.asarray(flat[positions])
    column = casadi.vertcat(*[as_column(source) for source in sources])
    flat = np.asarray(positions).ravel()
    known = [
        source.places for source in sources if isinstance(source, Symbolic) and source.places is not None
    ]
    places = np.concatenate(known)[flat] if len(known) == len(sources) else None
    return Symbolic(take(column, flat), np.shape(positions), places)


def take(column: Any, positions: NDArray[Any]) -> Any:
    """The column of the elements at `positions`; CasADi makes a row of them when there is one element."""
    return casadi.reshape(column[positions.tolist()], len(positions), 1)


def stretch(value: Value, shape: Sequence[int]) -> Any:
    """The value broadcast to `shape` by NumPy's rules, as a column; one element is left to CasADi."""
    if value.shape in (tuple(shape), ()):
        return as_column(value)
    return take(as_column(value), np.broadcast_to(positions_of(value.shape), tuple(shape)).ravel())


def positions_of(shape: Sequence[int], first: int = 0) -> NDArray[np.int64]:
    """The row-major positions of an array's elements, counted from `first`."""
    return (first + np.arange(int(np.prod(shape, dtype=int)))).reshape(tuple(shape))


def as_matrix(value: Value, positions: NDArray[Any]) -> Any:
    """A CasADi matrix of a value's elements; known ones lose their zeros, so that sparse data stay sparse."""
    rows, columns = positions.shape
    if isinstance(value, np.ndarray):
        return casadi.sparsify(casadi.DM(np.asarray(value, dtype=np.float64).ravel()[positions]))
    return casadi.reshape(take(value.column, positions.ravel(order="F")), rows, columns)
