"""Processes on this machine, each at the end of its own pipe.

Not loky's executor, though its processes: there all workers send results through one queue, and one that is
killed in the middle of a message leaves the rest waiting for ever (met in the tests). With a pipe each, a
death is the end of one file, it is plain which block was lost, and a worker whose main process is gone reads
the end and goes too.
"""

from __future__ import annotations

import functools
import os
import signal
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any

import loky
from loky.backend import get_context

from feasibly.data import _worker
from feasibly.data.engines import RETRIES, Answered, Engine, EngineError, RowBlock

_DEATHS_AT_START = 3
"""Deaths a worker, with no block ever answered, after which something is wrong with all of them."""


@contextmanager
def open_local(
    prepare: Callable[..., _worker.Work],
    arguments: tuple[Any, ...],
    jobs: int | None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Engine]:
    """`jobs` worker processes, one a core when not given, that do `prepare(*arguments)` to blocks of inputs.

    `environment` is added to theirs, where the user has not set the same.
    """
    own = {name: os.environ.get(name, value) for name, value in (environment or {}).items()}
    pool = _Pool(prepare, arguments, jobs or loky.cpu_count(), own | _worker.ONE_THREAD)
    try:
        yield pool
    finally:
        pool.stop()


class _Process:
    """One worker and the block it has."""

    def __init__(
        self, prepare: Callable[..., _worker.Work], arguments: tuple[Any, ...], environment: dict[str, str]
    ) -> None:
        self.connection, theirs = Pipe()
        self.task: RowBlock | None = None
        self.process: Any = get_context("loky").Process(
            target=_worker.serve, args=(theirs, prepare, arguments), env=environment, daemon=True
        )
        self.process.start()
        theirs.close()  # the worker's end is the worker's alone, so that its death is the end of the file

    def give(self, task: RowBlock) -> None:
        # Only to a worker that is reading: two sides that both write wait for each other.
        self.task = task
        with suppress(OSError):  # of a dead worker; reading will tell
            self.connection.send(task.x)

    def take(self) -> tuple[RowBlock, Any]:
        """The finished block, or `None` for one whose worker has died."""
        task, self.task = self.task, None
        assert task is not None
        try:
            return task, self.connection.recv()
        except (EOFError, OSError):
            return task, None

    def stop(self) -> None:
        self.connection.close()
        with suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGKILL)
        self.process.join()


class _Pool:
    def __init__(
        self,
        prepare: Callable[..., _worker.Work],
        arguments: tuple[Any, ...],
        jobs: int,
        environment: dict[str, str],
    ) -> None:
        self._process = functools.partial(_Process, prepare, arguments, environment)
        self.jobs = jobs
        self._workers = [self._process() for _ in range(jobs)]

    def stop(self) -> None:
        for worker in self._workers:
            worker.stop()
        self._workers = []

    def run(self, tasks: Iterable[RowBlock], window: int | None = None) -> Iterator[Answered]:
        fresh, again = iter(tasks), deque[RowBlock]()
        idle = self._workers[: window or self.jobs]
        busy: dict[Connection, _Process] = {}
        deaths: Counter[int] = Counter()
        answered = False

        def hand_out() -> None:
            while idle:
                task = again.popleft() if again else next(fresh, None)
                if task is None:
                    return
                worker = idle.pop()
                worker.give(task)
                busy[worker.connection] = worker

        hand_out()
        while busy:
            found: list[Answered] = []
            for connection in wait(list(busy)):
                assert isinstance(connection, Connection)
                worker = busy.pop(connection)
                task, answer = worker.take()
                if answer is None:
                    worker = self._replace(worker)
                    deaths[task.index] += 1
                    if deaths[task.index] > RETRIES:
                        found.append((task, None))
                    else:
                        again.append(task)
                else:
                    answered = True
                    found.append((task, answer))
                idle.append(worker)
            if not answered and deaths.total() >= _DEATHS_AT_START * self.jobs:
                raise EngineError(
                    "the worker processes die before they answer; is there enough memory for them?"
                )
            hand_out()  # before the caller stores what was found, so that nobody waits for the disk
            for task, answer in found:
                if isinstance(answer, BaseException):
                    raise answer
                yield task, answer

    def _replace(self, worker: _Process) -> _Process:
        worker.stop()
        place = self._workers.index(worker)
        self._workers[place] = self._process()
        return self._workers[place]
