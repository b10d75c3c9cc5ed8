"""The default method: the optimum's first-order response, taught by its own conditioned answers.

A sandwich in closed form. Supervised: ridge on the labels, from which the constants of conditioning are found and the
response of the optimum around the middle of the data is read off. Unsupervised: unlabelled inputs are answered and
conditioned on the frozen frame; those that come to rest are optimal to many digits and serve as labels. (Polished
they would be nearer still, but where the cost is indifferent a polished answer may lie anywhere, and a conditioned one
where labels do.) Supervised: the response is corrected on labels and pseudo-labels together by an exact Bayesian linear
regression.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feasibly.answer.conditioner import Conditioner
from feasibly.answer.frame import law_of
from feasibly.answer.recipe import Labels
from feasibly.answer.tuning import fit_conditioner
from feasibly.model.belief import Model
from feasibly.model.linear import fit_ridge
from feasibly.model.response import Law, fit_response, on_device
from feasibly.problem.core import Problem
from feasibly.train.clock import Clock
from feasibly.train.driver import probe

Array = NDArray[np.float64]


def cost(outputs: int) -> float:
    """What it takes to compile and factor everything, in units of `probe`: the part that cannot be cut short.

    Measured with 512 labels: 67 units for 20 outputs, 120 for the 128 of case57, 176 for the 1342 of case500. The cube
    is that of the dense matrices, which tell from a thousand outputs on.
    """
    return 50.0 + 90.0 * outputs / (outputs + 60.0) + 0.035 * outputs + 4.0 * (outputs / 1000.0) ** 3


PATIENCE = 0.9


def train_response(
    problem: Problem, labels: Labels, unlabelled: Array, clock: Clock, seed: int
) -> tuple[Model, Conditioner | None, dict[str, Any]]:
    """The model, its conditioner, and what to tell about the run (`pseudo_labels`).

    Compiling cannot be interrupted: a budget that is too small for it gets the ridge model and a `note`.
    """
    with clock.account("sup"):
        first = fit_ridge(labels.x, labels.y)
    expected = cost(problem.n_outputs) * probe()
    if expected > PATIENCE * clock.left:
        note = (
            f"The budget of {clock.budget:g} s is too small to prepare response (about {expected:.0f} s here), so "
            "this is the ridge model."
        )
        return first, None, {"note": note}
    with clock.account("frames"):
        made = fit_conditioner(problem, labels, first.covariance, seed=seed, seconds=0.5 * clock.left)
        law = Law(on_device(law_of(problem, made.frame(0))), made.recipe.flips)
    with clock.account("sup"):
        model = fit_response(law, labels.x, labels.y)
    x, y, nu, lam = labels.x, labels.y, [], []
    with clock.account("unsup"):
        for rows in _batches(len(unlabelled)):
            if clock.left < 0.2 * clock.budget:
                break
            inputs = unlabelled[rows]
            until = time.monotonic() + clock.left - 0.1 * clock.budget
            found = made.answer(inputs, model.predict(inputs).mean, until=until)
            kept = found.converged
            x, y = np.concatenate([x, inputs[kept]]), np.concatenate([y, found.y[kept]])
            nu.append(found.nu[kept])
            lam.append(found.lam[kept])
    pseudo = len(x) - len(labels.x)
    with clock.account("sup"):
        if pseudo:
            model = fit_response(law, x, y)
            made = _with_duals(made, x[len(labels.x) :], np.concatenate(nu), np.concatenate(lam))
    made.recipe = replace(made.recipe, covariance=first.covariance)
    return model, made, {"pseudo_labels": pseudo}


def _with_duals(made: Conditioner, x: Array, nu: Array, lam: Array) -> Conditioner:
    """Multipliers are better predicted from these answers than from the labels alone, there being more of them."""
    if len(x) <= made.recipe.duals.rows:
        return made
    made.recipe = replace(made.recipe, duals=fit_ridge(x, np.concatenate([nu, lam], axis=1)))
    return made


def _batches(count: int, size: int = 256) -> list[slice]:
    return [slice(first, min(first + size, count)) for first in range(0, count, size)]
