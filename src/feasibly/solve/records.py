"""What a solver is told and what it returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from feasibly.solve.outcome import Outcome

Array = NDArray[np.float64]


@dataclass(frozen=True)
class SolverOptions:
    """How rows are solved.

    Attributes:
        tolerance: the scaled error of the optimality conditions (IPOPT's `tol`) at which a row is solved.
        feasibility: a point is a label only if no equality, inequality or bound is off by more than this.
        max_iterations: of each attempt.
        max_seconds: of each attempt by IPOPT. Rows that run into it differ on a slower machine.
        warm: the first attempt: the interior-point method of `interior` or IPOPT, both from the nominal
            solution, or none, so that every row starts cold.
    """

    tolerance: float = 1e-8
    feasibility: float = 1e-6
    max_iterations: int = 500
    max_seconds: float = 3600.0
    warm: Literal["interior", "ipopt", "none"] = "interior"


@dataclass(frozen=True, eq=False)
class Start:
    """A primal-dual point to start from, all outputs and multipliers in the units and signs of `Solution`."""

    y: Array
    equality_dual: Array
    inequality_dual: Array
    lower_dual: Array
    upper_dual: Array

    def is_finite(self) -> bool:
        """Whether every number in it is one."""
        parts = (self.y, self.equality_dual, self.inequality_dual, self.lower_dual, self.upper_dual)
        return all(bool(np.isfinite(part).all()) for part in parts)


@dataclass(frozen=True, eq=False)
class Solution:
    """One solved row.

    The multipliers belong to the Lagrangian

        objective + equality_dual' equality + inequality_dual' inequality
                  + lower_dual' (lower - y) + upper_dual' (y - upper)

    whose gradient in `y` is zero at a solution; multipliers of inequalities and bounds are never negative. An
    output fixed by equal bounds has its multiplier in `lower_dual` or `upper_dual`, by sign. A row without a
    solution is NaN throughout.

    Attributes:
        iterations: of all attempts together.
        attempts: how many it took. The ladder is in `Solver.solve`.
        seconds: wall-clock time of all attempts.
    """

    y: Array
    objective: float
    equality_dual: Array
    inequality_dual: Array
    lower_dual: Array
    upper_dual: Array
    outcome: Outcome
    iterations: int
    attempts: int
    seconds: float

    def as_start(self) -> Start:
        """The same point as a start for another row."""
        return Start(self.y, self.equality_dual, self.inequality_dual, self.lower_dual, self.upper_dual)


@dataclass(frozen=True, eq=False)
class Attempt:
    """What one attempt came to: a point with its multipliers, and how it ended."""

    point: Start
    outcome: Outcome
    iterations: int
