"""A problem whose bounds depend on the input, written so that they do not: for those who search for answers.

Outputs that the input pins (a generator out of service) are held where they belong inside the functions, and the
variables that stand for them, on which nothing depends any more, stay between their usual bounds. Bounds that move
otherwise become inequalities. The answers are the same once pinned outputs are put in their places (`Problem.pin`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from feasibly.precision import double, twin
from feasibly.problem._bounds import Bounds

if TYPE_CHECKING:
    from feasibly.problem.core import Problem

_ROOM = 1.0
"""How far inside its limit a bound counts that has been met by pinning its output."""


def fix_bounds(problem: Problem) -> Problem:
    """`problem` itself if its bounds are constants, or the same problem with constant ones."""
    if problem.limits.functions is None:
        return problem
    view = object.__new__(type(problem))
    view.__dict__.update({key: problem.__dict__[key] for key in _KEPT})
    view.__dict__["fingerprint"] = problem.fingerprint
    low, high = moving_bounds(problem)
    lower = np.where(low, problem.lower, problem.limits.usual[0])
    upper = np.where(high, problem.upper, problem.limits.usual[1])
    view.lower, view.upper = lower, upper
    view.limits = Bounds(lower, upper, (lower, upper))
    if problem.spec is None:  # the built-in family's functions see to it themselves
        hold = problem.limits.hold
        for which in ("objective", "equality", "inequality", "violation"):
            function = getattr(problem, which)
            if function is not None:
                setattr(view, which, _held(function, hold))
        view._some_inequalities = None
    else:
        view.__dict__["_compiled"] = problem._compiled
    if low.any() or high.any():
        rows = _bound_rows(problem.limits, np.flatnonzero(low), np.flatnonzero(high))
        natural = view.inequality if view.violation is None else view.violation
        view.inequality, view.violation = _joined(view.inequality, rows), _joined(natural, rows)
        view._some_inequalities = None
    return view


def fixed_multipliers(
    problem: Problem, inequality: NDArray[np.float64], lower: NDArray[np.float64], upper: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Multipliers of `problem` (rows first) as those of its twin with fixed bounds, in the same order."""
    if problem.limits.functions is None:
        return inequality, lower, upper
    low, high = moving_bounds(problem)
    moved = np.concatenate([inequality, lower[:, low], upper[:, high]], axis=1)
    return moved, np.where(low, 0.0, lower), np.where(high, 0.0, upper)


def own_multipliers(
    problem: Problem, inequality: NDArray[np.float64], lower: NDArray[np.float64], upper: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """The way back: multipliers of the twin with fixed bounds as those of `problem`."""
    if problem.limits.functions is None:
        return inequality, lower, upper
    low, high = moving_bounds(problem)
    lower, upper = lower.copy(), upper.copy()
    first, second = problem.n_inequalities, problem.n_inequalities + int(low.sum())
    lower[:, low], upper[:, high] = inequality[:, first:second], inequality[:, second:]
    return inequality[:, :first], lower, upper


_KEPT = (
    "name", "objective", "equality", "inequality", "violation", "sampler", "spec", "drawing", "spread", "nominal",
    "start", "first_guess", "input_names", "output_names", "blocks", "inputs", "_box", "_inputs_named",
    "_some_inequalities",
)  # fmt: skip


def moving_bounds(problem: Problem) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which lower and upper bounds change with the input other than by meeting."""
    from feasibly.problem.sampling import sample

    if problem.spec is not None:  # in the built-in family bounds meet or stay
        none = np.zeros(problem.n_outputs, dtype=bool)
        return none, none
    x = np.concatenate([problem.nominal[None], sample(problem, 64, seed=1)])
    with double():
        search = jax.jit(jax.vmap(twin(lambda row: jnp.stack(problem.limits.search(row)))))
        found = np.asarray(search(x))
    low, high = (found[:, k] != found[0, k] for k in (0, 1))
    return low.any(axis=0), high.any(axis=0)


def _held(function: Callable[..., Any], hold: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, y: function(x, hold(x, y))


def _bound_rows(limits: Bounds, low: NDArray[np.int64], high: NDArray[np.int64]) -> Callable[[Any, Any], Any]:
    def rows(x: Any, y: Any) -> Any:
        lower, upper = limits.at(x)
        closed = lower >= upper
        below = jnp.where(closed, -_ROOM, lower - y)
        above = jnp.where(closed, -_ROOM, y - upper)
        return jnp.concatenate([below[low], above[high]])

    return rows


def _joined(first: Callable[..., Any] | None, second: Callable[..., Any]) -> Callable[..., Any]:
    if first is None:
        return second
    return lambda x, y: jnp.concatenate([first(x, y), second(x, y)])
