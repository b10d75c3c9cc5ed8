"""A sparse primal-dual interior-point method for many nearby instances of one problem.

IPOPT spends most of a warm solve on what does not change from row to row: it analyses the pattern of its
linear system anew, and keeps slacks and their rows in it. Here the slacks are eliminated, the pattern is
ordered once, and one iteration is one CasADi function that never leaves compiled code. It is Mehrotra's
predictor-corrector method, started on the central path of the nominal input. There is no line search: a row
that does not end at a point which satisfies the optimality conditions, the sign of the curvature included, is
left to IPOPT.

With the inequalities and all finite bounds written as `c(y) + s = 0, s >= 0`, an iteration solves

    [ H + J' (z/s) J   A' ] [dy ]     [ gradient of the Lagrangian + J' (target/s - z + (z/s) (c + s)) ]
    [ A                0  ] [dnu] = - [ equality                                                       ]

and then `ds = -(c + s) - J dy`, `dz = target/s - z - (z/s) ds`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import casadi
import numpy as np

from feasibly.solve.compiled import Compiled
from feasibly.solve.model import Model
from feasibly.solve.records import Array, Start

_LEAST_BARRIER = 1e-9
"""The barrier parameter, in scaled units, that iterations end at."""
_CENTRE = 3e-3
"""Where on the nominal input's central path rows begin; 1e-2 to 1e-4 do about as well on 57 to 500 buses."""
_REGULARISATION = 1e-10, 1e-8
"""Primal and dual: they keep the factorisation alive where rows depend on each other, and are too small to
slow Newton's method down."""
_MOST_ITERATIONS = 40
_RUNAWAY = 1e12
_SHORT_STEP = 1e-3
_SHORT_STEPS = 3
"""So many steps in a row shorter than that mean the row is stuck."""
_NEARLY = 1e-5
"""Below this error the next iterate should pass, so it is checked before it is worked on."""


@dataclass(frozen=True, eq=False)
class State:
    """A primal-dual point in scaled units: free outputs, equality multipliers, slacks, their multipliers."""

    y: Array
    nu: Array
    s: Array
    z: Array


@dataclass(frozen=True, eq=False)
class Finish:
    """Where the iteration ended, and whether that point satisfies the optimality conditions."""

    state: State
    converged: bool
    iterations: int


class Interior:
    """The method for one model. Its functions are built once; `solve` only evaluates them."""

    def __init__(self, model: Model, tolerance: float, most_iterations: int = _MOST_ITERATIONS) -> None:
        self.model = model
        self.tolerance = tolerance
        self.most_iterations = most_iterations
        lower, upper = model.lower[model.free], model.upper[model.free]
        self._below, self._above = np.flatnonzero(np.isfinite(lower)), np.flatnonzero(np.isfinite(upper))
        self._n = len(model.free)
        rows = model.n_inequalities + len(self._below) + len(self._above)
        # A problem without any gets one that always holds, so that no formula meets an empty vector.
        self._padding = int(rows == 0)
        self._rows = rows + self._padding
        self._step = Compiled(self._iteration(None))
        self._check = Compiled(self._errors())
        self._fixed = Compiled(model.fixed)
        self._slim = Compiled(model.slim)
        self._inertia = casadi.Linsol("inertia", "ldl", self._step.function.sparsity_out(5))
        self._centre: State | None = None
        self._first: Compiled | None = None

    # ---- solving ---------------------------------------------------------------------------------------

    def centre(self, start: Start) -> bool:
        """Find the point of the nominal input's central path that rows begin at; `False` if there is none."""
        x, state = self.model.nominal, self.begin(self.model.nominal, start)
        for _ in range(self.most_iterations):
            *values, info, _ = self._step(state.y, state.nu, state.s, state.z, x, np.array([_CENTRE]))
            if not max(info) < _RUNAWAY:
                return False
            if max(info[:2]) <= _NEARLY and 0.5 * _CENTRE <= info[3] <= 2.0 * _CENTRE:
                self._centre = state
                self._first = Compiled(self._iteration(state))
                return True
            state = State(*values)
        return False

    def begin(self, x: Array, start: Start, inside: float | None = None) -> State:
        """An interior point near a given one, by `inside` or else by as much as the given one is wrong."""
        model = self.model
        lower, upper = (bound[model.free] for bound in model.search_at(x))
        y = np.clip(start.y[model.free], lower, upper)
        nu = start.equality_dual * model.objective_scale / model.equality_scale
        duals = np.concatenate([
            start.inequality_dual * model.objective_scale / model.inequality_scale,
            start.lower_dual[model.free][self._below] * model.objective_scale,
            start.upper_dual[model.free][self._above] * model.objective_scale,
            np.ones(self._padding),
        ])  # fmt: skip
        _, equality, inequality, _ = self._slim(y, x, nu, duals[: model.n_inequalities])
        gaps = np.concatenate([
            -inequality, (y - lower)[self._below], (upper - y)[self._above], np.ones(self._padding)
        ])  # fmt: skip
        if inside is None:
            wrong = max(np.abs(equality).max(initial=0.0), -gaps.min(initial=0.0))
            inside = float(np.clip(0.02 * wrong, 1e-6, 1e-2))
        slack = np.maximum(gaps, inside)
        return State(y, nu, slack, np.maximum(duals, 1e-2 * inside / slack))

    def solve(self, x: Array, start: Start | None = None, inside: float | None = None) -> Finish:
        """Iterate from `start` (see `begin`), or from the centre that was found for the nominal input."""
        if start is not None:
            state, count = self.begin(x, start, inside), 0
        elif self._centre is not None and self._first is not None:
            centre = self._centre
            *values, _, _ = self._first(
                centre.y, centre.nu, centre.s, centre.z, x, np.array([_LEAST_BARRIER])
            )
            state, count = State(*values), 1
        else:
            raise ValueError("there is no centre to start from")
        barrier = np.array([_LEAST_BARRIER])
        nearly, short, matrix = False, 0, None
        for iteration in range(count, self.most_iterations):
            point = state.y, state.nu, state.s, state.z, x
            if nearly:
                (errors,) = self._check(*point)
                if max(errors) <= self.tolerance:
                    return Finish(state, self._curves_up(matrix), iteration)
            *values, info, matrix = self._step(*point, barrier)
            if not max(info) < _RUNAWAY:  # NaN included
                break
            error, steps = max(info[:3]), info[4:6]
            if error <= self.tolerance:
                return Finish(state, self._curves_up(matrix), iteration)
            nearly = error <= _NEARLY
            short = short + 1 if min(steps) < _SHORT_STEP else 0
            if short == _SHORT_STEPS:
                break
            state = State(*values)
        return Finish(state, False, iteration)

    def point(self, x: Array, state: State) -> Start:
        """A state as a point in the problem's own units, multipliers of fixed outputs included."""
        model = self.model
        ni, nl, nu = model.n_inequalities, len(self._below), len(self._above)
        lower, upper = model.bounds_at(x)
        y = lower.copy()
        y[model.free] = np.clip(state.y, lower[model.free], upper[model.free])
        lower_dual, upper_dual = np.zeros(len(y)), np.zeros(len(y))
        lower_dual[model.free[self._below]] = state.z[ni : ni + nl]
        upper_dual[model.free[self._above]] = state.z[ni + nl : ni + nl + nu]
        pinned = lower >= upper
        if pinned.any():
            pull = np.zeros(len(y))
            (pull[model.fixed_outputs],) = self._fixed(y, x, state.nu, state.z[:ni])
            lower_dual[pinned], upper_dual[pinned] = (np.maximum(s * pull[pinned], 0.0) for s in (1.0, -1.0))
        unit = model.objective_scale
        return Start(
            y=y,
            equality_dual=state.nu * model.equality_scale / unit,
            inequality_dual=state.z[:ni] * model.inequality_scale / unit,
            lower_dual=lower_dual / unit,
            upper_dual=upper_dual / unit,
        )

    def _curves_up(self, matrix: Array | None) -> bool:
        """Whether the last system has as many negative eigenvalues as equalities: a minimum, not a saddle."""
        if matrix is None:
            return False
        system = casadi.DM(self._step.function.sparsity_out(5), matrix)
        self._inertia.nfact(system)
        return bool(self._inertia.neig(system) == self.model.n_equalities)

    # ---- one iteration as a function -------------------------------------------------------------------

    def _symbols(self) -> list[Any]:
        sizes = {"y": self._n, "nu": self.model.n_equalities, "s": self._rows, "z": self._rows}
        return [casadi.MX.sym(name, size) for name, size in (sizes | {"x": len(self.model.nominal)}).items()]

    def _residuals(self, symbols: Sequence[Any], parts: Sequence[Any]) -> tuple[Any, Any, Any]:
        """Stationarity, equality, and `c + s`."""
        y, _, s, z, x = symbols
        _, equality, inequality, slope = parts[:4]
        lower, upper = (bound[self.model.free.tolist()] for bound in self.model.search_of(x))
        ni, nl, nu = self.model.n_inequalities, len(self._below), len(self._above)
        at_lower, at_upper = z[ni : ni + nl, 0], z[ni + nl : ni + nl + nu, 0]
        below, above = _picker(self._below, self._n), _picker(self._above, self._n)
        slope = slope - casadi.mtimes(below.T, at_lower) + casadi.mtimes(above.T, at_upper)
        rows = casadi.vertcat(
            inequality,
            casadi.mtimes(below, lower - y),
            casadi.mtimes(above, y - upper),
            -casadi.DM.ones(self._padding),
        )
        return slope, equality, rows + s

    def _measure(self, symbols: Sequence[Any], residuals: Sequence[Any]) -> Any:
        """IPOPT's three scaled errors: stationarity, feasibility, complementarity."""
        _, nu, s, z, _ = symbols
        slope, equality, rows = residuals
        weight = (
            casadi.fmax(100.0, (casadi.norm_1(nu) + casadi.norm_1(z)) / (nu.shape[0] + z.shape[0])) / 100.0
        )
        infeasible = casadi.mmax(casadi.fabs(casadi.vertcat(equality, rows)))
        return casadi.vertcat(
            casadi.mmax(casadi.fabs(slope)) / weight, infeasible, casadi.mmax(s * z) / weight
        )

    def _errors(self) -> Any:
        symbols = self._symbols()
        y, nu, _, z, x = symbols
        parts = self.model.slim(y, x, nu, z[: self.model.n_inequalities, 0])
        return casadi.Function("errors", symbols, [self._measure(symbols, self._residuals(symbols, parts))])

    def _iteration(self, frozen: State | None) -> Any:
        """`(y, nu, s, z, x, barrier) -> (y, nu, s, z, [errors, mu, steps], matrix)`.

        With a state to freeze, the matrices are those of that state under the nominal input, so that one
        iteration from there costs no second derivatives: it is the sensitivity of the nominal solution.
        """
        symbols = self._symbols()
        y, nu, s, z, x = symbols
        barrier = casadi.MX.sym("barrier")
        ni = self.model.n_inequalities
        if frozen is None:
            parts = self.model.full(y, x, nu, z[:ni, 0])
            jacobians = parts[4:]
            ratio = z / s
        else:
            parts = self.model.slim(y, x, nu, z[:ni, 0])
            jacobians = self.model.full(frozen.y, self.model.nominal, frozen.nu, frozen.z[:ni])[4:]
            ratio = casadi.DM(frozen.z / frozen.s)
        residuals = slope, equality, rows = self._residuals(symbols, parts)
        equality_jacobian, inequality_jacobian, hessian = jacobians
        jacobian = casadi.vertcat(
            inequality_jacobian,
            -_picker(self._below, self._n),
            _picker(self._above, self._n),
            casadi.DM(self._padding, self._n),
        )
        system = self._system(hessian, equality_jacobian, jacobian, ratio)
        method = casadi.Linsol("newton", "ldl", system.sparsity())

        def direction(target: Any) -> tuple[Any, Any, Any, Any]:
            pull = target / s - z + ratio * rows
            right = casadi.vertcat(slope + casadi.mtimes(jacobian.T, pull), equality)
            change = method.solve(casadi.MX(system), -casadi.densify(right))
            dy, dnu = change[: self._n, 0], change[self._n :, 0]
            ds = -rows - casadi.mtimes(jacobian, dy)
            return dy, dnu, ds, target / s - z - ratio * ds

        mu = casadi.dot(s, z) / self._rows
        _, _, ds, dz = direction(casadi.DM.zeros(self._rows))
        ahead = casadi.dot(s + _longest(s, ds, 1.0) * ds, z + _longest(z, dz, 1.0) * dz) / self._rows
        wanted = casadi.fmax(casadi.fmin(1.0, (ahead / mu) ** 3) * mu, barrier)
        dy, dnu, ds, dz = direction(wanted - ds * dz)
        keep = casadi.fmax(0.995, 1.0 - mu)
        primal, dual = _longest(s, ds, keep), _longest(z, dz, keep)
        info = casadi.vertcat(self._measure(symbols, residuals), mu, primal, dual)
        moved = [y + primal * dy, nu + dual * dnu, s + primal * ds, z + dual * dz]
        return casadi.Function("iteration", [*symbols, barrier], [*moved, info, casadi.MX(system)])

    def _system(self, hessian: Any, equality_jacobian: Any, jacobian: Any, ratio: Any) -> Any:
        pattern = jacobian.sparsity()
        weighted = (
            type(jacobian)(pattern, casadi.vec(jacobian.nz[:]) * ratio[pattern.row(), 0])
            if pattern.nnz()
            else jacobian
        )
        primal, dual = _REGULARISATION
        block = hessian + casadi.mtimes(jacobian.T, weighted) + primal * casadi.DM.eye(self._n)
        corner = -dual * casadi.DM.eye(self.model.n_equalities)
        return casadi.blockcat([[block, equality_jacobian.T], [equality_jacobian, corner]])


def _picker(places: np.ndarray, size: int) -> Any:
    """The matrix that picks `places` out of a vector of `size`."""
    pattern = casadi.Sparsity.triplet(len(places), size, list(range(len(places))), places.tolist())
    return casadi.DM(pattern, 1.0)


def _longest(value: Any, change: Any, keep: Any) -> Any:
    """The longest step, at most one, that leaves every value at least `1 - keep` of itself."""
    return casadi.fmin(1.0, keep / casadi.fmax(casadi.mmax(-change / value), 1e-30))
