"""One attempt of the interior-point method at one row: iterate from a start until it converges or stalls.

In every iteration, in this order:

1. an iterate whose predecessor was nearly optimal is checked before it is worked on;
2. a step is computed, with the Hessian shifted until its inertia is right if the attempt corrects inertia;
3. divergence and zero pivots end the attempt;
4. convergence: all errors below the tolerance and the duality gap small, or as much of that as rounding allows;
5. large problems switch to `final_large` steps once they are feasible and complementary;
6. stalling: an infeasible stationary point, or too many short steps;
7. the step is taken.

A point is `CONVERGED` only if the inertia of an unshifted matrix is right: its own, or its predecessor's where it was
checked first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from feasibly.solve.iteration import InteriorIterate, RowIteration, Step
from feasibly.solve.records import Array
from feasibly.solve.settings import SolverSettings, StepSettings
from feasibly.solve.status import AttemptStatus


@dataclass(frozen=True)
class Goal:
    """Where attempts aim at, and what is good enough.

    Attributes:
        tolerance: of the scaled errors.
        barrier: the least `mu` that is aimed at.
        largest_gap: of the duality gap `s'z`, and of what residuals of the constraints cost.
        large: whether there are so many outputs that one of their bounds is always near.
    """

    tolerance: float
    barrier: float
    largest_gap: float
    large: bool


@dataclass(frozen=True, eq=False)
class AttemptEnd:
    """Where an attempt ended, and how."""

    iterate: InteriorIterate
    status: AttemptStatus
    iterations: int
    violation: float = 0.0
    """The largest one, in scaled units, that was left when it was last looked at."""

    @property
    def converged(self) -> bool:
        """Whether it ended at a minimum."""
        return self.status is AttemptStatus.CONVERGED


class InteriorAttempt:
    """The loop, and what it has to remember from one iteration to the next."""

    def __init__(
        self,
        iteration: RowIteration,
        goal: Goal,
        settings: SolverSettings,
        x: Array,
        start: InteriorIterate,
        step: StepSettings,
        correct_inertia: bool = False,
    ) -> None:
        self._iteration, self._goal, self._settings = iteration, goal, settings
        self._x, self._iterate, self._step_settings = x, start, step
        self._correct_inertia, self._shift = correct_inertia, 0.0
        self._count = 0
        self._matrix: Array | None = None
        """Of the last step, its Hessian unshifted."""
        self._nearly_optimal = False
        self._violation = self._last_violation = np.inf
        self._short_steps = self._at_rounding = self._unchanged = 0
        """So many in a row: short steps, iterates that are as good as rounding allows, full steps that left the
        violation as it was."""
        self._acceptable: AttemptEnd | None = None
        """The last iterate whose errors are below the tolerance while its gap is not, a minimum if there was one."""
        self._switched_at: InteriorIterate | None = None
        """Where the steps became those of `final_large`."""

    def run(self) -> AttemptEnd:
        """Iterate to the end."""
        for count in range(self._settings.most_iterations):
            self._count = count
            if self._nearly_optimal and self._passes():
                return self._converged()
            step = self._step()
            if not np.max(step.info) < self._settings.divergence:  # NaN included
                break
            if not np.isfinite(step.following.y).all():  # a pivot was zero: large ratios drowned it
                if self._step_settings is not self._settings.fast_large:
                    break
                self._step_settings = self._settings.final_large
                continue
            self._violation = step.violation
            if end := self._convergence(step):
                return end
            if self._switches_to_final(step):
                continue
            if self._stays_infeasible(step):
                return self._stalled(AttemptStatus.INFEASIBLE_POINT)
            if not self._too_many_short_steps(step):
                self._iterate = step.following
            elif not self._undo_switch():
                break
        return self._acceptable or self._stalled(AttemptStatus.STALLED)

    # ---- 1, 2: the step ---------------------------------------------------------------------------------

    def _passes(self) -> bool:
        """Whether the iterate is optimal, by its first derivatives alone."""
        *errors, costs = self._iteration.errors(self._iterate, self._x)
        # Each by itself: of several numbers with NaN among them `max` may name another one.
        return all(error <= self._goal.tolerance for error in errors) and self._gap_is_small(costs)

    def _gap_is_small(self, cost_of_residuals: float) -> bool:
        """Whether the cost is right: neither the barrier nor constraints that hold nearly change it by much."""
        return bool(
            max(cost_of_residuals, self._iterate.gap) <= self._goal.largest_gap
        )  # NaN first: then it stays

    def _step(self) -> Step:
        """An iteration from here; whether the point is a minimum is asked of its own matrix, not of a shifted one."""
        barrier = self._goal.barrier
        step = self._iteration.step(self._iterate, self._x, barrier, self._step_settings)
        self._matrix = step.matrix
        if self._correct_inertia and not self._iteration.inertia_is_right(step.matrix):
            first, factor, last = self._settings.hessian_shifts
            self._shift = max(first, self._shift / factor)
            while self._shift <= last:
                step = self._iteration.step(self._iterate, self._x, barrier, self._step_settings, self._shift)
                if self._iteration.inertia_is_right(step.matrix):
                    break
                self._shift *= factor
        return step

    # ---- 4: convergence ---------------------------------------------------------------------------------

    def _convergence(self, step: Step) -> AttemptEnd | None:
        """The end, where the iterate that the step began at is optimal."""
        s, tolerance = self._settings, self._goal.tolerance
        error, gap_is_small = max(step.errors), self._gap_is_small(step.cost_of_residuals)
        if error <= tolerance:
            end = self._converged()
            if gap_is_small:
                return end
            if self._acceptable is None or end.converged or not self._acceptable.converged:
                self._acceptable = end
        # Of large multipliers rounding leaves more than the tolerance, for ever.
        rounded = max(step.errors[1:]) <= tolerance and step.errors[0] <= s.rounding_error and gap_is_small
        self._at_rounding = self._at_rounding + 1 if rounded else 0
        if self._at_rounding == s.rounding_iterations:
            return self._converged()
        self._nearly_optimal = bool(error <= s.check_below)
        return None

    def _converged(self) -> AttemptEnd:
        right = self._iteration.inertia_is_right(self._matrix)
        status = AttemptStatus.CONVERGED if right else AttemptStatus.STALLED
        return AttemptEnd(self._iterate, status, self._count)

    # ---- 5, 6: switching and stalling -------------------------------------------------------------------

    def _switches_to_final(self, step: Step) -> bool:
        """Once, for large problems: what is left is in the multipliers."""
        s = self._settings
        if self._step_settings is not s.fast_large or self._switched_at is not None:
            return False
        if step.violation > s.check_below or step.mu > s.centrality * self._goal.barrier:
            return False
        self._step_settings, self._switched_at = s.final_large, self._iterate
        return True

    def _undo_switch(self) -> bool:
        """Go on without bounded ratios from where they began, if they did: they lead nowhere."""
        if self._step_settings is not self._settings.final_large or self._switched_at is None:
            return False
        self._step_settings, self._iterate = self._settings.fast_large, self._switched_at
        self._short_steps = 0
        return True

    def _stays_infeasible(self, step: Step) -> bool:
        """Whether full steps have left the violation as it was often enough. Small problems stall before."""
        s = self._settings
        unchanged = (
            self._goal.large
            and step.violation >= s.infeasible_above
            and step.shorter >= s.full_step
            and abs(step.violation - self._last_violation) <= s.violation_change * step.violation
        )
        self._last_violation = step.violation
        self._unchanged = self._unchanged + 1 if unchanged else 0
        return self._unchanged == s.infeasible_steps

    def _too_many_short_steps(self, step: Step) -> bool:
        settings = self._step_settings
        self._short_steps = self._short_steps + 1 if step.shorter < settings.short_step else 0
        return self._short_steps == settings.most_short_steps

    def _stalled(self, status: AttemptStatus) -> AttemptEnd:
        return AttemptEnd(self._iterate, status, self._count, self._violation)
