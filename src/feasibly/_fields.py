"""What the fields of a record may hold: types, shapes and indices of what is read from files."""

from __future__ import annotations

import collections.abc
import dataclasses
import enum
import functools
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray


class CodecError(ValueError):
    """Plain values and arrays that are not what was packed."""


def join(where: str, name: str) -> str:
    """The name of a field of what is called `where`."""
    return f"{where}.{name}" if where else name


UNFIT = object()
"""What `fit` gives for a value that is not of the type."""


@functools.cache
def hints(kind: type) -> dict[str, Any]:
    """The types of a record's fields."""
    try:
        return typing.get_type_hints(kind)
    except NameError:  # a type that only type checkers import
        return {}


def fit(value: Any, hint: Any) -> Any:
    """The value as `hint` wants it, or `UNFIT`. What the hint does not pin down is taken as it is."""
    if hint is Any or isinstance(hint, TypeVar):
        return value
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return fit(value, args[0])
    if origin in (typing.Union, types.UnionType):
        found = (fit(value, each) for each in args)
        return next((each for each in found if each is not UNFIT), UNFIT)
    if hint is None or hint is type(None):
        return value if value is None else UNFIT
    if origin is np.ndarray:
        if (
            type(value) is float
        ):  # NumPy's own number, which it hands out where an array has no dimensions left
            return np.float64(value)
        return value if isinstance(value, np.ndarray) and _is_of(value, args) else UNFIT
    if origin is tuple:
        return _fit_tuple(value, args)
    if origin in (collections.abc.Mapping, dict):
        return value if isinstance(value, Mapping) else UNFIT
    if not isinstance(hint, type):
        return value
    if hint is float:
        whole = isinstance(value, int) and not isinstance(value, bool)
        return float(value) if whole or isinstance(value, float) else UNFIT
    if hint in (int, bool, str):
        return value if type(value) is hint else UNFIT
    if issubclass(hint, enum.Enum):
        return next((each for each in hint if each.value == value), UNFIT)
    if isinstance(value, np.ndarray):  # another library's array, or a field without a type of its own
        return UNFIT if dataclasses.is_dataclass(hint) or issubclass(hint, tuple | dict) else value
    return value if isinstance(value, hint) else UNFIT


def _fit_tuple(value: Any, args: tuple[Any, ...]) -> Any:
    if not isinstance(value, tuple | list):
        return UNFIT
    wanted = [args[0]] * len(value) if len(args) == 2 and args[1] is Ellipsis else list(args)
    if len(wanted) != len(value):
        return UNFIT
    found = tuple(fit(item, each) for item, each in zip(value, wanted, strict=True))
    return UNFIT if any(item is UNFIT for item in found) else found


def _is_of(value: NDArray[Any], args: tuple[Any, ...]) -> bool:
    """Whether an array is of the kind of number its type names; the width may differ."""
    inner = typing.get_args(args[1]) if len(args) > 1 else ()
    wanted = inner[0] if inner and isinstance(inner[0], type) else None
    if wanted is None or wanted in (np.generic, np.number):
        return True
    kinds = {np.floating: "f", np.integer: "iu", np.bool_: "b", np.bytes_: "S"}
    return any(issubclass(wanted, base) and value.dtype.kind in kind for base, kind in kinds.items())


def check_shapes(
    made: Any, shapes: Mapping[str, str], indices: Mapping[str, str], sizes: dict[str, int], where: str
) -> None:
    for path, words in shapes.items():
        for name, value in _reach(made, path.split("."), where):
            if not hasattr(value, "shape") or not _agrees(value.shape, words.split(), sizes):
                known = " x ".join(str(sizes.get(word, word)) for word in words.split())
                shape = " x ".join(map(str, getattr(value, "shape", ()))) or "a number"
                raise CodecError(f"{name} is {shape}, not {known or 'a number'}")
    for path, word in indices.items():
        for name, value in _reach(made, path.split("."), where):
            sound = isinstance(value, np.ndarray) and value.dtype.kind in "iu"
            most = sizes.get(word, np.inf)
            if not sound or (value.size and not 0 <= value.min() <= value.max() < most):
                raise CodecError(f"{name} does not count {word} from 0 to below {most}")


def _agrees(shape: tuple[int, ...], words: list[str], sizes: dict[str, int]) -> bool:
    if len(shape) != len(words):
        return False
    for length, word in zip(shape, words, strict=True):
        if word == "*":
            continue
        wanted = int(word) if word.isdigit() else sizes.setdefault(word, length)
        if length != wanted:
            return False
    return True


def _reach(value: Any, path: list[str], where: str) -> Iterator[tuple[str, Any]]:
    """What stands at a path, with its name; nothing where an optional part is left out."""
    if value is None:
        return
    if not path:
        yield where, value
    elif path[0] == "*":
        for i, item in enumerate(value):
            yield from _reach(item, path[1:], join(where, str(i)))
    else:
        try:
            inner = value[int(path[0])] if path[0].isdigit() else getattr(value, path[0])
        except (AttributeError, IndexError, TypeError):
            raise CodecError(f"{join(where, path[0])} is missing") from None
        yield from _reach(inner, path[1:], join(where, path[0]))
