"""Derivatives of a problem and its candidate inequalities, compiled once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from feasibly.answer.candidates import Candidates
from feasibly.precision import double
from feasibly.problem.core import Problem
from feasibly.quick import quick

Array = NDArray[np.float64]

_COLUMNS = 256


class Derivatives:
    """Compiled Jacobians and Hessian of one problem and one set of candidates, a block of columns at a time."""

    def __init__(self, problem: Problem, candidates: Candidates) -> None:
        pieces = lagrangian_pieces(problem, candidates)
        slope = jax.grad(pieces.lagrangian, argnums=1)
        self._size = problem.n_outputs
        self._width = min(_COLUMNS, self._size)

        def blocks(along: Callable[..., Any]) -> Callable[..., Any]:
            return jax.jit(jax.vmap(along, in_axes=(None, None, None, None, -1), out_axes=-1))

        self._equality = blocks(
            lambda x, y, nu, lam, v: jax.jvp(lambda u: pieces.equality(x, u), (y,), (v,))[1]
        )
        self._inequality = blocks(
            lambda x, y, nu, lam, v: jax.jvp(lambda u: pieces.inequality(x, u), (y,), (v,))[1]
        )
        self._curvature = blocks(
            lambda x, y, nu, lam, v: jax.jvp(lambda u: slope(x, u, nu, lam), (y,), (v,))[1]
        )
        self._slope = jax.jit(slope)

    def at(self, x: Array, y: Array, nu: Array, lam: Array) -> tuple[Array, Array, Array]:
        """Jacobians of equalities and candidate inequalities, and the Hessian of the Lagrangian."""
        parts: list[list[Array]] = [[], [], []]
        with double():
            for first in range(0, self._size, self._width):
                count = min(self._width, self._size - first)
                block = np.zeros((self._size, self._width))
                block[first + np.arange(count), np.arange(count)] = 1.0
                for part, along in zip(
                    parts, (self._equality, self._inequality, self._curvature), strict=True
                ):
                    part.append(np.asarray(along(x, y, nu, lam, block))[:, :count])
        jacobian, normals, curvature = (np.concatenate(part, axis=1) for part in parts)
        return jacobian, normals, curvature

    def slope(self, x: Array, y: Array, nu: Array, lam: Array) -> Array:
        """The gradient of the Lagrangian (bounds left out)."""
        with double():
            return np.asarray(self._slope(x, y, nu, lam))


class Pieces(NamedTuple):
    """A problem's functions with absent ones made empty, inequalities restricted to the candidates."""

    objective: Callable[[Any, Any], Any]
    equality: Callable[[Any, Any], Any]
    inequality: Callable[[Any, Any], Any]
    lagrangian: Callable[[Any, Any, Any, Any], Any]


def lagrangian_pieces(problem: Problem, candidates: Candidates) -> Pieces:
    """Fresh functions (never compiled elsewhere in another precision) for one set of candidates."""
    inequality = problem.only(candidates.inequality)

    def objective(x: Any, y: Any) -> Any:
        return problem.objective(x, y)

    def equality(x: Any, y: Any) -> Any:
        return jnp.zeros(0) if problem.equality is None else problem.equality(x, y)

    def lagrangian(x: Any, y: Any, nu: Any, lam: Any) -> Any:
        return objective(x, y) + jnp.dot(nu, equality(x, y)) + jnp.dot(lam, inequality(x, y))

    return Pieces(quick(objective), quick(equality), quick(inequality), quick(lagrangian))
