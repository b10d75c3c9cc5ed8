"""The Lagrange dual of a user's convex problem, from any multipliers.

With a convex cost, convex inequalities and affine equalities the Lagrangian is convex in `y`, so it lies above its
tangent at any point. Minimised over the bounds, which is done output by output, that is a lower bound on the cost of
every feasible answer. Curvature that the cost has everywhere is kept, so that outputs without bounds are bounded too.

Convexity is not taken on trust: the functions must be polynomials in `y` by their operations, of degree two at most,
and their second derivatives must not be negative at the row's own input.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from feasibly.arrays import padded
from feasibly.precision import double
from feasibly.problem.core import Problem
from feasibly.problem.errors import FeasiblyError
from feasibly.problem.point import Duals
from feasibly.replay import replay

Array = NDArray[np.float64]

_WORDS = """
    add sub mul neg dot_general reduce_sum integer_pow square add_any scatter-add scatter gather concatenate reshape
    stack broadcast_in_dim squeeze slice dynamic_slice transpose convert_element_type copy cumsum pad rev split
    stop_gradient expand_dims
"""
POLYNOMIAL = frozenset(_WORDS.split())
"""Operations that make polynomials of polynomials."""
LARGEST = 400
"""Outputs above which second derivatives are not worth making."""


def convex_bound(problem: Problem, x: Array, y: Array, duals: Duals) -> Array:
    """A lower bound on the cost of every feasible answer, by row.

    Raises:
        FeasiblyError: the problem is not recognised as convex.
    """
    _check_operations(problem)
    known = np.flatnonzero(duals.known & np.isfinite(y).all(axis=1) & np.isfinite(x).all(axis=1))
    lower = np.full(len(x), np.nan)
    if not len(known):
        return lower
    run = _parts(problem)
    rows = (x[known], y[known], duals.equality[known], np.maximum(duals.inequality[known], 0.0))
    with double():
        found = [np.asarray(part)[: len(known)] for part in run(*(padded(part) for part in rows))]
    value, size, slope, least, worst, bent, off = found
    scale = 1.0 + np.abs(least)
    if (off > 1e-7 * (1.0 + bent)).any():
        raise FeasiblyError(_sentence(problem, "its functions have a degree above two in the outputs"))
    if (least < -1e-9 * scale).any() or (worst < -1e-9 * (1.0 + bent)).any():
        raise FeasiblyError(_sentence(problem, "second derivatives are negative in some direction"))
    curved = np.maximum(least - 1e-9 * scale, 0.0)[:, None]
    box_low, box_high = problem.lower - rows[1], problem.upper - rows[1]
    with np.errstate(invalid="ignore", divide="ignore"):
        ends = np.where(slope > 0.0, box_low, box_high)
        inner = np.clip(
            np.where(curved > 0.0, -slope / np.where(curved > 0.0, curved, 1.0), ends), box_low, box_high
        )
        parts = np.where(slope == 0.0, 0.0, slope * inner) + np.where(
            curved > 0.0, 0.5 * curved * inner**2, 0.0
        )
    total = value + parts.sum(axis=1)
    size = size + np.abs(np.where(np.isfinite(parts), parts, 0.0)).sum(axis=1)
    operations = 16 * (problem.n_outputs + problem.n_equalities + problem.n_inequalities) + 256
    lower[known] = total - operations * np.finfo(np.float64).eps * size
    return lower


def _parts(problem: Problem) -> Callable[..., Any]:
    """Value and gradient of the Lagrangian, and what is needed to know that it is convex, for rows."""
    made: Callable[..., Any] | None = problem.__dict__.get("_convex_parts")
    if made is not None:
        return made

    def objective(x: Any, y: Any) -> Any:
        return problem.objective(x, y)

    def constraints(x: Any, y: Any) -> tuple[Any, Any]:
        none = y[:0]
        equality = none if problem.equality is None else problem.equality(x, y)
        inequality = none if problem.inequality is None else problem.inequality(x, y)
        return equality, inequality

    def one(x: Any, y: Any, nu: Any, mu: Any) -> tuple[Any, ...]:
        c, h = constraints(x, y)
        cost = objective(x, y)

        def lagrangian(at: Any) -> Any:
            c, h = constraints(x, at)
            return objective(x, at) + nu @ c + mu @ h

        size = jnp.abs(cost) + jnp.sum(jnp.abs(nu * c)) + jnp.sum(jnp.abs(mu * h))
        elsewhere = y + 1.0 + jnp.arange(len(y)) % 7
        second = jax.hessian(objective, argnums=1)(x, y)
        off = jnp.max(jnp.abs(second - jax.hessian(objective, argnums=1)(x, elsewhere)), initial=0.0)
        bent = jax.jacfwd(jax.jacfwd(constraints, argnums=1), argnums=1)
        (c2, h2), (c3, h3) = bent(x, y), bent(x, elsewhere)
        off = jnp.maximum(off, jnp.max(jnp.abs(h2 - h3), initial=0.0))
        # An equality that bends is no affine one: its second derivatives count as being off.
        off = jnp.maximum(
            off, jnp.maximum(jnp.max(jnp.abs(c2), initial=0.0), jnp.max(jnp.abs(c3), initial=0.0))
        )
        worst = jnp.min(jnp.linalg.eigvalsh(h2), initial=0.0)
        size_of = jnp.maximum(jnp.max(jnp.abs(second), initial=0.0), jnp.max(jnp.abs(h2), initial=0.0))
        least = jnp.min(jnp.linalg.eigvalsh(second))
        return lagrangian(y), size, jax.grad(lagrangian)(y), least, worst, size_of, off

    rows = jax.jit(jax.vmap(one))
    problem.__dict__["_convex_parts"] = rows
    return rows


def _check_operations(problem: Problem) -> None:
    if problem.n_outputs > LARGEST:
        raise FeasiblyError(_sentence(problem, f"above {LARGEST} outputs convexity is not looked for"))
    for function in (problem.objective, problem.equality, problem.inequality):
        if function is not None:
            with double():
                traced = jax.make_jaxpr(lambda x, y, f=function: f(x, y))(problem.nominal, problem.start)
            try:
                replay(traced, [False, True], _polynomial, lambda value: False)
            except _OddError as odd:
                raise FeasiblyError(_sentence(problem, f"{odd} of outputs is no polynomial")) from None


class _OddError(Exception):
    """The first operation on outputs that does not make a polynomial."""


def _polynomial(equation: Any, moving: list[bool]) -> list[bool]:
    """Which results depend on outputs; operations on inputs alone may be anything."""
    if any(moving):
        name = equation.primitive.name
        inner = equation.params.get("jaxpr") or equation.params.get("call_jaxpr")
        if inner is not None:
            # In a loop values go around: whatever one of them moves is taken to move all.
            given = [True] * len(moving) if name == "scan" else moving
            replay(inner, given, _polynomial, lambda value: False)
        elif name == "integer_pow" and equation.params["y"] < 0:
            raise _OddError("a negative power")
        elif name not in POLYNOMIAL and not (name == "div" and not moving[1]):
            raise _OddError(name)
    return [any(moving)] * len(equation.outvars)


def _sentence(problem: Problem, why: str) -> str:
    return (
        f"no lower bound is known for {problem.name}: it is not a grid, and not recognised as convex ({why}); leave "
        "out prove, or certify the proxy for a statistical promise"
    )
