"""Promises as records that can be stored with a model, and as plain data for whoever prints them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from feasibly._codec import record
from feasibly.promise.conformal import Region, ScoreLimit
from feasibly.promise.cross import CrossIntervals
from feasibly.promise.exchange import Reference
from feasibly.promise.mean import MeanBound
from feasibly.promise.variance import AlphaReport, Spread

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


def to_plain(value: Any) -> Any:
    """Records and arrays as plain data ready for JSON; infinities, which JSON lacks, become strings."""
    if is_dataclass(value) and not isinstance(value, type):
        parts = {field.name: to_plain(getattr(value, field.name)) for field in fields(value)}
        return {"kind": type(value).__name__} | parts
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return {"shape": list(value.shape), "values": to_plain(value.ravel().tolist())}
    if isinstance(value, (tuple, list)):
        return [to_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
