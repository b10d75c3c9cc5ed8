"""What every model gives: a mean and a spread for each row, and one covariance for all of them."""

from __future__ import annotations

import abc
import functools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from feasibly._codec import name_of, record

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Belief:
    """A Gaussian belief about the answer to each row: `mean` and `std`, both `(rows, n_outputs)`."""

    mean: Array
    std: Array


@record("covariance", shapes={"factor": "outputs rank", "diagonal": "outputs"})
@dataclass(frozen=True)
class Covariance:
    """`factor @ factor.T + diag(diagonal)`: how errors of different outputs move together.

    `factor` is `(n_outputs, rank)`, `diagonal` is `(n_outputs,)` and not negative.
    """

    factor: Array
    diagonal: Array

    @functools.cached_property
    def variance(self) -> Array:
        """The diagonal of the whole matrix."""
        return np.asarray(np.sum(self.factor**2, axis=1) + self.diagonal)

    @staticmethod
    def pooled(residuals: Array, shrink: float = 0.1) -> Covariance:
        """From `(rows, n_outputs)` residuals of unseen rows, shrunk by a share `shrink` towards its diagonal."""
        rows, outputs = max(len(residuals), 1), residuals.shape[1]
        factor = residuals.T * np.sqrt((1.0 - shrink) / rows)
        if rows > outputs:  # a square one says the same
            factor = np.ascontiguousarray(np.asarray(np.linalg.qr(factor.T, mode="r")).T)
        return Covariance(factor, shrink * np.mean(residuals**2, axis=0))

    @property
    def apart(self) -> Covariance:
        """The variances alone, for whoever never asks how errors move together."""
        return Covariance(np.zeros((len(self.diagonal), 0)), self.variance)


class Model(abc.ABC):
    """A trained model. Subclasses are final and records: made of arrays and plain settings alone."""

    covariance: Covariance
    """Pooled over rows, in the units of the outputs."""

    @property
    def kind(self) -> str:
        """Names the class on disk."""
        return name_of(type(self))

    @abc.abstractmethod
    def predict(self, x: Array) -> Belief:
        """The belief about each row of `x`, float64."""

    def draws(self, x: Array, count: int, seed: int) -> Iterator[Array]:
        """`count` samples of the whole answer matrix `(rows, n_outputs)`, one a draw from the posterior.

        A draw is one plausible function: the same function for all rows. Models without a posterior have none.
        """
        raise NoPosteriorError(f"a {self.kind} model has one answer and no posterior to draw from")


class NoPosteriorError(ValueError):
    """A deterministic model was asked for posterior draws."""
