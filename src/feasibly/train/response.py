"""The default method: the optimum's first-order response, taught by its own conditioned answers.

A sandwich in closed form. Supervised: ridge on the labels, from which the constants of conditioning are found and the
response of the optimum around the middle of the data is read off. Unsupervised: unlabelled inputs are answered by
`conditioned`, those that shared operators do not reach row by row: they lie at the edge, and eight of two thousand are
what the worst answers of case57 depend on. Answers are optimal to many digits and serve as labels. (Polished they would
be nearer still, but where the cost is indifferent a polished answer may lie anywhere, and a conditioned one where
labels do.) Supervised: the response is corrected on labels and pseudo-labels together by an exact Bayesian linear
regression.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feasibly.answer.driver import Driver
from feasibly.answer.handover import choose_handover
from feasibly.answer.response import first_order_response, through_switches
from feasibly.answer.schedule import CONDITIONED
from feasibly.answer.settings import Settings
from feasibly.answer.sparse import SparseOperator
from feasibly.answer.sparse_response import sparse_response
from feasibly.model.belief import Model
from feasibly.model.linear import LinearModel, fit_ridge
from feasibly.model.response import SolutionMap, fit_response
from feasibly.model.sparse import fit_sparse_response
from feasibly.train.training import Request

Array = NDArray[np.float64]


def cost(outputs: int) -> float:
    """What it takes to compile and factor everything, in units of `probe`: the part that cannot be cut short.

    Measured with 512 labels: 67 units for 20 outputs, 120 for the 128 of case57, 176 for the 1342 of case500. The cube
    is that of the dense matrices, which tell from a thousand outputs on, and end where operators are sparse.
    """
    dense = 4.0 * (outputs / 1000.0) ** 3 if outputs < Settings().sparse_from else 0.0
    return 50.0 + 90.0 * outputs / (outputs + 60.0) + 0.035 * outputs + dense


def train_response(
    request: Request, first: LinearModel, driver: Driver
) -> tuple[Model, Driver, dict[str, Any]]:
    """The model, its driver, and what to tell about the run (`pseudo_labels`, and a `note` if it was interrupted).

    Args:
        request: labels with their costs, inputs without labels, and the clock.
        first: ridge on the labels.
        driver: the constants of conditioning, found with it.
    """
    problem, labels, unlabelled, clock = (
        request.task.problem, request.task.solved, request.task.unlabelled, request.clock
    )  # fmt: skip
    assert labels is not None
    request.tell("response")
    if driver.calibration.sparse:
        return _train_sparse(request, driver)
    with clock.account("frames"):
        response = first_order_response(driver.search, driver.operator(0))
        response = through_switches(response, driver, time.monotonic() + 0.2 * clock.left)
        solution_map = SolutionMap.of(
            response, driver.calibration.max_changes, driver.settings.complementarity
        ).suited(labels.x)
    with clock.account("sup"):
        model = fit_response(solution_map, labels.x, labels.y)
    request.offer(lambda: model, request.name)
    x, y, duals = labels.x, labels.y, []
    try:
        with clock.account("unsup"):
            for rows in _batches(len(unlabelled)):
                if clock.left < 0.2 * clock.budget:
                    break
                request.tell("pseudo-labels", done=len(x) - len(labels.x))
                inputs = unlabelled[rows]
                until = time.monotonic() + clock.left - 0.1 * clock.budget
                found = driver.run(inputs, model.predict(inputs).mean, CONDITIONED, until=until)
                kept = found.converged
                x, y = np.concatenate([x, inputs[kept]]), np.concatenate([y, found.y[kept]])
                duals.append(np.concatenate([found.iterate.equality, found.iterate.lam], axis=1)[kept])
    except KeyboardInterrupt:
        note = "Training was interrupted; this is the best model until then."
        return model, driver, {"pseudo_labels": 0, "note": note}
    pseudo = len(x) - len(labels.x)
    # The final model is stiffer than the one the operators were made with and reaches fewer rows: they keep theirs.
    calibration = driver.calibration
    with clock.account("sup"):
        if pseudo:
            model = fit_response(solution_map, x, y)
        if pseudo > calibration.duals.rows:
            # Multipliers are better predicted from these answers than from the labels, there being more of them.
            calibration = replace(
                calibration, duals=fit_ridge(x[len(labels.x) :], np.concatenate(duals)).slim
            )
    driver = Driver(problem, calibration, first.covariance, reuse=driver)
    return model, _timed(request, model, driver), {"pseudo_labels": pseudo}


def _timed(request: Request, model: Model, driver: Driver) -> Driver:
    """What pays, told by rows that nobody has seen, or by labels where there are none."""
    labels, unlabelled, clock = request.task.solved, request.task.unlabelled, request.clock
    assert labels is not None
    with clock.account("frames"):
        rows = (unlabelled if len(unlabelled) else labels.x)[-driver.settings.timed_rows :]
        until = time.monotonic() + clock.left - 0.05 * clock.budget
        seconds = labels.seconds if clock.left > 0.1 * clock.budget else None
        model.predict(rows)  # compiles
        began = time.process_time()
        mean = model.predict(rows).mean
        believing = (time.process_time() - began) / max(len(rows), 1)
        return choose_handover(driver, rows, mean, seconds, until, believing)


def _train_sparse(request: Request, driver: Driver) -> tuple[Model, Driver, dict[str, Any]]:
    """Where operators are sparse: the response with the usual constraints, corrected on the labels alone."""
    labels, clock = request.task.solved, request.clock
    assert labels is not None
    with clock.account("frames"):
        operator = driver.operator(0)
        assert isinstance(operator, SparseOperator)
        solution_map = sparse_response(driver.rowwise, operator)
    with clock.account("sup"):
        model = fit_sparse_response(solution_map, labels.x, labels.y)
    return model, _timed(request, model, driver), {"pseudo_labels": 0}


def _batches(count: int, size: int = 256) -> list[slice]:
    return [slice(first, min(first + size, count)) for first in range(0, count, size)]
