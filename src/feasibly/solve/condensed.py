"""How a solution moves with the input, on the interior-point method's own matrix: less than two of its iterations.

Of the optimality conditions

    H dy + J' dnu + A' dz = -gradient_x dx        J dy = -equality_x dx        A dy - (s / z) dz = -limits_x dx

the last are eliminated as in an iteration (`_newton`), with `z / s` no larger than `condensed_largest_ratio`; what that
leaves out, and what is added to the diagonal, comes back in a second solve on the same matrix. Where it does not
(nobody looks for pivots while factoring), nothing is returned, and `sensitivity` factors the whole system.
"""

from __future__ import annotations

from typing import Any

import casadi
import numpy as np

from feasibly.problem.point import Point
from feasibly.solve._newton import Newton
from feasibly.solve.compiled import Compiled
from feasibly.solve.model import NlpModel
from feasibly.solve.records import Array
from feasibly.solve.settings import SolverSettings


class Condensed:
    """For one model whose bounds do not depend on the input; its functions are built once for each width."""

    def __init__(self, model: NlpModel, settings: SolverSettings) -> None:
        self.model, self.settings = model, settings
        self._newton = Newton(model, settings)
        self._functions: dict[int, Compiled] = {}

    def solve(self, x: Array, point: Point, along: Array) -> tuple[Array, Array, Array] | None:
        """How free outputs and the multipliers of equalities and inequalities move along the columns of `along`.

        Every inequality with a multiplier holds with equality. `None` where no sound answer came of it.
        """
        model, newton, duals, s = self.model, self._newton, point.duals, self.settings
        free, unit = model.free, model.objective_scale
        lower, upper = model.bounds_at(x)
        below, above = free[newton.below], free[newton.above]
        inequality_z = duals.inequality * unit / model.inequality_scale
        nothing = np.zeros(newton.padding)
        z = np.concatenate([inequality_z, duals.lower[below] * unit, duals.upper[above] * unit, nothing])
        bounds = (point.y[below] - lower[below], upper[above] - point.y[above])
        slack = np.maximum(
            np.concatenate([np.zeros(len(inequality_z)), *bounds, nothing + 1.0]), s.slack_floor
        )
        width = 1 << max(along.shape[1] - 1, 0).bit_length()
        if width not in self._functions:
            self._functions[width] = Compiled(self._function(width))
        wide = np.zeros((len(x), width))
        wide[:, : along.shape[1]] = along
        *moves, off = self._functions[width](
            point.y[free], duals.equality * unit / model.equality_scale, inequality_z,
            np.minimum(z / slack, s.condensed_largest_ratio),
            np.where(z > 0.0, slack / np.maximum(z, 1e-300), 0.0), x, wide.ravel(order="F"),
        )  # fmt: skip
        if not off[0] <= s.condensed_residual:  # NaN included
            return None
        y, nu, dz = (part.reshape(-1, width, order="F")[:, : along.shape[1]] for part in moves)
        return (
            y,
            nu * (model.equality_scale / unit)[:, None],
            dz * (model.inequality_scale / unit)[:, None],
        )

    def _function(self, width: int) -> Any:
        """`(y, nu, z, ratio, slack_over_z, x, along) -> (dy, dnu, dz of inequalities, relative residual)`."""
        model, newton, s = self.model, self._newton, self.settings
        n, ne, ni, rows = newton.n, model.n_equalities, model.n_inequalities, newton.n_slacks
        sizes = {"y": n, "nu": ne, "z": ni, "ratio": rows, "slack_over_z": rows, "x": len(model.nominal)}
        symbols = [casadi.MX.sym(name, size) for name, size in sizes.items()]
        y, nu, z, ratio, slack_over_z, x = symbols
        along = casadi.MX.sym("along", len(model.nominal), width)
        equality, inequality, hessian = model.second_order(y, x, nu, z)[4:]
        limits = newton.all_limits(inequality)
        gradient_x, equality_x, limits_x = (
            casadi.mtimes(part, along) for part in model.input_jacobians(y, x, nu, z)
        )
        limits_x = casadi.vertcat(limits_x, casadi.DM.zeros(rows - ni, width))
        matrix = newton.matrix(hessian, equality, limits, ratio, s.condensed_regularisation)
        factors = casadi.Linsol("sensitivity", "ldl", matrix.sparsity())
        ratios, slacks_over_z = casadi.repmat(ratio, 1, width), casadi.repmat(slack_over_z, 1, width)

        def residuals(dy: Any, dnu: Any, dz: Any) -> tuple[Any, Any, Any]:
            gradient = (
                casadi.mtimes(hessian, dy) + casadi.mtimes(equality.T, dnu) + casadi.mtimes(limits.T, dz)
            )
            return (
                gradient + gradient_x,
                casadi.mtimes(equality, dy) + equality_x,
                casadi.mtimes(limits, dy) - slacks_over_z * dz + limits_x,
            )

        moved = tuple(casadi.MX.zeros(size, width) for size in (n, ne, rows))
        for _ in range(s.condensed_solves):
            gradient, equality_residual, limit_residual = residuals(*moved)
            right = casadi.vertcat(
                gradient + casadi.mtimes(limits.T, ratios * limit_residual), equality_residual
            )
            change = factors.solve(matrix, -casadi.densify(right))
            dy, dnu = change[:n, :], change[n:, :]
            dz = ratios * (casadi.mtimes(limits, dy) + limit_residual)
            moved = moved[0] + dy, moved[1] + dnu, moved[2] + dz
        gradient, equality_residual, limit_residual = residuals(*moved)
        reach = _largest(moved[0]) + 1e-300
        off = casadi.fmax(
            _largest(gradient)
            / (_largest(hessian) * reach + _largest(casadi.mtimes(equality.T, moved[1])) + 1e-300),
            casadi.fmax(_largest(equality_residual), _largest(limit_residual * (ratios > 0.0)))
            / (_largest(limits) * reach),
        )
        outputs = [casadi.densify(part) for part in (moved[0], moved[1], moved[2][:ni, :])]
        return casadi.Function("sensitivity", [*symbols, along], [*outputs, off])


def _largest(matrix: Any) -> Any:
    return casadi.mmax(casadi.fabs(matrix)) if matrix.numel() else casadi.MX(0.0)
