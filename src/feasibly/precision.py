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

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar

import jax

R = TypeVar("R")


_turns: list[threading.RLock] = []


def double() -> AbstractContextManager[Any]:
    """A context in which JAX computes in float64."""
    return _in_turn() if _turns else jax.enable_x64(True)


def take_turns() -> None:
    """From now on, one thread at a time runs compiled code.

    XLA on a machine with few cores can wait for itself for ever when two threads run programs with loops at once
    (seen on two). Whoever answers from several threads calls this first; the blocks inside `double()` are short.
    """
    if not _turns:
        _turns.append(threading.RLock())


def turn() -> AbstractContextManager[Any]:
    """The same turns for what is computed in single precision."""
    return _turns[0] if _turns else nullcontext()


@contextmanager
def _in_turn() -> Iterator[None]:
    with _turns[0], jax.enable_x64(True):
        yield


def twin(function: Callable[..., R]) -> Callable[..., R]:
    """A function that does the same and shares no compilation cache with `function`."""

    def fresh(*args: Any) -> R:
        return function(*args)

    return fresh
