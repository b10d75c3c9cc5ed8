"""Processes on this machine (loky), rebuilt when one of them dies."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, wait
from contextlib import contextmanager
from typing import Any

import loky
from loky.process_executor import BrokenProcessPool, ShutdownExecutorError

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
        fresh, again = iter(tasks), deque[Task]()
        deaths: Counter[int] = Counter()
        running: dict[Any, Task] = {}
        while True:
            while len(running) < window:
                task = again.popleft() if again else next(fresh, None)
                if task is None:
                    break
                try:
                    running[self._pool.submit(_worker.solve_block, self._digest, task.x)] = task
                except (BrokenProcessPool, ShutdownExecutorError):
                    again.append(task)
                    break
            if not running and not again:
                return
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            broken = not running
            for future in done:
                task = running.pop(future)
                try:
                    yield task, future.result()
                except BrokenProcessPool:
                    broken = True
                    deaths[task.index] += 1
                    again.append(task)
            if not broken:
                continue
            # A dead worker breaks the pool for every block in flight; one of them may be to blame.
            for future, task in running.items():
                if future.done() and future.exception() is None:
                    yield task, future.result()
                else:
                    deaths[task.index] += 1
                    again.append(task)
            running.clear()
            for task in [task for task in again if deaths[task.index] > RETRIES]:
                again.remove(task)
                yield task, None
            self.stop()
            self._pool = self._start()
