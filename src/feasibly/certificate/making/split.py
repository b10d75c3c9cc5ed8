"""Promises from labels kept apart: answers become scores, scores become limits."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feasibly import promise
from feasibly.answer.auto import difficulty
from feasibly.answer.record import Answer
from feasibly.answer.schedule import CONDITIONED, POLISHED
from feasibly.certificate.record import NO_ANSWER, Rule
from feasibly.data.dataset import Dataset
from feasibly.problem.families import grid_of
from feasibly.problem.prices import nodal_prices
from feasibly.promise import Region, ScoreLimit
from feasibly.proxy import Proxy

Array = NDArray[np.float64]

FLOOR = 1e-3
"""Smallest scale of a residual, as a share of the output's standard deviation in training."""

SILENT = 1e-9
"""Smallest scale of an output that never erred in training (a fixed one), in its own units."""

SHAPE = 0.1
"""No output's residuals are taken for smaller than this share of the median output's."""

EASY = 1e-6
"""Smallest difficulty of an instance; below this, violations are rounding."""


@dataclass(frozen=True, eq=False)
class Scored:
    """Answers to rows, as scores: larger is worse, infinite where there is no answer."""

    y: Array
    std: Array
    gap_percent: Array
    max_eq: Array
    max_ineq: Array
    answered: NDArray[np.bool_]
    rungs: dict[str, int]

    def take(self, rows: NDArray[Any]) -> Scored:
        """These rows."""
        parts = (self.y, self.std, self.gap_percent, self.max_eq, self.max_ineq, self.answered)
        y, std, gap, eq, ineq, answered = (part[rows] for part in parts)
        return Scored(y, std, gap, eq, ineq, answered, {})


def score(found: Answer, reference: Array | None = None) -> Scored:
    """Scores of answers; the gap where the optimal cost `reference` is known."""
    answered = np.asarray(np.isfinite(found.y).all(axis=1))
    gap = np.full(len(found), np.nan)
    if reference is not None:
        gap = (
            100.0
            * np.abs(found.objective - reference)
            / np.maximum(np.abs(reference), np.finfo(np.float64).tiny)
        )
        gap = np.where(np.isfinite(gap) & answered, gap, np.inf)
    eq, ineq = (
        np.where(answered & np.isfinite(part), part, np.inf)
        for part in (found.max_equality, found.max_inequality)
    )
    return Scored(found.y, found.std, gap, eq, ineq, answered, dict(Counter(found.rung)))


def floor_of(proxy: Proxy) -> Array:
    """The smallest scale of each output's residuals: fixed by training, before any calibration label is seen."""
    return np.maximum(FLOOR * np.sqrt(proxy.model.covariance.variance), SILENT)


def next_outputs(
    scored: Scored, truth: Array, floor: Array, confidence: float, shape: Array | float = 1.0
) -> tuple[Region, Region]:
    """Where the next instance's outputs lie: each, and all together.

    `shape` says how large each output's residuals are beside its scale (`find_shape`). Without it the outputs whose
    stated deviation is too small would make the joint region wide for all; with it, a bad one costs width, never
    coverage, so long as it was fixed on other labels.
    """
    residual = np.where(scored.answered[:, None], truth - scored.y, NO_ANSWER)
    scale = np.nan_to_num(scored.std)
    each = promise.calibrate(residual, confidence, scale=scale, floor=floor)
    joint = promise.calibrate(residual / shape, confidence, scale=scale, floor=floor, joint=True)
    return each, replace(joint, quantile=joint.quantile * shape)


def find_shape(scored: Scored, truth: Array, floor: Array, confidence: float) -> Array:
    """The size of each output's residuals in units of its scale, positive, from labels not calibrated on.

    The largest residual of each output, once the worst instances are left out: as many as the region may miss. A
    quantile of each output alone would overlook those that sit at a bound on most instances and leave it on a few;
    without leaving any out, one instance that went wrong altogether would decide the region.
    """
    rows = scored.answered
    if not rows.any():
        return np.ones(truth.shape[1])
    size = np.maximum(np.nan_to_num(scored.std[rows]), floor)
    ratio = np.abs(truth[rows] - scored.y[rows]) / size
    worst = (ratio / _floored(np.sqrt(np.mean(ratio**2, axis=0)))).max(axis=1)
    return _floored(ratio[worst <= np.quantile(worst, confidence)].max(axis=0))


def _floored(shape: Array) -> Array:
    return np.asarray(np.maximum(shape, SHAPE * float(np.median(shape)) or SILENT))


def next_violations(scored: Scored, confidence: float) -> tuple[ScoreLimit, ScoreLimit]:
    """Limits on the next instance's violations; an input that is reported to have no answer is no violation."""
    rows = scored.answered
    eq = promise.calibrate_scores(scored.max_eq[rows], confidence)
    return eq, promise.calibrate_scores(scored.max_ineq[rows], confidence)


def next_gap(scored: Scored, confidence: float) -> ScoreLimit:
    """The limit on the next instance's gap, in per cent."""
    return promise.calibrate_scores(scored.gap_percent, confidence)


def price_errors(found: Answer, data: Dataset, rows: NDArray[np.int64]) -> Array | None:
    """How far the price at any bus is off, `(rows,)`, infinite without an answer; `None` where nobody knows prices."""
    grid = grid_of(data.problem)
    if grid is None or data.duals is None or found.multipliers is None:
        return None
    theirs = data.duals.take(rows)
    if not theirs.known.all():
        return None
    truth, _ = nodal_prices(grid, theirs.equality)
    off = np.abs(found.prices - truth).max(axis=1)
    return np.asarray(np.where(np.isfinite(off), off, np.inf))


def find_rule(proxy: Proxy, x: Array, cost: Array, confidence: float) -> Rule:
    """When `auto` may stay on a rung, from labels that take no part in calibrating it.

    The relative gap over the instance's difficulty is calibrated on the instances that came to rest, and holds for
    those; whether an instance comes to rest is known when it is answered.
    """
    ladder = proxy.ladder
    belief = proxy.model.predict(x)
    hard = difficulty(ladder.driver, x, belief)
    limits: dict[str, ScoreLimit | None] = {}
    for rung, schedule in (("conditioned", CONDITIONED), ("polished", POLISHED)):
        found = ladder.driver.run(x, belief.mean, schedule)
        rest = found.converged
        limits[rung] = None
        if rest.sum() >= promise.labels_needed(confidence):
            objective = proxy.problem.objectives(x[rest], found.y[rest])
            gap = np.abs(objective - cost[rest]) / np.maximum(np.abs(cost[rest]), np.finfo(np.float64).tiny)
            limits[rung] = promise.calibrate_scores(gap, confidence, scale=hard[rest], floor=EASY)
    return Rule(limits["conditioned"], limits["polished"], len(x))
