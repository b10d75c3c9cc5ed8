"""Ctrl-C and SIGTERM: one way to stop, and the exit status that tells which it was."""

from __future__ import annotations

import signal
import threading
from types import FrameType

INTERRUPTED = 128 + signal.SIGINT
TERMINATED = 128 + signal.SIGTERM

_received: list[int] = []


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


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _terminate(number: int, frame: FrameType | None) -> None:
    _received.append(number)
    signal.raise_signal(signal.SIGINT)


def status() -> int:
    """130, or 143 where it was SIGTERM that stopped the command."""
    return TERMINATED if _received else INTERRUPTED
