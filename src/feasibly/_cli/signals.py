"""Ctrl-C and SIGTERM: one way to stop, nothing half-written, and the exit status that tells which it was.

A Python signal handler runs in the main thread between two instructions, wherever that is. Where that is a compiler
or a library in C++, the signal waits for minutes or ends in a crash of the interpreter. So commands that compile work
in a thread of their own, and the main thread does nothing but listen.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import Any, Generic, NoReturn, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

INTERRUPTED = 128 + signal.SIGINT
TERMINATED = 128 + signal.SIGTERM

PATIENCE = 60.0
"""Seconds to wait for a file that is being written when it is time to leave."""

_received: list[int] = []
_installed: list[bool] = []
_stopping = threading.Event()
_writing = threading.RLock()
_workers: list[threading.Thread] = []


def install() -> None:
    """Make both signals stop a command, also where the shell that started it had Ctrl-C ignored.

    A command started in the background inherits an ignored SIGINT, and whoever then sends one on purpose (a
    scheduler, a supervisor) would wait for ever. SIGTERM becomes Ctrl-C, whoever handles that at the time, so
    that everything that survives the one survives the other.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    signal.signal(signal.SIGINT, _interrupt)
    signal.signal(signal.SIGTERM, _terminate)
    _installed.append(True)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _terminate(number: int, frame: FrameType | None) -> None:
    _received.append(number)
    signal.raise_signal(signal.SIGINT)


def status() -> int:
    """130, or 143 where it was SIGTERM that stopped the command."""
    return TERMINATED if _received else INTERRUPTED


@contextlib.contextmanager
def noted() -> Iterator[Callable[[], int]]:
    """Let signals interrupt nothing meanwhile; the function given says how many came."""
    if threading.current_thread() is not threading.main_thread():
        yield lambda: 0
        return
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    try:
        yield lambda: len(came)
    finally:
        signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def writing() -> Iterator[None]:
    """While something is written here, the command is not left: files are whole, and nothing lies beside them."""
    with _writing:
        yield


class Apart(Generic[T]):
    """Work in a thread of its own, begun at once."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._result: list[T] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        _workers.append(self._thread)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._result.append(self._work())
        except BaseException as error:
            self._error = error

    def wait(self, seconds: float = math.inf) -> bool:
        """Wait for the end, at most so long; whether it came. A signal is a `KeyboardInterrupt` here."""
        until = time.monotonic() + seconds
        while self._thread.is_alive() and (left := until - time.monotonic()) > 0.0:
            self._thread.join(min(left, 0.2))
        return not self._thread.is_alive()

    def result(self) -> T:
        """What the work gave, once it has ended; its error is raised here."""
        if self._error is not None:
            raise self._error
        return self._result[0]


def heard(work: Callable[[], T], seconds: float = 0.0) -> T:
    """Do `work` in a thread and listen meanwhile.

    After a signal the work has so many `seconds` to notice (`check`) and to end by itself; then it is left behind with
    a `KeyboardInterrupt`, and `leave` ends the process. Where `install` was not called, nobody would: the work is then
    done in place.
    """
    if not _installed:
        return work()
    with noted() as came:
        job = Apart(work)
        while not job.wait(0.1):
            if came():
                _stopping.set()
                if not job.wait(seconds):
                    raise KeyboardInterrupt
    return job.result()


def check() -> None:
    """For work that can end early: raise `KeyboardInterrupt` once a signal came."""
    if _stopping.is_set():
        raise KeyboardInterrupt


def apart(
    command: Callable[P, T],
    seconds: float = 0.0,
    unless: Callable[[Mapping[str, Any]], bool] = lambda given: False,
) -> Callable[P, T]:
    """A command that works in a thread, and is left behind so many `seconds` after a signal.

    Args:
        command: takes its options by name.
        seconds: that it has to end by itself, having noticed (`check`).
        unless: from the options, whether it needs the main thread and hears signals itself.
    """

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        if unless(kwargs):
            return command(*args, **kwargs)
        return heard(lambda: command(*args, **kwargs), seconds)

    return run


def leave(code: int) -> NoReturn:
    """End the process; at once where it was interrupted or a thread is still at work.

    The interpreter cannot be taken down around a compiler that is running or was cut short: it crashes.
    """
    with contextlib.suppress(ValueError, OSError):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if code in (INTERRUPTED, TERMINATED) or any(worker.is_alive() for worker in _workers):
        _writing.acquire(timeout=PATIENCE)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        with contextlib.suppress(OSError, ValueError):
            if sys.stderr.isatty():
                sys.stderr.write("\x1b[?25h")  # a progress bar hides the cursor
                sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
