"""Standardising columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from feasibly._codec import record

Array = NDArray[np.float64]

FLOOR = 1e-6
"""Standard deviations below this count as none: the column is constant."""


@record("scale", shapes={"mean": "columns", "std": "columns"})
@dataclass(frozen=True)
class Scale:
    """`(value - mean) / std` by column."""

    mean: Array
    std: Array

    @staticmethod
    def of(values: Array, floor: float = FLOOR) -> Scale:
        """From data; a constant column gets the scale 1, so that it stays what it is."""
        std = np.std(values, axis=0)
        return Scale(np.mean(values, axis=0), np.where(std < floor, 1.0, std))

    @np.errstate(over="ignore")  # numbers that large are named as out of range
    def apply(self, values: Array) -> Array:
        """To standard units."""
        return np.asarray((values - self.mean) / self.std)


def score(residuals: Array) -> float:
    """How large residuals are, smaller is better: the mean over outputs of their log mean square.

    The logarithm matters. An output that sits at its bound varies by solver noise alone; standardised, it cannot be
    predicted by anything, and in a plain mean square it would drown the outputs that can.
    """
    return float(np.mean(np.log(np.mean(residuals**2, axis=0) + 1e-24))) if residuals.size else 0.0
