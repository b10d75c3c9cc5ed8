"""Many requests, one worker: whoever waits while a batch is answered is in the next one.

No request waits for others to come. A batch is what gathered during the last one, so that batches grow with the load
and a lone request is answered at once.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from feasibly.answer.record import Answer
from feasibly.problem.errors import FeasiblyError
from feasibly.serve.limits import Limits
from feasibly.serve.pieces import join, take
from feasibly.serve.refusal import Refused

Array = NDArray[np.float64]

log = logging.getLogger("feasibly.serve")

QUICK = frozenset({"mean", "conditioned"})
"""Answers of predictable cost. Others (a solver's run may take seconds) wait until no such request is waiting."""
ALONE = 16
"""Rows of the costly kind in one batch, so that the quick ones behind it need not wait long."""


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

    def predict(self, x: Array, how: How) -> Answer:
        """Answer every row."""


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer and where its time went."""

    answer: Answer
    waited: float
    """Seconds until its (last) batch began."""
    answering: float
    """Seconds its batches took, which it shared with others."""


@dataclass(eq=False, slots=True)
class _Piece:
    model: Answering
    how: How
    x: Array
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Answered]
    deadline: float
    since: float = field(default_factory=time.perf_counter)
    dropped: bool = False


class Batcher:
    """The queue and the thread that empties it."""

    def __init__(self, limits: Limits, watch: Watch | None = None) -> None:
        self._limits = limits
        self._watch = watch or Watch()
        self._lanes: dict[bool, deque[_Piece]] = {True: deque(), False: deque()}
        self._rows = 0
        self._over = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="answers", daemon=True)

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Rows in the queue."""
        return self._rows

    async def ask(self, model: Answering, how: How, x: Array, deadline: float) -> Answered:
        """Answer the rows of `x` in as many batches as it takes.

        Raises:
            Refused: 429 when too many rows wait already, 503 when the deadline (of `time.perf_counter`) passes or
                the server stops, 422 when the rows cannot be answered.
        """
        loop = asyncio.get_running_loop()
        size = self._limits.batch_rows if how.quick else ALONE
        pieces = [
            _Piece(model, how, x[i : i + size], loop, loop.create_future(), deadline)
            for i in range(0, len(x), size)
        ]
        self._put(pieces, len(x))
        try:
            async with asyncio.timeout(deadline - time.perf_counter()):
                done = [await piece.future for piece in pieces]
        except TimeoutError:
            raise Refused(
                503,
                f"no answer within {self._limits.seconds:g} seconds; ask for fewer rows or a quicker answer",
                retry_after=1,
            ) from None
        finally:
            for piece in pieces:
                piece.dropped = True
        if len(done) == 1:
            return done[0]
        return Answered(
            join([each.answer for each in done]), done[-1].waited, sum(each.answering for each in done)
        )

    def _put(self, pieces: Sequence[_Piece], rows: int) -> None:
        with self._changed:
            if self._over:
                raise Refused(
                    503, "the server is stopping; ask another one, or again in a moment", retry_after=5
                )
            if self._rows + rows > self._limits.queued_rows:
                raise Refused(
                    429, f"{self._rows} rows are waiting already; ask again in a moment", retry_after=1
                )
            self._rows += rows
            self._lanes[pieces[0].how.quick].extend(pieces)
            self._changed.notify()

    def stop(self) -> None:
        """Take nothing more; the worker leaves once the queue is empty."""
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def join(self, seconds: float) -> None:
        """Wait until everything taken has been answered."""
        self._thread.join(seconds)

    # ---- the worker -----------------------------------------------------------------------------------------

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._rows and not self._over:
                    self._changed.wait()
                if not self._rows:
                    return
                batch = self._next()
            if batch:
                self._answer(batch)

    def _next(self) -> list[_Piece]:
        """The oldest request and those that can be answered with it; what nobody waits for any more is left out."""
        lane = self._lanes[True] or self._lanes[False]
        now = time.perf_counter()
        batch: list[_Piece] = []
        others: list[_Piece] = []
        rows = 0
        while lane:
            piece = lane.popleft()
            if piece.dropped or piece.deadline <= now:
                self._rows -= len(piece.x)
                continue
            first = batch[0] if batch else piece
            most = self._limits.batch_rows if piece.how.quick else ALONE
            fits = rows + len(piece.x) <= most or not batch
            if fits and piece.model is first.model and piece.how == first.how:
                batch.append(piece)
                rows += len(piece.x)
                if rows >= most:
                    break
            else:
                others.append(piece)
        lane.extendleft(reversed(others))
        self._rows -= rows
        return batch

    def _answer(self, batch: list[_Piece]) -> None:
        began = time.perf_counter()
        x = batch[0].x if len(batch) == 1 else np.concatenate([piece.x for piece in batch])
        try:
            found = batch[0].model.predict(x, batch[0].how)
        except Exception as error:
            if len(batch) > 1:  # somebody else's rows must not cost anyone an answer
                for piece in batch:
                    self._answer([piece])
                return
            refusal = _refusal(error)
            batch[0].loop.call_soon_threadsafe(_fail, batch[0].future, refusal)
            return
        took = time.perf_counter() - began
        self._watch.batch(batch[0].model, len(x), took)
        results = []
        first = 0
        for piece in batch:
            part = found if len(batch) == 1 else take(found, slice(first, first + len(piece.x)))
            results.append((piece.future, Answered(part, began - piece.since, took)))
            first += len(piece.x)
        batch[0].loop.call_soon_threadsafe(_deliver, results)


class Watch:
    """Whoever wants to know of every batch."""

    def batch(self, model: Answering, rows: int, seconds: float) -> None:
        """A batch of so many rows took so long."""


def _deliver(results: list[tuple[asyncio.Future[Answered], Answered]]) -> None:
    for future, answered in results:
        if not future.done():
            future.set_result(answered)


def _fail(future: asyncio.Future[Answered], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


def _refusal(error: Exception) -> Exception:
    if isinstance(error, FeasiblyError):
        return Refused(422, str(error))
    if isinstance(error, MemoryError):
        return Refused(503, "there is not enough memory for this; ask for fewer rows", retry_after=1)
    log.error("answering failed", exc_info=error)
    return error
