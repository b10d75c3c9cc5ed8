"""How a solution moves with the input: `dy*/dx` and the multipliers', from one factorisation.

At a solution the optimality conditions are a system of equations in `(y, multipliers)` with `x` as a parameter;
the implicit function theorem turns its Jacobian, the KKT matrix, into the derivative. Constraints that hold with
equality and a positive multiplier stay tight, the others stay slack; where an instance sits between the two the
derivative from either side differs and the one returned is in between.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import casadi
import numpy as np
import scipy.sparse as sparse
from numpy.typing import ArrayLike
from scipy.sparse.linalg import splu

from feasibly.problem.errors import FeasiblyError
from feasibly.problem.point import Point
from feasibly.solve.model import Model
from feasibly.solve.records import Array

_SLACK_FLOOR = 1e-12
_REGULARISATION = 1e-10


@dataclass(frozen=True, eq=False)
class Sensitivity:
    """Derivatives of a solution in the problem's own units, one column a direction of the input.

    Without directions the columns are the inputs themselves, so `y` is the Jacobian `(n_outputs, n_inputs)`.
    """

    y: Array
    equality: Array
    """Of the multipliers of equalities."""
    inequality: Array
    """Of the multipliers of inequalities."""


class Differentiator:
    """Sensitivities of one model; its functions are built once. Made by `Solver.sensitivity`."""

    def __init__(self, model: Model) -> None:
        self.model = model
        y, x = casadi.SX.sym("y", len(model.lower)), casadi.SX.sym("x", len(model.nominal))
        nu, z = casadi.SX.sym("nu", model.n_equalities), casadi.SX.sym("z", model.n_inequalities)
        objective, rows = model.nlp(y, x)
        slope = casadi.densify(casadi.gradient(objective + casadi.dot(casadi.vertcat(nu, z), rows), y))
        outputs = [
            rows,
            casadi.jacobian(slope, y, {"symmetric": True}),
            casadi.jacobian(rows, y),
            casadi.jacobian(slope, x),
            casadi.jacobian(rows, x),
        ]
        self._derivatives = casadi.Function("derivatives", [y, x, nu, z], outputs)
        if model.bounds is not None:
            slopes = [casadi.jacobian(bound, x) for bound in model.bounds(x)]
            self._bound_slopes = casadi.Function("bound_slopes", [x], slopes)

    def differentiate(
        self, x: Array, point: Point, directions: Array | None, *, tight: bool = False
    ) -> Sensitivity:
        """The derivative of the solution `point` of `x`, along the columns of `directions` (all inputs if `None`).

        `tight`: every inequality with a multiplier holds with equality, whatever room it seems to have.
        """
        model, duals = self.model, point.duals
        lower, upper = model.bounds_at(x)
        ne, free = model.n_equalities, np.flatnonzero(lower < upper)
        raw = self._derivatives(point.y, x, duals.equality, duals.inequality)
        rows = np.asarray(raw[0]).ravel()
        hessian, jacobian, slope_x, rows_x = (part.sparse().tocsc() for part in raw[1:])
        if model.bounds is not None:
            # Pinned outputs go where their bounds go, and take the rest with them.
            low_x, high_x = (part.sparse().tocsr() for part in self._bound_slopes(x))
            pinned = sparse.diags((lower >= upper).astype(np.float64))
            slope_x, rows_x = slope_x + hessian @ pinned @ low_x, rows_x + jacobian @ pinned @ low_x
            slope_x, rows_x = slope_x.tocsr(), rows_x.tocsr()
        hessian, jacobian, slope_x = hessian[free][:, free], jacobian[:, free], slope_x[free]
        equality, inequality = jacobian[:ne], jacobian[ne:]
        # An inequality with multiplier z and slack s pulls back with z / s: without end where it is tight. One that
        # presses gets a row of its own instead, with s / z in the corner, so that nothing large is added to anything.
        slack = np.maximum(-rows[ne:], _SLACK_FLOOR)
        if tight:
            slack = np.where(duals.inequality > 0.0, _SLACK_FLOOR, slack)
        presses = duals.inequality > slack
        weight = np.where(presses, 0.0, duals.inequality / slack)
        give = np.full(ne + int(presses.sum()), _REGULARISATION)
        give[ne:] += slack[presses] / duals.inequality[presses]
        below = duals.lower[free] / np.maximum(point.y - lower, _SLACK_FLOOR)[free]
        above = duals.upper[free] / np.maximum(upper - point.y, _SLACK_FLOOR)[free]
        block = hessian + inequality.T @ sparse.diags(weight) @ inequality + sparse.diags(below + above)
        held = sparse.vstack([equality, inequality[np.flatnonzero(presses)]]).tocsr()
        system = sparse.bmat([[block, held.T], [held, -sparse.diags(give)]], format="csc")
        pull = slope_x + inequality.T @ sparse.diags(weight) @ rows_x[ne:]
        if model.bounds is not None:
            pull = pull - sparse.diags(below) @ low_x[free] - sparse.diags(above) @ high_x[free]
        right = sparse.vstack([pull, rows_x[:ne], rows_x[ne:][np.flatnonzero(presses)]]).tocsc()
        right = right.toarray() if directions is None else right @ directions
        change = -_solve(system, right)
        moved = np.zeros((len(model.lower), right.shape[1]))
        if model.bounds is not None:
            moved = low_x.toarray() if directions is None else low_x @ directions
        moved[free] = change[: len(free)]
        tightening = inequality @ change[: len(free)] + (
            rows_x[ne:].toarray() if directions is None else rows_x[ne:] @ directions
        )
        pressing = weight[:, None] * tightening
        pressing[presses] = change[len(free) + ne :]
        return Sensitivity(y=moved, equality=change[len(free) : len(free) + ne], inequality=pressing)


def _solve(system: Any, right: Array) -> Array:
    try:
        factors = splu(system)
    except RuntimeError:
        raise FeasiblyError(
            "the solution does not have a derivative here: the optimality conditions are singular, as where "
            "constraints depend on each other or an output does not matter"
        ) from None
    answer = factors.solve(right)
    return answer + factors.solve(right - system @ answer)


def check_directions(directions: ArrayLike | None, n_inputs: int) -> Array | None:
    """Directions as a matrix with one row an input."""
    if directions is None:
        return None
    matrix = np.asarray(directions, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != n_inputs:
        raise FeasiblyError(f"directions should have shape ({n_inputs}, any), not {matrix.shape}")
    return matrix
