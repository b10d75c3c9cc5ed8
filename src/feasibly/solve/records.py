"""What a solver is told and what it returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from feasibly._codec import record
from feasibly.problem.point import Duals, Point
from feasibly.solve.outcome import Outcome

Array = NDArray[np.float64]


@record("solver-options")
@dataclass(frozen=True)
class SolverOptions:
    """How rows are solved.

    Attributes:
        tolerance: the scaled error of the optimality conditions (IPOPT's `tol`) at which a row is solved.
        feasibility: a point is a label only if no equality, inequality or bound is off by more than this.
        max_iterations: of each attempt by IPOPT.
        max_seconds: of each attempt by IPOPT. Rows that run into it differ on a slower machine.
        warm: the first attempt: the interior-point method of `interior` or IPOPT, both from the nominal
            solution, or none, so that every row starts cold.
    """

    tolerance: float = 1e-8
    feasibility: float = 1e-6
    max_iterations: int = 500
    max_seconds: float = 3600.0
    warm: Literal["interior", "ipopt", "none"] = "interior"


@record("solution")
@dataclass(frozen=True, eq=False)
class Solution:
    """What became of one row: its point, and how it was found.

    Attributes:
        point: decisions and multipliers, in the signs of `Duals`; NaN throughout for a row without a solution.
        objective: the cost there.
        outcome: how it ended.
        iterations: of all attempts together.
        attempts: how many it took, in the order of `fallbacks`.
        seconds: wall-clock time of all attempts.
    """

    point: Point
    objective: float
    outcome: Outcome
    iterations: int
    attempts: int
    seconds: float

    @property
    def y(self) -> Array:
        """Decisions, `(n_outputs,)`."""
        return self.point.y

    @property
    def duals(self) -> Duals:
        """Multipliers of this row."""
        return self.point.duals


@dataclass(frozen=True, eq=False)
class AttemptResult:
    """What one attempt at a row came to, by whatever method."""

    point: Point | None
    """With its multipliers; `None` where an attempt only tells that there is no solution."""
    outcome: Outcome
    iterations: int
