"""`auto`: what shared operators can show to be optimal, and the solver for the rest; and `solved`, the solver alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from feasibly.answer.driver import Driver
from feasibly.answer.multipliers import refine
from feasibly.answer.plan import Plan
from feasibly.answer.progress import Found
from feasibly.answer.record import AnswerOutcome
from feasibly.answer.step import Iterate
from feasibly.model.belief import Belief
from feasibly.problem.point import Duals, Point

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

Trust = Callable[[str, Mask, Array, float], Mask]
"""Rows that may stay on a rung, from its name, which rows converged, how hard each is, and the tolerance."""


@dataclass(frozen=True, eq=False)
class RungResult:
    """What a rung gave: answers, their spread, and for each row what answered it and what else became of it."""

    y: Array
    std: Array
    rungs: list[str]
    verdicts: list[AnswerOutcome | None]
    """What the rung knows of a row beyond its residuals: that it has no solution, or did not converge."""
    duals: Duals | Callable[[], Duals] | None = None
    """Multipliers, or what computes them."""
    measured: tuple[Array, Array, Array] | None = None
    """Cost, largest |equality| and largest violation of each row, where they are known."""
    level: tuple[str, ...] = ()
    steps: NDArray[np.int64] | None = None
    factorisations: NDArray[np.int64] | None = None
    standing: Iterate | None = None
    unproven: Mask | None = None
    """Rows that have not converged: feasible or not, nothing shows that they are answers."""


def solved(driver: Driver, plan: Plan, x: Array) -> RungResult:
    """The solver, from the nominal solution as for labels, many rows at once: what the proxy believes has no say."""
    point = Point.nothing(driver.problem, len(x))
    rows = np.arange(len(x))
    verdicts, iterations, measured = _solve(driver, plan, x, rows, None, point)
    level = tuple("" if verdict else "solver" for verdict in verdicts)
    steps = np.zeros(len(x), dtype=np.int64)
    zeros = np.zeros_like(point.y)
    rungs = ["solved"] * len(x)
    return RungResult(point.y, zeros, rungs, verdicts, point.duals, measured, level, steps, iterations)


def auto(
    driver: Driver, plan: Plan, x: Array, belief: Belief, outside: Mask, tolerance: float, trust: Trust | None
) -> RungResult:
    """Answers of shared operators where they are feasible and stationary, the solver's elsewhere.

    In order: the plan's shared passes for rows inside the range (`Driver.run`); a row stays that converged in optimal
    mode within the tolerance; all others go to the solver, each from where the plan says (`_solver_starts`).

    With a certificate, the certified gap has to be within the tolerance too. Rows outside the range go straight to
    the solver.
    """
    inside = np.flatnonzero(~outside)
    found = driver.run(x[inside], belief.mean[inside], plan)
    fine = found.converged & (np.maximum(*found.measured[1:]) <= tolerance)
    if trust is not None:
        hard = difficulty(driver, x[inside], Belief(belief.mean[inside], belief.std[inside]))
        fine &= trust("polished", found.converged, hard, tolerance)
    point, std = Point.nothing(driver.problem, len(x)), np.zeros((len(x), driver.problem.n_outputs))
    level, rung = np.full(len(x), "", dtype=object), np.full(len(x), "solved", dtype=object)
    steps = np.zeros(len(x), dtype=np.int64)
    kept = inside[fine]
    point.y[kept] = found.y[fine]
    std[kept], level[kept], rung[kept] = found.std[fine], found.level[fine], "polished"
    steps[inside] = found.steps
    measured = (np.full(len(x), np.nan), np.full(len(x), np.nan), np.full(len(x), np.nan))
    for part, known in zip(measured, found.measured, strict=True):
        part[kept] = known[fine]
    verdicts: list[AnswerOutcome | None] = [None] * len(x)
    factorisations = np.zeros(len(x), dtype=np.int64)
    left = np.concatenate([inside[~fine], np.flatnonzero(outside)])
    if len(left) and driver.rowwise.available:
        starts = _solver_starts(driver, plan, x, belief, found, ~fine, outside)
        verdicts, factorisations, known_of_left = _solve(driver, plan, x, left, starts, point)
        for part, known in zip(measured, known_of_left, strict=True):
            part[left] = known
        level[[i for i in left if verdicts[i] is None]] = "solver"
        told = np.array(
            [k for k, row in enumerate(inside) if verdicts[row] is AnswerOutcome.INFEASIBLE], dtype=int
        )
        here = driver.known(x[inside[told]], found.y[told], [part[told] for part in found.measured])
        stands = (
            np.maximum(*here[1:]) < driver.settings.feasibility_tolerance
        )  # at a feasible point: it has a solution
        for row, k, *values in zip(
            inside[told][stands], told[stands], *(part[stands] for part in here), strict=True
        ):
            verdicts[row], point.y[row] = AnswerOutcome.UNSOLVED, found.y[k]
            for part, value in zip(measured, values, strict=True):
                part[row] = value
    elif len(left):  # nobody can solve these: the others have their answers all the same
        point.y[inside[~fine]] = found.y[~fine]
        for i in left:
            verdicts[i] = AnswerOutcome.UNSOLVED

    def duals() -> Duals:
        every = np.ones(len(kept), dtype=bool)
        point.duals.put(kept, refine(driver, x[kept], found.iterate.take(fine), every))
        return point.duals

    return RungResult(
        point.y, std, list(rung), verdicts, duals, measured, tuple(level), steps, factorisations
    )


def _solver_starts(
    driver: Driver, plan: Plan, x: Array, belief: Belief, found: Found, unfinished: Mask, outside: Mask
) -> Point:
    """Where the solver begins, rows inside first: NaN, which helps no row, where it starts as for a label."""

    def start(iterate: Iterate, passes_made: bool) -> Iterate:
        cold = plan.solver_start(passes_made).cold
        return iterate._replace(y=np.full_like(iterate.y, np.nan)) if cold else iterate

    left = start(found.iterate.take(unfinished), bool(found.passes))
    state = start(driver.start(x[outside], belief.mean[outside]), False)
    parts = driver.full(left), driver.full(state)
    joined = [
        np.concatenate([getattr(p.duals, n) for p in parts])
        for n in ("equality", "inequality", "lower", "upper")
    ]
    return Point(np.concatenate([p.y for p in parts]), Duals(*joined))


def difficulty(driver: Driver, x: Array, belief: Belief) -> Array:
    """How far each belief is from the constraints: the largest violation of its mean, clipped to the bounds."""
    clipped = np.clip(np.nan_to_num(belief.mean), *driver.problem.limits.usual)
    return driver.violation(x, clipped)


def _solve(
    driver: Driver, plan: Plan, x: Array, rows: NDArray[np.int64], starts: Point | None, into: Point
) -> tuple[list[AnswerOutcome | None], NDArray[np.int64], tuple[Array, Array, Array]]:
    """The whole solver for some rows; points go `into`. Verdicts and iterations of all rows, and what was measured of
    those that were solved."""
    verdicts: list[AnswerOutcome | None] = [None] * len(x)
    iterations = np.zeros(len(x), dtype=np.int64)
    large_barrier = driver.calibration.large_barrier
    solved = driver.rowwise.solve(x[rows], starts, thorough=True, large_barrier=large_barrier)
    into.put(rows, solved.point)
    iterations[rows] = solved.iterations
    for row, outcome in zip(rows, solved.outcome, strict=True):
        if outcome != "OK":
            infeasible = outcome == "INFEASIBLE"
            verdicts[row] = AnswerOutcome.INFEASIBLE if infeasible else AnswerOutcome.UNSOLVED
    return verdicts, iterations, solved.measured
