"""The driver: takes every row of a batch through a schedule, owns the clock, and keeps the best point so far."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feasibly.answer.calibration import Calibration
from feasibly.answer.derivatives import Derivatives
from feasibly.answer.operator import Operator, build_operator, free_variables, invert_belief
from feasibly.answer.progress import Found, Passed, Progress
from feasibly.answer.rowwise import RowSolver
from feasibly.answer.schedule import SHARED_ONLY, SHARED_OPTIMAL, By, Level, Mode, Rows, Start, passes
from feasibly.answer.settings import Settings
from feasibly.answer.sparse import SparseOperator, build_sparse_operator
from feasibly.answer.sparse_step import SparseIteration
from feasibly.answer.step import Iteration, Residuals, State, has_converged
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
        """Nothing is factored before it is needed.

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
        same = old is not None and old.candidates is calibration.candidates and old.flips == calibration.flips
        if reuse is None or old is None or not same or old.settings != calibration.settings:
            self._derivatives = Derivatives(self.search, calibration.candidates)
            self.iteration: Any  # of the same kind as the operators
            if calibration.sparse:
                self.iteration = SparseIteration(self.search, calibration.candidates, calibration.settings)
            else:
                self.iteration = Iteration(
                    self.search, calibration.candidates, calibration.flips, calibration.settings
                )
            return
        self._derivatives, self.iteration = reuse._derivatives, reuse.iteration
        if reuse.covariance is self.covariance:
            self._precision = reuse._precision
            alike = old.trust is calibration.trust and old.base is calibration.base
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
                c.weight, c.trust, c.settings,
            )  # fmt: skip
        elif index not in self._operators:
            if self._precision is None:
                free = free_variables(self.search)
                self._precision = invert_belief(self.covariance, free, self.settings.belief_floor)
            self._operators[index] = build_operator(
                self.search, self.derivatives(index), c.centres[index], c.candidates, c.base, self._precision, c.weight,
                c.trust, c.settings, c.switches[index] if c.switches else None,
            )  # fmt: skip
        return self._operators[index]

    def derivatives(self, index: int) -> Derivatives | Saved:
        """The derivatives at centre `index`: those that were saved, or what computes them."""
        systems = self.calibration.systems
        return Saved(systems[index]) if index < len(systems) else self._derivatives

    def start(self, x: Array, mean: Array) -> State:
        """The belief's mean with predicted multipliers."""
        predicted = self.calibration.duals.mean(x)
        equality, lam = np.split(predicted, [self.problem.n_equalities], axis=1)
        y = np.where(self.search.lower < self.search.upper, mean, self.search.lower)
        return State(y, equality, np.maximum(lam, 0.0), np.tile(self.calibration.base, (len(x), 1)))

    def full(self, state: State) -> Point:
        """A state with the multipliers of all constraints, none of fixed outputs."""
        equality, lam = np.asarray(state.equality), np.asarray(state.lam)
        found = self.calibration.candidates.expand(self.search, equality, lam)
        own = own_multipliers(self.problem, found.inequality, found.lower, found.upper)
        return Point(np.asarray(state.y), Duals(found.equality, *own))

    def compressed(self, point: Point) -> State:
        """The way back: the multipliers of the candidates alone."""
        duals = search_duals(self.problem, point.duals)
        lam = self.calibration.candidates.compress(duals)
        return State(point.y, duals.equality, lam, lam > 0.0)

    def point(self, x: Array, state: State) -> Point:
        """Decisions and the multipliers of all constraints, those of fixed outputs by stationarity."""
        near = self.full(state)
        y = self.problem.pin(x, near.y)
        return Point(y, with_fixed(self.problem, x, y, near.duals))

    # ---- the schedule ----------------------------------------------------------------------------------

    def run(
        self,
        x: Array,
        mean: Array,
        schedule: tuple[Level, ...],
        *,
        until: float = np.inf,
        begin: State | None = None,
    ) -> Found:
        """Take every row through `schedule`; rows that end unconverged keep the least violated point met.

        No further pass is begun once `time.monotonic()` is past `until`. `begin` is where rows stood at the end of an
        earlier call, for levels that start at what was found; NaN for those that begin now.
        """
        centre = self.operator(0)
        known = np.isfinite(mean).all(axis=1, keepdims=True)
        # What only shared operators are asked for, or can do, is not handed on to anything else.
        alone = schedule in (SHARED_ONLY, SHARED_OPTIMAL) or not self.rowwise.installed
        most = np.inf if alone else self.calibration.worthwhile_passes
        progress = self._begin(x, np.where(known, mean, centre.centre.y), until, most, begin)
        for level in schedule:
            rows = self._rows(progress, level)
            if not len(rows) or progress.late:
                continue
            if level.by is By.ROW:
                self._row_by_row(progress, level, rows)
            elif most:
                self._shared(progress, level, rows)
        return progress.found(centre.std)

    def _begin(
        self, x: Array, mean: Array, until: float, most_passes: float, begin: State | None
    ) -> Progress:
        """Nothing found yet: the clipped belief, with predicted multipliers."""
        start = self.start(x, mean)
        clipped = np.clip(np.nan_to_num(mean, posinf=0.0, neginf=0.0), self.search.lower, self.search.upper)
        start = start._replace(y=clipped)
        if begin is not None:
            before = np.isfinite(begin.y).all(axis=1)
            for part, known in zip(start, begin, strict=True):
                part[before] = known[before]
        return Progress.of(x, mean, start, until, most_passes, went_on=begin is not None)

    def _rows(self, progress: Progress, level: Level) -> Ints:
        if level.rows is Rows.EVERY:
            return np.arange(len(progress.x))
        left = np.flatnonzero(~progress.converged)
        if level.rows is Rows.LEFT:
            return left
        if level.rows is Rows.STRANDED:
            left = left[~progress.feasible[left]]  # those have something that a restart may not better
            return left if len(left) and not self.rowwise.available else left[:0]
        done = np.flatnonzero(progress.converged)
        return done[self.distance(progress.mean[done], progress.state.y[done]) > self.settings.far_belief]

    def distance(self, mean: Array, y: Array) -> Array:
        """How far off each belief was: the mean over outputs of squared deviations, in standard units."""
        operator = self.operator(0)
        return np.asarray(
            operator.pulled(y - mean) / max(self.calibration.weight * len(operator.free), 1e-300)
        )

    # ---- shared operators ------------------------------------------------------------------------------

    def _shared(self, progress: Progress, level: Level, rows: Ints) -> None:
        """Some rows on shared operators, one after the other."""
        # What the row stands at is kept until it is bettered.
        again = level.rows is Rows.FAR
        progress.converged[rows] = False
        progress.feasible[rows] |= again
        count = len(self.calibration.centres) if level.by is By.SHARED else 1
        for index in range(count):
            left = rows[~progress.converged[rows]]
            enough = index * self._usual_passes(level) >= self._most(progress, level)
            if not len(left) or progress.late or enough:
                break
            done, state = self._sweep(progress, level, index, left)
            held = np.zeros(len(done), dtype=bool)
            measured = self.measure(progress.x[left[done]], state.y[done])
            held[done] = np.maximum(*measured[1:]) < self.settings.feasibility_tolerance
            inside = held[done]
            self._keep(progress, left[held], state.take(held), level.name, [m[inside] for m in measured])
            if not again:
                self._keep_better(progress, left[~held], state.take(~held))

    def _sweep(self, progress: Progress, level: Level, index: int, rows: Ints) -> tuple[Mask, State]:
        """All passes over some rows on one operator: which converged on the candidates, and where all of them stand."""
        operator = self.operator(index)
        belief = progress.mean
        if level.start is Start.CENTRE:
            belief = np.broadcast_to(operator.centre.y, belief.shape)
        state = (
            progress.state.take(rows)
            if level.start is Start.FOUND
            else self.start(progress.x[rows], belief[rows])
        )
        ended = State(*(np.array(part) for part in state))
        converged = np.zeros(len(rows), dtype=bool)
        left, last = np.arange(len(rows)), None
        if level.approach and index == 0:
            state, residuals = self.iteration.run(
                operator, progress.x[rows], belief[rows], state, level.approach, proximal=True, rest=0.0,
                rounds=self.settings.thorough_rounds, single=progress.single, until=progress.until,
            )  # fmt: skip
            progress.steps[rows] += residuals.steps
        plan = passes(self.settings, len(progress.x), level)
        usual = self._usual_passes(level)
        for number, (steps, rounds) in enumerate(plan):
            # A short plan, for few rows, goes as far as the usual one: its last pass is the last of the usual one too.
            reached = index * usual + (
                number if len(plan) == usual or not number else usual - len(plan) + number
            )
            enough = reached >= self._most(progress, level) or reached - index * usual >= level.most_passes
            if not len(left) or (number and progress.late) or enough:
                break
            began = time.process_time()
            state, residuals = self.iteration.run(
                operator, progress.x[rows[left]], belief[rows[left]], state, steps,
                proximal=level.mode is Mode.PROXIMAL, rest=self.settings.change_tolerance / 10, rounds=rounds,
                single=progress.single, until=progress.until,
            )  # fmt: skip
            progress.steps[rows[left]] += residuals.steps
            done = has_converged(self.settings, state.y, residuals, level.mode is Mode.PROXIMAL)
            merit = self._merit(residuals)
            stay = ~done
            # From there active sets no longer change: the rate tells from the second pass on.
            near = level.start is Start.FOUND
            if stay.sum() > self.settings.few_hopeless and not (near and number == 0):
                stay &= self.hopeful(merit, last, steps, self.settings.patient_passes if near else number)
            leaving = ~stay
            for part, now in zip(ended, state, strict=True):
                part[left[leaving]] = now[leaving]
            converged[left[done]] = True
            progress.passes.append(
                Passed(reached, time.process_time() - began, len(rows) - int(converged.sum()))
            )
            left, state, last = left[stay], state.take(stay), merit[stay]
        for part, now in zip(ended, state, strict=True):
            part[left] = now
        return converged, ended

    def _most(self, progress: Progress, level: Level) -> float:
        """Passes through all operators: rows that are near already soon converge in another mode."""
        least = self.settings.nearby_passes if level.rows is Rows.EVERY else 0
        return max(progress.most_passes, least)

    def _usual_passes(self, level: Level) -> int:
        """How many passes a level makes on one operator when there are many rows."""
        return len(passes(self.settings, self.settings.few_rows + 1, level))

    def _merit(self, residuals: Residuals) -> Array:
        """The largest violation over its tolerance."""
        s = self.settings
        return np.maximum(
            residuals.equality / s.equality_tolerance, residuals.inequality / s.inequality_tolerance
        )

    def hopeful(self, merit: Array, last: Array | None, steps: int, number: int) -> Mask:
        """Rows that will converge soon, by how their residuals fall."""
        s = self.settings
        if last is None:
            return np.asarray(merit < s.hopeless[0])
        with np.errstate(divide="ignore", invalid="ignore"):
            rate = np.log(np.maximum(last, 1.0) / np.maximum(merit, 1e-30)) / steps
            ahead = np.log(np.maximum(merit, 1.0)) / np.maximum(rate, 1e-9)
        return np.asarray(
            (merit < s.hopeless[1]) & ((ahead < s.most_steps_ahead) | (number < s.patient_passes))
        )

    # ---- row by row ------------------------------------------------------------------------------------

    def _row_by_row(self, progress: Progress, level: Level, rows: Ints) -> None:
        """The interior-point method for what is left, each row from the best point that is known of it."""
        if not self.rowwise.available:
            return
        met = progress.went_on or bool(progress.passes)
        warm = self.calibration.goes_on if met else self.calibration.warm
        starts = self.full(progress.state.take(rows)) if warm else None
        found = self.rowwise.solve(
            progress.x[rows],
            starts,
            thorough=False,
            go_on=lambda: not progress.late,
            wide=self.calibration.wide,
        )
        progress.factorisations[rows] += found.iterations
        ok = found.ok
        if not ok.any():
            return
        point = found.point.take(ok)
        state = self.compressed(point)
        measured = self.known(progress.x[rows[ok]], point.y, [part[ok] for part in found.measured])
        held = np.maximum(*measured[1:]) < self.settings.feasibility_tolerance
        kept = rows[ok][held]
        self._keep(progress, kept, state.take(held), level.name, [m[held] for m in measured])
        progress.solved.append((kept, point.duals.take(held)))

    # ---- what is kept ----------------------------------------------------------------------------------

    def _keep(
        self, progress: Progress, rows: Ints, state: State, name: str, measured: Sequence[Array]
    ) -> None:
        progress.write(rows, state, measured)
        progress.converged[rows] = True
        progress.level[rows] = name

    def _keep_better(self, progress: Progress, rows: Ints, tried: State) -> None:
        """Of a row that has not converged, keep the iterate with the smaller violation."""
        sound = np.all([np.isfinite(part).all(axis=1) for part in tried[:3]], axis=0)
        rows, tried = rows[sound], tried.take(sound)
        if not len(rows):
            return
        unknown = rows[np.isnan(progress.measured[0][rows])]
        before = progress.state.take(unknown)
        progress.write(unknown, before, self.measure(progress.x[unknown], before.y))
        measured = self.measure(progress.x[rows], tried.y)
        better = np.maximum(*measured[1:]) < np.maximum(*(part[rows] for part in progress.measured[1:]))
        progress.write(rows[better], tried.take(better), [m[better] for m in measured])

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
