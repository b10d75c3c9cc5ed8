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

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import jax

R = TypeVar("R")


def double() -> AbstractContextManager[Any]:
    """A context in which JAX computes in float64."""
    return jax.enable_x64(True)


def twin(function: Callable[..., R]) -> Callable[..., R]:
    """A function that does the same and shares no compilation cache with `function`."""

    def fresh(*args: Any) -> R:
        return function(*args)

    return fresh
