"""Double precision where it matters, without a switch that a user's own JAX code would feel.

JAX computes in float32 unless told otherwise, and the usual switch is global. Measuring a constraint to
1e-6 needs float64, training does not. So everything that measures or repairs runs inside `double()`,
which is local to the thread and to the `with` block.

Two rules keep both worlds apart (each was learnt from a wrong number):

- constants captured by a problem's functions are NumPy arrays, never `jnp` arrays: the latter are rounded to
  float32 when they are made outside `double()`;
- one Python function is never compiled in both modes. `twin` makes a fresh function object for that, and
  `_own` copies the arrays that a user's function captures, since JAX remembers the mode it first met them in.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar

import jax

R = TypeVar("R")


_turn = threading.RLock()
_here = threading.local()


@contextmanager
def double() -> Iterator[None]:
    """A context in which JAX computes in float64, one thread at a time (see `turn`)."""
    with turn(), jax.enable_x64(True):
        yield


def turn() -> AbstractContextManager[Any]:
    """A context in which no other thread runs compiled code of ours; for what is computed in single precision.

    XLA on a machine with few cores can wait for itself for ever when two threads run programs with loops at once (three
    threads that call `predict` on two cores stand still within seconds). The blocks are short, and one program at a
    time keeps such a machine busy.
    """
    return nullcontext() if getattr(_here, "called_back", False) else _turn


def called_back(function: Callable[..., R]) -> Callable[..., R]:
    """The same function for a compiled program to call: from a thread of XLA's own, while the thread that runs the
    program, whose turn it may be, waits for it."""

    def call(*args: Any) -> R:
        before = getattr(_here, "called_back", False)
        _here.called_back = True
        try:
            return function(*args)
        finally:
            _here.called_back = before

    return call


def _renew() -> None:
    """A forked process has one thread, and nobody in it who could give a lock back."""
    global _turn
    _turn = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


def twin(function: Callable[..., R]) -> Callable[..., R]:
    """A function that does the same and shares no compilation cache with `function`."""

    def fresh(*args: Any) -> R:
        return function(*args)

    return fresh
