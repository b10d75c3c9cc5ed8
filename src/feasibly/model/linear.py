"""Ridge regression: the method every other has to beat, with its exact Bayesian variance.

Everything comes from one singular value decomposition: the coefficients for every penalty, the leave-one-out
residuals that choose among them, and the leverage that widens the belief away from the data.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from feasibly._codec import record
from feasibly.model.belief import Belief, Covariance, Model
from feasibly.model.scale import Scale, score

Array = NDArray[np.float64]

PENALTIES = np.logspace(-8, 4, 37)
"""Candidates, relative to the number of rows."""
COARSE = 4
"""One in so many is tried before the best one's neighbours are."""


@record(
    "linear",
    shapes={
        "inputs.mean": "inputs", "offset": "outputs", "root": "inputs rank", "loads": "rank outputs",
        "covariance.diagonal": "outputs",
    },
)  # fmt: skip
@dataclass(frozen=True)
class LinearModel(Model):
    """`y = offset + scaled(x) @ weights`, with a Gaussian posterior over the weights.

    Few labels of a large problem determine few directions: the weights are kept as the product they are.
    """

    inputs: Scale
    offset: Array
    root: Array
    """`(n_inputs, rank)`: `root @ root.T` is the posterior covariance of one output's weights per unit noise."""
    loads: Array
    """`(rank, n_outputs)`: the weights are `root @ loads`."""
    rows: int
    covariance: Covariance
    penalty: float

    @np.errstate(over="ignore", invalid="ignore")  # numbers that large are named as out of range
    def predict(self, x: Array) -> Belief:
        """The mean, and a standard deviation that grows with the leverage of the row."""
        scaled = self.inputs.apply(x)
        reach = scaled @ self.root
        leverage = 1.0 / self.rows + np.sum(reach**2, axis=1)
        noise = np.sqrt(self.covariance.variance)
        return Belief(self.offset + reach @ self.loads, np.sqrt(1.0 + leverage)[:, None] * noise)

    @functools.cached_property
    def weights(self) -> Array:
        """`(n_inputs, n_outputs)`, multiplied out."""
        return np.asarray(self.root @ self.loads)

    def mean(self, x: Array) -> Array:
        """The mean alone."""
        return np.asarray(self.offset + (self.inputs.apply(x) @ self.root) @ self.loads)

    @property
    def slim(self) -> LinearModel:
        """The same without what only draws need."""
        return replace(self, covariance=self.covariance.apart)

    def draws(self, x: Array, count: int, seed: int) -> Iterator[Array]:
        """Functions drawn from the posterior over the weights."""
        reach = self.inputs.apply(x) @ self.root
        mean = self.offset + reach @ self.loads
        random = np.random.default_rng(seed)
        factor, diagonal = self.covariance.factor, np.sqrt(self.covariance.diagonal)
        for _ in range(count):
            common = random.standard_normal((reach.shape[1], factor.shape[1])) @ factor.T
            own = random.standard_normal((reach.shape[1], len(diagonal))) * diagonal
            yield mean + reach @ (common + own)


def fit_ridge(x: Array, y: Array) -> LinearModel:
    """Ridge regression with the penalty that has the best leave-one-out score."""
    inputs, outputs = Scale.of(x), Scale.of(y)
    left, values, right = np.linalg.svd(inputs.apply(x), full_matrices=False)
    kept = values > values[0] * 1e-10 if len(values) and values[0] > 0 else np.zeros(len(values), dtype=bool)
    left, values, right = left[:, kept], values[kept], right[kept]
    target = outputs.apply(y)
    rotated = left.T @ target
    squares = left**2

    def left_out(index: int) -> Array:
        keep = values**2 / (values**2 + PENALTIES[index] * len(x))
        # The mean of y is estimated too, which costs every row a leverage of 1/n.
        slack = 1.0 - 1.0 / len(x) - squares @ keep
        return np.asarray((target - left @ (keep[:, None] * rotated)) / np.maximum(slack, 1e-12)[:, None])

    # The score nearly always has one valley: every fourth penalty first, then those around the best.
    scores = {index: score(left_out(index)) for index in range(0, len(PENALTIES), COARSE)}
    near = min(scores, key=scores.__getitem__)
    around = range(max(near - COARSE + 1, 0), min(near + COARSE, len(PENALTIES)))
    scores |= {index: score(left_out(index)) for index in around if index != near}
    at = min(scores, key=scores.__getitem__)
    residuals = left_out(at)
    chosen = float(PENALTIES[at] * len(x))
    scale = np.sqrt(values**2 + chosen)
    root = np.ascontiguousarray(right.T / scale)  # as files have it, so that products agree to the last bit
    loads = (values / scale)[:, None] * rotated * outputs.std
    return LinearModel(
        inputs=inputs,
        offset=outputs.mean,
        root=root,
        loads=loads,
        rows=len(x),
        covariance=Covariance.pooled(residuals * outputs.std),
        penalty=chosen,
    )
