"""The ladder of answers: mean, svp, conditioned, polished, solved; `auto` climbs it row by row.

One batch, in order (`Ladder.answer`):

1. rows that cannot be answered are set aside (`_Inputs`): not finite, or refused by the problem;
2. the plan (`answer.plan`): which levels, how many shared passes, where the solver starts, whether a belief is needed;
3. the model's belief (`_believe`), which is the proximal centre and its weight;
4. the rung (`_climb`): the belief itself, a posterior draw, the driver (`conditioned`, `polished`), the driver and then
   the solver (`answer.auto.auto`), or the solver alone (`answer.auto.solved`);
5. cost and largest violations of every row, in float64 over all constraints (`_measured`);
6. one outcome a row, derived in one place (`answer.record.row_outcomes`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from feasibly.answer.auto import RungResult, Trust, auto, solved
from feasibly.answer.device import DeviceProgram, on_device, serves
from feasibly.answer.driver import Driver
from feasibly.answer.multipliers import refine
from feasibly.answer.plan import Plan, plan_answer
from feasibly.answer.progress import Found
from feasibly.answer.range import Leverage, outside_box
from feasibly.answer.record import Answer, AnswerOutcome, Remark, row_outcomes
from feasibly.answer.schedule import CONDITIONED, ROW_BY_ROW, Level
from feasibly.answer.settings import Settings
from feasibly.answer.step import Iterate
from feasibly.model.belief import Belief, Model
from feasibly.precision import double
from feasibly.problem.core import Problem
from feasibly.problem.drawing import Refusal
from feasibly.problem.errors import FeasiblyError
from feasibly.problem.point import Duals

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

ANSWERS = ("mean", "svp", "conditioned", "polished", "solved", "auto")
TOLERANCE = Settings.feasibility_tolerance
"""What an answer may break a constraint by, unless told otherwise."""
DRAWS = 500
"""Posterior draws of `svp`, unless told otherwise."""

# Of time and memory, and not of the method.
WORTH_KEEPING = 5.0
"""A belief that took so many seconds is kept for the next question about the same inputs."""
LARGEST_KEPT = 20_000_000
"""Unless it has more numbers than this."""
SMALLEST_ON_DEVICE = 256
"""Fewer rows than this are not worth the way to an accelerator."""

__all__ = ["ANSWERS", "Answer", "AnswerOutcome", "Ladder", "Leverage"]


@dataclass(frozen=True, eq=False)
class _Inputs:
    """The rows of a call, and which of them can be answered at all."""

    x: Array
    finite: Mask
    refused: Mapping[int, Refusal]
    answerable: Mask
    safe: Array
    """The same with the nominal input in place of rows that cannot."""

    @staticmethod
    def of(problem: Problem, x: Array, finite: Mask | None = None) -> _Inputs:
        finite = np.asarray(np.isfinite(x).all(axis=1)) if finite is None else finite
        refused = problem.refused(x)
        answerable = finite.copy()
        answerable[list(refused)] = False
        return _Inputs(x, finite, refused, answerable, np.where(answerable[:, None], x, problem.nominal))

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(Remark("row", i, f": {refusal.why}") for i, refusal in self.refused.items())


class Ladder:
    """Everything needed to answer one problem with one model; costly parts are made on first use."""

    def __init__(
        self,
        problem: Problem,
        model: Model,
        make_driver: Callable[[], Driver],
        box: tuple[Array, Array] | None,
        leverage: Leverage | None = None,
    ) -> None:
        self.problem = problem
        self.model = model
        self._make = make_driver
        self._driver: Driver | None = None
        self._box = box
        self._leverage = leverage
        self._believed: tuple[Array, Belief, float] | None = None
        self._program: DeviceProgram | None = None

    @property
    def driver(self) -> Driver:
        """Made on first use."""
        if self._driver is None:
            self._driver = self._make()
        return self._driver

    def _believe(self, x: Array) -> tuple[Belief, float]:
        """The model's belief, and how long it took if that was at another time.

        Hundreds of draws from a large network take minutes. Whoever asks for another answer to the same inputs gets
        the belief from before, and the time it took is counted again.
        """
        known = self._believed  # read once: another thread may put its own there
        if known is not None and np.array_equal(known[0], x):
            _, kept, seconds = known
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
            return np.asarray(outside_box(x, self._box) | self.problem.unlike(x))
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
        schedule: tuple[Level, ...] | None = None,
        until: float = np.inf,
        begin: Iterate | None = None,
    ) -> Answer:
        """Answer every row of `x` (checked, float64) by the rung `which`; `trust` says when `auto` may stay.

        `conditioned` and `polished` may be given another `schedule`, and begin no pass after `until`, a moment of
        `time.monotonic()`: rows that neither served have an empty `level`, and go on in another call whose `begin` is
        their `standing`.
        """
        if which not in ANSWERS:
            raise FeasiblyError(f"there is no answer {which!r}; choose one of {', '.join(ANSWERS)}")
        iterates = which not in ("mean", "svp")
        large = len(x) >= SMALLEST_ON_DEVICE and jax.default_backend() != "cpu"
        whole = schedule is None and until == np.inf
        if which == "conditioned" and large and whole and (self._program or serves(self.driver)):
            return self.answer_on_device(x, tolerance)
        began = time.perf_counter()
        rows = _Inputs.of(self.problem, x)
        plan = (
            plan_answer(which, self.driver.calibration, solver=self.driver.rowwise.installed)
            if iterates
            else None
        )
        if plan is not None and which in ("solved", "auto") and not plan.needs_belief:
            climbed, known = solved(self.driver, plan, rows.safe), 0.0
        else:
            belief, known = self._belief_for(rows.safe, which, plan if schedule is None else None)
            climbed = self._climb(
                rows.safe, belief, which, plan, tolerance, seed, draws, trust, schedule, until, begin
            )
        given = rows.answerable & ~np.isnan(climbed.y).any(axis=1)
        y = np.where(given[:, None], self.problem.pin(rows.safe, climbed.y), np.nan)
        objective, max_equality, max_inequality = self._measured(rows.safe, y, climbed, given)
        holds, outside = np.maximum(max_equality, max_inequality) <= tolerance, self.outside(rows.safe)
        seconds = time.perf_counter() - began + known
        outcome = row_outcomes(
            holds, outside, rows.finite, rows.refused, _proven(climbed, holds & ~outside), climbed.rungs
        )
        return Answer(
            y=y,
            std=climbed.std,
            objective=objective,
            max_equality=max_equality,
            max_inequality=max_inequality,
            outcome=outcome,
            rung=tuple(climbed.rungs),
            seconds=seconds,
            x=x,
            multipliers=climbed.duals,
            problem=self.problem,
            warnings=rows.warnings,
            level=tuple(name if there else "" for name, there in zip(climbed.level, given, strict=False)),
            steps=climbed.steps,
            factorisations=climbed.factorisations,
            standing=climbed.standing,
        )

    def answer_on_device(self, x: Any, tolerance: float = TOLERANCE) -> Answer:
        """`conditioned`, with belief, steps and checks on the default device; what is left over is done by the driver.

        A JAX array stays where it is, and the answers with it; a NumPy array travels there and its answers back.
        """
        began = time.perf_counter()
        stays = isinstance(x, jax.Array)
        calibration = self.driver.calibration
        if self._program is None and calibration.shares and serves(self.driver):
            self._program = DeviceProgram(self.driver, self.model, self._box)
        host = np.asarray(x, dtype=np.float64)
        found, note = on_device(self._program, self.problem, x)
        rows = _Inputs.of(self.problem, host, found.finite)
        answerable = rows.answerable
        worst = np.maximum(found.max_equality, found.max_inequality)
        done = found.converged & (worst <= self.driver.settings.feasibility_tolerance)
        unsolved = ~done & answerable
        left = np.flatnonzero(unsolved)
        level = np.full(len(host), "shared", dtype=object)
        factorisations = np.zeros(len(host), dtype=np.int64)
        infeasible = np.zeros(len(host), dtype=bool)
        if len(left):
            schedule = CONDITIONED if self._program is None or note else ROW_BY_ROW
            level[left] = ""
        if len(left) and (schedule is CONDITIONED or self.driver.rowwise.installed):
            again = self.driver.run(host[left], self.model.predict(host[left]).mean, schedule)
            level[left], factorisations[left] = again.level, again.factorisations
            here = worst[left] <= self.driver.settings.feasibility_tolerance  # NaN is not
            unsolved[left], infeasible[left] = ~again.converged, again.infeasible & ~here
            better = again.converged if schedule is ROW_BY_ROW else np.ones(len(left), dtype=bool)
            left, again_y = left[better], again.y[better]
            y = self.problem.pin(host[left], again_y)
            found = found.put(left, y, self.problem.worst(host[left], y))
        y, objective, equality, inequality = found[:4]
        given = answerable & ~infeasible
        if not given.all():
            with double():
                y = (jnp if stays else np).where(given[:, None], y, np.nan)
            objective, equality, inequality = (
                np.where(given, part, np.nan) for part in (objective, equality, inequality)
            )
        outside = None if note or self._program is None else found.outside
        holds, elsewhere = (
            np.asarray(np.maximum(equality, inequality) <= tolerance),
            self._outside_there(rows, outside),
        )
        short = unsolved & holds & ~elsewhere
        verdicts: list[AnswerOutcome | None] | None = None
        if short.any() or infeasible.any():
            verdicts = [AnswerOutcome.UNSOLVED if row else None for row in short]
            for row in np.flatnonzero(infeasible):
                verdicts[row] = AnswerOutcome.INFEASIBLE
        outcome = row_outcomes(holds, elsewhere, rows.finite, rows.refused, verdicts)

        def duals() -> Duals:
            at = np.where(given[:, None], np.asarray(y), self.problem.start)
            return refine(self.driver, rows.safe, self.driver.start(rows.safe, at), given)

        return Answer(
            y=y,
            std=np.broadcast_to(self.driver.operator(0).std, y.shape),
            objective=objective,
            max_equality=equality,
            max_inequality=inequality,
            outcome=outcome,
            rung=("conditioned",) * len(host),
            seconds=time.perf_counter() - began,
            x=host,
            multipliers=duals,
            problem=self.problem,
            warnings=(note, *rows.warnings) if note else rows.warnings,
            level=tuple(np.where(given, level, "")),
            factorisations=factorisations,
        )

    def _outside_there(self, rows: _Inputs, outside: Mask | None) -> Mask:
        """As `outside`, where the device may have compared inputs with their box already."""
        if self._box is not None and outside is not None:
            return outside if self.problem.drawing is None else outside | self.problem.unlike(rows.x)
        return self.outside(rows.safe)

    def _measured(
        self, x: Array, y: Array, climbed: RungResult, answerable: Mask
    ) -> tuple[Array, Array, Array]:
        """Cost and largest violations of every row, in float64 over all constraints."""
        if climbed.measured is None:
            return self.problem.worst(x, y)
        missing = np.flatnonzero(np.isnan(climbed.measured[0]) & answerable)
        parts = tuple(np.where(answerable, part, np.nan) for part in climbed.measured)
        if len(missing):
            for part, found in zip(parts, self.problem.worst(x[missing], y[missing]), strict=True):
                part[missing] = found
        return parts[0], parts[1], parts[2]

    def _climb(
        self,
        x: Array,
        belief: Belief,
        which: str,
        plan: Plan | None,
        tolerance: float,
        seed: int,
        draws: int,
        trust: Trust | None,
        schedule: tuple[Level, ...] | None,
        until: float,
        begin: Iterate | None,
    ) -> RungResult:
        """The answers of one rung."""
        rungs = [which] * len(x)
        nothing: list[AnswerOutcome | None] = [None] * len(x)
        if which == "mean":
            return RungResult(belief.mean, belief.std, rungs, nothing)
        if which == "svp":
            from feasibly.answer.svp import select

            chosen = select(self.problem, self.model, x, draws=draws, seed=seed)
            return RungResult(chosen, belief.std, rungs, nothing)
        assert plan is not None
        if which == "auto":
            return auto(self.driver, plan, x, belief, self.outside(x), tolerance, trust)
        found = self.driver.run(x, belief.mean, schedule or plan, until=until, begin=begin)
        if found.infeasible.any():
            nothing = [AnswerOutcome.INFEASIBLE if row else None for row in found.infeasible]
        answers, measured = self._without_solution(x, belief, found)

        def duals() -> Duals:
            return refine(self.driver, x, found.iterate, found.converged, found.solved)

        # Feasible is not enough: an answer that is OK has converged.
        unproven = None if schedule is not None else ~found.converged
        return RungResult(
            answers, found.std, rungs, nothing, duals, measured, tuple(found.level), found.steps,
            found.factorisations, found.iterate, unproven,
        )  # fmt: skip

    def _belief_for(self, x: Array, which: str, plan: Plan | None) -> tuple[Belief, float]:
        """The belief that a rung needs, as `_believe`; NaN where every row is solved from the nominal solution."""
        if plan is None or plan.needs_belief or which == "auto" or not self.driver.rowwise.available:
            return self._believe(x)
        nothing = np.full((len(x), self.problem.n_outputs), np.nan)
        return Belief(nothing, nothing), 0.0

    def _without_solution(
        self, x: Array, belief: Belief, found: Found
    ) -> tuple[Array, tuple[Array, Array, Array]]:
        """Answers and what was measured of them: nothing of rows without a solution, and what is believed of those that
        could not be solved where nobody had asked the model."""
        others = np.flatnonzero(~found.converged & np.isnan(belief.mean).all(axis=1))
        if not len(others) and not found.infeasible.any():
            return found.y, found.measured
        cost, equality, inequality = found.measured
        measured = cost.copy(), equality.copy(), inequality.copy()
        answers = found.y.copy()
        if len(others):
            mean = np.nan_to_num(self.model.predict(x[others]).mean)
            answers[others] = np.clip(mean, *self.problem.limits.usual)
        answers[found.infeasible] = np.nan
        for part in measured:
            part[others] = np.nan
            part[found.infeasible] = np.nan
        return answers, measured


def _proven(climbed: RungResult, good: Mask) -> list[AnswerOutcome | None]:
    """What each row's rung says of it; one that is feasible and has not converged is no answer."""
    if climbed.unproven is None:
        return climbed.verdicts
    short = climbed.unproven & good
    return [
        AnswerOutcome.UNSOLVED if verdict is None and row else verdict
        for verdict, row in zip(climbed.verdicts, short, strict=True)
    ]
