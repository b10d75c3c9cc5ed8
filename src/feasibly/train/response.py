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

from feasibly.answer.calibrate import calibrate
from feasibly.answer.calibration import Labels
from feasibly.answer.driver import Driver
from feasibly.answer.response import first_order_response
from feasibly.answer.schedule import SHARED_ONLY
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
) -> tuple[Model, Driver | None, dict[str, Any]]:
    """The model, its driver, and what to tell about the run (`pseudo_labels`).

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
        driver = calibrate(problem, labels, first.covariance, seed=seed, seconds=0.5 * clock.left)
        response = first_order_response(driver.search, driver.operator(0))
        law = Law(on_device(response), driver.calibration.flips).suited(labels.x)
    with clock.account("sup"):
        model = fit_response(law, labels.x, labels.y)
    x, y, duals = labels.x, labels.y, []
    with clock.account("unsup"):
        for rows in _batches(len(unlabelled)):
            if clock.left < 0.2 * clock.budget:
                break
            inputs = unlabelled[rows]
            until = time.monotonic() + clock.left - 0.1 * clock.budget
            found = driver.run(inputs, model.predict(inputs).mean, SHARED_ONLY, until=until)
            kept = found.converged
            x, y = np.concatenate([x, inputs[kept]]), np.concatenate([y, found.y[kept]])
            duals.append(np.concatenate([found.state.equality, found.state.lam], axis=1)[kept])
    pseudo = len(x) - len(labels.x)
    # The final model is stiffer than the one the operators were made with and reaches fewer rows: they keep theirs.
    calibration = replace(driver.calibration, covariance=first.covariance)
    with clock.account("sup"):
        if pseudo:
            model = fit_response(law, x, y)
        if pseudo > calibration.duals.rows:
            # Multipliers are better predicted from these answers than from the labels, there being more of them.
            calibration = replace(calibration, duals=fit_ridge(x[len(labels.x) :], np.concatenate(duals)))
    return model, Driver(problem, calibration, first.covariance, reuse=driver), {"pseudo_labels": pseudo}


def _batches(count: int, size: int = 256) -> list[slice]:
    return [slice(first, min(first + size, count)) for first in range(0, count, size)]
