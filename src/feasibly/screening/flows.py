"""Voltages and loadings of a batch of answers under outages."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from feasibly.problem.core import Problem
from feasibly.problem.grid import Grid

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Stress:
    """How hard each element works, a row an answer: voltages per unit, loadings as a share of the rating (zero for a
    branch that is out or has none)."""

    vm: Array
    loading: Array


def stress_of(problem: Problem, grid: Grid, x: Array, y: Array) -> Stress:
    """Voltages and loadings of answers `y` to inputs `x`; NaN where there is no answer."""
    vm, va = y[:, problem.blocks["vm"]], y[:, problem.blocks["va"]]
    voltage = vm * np.exp(1j * va)
    y_ff, y_ft, y_tf, y_tt = grid.admittances()
    at_from, at_to = voltage[:, grid.branch_from], voltage[:, grid.branch_to]
    flow = np.maximum(
        np.abs(at_from * np.conj(y_ff * at_from + y_ft * at_to)),
        np.abs(at_to * np.conj(y_tf * at_from + y_tt * at_to)),
    )
    rate = np.tile(grid.rate, (len(x), 1))
    if "rating" in problem.inputs:
        rate[:, np.isfinite(grid.rate)] = x[:, problem.inputs["rating"]]
    loading = flow / rate
    if "branch" in problem.inputs:
        loading = np.where(x[:, problem.inputs["branch"]] > 0.5, loading, 0.0)
    return Stress(vm, loading)
