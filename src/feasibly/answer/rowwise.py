"""Rows that no shared operator serves: an interior-point method on each row's own system, many of them at once.

In order (`RowSolver.solve`):

1. a start is used only where it is nearer to the row's constraints than the nominal solution is (`_nearer`);
2. rows are solved many at once, in the lanes of a vector unit, with the inequalities that labels come near
   (`_at_once`), unless making that ready takes longer than solving them (`_before_batch`);
3. those that break an inequality that was left out, again with all of them (`_with_all`);
4. what is left, one by one (`_one_by_one`), which goes through the solver's table of fallbacks.

Invariant: `_Request.outcome` is what has become of each row; a row is finished with once that is not `_OPEN`.
"""

from __future__ import annotations

import functools
import importlib.util
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from feasibly.problem.core import Problem
from feasibly.problem.errors import FeasiblyError
from feasibly.problem.point import Point
from feasibly.solve.settings import DEFAULT, SolverSettings

if TYPE_CHECKING:
    from feasibly.solve.lanes.batch import BatchSolver
    from feasibly.solve.model import NlpModel
    from feasibly.solve.nlp import Solver

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

_OPEN = "TIME_LIMIT"
"""The outcome of a row that nothing has become of yet: what it is called if nothing does before the time is up."""


@dataclass(frozen=True, eq=False)
class Solved:
    """What became of some rows: points (NaN where there is none), solver outcomes by name, iterations of each."""

    point: Point
    outcome: tuple[str, ...]
    iterations: NDArray[np.int64]
    seconds: Array
    """Processor time of each; rows that were solved together share theirs by their iterations."""
    measured: tuple[Array, Array, Array]
    """Cost, largest |equality| and largest violation of each row that was looked at; NaN for others."""

    @property
    def ok(self) -> NDArray[np.bool_]:
        """Which rows were solved."""
        return np.array([outcome == "OK" for outcome in self.outcome], dtype=bool)


class _Request:
    """Rows, where they start if that `helps`, and what has become of them so far."""

    def __init__(
        self, problem: Problem, x: Array, starts: Point | None, helps: Mask, go_on: Callable[[], bool]
    ) -> None:
        self.x, self.starts, self.helps, self.go_on = x, starts, helps, go_on
        count = len(x)
        self.point = Point.nothing(problem, count)
        self.outcome: NDArray[np.object_] = np.full(count, _OPEN, dtype=object)
        self.iterations = np.zeros(count, dtype=np.int64)
        self.seconds = np.zeros(count)
        self.measured = (np.full(count, np.nan), np.full(count, np.nan), np.full(count, np.nan))
        self.tried = np.zeros(count, dtype=bool)
        """Rows that could not be solved with the others."""

    def unfinished(self, rows: Ints) -> Ints:
        """Those of these rows that nothing has become of."""
        return np.asarray(rows[self.outcome[rows] == _OPEN])


class RowSolver:
    """One problem's solver, translated on first use; `None` of it where the problem cannot be translated.

    Where it is known which inequalities solutions come near (`watched`), many rows at once are solved with those alone:
    that takes about half of the time. A row that breaks another one is solved again with all of them.
    """

    def __init__(
        self, problem: Problem, settings: SolverSettings = DEFAULT, watched: Ints | None = None
    ) -> None:
        self.problem = problem
        self.settings = settings
        self.watched = watched
        self._model: NlpModel | None = None
        self._solver: Solver | None = None
        self._missing = False
        self._spent, self._counted = 0.0, 0
        # What solves works on one memory; held over nothing that waits for anyone.
        self._lock = threading.Lock()

    def watching(self, watched: Ints | None) -> RowSolver:
        """The same solver, with other inequalities watched."""
        other = RowSolver(self.problem, self.settings, watched)
        other._model, other._solver, other._missing = self._model, self._solver, self._missing
        other._lock = self._lock
        return other

    @property
    def available(self) -> bool:
        """Whether rows can be solved one by one at all."""
        return self._get() is not None

    @property
    def model(self) -> NlpModel:
        """The problem's functions and derivatives in CasADi.

        Raises:
            TranslationError: the problem uses an operation that cannot be translated.
        """
        if self._model is None:
            from feasibly.solve.model import build_model

            self._model = build_model(self.problem, self.settings)
        return self._model

    @functools.cached_property
    def search_model(self) -> NlpModel:
        """The same of the problem with bounds that no input moves, which shared operators are made of."""
        search = self.problem.with_fixed_bounds
        if search is self.problem:
            return self.model
        from feasibly.solve.model import build_model

        return build_model(search, self.settings)

    @property
    def translates(self) -> bool:
        """Whether the problem can be handed to the solver; less work than `available`, which solves it once."""
        if not self.installed:
            return False
        from feasibly.solve.translate import TranslationError

        try:
            return self.model is not None
        except TranslationError:
            return False

    @functools.cached_property
    def installed(self) -> bool:
        """Whether there is a solver on this machine; beside an accelerator, where nobody labels, there may be none.

        Looked for once: every answer asks, and looking through all folders of packages takes a tenth of it.
        """
        return importlib.util.find_spec("casadi") is not None

    @property
    def solver(self) -> Solver:
        """The solver itself.

        Raises:
            TranslationError: the problem uses an operation that cannot be translated.
        """
        if self._solver is None:
            from feasibly.solve.nlp import Solver
            from feasibly.solve.records import SolverOptions

            self._solver = Solver(self.model, SolverOptions(), settings=self.settings)
        return self._solver

    def _get(self) -> Solver | None:
        if self._missing:
            return None
        if not self.installed:
            self._missing = True
            return None
        from feasibly.solve.translate import TranslationError

        try:
            return self.solver
        except TranslationError:
            self._missing = True
            return None

    def solve(
        self,
        x: Array,
        starts: Point | None,
        *,
        thorough: bool,
        go_on: Callable[[], bool] = lambda: True,
        at_once: bool | None = None,
        rest: bool = True,
        large_barrier: bool = False,
    ) -> Solved:
        """Solve rows from `starts` (or as labelling does) while `go_on()`: many at once, what that leaves one by one.

        `thorough` goes through all fallbacks; otherwise it ends where nothing that starts warm found an answer
        and a search for a feasible point has found none. `at_once` says whether rows are solved many at a time at all;
        unless told, they are where that has been made ready or soon pays for being. Without `rest`, what that leaves is
        left. With `large_barrier` those without a start of their own begin further up the nominal central path.
        """
        helps = np.zeros(len(x), dtype=bool) if starts is None else self._nearer(x, starts.y)
        found = _Request(self.problem, x, starts, helps, go_on)
        rows = np.arange(len(x))
        if at_once is None:
            first = rows[: self._before_batch(len(x))]
            self._one_by_one(found, first, thorough)
            rows = rows[len(first) :]
            at_once = len(rows) > 0
        if at_once and self.batch is not None:
            broken = self._at_once(found, rows, large_barrier, self.batch)
            if self.watched is not None:
                self._with_all(found, broken, large_barrier, rest)
            rows = found.unfinished(rows) if rest else rows[:0]
        self._one_by_one(found, rows, thorough)
        return Solved(found.point, tuple(found.outcome), found.iterations, found.seconds, found.measured)

    def solve_without_jax(self, x: Array) -> Point:
        """Solve rows as for labels, by nothing but the solver, which must be `available`; NaN where that finds nothing.

        For programs that call back: what is looked at in `solve` is looked at by the solver here.
        """
        solver, found = self.solver, Point.nothing(self.problem, len(x))
        left = np.arange(len(x))
        with self._lock:
            if len(x) and self._before_batch(len(x)) == 0 and self.batch is not None:
                done = self.batch.solve(x, None, np.zeros(len(x), dtype=bool))
                kept = [
                    row for row in np.flatnonzero(done.converged) if solver.holds(x[row], done.point.y[row])
                ]
                found.put(kept, done.point.take(kept))
                left = np.setdiff1d(left, kept)
            for row in left:
                solved = solver.solve(x[row])
                if solved.outcome.ok:
                    found.put(row, solved.point)
        return found

    def least_infeasible(self, x: Array) -> Point | None:
        """Where one row's constraints are off by least in all, if that is found; see `Feasibility.least_infeasible`."""
        if not self.available:
            return None
        with self._lock:
            return self.solver.feasibility.least_infeasible(x, self.problem.start)

    def sensitivity(self, x: Array, point: Point, directions: Array | None) -> Array:
        """How solved rows move along `directions` (all inputs without): `(rows, n_outputs, k)`.

        NaN where a solution has no derivative.
        """
        along = np.eye(self.problem.n_inputs) if directions is None else directions
        moved = np.empty((len(x), self.problem.n_outputs, along.shape[1]))
        left, crossed = np.arange(len(x)), dict[int, Point]()
        if len(left) and self._before_batch(len(x)) == 0 and self.batch is not None:
            with self._lock:
                moved, sound, crossed = self.batch.tangents.solve(x, point, along)
                left = np.flatnonzero(~sound)
        for row in left.tolist():
            with self._lock:
                try:
                    optimum = crossed.get(row)
                    at = point.take(row) if optimum is None else optimum
                    moved[row] = self.solver.sensitivity(x[row], at, along, exact=optimum is not None).y
                except FeasiblyError:
                    moved[row] = np.nan
        return moved

    @functools.cached_property
    def batch(self) -> BatchSolver | None:
        """What solves many rows at once, made ready on first use."""
        return self.solver.batch if self.watched is None else self.solver.lanes(self._narrow)

    def rough(self, tolerance: float, also: Ints | None) -> BatchSolver | None:
        """What solves rows to another tolerance, many at once: with the inequalities that are watched and these, or,
        without any named, with all of them."""
        from feasibly.solve.nlp import Solver
        from feasibly.solve.records import SolverOptions

        solver = Solver(self.model, SolverOptions(tolerance=tolerance), settings=self.settings)
        if self.watched is None or also is None:
            return solver.lanes(None)
        return solver.lanes(self.model.keeping(np.union1d(self.watched, also)))

    @functools.cached_property
    def _narrow(self) -> NlpModel:
        """The model with what is watched."""
        return self.model if self.watched is None else self.model.keeping(self.watched)

    @functools.cached_property
    def together(self) -> bool:
        """Whether there is likely to be a `batch`; nothing is built to find out."""
        few = len(self.model.free) <= self.settings.most_free
        return few and importlib.util.find_spec("llvmlite") is not None

    @property
    def ready_seconds(self) -> float:
        """About what making that ready takes; nothing once it is."""
        return self._ready(self._narrow, "batch" in vars(self))

    def _ready(self, model: NlpModel, already: bool) -> float:
        return (
            0.0
            if already
            else self.settings.ready_seconds * float(model.unscaled_second_order.n_instructions())
        )

    def _before_batch(self, count: int) -> int:
        """How many of so many rows are solved one by one before the others are at once.

        Where making that ready takes long, rows are solved one by one until they have taken as long, unless there are
        so many that it is bound to happen. Elsewhere it is made ready at once: a model that was saved and loaded then
        answers as it did before, to the last digit.
        """
        ready = self.ready_seconds
        if ready < self.settings.soon_seconds:
            return 0 if self.batch is not None else count
        return 0 if self._pays(count, ready) else count

    def _pays(self, count: int, ready: float) -> bool:
        """Whether so many rows, and those before them, take longer one by one than making ready what takes them all."""
        guess = self.solver.nominal.seconds / self.settings.cold
        usual = self._spent / self._counted if self._counted else guess
        return self._spent + count * usual >= ready

    def _with_all(self, found: _Request, rows: Ints, large_barrier: bool, rest: bool) -> None:
        """Rows that break what is not watched where they were solved: as if nobody had tried."""
        found.tried[rows] = False
        ready = self._ready(self.model, "batch" in vars(self.solver))
        if rest and len(rows) and self._pays(len(rows), ready) and self.solver.batch is not None:
            self._at_once(found, rows, large_barrier, self.solver.batch)

    def _at_once(self, found: _Request, rows: Ints, large_barrier: bool, batch: BatchSolver) -> Ints:
        """Solve rows many at a time; those that break something where they converged are returned."""
        x = found.x[rows]
        given = None if found.starts is None else found.starts.take(rows)
        began = time.process_time()
        with self._lock:
            done = batch.solve(x, given, found.helps[rows], found.go_on, large_barrier)
        y = np.where(done.converged[:, None], done.point.y, self.problem.start)
        measured = self.problem.worst(x, self.problem.pin(x, y))
        off = np.maximum(*measured[1:])
        kept = done.converged & (off <= self.solver.options.feasibility)
        taken = time.process_time() - began
        found.iterations[rows] += done.iterations
        found.seconds[rows] += taken * done.iterations / max(int(done.iterations.sum()), 1)
        found.point.put(rows[kept], done.point.take(kept))
        for part, known in zip(found.measured, measured, strict=True):
            part[rows[kept]] = known[kept]
        found.outcome[rows[kept]] = "OK"
        found.outcome[rows[done.infeasible]] = "INFEASIBLE"
        found.tried[rows] = done.tried
        return rows[done.converged & ~kept]

    def _one_by_one(self, found: _Request, rows: Ints, thorough: bool) -> None:
        starts = found.starts
        for row in rows:
            if not found.go_on():
                continue
            start = starts.take(row) if starts is not None and found.helps[row] else None
            began, tried = time.process_time(), bool(found.tried[row])
            with self._lock:
                solved = self.solver.solve(found.x[row], start, thorough=thorough, tried=tried)
            found.outcome[row] = solved.outcome.name
            found.iterations[row] += solved.iterations
            found.seconds[row] += (taken := time.process_time() - began)
            if not tried:
                self._spent, self._counted = self._spent + taken, self._counted + 1
            if solved.outcome.ok:
                found.point.put(row, solved.point)

    def _nearer(self, x: Array, y: Array) -> NDArray[np.bool_]:
        """Whether each start is nearer to the row's constraints than the nominal solution, where rows begin otherwise.

        A belief that is worse than that (under outages it may be) only costs iterations.
        """
        nominal = self.solver.nominal
        if not nominal.outcome.ok:
            return np.ones(len(x), dtype=bool)

        def off(answers: Array) -> Array:
            return np.asarray(np.maximum(*self.problem.worst(x, self.problem.pin(x, answers))[1:]))

        return np.asarray(off(y) < off(np.tile(nominal.y, (len(x), 1))))
