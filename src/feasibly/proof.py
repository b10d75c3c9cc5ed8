"""Proofs: for each answer of a grid a cost that no feasible dispatch can undercut.

Which numbers go into the bound is learnt: a proxy of the convex relaxation, of the same kind as the one for the grid
itself, answers with multipliers. Whether they are good decides how tight the bound is, never whether it holds: that is
arithmetic (`bound/cone.py`), and rounding is allowed for.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from numpy.typing import NDArray

from feasibly.answer.calibration import Calibration
from feasibly.answer.plan import plan_answer
from feasibly.answer.record import Answer, AnswerOutcome, Remark
from feasibly.answer.schedule import SHARED_ONLY
from feasibly.arrays import padded
from feasibly.bound.cone import Cone, Instance, Multipliers, lower_bound
from feasibly.bound.lagrange import convex_bound, proves_infeasible
from feasibly.bound.relaxation import (
    check_same,
    known_grid,
    leaving,
    loose_rows,
    relaxation,
    to_multipliers,
)
from feasibly.data.dataset import Dataset
from feasibly.data.label import label
from feasibly.precision import double
from feasibly.problem.core import Problem
from feasibly.problem.errors import FeasiblyError
from feasibly.problem.families import grid_of
from feasibly.problem.point import Point
from feasibly.problem.sampling import sample

if TYPE_CHECKING:
    from feasibly.proxy import Proxy
    from feasibly.solve.lanes.batch import BatchSolver
    from feasibly.solve.nlp import Solver

Array = NDArray[np.float64]

LABELS = 64
"""Solved relaxations that the multipliers are learnt from."""
BUDGET = 120.0
"""Seconds for learning them, at most."""
TRIAL = 8
"""Relaxations solved to see which pairs leave their cones."""
MANY, INSIDE = 10, 1e-3
"""From so many loose pairs on solvers start from the relaxation without any, with these as far inside their cones."""
ROUNDS = 6
"""Of finding more such pairs, at most: 179_goc goes on finding some after four."""
LOST = 1e-5
"""Share of the cost that a bound may be below the relaxation's optimum without its solver being asked: relaxations of
PGLib's grids are 5e-4 to 0.2 below the cost."""
TOLERANCE = 1e-5
"""Of relaxations that are solved for their multipliers alone: what a bound loses is the square of what these are off.
It is at most 4e-6 of what is proven on 24__api, 60_c, 89_pegase, 118, 162_ieee_dtc and 179_goc; and the last digits
take hundreds of iterations where many pairs nearly leave their cones (60_c: 3.6 ms a row with 1e-8, 0.23 with this)."""
LEFT_OUT = 1e-4
"""A solved relaxation that breaks a limit by more has not seen it."""
NOTHING = "no answer within its bounds satisfies its constraints."
BATCH = 256
_SEED = 1 << 41


class Prover:
    """Lower bounds for one grid. Made by `Prover.train`, which takes about as long as fitting a proxy."""

    def __init__(self, cone: Cone, relaxed: Proxy, loose: NDArray[np.int64]) -> None:
        self.cone = cone
        self.relaxed = relaxed
        self.loose = loose
        self._bound = _compiled(cone, relaxed.problem.inputs)
        self._lock = threading.Lock()

    @staticmethod
    def problem(proxy: Proxy, loose: Sequence[int] | NDArray[np.int64]) -> tuple[Cone, Problem]:
        """The relaxation that belongs to a proxy's grid, these pairs free to leave their cones."""
        cone = Cone.of(known_grid(proxy.problem))
        box = proxy.box if proxy.box is not None else proxy.problem.box()
        loose = np.asarray(loose, dtype=np.int64)
        made = relaxation(
            cone, box, loose, problem=proxy.problem, first_guess=_from_firm(cone, box, loose, proxy.problem)
        )
        check_same(proxy.problem, made, cone, loose)
        return cone, made

    @staticmethod
    def train(proxy: Proxy, *, labels: int = LABELS, budget: float = BUDGET, seed: int = 0) -> Prover:
        """Solve some relaxations and learn their multipliers."""
        from feasibly.fitting import fit

        found = np.zeros(0, dtype=np.int64)
        count = min(TRIAL, labels)
        for left in reversed(range(ROUNDS)):
            loose = found
            cone, relaxed = Prover.problem(proxy, loose)
            x = sample(proxy.problem, count, seed=_SEED + seed)
            x = np.delete(x, list(proxy.problem.refused(x)), axis=0)
            data = label(relaxed, x, jobs=1)
            found = np.union1d(loose, _leaving(cone, data, loose))
            settled = len(found) == len(loose)
            if settled and count == labels:
                break
            if settled or left == 1:
                count = labels
        if data.n_labels < 2:
            raise FeasiblyError(
                f"the relaxation of {proxy.problem.name} could be solved for {data.n_labels} of {len(data)} inputs of "
                "its range, too few to learn proofs from; narrow the range"
            )
        learnt = fit(relaxed, data, "ridge", budget=budget, seed=seed)
        if learnt.calibration is None:
            raise FeasiblyError(
                f"what proofs need could not be learnt in {budget:g} s; call proxy.learn_proofs with a larger budget"
            )
        return Prover(cone, learnt, loose)

    def bound(self, x: Array, feasible: NDArray[np.bool_] | None = None) -> tuple[Array, Array]:
        """For every row a lower bound, infinite where none has a dispatch, and what power, per unit, is lacking there.

        Any multipliers give a bound: the nearer they are to the relaxation's own, the higher it is. Where shared
        operators are the quickest way to those, what they leave is looked at first (`_quickly`), then what many rows at
        once are solved to (`_roughly`). What is left may have no dispatch, which can be told where every pair may leave
        its cone (`_freely`); rows that are known to have one (`feasible`) are not asked. Other rows take their time
        (`_thoroughly`).
        """
        out, short = self._quickly(x), np.zeros(len(x))
        rest = np.flatnonzero(np.isneginf(out))
        if len(rest):
            out[rest] = self._roughly(x[rest])
            rest = rest[np.isneginf(out[rest])]
        asked = rest if feasible is None else rest[~feasible[rest]]
        if len(asked):
            out[asked], short[asked] = self._freely(x[asked])
            rest = rest[np.isneginf(out[rest])]
        if len(rest):
            out[rest] = self._thoroughly(x[rest])
        return out, short

    def _near(self, x: Array) -> Point:
        """Predicted points, with their multipliers."""
        driver = self.relaxed.ladder.driver
        near = driver.full(driver.start(x, self.relaxed.model.predict(x).mean))
        return Point(self.relaxed.problem.pin(x, near.y), near.duals)

    def _quickly(self, x: Array) -> Array:
        """Bounds by the multipliers that a conditioned answer ends with, where that tells that they are tight.

        The relaxation's optimum lies between a bound and the cost of any point that satisfies its constraints, so that
        the two together say how much is lost. Minus infinity for other rows.
        """
        driver = self.relaxed.ladder.driver
        out = np.full(len(x), -np.inf)
        plan = plan_answer("conditioned", driver.calibration, solver=driver.rowwise.installed)
        if plan.max_passes < Calibration.worthwhile_passes:
            return out
        found = self.relaxed.ladder.answer(x, "conditioned", schedule=SHARED_ONLY)
        rows = np.flatnonzero(found.ok)
        bounds = self._bounds(x[rows], driver.full(found.standing.take(rows)))
        tight = found.objective[rows] - bounds <= LOST * np.abs(bounds)
        out[rows[tight]] = bounds[tight]
        return out

    def _roughly(self, x: Array) -> Array:
        """Bounds by the multipliers of relaxations that are solved no further than a bound needs.

        They are solved from predicted points: on 179_goc__api all of 73 rows, where lanes leave ten from the nominal
        one, and in a third of the time; on 60_c, where that is worst, in a tenth more. Minus infinity for rows that are
        not solved.
        """
        out, rest = np.full(len(x), -np.inf), np.arange(len(x))
        with self._lock:  # what solves works on one memory
            near = self._near(x)
            for whole in (False, True):
                solver = self._rough_whole if whole else self._rough
                if solver is None or not len(rest):
                    break
                found, kept, left_out = self._solved(solver, x[rest], near.take(rest))
                out[rest[kept]] = self._bounds(x[rest[kept]], found.take(kept))
                rest = rest[left_out]
        return out

    def _solved(
        self, solver: BatchSolver, x: Array, near: Point
    ) -> tuple[Point, NDArray[np.int64], NDArray[np.int64]]:
        """Points, for which rows they satisfy every limit, and for which they break one that the solver left out."""
        done = solver.solve(x, near, np.ones(len(x), dtype=bool))
        y = np.where(done.converged[:, None], done.point.y, self.relaxed.problem.start)
        over = self.relaxed.problem.violations(x, y).max(axis=1, initial=0.0) > LEFT_OUT
        return done.point, np.flatnonzero(done.converged & ~over), np.flatnonzero(done.converged & over)

    def _freely(self, x: Array) -> tuple[Array, Array]:
        """Bounds by relaxations in which every pair may leave its cone, infinite where power is proven to be lacking;
        and how much, per unit.

        Where a relaxation has no feasible point pairs leave that never do in others: of 60 rows of 179_goc__api without
        a dispatch 28 were proven with the pairs found in training, and 55 are with all, which are all for which the
        least that balances can lack is above zero.
        """
        out, short = np.full(len(x), -np.inf), np.zeros(len(x))
        with self._lock:
            problem, solver = self._free
            if solver.batch is not None:
                done = solver.batch.solve(x, None, np.zeros(len(x), dtype=bool))
                solved = np.flatnonzero(done.converged)
                lacking, least = solver.batch.least_violating(x, done)
            else:
                solved, lacking = np.zeros((2, 0), dtype=np.int64)
                found = [solver.feasibility.least_infeasible(row, problem.start) for row in x]
                parts = {row: point.take(None) for row, point in enumerate(found) if point is not None}
                if parts:
                    lacking, least = np.array(list(parts)), Point.join(list(parts.values()))
        every = np.arange(self.cone.n_pairs)
        if len(solved):
            out[solved] = self._bounds(x[solved], done.point.take(solved), problem, every)
        if len(lacking):
            # With a cost of nothing a bound is one on prices times what balances are off by.
            largest = np.abs(least.duals.equality).max(axis=1)
            bounds = self._bounds(x[lacking], least, problem, every, self._bound_without_cost)
            short[lacking] = np.where(bounds > 0.0, bounds / np.maximum(largest, 1e-300), 0.0)
        out[short > 0.0] = np.inf
        return out, short

    @functools.cached_property
    def _free(self) -> tuple[Problem, Solver]:
        """The relaxation in which every pair may leave its cone, and its solver."""
        from feasibly.solve.nlp import Solver

        relaxed = self.relaxed.problem
        box, every = relaxed.box(), np.arange(self.cone.n_pairs)
        problem = relaxation(
            self.cone, box, problem=relaxed, first_guess=_from_firm(self.cone, box, every, relaxed)
        )
        return problem, Solver.build(problem)

    @functools.cached_property
    def _bound_without_cost(self) -> Any:
        return _compiled(self.cone, self.relaxed.problem.inputs, free=True)

    def _thoroughly(self, x: Array) -> Array:
        """Bounds by relaxations that are solved by themselves; by predicted multipliers where nothing solves them."""
        found = self.relaxed.predict(x, "auto")
        assert found.duals is not None
        out = self._bounds(x, Point(found.y, found.duals))
        left = np.flatnonzero(~found.ok)
        if len(left):
            out[left] = np.maximum(out[left], self._bounds(x[left], self._near(x[left])))
        return out

    @functools.cached_property
    def _rough(self) -> BatchSolver | None:
        """What relaxations are solved with first: the limits that labels come near, and those that trials without them
        break.

        On 588_sdet every row broke one of ten limits that no label had come near. Trials depend on nothing but the
        problem, so that a row's bound does not depend on those asked before.
        """
        rowwise, problem = self.relaxed.ladder.driver.rowwise, self.relaxed.problem
        if not rowwise.available or rowwise.watched is None:
            return self._rough_whole
        x = sample(problem, TRIAL, seed=_SEED - 1)
        x = np.delete(x, list(problem.refused(x)), axis=0)
        near, watched = self._near(x), loose_rows(self.cone, self.loose)
        for _ in range(ROUNDS):
            few = rowwise.rough(TOLERANCE, watched)
            if few is None:
                return None
            point, _, left_out = self._solved(few, x, near)
            over = problem.inequalities(x[left_out], point.y[left_out]) > LEFT_OUT
            if not over.any():
                return few
            watched = np.union1d(watched, np.flatnonzero(over.any(axis=0)))
        return self._rough_whole

    @functools.cached_property
    def _rough_whole(self) -> BatchSolver | None:
        """The same with every limit, for rows that break one that was left out."""
        rowwise = self.relaxed.ladder.driver.rowwise
        return rowwise.rough(TOLERANCE, None) if rowwise.available else None

    def _bounds(
        self,
        x: Array,
        point: Point,
        problem: Problem | None = None,
        loose: NDArray[np.int64] | None = None,
        bound: Any = None,
    ) -> Array:
        """By the multipliers of these points, of the relaxation that was learnt unless told."""
        problem, bound = problem or self.relaxed.problem, bound or self._bound
        loose = self.loose if loose is None else loose
        out = np.full(len(x), -np.inf)
        known = np.flatnonzero(point.duals.known & np.isfinite(point.y).all(axis=1))
        for first in range(0, len(known), BATCH):
            rows = known[first : first + BATCH]
            m = to_multipliers(self.cone, problem, x[rows], point.take(rows), loose)
            found = bound(m, x[rows])
            out[rows] = np.where(np.isnan(found), -np.inf, found)
        return out


def _leaving(cone: Cone, data: Dataset, loose: NDArray[np.int64]) -> NDArray[np.int64]:
    assert data.duals is not None
    solved = np.flatnonzero(data.solved)
    x, point = data.x[solved], Point(data.y[solved], data.duals.take(solved))
    m = to_multipliers(cone, data.problem, x, point, loose)
    return leaving(cone, data.problem, x, point.y, m, loose)


def _from_firm(
    cone: Cone, box: tuple[Array, Array] | None, loose: NDArray[np.int64], problem: Problem
) -> Callable[[], Array | None] | None:
    """Where solvers of a relaxation with many loose pairs start: at the one without any, which is easy.

    From the middle of all bounds IPOPT takes 144 iterations on 2000 buses with 40 loose pairs, or has not ended after
    1,000 s; from there 43, after 34.
    """
    if len(loose) < MANY:
        return None

    @functools.cache
    def guess() -> Array | None:
        from feasibly.solve.nlp import Solver

        found = Solver.build(relaxation(cone, box, loose[:0], problem=problem)).nominal
        return np.concatenate([found.y, np.full(len(loose), INSIDE)]) if found.outcome.ok else None

    return guess


def _compiled(cone: Cone, inputs: Mapping[str, slice], *, free: bool = False) -> Any:
    """The bound for rows of inputs, in few compiled sizes; `free` where costs count as nothing."""

    @jax.jit
    def at(m: Multipliers, x: Any) -> Any:
        instance = Instance.of(cone.grid, inputs, x)
        return lower_bound(cone, m, instance.without_cost if free else instance)

    def run(m: Multipliers, x: Array) -> Array:
        with double():
            wide = Multipliers(*(padded(part.T).T for part in m))
            return np.asarray(at(wide, padded(x).T))[: len(x)]

    return run


def prove(proxy: Proxy, answer: Answer) -> Answer:
    """The answer with `lower_bound` and `proven_gap_percent`; rows proven infeasible say so, with a bound of infinity.

    Raises:
        FeasiblyError: the problem is neither a grid nor convex, so no bound is known for it.
    """
    began = time.perf_counter()
    problem = proxy.problem
    x = answer._inputs
    finite = np.asarray(np.isfinite(x).all(axis=1))
    if grid_of(problem) is None:
        if answer.duals is None:
            raise FeasiblyError(
                "a proof is made of multipliers, which this answer does not have; ask for conditioned, polished, "
                "solved or auto"
            )
        lower = convex_bound(problem, x, answer.y, answer.duals)
        missing = finite & np.isin([o.name for o in answer.outcome], ["INFEASIBLE", "UNSOLVED"])
        without = {row: NOTHING for row in np.flatnonzero(missing).tolist() if _has_none(proxy, x[row])}
        return _with(answer, lower, without, began)
    prover = proxy.prover
    finite[list(problem.refused(x))] = False  # a grid that falls apart is no instance of this problem
    lower = np.full(len(x), np.nan)
    lacking: dict[int, str] = {}
    if finite.any():
        rows = np.flatnonzero(finite)
        lower[rows], short = prover.bound(x[rows], feasible=answer.ok[rows])
        short *= prover.cone.grid.base_mva
        lacking = {
            int(rows[k]): f"its balances lack {short[k]:.3g} MW and Mvar at least."
            for k in np.flatnonzero(short > 0.0)
        }
    return _with(answer, lower, lacking, began)


def _has_none(proxy: Proxy, x: Array) -> bool:
    """Whether it is proven that a row of a convex problem has no feasible answer.

    Any multipliers prove it for which the Lagrangian of no cost at all is above zero throughout the row's bounds.
    """
    found = proxy.ladder.driver.rowwise.least_infeasible(x)
    return found is not None and bool(proves_infeasible(proxy.problem, x[None], found.take(None))[0])


def _with(answer: Answer, lower: Array, infeasible: Mapping[int, str], began: float) -> Answer:
    """The answer with its bounds; of rows that are proven `infeasible`, why."""
    outcome = list(answer.outcome)
    for row in infeasible:
        lower[row], outcome[row] = np.inf, AnswerOutcome.INFEASIBLE
    notes = [Remark("Row", row, f" is proven infeasible: {why}") for row, why in infeasible.items()]
    with np.errstate(invalid="ignore", divide="ignore"):
        gap = 100.0 * (answer.objective - lower) / np.abs(answer.objective)
    gap = np.where(answer.objective == lower, 0.0, gap)
    return replace(
        answer,
        lower_bound=lower,
        proven_gap_percent=gap,
        outcome=tuple(outcome),
        warnings=(*answer.warnings, *notes),
        seconds=answer.seconds + time.perf_counter() - began,
    )
