"""Processes on this machine (loky), rebuilt when one of them dies."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, wait
from contextlib import contextmanager
from typing import Any

import loky
from loky.process_executor import BrokenProcessPool

from feasibly.data import _worker
from feasibly.data.engines import RETRIES, Answered, Engine, Task


@contextmanager
def open_local(digest: str, payload: bytes, jobs: int | None) -> Iterator[Engine]:
    """`jobs` worker processes, one a core when not given."""
    workers = _Workers(digest, payload, jobs or loky.cpu_count())
    try:
        yield workers
    finally:
        workers.stop()


class _Workers:
    def __init__(self, digest: str, payload: bytes, jobs: int) -> None:
        self._digest, self._payload = digest, payload
        self.jobs = jobs
        self._pool = self._start()

    def _start(self) -> Any:
        return loky.ProcessPoolExecutor(
            max_workers=self.jobs,
            initializer=_worker.start_process,
            initargs=(self._digest, self._payload),
            env=_worker.ONE_THREAD,
        )

    def stop(self) -> None:
        self._pool.shutdown(wait=True, kill_workers=True)

    def run(self, tasks: Iterable[Task], window: int | None = None) -> Iterator[Answered]:
        # Two blocks a worker: one at hand and one waiting, so that none idles while we write.
        window = window or 2 * self.jobs
        fresh, again, alone = iter(tasks), deque[Task](), deque[Task]()
        deaths: Counter[int] = Counter()
        running: dict[Any, Task] = {}
        while True:
            if alone and not running:
                self._submit(alone.popleft(), running)
            while not alone and len(running) < window:
                task = again.popleft() if again else next(fresh, None)
                if task is None:
                    break
                self._submit(task, running)
            if not running:
                return
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            if not any(isinstance(future.exception(), BrokenProcessPool) for future in done):
                for future in done:
                    yield running.pop(future), future.result()
                continue
            # A dead worker breaks the pool for every block in flight, and one of them may be to blame. They
            # are all tried once more together, then one at a time, which leaves no doubt.
            self._restart()
            lost = []
            for future, task in running.items():
                if future.done() and future.exception() is None:
                    yield task, future.result()
                else:
                    lost.append(task)
            running.clear()
            for task in lost:
                deaths[task.index] += 1
                if deaths[task.index] > RETRIES:
                    yield task, None
                else:
                    (again if deaths[task.index] < RETRIES else alone).append(task)

    def _submit(self, task: Task, running: dict[Any, Task]) -> None:
        try:
            future = self._pool.submit(_worker.solve_block, self._digest, task.x)
        except BrokenProcessPool:  # a worker died while nothing was in flight
            self._restart()
            future = self._pool.submit(_worker.solve_block, self._digest, task.x)
        running[future] = task

    def _restart(self) -> None:
        self.stop()
        self._pool = self._start()
