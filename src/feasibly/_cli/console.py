"""What commands say and where: results on standard output, everything else on standard error."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any

from feasibly._files import plain
from feasibly._words import duration

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.progress import Progress

WIDE = 110
"""Columns where the output is no terminal and nobody can tell."""

READABLE = 100
"""Columns beyond which a paragraph is hard to read."""

BAR = 16
"""Columns of a progress bar."""

QUIET = 2.0
"""Seconds after which a wait has to show that something is happening."""


def _console(*, stderr: bool) -> Console:
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    known = stream.isatty() or "COLUMNS" in os.environ
    return Console(stderr=stderr, width=None if known else WIDE, highlight=False, markup=False, emoji=False)


def show(*what: RenderableType) -> None:
    """Print a result."""
    console = _console(stderr=False)
    for each in what:
        console.print(each, soft_wrap=isinstance(each, str))


def tell(paragraph: str, indent: str = "") -> None:
    """Print a paragraph as wide as the terminal, up to what reads well; lines after the first are indented."""
    width = min(shutil.get_terminal_size((READABLE, 24)).columns, READABLE)
    show(
        textwrap.fill(
            paragraph, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        )
    )


def say(sentence: str) -> None:
    """Tell the user something that is not the result."""
    _console(stderr=True).print(sentence, soft_wrap=True)


def emit(document: Any) -> None:
    """Print one JSON document, with `null` for what JSON has no number for."""
    sys.stdout.write(json.dumps(plain(document), indent=2, allow_nan=False, ensure_ascii=False) + "\n")
    sys.stdout.flush()


@contextlib.contextmanager
def results_alone() -> Iterator[None]:
    """Keep standard output for results: what libraries print there, in Python or below, goes to stderr."""
    sys.stdout.flush()
    try:
        kept = os.dup(1)
        os.dup2(2, 1)
    except OSError:  # one of them is closed, so there is nothing to keep apart
        kept = None
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        if kept is not None:
            _flush_below()
            os.dup2(kept, 1)
            os.close(kept)


def _flush_below() -> None:
    """Let go of what C code has printed and its library still holds."""
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).fflush(None)


class Meter:
    """Shows that work goes on: a bar on a terminal, now and then a line elsewhere.

    A wait shorter than two seconds leaves no trace in a log.
    """

    def __init__(self, doing: str) -> None:
        self._doing, self._note = doing, ""
        self._began = time.perf_counter()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._bar: Progress | None = None
        self._noise = contextlib.ExitStack()

    def tell(self, note: str = "", done: float | None = None, total: float | None = None) -> None:
        """Say how far it is, in words and, where that is known, as a part of a whole."""
        self._note = note
        if self._bar is not None:
            room = self._bar.console.width - len(self._doing) - BAR - 14
            shown = note if len(note) <= room else note[: max(room - 3, 0)] + "..."
            self._bar.update(self._task, note=shown, completed=done, total=total)

    def turn_to(self, doing: str) -> None:
        """Say that something else is being done from here on."""
        if doing == self._doing:
            return
        self._doing = doing
        self.tell()
        if self._bar is not None:
            self._bar.update(self._task, description=doing, total=None, completed=0)

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.perf_counter() - self._began

    def __enter__(self) -> Meter:
        self._noise.enter_context(results_alone())
        console = _console(stderr=True)
        if console.is_terminal:
            from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

            self._bar = Progress(
                SpinnerColumn(),
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=BAR),
                TimeElapsedColumn(),
                TextColumn("{task.fields[note]}", markup=False),
                console=console,
                transient=True,
            )
            self._task = self._bar.add_task(self._doing, total=None, note="")
            self._bar.start()
        else:
            self._thread = threading.Thread(target=self._report, daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        if self._bar is not None:
            self._bar.stop()
        if self._thread is not None:
            self._thread.join()
        self._noise.close()

    def _report(self) -> None:
        """Lines at 2, 5, 10, 20, ... seconds: seldom enough for a log, often enough for whoever reads it."""
        for moment in _moments():
            if self._over.wait(moment - self.seconds):
                return
            what = f"{self._doing}: {self._note}" if self._note else f"{self._doing} ..."
            if moment == QUIET and self._doing.startswith("opening "):
                what += " (waking up takes some seconds, most of them for importing JAX)"
            say(f"[{duration(self.seconds)}] {what}")


def _moments() -> Iterator[float]:
    yield from (QUIET, 5.0, 10.0, 20.0)
    moment = 20.0
    while True:
        moment += 20.0
        yield moment
