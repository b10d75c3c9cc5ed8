"""Multipliers of answers, at the accuracy of a solver: found when somebody asks for them.

A conditioned answer is a proximal step to the optimum, and where the cost is flat it may be some way from it. Its cost
hardly differs; its multipliers may in the third digit, and prices are made of these. So rows go on from there without
the proximal term, on the same shared operators, until their own optimality conditions hold (`errors`); what does not
get there is left to the row-wise solver. Decisions are not touched.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from feasibly.answer.driver import Driver
from feasibly.answer.schedule import Pass
from feasibly.answer.step import Iterate
from feasibly.problem.core import Problem
from feasibly.problem.duals import stationarity
from feasibly.problem.point import Duals, Point

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


def refine(
    driver: Driver,
    x: Array,
    state: Iterate,
    rows: NDArray[np.bool_],
    known: Iterable[tuple[Ints, Duals]] = (),
) -> Duals:
    """Multipliers of the optimum next to each row's answer, those of all constraints.

    Args:
        driver: whose operators and row-wise solver are used.
        x: inputs.
        state: the iterate of each answer.
        rows: those that have an answer; the others keep the multipliers they have.
        known: rows that were solved on their own, and their multipliers, which are kept.
    """
    s = driver.settings
    point = driver.point(x, state).copy()  # decisions stay where they are
    found = rows.copy()
    for own, duals in known:
        point.duals.put(own, duals)
        found[own] = False
    wrong = np.where(found, errors(driver, x, point), 0.0)
    *first, last = s.multiplier_steps
    plan = (*(Pass(steps, s.thorough_rounds) for steps in first), Pass(last, s.patient_rounds))
    for index in range(len(driver.calibration.centres)):
        left = np.flatnonzero(~(wrong <= 1.0))
        at = state.take(left)
        for steps, rounds in plan:
            if not len(left):
                break
            at, _ = driver.iteration.run(
                driver.operator(index), x[left], at.y, at, steps, proximal=False, cost_tolerance=0.0, rounds=rounds,
            )  # fmt: skip
            tried = driver.point(x[left], at)
            now = errors(driver, x[left], tried)
            better = now < wrong[left]
            point.put(left[better], tried.take(better))
            wrong[left[better]] = now[better]
            stay = ~(now <= 1.0) & (now < s.multiplier_hopeless)
            left, at = left[stay], at.take(stay)
    left = np.flatnonzero(~(wrong <= 1.0))
    if len(left) and driver.rowwise.available:
        solved = driver.rowwise.solve(x[left], point.take(left), thorough=False)
        point.put(left[solved.ok], solved.point.take(solved.ok))
    return point.duals


def errors(driver: Driver, x: Array, point: Point) -> Array:
    """How far each point is from (1), the largest of stationarity, feasibility and complementarity over what serves."""
    problem, duals, s = driver.problem, point.duals, driver.settings
    with np.errstate(invalid="ignore"):
        gradient = np.abs(stationarity(problem, x, point.y, duals)).max(axis=1, initial=0.0)
        largest = np.max([np.abs(part).max(axis=1, initial=0.0) for part in point.parts[1:]], axis=0)
        largest = np.maximum(largest, 1e-12)
        off = np.max(
            [
                gradient / largest / s.multiplier_stationarity,
                driver.violation(x, point.y) / s.multiplier_feasibility,
                complementarity(problem, x, point) / largest / s.multiplier_complementarity,
            ],
            axis=0,
        )
    return np.asarray(np.where(np.isfinite(off), off, np.inf))


def complementarity(problem: Problem, x: Array, point: Point) -> Array:
    """The largest product of a multiplier and its constraint's slack, by row; zero at an optimum."""
    low, high = problem.bounds(x)
    slacks = -problem.inequalities(x, point.y), point.y - low, high - point.y
    multipliers = point.duals.inequality, point.duals.lower, point.duals.upper
    products = (
        np.abs(np.where(lam == 0.0, 0.0, lam * np.where(lam == 0.0, 0.0, slack))).max(axis=1, initial=0.0)
        for lam, slack in zip(multipliers, slacks, strict=True)
    )
    return np.max(list(products), axis=0)
