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
    stood: int = 0
    """How many attempts ended at a least infeasible point: two where one from the nominal solution and one from the
    first guess did, off by as much (see `lanes.run`)."""


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
            self.held_up = s.central * s.share_held_up * cost
            barrier = s.share_held_up * cost / self._newton.rows
            self.barrier = float(np.clip(barrier, s.smallest_barrier, s.least_barrier))
        self.centres = self._climb(state) or self._descend(start)
        return bool(self.centres)

    def _climb(self, state: State | None) -> list[State]:
        """The centres found from the nominal solution upwards, as far as that leads."""
        s, found = self.settings, []
        barrier = s.centres[0]
        while barrier <= s.centres[-1] and state is not None:
            state = self._approach(state, barrier)
            if state is not None and barrier in s.centres:
                found.append(state)
            wider = [centre for centre in s.centres if centre > barrier]
            barrier = min([s.climb * barrier, *wider]) if wider else np.inf
        return found

    def _descend(self, start: Point) -> list[State]:
        """The same from above: of 70,000 outputs some are at their bounds, and lead nowhere upwards.

        It begins well inside of everything, as central as that is, near the nominal solution.
        """
        s, found = self.settings, []
        barrier = s.centres[-1]
        begun = self.begin(self.model.nominal, start, s.elastic_inside)
        state: State | None = State(begun.y, begun.nu, begun.s, barrier / begun.s)
        while barrier >= s.centres[0] and state is not None:
            state = self._approach(state, barrier)
            if state is not None and barrier in s.centres:
                found.append(state)
            lower = [centre for centre in s.centres if centre < barrier]
            barrier = max([barrier / s.climb, *lower]) if lower else -np.inf
        return found[::-1]

    def _approach(self, state: State, barrier: float) -> State | None:
        """The point of the nominal input's central path with this barrier, or `None`."""
        s = self.settings
        for _ in range(s.most_iterations):
            *values, info, _ = self._move(state, self.model.nominal, barrier, s.careful)
            if not np.max(info) < s.runaway:
                return None
            if max(info[:2]) <= s.nearly and barrier / s.central <= info[3] <= s.central * barrier:
                return state
            state = State(*values)
        return None

    def begin(self, x: Array, start: Point, inside: float | None = None) -> State:
        """An interior point near a given one, by `inside` or else by as much as the given one is wrong."""
        model, newton, s = self.model, self._newton, self.settings
        lower, upper = (bound[model.free] for bound in model.search_at(x))
        y, nu, duals = newton.scaled(start)
        y, duals = np.clip(y, lower, upper), np.concatenate([duals, np.ones(newton.padding)])
        _, equality, inequality, _ = self._slim(y, x, nu, duals[: model.n_inequalities])
        gaps = newton.slacks(y, inequality, lower, upper)
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
        near, wide = self.centres[0], self.centres[-1]
        if len(self.model.free) < s.large_from:
            attempts = [self._iterate(x, near, s.hasty)]
        else:
            # One that ended at a saddle ends at a minimum beside it, and careful steps get stuck at once (see `ways`).
            attempts = [self._iterate(x, near, s.large)]
            if not attempts[-1].converged and not attempts[-1].stood:
                attempts.append(self._iterate(x, wide, s.large, guarded=True))
            if not attempts[-1].converged and attempts[-1].stood:
                attempts.append(self._iterate(x, self.from_afar(x), s.large))
        off = [attempt.feasibility for attempt in attempts if attempt.stood]
        same = len(off) == 2 and abs(off[1] - off[0]) <= s.standing_apart * off[0]
        if not attempts[-1].converged and not same:
            attempts.append(self._iterate(x, wide, s.careful))
        last = attempts[-1]
        count = sum(attempt.iterations for attempt in attempts)
        return Finish(last.state, last.converged, count, last.feasibility, 2 if same else len(off[:1]))

    def from_afar(self, x: Array) -> State:
        """An interior point near the problem's first guess, with multipliers that make it central."""
        model, s = self.model, self.settings
        n, ne, ni = len(model.lower), model.n_equalities, model.n_inequalities
        guess = Point.of(model.start, np.zeros(ne), np.zeros(ni), np.zeros(n), np.zeros(n))
        state = self.begin(x, guess, s.elastic_inside)
        return State(state.y, state.nu, state.s, s.centres[-1] / state.s)

    def solve_guarded(self, x: Array) -> Finish:
        """Iterate from the widest centre with a Hessian that is made to curve upwards in every step."""
        return self._iterate(x, self.centres[-1], self.settings.careful, guarded=True)

    def _iterate(self, x: Array, state: State, manner: Manner, guarded: bool = False) -> Finish:
        s = self.settings
        nearly, short, settled, matrix, shift, violation = False, 0, 0, None, 0.0, np.inf
        acceptable: Finish | None = None
        turned: State | None = None
        still, before = 0, np.inf
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
            if not np.max(info[:6]) < s.runaway:  # NaN included
                break
            if not np.isfinite(values[0]).all():  # a pivot was zero: stiff entries drowned it
                if manner is not s.large:
                    break
                manner = s.finishing
                continue
            error, steps, violation = max(info[:3]), info[4:6], float(info[1])
            held_up = state.s @ state.z > self.held_up
            if error <= self.tolerance:
                here = Finish(state, self._curves_up(matrix), iteration)
                if not held_up:
                    return here
                if acceptable is None or here.converged or not acceptable.converged:
                    acceptable = here
            # Of large multipliers rounding leaves more than the tolerance, for ever.
            good = max(info[1:3]) <= self.tolerance and info[0] <= s.settled_error and not held_up
            settled = settled + 1 if good else 0
            if settled == s.settled:
                return Finish(state, self._curves_up(matrix), iteration)
            nearly = error <= s.nearly
            if (
                manner is s.large
                and not turned
                and info[1] <= s.nearly
                and info[3] <= s.central * self.barrier
            ):
                manner, turned = s.finishing, state
                continue
            still = still + 1 if self._stands(info, before) else 0
            if still == s.standing:
                return Finish(state, False, iteration, violation, stood=1)
            before = violation
            short = short + 1 if min(steps) < manner.short else 0
            if short == manner.most:
                if manner is not s.finishing or turned is None:
                    break
                # Where a cap on stiff entries leaves no way, it goes on without from where that began.
                manner, state, short = s.large, turned, 0
                continue
            state = State(*values)
        return acceptable or Finish(state, False, iteration, violation)

    def _stands(self, info: Array, before: float) -> bool:
        """Whether a whole step leaves what constraints are off by as it was, and there are many of them."""
        s = self.settings
        if len(self.model.free) < s.large_from or info[1] < s.clearly:
            return False
        return bool(min(info[4:6]) >= s.whole_step and abs(info[1] - before) <= s.standing_change * info[1])

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
