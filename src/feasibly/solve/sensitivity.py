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
from numpy.typing import ArrayLike, NDArray
from scipy.sparse.linalg import splu

from feasibly.problem.errors import FeasiblyError
from feasibly.problem.point import Point
from feasibly.solve.compiled import Compiled
from feasibly.solve.condensed import Condensed
from feasibly.solve.model import NlpModel
from feasibly.solve.records import Array
from feasibly.solve.settings import SolverSettings

Mask = NDArray[np.bool_]


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
    """Sensitivities of one model; its functions and their patterns are built once. Made by `Solver.sensitivity`."""

    def __init__(self, model: NlpModel, settings: SolverSettings) -> None:
        self.model, self.settings = model, settings
        y, x = casadi.SX.sym("y", len(model.lower)), casadi.SX.sym("x", len(model.nominal))
        nu, z = casadi.SX.sym("nu", model.n_equalities), casadi.SX.sym("z", model.n_inequalities)
        objective, rows = model.nlp(y, x)
        gradient = casadi.densify(casadi.gradient(objective + casadi.dot(casadi.vertcat(nu, z), rows), y))
        outputs = [
            casadi.densify(rows),
            casadi.jacobian(gradient, y, {"symmetric": True}),
            casadi.jacobian(rows, y),
            casadi.jacobian(gradient, x),
            casadi.jacobian(rows, x),
        ]
        function = casadi.Function("derivatives", [y, x, nu, z], outputs)
        self._derivatives = Compiled(function)
        self._patterns = [_pattern(function.sparsity_out(k)) for k in range(1, len(outputs))]
        (self._hessian_rows, self._hessian_columns), (self._rows, self._columns) = (
            (part.indices, np.repeat(np.arange(part.shape[1]), np.diff(part.indptr)))
            for part in self._patterns[:2]
        )
        self._condensed = Condensed(model, settings) if model.bounds is None else None
        if model.bounds is not None:
            slopes = [casadi.jacobian(bound, x) for bound in model.bounds(x)]
            self._bound_slopes = casadi.Function("bound_slopes", [x], slopes)

    def differentiate(
        self, x: Array, point: Point, directions: Array | None, *, tight: bool = False
    ) -> Sensitivity:
        """The derivative of the solution `point` of `x`, along the columns of `directions` (all inputs if `None`).

        `tight`: every inequality with a multiplier holds with equality, whatever room it seems to have.
        """
        model, duals, floor = self.model, point.duals, self.settings.slack_floor
        lower, upper = model.bounds_at(x)
        ne, is_free = model.n_equalities, lower < upper
        free = np.flatnonzero(is_free)
        along = np.eye(len(x)) if directions is None else directions
        if tight and self._condensed is not None and 0 < along.shape[1] <= self.settings.condensed_directions:
            found = self._condensed.solve(x, point, along)
            if found is not None:
                moved = np.zeros((len(lower), along.shape[1]))
                moved[free] = found[0]
                return Sensitivity(moved, *found[1:])
        rows, *entries = self._derivatives(point.y, x, duals.equality, duals.inequality)
        hessian, jacobian, gradient_x, rows_x = (
            sparse.csc_matrix((values, part.indices, part.indptr), shape=part.shape)
            for values, part in zip(entries, self._patterns, strict=True)
        )
        gradient_change, row_change = gradient_x @ along, rows_x @ along
        moved = np.zeros((len(lower), along.shape[1]))
        if model.bounds is not None:
            # Pinned outputs go where their bounds go, and take the rest with them.
            low, high = (part.sparse().tocsr() @ along for part in self._bound_slopes(x))
            moved = np.where(is_free[:, None], 0.0, low)
            gradient_change, row_change = gradient_change + hessian @ moved, row_change + jacobian @ moved
        # An inequality with multiplier z and slack s adds z / s to the Hessian: without end where it is tight. One that
        # is active gets a row of its own instead, with s / z in the corner: nothing large is added to anything.
        slack = np.maximum(-rows[ne:], floor)
        if tight:
            slack = np.where(duals.inequality > 0.0, floor, slack)
        active = duals.inequality > slack
        weight = np.where(active, 0.0, duals.inequality / slack)
        kept = np.concatenate([np.ones(ne, dtype=bool), active])
        corner = np.full(int(kept.sum()), self.settings.sensitivity_regularisation)
        corner[ne:] += slack[active] / duals.inequality[active]
        below = duals.lower / np.maximum(point.y - lower, floor)
        above = duals.upper / np.maximum(upper - point.y, floor)
        system = self._system(entries[0], entries[1], is_free, kept, (below + above)[free], corner)
        if weight.any():
            soft = jacobian[ne:][:, free]
            block = (soft.T @ sparse.diags(weight) @ soft).tocsc()
            block.resize(system.shape)
            system = system + block
            gradient_change = gradient_change + jacobian[ne:].T @ (weight[:, None] * row_change[ne:])
        if model.bounds is not None:
            gradient_change = gradient_change - below[:, None] * low - above[:, None] * high
        change = -_solve(system, np.concatenate([gradient_change[free], row_change[kept]]))
        moved[free] = change[: len(free)]
        dz = np.zeros((len(weight), along.shape[1]))
        if weight.any():
            dz = weight[:, None] * (soft @ change[: len(free)] + row_change[ne:])
        dz[active] = change[len(free) + ne :]
        return Sensitivity(y=moved, equality=change[len(free) : len(free) + ne], inequality=dz)

    def _system(
        self, hessian: Array, jacobian: Array, is_free: Mask, kept: Mask, diagonal: Array, corner: Array
    ) -> Any:
        """The matrix over free outputs and rows that hold with equality, from entries in the functions' own order.

        Put together in one go: slicing and stacking matrices took three times as long as factoring the result.
        """
        n = len(diagonal)
        output = np.cumsum(is_free) - 1
        row = n + np.cumsum(kept) - 1
        inner = is_free[self._hessian_rows] & is_free[self._hessian_columns]
        outer = kept[self._rows] & is_free[self._columns]
        across, down = output[self._columns[outer]], row[self._rows[outer]]
        ends = np.arange(n + len(corner))
        places = (
            np.concatenate([output[self._hessian_rows[inner]], across, down, ends]),
            np.concatenate([output[self._hessian_columns[inner]], down, across, ends]),
        )
        values = np.concatenate([hessian[inner], jacobian[outer], jacobian[outer], diagonal, -corner])
        return sparse.coo_matrix((values, places), shape=(len(ends), len(ends))).tocsc()


def _pattern(found: Any) -> Any:
    """A CasADi pattern as a matrix of ones, column by column as CasADi has it."""
    columns, rows = np.array(found.colind(), dtype=np.int32), np.array(found.row(), dtype=np.int32)
    return sparse.csc_matrix((np.ones(len(rows)), rows, columns), shape=found.shape)


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
