"""Many requests, two workers: whoever waits while a batch is answered is in the next one.

A batch is what gathered during the last one, so that batches grow with the load and a lone request is answered at once.
Where many come, a batch that is far from full waits a moment for them (`_gather`): it costs as much as a full one.
One worker has the answers of predictable cost, the other those that may take a solver's time. Rows of the first that
have not converged with the others go on in the next batch, among others' rows, and after some of these to the second
worker: nobody stands behind somebody else's hard row.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from feasibly.problem.errors import FeasiblyError
from feasibly.serve.asked import TRIES, Answered, Answering, How, Piece, standing_of
from feasibly.serve.limits import Limits
from feasibly.serve.pieces import join, put, split
from feasibly.serve.refusal import Refused

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

log = logging.getLogger("feasibly.serve")

ALONE = 16
"""Rows of the costly kind in one batch: those behind it need not wait long."""
NEAR = 1e-2
"""Violations, per unit, above which it is left to it at once: of 800 rows of 118 buses, 30 that converged in a later
batch were below 1e-4 when they went on, and the one that did not was at 0.4."""
MANY = 2
"""Requests that came while a batch was answered, from which on the next one waits for more of them."""
WAITING, LONGEST = 2.0, 0.02
"""How long it does: so many times what the last one took, and no longer than so many seconds. A batch of four rows of
118 buses takes as much of the processor as one of sixteen."""


class Batcher:
    """The queue and the thread that empties it."""

    def __init__(self, limits: Limits, watch: Watch | None = None) -> None:
        self._limits = limits
        self._watch = watch or Watch()
        self._lanes: dict[bool, deque[Piece]] = {True: deque(), False: deque()}
        self._rows = 0
        self._busy = 0
        self._over = False
        self._asking = 0
        """Requests that are not answered yet."""
        self._came = 0
        """Requests for the first worker, ever."""
        self._last = (0.0, 0)
        """Of its last batch: the seconds it took, and how many came meanwhile."""
        self.clients: Callable[[], int] = lambda: sys.maxsize
        """How many could be asking; one at a time each."""
        lock = threading.Lock()
        self._changed = {lane: threading.Condition(lock) for lane in (True, False)}
        self._lock = lock
        self._threads = [
            threading.Thread(target=self._work, args=(lane,), name=name, daemon=True)
            for lane, name in ((True, "answers"), (False, "long answers"))
        ]

    def start(self) -> None:
        """Begin to answer."""
        for thread in self._threads:
            thread.start()

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
            Piece(model, how, x[i : i + size], loop, loop.create_future(), deadline)
            for i in range(0, len(x), size)
        ]
        self._asking += 1
        try:
            self._put(pieces, len(x))
            async with asyncio.timeout(deadline - time.perf_counter()):
                done = [await piece.future for piece in pieces]
        except TimeoutError:
            raise Refused(
                503,
                f"no answer within {self._limits.seconds:g} seconds; ask for fewer rows or a quicker answer",
                retry_after=1,
            ) from None
        finally:
            self._asking -= 1
            for piece in pieces:
                piece.dropped = True
        if len(done) == 1:
            return done[0]
        return Answered(
            join([each.answer for each in done]), done[-1].waited, sum(each.answering for each in done)
        )

    def _put(self, pieces: Sequence[Piece], rows: int) -> None:
        quick = pieces[0].quick
        lane = self._lanes[quick]
        with self._lock:
            if self._over:
                raise Refused(
                    503, "the server is stopping; ask another one, or again in a moment", retry_after=5
                )
            if self._rows + rows > self._limits.queued_rows:
                raise Refused(
                    429, f"{self._rows} rows are waiting already; ask again in a moment", retry_after=1
                )
            self._rows += rows
            idle = not lane
            lane.extend(pieces)
            self._came += quick
            # Whoever waits for more is not woken by each of them.
            if idle or self._gathered(lane):
                self._changed[quick].notify()

    def stop(self) -> None:
        """Take nothing more; the workers leave once the queue is empty."""
        with self._lock:
            self._over = True
            self._wake()

    def join(self, seconds: float) -> None:
        """Wait until everything taken has been answered."""
        until = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(until - time.monotonic(), 0.0))

    # ---- the workers ----------------------------------------------------------------------------------------

    def _wake(self) -> None:
        for changed in self._changed.values():
            changed.notify_all()

    def _gathered(self, lane: deque[Piece]) -> bool:
        """Whether a batch would be full, or nobody is left who could add to it."""
        return len(lane) >= self._limits.joined_rows or self._over or self._asking >= self.clients()

    def _gather(self, lane: deque[Piece]) -> None:
        """Wait a moment for others, where many come; with the lock held."""
        seconds, came = self._last
        if came < MANY:
            return
        until = time.perf_counter() + min(WAITING * seconds, LONGEST)
        while not self._gathered(lane) and (left := until - time.perf_counter()) > 0.0:
            self._changed[True].wait(left)

    def _work(self, quick: bool) -> None:
        lane = self._lanes[quick]
        while True:
            with self._lock:
                # What the other worker has in hand may yet come over here.
                while not lane and not (self._over and not self._busy and not self._rows):
                    self._changed[quick].wait()
                if not lane:
                    return
                if quick:
                    self._gather(lane)
                batch = self._next(lane)
                self._busy += 1
                began, came = time.perf_counter(), self._came
            try:
                if batch:
                    self._answer(batch)
            except Exception as error:  # a worker that is gone would answer nobody any more
                log.error("a batch was lost", exc_info=error)
                for piece in batch:
                    piece.loop.call_soon_threadsafe(_fail, piece.future, error)
            finally:
                with self._lock:
                    self._busy -= 1
                    if quick:
                        self._last = time.perf_counter() - began, self._came - came
                    if self._over:
                        self._wake()

    def _next(self, lane: deque[Piece]) -> list[Piece]:
        """The oldest request and those that can be answered with it; what nobody waits for any more is left out."""
        now = time.perf_counter()
        limits = self._limits
        few = self._rows <= 4 * limits.joined_rows
        joined = min(limits.joined_rows, limits.batch_rows) if few else limits.batch_rows
        batch: list[Piece] = []
        others: list[Piece] = []
        rows = 0
        while lane:
            piece = lane.popleft()
            count = len(piece.rows)
            if piece.dropped or piece.deadline <= now:
                self._rows -= count
                continue
            first = batch[0] if batch else piece
            most = joined if piece.quick else ALONE
            fits = rows + count <= most or not batch
            alike = piece.how == first.how and (piece.quick or (piece.found is None) == (first.found is None))
            if fits and piece.model is first.model and alike:
                batch.append(piece)
                rows += count
                if rows >= most:
                    break
            else:
                others.append(piece)
        lane.extendleft(reversed(others))
        self._rows -= rows
        return batch

    def _answer(self, batch: list[Piece]) -> None:
        began = time.perf_counter()
        model, how, quick = batch[0].model, batch[0].how, batch[0].quick
        counts = [len(piece.rows) for piece in batch]
        x = batch[0].rows if len(batch) == 1 else np.concatenate([piece.rows for piece in batch])
        left = np.zeros(0, dtype=np.int64)
        try:
            if quick:
                found, left = model.attempt(x, how, standing_of(batch, counts))
            elif batch[0].found is not None:
                found = model.finish(x, how)
            else:
                found = model.predict(x, how)
        except Exception as error:
            if len(batch) > 1:  # somebody else's rows must not cost anyone an answer
                for piece in batch:
                    self._answer([piece])
                return
            refusal = _refusal(error)
            batch[0].loop.call_soon_threadsafe(_fail, batch[0].future, refusal)
            return
        took = time.perf_counter() - began
        self._watch.batch(model, len(x), took)
        results = []
        first = 0
        for piece, count, part in zip(batch, counts, split(found, counts), strict=True):
            own = left[(first <= left) & (left < first + count)] - first
            first += count
            piece.took += took
            before, now = piece.left, part
            if piece.found is not None and before is not None:
                part = put(piece.found, before, now)
            if len(own):
                piece.found, piece.left = part, own if before is None else before[own]
                piece.standing = now.standing.take(own)
                near = np.maximum(now.max_equality, now.max_inequality)[own] < NEAR
                piece.tries = piece.tries + 1 if near.all() else TRIES
                self._pass_on(piece)
                continue
            waited = began - piece.since - (piece.took - took)
            results.append((piece.future, Answered(part, waited, piece.took)))
        if results:
            batch[0].loop.call_soon_threadsafe(_deliver, results)

    def _pass_on(self, piece: Piece) -> None:
        """To the next batch or to the worker for what takes longer, before everybody else: most of it is done."""
        assert piece.left is not None
        with self._lock:
            self._rows += len(piece.left)
            self._lanes[piece.quick].appendleft(piece)
            self._changed[piece.quick].notify()


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
