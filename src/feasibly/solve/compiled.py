"""Calling CasADi: functions on NumPy arrays, without its remarks."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any, TextIO

import numpy as np

from feasibly.solve.records import Array


class Compiled:
    """A CasADi function without the conversions that a plain call makes; one thread at a time.

    Arguments and results are the nonzero entries, column by column: for a dense vector, the vector.
    """

    def __init__(self, function: Any) -> None:
        self.function = function
        self._buffer, self._trigger = function.buffer()
        self._inputs = [np.zeros(function.nnz_in(k)) for k in range(function.n_in())]
        self._outputs = [np.zeros(function.nnz_out(k)) for k in range(function.n_out())]
        for k, array in enumerate(self._inputs):
            self._buffer.set_arg(k, array.data)
        for k, array in enumerate(self._outputs):
            self._buffer.set_res(k, array.data)

    def __call__(self, *values: Array) -> list[Array]:
        """Fresh arrays of the results."""
        for array, value in zip(self._inputs, values, strict=True):
            array[:] = value
        self._trigger()
        return [array.copy() for array in self._outputs]


@contextlib.contextmanager
def without_remarks() -> Iterator[None]:
    """Drop the lines that CasADi writes to standard error; everyone else's pass.

    It remarks on every singular matrix and interrupt, and has no switch for that. What they mean for a row is in
    the row's outcome.
    """
    shown = sys.stderr
    if isinstance(shown, _Filter):  # another thread is at it
        yield
        return
    sys.stderr = _Filter(shown)
    try:
        yield
    finally:
        sys.stderr = shown


class _Filter:
    """A stream that leaves out lines beginning with CasADi's name; it writes them in pieces."""

    def __init__(self, shown: TextIO) -> None:
        self._shown = shown
        self._dropping = False

    def write(self, text: str) -> int:
        if not self._dropping and not text.startswith("CasADi - "):
            return self._shown.write(text)
        self._dropping = not text.endswith("\n")
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._shown, name)
