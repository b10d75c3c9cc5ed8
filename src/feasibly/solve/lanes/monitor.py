"""Watching all lanes at once: which have converged, which attempts have ended, and whose Hessian is to be shifted.

After every iteration (`LaneMonitor.look`), for all lanes together:

1. convergence: the errors below their limits and `mu` small, or as much of that as rounding allows;
2. stalling: divergence, short steps, an infeasible stationary point, no iterations left;
3. a lane that has converged where the inertia is not known to be right is kept for one more iteration to find out;
4. inertia correction: a lane whose inertia is wrong stays where it is, with a larger shift;
5. lanes of large problems switch to `final_large` steps once they are feasible and complementary.

As `_attempt` does it for one row, but that nothing here waits for a single lane. An iteration takes a fraction of a
millisecond for all of them: what is done here beside it counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from feasibly.solve.lanes.attempts import Attempt
from feasibly.solve.lanes.formulas import INFO, PARAMETERS
from feasibly.solve.lanes.iteration import LaneIteration
from feasibly.solve.records import Array
from feasibly.solve.settings import SolverSettings

Mask = NDArray[np.bool_]

_BARRIER, _SHIFT, _WEIGHT, _ELASTIC, _REFINE = (
    PARAMETERS.index(name) for name in ("barrier", "shift", "weight", "elastic", "refine below")
)
_FEASIBILITY, _MU, _PRIMAL, _DUAL, _COST = (
    INFO.index(name) for name in ("feasibility", "mu", "primal step", "dual step", "cost of residuals")
)


class Limits(NamedTuple):
    """When a lane has converged, and when its attempt has stalled; a column of all lanes' limits."""

    stationarity: float
    feasibility: float
    complementarity: float
    """The largest errors of a row that has converged."""
    mu: float
    """Its largest `mu`, which times the number of slacks also limits what residuals cost."""
    rounded: float
    """The largest stationarity of a row that is as good as rounding allows."""
    enough_rounded: float
    """So many iterations like that in a row are enough."""
    short_step: float
    """A step below this length is short."""
    most_short: float
    """So many short ones in a row stall an attempt."""
    most_iterations: float


@dataclass(frozen=True, eq=False)
class LaneRules:
    """What holds for a lane during one kind of attempt."""

    parameters: Array
    """Of the iteration, as `PARAMETERS` names them."""
    limits: Limits
    final_parameters: Array | None = None
    """Those once a lane is feasible and complementary, where they are others then."""


_IDLE = Limits(-1.0, -1.0, -1.0, -1.0, -1.0, np.inf, 0.0, np.inf, np.inf)
"""Limits under which a lane neither converges nor stalls."""


class LaneMonitor:
    """Counters and flags of all lanes. A lane is started with an attempt, looked at, and released.

    Attributes:
        iterations: of each lane's attempt so far.
        violation: the largest one of each lane, when it was last looked at.
    """

    def __init__(self, iteration: LaneIteration, settings: SolverSettings, large: bool) -> None:
        self._iteration, self._settings, self._large = iteration, settings, large
        width = iteration.width
        self._limits = np.tile(np.array(_IDLE)[:, None], width)
        self._tolerances = self._limits[:4]
        self._of = Limits(*self._limits)  # views of it, by name
        self.iterations, self.violation = np.zeros(width, dtype=np.int64), np.full(width, np.inf)
        # So many iterations in a row:
        self._short_steps = np.zeros(width, dtype=np.int64)
        self._at_rounding = np.zeros(width, dtype=np.int64)  # that were as good as rounding allows
        self._unchanged = np.zeros(width, dtype=np.int64)  # of full steps that left the violation as it was
        # Lanes that
        self._busy = np.zeros(width, dtype=bool)  # have a row
        self._elastic = np.zeros(width, dtype=bool)  # are elastic
        self._inexact = np.zeros(width, dtype=bool)  # are elastic and need not end at the optimum
        self._corrects = np.zeros(width, dtype=bool)  # correct their inertia
        self._rechecked = np.zeros(width, dtype=bool)  # have been kept to look at their inertia again
        self._switches = np.zeros(width, dtype=bool)  # will switch to final steps
        self._shift = np.zeros(width)
        self._final_parameters: dict[int, Array] = {}
        self._acceptable: dict[int, tuple[Array, bool]] = {}
        """Iterates whose errors are below their limits while `mu` is not, and whether their inertia was right."""

    def start(self, lane: int, attempt: Attempt, rules: LaneRules) -> None:
        """A lane begins an attempt."""
        self._iteration.parameters[:, lane], self._limits[:, lane] = rules.parameters, rules.limits
        self.iterations[lane] = self._short_steps[lane] = self._at_rounding[lane] = self._unchanged[lane] = 0
        self.violation[lane], self._shift[lane] = np.inf, 0.0
        self._busy[lane], self._rechecked[lane], self._corrects[lane] = True, False, attempt.correct_inertia
        self._elastic[lane] = attempt.elastic
        self._inexact[lane] = attempt.elastic and not attempt.to_optimum
        self._switches[lane] = rules.final_parameters is not None
        if rules.final_parameters is not None:
            self._final_parameters[lane] = rules.final_parameters

    def release(self, lane: int) -> None:
        """Leave a lane to itself: it costs what it costs, and counts for nothing."""
        self._limits[:, lane] = _IDLE
        self._busy[lane] = self._corrects[lane] = self._elastic[lane] = False
        self._inexact[lane] = self._switches[lane] = False
        self._shift[lane] = self.iterations[lane] = 0
        for parameter in (_ELASTIC, _REFINE):
            self._iteration.parameters[parameter, lane] = 0.0

    def look(self) -> tuple[Mask, Mask]:
        """Lanes that have converged, and those whose attempt has ended, after an iteration."""
        converged, ended = self._judge()
        if converged.any():
            self._recheck_inertia(converged, ended)
        if self._corrects.any():
            self._correct_inertia(ended)
        if self._switches.any():
            self._switch_to_final()
        return converged, ended

    def end(self, lane: int, converged: bool) -> tuple[Array | None, bool]:
        """The iterate that a lane's attempt ended at, if it is optimal to first order, and whether it is a minimum.

        That of an elastic attempt which another follows is looked at where that one ends.
        """
        iteration = self._iteration
        iterate, right = self._acceptable.pop(lane, (None, False)) if self._acceptable else (None, False)
        if converged:
            here = bool(self._inexact[lane] or iteration.inertia_is_right()[lane])
            if here or not right:
                iterate, right = iteration.iterate[:, lane], here
        return iterate, right

    def stays_infeasible(self, lane: int) -> bool:
        """Whether full steps have left the violation as it was often enough: an infeasible stationary point."""
        return bool(self._unchanged[lane] >= self._settings.infeasible_steps)

    # ---- 1, 2: converged and stalled --------------------------------------------------------------------

    def _judge(self) -> tuple[Mask, Mask]:
        info, s = self._iteration.info, self._settings
        sound = info.max(axis=0) < s.divergence  # false for NaN
        # Its first four entries are stationarity, feasibility, complementarity and mu.
        stationary, feasible, complementary, gap_is_small = info[:4] <= self._tolerances
        # Residuals of the constraints, too, change the cost by no more than the duality gap may.
        gap_is_small &= info[_COST] <= self._tolerances[_MU] * self._iteration.newton.n_slacks
        acceptable = sound & stationary & feasible & complementary
        rounded = (
            sound & gap_is_small & complementary & (feasible | self._inexact) & (info[0] <= self._of.rounded)
        )
        self._at_rounding += 1
        self._at_rounding *= rounded
        converged = (acceptable & gap_is_small) | (self._at_rounding >= self._of.enough_rounded)
        self.iterations += 1
        self._short_steps += 1
        self._short_steps *= np.minimum(info[_PRIMAL], info[_DUAL]) < self._of.short_step
        self._keep(acceptable & ~converged)
        ended = converged | ~sound | (self._short_steps >= self._of.most_short)
        if self._large:
            ended |= self._are_unchanged()
        late = self.iterations >= self._of.most_iterations
        if late.any():
            errors = info[:3].max(axis=0)
            late &= ~(
                (errors <= s.extend_below)
                & (self.iterations < s.extended_iterations * self._of.most_iterations)
            )
            good = (info[:3] <= s.acceptable_factor * self._tolerances[:3]).all(axis=0)
            converged |= late & sound & gap_is_small & good
            ended |= late
        return converged, ended & self._busy

    def _are_unchanged(self) -> Mask:
        """Lanes at an infeasible stationary point: full steps have left their violation as it was.

        Multipliers of constraints that cannot hold then grow by as much in every step (the matrix's small corner lets
        them), and everything else has converged. Small problems hardly ever end so: they stall before.
        """
        info, s = self._iteration.info, self._settings
        violation = info[_FEASIBILITY]
        full = np.minimum(info[_PRIMAL], info[_DUAL]) >= s.full_step
        as_it_was = (violation >= s.infeasible_above) & (
            np.abs(violation - self.violation) <= s.violation_change * violation
        )
        self._unchanged += 1
        self._unchanged *= full & as_it_was & ~self._elastic & ~self._rechecked
        self.violation = violation.copy()
        return np.asarray(self._unchanged >= s.infeasible_steps)

    def _keep(self, acceptable: Mask) -> None:
        """Keep the iterates of lanes that are as good as done: they may yet stall. The last minimum, or the last
        one."""
        if not acceptable.any():
            return
        iteration = self._iteration
        right = iteration.inertia_is_right() & (iteration.parameters[_SHIFT] == 0.0)
        for lane in np.flatnonzero(acceptable).tolist():
            known, own = self._acceptable.get(lane), bool(right[lane])
            if own or known is None or not known[1]:
                self._acceptable[lane] = iteration.iterate[:, lane].copy(), own

    # ---- 3, 4: inertia ----------------------------------------------------------------------------------

    def _recheck_inertia(self, converged: Mask, ended: Mask) -> None:
        """Keep lanes that have converged at what may be a saddle for one more iteration, slightly shifted.

        Where the cost is flat, rounding decides whether it curves upwards.
        """
        iteration, weight = self._iteration, self._iteration.parameters[_WEIGHT]
        # Where the objective counts less, so does its curvature.
        flat = self._settings.flat_curvature * np.where(weight > 0.0, weight, 1.0)
        asked = converged & ~self._rechecked & ((weight == 0.0) | ~self._inexact)
        certain = iteration.inertia_is_right() & (iteration.parameters[_SHIFT] <= flat)
        for lane in np.flatnonzero(asked & ~certain).tolist():
            self._rechecked[lane] = True
            iteration.parameters[_SHIFT, lane] = flat[lane]
            iteration.following[:, lane] = iteration.iterate[:, lane]
            converged[lane] = ended[lane] = False

    def _correct_inertia(self, ended: Mask) -> None:
        """Hold lanes whose inertia is wrong where they are, and shift their Hessian further.

        Nobody waits for them: the next iteration tries again, and the others go on.
        """
        iteration, (first, factor, last) = self._iteration, self._settings.lane_hessian_shifts
        right, corrected = iteration.inertia_is_right(), self._corrects & ~self._rechecked
        held = corrected & ~right & ~ended
        self._shift = np.where(
            held,
            np.maximum(first, factor * self._shift),
            np.where(corrected & right, self._shift / self._settings.shift_decrease, self._shift),
        )
        self._shift[self._shift < first] = 0.0
        if held.any():
            iteration.following[:, held] = iteration.iterate[:, held]
            self._short_steps[held] = self._at_rounding[held] = self._unchanged[held] = 0
        ended |= self._shift > last
        iteration.parameters[_SHIFT, corrected] = self._shift[corrected]

    # ---- 5: the last digits of large problems -----------------------------------------------------------

    def _switch_to_final(self) -> None:
        """Lanes of large problems that are feasible and complementary: what is left is in their multipliers."""
        info, parameters, s = self._iteration.info, self._iteration.parameters, self._settings
        there = (
            self._switches
            & ~self._rechecked
            & (info[_FEASIBILITY] <= s.check_below)
            & (info[_MU] <= s.centrality * parameters[_BARRIER])
        )
        for lane in np.flatnonzero(there).tolist():
            shift = parameters[_SHIFT, lane]
            parameters[:, lane] = self._final_parameters[lane]
            parameters[_SHIFT, lane] = shift
            self._switches[lane] = False
