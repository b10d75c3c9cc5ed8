"""Answers cut into the rows of each request, and put together again: nobody sees the rows of another."""

from __future__ import annotations

import dataclasses
import itertools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feasibly.answer.record import Answer, Remark
from feasibly.problem.point import Duals

Ints = NDArray[np.int64]

ARRAYS = (
    "y", "std", "objective", "max_equality", "max_inequality", "lower", "upper", "gap_limit", "price_limit", "x",
    "lower_bound", "proven_gap_percent", "steps", "factorisations",
)  # fmt: skip
TUPLES = ("outcome", "rung", "level")
"""Empty where there is nothing to say of any row."""


def split(answer: Answer, counts: Sequence[int]) -> list[Answer]:
    """The answers to consecutive groups of rows."""
    if len(counts) == 1:
        return [answer]
    lazy = _once(answer)
    firsts = np.concatenate([[0], np.cumsum(counts)]).tolist()
    return [_cut(answer, a, b, lazy) for a, b in itertools.pairwise(firsts)]


def join(answers: Sequence[Answer]) -> Answer:
    """One answer from those to consecutive rows. The seconds add up; a sentence is said once."""
    if len(answers) == 1:
        return answers[0]
    parts: dict[str, Any] = {}
    for name in ARRAYS:
        values = [getattr(each, name) for each in answers]
        parts[name] = None if any(value is None for value in values) else np.concatenate(values)
    for name in TUPLES:
        parts[name] = tuple(entry for each in answers for entry in getattr(each, name))
    said: dict[str, None] = {}
    first = 0
    for each in answers:
        said |= dict.fromkeys(_moved(line, first.__add__) for line in each.warnings)
        first += len(each)
    whole = list(answers)
    parts["multipliers"] = (
        None
        if any(each.multipliers is None for each in whole)
        else lambda: _stacked([_duals(a) for a in whole])
    )
    return dataclasses.replace(
        answers[0], **parts, seconds=sum(each.seconds for each in answers), warnings=tuple(said)
    )


def put(answer: Answer, rows: Ints, again: Answer) -> Answer:
    """The answer with these rows replaced by those of another."""
    parts: dict[str, Any] = {}
    for name in ARRAYS:
        old, new = getattr(answer, name), getattr(again, name)
        if old is None or new is None:
            parts[name] = None
            continue
        parts[name] = np.array(old)
        parts[name][rows] = new
    for name in TUPLES:
        entries = list(getattr(answer, name))
        for row, entry in zip(rows, getattr(again, name), strict=True):
            entries[row] = entry
        parts[name] = tuple(entries)

    def duals() -> Duals:
        own, others = _duals(answer), _duals(again)
        joined = Duals(own.equality.copy(), own.inequality.copy(), own.lower.copy(), own.upper.copy())
        joined.put(rows, others)
        return joined

    none = answer.multipliers is None or again.multipliers is None
    about = [line for line in answer.warnings if (at := _row_of(line)) is None or at not in rows]
    about += [_moved(line, lambda i: int(rows[i])) for line in again.warnings]
    return dataclasses.replace(
        answer, **parts, multipliers=None if none else duals, seconds=answer.seconds + again.seconds,
        warnings=tuple(about),
    )  # fmt: skip


def _cut(answer: Answer, first: int, end: int, lazy: Callable[[], Duals] | None) -> Answer:
    rows = slice(first, end)
    parts: dict[str, Any] = {}
    for name in (*ARRAYS, *TUPLES):
        value = getattr(answer, name)
        parts[name] = None if value is None else value[rows]
    # What is said of a row is for whoever asked for that row; what is said of none is for everybody.
    said = [
        _moved(line, lambda row: row - first)
        for line in answer.warnings
        if (at := _row_of(line)) is None or first <= at < end
    ]
    duals = None if lazy is None else lambda: lazy().take(rows)
    standing = None if answer.standing is None else answer.standing.take(rows)
    return dataclasses.replace(answer, **parts, multipliers=duals, warnings=tuple(said), standing=standing)


def _once(answer: Answer) -> Callable[[], Duals] | None:
    """Multipliers of a whole batch, computed for the first that asks and kept for the others."""
    if answer.multipliers is None:
        return None
    lock, kept = threading.Lock(), list[Duals]()

    def duals() -> Duals:
        with lock:
            if not kept:
                kept.append(_duals(answer))
        return kept[0]

    return duals


def _duals(answer: Answer) -> Duals:
    found = answer.duals
    assert found is not None
    return found


def _stacked(parts: Sequence[Duals]) -> Duals:
    names = [each.name for each in dataclasses.fields(Duals)]
    return Duals(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def _row_of(line: str) -> int | None:
    return line.row if isinstance(line, Remark) else None


def _moved(line: str, to: Callable[[int], int]) -> str:
    return line.at(to(line.row)) if isinstance(line, Remark) and line.row is not None else line
