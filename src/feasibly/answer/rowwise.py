"""Rows that no shared operator serves: an interior-point method on each row's own system, started near its answer."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from feasibly.problem.core import Problem
from feasibly.problem.point import Point

if TYPE_CHECKING:
    from feasibly.solve.model import Model
    from feasibly.solve.nlp import Solver

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Solved:
    """What became of some rows: points (NaN where there is none), solver outcomes by name, iterations of each."""

    point: Point
    outcome: tuple[str, ...]
    iterations: NDArray[np.int64]

    @property
    def ok(self) -> NDArray[np.bool_]:
        """Which rows were solved."""
        return np.array([outcome == "OK" for outcome in self.outcome], dtype=bool)


class RowSolver:
    """One problem's solver, translated on first use; `None` of it where the problem cannot be translated."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._model: Model | None = None
        self._solver: Solver | None = None
        self._missing = False

    @property
    def available(self) -> bool:
        """Whether rows can be solved one by one at all."""
        return self._get() is not None

    @property
    def model(self) -> Model:
        """The problem's functions and derivatives in CasADi.

        Raises:
            TranslationError: the problem uses an operation that cannot be translated.
        """
        if self._model is None:
            from feasibly.solve.model import build_model

            self._model = build_model(self.problem)
        return self._model

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

            self._solver = Solver(self.model, SolverOptions())
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
        self, x: Array, starts: Point | None, *, thorough: bool, go_on: Callable[[], bool] = lambda: True
    ) -> Solved:
        """Solve rows from `starts` (or as labelling does), one after the other, while `go_on()`.

        `thorough` climbs the solver's whole ladder; otherwise it ends where nothing that starts warm found an answer
        and a search for a feasible point has found none.
        """
        solver = self.solver
        point = Point.nothing(self.problem, len(x))
        outcomes, iterations = [], np.zeros(len(x), dtype=np.int64)
        helps = np.zeros(len(x), dtype=bool) if starts is None else self._helps(x, starts.y)
        for i in range(len(x)):
            if not go_on():
                outcomes.append("TIME_LIMIT")
                continue
            start = starts.take(i) if starts is not None and helps[i] else None
            found = solver.solve(x[i], start, thorough=thorough)
            outcomes.append(found.outcome.name)
            iterations[i] = found.iterations
            if found.outcome.ok:
                point.put(i, found.point)
        return Solved(point, tuple(outcomes), iterations)

    def _helps(self, x: Array, y: Array) -> NDArray[np.bool_]:
        """Whether each start is nearer to the row's constraints than the nominal solution, where rows begin otherwise.

        A belief that is worse than that (under outages it may be) only costs iterations.
        """
        nominal = self.solver.nominal
        if not nominal.outcome.ok:
            return np.ones(len(x), dtype=bool)

        def off(answers: Array) -> Array:
            return np.asarray(np.maximum(*self.problem.worst(x, self.problem.pin(x, answers))[1:]))

        return np.asarray(off(y) < off(np.tile(nominal.y, (len(x), 1))))
