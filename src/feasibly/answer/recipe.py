"""What conditioning is made from: labels, and the constants that were found on them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from feasibly._codec import record
from feasibly.answer.rows import Rows
from feasibly.model.belief import Covariance
from feasibly.model.linear import LinearModel

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Labels:
    """Solved instances; multipliers are `None` where the labels came without any."""

    x: Array
    y: Array
    objective: Array
    equality: Array | None = None
    inequality: Array | None = None
    lower: Array | None = None
    upper: Array | None = None


@record(
    "recipe",
    shapes={
        "base": "candidates", "span": "outputs", "threshold": "candidates", "duals.inputs.mean": "inputs",
        "centres.*.0": "inputs", "centres.*.1": "outputs", "centres.*.2": "equalities", "centres.*.3": "candidates",
    },
    indices={"rows.lower": "outputs", "rows.upper": "outputs", "rows.inequality": "inequalities"},
)  # fmt: skip
@dataclass(frozen=True)
class Recipe:
    """Everything a conditioner is rebuilt from: small, plain, and saved with a model."""

    rows: Rows
    base: NDArray[np.bool_]
    weight: float
    tau: float
    span: Array
    flips: int
    threshold: Array
    centres: tuple[tuple[Array, Array, Array, Array], ...]
    """`x, y, nu, lam` of each frame."""
    duals: LinearModel
    covariance: Covariance | None = None
    """The belief's, where it is not the model's own: frames must be the same after a model was saved and loaded."""
