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

import dataclasses
import enum
import hashlib
import json
import math
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from feasibly._fields import UNFIT, CodecError, check_shapes, fit, hints, join

T = TypeVar("T")

Arrays = Mapping[str, NDArray[Any]]

IS, ARRAY, FLOAT, CHECKSUM, WIDTH = "is", "array", "float", "checksum", "width"
"""Keys with a meaning: a record's name, an array's, a number JSON has no word for, and what belongs to an array."""

_JSON = ".json"
"""What is no array, among arrays; no field has such a name."""

DEEPEST = 40
"""Levels of nesting; real records have fewer than ten."""


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
            stored: _pack(getattr(value, name), join(where, stored), arrays, brief)
            for name in _fields(type(value))
            for stored in [entry.stored.get(name, name)]
            if name not in left_out
        }
        return {IS: _NAMES[type(value)], **parts}
    if isinstance(value, Mapping):
        if any(not isinstance(key, str) or key in (IS, ARRAY, FLOAT) for key in value):
            raise CodecError(f"{where}: keys must be words other than {IS}, {ARRAY} and {FLOAT}")
        return {key: _pack(item, join(where, key), arrays, brief) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_pack(item, join(where, str(i)), arrays, brief) for i, item in enumerate(value)]
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
            _unpack(item, arrays, {}, join(where, str(i)), depth + 1) for i, item in enumerate(plain)
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
        key: _unpack(item, arrays, {}, join(where, key), depth + 1)
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
    known_types = hints(entry.kind)
    fitted: dict[str, Any] = {}
    for key, value in parts.items():
        fitted[known[key]] = fit(value, known_types.get(known[key], Any))
        if fitted[known[key]] is UNFIT:
            raise CodecError(f"{join(where, key)} is not what a {name} has there")
    try:
        made = entry.kind(**fitted)
    except TypeError as error:
        raise CodecError(f"{place} ({name}) is incomplete: {error}") from error
    check_shapes(made, entry.shapes, entry.indices, dict(sizes), where)
    return made
