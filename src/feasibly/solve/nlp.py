"""One problem, many rows: a solver built once, sent to workers as bytes, that never raises for a row."""

from __future__ import annotations

import contextlib
import functools
import time
import zlib
from collections.abc import Iterator
from dataclasses import fields
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from feasibly._codec import from_bytes, to_bytes
from feasibly._fields import CodecError
from feasibly.problem.errors import FeasiblyError
from feasibly.problem.point import Duals, Point
from feasibly.solve.compiled import Compiled, without_remarks
from feasibly.solve.fallbacks import RowAttempts
from feasibly.solve.feasibility import Feasibility
from feasibly.solve.interior import InteriorPoint
from feasibly.solve.ipopt import Ipopt
from feasibly.solve.model import NlpModel, build_model
from feasibly.solve.outcome import Outcome
from feasibly.solve.records import Array, AttemptResult, Solution, SolverOptions
from feasibly.solve.sensitivity import Differentiator, Sensitivity, check_directions
from feasibly.solve.settings import DEFAULT, SolverSettings

if TYPE_CHECKING:
    from feasibly.problem.core import Problem
    from feasibly.solve.lanes.batch import BatchSolver

_FORMAT = 4
"""Of a solver as bytes."""


@contextlib.contextmanager
def _interrupts_as_such() -> Iterator[None]:
    """Ctrl-C that meets CasADi in the middle of a conversion comes out as Python's complaint about that."""
    try:
        yield
    except SystemError as error:
        if isinstance(error.__cause__ or error.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from None
        raise


class Solver:
    """Solves one problem for many inputs; one thread at a time.

    Made by `Solver.build(problem)`, or by `Solver.deserialise` where there is no `Problem` and no JAX. The
    same bytes and the same row give the same answer to the last bit on one kind of machine: where a row
    starts depends on the nominal solution and on the row alone.

    Attributes:
        model: the problem's functions in CasADi.
        options: as given.
        settings: numbers of the method.
        nominal: the solution of the nominal input, from which rows start.
    """

    def __init__(
        self,
        model: NlpModel,
        options: SolverOptions,
        nominal: Solution | None = None,
        settings: SolverSettings = DEFAULT,
    ) -> None:
        self.model = model
        self.options = options
        self.settings = settings
        self.ipopt = Ipopt(model, options, settings)
        self._evaluate = Compiled(model.nlp)
        self._centred = False
        self.nominal = self.solve(model.nominal) if nominal is None else nominal
        if self.nominal.outcome.ok:
            self.ipopt = self.ipopt.for_costs_like(self.nominal.objective)
        if self.options.warm == "interior" and self.nominal.outcome.ok:
            with without_remarks():
                self._centred = self.interior.find_central_points(self.nominal.point)

    @classmethod
    def build(
        cls, problem: Problem, options: SolverOptions | None = None, settings: SolverSettings = DEFAULT
    ) -> Solver:
        """Translate, differentiate, and solve the nominal input.

        A problem whose nominal input has no solution is built all the same: its rows then start cold, and
        `solver.nominal.outcome` says why.

        Raises:
            TranslationError: the problem uses an operation that cannot be translated.
        """
        return cls(build_model(problem, settings), options or SolverOptions(), settings=settings)

    # ---- between processes -----------------------------------------------------------------------------

    def serialise(self) -> bytes:
        """The solver as bytes: functions, bounds, options, settings and the nominal solution."""
        kept = {
            "format": _FORMAT, "model": self.model.flat(), "options": self.options, "settings": self.settings,
            "nominal": self.nominal,
        }  # fmt: skip
        return zlib.compress(to_bytes(kept), level=1)

    @classmethod
    def deserialise(cls, packed: bytes) -> Solver:
        """The solver that `serialise` packed; it needs neither the problem nor JAX."""
        try:
            kept = from_bytes(zlib.decompress(packed))
            if kept.get("format") != _FORMAT:
                raise CodecError(f"it has the format {kept.get('format')}, not {_FORMAT}")
        except CodecError as error:
            raise FeasiblyError(
                f"this solver was packed by another version of feasibly; build it again ({error})"
            ) from error
        return cls(kept["model"].revived(), kept["options"], kept["nominal"], kept["settings"])

    # ---- solving ---------------------------------------------------------------------------------------

    @_interrupts_as_such()
    def solve(
        self,
        x: ArrayLike,
        start: Point | None = None,
        *,
        thorough: bool = True,
        tried: bool = False,
    ) -> Solution:
        """Solve one row. A row without a solution is returned with its outcome, never raised.

        What is tried, until one attempt succeeds, is the table `fallbacks.FALLBACKS`: the interior-point method from a
        start and from the nominal central path, searches for a feasible point, IPOPT. A row is `INFEASIBLE` as soon as
        two of these say so (three where the nominal input has no solution, or is being solved, and all there is are
        cold starts), or (`thorough`) if one does, all others fail, and no search has met a feasible point.

        Args:
            x: the input, `(n_inputs,)`.
            start: a point to start from, such as another row's `solution.point`. One that holds NaN is passed over.
            thorough: start IPOPT cold as well, where everything that starts warm has failed and one search has found no
                feasible point; where none has failed to, it is started anyhow.
            tried: the interior-point method was tried elsewhere (`batch`), in vain.

        Raises:
            FeasiblyError: `x` or `start` has the wrong length.
            KeyboardInterrupt: Ctrl-C was pressed meanwhile.
        """
        x = np.asarray(x, dtype=np.float64)
        self._check_shapes(x, start)
        began = time.perf_counter()
        if not np.isfinite(x).all():
            return self._failed(Outcome.NOT_FINITE_INPUT, 0, 0, began)
        lower, upper = self.model.bounds_at(x)
        if np.any(lower > upper + self.options.feasibility):
            return self._failed(Outcome.INFEASIBLE, 0, 0, began)
        if self.model.opens(x[None])[0]:
            return self._failed(Outcome.OPENED, 0, 0, began)
        nominal = self._nominal_point()
        given = start if start is not None and start.is_finite else None
        row = RowAttempts(self, self.options.warm, x, given, nominal, self._centred, thorough, tried)
        s = self.settings
        agreeing = s.infeasible_cold_attempts if nominal is None else s.infeasible_attempts
        outcomes: list[Outcome] = []
        iterations = 0
        for attempt in self._quietly(row.run()):
            outcomes.append(attempt.outcome)
            iterations += attempt.iterations
            if outcomes.count(Outcome.INFEASIBLE) == agreeing and not row.met_feasible:
                break
            if not attempt.outcome.ok:
                continue
            assert attempt.point is not None
            objective, rows = self._evaluate(attempt.point.y, x)
            if not self._holds(x, attempt.point.y, rows):
                outcomes[-1] = Outcome.INACCURATE
            else:
                return Solution(
                    attempt.point,
                    objective=float(objective[0]),
                    outcome=Outcome.OK,
                    iterations=iterations,
                    attempts=len(outcomes),
                    seconds=time.perf_counter() - began,
                )
        # "Infeasible" from one attempt is worth more to the user than how the others broke down, if all were made and
        # none has met a feasible point.
        alone = outcomes.count(Outcome.INFEASIBLE) < agreeing
        if row.met_feasible or (alone and not thorough):
            outcomes = [outcome for outcome in outcomes if outcome is not Outcome.INFEASIBLE]
        verdict = Outcome.INFEASIBLE if Outcome.INFEASIBLE in outcomes else [Outcome.NUMERICAL, *outcomes][-1]
        return self._failed(verdict, iterations, len(outcomes), began)

    def sensitivity(
        self, x: ArrayLike, point: Point, directions: ArrayLike | None = None, *, exact: bool = False
    ) -> Sensitivity:
        """How the solution of `x` moves with the input.

        Args:
            x: the input that `point` belongs to.
            point: its solution, as in `solve(x).point`.
            directions: `(n_inputs, k)`; only these combinations of inputs are followed. All inputs if not given.
            exact: the point is an optimum to rounding, and multipliers that are zero are exactly zero.

        Raises:
            FeasiblyError: the row was not solved, or its solution has no derivative.
        """
        if not point.is_finite:
            raise FeasiblyError("a row without a solution has no sensitivity")
        row = np.asarray(x, dtype=np.float64)
        self._check_shapes(row, None)
        along = check_directions(directions, len(row))
        with without_remarks():
            return self._differentiator.differentiate(row, point, along, exact)

    @staticmethod
    def _quietly(attempts: Iterator[AttemptResult]) -> Iterator[AttemptResult]:
        while True:
            with without_remarks():
                attempt = next(attempts, None)
            if attempt is None:
                return
            yield attempt

    def _nominal_point(self) -> Point | None:
        nominal: Solution | None = getattr(self, "nominal", None)  # not yet there while it is being solved
        return nominal.point if nominal is not None and nominal.outcome.ok else None

    @functools.cached_property
    def batch(self) -> BatchSolver | None:
        """The interior-point method for many rows at once, as `interior` does them one by one; `None` where it is not
        to be had: without a nominal central path, for problems of another kind or size, or on a machine without what
        compiles it."""
        return self.lanes()

    def lanes(self, model: NlpModel | None = None) -> BatchSolver | None:
        """The same anew, for a model that keeps some of the inequalities alone."""
        if not self._centred or len(self.model.free) > self.settings.most_free:
            return None
        try:
            from feasibly.solve.lanes.batch import BatchSolver
            from feasibly.solve.lanes.program import UnsupportedError
        except (ImportError, OSError):
            return None
        try:
            return BatchSolver(self.interior, self.nominal.point, model)
        except (
            UnsupportedError,
            RuntimeError,
            OSError,
        ):  # LLVM, on a processor it does not know or may not compile on
            return None

    @functools.cached_property
    def interior(self) -> InteriorPoint:
        """Our own interior-point method, one row at a time."""
        return InteriorPoint(self.model, self.options.tolerance, self.settings)

    @functools.cached_property
    def _differentiator(self) -> Differentiator:
        return Differentiator(self.model, self.settings)

    @functools.cached_property
    def feasibility(self) -> Feasibility:
        """The search for a feasible point."""
        return Feasibility(self.model, self.settings)

    def holds(self, x: Array, y: Array) -> bool:
        """Whether every constraint of a row holds to the promised tolerance, in the problem's own units."""
        return self._holds(x, y, self._evaluate(y, x)[1])

    def _holds(self, x: Array, y: Array, rows: Array) -> bool:
        equality, inequality = rows[: self.model.n_equalities], rows[self.model.n_equalities :]
        lower, upper = self.model.bounds_at(x)
        off = (np.abs(equality), inequality, lower - y, y - upper)
        return all(bool(np.all(part <= self.options.feasibility)) for part in off)

    def _check_shapes(self, x: Array, start: Point | None) -> None:
        model = self.model
        if x.shape != model.nominal.shape:
            raise FeasiblyError(f"expected an input of shape {model.nominal.shape}, got {x.shape}")
        if start is None:
            return
        if not isinstance(start, Point):
            raise FeasiblyError(f"a start is a Point, such as `solution.point`, not a {type(start).__name__}")
        names = ("y", *(each.name for each in fields(Duals)))
        n, ne, ni = len(model.lower), model.n_equalities, model.n_inequalities
        for name, part, size in zip(names, start.parts, (n, ne, ni, n, n), strict=True):
            if np.shape(part) != (size,):
                what = name if name == "y" else f"multipliers `{name}`"
                raise FeasiblyError(f"the start's {what} should have shape ({size},), not {np.shape(part)}")

    def _failed(self, outcome: Outcome, iterations: int, attempts: int, began: float) -> Solution:
        n, ne, ni = len(self.model.lower), self.model.n_equalities, self.model.n_inequalities
        return Solution(
            Point.of(*(np.full(size, np.nan) for size in (n, ne, ni, n, n))),
            objective=float("nan"),
            outcome=outcome,
            iterations=iterations,
            attempts=attempts,
            seconds=time.perf_counter() - began,
        )


def solve(
    problem: Problem,
    x: ArrayLike,
    options: SolverOptions | None = None,
    settings: SolverSettings = DEFAULT,
) -> list[Solution]:
    """Solve every row of `x` in this process, one after the other.

    Raises:
        TranslationError: the problem uses an operation that cannot be translated.
        ProblemError: `x` is not a matrix with `n_inputs` columns.
    """
    rows, _ = problem.check_rows(x)
    solver = Solver.build(problem, options, settings)
    return [solver.solve(row) for row in rows]
