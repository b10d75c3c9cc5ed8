"""Multipliers of labels: their own or, of labels that came without, those that explain an optimum best."""

from __future__ import annotations

import numpy as np
import scipy.optimize
from numpy.typing import NDArray

from feasibly.answer.calibration import Labels
from feasibly.answer.candidates import Candidates, in_order
from feasibly.answer.derivatives import Derivatives
from feasibly.answer.operator import free_variables, split_spaces
from feasibly.answer.settings import Settings
from feasibly.problem.core import Problem

Array = NDArray[np.float64]


def label_multipliers(
    problem: Problem, labels: Labels, candidates: Candidates, central: int, settings: Settings
) -> tuple[Array, Array]:
    """Multipliers of equalities and candidates: the labels' own, or those of the central label for all."""
    if labels.duals is not None:
        return labels.duals.equality, np.maximum(candidates.compress(labels.duals), 0.0)
    equality, lam = _least_squares_multipliers(
        problem, labels.x[central], labels.y[central], candidates, settings
    )
    return np.tile(equality, (len(labels.x), 1)), np.tile(lam, (len(labels.x), 1))


def _least_squares_multipliers(
    problem: Problem, x: Array, y: Array, candidates: Candidates, settings: Settings
) -> tuple[Array, Array]:
    """Multipliers that explain an optimal `y`: least squares with signs, on the constraints that touch."""
    derivatives = Derivatives(problem, candidates)
    none, nothing = np.zeros(problem.n_equalities), np.zeros(len(candidates.inequality))
    jacobian, normals, _ = derivatives.at(x, y, none, nothing)
    slope = derivatives.slope(x, y, none, nothing)
    unit = np.eye(problem.n_outputs)
    all_normals = np.concatenate(in_order(-unit[candidates.lower], unit[candidates.upper], normals))
    slack = candidates.slack(problem, y[None], problem.inequalities(x[None], y[None]))[0]
    touching = np.flatnonzero(slack < settings.touching)
    free = free_variables(problem)
    null, right = split_spaces(jacobian[:, free], settings)
    lam = np.zeros(len(candidates))
    if len(touching):
        across = null.T @ all_normals[touching][:, free].T
        lam[touching] = scipy.optimize.nnls(across, -null.T @ slope[free])[0]
    return -right.T @ (slope + lam @ all_normals)[free], lam
