"""One seam for fanning out: hand in blocks of rows, get blocks back as they finish.

Every engine calls the same function on the same bytes, so rows do not depend on the engine, the number of
workers or the order in which blocks come back.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from feasibly.data import _worker
from feasibly.problem.errors import FeasiblyError

ENGINES = ("local", "dask", "ray")

RETRIES = 2
"""How often a block is tried again after the worker that had it died."""

Arrays = dict[str, NDArray[Any]]

Work = _worker.Work
"""What is done to a block of inputs."""


class EngineError(FeasiblyError):
    """A cluster that cannot be used as asked."""


@dataclass(frozen=True, eq=False)
class RowBlock:
    """A block of inputs; `index` names it."""

    index: int
    x: NDArray[np.float64]


Answered = tuple[RowBlock, Arrays | None]
"""A block and its arrays; `None` for one whose worker died each time it was tried."""


class Engine(Protocol):
    """Workers that hold the solver."""

    @property
    def jobs(self) -> int:
        """Blocks that are solved at the same time."""

    def run(self, tasks: Iterable[RowBlock], window: int | None = None) -> Iterator[Answered]:
        """Solve `tasks`, in any order.

        `window` is how many are handed out at once: 1 makes it certain which one killed a worker.
        """


def open_engine(
    name: str, payload: bytes, *, jobs: int | None = None, address: str | None = None
) -> AbstractContextManager[Engine]:
    """Start workers, or connect to those at `address`, with the serialised solver `payload`.

    Args:
        name: `local`, `dask` or `ray`.
        payload: what `Solver.serialise` gave.
        jobs: worker processes to start here; all cores when not given. Not for a cluster with an address.
        address: an existing cluster (`tcp://host:8786` for Dask, `host:6379` or `auto` for Ray).

    Raises:
        EngineError: the name is not known, or the cluster cannot be reached.
        MissingExtraError: the engine is not installed.
    """
    check_engine(name, jobs=jobs, address=address)
    digest = _worker.digest_of(payload)
    if name == "local":
        if jobs == 1:
            return _in_process(digest, payload)
        from feasibly.data._local import open_local

        return open_local(_worker.solving, (digest, payload), jobs)
    if name == "dask":
        from feasibly.data._dask import open_dask

        return open_dask(digest, payload, jobs, address)
    from feasibly.data._ray import open_ray

    return open_ray(digest, payload, jobs, address)


def open_workers(
    prepare: Callable[..., Work], arguments: tuple[Any, ...], jobs: int, environment: Mapping[str, str]
) -> AbstractContextManager[Engine]:
    """Processes on this machine that do `prepare(*arguments)` to blocks of inputs, whatever that is.

    `environment` is added to theirs, where the user has not set the same.
    """
    from feasibly.data._local import open_local

    return open_local(prepare, arguments, jobs, environment)


def check_engine(name: str, *, jobs: int | None, address: str | None) -> None:
    """Refuse settings that no engine can meet, before anything is spent on them."""
    if name not in ENGINES:
        raise EngineError(f"there is no engine {name!r}; choose one of {', '.join(ENGINES)}")
    if jobs is not None and (int(jobs) != jobs or jobs < 1):
        raise EngineError(f"jobs must be a whole number of at least 1, got {jobs}")
    if address is not None and name == "local":
        raise EngineError("the local engine has no address; choose dask or ray for a cluster")


@contextmanager
def _in_process(digest: str, payload: bytes) -> Iterator[Engine]:
    """No worker: solve here. Ctrl-C waits for the row at hand, so that none is mistaken for a failed one."""
    _worker._packed[digest] = payload
    asked = threading.Event()

    class Here:
        jobs = 1

        def run(self, tasks: Iterable[RowBlock], window: int | None = None) -> Iterator[Answered]:
            for task in tasks:
                yield task, _worker.solve_block(digest, task.x, asked.is_set)

    def ask(number: int, frame: Any) -> None:
        if asked.is_set():  # a second Ctrl-C does not wait
            raise KeyboardInterrupt
        asked.set()

    try:
        with handling_ctrl_c(ask):
            yield Here()
            if asked.is_set():
                raise KeyboardInterrupt
    finally:
        _worker._packed.pop(digest, None)


@contextmanager
def handling_ctrl_c(handler: Any) -> Iterator[None]:
    """Handle Ctrl-C by `handler` meanwhile, unless it is ignored already or this is not the main thread."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or before is signal.SIG_IGN:
        yield
        return
    signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
