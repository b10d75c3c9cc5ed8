"""Selection via Posterior (the paper's equation for W*): of all posterior draws, the one that obeys best.

Each instance gets the draw whose largest equality gap is smallest, or whose weighted sum of largest equality gap
and largest inequality violation is. Draws stream through; residuals are float64.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from feasibly.arrays import RunningMoments
from feasibly.model.belief import Model
from feasibly.model.posterior import DRAWS
from feasibly.problem.core import Problem
from feasibly.problem.errors import FeasiblyError

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Selected:
    """The chosen answers, and the moments of the draws that were looked at on the way."""

    y: Array
    """`(rows, n_outputs)`."""
    draw: NDArray[np.int64]
    """Which draw answered each row."""
    score: Array
    """What each row's draw was chosen for: the smallest there was."""
    moments: RunningMoments


def select(
    problem: Problem,
    model: Model,
    x: Array,
    *,
    draws: int = DRAWS,
    seed: int = 0,
    equality_weight: float = 1.0,
    inequality_weight: float = 0.0,
) -> Array:
    """The answers of `selection` alone: `(rows, n_outputs)`."""
    weights = {"equality_weight": equality_weight, "inequality_weight": inequality_weight}
    return selection(problem, model, x, draws=draws, seed=seed, **weights).y


def selection(
    problem: Problem,
    model: Model,
    x: Array,
    *,
    draws: int = DRAWS,
    seed: int = 0,
    equality_weight: float = 1.0,
    inequality_weight: float = 0.0,
) -> Selected:
    """Answer every row of `x` by the best of `draws` posterior draws.

    Args:
        problem: whose constraints decide.
        model: anything with `draws`.
        x: inputs, `(rows, n_inputs)`.
        draws, seed: how many functions are drawn, and which.
        equality_weight, inequality_weight: a draw's score is the weighted sum of its largest |equality| and its largest
            violation of any inequality or bound. As in the paper, inequalities do not count unless asked to; for a
            problem without equalities they count alone.

    Raises:
        NoPosteriorError: for a model without a posterior.
        FeasiblyError: for less than one draw.
    """
    if draws < 1:
        raise FeasiblyError(f"an answer has to be chosen from one draw at least, not {draws}")
    x, _ = problem.check_rows(x)
    if problem.n_equalities == 0:
        equality_weight, inequality_weight = 0.0, inequality_weight or 1.0
    moments = RunningMoments()
    best = np.full(len(x), np.inf)
    chosen = np.zeros(len(x), dtype=np.int64)
    y = np.zeros((len(x), problem.n_outputs))
    for index, answer in enumerate(model.draws(x, draws, seed)):
        moments.add(answer)
        score = np.zeros(len(x))
        if equality_weight > 0.0:
            score += equality_weight * _largest(np.abs(problem.equalities(x, answer)))
        if inequality_weight > 0.0:
            score += inequality_weight * largest_violation(problem, x, answer)
        score = np.where(np.isfinite(score), score, np.inf)
        # The first draw is taken whatever it is, so that every row has an answer.
        better = (score < best) | (index == 0)
        best[better] = score[better]
        chosen[better] = index
        y[better] = answer[better]
    return Selected(y, chosen, best, moments)


def largest_violation(problem: Problem, x: Array, y: Array) -> Array:
    """The largest violation of any inequality or bound, per row; 0 where all hold."""
    own = _largest(np.maximum(problem.violations(x, y), 0.0))
    return np.maximum(own, _largest(problem.bound_violations(y, x)))


def _largest(values: Array) -> Array:
    return np.asarray(np.max(values, axis=1)) if values.shape[1] else np.zeros(len(values))
