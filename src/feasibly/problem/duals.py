"""What multipliers say about a point: stationarity, those of fixed outputs, and whether they are the only ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray
from scipy.linalg import qr

from feasibly.precision import double
from feasibly.problem.core import Problem
from feasibly.problem.point import Duals

Array = NDArray[np.float64]

TIGHT = 1e-6
"""Room, in natural units, below which a constraint may have a multiplier."""
DEPENDENT = 1e-9
"""Gradients of unit length are dependent when what is left of one beside the others is shorter than this."""


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
    for row in np.flatnonzero(np.isfinite(y).all(axis=1)):
        moving = (y[row] - lower[row] > TIGHT) & (upper[row] - y[row] > TIGHT)
        with double():
            equality, inequality = _jacobians(problem)(x[row], y[row])
        tight = slack[row] <= TIGHT
        gradients = np.concatenate([equality, np.asarray(inequality)[tight]])[:, moving]
        found[row] = _independent(gradients)
    return found


def _independent(gradients: Array) -> bool:
    if not len(gradients):
        return True
    length = np.linalg.norm(gradients, axis=1)
    if gradients.shape[0] > gradients.shape[1] or (length < DEPENDENT).any():
        return False
    (triangle,) = qr((gradients / length[:, None]).T, mode="r", pivoting=True)[:1]
    return bool(np.abs(np.diag(triangle)).min() > DEPENDENT)


def _jacobians(problem: Problem) -> Callable[..., Any]:
    made: Callable[..., Any] | None = problem.__dict__.get("_constraint_jacobians")
    if made is not None:
        return made

    def constraints(x: Any, y: Any) -> tuple[Any, Any]:
        empty = y[:0]
        equality = empty if problem.equality is None else problem.equality(x, y)
        inequality = empty if problem.inequality is None else problem.inequality(x, y)
        return equality, inequality

    both = jax.jit(jax.jacfwd(constraints, argnums=1))
    problem.__dict__["_constraint_jacobians"] = both
    return both


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
