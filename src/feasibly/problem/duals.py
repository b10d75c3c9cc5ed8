"""What multipliers say about a point: stationarity, those of fixed outputs, and whether they are the only ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import qr

from feasibly.precision import double
from feasibly.problem.core import Problem
from feasibly.problem.point import Duals

Array = NDArray[np.float64]

TIGHT = 1e-6
"""Room, in natural units, below which a constraint may have a multiplier."""
DEPENDENT = 1e-9
"""Gradients of unit length are dependent when what is left of one beside the others is shorter than this."""
CERTAIN = 1e-4
"""If more is left of each, their products are enough to say so: squared, it is far above rounding."""
SIZES = tuple(8 * 4**k for k in range(12))
"""How many inequalities' gradients are compiled for at once, smallest first."""


def with_fixed(problem: Problem, x: Array, y: Array, duals: Duals) -> Duals:
    """`duals` with those of fixed outputs filled in, by stationarity: nobody who leaves such outputs out knows them."""
    low, high = problem.bounds(x)
    fixed = low == high
    if not fixed.any():
        return duals
    slope = np.where(fixed, stationarity(problem, x, y, duals), 0.0)
    lower, upper = duals.lower + np.maximum(slope, 0.0), duals.upper + np.maximum(-slope, 0.0)
    return replace(duals, lower=lower, upper=upper)


def stationarity(problem: Problem, x: Array, y: Array, duals: Duals) -> Array:
    """The gradient of the Lagrangian in `y`, zero at a solution: `(rows, n_outputs)`."""
    slope = _slopes(problem)
    with double():
        parts = (duals.equality, duals.inequality)
        free = slope(np.asarray(x), np.asarray(y), *(np.asarray(part) for part in parts))
        return np.asarray(free) - duals.lower + duals.upper


def unique(problem: Problem, x: Array, y: Array) -> NDArray[np.bool_]:
    """Which rows have one set of multipliers only: the gradients of all constraints that hold with equality at `y` are
    independent of each other.

    Where they are not, multipliers and prices are one choice of several, and another solver may make another one.
    """
    slack = -problem.violations(x, y)
    lower, upper = problem.bounds(x)
    found = np.zeros(len(y), dtype=bool)
    gradients = _gradients(problem)
    for row in np.flatnonzero(np.isfinite(y).all(axis=1)):
        moving = (y[row] - lower[row] > TIGHT) & (upper[row] - y[row] > TIGHT)
        tight = np.flatnonzero(slack[row] <= TIGHT)
        found[row] = _independent(gradients(x[row], y[row], tight)[:, moving])
    return found


def _independent(gradients: Array) -> bool:
    if not len(gradients):
        return True
    length = np.linalg.norm(gradients, axis=1)
    if gradients.shape[0] > gradients.shape[1] or (length < DEPENDENT).any():
        return False
    scaled = gradients / length[:, None]
    rows = sparse.csr_matrix(scaled)
    try:
        # The diagonal is what is left of each gradient beside those before it, as long as rounding is no part of it.
        if np.diag(np.linalg.cholesky((rows @ rows.T).toarray())).min() > CERTAIN:
            return True
    except np.linalg.LinAlgError:
        pass
    (triangle,) = qr(scaled.T, mode="r", pivoting=True)[:1]
    return bool(np.abs(np.diag(triangle)).min() > DEPENDENT)


def _gradients(problem: Problem) -> Callable[[Array, Array, NDArray[np.int64]], Array]:
    """The gradients at one point of all equalities, and of these inequalities."""
    made: Callable[..., Array] | None = problem.__dict__.get("_constraint_gradients")
    if made is not None:
        return made

    def of(function: Any) -> Any:
        """Of the sums of a function's values with these weights, each."""
        return jax.jit(lambda x, y, weights: jax.vmap(jax.vjp(lambda at: function(x, at), y)[1])(weights)[0])

    every = None if problem.equality is None else of(problem.equality)
    some = None if problem.inequality is None else of(problem.inequality)

    def gradients(x: Array, y: Array, tight: NDArray[np.int64]) -> Array:
        parts = [np.zeros((0, len(y)))]
        with double():
            if every is not None:
                parts.append(np.asarray(every(x, y, np.eye(problem.n_equalities))))
            if some is not None and len(tight):
                size = next(size for size in SIZES if size >= len(tight))
                weights = np.zeros((size, problem.n_inequalities))
                weights[np.arange(len(tight)), tight] = 1.0
                parts.append(np.asarray(some(x, y, weights))[: len(tight)])
        return np.concatenate(parts)

    problem.__dict__["_constraint_gradients"] = gradients
    return gradients


def _slopes(problem: Problem) -> Callable[..., Any]:
    """Compiled once a problem."""
    made: Callable[..., Any] | None = problem.__dict__.get("_lagrangian_slopes")
    if made is not None:
        return made

    def lagrangian(y: Any, x: Any, equality: Any, inequality: Any) -> Any:
        total = problem.objective(x, y)
        if problem.equality is not None:
            total = total + equality @ problem.equality(x, y)
        if problem.inequality is not None:
            total = total + inequality @ problem.inequality(x, y)
        return total

    slope = jax.grad(lagrangian)
    rows = jax.jit(jax.vmap(lambda x, y, equality, inequality: slope(y, x, equality, inequality)))
    problem.__dict__["_lagrangian_slopes"] = rows
    return rows
