"""Promises as records that can be stored with a model, and as plain data for whoever prints them."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any, TypeAlias

import numpy as np

from feasibly._codec import record
from feasibly.promise.conformal import Region, ScoreLimit
from feasibly.promise.cross import CrossIntervals
from feasibly.promise.exchange import Reference
from feasibly.promise.mean import MeanBound
from feasibly.promise.variance import AlphaReport, Spread

Record: TypeAlias = AlphaReport | CrossIntervals | MeanBound | Reference | Region | ScoreLimit | Spread

for _kind, _name in (
    (AlphaReport, "alpha-report"), (CrossIntervals, "cross-intervals"), (MeanBound, "mean-bound"), (Region, "region"),
    (ScoreLimit, "score-limit"), (Spread, "spread"),
):  # fmt: skip
    record(_name)(_kind)
record(
    "reference",
    shapes={
        "centre": "inputs", "whiten": "inputs inputs", "inputs": "rows inputs", "leverage": "rows", "low": "inputs",
        "high": "inputs",
    },
)(Reference)  # fmt: skip


def to_plain(promised: Record) -> dict[str, Any]:
    """The record as plain data ready for JSON; infinities, which JSON lacks, become strings."""
    return {"kind": type(promised).__name__} | {
        field.name: _flatten(getattr(promised, field.name)) for field in fields(promised)
    }


def _flatten(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return {"shape": list(value.shape), "values": [_flatten(item) for item in value.ravel().tolist()]}
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
