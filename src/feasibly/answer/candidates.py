"""The candidates: constraints that may become active, and their compressed order, known nowhere else: whoever puts a
compressed vector together asks `in_order`, and whoever takes one apart `Candidates.split`.

What lanes know of is another choice, of inequalities alone and more of them: `Calibration.watched`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feasibly._codec import record
from feasibly.problem.core import Problem
from feasibly.problem.point import Duals

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


def in_order(lower: Any, upper: Any, inequality: Any) -> tuple[Any, Any, Any]:
    """The parts of a vector over candidates as it lists them."""
    return lower, upper, inequality


@record("candidates", shapes={"lower": "*", "upper": "*", "inequality": "*"})
@dataclass(frozen=True)
class Candidates:
    """Constraints that may become active: positions of lower bounds, upper bounds and inequalities.

    A vector over candidates (`lam`, an active set) lists them as `in_order` does.
    """

    lower: Ints
    upper: Ints
    inequality: Ints

    def __len__(self) -> int:
        return len(self.lower) + len(self.upper) + len(self.inequality)

    @property
    def bounds(self) -> int:
        """How many of them are bounds."""
        return len(self.lower) + len(self.upper)

    def split(self, lam: Any, axis: int = 0) -> tuple[Any, Any, Any]:
        """What belongs to lower bounds, upper bounds and inequalities, of an array over candidates along `axis`."""
        first = len(self.lower)
        parts = slice(None, first), slice(first, self.bounds), slice(self.bounds, None)
        lower, upper, inequality = (lam[(slice(None),) * axis + (part,)] for part in parts)
        return lower, upper, inequality

    def compress(self, duals: Duals) -> Array:
        """Multipliers of the candidates, `(rows, candidates)`, from those of all constraints."""
        low, high = duals.lower[:, self.lower], duals.upper[:, self.upper]
        return np.concatenate(in_order(low, high, duals.inequality[:, self.inequality]), axis=1)

    def expand(self, problem: Problem, equality: Array, lam: Array) -> Duals:
        """Multipliers of all constraints; zero for those that are no candidates."""
        rows, (at_lower, at_upper, at_inequality) = len(lam), self.split(lam, axis=1)
        lower, upper = np.zeros((rows, problem.n_outputs)), np.zeros((rows, problem.n_outputs))
        inequality = np.zeros((rows, problem.n_inequalities))
        lower[:, self.lower], upper[:, self.upper], inequality[:, self.inequality] = (
            at_lower,
            at_upper,
            at_inequality,
        )
        return Duals(np.array(equality), inequality, lower, upper)

    def slack(self, problem: Problem, y: Array, h: Array) -> Array:
        """Room left to each candidate, from decisions and all inequality values."""
        low = y[:, self.lower] - problem.lower[self.lower]
        high = problem.upper[self.upper] - y[:, self.upper]
        return np.concatenate(in_order(low, high, -h[:, self.inequality]), axis=1)


def find_candidates(
    problem: Problem, y: Array, h: Array, reach: float, touching: float, *, every_bound: bool = False
) -> Candidates:
    """Constraints that solved instances come near: within `reach` standard deviations of their own slack.

    Args:
        problem: whose constraints.
        y: solved decisions `(labels, n_outputs)`.
        h: inequality values there.
        reach, touching: see `Settings.candidate_reach` and `Settings.touching`.
        every_bound: whether bounds are candidates however far labels are from them.
    """

    moving = problem.lower < problem.upper
    low, high = moving & np.isfinite(problem.lower), moving & np.isfinite(problem.upper)
    lower, upper = np.flatnonzero(low), np.flatnonzero(high)
    return Candidates(
        lower[every_bound | _near(y[:, lower] - problem.lower[lower], reach, touching)],
        upper[every_bound | _near(problem.upper[upper] - y[:, upper], reach, touching)],
        find_near(h, reach, touching),
    )


def find_near(h: Array, reach: float, touching: float) -> Ints:
    """Inequalities, of values `(labels, inequalities)`, that solved instances come near; as `find_candidates` does."""
    return np.flatnonzero(_near(-h, reach, touching)) if h.shape[1] else np.zeros(0, dtype=np.int64)


def _near(slack: Array, reach: float, touching: float) -> NDArray[np.bool_]:
    with np.errstate(invalid="ignore"):
        return np.asarray(slack.min(axis=0) < reach * slack.std(axis=0) + touching)
