"""One way between frozen records and files: JSON for what can be read, named arrays for what is large.

A record is a frozen dataclass or a `NamedTuple` of arrays, numbers, words, enumerations, tuples, mappings
and others. It is registered by a short name, together with the shapes its arrays must have:

    @record("linear", shapes={"weights": "inputs outputs", "offset": "outputs"})
    @dataclass(frozen=True)
    class LinearModel: ...

    plain, arrays = pack(model, "model")        # JSON values, and arrays named model.weights, model.offset
    model = unpack(plain, arrays, LinearModel)  # the same, or a CodecError that says what is wrong where

Every array carries a checksum in the JSON beside its name. What comes back has the fields, types, shapes and indices
that were declared; nothing that is read can name a class that was not registered, so reading runs no foreign code.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import enum
import functools
import hashlib
import json
import math
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")

Arrays = Mapping[str, NDArray[Any]]

IS, ARRAY, FLOAT, CHECKSUM, WIDTH = "is", "array", "float", "checksum", "width"
"""Keys with a meaning: a record's name, an array's, a number JSON has no word for, and what belongs to an array."""

_JSON = ".json"
"""What is no array, among arrays; no field has such a name."""

DEEPEST = 40
"""Levels of nesting; real records have fewer than ten."""


class CodecError(ValueError):
    """Plain values and arrays that are not what was packed."""


class Packed(NamedTuple):
    """What `pack` makes of a value."""

    plain: Any
    """JSON values."""
    arrays: dict[str, NDArray[Any]]


@dataclass(frozen=True)
class _Entry:
    kind: type
    shapes: Mapping[str, str] = field(default_factory=dict)
    indices: Mapping[str, str] = field(default_factory=dict)
    retired: frozenset[str] = frozenset()
    added: frozenset[str] = frozenset()
    stored: Mapping[str, str] = field(default_factory=dict)


_ENTRIES: dict[str, _Entry] = {}
_NAMES: dict[type, str] = {}


def record(
    name: str,
    *,
    shapes: Mapping[str, str] | None = None,
    indices: Mapping[str, str] | None = None,
    retired: Iterable[str] = (),
    added: Iterable[str] = (),
    stored: Mapping[str, str] | None = None,
) -> Callable[[type[T]], type[T]]:
    """Register a class of records under a name that files use.

    Args:
        name: short, and taken once.
        shapes: the shape of arrays by field, as words: `"inputs outputs"`. The same word is the same length wherever it
            stands in one record; `*` is any length, a number that number. A field of a nested record is
            `covariance.diagonal`; of every member of a tuple, `centres.*.x`, of the first, `centres.0.x`.
        indices: arrays of whole numbers by field, and the word whose length they have to stay below; the word's
            length is that in `shapes`, or among the `sizes` given to `unpack`.
        retired: fields that files of earlier versions have and nothing needs any more.
        added: fields with a default that such files lack. `digest` passes over them: what was certified before there
            was such a field is still the same, and stays so when the default changes.
        stored: what files call fields that have been renamed since, by their names here. Files and digests stay what
            they were.
    """

    def register(kind: type[T]) -> type[T]:
        if name in _ENTRIES and _ENTRIES[name].kind.__qualname__ != kind.__qualname__:
            raise ValueError(f"a record {name!r} is registered already")
        gone, new = frozenset(retired), frozenset(added)
        _ENTRIES[name] = _Entry(kind, dict(shapes or {}), dict(indices or {}), gone, new, dict(stored or {}))
        _NAMES[kind] = name
        return kind

    return register


def name_of(kind: type) -> str:
    """The name under which a class was registered."""
    return _NAMES[kind]


# ---- packing -----------------------------------------------------------------------------------------------


def pack(value: Any, where: str = "") -> Packed:
    """Plain JSON values and named arrays from which `unpack` makes the same value.

    Tuples and lists come back as tuples, mappings as dictionaries, JAX arrays as NumPy's.
    """
    arrays: dict[str, NDArray[Any]] = {}
    return Packed(_pack(value, where, arrays), arrays)


def _pack(value: Any, where: str, arrays: dict[str, NDArray[Any]], brief: bool = False) -> Any:
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, np.generic | enum.Enum):
        value = value.item() if isinstance(value, np.generic) else value.value
    if isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {FLOAT: str(value)}
    if type(value) in _NAMES:
        entry = _ENTRIES[_NAMES[type(value)]]
        left_out = entry.added if brief else ()
        parts = {
            stored: _pack(getattr(value, name), _join(where, stored), arrays, brief)
            for name in _fields(type(value))
            for stored in [entry.stored.get(name, name)]
            if name not in left_out
        }
        return {IS: _NAMES[type(value)], **parts}
    if isinstance(value, Mapping):
        if any(not isinstance(key, str) or key in (IS, ARRAY, FLOAT) for key in value):
            raise CodecError(f"{where}: keys must be words other than {IS}, {ARRAY} and {FLOAT}")
        return {key: _pack(item, _join(where, key), arrays, brief) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_pack(item, _join(where, str(i)), arrays, brief) for i, item in enumerate(value)]
    if hasattr(value, "__array__"):
        return _pack_array(np.asarray(value), where, arrays)
    raise CodecError(f"{where}: a {type(value).__name__} is no registered record and cannot be stored")


def _pack_array(value: NDArray[Any], where: str, arrays: dict[str, NDArray[Any]]) -> dict[str, Any]:
    if value.dtype.kind not in "fiubS":
        raise CodecError(f"{where}: arrays of {value.dtype} cannot be stored")
    more = {}
    if value.dtype.kind == "S":  # safetensors has no words, only their bytes
        more = {WIDTH: value.dtype.itemsize}
        value = np.ascontiguousarray(value).view(np.uint8).reshape(*value.shape, value.dtype.itemsize)
    # Not ascontiguousarray: that would make a number a vector of one.
    arrays[where] = np.array(value, order="C", copy=not value.flags.c_contiguous)
    return {ARRAY: where, CHECKSUM: checksum(value), **more}


def checksum(value: NDArray[Any]) -> str:
    """Of an array's type, shape and bytes."""
    found = hashlib.sha256(f"{value.dtype.str} {value.shape}".encode())
    found.update(np.ascontiguousarray(value).data if value.size else b"")
    return found.hexdigest()[:32]


def digest(*values: Any) -> str:
    """A hash of what `pack` makes of the values; the checksums in it stand for the arrays.

    Fields that were `added` to a record do not count.
    """
    found = hashlib.sha256()
    for value in values:
        found.update(json.dumps(_pack(value, "", {}, brief=True), sort_keys=True).encode() + b"\n")
    return found.hexdigest()[:32]


def to_bytes(value: Any) -> bytes:
    """A value in one piece, for another process; `from_bytes` is the way back."""
    from safetensors.numpy import save

    plain, arrays = pack(value)
    return save(arrays | {_JSON: np.frombuffer(json.dumps(plain, allow_nan=False).encode(), np.uint8)})


def from_bytes(packed: bytes) -> Any:
    """What `to_bytes` packed, or a `CodecError`."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        arrays = load(packed)
        return unpack(json.loads(arrays[_JSON].tobytes()), arrays)
    except (SafetensorError, KeyError) as error:
        raise CodecError("it is not in this format") from error


def _join(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _fields(kind: Any) -> tuple[str, ...]:
    if dataclasses.is_dataclass(kind):
        return tuple(each.name for each in dataclasses.fields(kind) if each.init)
    return tuple(kind._fields)


# ---- unpacking ---------------------------------------------------------------------------------------------


def unpack(
    plain: Any, arrays: Arrays, kind: type[T] | None = None, *, sizes: Mapping[str, int] | None = None
) -> T:
    """What `pack` packed.

    Args:
        plain, arrays: as `pack` made them; more arrays may be there.
        kind: what is expected to come out.
        sizes: lengths that are known already, by the words of the outermost record's shapes.

    Raises:
        CodecError: a checksum, a field, a type, a shape or an index is not as it should be.
    """
    value = _unpack(plain, arrays, sizes or {}, "", 0)
    if kind is not None and not isinstance(value, kind):
        raise CodecError(f"a {kind.__name__} was expected, not a {type(value).__name__}")
    return value


def _unpack(plain: Any, arrays: Arrays, sizes: Mapping[str, int], where: str, depth: int) -> Any:
    if depth > DEEPEST:
        raise CodecError(f"it is nested more than {DEEPEST} levels deep")
    if isinstance(plain, list):
        return tuple(
            _unpack(item, arrays, {}, _join(where, str(i)), depth + 1) for i, item in enumerate(plain)
        )
    if not isinstance(plain, Mapping):
        return plain
    if ARRAY in plain:
        return _unpack_array(plain, arrays, where)
    if FLOAT in plain:
        if plain[FLOAT] not in ("nan", "inf", "-inf"):
            raise CodecError(f"{where or 'it'} is not a number")
        return float(plain[FLOAT])
    parts = {
        key: _unpack(item, arrays, {}, _join(where, key), depth + 1)
        for key, item in plain.items()
        if key != IS
    }
    return _build(plain[IS], parts, sizes, where) if IS in plain else parts


def _unpack_array(plain: Mapping[str, Any], arrays: Arrays, where: str) -> NDArray[Any]:
    name = plain[ARRAY]
    if not isinstance(name, str) or name not in arrays:
        raise CodecError(f"the array {name!r} is missing")
    found = arrays[name]
    if checksum(found) != plain.get(CHECKSUM):
        raise CodecError(f"the array {name!r} has changed since it was written")
    width = plain.get(WIDTH)
    if width is None:
        return found
    if (
        not isinstance(width, int)
        or found.dtype != np.uint8
        or found.ndim < 1
        or found.shape[-1] != width
        or not width
    ):
        raise CodecError(f"the array {name!r} does not hold words of {width} bytes")
    return np.ascontiguousarray(found).view(f"S{width}").reshape(found.shape[:-1])


def build(kind: type[T], parts: Mapping[str, Any]) -> T:
    """A registered record from the values of its fields, checked as `unpack` checks what it reads."""
    return typing.cast(T, _build(_NAMES[kind], dict(parts), {}, ""))


def _build(name: Any, parts: dict[str, Any], sizes: Mapping[str, int], where: str) -> Any:
    entry = _ENTRIES.get(name) if isinstance(name, str) else None
    place = where or "it"
    if entry is None:
        raise CodecError(f"{place} is a record of the kind {name!r}, which this version does not know")
    known = {entry.stored.get(key, key): key for key in _fields(entry.kind)}
    parts = {key: value for key, value in parts.items() if key not in entry.retired}
    unknown = [key for key in parts if key not in known]
    if unknown:
        raise CodecError(f"{place} ({name}) has a field {unknown[0]!r}, which this version does not know")
    hints = _hints(entry.kind)
    fitted: dict[str, Any] = {}
    for key, value in parts.items():
        fitted[known[key]] = _fit(value, hints.get(known[key], Any))
        if fitted[known[key]] is _UNFIT:
            raise CodecError(f"{_join(where, key)} is not what a {name} has there")
    try:
        made = entry.kind(**fitted)
    except TypeError as error:
        raise CodecError(f"{place} ({name}) is incomplete: {error}") from error
    _check_shapes(made, entry, dict(sizes), where)
    return made


# ---- types -------------------------------------------------------------------------------------------------


_UNFIT = object()


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    try:
        return typing.get_type_hints(kind)
    except NameError:  # a type that only type checkers import
        return {}


def _fit(value: Any, hint: Any) -> Any:
    """The value as `hint` wants it, or `_UNFIT`. What the hint does not pin down is taken as it is."""
    if hint is Any or isinstance(hint, TypeVar):
        return value
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return _fit(value, args[0])
    if origin in (typing.Union, types.UnionType):
        found = (_fit(value, each) for each in args)
        return next((each for each in found if each is not _UNFIT), _UNFIT)
    if hint is None or hint is type(None):
        return value if value is None else _UNFIT
    if origin is np.ndarray:
        if (
            type(value) is float
        ):  # NumPy's own number, which it hands out where an array has no dimensions left
            return np.float64(value)
        return value if isinstance(value, np.ndarray) and _is_of(value, args) else _UNFIT
    if origin is tuple:
        return _fit_tuple(value, args)
    if origin in (collections.abc.Mapping, dict):
        return value if isinstance(value, Mapping) else _UNFIT
    if not isinstance(hint, type):
        return value
    if hint is float:
        whole = isinstance(value, int) and not isinstance(value, bool)
        return float(value) if whole or isinstance(value, float) else _UNFIT
    if hint in (int, bool, str):
        return value if type(value) is hint else _UNFIT
    if issubclass(hint, enum.Enum):
        return next((each for each in hint if each.value == value), _UNFIT)
    if isinstance(value, np.ndarray):  # another library's array, or a field without a type of its own
        return _UNFIT if hint in _NAMES or hint in (tuple, dict) else value
    return value if isinstance(value, hint) else _UNFIT


def _fit_tuple(value: Any, args: tuple[Any, ...]) -> Any:
    if not isinstance(value, tuple | list):
        return _UNFIT
    wanted = [args[0]] * len(value) if len(args) == 2 and args[1] is Ellipsis else list(args)
    if len(wanted) != len(value):
        return _UNFIT
    found = tuple(_fit(item, each) for item, each in zip(value, wanted, strict=True))
    return _UNFIT if any(item is _UNFIT for item in found) else found


def _is_of(value: NDArray[Any], args: tuple[Any, ...]) -> bool:
    """Whether an array is of the kind of number its type names; the width may differ."""
    inner = typing.get_args(args[1]) if len(args) > 1 else ()
    wanted = inner[0] if inner and isinstance(inner[0], type) else None
    if wanted is None or wanted in (np.generic, np.number):
        return True
    kinds = {np.floating: "f", np.integer: "iu", np.bool_: "b", np.bytes_: "S"}
    return any(issubclass(wanted, base) and value.dtype.kind in kind for base, kind in kinds.items())


# ---- shapes ------------------------------------------------------------------------------------------------


def _check_shapes(made: Any, entry: _Entry, sizes: dict[str, int], where: str) -> None:
    for path, words in entry.shapes.items():
        for name, value in _reach(made, path.split("."), where):
            if not hasattr(value, "shape") or not _agrees(value.shape, words.split(), sizes):
                known = " x ".join(str(sizes.get(word, word)) for word in words.split())
                shape = " x ".join(map(str, getattr(value, "shape", ()))) or "a number"
                raise CodecError(f"{name} is {shape}, not {known or 'a number'}")
    for path, word in entry.indices.items():
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
            yield from _reach(item, path[1:], _join(where, str(i)))
    else:
        try:
            inner = value[int(path[0])] if path[0].isdigit() else getattr(value, path[0])
        except (AttributeError, IndexError, TypeError):
            raise CodecError(f"{_join(where, path[0])} is missing") from None
        yield from _reach(inner, path[1:], _join(where, path[0]))
