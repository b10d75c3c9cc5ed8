"""Answers cut into the rows of each request, and put together again."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from feasibly.answer.record import Answer


def take(answer: Answer, rows: slice) -> Answer:
    """The answer to some rows of a batch; what is said of the batch as a whole stays."""
    return _cut(answer, len(answer), rows)


def join(answers: Sequence[Answer]) -> Answer:
    """One answer from those to consecutive rows. The seconds add up; a warning is said once."""
    if len(answers) == 1:
        return answers[0]
    joined: Answer = _joined(list(answers), [len(each) for each in answers])
    said = tuple(dict.fromkeys(line for each in answers for line in each.warnings))
    return dataclasses.replace(joined, seconds=sum(each.seconds for each in answers), warnings=said)


def _cut(value: Any, count: int, rows: slice) -> Any:
    """Whatever has an entry a row is cut, however deep in the record it lies."""
    if isinstance(value, np.ndarray) and value.ndim and len(value) == count:
        return value[rows]
    if isinstance(value, tuple) and len(value) == count:
        return value[rows]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = {
            each.name: _cut(getattr(value, each.name), count, rows)
            for each in dataclasses.fields(value)
            if each.init and each.name != "warnings"
        }
        return dataclasses.replace(value, **parts)
    return value


def _joined(values: list[Any], counts: list[int]) -> Any:
    first = values[0]
    if any(type(value) is not type(first) for value in values):
        return None
    if (
        isinstance(first, np.ndarray)
        and first.ndim
        and all(len(v) == n for v, n in zip(values, counts, strict=True))
    ):
        return np.concatenate(values)
    if isinstance(first, tuple) and all(len(v) == n for v, n in zip(values, counts, strict=True)):
        return tuple(entry for value in values for entry in value)
    if dataclasses.is_dataclass(first) and not isinstance(first, type):
        parts = {
            each.name: _joined([getattr(value, each.name) for value in values], counts)
            for each in dataclasses.fields(first)
            if each.init and each.name != "warnings"
        }
        return dataclasses.replace(first, **parts)
    return first
