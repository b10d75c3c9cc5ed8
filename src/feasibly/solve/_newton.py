"""One iteration of the interior-point method as a CasADi function, which never leaves compiled code.

With the inequalities and all finite bounds written as `c(y) + s = 0, s >= 0`, Newton's method on the optimality
conditions solves

    H dy + J' dnu + A' dz = -slope        J dy = -equality        A dy + ds = -(c + s)        z ds + s dz = target - s z

and the last two are eliminated, which leaves the matrix `[H + A' (z/s) A, J'; J, 0]`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import casadi
import numpy as np

from feasibly.problem.point import Point
from feasibly.solve.model import Model
from feasibly.solve.records import Array
from feasibly.solve.settings import SolverSettings


class Newton:
    """The sizes and formulas of one model's optimality conditions in scaled units.

    Attributes:
        settings: numbers of the method.
        below, above: free outputs with a finite lower or upper bound.
        rows: inequalities and bounds together; one that always holds stands in for none.
        largest, total: how the entries of a column come down to one.
    """

    def __init__(
        self,
        model: Model,
        settings: SolverSettings,
        largest: Callable[[Any], Any] = casadi.mmax,
        total: Callable[[Any], Any] = casadi.sum1,
    ) -> None:
        self.model, self.settings, self.largest, self.total = model, settings, largest, total
        lower, upper = model.lower[model.free], model.upper[model.free]
        self.below, self.above = np.flatnonzero(np.isfinite(lower)), np.flatnonzero(np.isfinite(upper))
        self.n = len(model.free)
        rows = model.n_inequalities + len(self.below) + len(self.above)
        self.padding = int(rows == 0)
        self.rows = rows + self.padding

    def errors(self) -> Any:
        """`(y, nu, s, z, x) -> [stationarity, feasibility, complementarity]`, without second derivatives."""
        symbols = self.symbols(casadi.MX)
        y, nu, _, z, x = symbols
        parts = self.model.slim(y, x, nu, z[: self.model.n_inequalities, 0])
        return casadi.Function("errors", symbols, [self.measure(symbols, self.residuals(symbols, parts))])

    def step(self) -> Any:
        """`(y, nu, s, z, x, settings) -> (y, nu, s, z, [errors, mu, steps], matrix)`.

        Mehrotra's predictor and corrector; `Manner` says what `settings` are.
        """
        symbols = self.symbols(casadi.MX)
        y, nu, s, z, x = symbols
        settings = casadi.MX.sym("settings", 6)
        barrier, shift, bold, regularisation, stiffest, refined_below = casadi.vertsplit(settings)
        parts = self.model.full(y, x, nu, z[: self.model.n_inequalities, 0])
        residuals = slope, equality, rows = self.residuals(symbols, parts)
        equality_jacobian, inequality_jacobian, hessian = parts[4:]
        jacobian = self.limits(inequality_jacobian)
        slack = casadi.fmax(s, z / stiffest)
        ratio = z / slack
        matrix = self.matrix(hessian, equality_jacobian, jacobian, ratio, regularisation + shift)
        factors = casadi.Linsol("newton", "ldl", matrix.sparsity())

        def solve(target: Any) -> tuple[Any, Any, Any, Any]:
            pull = ratio * rows - (s * z - target) / slack
            right = casadi.vertcat(slope + casadi.mtimes(jacobian.T, pull), equality)
            change = factors.solve(matrix, -casadi.densify(right))
            along = casadi.mtimes(jacobian, change[: self.n, 0])
            return change[: self.n, 0], change[self.n :, 0], -rows - along, pull + ratio * along

        mu = casadi.dot(s, z) / self.rows
        _, _, ds, dz = solve(casadi.DM.zeros(self.rows))
        reach = self.longest(s, ds, 1.0), self.longest(z, dz, 1.0)
        ahead = casadi.dot(s + reach[0] * ds, z + reach[1] * dz) / self.rows
        part = casadi.fmin(*reach)
        centring = casadi.fmax(
            self.settings.centring * (1.0 - bold) * (1.0 - part), casadi.fmin(1.0, (ahead / mu) ** 3)
        )
        target = casadi.fmax(centring * mu, barrier) - casadi.fmax(part**2, bold) * ds * dz
        linear = matrix, hessian, equality_jacobian, jacobian, ratio, slack, shift
        here = slope, equality, rows, s, z, target
        refine = self._refinement(*linear[:4])
        dy, dnu, ds, dz = refine(mu < refined_below, *linear, *here, *solve(target))
        keep = casadi.fmax(self.settings.furthest, 1.0 - mu)
        primal_step, dual_step = self.longest(s, ds, keep), self.longest(z, dz, keep)
        info = casadi.vertcat(self.measure(symbols, residuals), mu, primal_step, dual_step)
        moved = [y + primal_step * dy, nu + dual_step * dnu, s + primal_step * ds, z + dual_step * dz]
        return casadi.Function("iteration", [*symbols, settings], [*moved, info, matrix])

    def _refinement(self, *matrices: Any) -> Any:
        """What is left of Newton's equations after a direction is solved for and added to it, if at all.

        `(whether, matrices, ratio, slack, shift, slope, equality, rows, s, z, target, direction) -> direction`
        """
        matrix, hessian, equality_jacobian, jacobian = (
            casadi.MX.sym(f"matrix{k}", part.sparsity()) for k, part in enumerate(matrices)
        )
        sizes = self.sizes()
        columns = {
            "ratio": self.rows, "slack": self.rows, "shift": 1,
            "slope": sizes[0], "equality": sizes[1], "rows": self.rows, "s": self.rows, "z": self.rows,
            "target": self.rows, "dy": sizes[0], "dnu": sizes[1], "ds": self.rows, "dz": self.rows,
        }  # fmt: skip
        symbols = {name: casadi.MX.sym(name, size) for name, size in columns.items()}
        ratio, slack, shift, slope, equality, rows, s, z, target, dy, dnu, ds, dz = symbols.values()
        inputs = [matrix, hessian, equality_jacobian, jacobian, *symbols.values()]
        slope = slope + casadi.mtimes(hessian, dy) + shift * dy + casadi.mtimes(equality_jacobian.T, dnu)
        slope = slope + casadi.mtimes(jacobian.T, dz)
        equality = equality + casadi.mtimes(equality_jacobian, dy) - self.settings.dual_regularisation * dnu
        rows = rows + casadi.mtimes(jacobian, dy) + ds
        pull = ratio * rows - (s * z + z * ds + s * dz - target) / slack
        right = casadi.vertcat(slope + casadi.mtimes(jacobian.T, pull), equality)
        factors = casadi.Linsol("newton", "ldl", matrix.sparsity())
        change = factors.solve(matrix, -casadi.densify(right))
        along = casadi.mtimes(jacobian, change[: self.n, 0])
        better = [
            dy + change[: self.n, 0], dnu + change[self.n :, 0], ds - rows - along, dz + pull + ratio * along,
        ]  # fmt: skip
        refined, as_it_is = (
            casadi.Function("direction", inputs, outputs) for outputs in (better, [dy, dnu, ds, dz])
        )
        return casadi.Function.if_else("refinement", refined, as_it_is)

    # ---- parts -----------------------------------------------------------------------------------------

    def sizes(self) -> tuple[int, int, int, int]:
        """Of `y`, `nu`, `s` and `z`."""
        return self.n, self.model.n_equalities, self.rows, self.rows

    def symbols(self, kind: Any) -> list[Any]:
        """`y`, `nu`, `s`, `z` and `x` as CasADi's symbols of one kind."""
        sizes = (*self.sizes(), len(self.model.nominal))
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

    def limits(self, inequality_jacobian: Any) -> Any:
        """The Jacobian of all rows: inequalities, then lower and upper bounds."""
        return casadi.vertcat(
            inequality_jacobian,
            -picker(self.below, self.n),
            picker(self.above, self.n),
            casadi.DM(self.padding, self.n),
        )

    def residuals(self, symbols: Sequence[Any], parts: Sequence[Any]) -> tuple[Any, Any, Any]:
        """Stationarity, equality, and `c + s`."""
        y, _, s, z, x = symbols
        _, equality, inequality, slope = parts[:4]
        lower, upper = (bound[self.model.free.tolist()] for bound in self.model.search_of(x))
        ni, nl, nu = self.model.n_inequalities, len(self.below), len(self.above)
        at_lower, at_upper = z[ni : ni + nl, 0], z[ni + nl : ni + nl + nu, 0]
        below, above = picker(self.below, self.n), picker(self.above, self.n)
        slope = slope - casadi.mtimes(below.T, at_lower) + casadi.mtimes(above.T, at_upper)
        rows = casadi.vertcat(
            inequality,
            casadi.mtimes(below, lower - y),
            casadi.mtimes(above, y - upper),
            -casadi.DM.ones(self.padding),
        )
        return slope, equality, rows + s

    def measure(self, symbols: Sequence[Any], residuals: Sequence[Any]) -> Any:
        """IPOPT's three scaled errors: stationarity, feasibility, complementarity."""
        _, nu, s, z, _ = symbols
        slope, equality, rows = residuals
        multipliers = casadi.vertcat(nu, z)
        usual = self.settings.usual_multiplier
        average = self.total(casadi.fabs(multipliers)) / multipliers.shape[0]
        weight = casadi.fmax(usual, average) / usual
        infeasible = self.largest(casadi.fabs(casadi.vertcat(equality, rows)))
        return casadi.vertcat(
            self.largest(casadi.fabs(slope)) / weight, infeasible, self.largest(s * z) / weight
        )

    def longest(self, value: Any, change: Any, keep: Any) -> Any:
        """The longest step, at most one, that leaves every value at least `1 - keep` of itself."""
        return casadi.fmin(1.0, keep / casadi.fmax(self.largest(-change / value), 1e-30))

    def matrix(self, hessian: Any, equality_jacobian: Any, jacobian: Any, ratio: Any, diagonal: Any) -> Any:
        """`[H + A' diag(ratio) A + diagonal, J'; J, 0]`, barely regularised."""
        pattern = jacobian.sparsity()
        weighted = (
            type(jacobian)(pattern, casadi.vec(jacobian.nz[:]) * ratio[pattern.row(), 0])
            if pattern.nnz()
            else jacobian
        )
        block = hessian + casadi.mtimes(jacobian.T, weighted) + diagonal * casadi.DM.eye(self.n)
        corner = -self.settings.dual_regularisation * casadi.DM.eye(self.model.n_equalities)
        return casadi.blockcat([[block, equality_jacobian.T], [equality_jacobian, corner]])


def picker(places: np.ndarray, size: int) -> Any:
    """The matrix that picks `places` out of a vector of `size`."""
    pattern = casadi.Sparsity.triplet(len(places), size, list(range(len(places))), places.tolist())
    return casadi.DM(pattern, 1.0)
