"""The Lagrange dual of a user's convex problem, from any multipliers.

With a convex cost, convex inequalities and affine equalities the Lagrangian is convex in `y`, so it lies above its
tangent at any point. Minimised over the row's bounds, which is done output by output, that is a lower bound on the
cost of every feasible answer. Curvature that the cost has everywhere is kept, so that outputs without bounds are
bounded too.

Convexity is not taken on trust: the functions must be polynomials in `y` by their operations, of degree two at most
(`polynomial`), so that second derivatives at one point are those everywhere, and these must not be negative at the
row's own input. Value, slope and curvature are each taken as low as rounding may have left them, by the sizes of the
terms that they are sums of.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from feasibly.arrays import padded
from feasibly.bound.polynomial import NoPolynomialError, follow
from feasibly.precision import double
from feasibly.problem.core import Problem
from feasibly.problem.errors import FeasiblyError
from feasibly.problem.point import Duals, Point

Array = NDArray[np.float64]

LARGEST = 400
"""Outputs above which second derivatives are not worth making."""
NEGATIVE = 1e-9
"""Curvature below minus so much of the largest second derivative is negative, and not rounding."""
PRESSING = 1e-6
"""An inequality with a larger multiplier, of a cost of one for each violation, is there to be changed."""
EPS = float(np.finfo(np.float64).eps)


def convex_bound(problem: Problem, x: Array, y: Array, duals: Duals) -> Array:
    """A lower bound on the cost of every feasible answer, by row; NaN where the problem is not convex at a row's input.

    Raises:
        FeasiblyError: the problem is not recognised as convex, at no row's input.
    """
    lower, negative = _bounds(problem, x, y, duals, free=False)
    if len(negative) and negative.all():
        raise FeasiblyError(_sentence(problem, "second derivatives are negative in some direction"))
    return lower


def proves_infeasible(problem: Problem, x: Array, point: Point) -> NDArray[np.bool_]:
    """Whether these multipliers prove, row by row, that no answer is feasible.

    They do where a Lagrangian in which every answer costs nothing is above zero throughout the row's bounds. Its slope
    is to be zero along outputs that no bound holds, or wide bounds lose everything: the multipliers are changed as
    little as that takes.
    """
    ways = point.duals, _straightened(problem, x, point)
    found = [_bounds(problem, x, point.y, duals, free=True)[0] > 0.0 for duals in ways]
    return np.asarray(found[0] | found[1])


def _straightened(problem: Problem, x: Array, point: Point) -> Duals:
    """The multipliers, changed by least squares until no output between its bounds has a slope."""
    y, duals = point.y, point.duals
    low, high = problem.bounds(x)
    between = (duals.lower <= y - low) & (duals.upper <= high - y) & (low < high)
    nu, mu = duals.equality.copy(), np.maximum(duals.inequality, 0.0)
    with double():
        normals = [np.asarray(part) for part in _normals(problem)(x, y)]
    for row in range(len(x)):
        pressing = mu[row] > PRESSING
        normal = np.concatenate([normals[0][row], normals[1][row][pressing]])[:, between[row]]
        rest = nu[row] @ normals[0][row] + mu[row] @ normals[1][row]
        change = -np.linalg.lstsq(normal.T, rest[between[row]], rcond=None)[0]
        nu[row] += change[: len(nu[row])]
        mu[row, pressing] = np.maximum(mu[row, pressing] + change[len(nu[row]) :], 0.0)
    return replace(duals, equality=nu, inequality=mu)


def _normals(problem: Problem) -> Callable[..., Any]:
    """Jacobians of equalities and inequalities, for rows."""

    def one(x: Any, y: Any) -> tuple[Any, ...]:
        functions = problem.equality, problem.inequality
        nothing = jnp.zeros((0, len(y)))
        return tuple(nothing if f is None else jax.jacfwd(lambda at, f=f: f(x, at))(y) for f in functions)

    return jax.vmap(one)


def _bounds(
    problem: Problem, x: Array, y: Array, duals: Duals, *, free: bool
) -> tuple[Array, NDArray[np.bool_]]:
    """Lower bounds by row, of nothing where answers are `free`, and which of the rows with multipliers bend down."""
    if problem.n_outputs > LARGEST:
        raise FeasiblyError(_sentence(problem, f"above {LARGEST} outputs convexity is not looked for"))
    run = _parts(problem, free)
    known = np.flatnonzero(duals.known & np.isfinite(y).all(axis=1) & np.isfinite(x).all(axis=1))
    rows = (x[known], y[known], duals.equality[known], np.maximum(duals.inequality[known], 0.0))
    try:
        with double():
            found = [np.asarray(part)[: len(known)] for part in run(*(padded(part) for part in rows))]
    except NoPolynomialError as odd:
        raise FeasiblyError(_sentence(problem, str(odd))) from None
    value, unsure, slope, unsure_slope, curvature, negative = found
    low, high = (bound - rows[1] for bound in problem.bounds(x[known]))
    # Of the differences, too, rounding may have taken something: the box is as much wider.
    wider = 2.0 * EPS * np.abs(rows[1])
    low, high = low - wider - EPS * np.abs(low), high + wider + EPS * np.abs(high)
    # The least is a concave function of the slope, so that one end of what the slope may be has the least of all.
    parts = np.minimum(
        _least(slope - unsure_slope, curvature[:, None], low, high),
        _least(slope + unsure_slope, curvature[:, None], low, high),
    )
    total = value + parts.sum(axis=1)
    summed = np.abs(value) + np.abs(np.where(np.isfinite(parts), parts, 0.0)).sum(axis=1)
    lower = np.full(len(x), np.nan)
    lower[known] = np.where(negative, np.nan, total - unsure - (problem.n_outputs + 8) * EPS * summed)
    return lower, negative


def _least(slope: Array, curvature: Array, low: Array, high: Array) -> Array:
    """The least value of `slope t + curvature t^2 / 2` between `low` and `high`, for each entry."""
    curved = curvature > 0.0
    with np.errstate(invalid="ignore", divide="ignore"):
        inside = np.clip(-slope / np.where(curved, curvature, 1.0), low, high)
        at = [np.where(curved, inside, end) for end in (low, high)]
        values = [
            np.where(slope == 0.0, 0.0, slope * t) + np.where(curvature == 0.0, 0.0, 0.5 * curvature * t**2)
            for t in at
        ]
    return np.asarray(np.minimum(*values))


def _parts(problem: Problem, free: bool) -> Callable[..., Any]:
    """For rows, at their answers: the Lagrangian and its gradient, by how much either may be off, the least curvature
    that it can have, and whether second derivatives are negative."""
    kept = problem.__dict__.setdefault("_convex_parts", {})
    made: Callable[..., Any] | None = kept.get(free)
    if made is not None:
        return made

    def nothing(x: Any, y: Any) -> Any:
        return y[:0]

    def costs_nothing(x: Any, y: Any) -> Any:
        return jnp.zeros(())

    cost = costs_nothing if free else problem.objective
    functions = cost, problem.equality or nothing, problem.inequality or nothing

    def one(x: Any, y: Any, nu: Any, mu: Any) -> tuple[Any, ...]:
        def each(at: Any, sizes: Any) -> Any:
            return [follow(function, x, at, sizes) for function in functions]

        large = jnp.abs(y)
        followed = each(y, large)
        if followed[1].degree > 1:
            raise NoPolynomialError("an equality is not affine in the outputs")
        n, eps = len(y), EPS * (sum(part.operations for part in followed) + len(nu) + len(mu) + 8)

        def lagrangian(at: Any) -> Any:
            cost, equality, inequality = (part.value for part in each(at, large))
            return cost + nu @ equality + mu @ inequality

        def size(at: Any) -> Any:
            cost, equality, inequality = (part.size for part in each(y, at))
            return cost + jnp.abs(nu) @ equality + mu @ inequality

        def second(index: int) -> tuple[Any, Any]:
            values = jax.jacfwd(jax.jacfwd(lambda at: each(at, large)[index].value))(y)
            sizes = jax.jacfwd(jax.jacfwd(lambda at: each(y, at)[index].size))(large)
            return values, jnp.max(jnp.sum(sizes, axis=-1), axis=-1, initial=0.0)  # bounds all eigenvalues

        def least(matrix: Any) -> Any:
            return jnp.min(jnp.linalg.eigvalsh(matrix), axis=-1, initial=jnp.inf)

        (of_cost, largest), (of_inequality, largest_each) = second(0), second(2)
        own, others = least(of_cost), least(of_inequality)
        unsure = 4.0 * eps + 16.0 * n * EPS
        bent = jnp.maximum(largest, jnp.max(largest_each, initial=0.0))
        negative = (own < -NEGATIVE * bent) | jnp.any(others < -NEGATIVE * largest_each)
        curvature = own - unsure * largest + mu @ (jnp.minimum(others, 0.0) - unsure * largest_each)
        slope, unsure_slope = jax.grad(lagrangian)(y), 4.0 * eps * jax.grad(size)(large)
        return lagrangian(y), 2.0 * eps * size(large), slope, unsure_slope, curvature, negative

    rows = jax.jit(jax.vmap(one))
    kept[free] = rows
    return rows


def _sentence(problem: Problem, why: str) -> str:
    return (
        f"no lower bound is known for {problem.name}: it is not a grid, and not recognised as convex ({why}); leave "
        "out prove, or certify the proxy for a statistical promise"
    )
