"""What is asked, by whom, and how far it has come: requests, or parts of them, on their way through the batches."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from feasibly.answer.record import Answer
from feasibly.answer.step import Iterate

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

QUICK = frozenset({"mean", "conditioned"})
"""Answers of predictable cost, but for a row in a thousand. A solver's run may take seconds."""
TRIES = 3
"""Batches in which a row takes part before it is left to the second worker: 24 steps, after which one row in a thousand
of 118 buses is left."""


@dataclass(frozen=True, slots=True)
class How:
    """What is wanted of an answer. Requests that want the same are answered together."""

    answer: str = "conditioned"
    tolerance: float = 1e-4
    prove: bool = False

    @property
    def quick(self) -> bool:
        """Whether it takes the same short time for every row."""
        return self.answer in QUICK and not self.prove


class Answering(Protocol):
    """A model that can be asked."""

    def attempt(self, x: Array, how: How, begin: Iterate | None = None) -> tuple[Answer, Ints]:
        """Answer quickly, and say which rows need longer than that; `begin` is where such rows stood (else NaN)."""

    def finish(self, x: Array, how: How) -> Answer:
        """Answer such rows, however long it takes."""

    def predict(self, x: Array, how: How) -> Answer:
        """Answer every row, however long it takes."""


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer and where its time went."""

    answer: Answer
    waited: float
    """Seconds that it stood in the queue."""
    answering: float
    """Seconds its batches took, which it shared with others."""


@dataclass(eq=False, slots=True)
class Piece:
    """A request, or as much of it as goes into one batch."""

    model: Answering
    how: How
    x: Array
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Answered]
    deadline: float
    since: float = field(default_factory=time.perf_counter)
    dropped: bool = False
    found: Answer | None = None
    """What was found in earlier batches,"""
    left: Ints | None = None
    """which rows were not,"""
    standing: Iterate | None = None
    """and where those stand."""
    tries: int = 0
    took: float = 0.0

    @property
    def quick(self) -> bool:
        """Which lane it stands in."""
        return self.how.quick and self.tries < TRIES

    @property
    def rows(self) -> Array:
        """What is to be answered."""
        return self.x if self.left is None else self.x[self.left]


def standing_of(batch: Sequence[Piece], counts: Sequence[int]) -> Iterate | None:
    """Where the rows of a batch stand that were in another before, NaN for those that were not."""
    known = next((piece.standing for piece in batch if piece.standing is not None), None)
    if known is None:
        return None
    parts = []
    for piece, count in zip(batch, counts, strict=True):
        afresh = known.take(np.zeros(count, dtype=np.int64))
        parts.append(piece.standing or afresh._replace(y=np.full_like(afresh.y, np.nan)))
    return Iterate(*(np.concatenate(each) for each in zip(*parts, strict=True)))
