"""Records as plain data, so that a promise can be written into a JSON file and travel with a model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeAlias

import numpy as np

from feasibly.promise._check import PromiseError
from feasibly.promise.conformal import Region, ScoreLimit
from feasibly.promise.cross import CrossIntervals
from feasibly.promise.exchange import Reference
from feasibly.promise.mean import MeanBound
from feasibly.promise.variance import AlphaReport, Spread

Record: TypeAlias = AlphaReport | CrossIntervals | MeanBound | Reference | Region | ScoreLimit | Spread
_KINDS: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (AlphaReport, CrossIntervals, MeanBound, Reference, Region, ScoreLimit, Spread)
}


def to_plain(record: Record) -> dict[str, Any]:
    """The record as plain data ready for JSON; infinities, which JSON lacks, become strings."""
    return {"kind": type(record).__name__} | {
        field.name: _flatten(getattr(record, field.name)) for field in fields(record)
    }


def from_plain(plain: Mapping[str, Any]) -> Any:
    """The record that `to_plain` wrote.

    Raises:
        PromiseError: when the mapping is not of a known kind or lacks a field.
    """
    kind = _KINDS.get(str(plain.get("kind")))
    if kind is None:
        raise PromiseError(f"This is not a stored promise: kind {plain.get('kind')!r} is unknown.")
    names = [field.name for field in fields(kind)]
    missing = [name for name in names if name not in plain]
    if missing:
        raise PromiseError(f"The stored {kind.__name__} lacks {', '.join(missing)}: the file is damaged.")
    return kind(**{name: _restore(plain[name]) for name in names})


def _flatten(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return {"shape": list(value.shape), "values": [_flatten(item) for item in value.ravel().tolist()]}
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _restore(value: Any) -> Any:
    if isinstance(value, Mapping):
        return np.array([float(item) for item in value["values"]]).reshape(value["shape"])
    if isinstance(value, list):
        return tuple(value)
    return value
