"""What a solver is told and what it returns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from feasibly.solve.outcome import Outcome

Array = NDArray[np.float64]


@dataclass(frozen=True)
class SolverOptions:
    """How rows are solved.

    Attributes:
        tolerance: IPOPT's scaled optimality tolerance.
        feasibility: a point is a label only if no equality, inequality or bound is off by more than this.
        max_iterations: per attempt; a row gets up to three.
        max_seconds: per attempt. Rows that run into it are not the same on a slower machine.
        warm: start rows from the nominal solution (moved towards the row's own); otherwise every row starts cold.
    """

    tolerance: float = 1e-8
    feasibility: float = 1e-6
    max_iterations: int = 500
    max_seconds: float = 3600.0
    warm: bool = True


@dataclass(frozen=True, eq=False)
class Start:
    """A primal-dual point to start from; duals as in `Solution`."""

    y: Array
    equality_dual: Array
    inequality_dual: Array
    lower_dual: Array
    upper_dual: Array


@dataclass(frozen=True, eq=False)
class Solution:
    """One solved row.

    The multipliers belong to the Lagrangian

        objective + equality_dual' equality + inequality_dual' inequality
                  + lower_dual' (lower - y) + upper_dual' (y - upper)

    whose gradient in `y` is zero at a solution; inequality and bound multipliers are never negative. A fixed output
    (equal bounds) has its multiplier in `lower_dual` or `upper_dual`, by sign. A row without a solution is NaN.

    Attributes:
        iterations: of all attempts together.
        attempts: how many it took: 1 at the first, 2 after a cold restart, 3 after one with other settings.
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
