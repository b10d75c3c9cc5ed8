"""One iteration of the interior-point method as a CasADi function, which never leaves compiled code.

With the inequalities and all finite bounds written as `c(y) + s = 0, s >= 0`, and with `r` the Lagrangian's gradient,
Newton's method on the optimality conditions solves

    H dy + J' dnu + A' dz = -r        J dy = -g        A dy + ds = -(c + s)        z ds + s dz = target - s z

and the last two are eliminated: with `w = z/s`,

    dz = w A dy + w (c + s) - (s z - target)/s        ds = -(c + s) - A dy

which leaves the matrix `[H + A' w A, J'; J, 0]`. An iteration (`Newton.step`) is Mehrotra's:

1. the residuals and the matrix at the iterate, factored once;
2. the predictor, towards `s z = 0`, and how far it gets: this gives the centring parameter;
3. the corrector, on the same factors, with the predictor's second-order term;
4. one iterative refinement, near the end;
5. the steps of outputs and of multipliers, a fraction of the way to the boundary. There is no line search.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import casadi
import numpy as np

from feasibly.problem.point import Point
from feasibly.solve.model import NlpModel
from feasibly.solve.records import Array
from feasibly.solve.settings import SolverSettings

STEP_PARAMETERS = 6
"""What `StepSettings.parameters` gives an iteration."""
ROW_INFO = (
    "stationarity", "feasibility", "complementarity", "mu", "primal step", "dual step", "cost of residuals",
)  # fmt: skip
"""What an iteration says of the iterate it began at (scaled errors and `mu`), the lengths of its steps, and
`cost_of_residuals`."""


class Newton:
    """The sizes and formulas of one model's optimality conditions in scaled units.

    Attributes:
        settings: numbers of the method.
        n: free outputs.
        below, above: free outputs with a finite lower or upper bound.
        n_slacks: inequalities, lower bounds and upper bounds together, in that order.
        padding: one where there would be no slack at all: a constraint that always holds takes its place.
    """

    def __init__(self, model: NlpModel, settings: SolverSettings) -> None:
        self.model, self.settings = model, settings
        lower, upper = model.lower[model.free], model.upper[model.free]
        self.below, self.above = np.flatnonzero(np.isfinite(lower)), np.flatnonzero(np.isfinite(upper))
        self.n = len(model.free)
        limits = model.n_inequalities + len(self.below) + len(self.above)
        self.padding = int(limits == 0)
        self.n_slacks = limits + self.padding

    def errors(self) -> Any:
        """`(y, nu, s, z, x) -> [stationarity, feasibility, complementarity, cost of residuals]`, without second
        derivatives."""
        symbols = self.symbols(casadi.MX)
        y, nu, _, z, x = symbols
        parts = self.model.first_order(y, x, nu, z[: self.model.n_inequalities, 0])
        residuals = self.residuals(symbols, parts)
        found = self.scaled_errors(symbols, residuals), self.cost_of_residuals(symbols, residuals)
        return casadi.Function("errors", symbols, [casadi.vertcat(*found)])

    def step(self) -> Any:
        """`(y, nu, s, z, x, parameters) -> (y, nu, s, z, info, matrix)`: the next iterate, `ROW_INFO`, the matrix."""
        symbols = self.symbols(casadi.MX)
        y, nu, s, z, x = symbols
        parameters = casadi.MX.sym("parameters", STEP_PARAMETERS)
        barrier, shift, full, regularisation, largest_ratio, refine_below = casadi.vertsplit(parameters)
        # `full` is 1 or 0, and chooses below between two formulas by the larger of both.

        # 1. Residuals and the matrix. Slacks in it are no smaller than its largest ratio allows.
        parts = self.model.second_order(y, x, nu, z[: self.model.n_inequalities, 0])
        residuals = gradient, equality, slack_residual = self.residuals(symbols, parts)
        equality_jacobian, inequality_jacobian, hessian = parts[4:]
        jacobian = self.all_limits(inequality_jacobian)
        bounded_s = casadi.fmax(s, z / largest_ratio)
        ratio = z / bounded_s
        matrix = self.matrix(hessian, equality_jacobian, jacobian, ratio, regularisation + shift)
        factors = casadi.Linsol("newton", "ldl", matrix.sparsity())

        def direction(target: Any) -> tuple[Any, Any, Any, Any]:
            offset = ratio * slack_residual - (s * z - target) / bounded_s
            right = casadi.vertcat(gradient + casadi.mtimes(jacobian.T, offset), equality)
            change = factors.solve(matrix, -casadi.densify(right))
            along = casadi.mtimes(jacobian, change[: self.n, 0])
            return change[: self.n, 0], change[self.n :, 0], -slack_residual - along, offset + ratio * along

        # 2. The predictor.
        mu = casadi.dot(s, z) / self.n_slacks
        _, _, ds, dz = direction(casadi.DM.zeros(self.n_slacks))
        affine_steps = self.step_to_boundary(s, ds, 1.0), self.step_to_boundary(z, dz, 1.0)
        affine_mu = casadi.dot(s + affine_steps[0] * ds, z + affine_steps[1] * dz) / self.n_slacks
        affine_step = casadi.fmin(*affine_steps)
        centring = casadi.fmax(
            self.settings.least_centring * (1.0 - full) * (1.0 - affine_step),
            casadi.fmin(1.0, (affine_mu / mu) ** 3),
        )

        # 3. The corrector, 4. refined.
        target = casadi.fmax(centring * mu, barrier) - casadi.fmax(affine_step**2, full) * ds * dz
        system = matrix, hessian, equality_jacobian, jacobian, ratio, bounded_s, shift
        here = gradient, equality, slack_residual, s, z, target
        refine = self._refinement(*system[:4])
        dy, dnu, ds, dz = refine(mu < refine_below, *system, *here, *direction(target))

        # 5. The steps.
        fraction = casadi.fmax(self.settings.boundary_fraction, 1.0 - mu)
        primal, dual = self.step_to_boundary(s, ds, fraction), self.step_to_boundary(z, dz, fraction)
        costs = self.cost_of_residuals(symbols, residuals)
        info = casadi.vertcat(self.scaled_errors(symbols, residuals), mu, primal, dual, costs)
        moved = [y + primal * dy, nu + dual * dnu, s + primal * ds, z + dual * dz]
        return casadi.Function("iteration", [*symbols, parameters], [*moved, info, matrix])

    def _refinement(self, *matrices: Any) -> Any:
        """One iterative refinement: what a direction leaves of Newton's equations is solved for and added to it.

        `(whether, matrices, ratio, bounded s, shift, residuals, s, z, target, direction) -> direction`
        """
        matrix, hessian, equality_jacobian, jacobian = (
            casadi.MX.sym(f"matrix{k}", part.sparsity()) for k, part in enumerate(matrices)
        )
        n, ne, slacks = self.n, self.model.n_equalities, self.n_slacks
        columns = {
            "ratio": slacks, "bounded_s": slacks, "shift": 1,
            "gradient": n, "equality": ne, "slack_residual": slacks, "s": slacks, "z": slacks,
            "target": slacks, "dy": n, "dnu": ne, "ds": slacks, "dz": slacks,
        }  # fmt: skip
        symbols = {name: casadi.MX.sym(name, size) for name, size in columns.items()}
        ratio, bounded_s, shift, gradient, equality, slack_residual, s, z, target, dy, dnu, ds, dz = (
            symbols.values()
        )
        inputs = [matrix, hessian, equality_jacobian, jacobian, *symbols.values()]
        gradient = (
            gradient + casadi.mtimes(hessian, dy) + shift * dy + casadi.mtimes(equality_jacobian.T, dnu)
        )
        gradient = gradient + casadi.mtimes(jacobian.T, dz)
        equality = equality + casadi.mtimes(equality_jacobian, dy) - self.settings.dual_regularisation * dnu
        slack_residual = slack_residual + casadi.mtimes(jacobian, dy) + ds
        offset = ratio * slack_residual - (s * z + z * ds + s * dz - target) / bounded_s
        right = casadi.vertcat(gradient + casadi.mtimes(jacobian.T, offset), equality)
        factors = casadi.Linsol("newton", "ldl", matrix.sparsity())
        change = factors.solve(matrix, -casadi.densify(right))
        along = casadi.mtimes(jacobian, change[:n, 0])
        better = [
            dy + change[:n, 0], dnu + change[n:, 0], ds - slack_residual - along, dz + offset + ratio * along,
        ]  # fmt: skip
        refined, as_it_is = (
            casadi.Function("direction", inputs, outputs) for outputs in (better, [dy, dnu, ds, dz])
        )
        return casadi.Function.if_else("refinement", refined, as_it_is)

    # ---- parts -----------------------------------------------------------------------------------------

    def symbols(self, kind: Any) -> list[Any]:
        """`y`, `nu`, `s`, `z` and `x` as CasADi's symbols of one kind."""
        sizes = self.n, self.model.n_equalities, self.n_slacks, self.n_slacks, len(self.model.nominal)
        return [kind.sym(name, size) for name, size in zip(("y", "nu", "s", "z", "x"), sizes, strict=True)]

    def scaled(self, point: Point) -> tuple[Array, Array, Array]:
        """A point's free outputs, multipliers of equalities, and those of inequalities and bounds, in scaled units."""
        model, duals, unit = self.model, point.duals, self.model.objective_scale
        z = (
            duals.inequality * unit / model.inequality_scale,
            duals.lower[model.free][self.below] * unit,
            duals.upper[model.free][self.above] * unit,
        )
        return point.y[model.free], duals.equality * unit / model.equality_scale, np.concatenate(z)

    def slacks(self, y: Array, inequality: Array, lower: Array, upper: Array) -> Array:
        """`-c(y)`: by how much each inequality and bound holds, along the last axis."""
        bounds = (y - lower)[..., self.below], (upper - y)[..., self.above]
        return np.concatenate([-inequality, *bounds, np.ones((*y.shape[:-1], self.padding))], axis=-1)

    def all_limits(self, inequality_jacobian: Any) -> Any:
        """`A`: the Jacobian of inequalities, lower bounds and upper bounds."""
        return casadi.vertcat(
            inequality_jacobian,
            -selection(self.below, self.n),
            selection(self.above, self.n),
            casadi.DM(self.padding, self.n),
        )

    def residuals(self, symbols: Sequence[Any], parts: Sequence[Any]) -> tuple[Any, Any, Any]:
        """The Lagrangian's gradient, the equalities, and `c + s`."""
        y, _, s, z, x = symbols
        _, equality, inequality, gradient = parts[:4]
        lower, upper = (bound[self.model.free.tolist()] for bound in self.model.search_of(x))
        ni, n_lower, n_upper = self.model.n_inequalities, len(self.below), len(self.above)
        ends = np.cumsum([ni, n_lower, n_upper]).tolist()
        at_lower, at_upper = z[ends[0] : ends[1], 0], z[ends[1] : ends[2], 0]
        below, above = selection(self.below, self.n), selection(self.above, self.n)
        gradient = gradient - casadi.mtimes(below.T, at_lower) + casadi.mtimes(above.T, at_upper)
        limits = casadi.vertcat(
            inequality,
            casadi.mtimes(below, lower - y),
            casadi.mtimes(above, y - upper),
            -casadi.DM.ones(self.padding),
        )
        return gradient, equality, limits + s

    def scaled_errors(self, symbols: Sequence[Any], residuals: Sequence[Any]) -> Any:
        """IPOPT's three scaled errors: stationarity, feasibility, complementarity."""
        _, nu, s, z, _ = symbols
        gradient, equality, slack_residual = residuals
        multipliers = casadi.vertcat(nu, z)
        usual = self.settings.usual_multiplier
        average = casadi.sum1(casadi.fabs(multipliers)) / multipliers.shape[0]
        weight = casadi.fmax(usual, average) / usual
        infeasible = casadi.mmax(casadi.fabs(casadi.vertcat(equality, slack_residual)))
        return casadi.vertcat(
            casadi.mmax(casadi.fabs(gradient)) / weight, infeasible, casadi.mmax(s * z) / weight
        )

    def cost_of_residuals(self, symbols: Sequence[Any], residuals: Sequence[Any]) -> Any:
        """`|nu'g + z'(c + s)|`: what the objective gains or loses, to first order, by constraints that do not hold."""
        _, nu, _, z, _ = symbols
        _, equality, slack_residual = residuals
        return casadi.fabs(casadi.dot(nu, equality) + casadi.dot(z, slack_residual))

    def step_to_boundary(self, value: Any, change: Any, fraction: Any) -> Any:
        """The longest step, at most one, that leaves every value at least `1 - fraction` of itself."""
        return casadi.fmin(1.0, fraction / casadi.fmax(casadi.mmax(-change / value), 1e-30))

    def matrix(self, hessian: Any, equality_jacobian: Any, jacobian: Any, ratio: Any, diagonal: Any) -> Any:
        """`[H + A' diag(ratio) A + diagonal, J'; J, 0]`, its lower corner barely regularised."""
        pattern = jacobian.sparsity()
        weighted = (
            type(jacobian)(pattern, casadi.vec(jacobian.nz[:]) * ratio[pattern.row(), 0])
            if pattern.nnz()
            else jacobian
        )
        block = hessian + casadi.mtimes(jacobian.T, weighted) + diagonal * casadi.DM.eye(self.n)
        corner = -self.settings.dual_regularisation * casadi.DM.eye(self.model.n_equalities)
        return casadi.blockcat([[block, equality_jacobian.T], [equality_jacobian, corner]])


def selection(indices: np.ndarray, size: int) -> Any:
    """The matrix that selects `indices` out of a vector of `size`."""
    pattern = casadi.Sparsity.triplet(len(indices), size, list(range(len(indices))), indices.tolist())
    return casadi.DM(pattern, 1.0)
