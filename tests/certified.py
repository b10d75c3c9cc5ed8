"""What tests of certificates share: labels in closed form, and proxies that are made in no time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

import feasibly as fb
from feasibly.answer.ladder import Leverage
from feasibly.data.dataset import Dataset
from feasibly.model.linear import LinearModel, fit_ridge
from feasibly.proxy import Proxy, TrainingRecord
from tests.problems import CASES, make

Array = NDArray[np.float64]

MEAN: dict[str, Any] = {"answers": ("mean",), "unlabelled": 200, "draws": 50}


def solved(name: str, rows: int, seed: int) -> Dataset:
    """Labels in closed form."""
    problem, optimum = make(name), CASES[name].optimum
    assert optimum is not None
    x = fb.sample(problem, rows, seed=seed)
    return Dataset.from_arrays(problem, x, optimum(x))


def believer(data: Dataset, labels: int, change: Callable[[LinearModel], LinearModel] | None = None) -> Proxy:
    """A ridge proxy that answers by its mean alone: no conditioning, nothing to compile but the problem."""
    model = fit_ridge(data.x[:labels], data.y[:labels])
    box = data.problem.box()
    return Proxy(
        data.problem,
        model if change is None else change(model),
        TrainingRecord("ridge", labels, 0, 1.0, 0.0, 0),
        keys=data.keys[:labels],
        calibration=None,
        box=box,
        leverage=None if box is not None else Leverage.of(data.x[:labels]),
    )


def gaps(data: Dataset, objective: Array) -> Array:
    return 100.0 * np.abs(objective - data.objective) / np.abs(data.objective)
