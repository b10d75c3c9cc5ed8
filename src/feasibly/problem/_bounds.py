"""Bounds on the outputs: constants, or functions of the input.

A bound may close: where `lower(x)` meets `upper(x)`, as at a generator that is out of service, the output is pinned.
An interior-point method has nowhere to go between two such bounds, and a shared matrix cannot lose a variable for
one row. So those who search for an answer let a pinned output roam between its usual bounds, where nothing depends on
it (`hold` sees to that), and put it in its place afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from feasibly.precision import double, twin
from feasibly.problem.errors import Fault

Array = NDArray[np.float64]
Bound = Callable[[Any], Any]

_PROBES = 64
_PROBE_SEED = 20261116


@dataclass(frozen=True, eq=False)
class Bounds:
    """The bounds of one problem.

    Attributes:
        lower, upper: the widest that any input of the declared range has.
        usual: `(lower, upper)` of the nominal input; the widest where that input pins an output which another leaves
            open.
        functions: `(lower, upper)` as functions of one `x`, or `None` where they are constants.
    """

    lower: Array
    upper: Array
    usual: tuple[Array, Array]
    functions: tuple[Bound, Bound] | None = None

    @staticmethod
    def over(
        lower: Array,
        upper: Array,
        functions: tuple[Bound, Bound] | None,
        given: tuple[ArrayLike, ArrayLike] | None,
        nominal: Array,
        box: tuple[Array, Array] | None,
        draw: Callable[[np.random.Generator], ArrayLike] | None = None,
    ) -> Bounds:
        """From the bounds of the nominal input, the functions if there are any, and the widest if somebody knows.

        Where nobody does they are looked for in the `box`, or among inputs that `draw` gives.
        """
        if functions is None:
            return Bounds(lower, upper, (lower, upper))
        low, high = _widest(functions, nominal, box, draw) if given is None else given
        ends = np.minimum(lower, np.asarray(low, np.float64)), np.maximum(upper, np.asarray(high, np.float64))
        pinned = np.asarray(lower >= upper) & (ends[0] < ends[1])
        usual = np.where(pinned, ends[0], lower), np.where(pinned, ends[1], upper)
        for end in (*ends, *usual):
            end.setflags(write=False)
        return Bounds(*ends, usual, functions)

    def at(self, x: Any) -> tuple[Any, Any]:
        """The bounds of one input, in `jax.numpy`."""
        if self.functions is None:
            return self.lower, self.upper
        return self.functions[0](x), self.functions[1](x)

    def search(self, x: Any) -> tuple[Any, Any]:
        """The bounds of one input where pinned outputs have their usual ones, in `jax.numpy`."""
        if self.functions is None:
            return self.lower, self.upper
        low, high = self.at(x)
        closed = (low >= high) & (self.usual[0] < self.usual[1])
        return jnp.where(closed, self.usual[0], low), jnp.where(closed, self.usual[1], high)

    def hold(self, x: Any, y: Any) -> Any:
        """`y` with pinned outputs in their places, in `jax.numpy`."""
        if self.functions is None:
            return y
        low, high = self.at(x)
        return jnp.where(low >= high, low, y)


def bounds_given(
    lower: Any,
    upper: Any,
    nominal: ArrayLike | None,
    box: tuple[ArrayLike, ArrayLike] | None,
    keep: Callable[[Any], Any],
) -> tuple[list[Fault], tuple[Any, Any], tuple[Bound, Bound] | None]:
    """The bounds of the nominal input, and the functions where one of them is a function."""
    if not callable(lower) and not callable(upper):
        return [], (lower, upper), None
    if nominal is None and box is None:
        return [Fault("nominal", "is needed where bounds are functions and no box is given")], ((), ()), None
    try:
        middle = np.asarray(
            nominal if nominal is not None else np.mean(np.asarray(box, np.float64), axis=0), np.float64
        )
    except (TypeError, ValueError):
        return [], ((0.0,), (0.0,)), None  # what is wrong with the inputs is said by their own checks
    faults, functions, values = [], [], []
    for where, bound in (("lower", lower), ("upper", upper)):
        if not callable(bound):
            fixed = np.asarray(bound, dtype=np.float64)
            functions.append(lambda x, fixed=fixed: fixed)
            values.append(bound)
            continue
        functions.append(keep(bound))
        try:
            with double():
                values.append(np.asarray(jax.jit(twin(functions[-1]))(middle), dtype=np.float64))
        except (
            Exception
        ) as error:  # the user's own function: whatever it raises is its fault, told in one line
            faults.append(
                Fault(where, f"fails when called: {type(error).__name__}: {str(error).splitlines()[0]}")
            )
    if faults:
        return faults, ((), ()), None
    return [], (values[0], values[1]), (functions[0], functions[1])


def _widest(
    functions: tuple[Bound, Bound],
    nominal: Array,
    box: tuple[Array, Array] | None,
    draw: Callable[[np.random.Generator], ArrayLike] | None,
) -> tuple[Array, Array]:
    """The lowest lower and the highest upper bound over the box: exact for bounds that are affine in `x`.

    Others are looked up at the corners of the box and at random inputs, and extended by their slopes. Without a box
    they are those of the nominal input and of inputs that are drawn.
    """

    def both(x: Any) -> Any:
        return jnp.stack([functions[0](x), functions[1](x)])

    random = np.random.Generator(np.random.Philox(key=_PROBE_SEED))
    if box is not None:
        low, high = box
        some = [low, high, *(low + random.random((_PROBES, len(low))) * (high - low))]
    else:
        some = [] if draw is None else [np.asarray(draw(random), np.float64) for _ in range(_PROBES)]
    with double():
        values = np.asarray(jax.jit(jax.vmap(twin(both)))(np.stack([nominal, *some])))
        slopes = np.asarray(jax.jit(jax.jacobian(twin(both)))(nominal))
    widest = values[:, 0].min(axis=0), values[:, 1].max(axis=0)
    if box is None:
        return widest
    ends = (low - nominal) * slopes, (high - nominal) * slopes
    below, above = (pick(*ends).sum(axis=-1) for pick in (np.minimum, np.maximum))
    return np.fmin(widest[0], values[0, 0] + below[0]), np.fmax(widest[1], values[0, 1] + above[1])
