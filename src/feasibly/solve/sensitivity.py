"""How a solution moves with the input: `dy*/dx` and the multipliers', by the implicit function theorem.

At a solution the optimality conditions are a system of equations in `(y, multipliers)` with `x` as a parameter, and the
derivative is one solve with its Jacobian. In order (`Differentiator.differentiate`, and for many rows at once
`lanes.tangents`):

1. what is active has a multiplier larger than its slack, in scaled units; Newton's method on that set takes the point
   to its optimum, to rounding, and the set is changed as long as a sign is wrong (`cross_over`). Then what is active
   stays so, and nothing else counts. Steps go on until they are short, or shorten no more: along flat directions an
   optimum may be far away where residuals are small.
2. Where no set shows itself to be that of an optimum, the point is taken as it is, and a constraint counts with its
   multiplier over its slack: where an instance sits between two active sets that is between the derivatives of either
   side.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

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


class _Derivatives(NamedTuple):
    """At a point: equalities, inequalities, the Lagrangian's gradient; entries of their Jacobians and the Hessian."""

    equality: Array
    inequality: Array
    gradient: Array
    jacobian: Array
    normals: Array
    hessian: Array


class _Found(NamedTuple):
    """The optimum of an active set, and its derivatives."""

    at: _Iterate
    parts: _Derivatives


class Differentiator:
    """Sensitivities of one model; its functions and their patterns are built once. Made by `Solver.sensitivity`."""

    def __init__(self, model: NlpModel, settings: SolverSettings) -> None:
        self.model, self.settings = model, settings
        functions = model.first_order, model.second_order, model.input_jacobians
        self._values, self._second, self._inputs = (Compiled(each) for each in functions)
        self.jacobian, self.normals, self.hessian = (
            _Pattern(model.second_order.sparsity_out(k)) for k in (4, 5, 6)
        )
        self._input_patterns = [_Pattern(model.input_jacobians.sparsity_out(k)) for k in range(3)]
        self._bound_slopes = None
        if model.bounds is not None:
            x = casadi.SX.sym("x", len(model.nominal))
            slopes = [casadi.jacobian(bound, x) for bound in model.bounds(x)]
            self._bound_slopes = casadi.Function("bound_slopes", [x], slopes)

    def differentiate(
        self, x: Array, point: Point, directions: Array | None, exact: bool = False
    ) -> Sensitivity:
        """The derivative of the solution `point` of `x`, along the columns of `directions` (all inputs if `None`).

        One that is `exact` is an optimum to rounding already, and is taken as it is if its conditions say so.

        Raises:
            FeasiblyError: the optimality conditions are singular there.
        """
        model, along = self.model, np.eye(len(x)) if directions is None else directions
        row = _Row(self, x)
        given = row.scaled(point)
        found, active = row.cross_over(given, settled=exact)
        dy, dnu, dz = row.move_as_it_is(given, along) if found is None else row.move(found, along, active)
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

    def inequalities(self, x: Array, at: _Iterate) -> Array:
        """Their values alone."""
        return self._values(at.y, x, at.nu, at.z[: self.model.n_inequalities])[2]

    def derivatives(self, x: Array, at: _Iterate) -> _Derivatives:
        """Everything that Newton's method needs at a point."""
        return _Derivatives(*self._second(at.y, x, at.nu, at.z[: self.model.n_inequalities])[1:])

    def input_changes(self, x: Array, at: _Iterate, along: Array) -> tuple[Array, Array, Array]:
        """How the gradient, the equalities and all limits move with the input alone."""
        model = self.model
        entries = self._inputs(at.y, x, at.nu, at.z[: model.n_inequalities])
        gradient, equality, inequality = (
            part.matrix(values) @ along for part, values in zip(self._input_patterns, entries, strict=True)
        )
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

    def cross_over(self, at: _Iterate, settled: bool = False) -> tuple[_Found | None, Mask]:
        """Newton's method on the active set: where it ends, if that is an optimum, and on which set."""
        s = self._made.settings
        active = at.z > self.slacks(at, self._made.inequalities(self._x, at))
        last = np.inf
        for left in reversed(range(s.crossover_rounds)):
            at = _Iterate(at.y, at.nu, np.where(active, at.z, 0.0))
            parts = self._made.derivatives(self._x, at)
            slack = self.slacks(at, parts.inequality)
            wrong = np.where(active, at.z < -s.crossover_sign, slack < -s.crossover_sign)
            gradient = self._with_bounds(parts.gradient, at.z)
            off = np.where(active, -slack, 0.0)
            residual = max(np.abs(part).max(initial=0.0) for part in (gradient, parts.equality, off))
            largest = max(np.abs(part).max(initial=0.0) for part in (at.nu, at.z))
            optimal = not wrong.any() and residual <= s.crossover_residual * (1.0 + largest)
            if optimal and (settled or not left):
                return _Found(at, parts), active
            if not np.isfinite(residual):
                break
            active = active ^ wrong
            at = _Iterate(at.y, at.nu, np.where(active, at.z, 0.0))
            gradient = self._with_bounds(parts.gradient, at.z)
            off = np.where(active, -slack, 0.0)
            try:
                dy, dnu, dz = self._solve(
                    parts, gradient[:, None], parts.equality[:, None], off[:, None], active, refine=False
                )
            except FeasiblyError:
                break
            at = _Iterate(at.y + dy[:, 0], at.nu + dnu[:, 0], at.z + dz[:, 0])
            step = float(np.abs(dy).max(initial=0.0))
            last, settled = step, settled or bool(no_further(step, last, s))
        return None, active

    def move(self, found: _Found, along: Array, active: Mask) -> tuple[Array, Array, Array]:
        """How the optimum of an active set and its multipliers move."""
        changes = self._made.input_changes(self._x, found.at, along)
        return self._solve(found.parts, *changes, active)

    def move_as_it_is(self, at: _Iterate, along: Array) -> tuple[Array, Array, Array]:
        """How a point moves whose active set is not known: limits count with their multiplier over their slack."""
        parts = self._made.derivatives(self._x, at)
        changes = self._made.input_changes(self._x, at, along)
        floor = self._made.settings.slack_floor
        slack = np.maximum(self.slacks(at, parts.inequality), floor)
        hard = at.z > slack
        soft = np.where(hard, 0.0, at.z / slack)
        corner = np.where(hard, slack / np.maximum(at.z, floor), 0.0)
        return self._solve(parts, *changes, hard, soft, corner)

    def _with_bounds(self, gradient: Array, z: Array) -> Array:
        """The Lagrangian's gradient, multipliers of bounds included."""
        return gradient - z[self._ni : self._ni + self._n] + z[self._ni + self._n :]

    def _solve(
        self, parts: _Derivatives, gradient: Array, equality: Array, limits: Array, active: Mask,
        soft: Array | None = None, corner: Array | None = None, refine: bool = True,
    ) -> tuple[Array, Array, Array]:  # fmt: skip
        """What undoes these changes of the optimality conditions: moves of outputs and multipliers.

        Limits that are `active` hold with equality, but for `corner` times the change of their multiplier; others count
        by `soft`, which is added to the Hessian. Without refinement nothing is asked of the solution.
        """
        made, n, regular = self._made, self._n, self._made.settings.sensitivity_regularisation
        ne = len(equality)
        rows = np.flatnonzero(active)
        tail = np.concatenate([np.zeros(ne), np.zeros(len(rows)) if corner is None else corner[rows]])
        size = n + len(tail)
        place = np.zeros(len(active), dtype=np.intp)
        place[rows] = n + ne + np.arange(len(rows))
        normals, bounds = made.normals, rows[rows >= self._ni] - self._ni
        pressing = active[normals.rows]
        # Equalities, active inequalities, active bounds: each a row below the Hessian and a column beside it.
        below = np.concatenate(
            [n + made.jacobian.rows, place[normals.rows[pressing]], place[bounds + self._ni]]
        )
        of = np.concatenate([made.jacobian.columns, normals.columns[pressing], bounds % n])
        values = np.concatenate([parts.jacobian, parts.normals[pressing], np.where(bounds < n, -1.0, 1.0)])
        diagonal = np.concatenate([np.full(n, regular), np.full(len(tail), -regular)])
        each = np.arange(size)
        entries = [parts.hessian, values, values, diagonal - np.concatenate([np.zeros(n), tail])]
        at = [made.hessian.rows, below, of, each], [made.hessian.columns, of, below, each]
        if soft is not None:
            normal = sparse.vstack(
                [normals.matrix(parts.normals), -sparse.identity(n), sparse.identity(n)], "csr"
            )
            extra = (normal.T @ sparse.diags(soft) @ normal).tocoo()
            gradient = gradient + normal.T @ (soft[:, None] * limits)
            for all_of, more in zip((entries, *at), (extra.data, extra.row, extra.col), strict=True):
                all_of.append(more)
        where = np.concatenate(at[0]), np.concatenate(at[1])
        system = sparse.csc_matrix((np.concatenate(entries), where), (size, size))
        right = -np.concatenate([gradient, equality, limits[rows]])
        moved = _solve(system, diagonal, right, made.settings, refine)
        dy, dnu = moved[:n], moved[n : n + ne]
        dz = np.zeros_like(limits) if soft is None else soft[:, None] * (normal @ dy + limits)
        dz[rows] = moved[n + ne :]
        return dy, dnu, dz


class _Pattern:
    """Where a CasADi matrix has entries, column by column as CasADi has it."""

    def __init__(self, found: Any) -> None:
        self._starts, self.rows = (
            np.array(found.colind(), dtype=np.int32),
            np.array(found.row(), dtype=np.int32),
        )
        self.columns = np.repeat(np.arange(found.size2(), dtype=np.int32), np.diff(self._starts))
        self._shape = found.shape

    def matrix(self, values: Array) -> Any:
        """With these entries."""
        return sparse.csc_matrix((values, self.rows, self._starts), shape=self._shape)


def _solve(
    system: Any, regularisation: Array, right: Array, settings: SolverSettings, refine: bool = True
) -> Array:
    """The system has something on its diagonal, which refinement takes out again, if it can be.

    A step of Newton's method needs no refinement: what it leaves, the next one finds. And where an output hardly
    matters refinement goes on and on.
    """
    try:
        factors = splu(system)
    except RuntimeError:
        raise _singular() from None
    answer = factors.solve(right)
    if not refine:
        return np.asarray(answer)
    last = np.abs(answer).max(initial=0.0)
    for _ in range(settings.refinement_solves):
        change = factors.solve(right - system @ answer + regularisation[:, None] * answer)
        answer = answer + change
        before, last = last, np.abs(change).max(initial=0.0)
        ahead = changes_ahead(last, before, settings.slowest_refinement) / max(
            np.abs(answer).max(initial=0.0), 1e-300
        )
        if not ahead > settings.refinement_enough:
            break
    if not ahead <= settings.refinement_failure:  # NaN is not
        raise _singular()
    return np.asarray(answer)


def no_further(step: Any, last: Any, settings: SolverSettings) -> Any:
    """Whether Newton's method has got as near as it can: this step was short, or no shorter than the last.

    Residuals do not tell: where there is hardly any curvature, they are small far from the optimum.
    """
    return (step <= settings.crossover_step) | (step > settings.crossover_shrink * last)


def changes_ahead(last: Any, before: Any, slowest: float) -> Any:
    """What all further solves would change, extrapolated from the last two: `before` may be unknown (infinite)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(before > 0.0, np.minimum(last / before, slowest), 0.0)
    return np.where(np.isfinite(before), last * ratio / (1.0 - ratio), np.inf)


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
