"""Averages over posterior draws, one draw in memory at a time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from feasibly.model.belief import Model

Array = NDArray[np.float64]

DRAWS = 500
"""As many as the paper takes."""


@dataclass(frozen=True)
class Moments:
    """Mean and variance over draws, each `(rows, n_outputs)`."""

    mean: Array
    variance: Array
    count: int


class Accumulator:
    """Welford's running mean and variance: exact to rounding, and nothing but two matrices is kept."""

    def __init__(self) -> None:
        self.count = 0
        self._mean: Array | None = None
        self._squares: Array | None = None

    def add(self, answer: Array) -> None:
        """Take in one draw of the whole answer matrix."""
        self.count += 1
        if self._mean is None or self._squares is None:
            self._mean = np.array(answer, dtype=np.float64)
            self._squares = np.zeros_like(self._mean)
            return
        change = answer - self._mean
        self._mean += change / self.count
        change *= answer - self._mean
        self._squares += change

    def moments(self) -> Moments:
        """What was taken in so far; the variance is divided by the number of draws, as the paper's MPV is."""
        if self._mean is None or self._squares is None:
            raise ValueError("no draws were taken in")
        return Moments(self._mean, self._squares / self.count, self.count)


def moments(model: Model, x: Array, count: int = DRAWS, seed: int = 0) -> Moments:
    """Mean and variance of `count` posterior draws for every row of `x`.

    The variance is the posterior's own (what the paper's MPV averages), without the noise of the labels.

    Raises:
        NoPosteriorError: for a model without a posterior.
    """
    accumulator = Accumulator()
    for answer in model.draws(np.asarray(x, dtype=np.float64), count, seed):
        accumulator.add(answer)
    return accumulator.moments()
