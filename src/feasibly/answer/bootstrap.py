"""From a handful of solved instances, or one, to enough: answers of its own to inputs that nobody has solved.

One solved point has everything a first operator needs: where it was taken, its multipliers, the derivatives there. What
one point cannot tell is which constraints become active elsewhere, so nearly all are watched; and how far off a belief
is, so it hardly pulls. Rows that converge on that operator satisfy every constraint and are stationary: labels,
and no solver was called for them.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from feasibly.answer.calibrate import first_driver
from feasibly.answer.calibration import Labels
from feasibly.answer.candidates import Candidates
from feasibly.answer.response import first_order_response
from feasibly.answer.schedule import SHARED_OPTIMAL
from feasibly.answer.settings import Settings
from feasibly.model.belief import Covariance
from feasibly.model.response import Law
from feasibly.problem.core import Problem
from feasibly.problem.point import Duals

Array = NDArray[np.float64]

ENOUGH = 8
"""As many labels as this say by themselves which constraints to watch."""
_UNSURE = 0.1
"""Standard deviation of a belief that rests on one point: it only keeps the iteration from wandering."""
_WATCHED = 0.5
"""Inequalities are watched that have less room left than this (natural units), and every finite bound."""
_MOST_WATCHED = 400
"""The nearest of them, where there are more: the complementarity problem grows with their cube."""


def answered_by_itself(
    problem: Problem,
    labels: Labels,
    inputs: Array,
    *,
    seconds: float = np.inf,
    settings: Settings | None = None,
) -> Labels:
    """The labels, and after them the inputs that converge on an operator at the first of them, with their answers."""
    if labels.duals is None or not len(inputs):
        return labels
    chosen = Settings() if settings is None else settings
    until = time.monotonic() + seconds
    watched = _watched(problem, labels)
    doubt = Covariance(np.zeros((problem.n_outputs, 0)), np.full(problem.n_outputs, _UNSURE**2))
    driver = first_driver(problem, labels, watched, doubt, chosen)
    law = Law(first_order_response(driver.search, driver.operator(0)), driver.calibration.flips)
    found = driver.run(inputs, law.respond(inputs)[0], SHARED_OPTIMAL, until=until)
    kept = np.flatnonzero(found.converged)
    point = driver.point(inputs[kept], found.state.take(kept))
    joined = [
        np.concatenate([getattr(labels.duals, name), getattr(point.duals, name)])
        for name in ("equality", "inequality", "lower", "upper")
    ]
    return replace(
        labels,
        x=np.concatenate([labels.x, inputs[kept]]),
        y=np.concatenate([labels.y, point.y]),
        objective=np.concatenate([labels.objective, problem.objectives(inputs[kept], point.y)]),
        duals=Duals(*joined),
        seconds=None,  # nothing is to be timed against a solver that is not to be called
    )


def _watched(problem: Problem, labels: Labels) -> Candidates:
    """Nearly all constraints, the nearest first where that is too many."""
    search = problem.with_fixed_bounds
    y, h = labels.y, search.inequalities(labels.x, labels.y)
    moving = search.lower < search.upper
    low = np.where(moving & np.isfinite(search.lower), (y - search.lower).min(axis=0), np.inf)
    high = np.where(moving & np.isfinite(search.upper), (search.upper - y).min(axis=0), np.inf)
    room = np.where(-h < _WATCHED, -h, np.inf).min(axis=0) if h.shape[1] else np.zeros(0)
    everything = np.concatenate([low, high, room])
    limit = np.sort(everything)[min(_MOST_WATCHED, len(everything)) - 1] if len(everything) else np.inf

    def near(slack: Array) -> NDArray[np.int64]:
        return np.flatnonzero(np.isfinite(slack) & (slack <= limit))

    return Candidates(near(low), near(high), near(room))
