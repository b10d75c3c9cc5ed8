"""The driver: takes every row of a batch through a schedule, owns the clock, and keeps the best point so far.

In order (`Driver.run`):

1. the plan (`answer.plan`): levels, how many shared passes, and where the row-wise solver starts;
2. every row stands at the belief's mean, clipped to the bounds, with predicted multipliers (`_begin`); a level that
   starts from the belief itself takes its steps from the mean as it is (`shared._first_iterates`);
3. for each level of the schedule, the rows it takes (`_rows`) go through shared operators (`answer.shared`) or the
   row-wise solver (`_row_by_row`);
4. what each row came to is one record, `answer.progress.Found`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feasibly.answer.calibration import Calibration
from feasibly.answer.derivatives import Derivatives
from feasibly.answer.operator import Operator, build_operator, free_variables, invert_belief
from feasibly.answer.plan import Plan, plan_schedule
from feasibly.answer.progress import Found, Progress, Status
from feasibly.answer.rowwise import RowSolver
from feasibly.answer.schedule import Factorisation, Level, WhichRows
from feasibly.answer.settings import Settings
from feasibly.answer.shared import run_level
from feasibly.answer.sparse import SparseOperator, build_sparse_operator
from feasibly.answer.sparse_step import SparseIteration
from feasibly.answer.step import DenseIteration, Iterate
from feasibly.answer.system import Saved
from feasibly.model.belief import Covariance
from feasibly.problem._fixed import fixed_multipliers, own_multipliers
from feasibly.problem.core import Problem
from feasibly.problem.duals import with_fixed
from feasibly.problem.point import Duals, Point

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


class Driver:
    """Turns beliefs about one problem into answers that satisfy its constraints."""

    def __init__(
        self,
        problem: Problem,
        calibration: Calibration,
        covariance: Covariance,
        rowwise: RowSolver | None = None,
        *,
        reuse: Driver | None = None,
    ) -> None:
        """Operators are factored when first used: the first one by every run, which takes its spread.

        `reuse` is a driver for the same problem: what it has compiled and factored is taken over as far as it still
        holds.
        """
        self.problem = problem
        self.search = problem.with_fixed_bounds
        """The problem itself, or the same with bounds that no input moves: what the iteration works on."""
        self.calibration = calibration
        self.covariance = covariance if calibration.covariance is None else calibration.covariance
        if rowwise is None:
            rowwise = RowSolver(problem, calibration.settings.solver, calibration.watched)
        self.rowwise = rowwise
        self._operators: dict[int, Operator | SparseOperator] = {}
        self._precision: Array | None = None
        old = None if reuse is None else reuse.calibration
        if reuse is not None and reuse.rowwise.settings == calibration.settings.solver:
            known = reuse.rowwise
            self.rowwise = (
                known if known.watched is calibration.watched else known.watching(calibration.watched)
            )
        same = (
            old is not None
            and old.candidates is calibration.candidates
            and old.max_changes == calibration.max_changes
        )
        if reuse is None or old is None or not same or old.settings != calibration.settings:
            self._derivatives = Derivatives(self.search, calibration.candidates)
            self.iteration: Any  # of the same kind as the operators
            if calibration.sparse:
                self.iteration = SparseIteration(self.search, calibration.candidates, calibration.settings)
            else:
                self.iteration = DenseIteration(
                    self.search, calibration.candidates, calibration.max_changes, calibration.settings
                )
            return
        self._derivatives, self.iteration = reuse._derivatives, reuse.iteration
        if reuse.covariance is self.covariance:
            self._precision = reuse._precision
            alike = old.radius is calibration.radius and old.base is calibration.base
            if old.weight == calibration.weight and alike:
                pairs = zip(old.centres, calibration.centres, strict=False)
                kept = [i for i, (before, now) in enumerate(pairs) if before is now]
                self._operators = {i: reuse._operators[i] for i in kept if i in reuse._operators}

    def having(self, calibration: Calibration) -> Driver:
        """Another calibration, with what was compiled and factored kept as far as it holds."""
        return Driver(self.problem, calibration, self.covariance, reuse=self)

    @property
    def settings(self) -> Settings:
        """The constants in force."""
        return self.calibration.settings

    def operator(self, index: int) -> Any:
        """Shared operator `index`, factored on first use: an `Operator`, or a `SparseOperator` for a large problem."""
        c = self.calibration
        if index not in self._operators and c.sparse:
            self._operators[index] = build_sparse_operator(
                self.search, c.systems[index], c.centres[index], c.candidates, c.base, self.covariance.variance,
                c.weight, c.radius, c.settings,
            )  # fmt: skip
        elif index not in self._operators:
            if self._precision is None:
                free = free_variables(self.search)
                self._precision = invert_belief(self.covariance, free, self.settings.belief_floor)
            self._operators[index] = build_operator(
                self.search, self.derivatives(index), c.centres[index], c.candidates, c.base, self._precision, c.weight,
                c.radius, c.settings, c.switches[index] if c.switches else None,
            )  # fmt: skip
        return self._operators[index]

    def derivatives(self, index: int) -> Derivatives | Saved:
        """The derivatives at centre `index`: those that were saved, or what computes them."""
        systems = self.calibration.systems
        return Saved(systems[index]) if index < len(systems) else self._derivatives

    def start(self, x: Array, mean: Array) -> Iterate:
        """The belief's mean with predicted multipliers, not clipped to the bounds."""
        predicted = self.calibration.duals.mean(x)
        equality, lam = np.split(predicted, [self.problem.n_equalities], axis=1)
        y = np.where(self.search.lower < self.search.upper, mean, self.search.lower)
        return Iterate(y, equality, np.maximum(lam, 0.0), np.tile(self.calibration.base, (len(x), 1)))

    def full(self, state: Iterate) -> Point:
        """A state with the multipliers of all constraints, none of fixed outputs."""
        equality, lam = np.asarray(state.equality), np.asarray(state.lam)
        found = self.calibration.candidates.expand(self.search, equality, lam)
        own = own_multipliers(self.problem, found.inequality, found.lower, found.upper)
        return Point(np.asarray(state.y), Duals(found.equality, *own))

    def compressed(self, point: Point) -> Iterate:
        """The way back: the multipliers of the candidates alone."""
        duals = search_duals(self.problem, point.duals)
        lam = self.calibration.candidates.compress(duals)
        return Iterate(point.y, duals.equality, lam, lam > 0.0)

    def point(self, x: Array, state: Iterate) -> Point:
        """Decisions and the multipliers of all constraints, those of fixed outputs by stationarity."""
        near = self.full(state)
        y = self.problem.pin(x, near.y)
        return Point(y, with_fixed(self.problem, x, y, near.duals))

    # ---- the schedule ----------------------------------------------------------------------------------

    def plan(self, schedule: tuple[Level, ...]) -> Plan:
        """How these levels are gone through on this machine."""
        return plan_schedule(schedule, self.calibration, solver=self.rowwise.installed)

    def run(
        self,
        x: Array,
        mean: Array,
        schedule: tuple[Level, ...] | Plan,
        *,
        until: float = np.inf,
        begin: Iterate | None = None,
    ) -> Found:
        """Take every row through the levels of a plan; rows that end unconverged keep the least violated point met.

        Of a schedule alone the plan is the usual one (`plan_schedule`).

        No further pass is begun once `time.monotonic()` is past `until`. `begin` is where rows stood at the end of an
        earlier call, for levels that start at what was found; NaN for those that begin now.
        """
        centre, plan = self.operator(0), schedule if isinstance(schedule, Plan) else self.plan(schedule)
        known = np.isfinite(mean).all(axis=1, keepdims=True)
        progress = self._begin(x, np.where(known, mean, centre.centre.y), plan, until, begin)
        for level in plan.schedule:
            rows = self._rows(progress, level)
            if not len(rows) or progress.late:
                continue
            if level.by is Factorisation.OWN:
                self._row_by_row(progress, level, rows)
            elif plan.max_passes:
                run_level(self, progress, level, rows)
        return progress.found(centre.std)

    def _begin(self, x: Array, mean: Array, plan: Plan, until: float, begin: Iterate | None) -> Progress:
        """Nothing found yet: the clipped belief, with predicted multipliers, or where an earlier call left a row.

        What is kept and handed on as the best point so far, and where levels start that go on from that. Those that
        start from the belief do not read it, and take the mean unclipped (`start`).
        """
        start = self.start(x, mean)
        clipped = np.clip(np.nan_to_num(mean, posinf=0.0, neginf=0.0), self.search.lower, self.search.upper)
        start = start._replace(y=clipped)
        if begin is not None:
            before = np.isfinite(begin.y).all(axis=1)
            for part, known in zip(start, begin, strict=True):
                part[before] = known[before]
        return Progress(x, mean, plan, until, start, resumed=begin is not None)

    def _rows(self, progress: Progress, level: Level) -> Ints:
        if level.rows is WhichRows.EVERY:
            return np.arange(len(progress.x))
        if level.rows is WhichRows.LEFT:
            return np.flatnonzero(~progress.finished)
        if level.rows is WhichRows.WITHOUT_SOLVER:
            open_rows = np.flatnonzero(progress.status == Status.OPEN)
            return open_rows if len(open_rows) and not self.rowwise.available else open_rows[:0]
        done = np.flatnonzero(progress.finished)
        return done[self.distance(progress.mean[done], progress.iterate.y[done]) > self.settings.far_belief]

    def distance(self, mean: Array, y: Array) -> Array:
        """How far off each belief was: the mean over outputs of squared deviations, in standard units."""
        operator = self.operator(0)
        weight = self.calibration.weight * len(operator.free)
        return np.asarray(operator.proximal_square(y - mean) / max(weight, 1e-300))

    # ---- row by row ------------------------------------------------------------------------------------

    def _row_by_row(self, progress: Progress, level: Level, rows: Ints) -> None:
        """The interior-point method for what is left: from the best point that is known of a row, if the plan says so
        and it is nearer than the nominal solution, else on the nominal central path."""
        if not self.rowwise.available:
            return
        start = progress.plan.solver_start(progress.resumed or bool(progress.passes))
        found = self.rowwise.solve(
            progress.x[rows],
            None if start.cold else self.full(progress.iterate.take(rows)),
            thorough=False,
            go_on=lambda: not progress.late,
            large_barrier=self.calibration.large_barrier,
        )
        progress.factorisations[rows] += found.iterations
        without = rows[[outcome == "INFEASIBLE" for outcome in found.outcome]]
        # A row that stands at a feasible point, converged or not, has a solution whatever the solver says.
        here = self.known(
            progress.x[without], progress.iterate.y[without], [part[without] for part in progress.measured]
        )
        nowhere = ~(np.maximum(*here[1:]) < self.settings.feasibility_tolerance)
        progress.infeasible[without] = (progress.status[without] == Status.OPEN) & nowhere
        ok = found.ok
        if not ok.any():
            return
        point = found.point.take(ok)
        measured = self.known(progress.x[rows[ok]], point.y, [part[ok] for part in found.measured])
        held = np.maximum(*measured[1:]) < self.settings.feasibility_tolerance
        kept = rows[ok][held]
        progress.keep(kept, self.compressed(point).take(held), level.name, [m[held] for m in measured])
        progress.solved.append((kept, point.duals.take(held)))

    # ---- what is measured ------------------------------------------------------------------------------

    def measure(self, x: Array, y: Array) -> tuple[Array, Array, Array]:
        """Cost, largest |equality| and largest violation of any other constraint, by row."""
        return self.problem.worst(x, self.problem.pin(x, y))

    def known(self, x: Array, y: Array, measured: Sequence[Array]) -> Sequence[Array]:
        """The same where it was `measured` already, but for rows that have NaN there."""
        missing = np.flatnonzero(np.isnan(measured[0]))
        if len(missing):
            for part, found in zip(measured, self.measure(x[missing], y[missing]), strict=True):
                part[missing] = found
        return measured

    def violation(self, x: Array, y: Array) -> Array:
        """The largest violation of any constraint, by row."""
        return np.asarray(np.maximum(*self.measure(x, y)[1:]))


def search_duals(problem: Problem, duals: Duals) -> Duals:
    """Multipliers of a problem as those of its twin with fixed bounds (see `Problem.with_fixed_bounds`)."""
    return Duals(duals.equality, *fixed_multipliers(problem, duals.inequality, duals.lower, duals.upper))
