"""From a handful of solved instances, or one, to enough: answers of its own to inputs that nobody has solved.

One solved point has everything a first operator needs: where it was taken, its multipliers, the derivatives there.
Which constraints may become active elsewhere is read off its linear response to the other inputs; how far off a
belief is nobody knows, so the proximal term is weak. Rows that converge on that operator satisfy every constraint
and are stationary: they are labels, and no solver was called for them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from feasibly.answer.calibrate import first_driver
from feasibly.answer.calibration import Labels
from feasibly.answer.candidates import Candidates, find_candidates
from feasibly.answer.response import first_order_response
from feasibly.answer.schedule import SHARED_OPTIMAL
from feasibly.answer.settings import Settings
from feasibly.model.belief import Covariance
from feasibly.model.response import SolutionMap
from feasibly.problem.core import Problem
from feasibly.problem.point import Duals

Array = NDArray[np.float64]


def answered_by_itself(
    problem: Problem,
    labels: Labels,
    inputs: Array,
    *,
    seconds: float = np.inf,
    settings: Settings | None = None,
    tell: Callable[[str], None] = lambda stage: None,
) -> Labels:
    """The labels, and after them the inputs that converge on an operator at the first of them, with their answers.

    `tell` is called with what comes next; whoever wants to stop raises in it.
    """
    if labels.duals is None or not len(inputs):
        return labels
    chosen = Settings() if settings is None else settings
    until = time.monotonic() + seconds
    tell("operator of the first label")
    doubt = Covariance(np.zeros((problem.n_outputs, 0)), np.full(problem.n_outputs, chosen.unsure**2))
    driver = first_driver(problem, labels, _active(problem, labels, chosen.first_touching), doubt, chosen)
    plain = SolutionMap(first_order_response(driver.search, driver.operator(0)), 1, rounds=((0, 0),))
    linear = np.concatenate([labels.y, plain.respond(inputs)[0]])
    h = driver.search.inequalities(np.concatenate([labels.x, inputs]), linear)
    candidates = find_candidates(driver.search, linear, h, chosen.first_reach, chosen.touching)
    tell("operator with what may become active")
    driver = first_driver(problem, labels, candidates, doubt, chosen)
    response = first_order_response(driver.search, driver.operator(0))
    solution_map = SolutionMap.of(response, driver.calibration.max_changes, chosen.complementarity)
    tell("answers from few labels")
    found = driver.run(inputs, solution_map.respond(inputs)[0], SHARED_OPTIMAL, until=until)
    kept = np.flatnonzero(found.converged)
    point = driver.point(inputs[kept], found.iterate.take(kept))
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


def _active(problem: Problem, labels: Labels, touching: float) -> Candidates:
    """What is active at the first label: what has less room than `touching`."""
    search = problem.with_fixed_bounds
    y, h = labels.y[0], search.inequalities(labels.x[:1], labels.y[:1])[0]
    moving = search.lower < search.upper
    return Candidates(
        np.flatnonzero(moving & (y - search.lower < touching)),
        np.flatnonzero(moving & (search.upper - y < touching)),
        np.flatnonzero(-h < touching),
    )
