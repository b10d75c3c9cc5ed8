"""Which constraints may become active, found on the labels; and what takes a place among them at run time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from feasibly._codec import record
from feasibly.problem.core import Problem

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

REACH = 2.0
"""How close, in standard deviations of its slack, a constraint must come to some label to be a candidate."""


@record("rows", shapes={"lower": "*", "upper": "*", "inequality": "*"})
@dataclass(frozen=True)
class Rows:
    """Which constraints may become active: positions of lower bounds, upper bounds and inequalities."""

    lower: Ints
    upper: Ints
    inequality: Ints

    def __len__(self) -> int:
        return len(self.lower) + len(self.upper) + len(self.inequality)


def candidates(problem: Problem, y: Array, h: Array, reach: float = REACH) -> Rows:
    """Constraints that solved instances come near: within `reach` standard deviations of their own slack."""

    def near(slack: Array) -> NDArray[np.bool_]:
        with np.errstate(invalid="ignore"):
            return np.asarray(slack.min(axis=0) < reach * slack.std(axis=0) + 1e-5)

    moving = problem.lower < problem.upper
    low, high = moving & np.isfinite(problem.lower), moving & np.isfinite(problem.upper)
    lower, upper = np.flatnonzero(low), np.flatnonzero(high)
    return Rows(
        lower[near(y[:, lower] - problem.lower[lower])],
        upper[near(problem.upper[upper] - y[:, upper])],
        np.flatnonzero(near(-h)) if h.shape[1] else np.zeros(0, dtype=np.int64),
    )


def swap_bounds(problem: Problem, rows: Rows, lam: Array, y: Array) -> Rows | None:
    """`rows` with bounds that `y` violates in the places of those that matter least; nothing where there are none.

    The number of each kind stays what it was, as compiled programs need.
    """
    first = len(rows.lower)
    kinds = (
        (rows.lower, lam[:first], y - problem.lower),
        (rows.upper, lam[first : first + len(rows.upper)], problem.upper - y),
    )
    swapped = []
    for chosen, pressing, slack in kinds:
        new = chosen.copy()
        # Idle ones with most room first; one that presses keeps its place.
        room = np.where(pressing > 0.0, -np.inf, slack[chosen])
        spare = np.argsort(-room)[: int(np.sum(pressing <= 0.0))]
        broken = np.setdiff1d(np.flatnonzero((slack < -1e-7) & (problem.lower < problem.upper)), chosen)
        for at, output in zip(spare, broken, strict=False):
            new[at] = output
        swapped.append(new)
    found = Rows(swapped[0], swapped[1], rows.inequality)
    same = np.array_equal(found.lower, rows.lower) and np.array_equal(found.upper, rows.upper)
    return None if same else found
