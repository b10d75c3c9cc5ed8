"""The ladder of answers: mean, svp, conditioned, polished, solved; `auto` climbs it row by row."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from feasibly._codec import record
from feasibly.answer.conditioner import Conditioned, Conditioner
from feasibly.answer.record import Answer, AnswerOutcome
from feasibly.measure.metrics import measure_rows
from feasibly.model.belief import Belief, Model
from feasibly.problem._fixed import own_multipliers
from feasibly.problem.core import Problem
from feasibly.problem.duals import Duals, with_fixed
from feasibly.problem.errors import FeasiblyError

if TYPE_CHECKING:
    from feasibly.solve.nlp import Solver

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

Trust = Callable[[str, Mask, Array, float], Mask]
"""Rows that may stay on a rung, from its name, which rows came to rest, how hard each is, and the tolerance."""

ANSWERS = ("mean", "svp", "conditioned", "polished", "solved", "auto")
TOLERANCE = 1e-4
WORTH_KEEPING = 5.0
"""A belief that took so many seconds is kept for the next question about the same inputs."""
LARGEST_KEPT = 20_000_000
"""Unless it has more numbers than this."""
DRAWS = 500

Climbed = tuple[Array, Array, list[str], list[AnswerOutcome | None], Duals | None]
"""Answers, their spread, which rung answered, what else became of a row, and multipliers from conditioning on."""

__all__ = ["ANSWERS", "Answer", "AnswerOutcome", "Ladder"]


class Ladder:
    """Everything needed to answer one problem with one model; costly parts are made on first use."""

    def __init__(
        self,
        problem: Problem,
        model: Model,
        make_conditioner: Callable[[], Conditioner],
        box: tuple[Array, Array] | None,
        leverage: Leverage | None = None,
    ) -> None:
        self.problem = problem
        self.model = model
        self._make = make_conditioner
        self._conditioner: Conditioner | None = None
        self._solver: Solver | None = None
        self._box = box
        self._leverage = leverage
        self._believed: tuple[Array, Belief, float] | None = None

    @property
    def conditioner(self) -> Conditioner:
        """Made on first use."""
        if self._conditioner is None:
            self._conditioner = self._make()
        return self._conditioner

    @property
    def solver(self) -> Solver:
        """Translated on first use."""
        if self._solver is None:
            from feasibly.solve.nlp import Solver

            self._solver = Solver.build(self.problem)
        return self._solver

    def _believe(self, x: Array) -> tuple[Belief, float]:
        """The model's belief, and how long it took if that was at another time.

        Hundreds of draws from a large network take minutes. Whoever asks for another answer to the same inputs gets
        the belief from before, and the time it took is counted again.
        """
        if self._believed is not None and np.array_equal(self._believed[0], x):
            _, kept, seconds = self._believed
            return Belief(kept.mean, kept.std.copy()), seconds
        began = time.perf_counter()
        belief = self.model.predict(x)
        seconds = time.perf_counter() - began
        kept = Belief(belief.mean, belief.std.copy())  # the spread is handed out, and may be written to
        worth = seconds > WORTH_KEEPING and belief.mean.size <= LARGEST_KEPT
        self._believed = (x, kept, seconds) if worth else None
        return belief, 0.0

    def forget(self) -> None:
        """Drop the belief that was kept, so that the next answer takes the time it takes."""
        self._believed = None

    def outside(self, x: Array) -> Mask:
        """Rows outside the declared range of inputs or, without one, unlike the inputs learnt from."""
        if self._box is not None:
            low, high = self._box
            slack = 1e-9 * (high - low) + 1e-12
            outside = ((x < low - slack) | (x > high + slack)).any(axis=1)
            return np.asarray(outside | self.problem.unlike(x))
        return self._leverage.unlike(x) if self._leverage is not None else np.zeros(len(x), dtype=bool)

    def answer(
        self,
        x: Array,
        which: str,
        *,
        tolerance: float = TOLERANCE,
        seed: int = 0,
        draws: int = DRAWS,
        trust: Trust | None = None,
    ) -> Answer:
        """Answer every row of `x` (checked, float64) by the rung `which`; `trust` says when `auto` may stay."""
        if which not in ANSWERS:
            raise FeasiblyError(f"there is no answer {which!r}; choose one of {', '.join(ANSWERS)}")
        began = time.perf_counter()
        finite = np.asarray(np.isfinite(x).all(axis=1))
        refused = self.problem.refused(x)
        answerable = finite.copy()
        answerable[list(refused)] = False
        safe = np.where(answerable[:, None], x, self.problem.nominal)
        belief, known = self._believe(safe)
        y, std, rungs, verdicts, duals = self._climb(safe, belief, which, tolerance, seed, draws, trust)
        y = np.where(answerable[:, None], self.problem.pin(safe, y), np.nan)
        rows = measure_rows(self.problem, safe, y)
        seconds = time.perf_counter() - began + known
        outside = self.outside(safe)
        outcomes = []
        for i, verdict in enumerate(verdicts):
            if not finite[i]:
                outcomes.append(AnswerOutcome.NOT_FINITE_INPUT)
            elif i in refused:
                outcomes.append(AnswerOutcome[refused[i].kind.upper()])
            elif verdict is not None:
                outcomes.append(verdict)
            elif not rows.worst[i] <= tolerance:  # NaN counts as violated
                outcomes.append(AnswerOutcome.VIOLATED)
            elif outside[i] and rungs[i] != "solved":
                outcomes.append(AnswerOutcome.OUTSIDE)
            else:
                outcomes.append(AnswerOutcome.OK)
        return Answer(
            y=y,
            std=std,
            objective=rows.objective,
            max_equality=rows.max_eq,
            max_inequality=rows.max_ineq,
            outcome=tuple(outcomes),
            rung=tuple(rungs),
            seconds=seconds,
            x=x,
            duals=duals,
            problem=self.problem,
            warnings=tuple(f"row {i}: {refusal.why}" for i, refusal in refused.items()),
        )

    def _climb(
        self,
        x: Array,
        belief: Belief,
        which: str,
        tolerance: float,
        seed: int,
        draws: int,
        trust: Trust | None,
    ) -> Climbed:
        rungs = [which] * len(x)
        nothing: list[AnswerOutcome | None] = [None] * len(x)
        if which == "mean":
            return belief.mean, belief.std, rungs, nothing, None
        if which == "svp":
            from feasibly.answer.svp import select

            return (
                select(self.problem, self.model, x, draws=draws, seed=seed),
                belief.std,
                rungs,
                nothing,
                None,
            )
        if which in ("conditioned", "polished"):
            found = self.conditioner.answer(x, belief.mean, polish=which == "polished")
            return found.y, found.std, rungs, nothing, self._duals(x, found)
        if which == "solved":
            found = self.conditioner.answer(x, belief.mean, polish=True)
            duals = Duals.nothing(self.problem, len(x))
            y, verdicts = self._solve(x, found, np.ones(len(x), dtype=bool), duals)
            return y, np.zeros_like(y), rungs, verdicts, duals
        return self._auto(x, belief, tolerance, trust)

    def _auto(self, x: Array, belief: Belief, tolerance: float, trust: Trust | None) -> Climbed:
        """Climb until the tolerance holds, for the certified gap too where there is a certificate.

        Rows outside the range go straight to the solver.
        """
        found = self.conditioner.answer(x, belief.mean)
        y, std, duals = found.y.copy(), np.array(found.std), self._duals(x, found)
        rung = np.full(len(x), "conditioned", dtype=object)
        outside = self.outside(x)
        fine = self._meets(x, y, tolerance)
        hard = np.zeros(len(x))
        if trust is not None:
            hard = self.difficulty(x, belief)
            fine &= trust("conditioned", found.converged, hard, tolerance)
        left = ~fine & ~outside
        if left.any():
            polished = self.conditioner.answer(x[left], belief.mean[left], polish=True)
            y[left], rung[left] = polished.y, "polished"
            duals.put(left, self._duals(x[left], polished))
            fine[left] = self._meets(x[left], polished.y, tolerance)
            if trust is not None:
                fine[left] &= trust("polished", polished.converged, hard[left], tolerance)
        left = ~fine | outside
        verdicts: list[AnswerOutcome | None] = [None] * len(x)
        if left.any():
            solved, found_verdicts = self._solve(x, found, left, duals)
            y[left], std[left], rung[left] = solved[left], 0.0, "solved"
            verdicts = found_verdicts
        return y, std, list(rung), verdicts, duals

    def difficulty(self, x: Array, belief: Belief) -> Array:
        """How far each belief is from the constraints: the largest violation of its mean, clipped to the bounds."""
        clipped = np.clip(np.nan_to_num(belief.mean), *self.problem.limits.usual)
        return self.conditioner.violation(x, clipped)

    def _meets(self, x: Array, y: Array, tolerance: float) -> Mask:
        return np.asarray(self.conditioner.violation(x, y) <= tolerance)

    def _solve(
        self, x: Array, found: Conditioned, wanted: Mask, duals: Duals
    ) -> tuple[Array, list[AnswerOutcome | None]]:
        """The solver, started from the proxy's own primal and dual answer; its multipliers go into `duals`."""
        starts = self._duals(x, found)
        y = np.full((len(x), self.problem.n_outputs), np.nan)
        verdicts: list[AnswerOutcome | None] = [None] * len(x)
        for i in np.flatnonzero(wanted):
            solution = self.solver.solve(x[i], _start(found.y[i], starts.take(i)))
            s = solution
            duals.put(i, Duals(s.equality_dual, s.inequality_dual, s.lower_dual, s.upper_dual))
            if solution.outcome.ok:
                y[i] = solution.y
            else:
                infeasible = solution.outcome.name == "INFEASIBLE"
                verdicts[i] = AnswerOutcome.INFEASIBLE if infeasible else AnswerOutcome.UNSOLVED
        return y, verdicts

    def _duals(self, x: Array, found: Conditioned) -> Duals:
        """Multipliers in full length, from those of the candidates."""
        problem, rows = self.problem, self.conditioner.recipe.rows
        lower, upper = np.zeros_like(found.y), np.zeros_like(found.y)
        inequality = np.zeros((len(found.y), self.conditioner.problem.n_inequalities))
        first, second = len(rows.lower), len(rows.lower) + len(rows.upper)
        lower[:, rows.lower], upper[:, rows.upper] = found.lam[:, :first], found.lam[:, first:second]
        inequality[:, rows.inequality] = found.lam[:, second:]
        inequality, lower, upper = own_multipliers(problem, inequality, lower, upper)
        return with_fixed(
            problem, x, problem.pin(x, found.y), Duals(found.nu.copy(), inequality, lower, upper)
        )


def _start(y: Array, duals: Duals) -> Any:
    from feasibly.solve.records import Start

    return Start(y, duals.equality, duals.inequality, duals.lower, duals.upper)


@record("leverage", shapes={"mean": "inputs", "root": "inputs rank"})
@dataclass(frozen=True)
class Leverage:
    """For problems without a declared box: how unlike the inputs learnt from an input is.

    The limit is the largest leave-one-out leverage among those inputs, so that an honest further draw exceeds
    it about once in as many draws as there were labels.
    """

    mean: Array
    root: Array
    limit: float

    @staticmethod
    def of(x: Array) -> Leverage:
        """Learn from inputs `(rows, n_inputs)`."""
        mean = x.mean(axis=0)
        centred = x - mean
        spread = np.where(centred.std(axis=0) < 1e-12, 1.0, centred.std(axis=0))
        _, values, right = np.linalg.svd(centred / spread, full_matrices=False)
        kept = values > 1e-9 * max(float(values[0]), 1e-300)
        made = Leverage(mean, (right[kept].T / values[kept]) / spread[:, None], 0.0)
        own = made._measure(x)
        return Leverage(made.mean, made.root, float(np.max(own / np.maximum(1.0 - own, 1e-9))))

    def _measure(self, x: Array) -> Array:
        return np.asarray(np.sum(((x - self.mean) @ self.root) ** 2, axis=1))

    def unlike(self, x: Array) -> Mask:
        """Rows with a larger leverage than any input learnt from."""
        return np.asarray(self._measure(x) > self.limit)
