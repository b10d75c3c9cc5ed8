"""How a solution moves with the input: `dy*/dx` and the multipliers', by the implicit function theorem.

At a solution the optimality conditions are a system of equations in `(y, multipliers)` with `x` as a parameter, and the
derivative is one solve with its Jacobian. In order (`Differentiator.differentiate`, and for many rows at once
`lanes.tangents`):

1. what is active has a multiplier larger than its slack, in scaled units; Newton's method on that set takes the point
   to its optimum, to rounding, and the set is changed as long as a sign is wrong (`cross_over`). Then what is active
   stays so, and nothing else counts.
2. Where no set shows itself to be that of an optimum, the point is taken as it is, and a constraint counts with its
   multiplier over its slack: where an instance sits between two active sets that is between the derivatives of either
   side.
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


@dataclass(frozen=True, eq=False)
class _Iterate:
    """A point in scaled units: free outputs, multipliers of equalities, those of inequalities and of both bounds of
    every free output."""

    y: Array
    nu: Array
    z: Array


class Differentiator:
    """Sensitivities of one model; its functions and their patterns are built once. Made by `Solver.sensitivity`."""

    def __init__(self, model: NlpModel, settings: SolverSettings) -> None:
        self.model, self.settings = model, settings
        self._functions = [Compiled(each) for each in (model.second_order, model.input_jacobians)]
        second, first = (each.function for each in self._functions)
        self._patterns = [_pattern(second.sparsity_out(k)) for k in (4, 5, 6)]
        self._input_patterns = [_pattern(first.sparsity_out(k)) for k in range(3)]
        self._bound_slopes = None
        if model.bounds is not None:
            x = casadi.SX.sym("x", len(model.nominal))
            slopes = [casadi.jacobian(bound, x) for bound in model.bounds(x)]
            self._bound_slopes = casadi.Function("bound_slopes", [x], slopes)

    def differentiate(self, x: Array, point: Point, directions: Array | None) -> Sensitivity:
        """The derivative of the solution `point` of `x`, along the columns of `directions` (all inputs if `None`).

        Raises:
            FeasiblyError: the optimality conditions are singular there.
        """
        model, along = self.model, np.eye(len(x)) if directions is None else directions
        row = _Row(self, x)
        given = row.scaled(point)
        found, active, sure = row.cross_over(given)
        dy, dnu, dz = row.move(found if sure else given, along, active if sure else None)
        moved = np.zeros((len(model.lower), along.shape[1]))
        moved[model.free] = dy
        if self._bound_slopes is not None:
            low, high = model.bounds_at(x)
            pinned = low >= high
            moved[pinned] = (self._bound_slopes(x)[0].sparse().tocsr() @ along)[pinned]
        unit, ni = model.objective_scale, model.n_inequalities
        return Sensitivity(
            y=moved,
            equality=dnu * (model.equality_scale / unit)[:, None],
            inequality=dz[:ni] * (model.inequality_scale / unit)[:, None],
        )

    def derivatives(self, x: Array, at: _Iterate) -> tuple[Array, Array, Array, Any, Any, Any]:
        """The Lagrangian's gradient, equalities, inequalities; their Jacobians and the Hessian."""
        inequality_z = at.z[: self.model.n_inequalities]
        _, equality, inequality, gradient, *entries = self._functions[0](at.y, x, at.nu, inequality_z)
        jacobians_and_hessian = _matrices(entries, self._patterns)
        return gradient, equality, inequality, *jacobians_and_hessian

    def input_changes(self, x: Array, at: _Iterate, along: Array) -> tuple[Array, Array, Array]:
        """How the gradient, the equalities and all limits move with the input alone."""
        model = self.model
        entries = self._functions[1](at.y, x, at.nu, at.z[: model.n_inequalities])
        gradient, equality, inequality = (part @ along for part in _matrices(entries, self._input_patterns))
        bounds = np.zeros((2 * len(model.free), along.shape[1]))
        if self._bound_slopes is not None:
            low, high = (part.sparse().tocsr() @ along for part in self._bound_slopes(x))
            bounds = np.concatenate([low[model.free], -high[model.free]])
        return gradient, equality, np.concatenate([inequality, bounds])


class _Row:
    """One row: its input, and the bounds of its free outputs."""

    def __init__(self, made: Differentiator, x: Array) -> None:
        self._made, self._x, model = made, x, made.model
        self._lower, self._upper = (bound[model.free] for bound in model.search_at(x))
        self._ni, self._n = model.n_inequalities, len(model.free)

    def scaled(self, point: Point) -> _Iterate:
        """A point of the problem. Nothing depends on outputs that this input pins: they are inside, without
        multipliers."""
        model, duals = self._made.model, point.duals
        unit, free = model.objective_scale, model.free
        low, high = (bound[free] for bound in model.bounds_at(self._x))
        bounds = (np.where(low < high, part[free], 0.0) * unit for part in (duals.lower, duals.upper))
        z = np.concatenate([duals.inequality * unit / model.inequality_scale, *bounds])
        y = np.where(low < high, point.y[free], np.clip(point.y[free], self._lower, self._upper))
        return _Iterate(y, duals.equality * unit / model.equality_scale, z)

    def slacks(self, at: _Iterate, inequality: Array) -> Array:
        """What all limits have left."""
        return np.concatenate([-inequality, at.y - self._lower, self._upper - at.y])

    def cross_over(self, at: _Iterate) -> tuple[_Iterate, Mask, bool]:
        """Newton's method on the active set: where it ends, on which set, and whether that is an optimum."""
        s = self._made.settings
        active = at.z > self.slacks(at, self._made.derivatives(self._x, at)[2])
        sure = False
        for _ in range(s.crossover_rounds):
            at = _Iterate(at.y, at.nu, np.where(active, at.z, 0.0))
            parts = self._made.derivatives(self._x, at)
            slack = self.slacks(at, parts[2])
            wrong = np.where(active, at.z < -s.crossover_sign, slack < -s.crossover_sign)
            gradient = self._with_bounds(parts[0], at.z)
            off = np.where(active, -slack, 0.0)
            residual = max(np.abs(part).max(initial=0.0) for part in (gradient, parts[1], off))
            largest = max(np.abs(part).max(initial=0.0) for part in (at.nu, at.z))
            sure = not wrong.any() and residual <= s.crossover_residual * (1.0 + largest)
            if sure or not np.isfinite(residual):
                break
            active = active ^ wrong
            at = _Iterate(at.y, at.nu, np.where(active, at.z, 0.0))
            gradient = self._with_bounds(parts[0], at.z)
            off = np.where(active, -slack, 0.0)
            try:
                dy, dnu, dz = self._solve(
                    parts[3:], gradient[:, None], parts[1][:, None], off[:, None], active, refine=False
                )
            except FeasiblyError:
                break
            at = _Iterate(at.y + dy[:, 0], at.nu + dnu[:, 0], at.z + dz[:, 0])
        return at, active, sure

    def move(self, at: _Iterate, along: Array, active: Mask | None) -> tuple[Array, Array, Array]:
        """How outputs and multipliers move; without an active set, limits count as they are."""
        parts = self._made.derivatives(self._x, at)
        changes = self._made.input_changes(self._x, at, along)
        if active is not None:
            return self._solve(parts[3:], *changes, active)
        floor = self._made.settings.slack_floor
        slack = np.maximum(self.slacks(at, parts[2]), floor)
        hard = at.z > slack
        soft = np.where(hard, 0.0, at.z / slack)
        corner = np.where(hard, slack / np.maximum(at.z, floor), 0.0)
        return self._solve(parts[3:], *changes, hard, soft, corner)

    def _with_bounds(self, gradient: Array, z: Array) -> Array:
        """The Lagrangian's gradient, multipliers of bounds included."""
        return gradient - z[self._ni : self._ni + self._n] + z[self._ni + self._n :]

    def _solve(
        self, matrices: Any, gradient: Array, equality: Array, limits: Array, active: Mask,
        soft: Array | None = None, corner: Array | None = None, refine: bool = True,
    ) -> tuple[Array, Array, Array]:  # fmt: skip
        """What undoes these changes of the optimality conditions: moves of outputs and multipliers.

        Limits that are `active` hold with equality, but for `corner` times the change of their multiplier; others count
        by `soft`, which is added to the Hessian. Without refinement nothing is asked of the solution.
        """
        equality_jacobian, inequality_jacobian, hessian = matrices
        n, regular = self._n, self._made.settings.sensitivity_regularisation
        identity = sparse.identity(n, format="csr")
        jacobian = sparse.vstack([inequality_jacobian, -identity, identity], format="csr")
        rows = np.flatnonzero(active)
        normals = sparse.vstack([equality_jacobian, jacobian[rows]])
        if soft is not None:
            hessian = hessian + jacobian.T @ sparse.diags(soft) @ jacobian
            gradient = gradient + jacobian.T @ (soft[:, None] * limits)
        tail = np.concatenate(
            [np.zeros(len(equality)), np.zeros(len(rows)) if corner is None else corner[rows]]
        )
        system = sparse.bmat([[hessian, normals.T], [normals, sparse.diags(-tail)]], format="csc")
        diagonal = np.concatenate([np.full(n, regular), np.full(len(tail), -regular)])
        right = -np.concatenate([gradient, equality, limits[rows]])
        moved = _solve(system, diagonal, right, self._made.settings, refine)
        dy, dnu = moved[:n], moved[n : n + len(equality)]
        dz = np.zeros_like(limits) if soft is None else soft[:, None] * (jacobian @ dy + limits)
        dz[rows] = moved[n + len(equality) :]
        return dy, dnu, dz


def _matrices(entries: list[Array], patterns: list[Any]) -> tuple[Any, ...]:
    return tuple(
        sparse.csc_matrix((values, part.indices, part.indptr), shape=part.shape).tocsr()
        for values, part in zip(entries, patterns, strict=True)
    )


def _pattern(found: Any) -> Any:
    """A CasADi pattern as a matrix of ones, column by column as CasADi has it."""
    columns, rows = np.array(found.colind(), dtype=np.int32), np.array(found.row(), dtype=np.int32)
    return sparse.csc_matrix((np.ones(len(rows)), rows, columns), shape=found.shape)


def _solve(
    system: Any, regularisation: Array, right: Array, settings: SolverSettings, refine: bool = True
) -> Array:
    """The system is factored with something on its diagonal, which refinement takes out again, if it can be.

    A step of Newton's method needs no refinement: what it leaves, the next one finds. And where an output hardly
    matters refinement goes on and on.
    """
    try:
        factors = splu((system + sparse.diags(regularisation)).tocsc())
    except RuntimeError:
        raise _singular() from None
    answer = factors.solve(right)
    if not refine:
        return np.asarray(answer)
    for _ in range(settings.refinement_solves):
        change = factors.solve(right - system @ answer)
        answer = answer + change
        share = np.abs(change).max(initial=0.0) / max(np.abs(answer).max(initial=0.0), 1e-300)
        if not share > settings.refinement_enough:
            break
    if not share <= settings.refinement_failure:  # NaN is not
        raise _singular()
    return np.asarray(answer)


def _singular() -> FeasiblyError:
    return FeasiblyError(
        "the solution does not have a derivative here: the optimality conditions are singular, as where "
        "constraints depend on each other or an output does not matter"
    )


def check_directions(directions: ArrayLike | None, n_inputs: int) -> Array | None:
    """Directions as a matrix with one row an input."""
    if directions is None:
        return None
    matrix = np.asarray(directions, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != n_inputs:
        raise FeasiblyError(f"directions should have shape ({n_inputs}, any), not {matrix.shape}")
    return matrix
