"""One number for how good answers to the validation labels are, by which states and trials are chosen."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from feasibly.measure.metrics import measure_rows
from feasibly.problem.core import Problem

Array = NDArray[np.float64]

FLOORS = {"gap_percent": 1e-3, "max_eq": 1e-4, "max_ineq": 1e-4}
"""Nothing is gained by being better than this in one column at the cost of another."""


class Judge:
    """Measures answers to the validation labels, in float64."""

    def __init__(self, problem: Problem, x: Array, y: Array) -> None:
        self.problem = problem
        self.x = x
        self.y = y
        self.reference = problem.objectives(x, y)

    def metrics(self, answers: Array) -> dict[str, float]:
        """The columns of the paper's table that a choice rests on."""
        if not np.isfinite(answers).all():
            return dict.fromkeys(FLOORS, float("inf"))
        rows = measure_rows(self.problem, self.x, answers, self.reference)
        return {name: float(np.mean(getattr(rows, name))) for name in FLOORS}

    @staticmethod
    def merit(metrics: Mapping[str, float]) -> float:
        """The logarithm of the geometric mean of gap, largest equality and largest inequality; smaller is better.

        The columns have no common unit, and a geometric mean needs none: a tenth less in one is worth a tenth in
        another.
        """
        logs = [np.log(max(metrics[name], floor)) for name, floor in FLOORS.items()]
        return float(np.mean(logs)) if np.isfinite(logs).all() else float("inf")
