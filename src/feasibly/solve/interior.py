"""A sparse primal-dual interior-point method for many nearby instances of one problem.

IPOPT spends most of a warm solve on what does not change from row to row: it analyses the pattern of its
linear system anew, and keeps slacks and their rows in it. Here the slacks are eliminated, the pattern is
ordered once, and one iteration is one CasADi function (`_newton`). Rows start on the central path of the nominal
input, near its end; one that gets stuck there starts again where the path is wider, and the last time with the
Hessian shifted where it does not curve upwards. There is no line search: a row that does not end at a point which
satisfies the optimality conditions, the sign of the curvature included, is left to IPOPT.
"""

from __future__ import annotations

from dataclasses import dataclass

import casadi
import numpy as np

from feasibly.problem.point import Point
from feasibly.solve._newton import Newton
from feasibly.solve.compiled import Compiled
from feasibly.solve.model import Model
from feasibly.solve.records import Array
from feasibly.solve.settings import Manner, SolverSettings


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
    feasibility: float = 0.0
    """The largest violation, in scaled units, that was left when it was last looked at."""


class Interior:
    """The method for one model. Its functions are built once; `solve` only evaluates them."""

    def __init__(self, model: Model, tolerance: float, settings: SolverSettings) -> None:
        self.model = model
        self.tolerance = tolerance
        self.settings = settings
        self._newton = Newton(model, settings)
        self._step = Compiled(self._newton.step())
        self._check = Compiled(self._newton.errors())
        self._fixed = Compiled(model.fixed)
        self._slim = Compiled(model.slim)
        self._inertia = casadi.Linsol("inertia", "ldl", self._step.function.sparsity_out(5))
        self.centres: list[State] = []
        self.barrier, self.held_up = settings.least_barrier, np.inf

    # ---- solving ---------------------------------------------------------------------------------------

    def centre(self, start: Point) -> bool:
        """Find the points of the nominal input's central path that rows begin at; `False` if there is none."""
        s = self.settings
        state: State | None = self.begin(self.model.nominal, start)
        assert state is not None
        cost = abs(
            float(
                self._slim(state.y, self.model.nominal, state.nu, state.z[: self.model.n_inequalities])[0][0]
            )
        )
        if cost > 0.0:
            self.held_up = 2.0 * s.share_held_up * cost
            barrier = s.share_held_up * cost / self._newton.rows
            self.barrier = float(np.clip(barrier, s.smallest_barrier, s.least_barrier))
        barrier = s.centres[0]
        self.centres = []
        while barrier <= s.centres[-1] and state is not None:
            state = self._approach(state, barrier)
            if state is not None and barrier in s.centres:
                self.centres.append(state)
            wider = [centre for centre in s.centres if centre > barrier]
            barrier = min([s.climb * barrier, *wider]) if wider else np.inf
        return bool(self.centres)

    def _approach(self, state: State, barrier: float) -> State | None:
        """The point of the nominal input's central path with this barrier, or `None`."""
        s = self.settings
        for _ in range(s.most_iterations):
            *values, info, _ = self._move(state, self.model.nominal, barrier, s.careful)
            if not max(info) < s.runaway:
                return None
            if max(info[:2]) <= s.nearly and barrier / s.central <= info[3] <= s.central * barrier:
                return state
            state = State(*values)
        return None

    def begin(self, x: Array, start: Point, inside: float | None = None) -> State:
        """An interior point near a given one, by `inside` or else by as much as the given one is wrong."""
        model, newton, s = self.model, self._newton, self.settings
        lower, upper = (bound[model.free] for bound in model.search_at(x))
        y = np.clip(start.y[model.free], lower, upper)
        nu = start.duals.equality * model.objective_scale / model.equality_scale
        duals = np.concatenate([
            start.duals.inequality * model.objective_scale / model.inequality_scale,
            start.duals.lower[model.free][newton.below] * model.objective_scale,
            start.duals.upper[model.free][newton.above] * model.objective_scale,
            np.ones(newton.padding),
        ])  # fmt: skip
        _, equality, inequality, _ = self._slim(y, x, nu, duals[: model.n_inequalities])
        gaps = np.concatenate([
            -inequality, (y - lower)[newton.below], (upper - y)[newton.above], np.ones(newton.padding)
        ])  # fmt: skip
        if inside is None:
            wrong = max(np.abs(equality).max(initial=0.0), -gaps.min(initial=0.0))
            inside = float(np.clip(s.inside_share * wrong, *s.inside_range))
        slack = np.maximum(gaps, inside)
        return State(y, nu, slack, np.maximum(duals, s.inside_complementarity * inside / slack))

    def solve(self, x: Array, start: Point | None = None, inside: float | None = None) -> Finish:
        """Iterate from `start` (see `begin`), or from the centres that were found for the nominal input."""
        s = self.settings
        if start is not None:
            return self._iterate(x, self.begin(x, start, inside), s.warm if inside is None else s.careful)
        if not self.centres:
            raise ValueError("there is no centre to start from")
        count = 0
        first = s.hasty if len(self.model.free) < s.large_from else s.large
        for centre, manner in ((self.centres[0], first), (self.centres[-1], s.careful)):
            finish = self._iterate(x, centre, manner)
            count += finish.iterations
            if finish.converged:
                break
        return Finish(finish.state, finish.converged, count, finish.feasibility)

    def solve_guarded(self, x: Array) -> Finish:
        """Iterate from the widest centre with a Hessian that is made to curve upwards in every step."""
        return self._iterate(x, self.centres[-1], self.settings.careful, guarded=True)

    def _iterate(self, x: Array, state: State, manner: Manner, guarded: bool = False) -> Finish:
        s = self.settings
        nearly, short, matrix, shift, violation = False, 0, None, 0.0, np.inf
        acceptable: Finish | None = None
        for iteration in range(s.most_iterations):
            if nearly:
                (errors,) = self._check(state.y, state.nu, state.s, state.z, x)
                if max(errors) <= self.tolerance and state.s @ state.z <= self.held_up:
                    return Finish(state, self._curves_up(matrix), iteration)
            *values, info, matrix = self._move(state, x, self.barrier, manner)
            if guarded and not self._curves_up(matrix):
                first, factor, last = s.shifts
                shift = max(first, shift / factor)
                while shift <= last:
                    # The shifted matrix makes the step; whether the point is a minimum is asked of its own.
                    *values, info, shifted = self._move(state, x, self.barrier, manner, shift)
                    if self._curves_up(shifted):
                        break
                    shift *= factor
            if not max(info[:6]) < s.runaway:  # NaN included
                break
            error, steps, violation = max(info[:3]), info[4:6], float(info[1])
            if error <= self.tolerance:
                acceptable = Finish(state, self._curves_up(matrix), iteration)
                if state.s @ state.z <= self.held_up:
                    return acceptable
            nearly = error <= s.nearly
            if manner is s.large and info[1] <= s.nearly and info[3] <= s.central * self.barrier:
                manner = s.finishing
            short = short + 1 if min(steps) < manner.short else 0
            if short == manner.most:
                break
            state = State(*values)
        return acceptable or Finish(state, False, iteration, violation)

    def _move(
        self, state: State, x: Array, barrier: float, manner: Manner, shift: float = 0.0
    ) -> list[Array]:
        return self._step(state.y, state.nu, state.s, state.z, x, manner.settings(barrier, shift))

    def point(self, x: Array, state: State) -> Point:
        """A state as a point in the problem's own units, multipliers of fixed outputs included."""
        model = self.model
        newton = self._newton
        ni, nl, nu = model.n_inequalities, len(newton.below), len(newton.above)
        lower, upper = model.bounds_at(x)
        y = lower.copy()
        y[model.free] = np.clip(state.y, lower[model.free], upper[model.free])
        low, high = np.zeros(len(y)), np.zeros(len(y))
        low[model.free[newton.below]] = state.z[ni : ni + nl]
        high[model.free[newton.above]] = state.z[ni + nl : ni + nl + nu]
        pinned = lower >= upper
        if pinned.any():
            pull = np.zeros(len(y))
            (pull[model.fixed_outputs],) = self._fixed(y, x, state.nu, state.z[:ni])
            low[pinned], high[pinned] = (np.maximum(s * pull[pinned], 0.0) for s in (1.0, -1.0))
        unit = model.objective_scale
        return Point.of(
            y,
            state.nu * model.equality_scale / unit,
            state.z[:ni] * model.inequality_scale / unit,
            low / unit,
            high / unit,
        )

    def _curves_up(self, matrix: Array | None) -> bool:
        """Whether the last system has as many negative eigenvalues as equalities: a minimum, not a saddle."""
        if matrix is None:
            return False
        system = casadi.DM(self._step.function.sparsity_out(5), matrix)
        self._inertia.nfact(system)
        return bool(self._inertia.neig(system) == self.model.n_equalities)
