"""A network whose parameters are a product of normals, and the answers drawn from it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from feasibly._codec import record
from feasibly.arrays import RunningMoments, padded
from feasibly.model.belief import Belief, Covariance, Model
from feasibly.model.networks import Architecture
from feasibly.model.scale import Scale
from feasibly.model.scaling import OutputMap
from feasibly.precision import turn

Array = NDArray[np.float64]

DRAWS = 500
"""Draws behind a mean and a variance, as in the paper."""


@record(
    "bayesian-network",
    shapes={
        "mean": "size", "log_std": "size", "noise": "outputs", "inputs.mean": "inputs", "outputs.lower": "outputs",
        "covariance.diagonal": "outputs",
    },
)  # fmt: skip
@dataclass(frozen=True, eq=False)
class BayesianNetwork(Model):
    """Normal factors of the parameters, with the scales of inputs and outputs."""

    architecture: Architecture
    inputs: Scale
    outputs: OutputMap
    mean: NDArray[np.float32]
    log_std: NDArray[np.float32]
    noise: Array
    """The variance of the labels' noise, one an output, in normalised units."""
    covariance: Covariance
    count: int = DRAWS
    seed: int = 0

    def __post_init__(self) -> None:
        self.architecture.check_parameters(self.mean)

    def predict(self, x: Array) -> Belief:
        """Mean over draws, and the spread of draws and noise together."""
        mean, variance = self.moments(x, self.count, self.seed)
        noise = self.noise * self.outputs.scale.std**2
        return Belief(mean, np.sqrt(variance + noise))

    def moments(self, x: Array, count: int, seed: int) -> tuple[Array, Array]:
        """Mean and variance over draws, each `(rows, n_outputs)`; the draws themselves are never kept."""
        found = RunningMoments()
        for answer in self.draws(x, count, seed):
            found.add(answer)
        return found.mean, found.variance

    def draws(self, x: Array, count: int, seed: int) -> Iterator[Array]:
        """One column of the paper's posterior prediction matrix after another, for all rows at once."""
        forward = _forward(self.architecture)
        scaled = self.inputs.apply(np.asarray(x, dtype=np.float64)).astype(np.float32)
        rows = padded(scaled)
        mean, log_std, key = jnp.asarray(self.mean), jnp.asarray(self.log_std), jax.random.key(seed)
        for i in range(count):
            with turn():
                drawn = np.asarray(forward(mean, log_std, key, i, rows))
            yield self.outputs.answers(drawn[: len(scaled)])


def predictive_covariance(residuals: Array, deviations: Array, shrink: float = 0.1) -> Covariance:
    """How the errors of the mean move together, from unseen rows and from draws.

    Args:
        residuals: `(rows, n_outputs)`, label minus mean on validation rows. They are honest but few: fewer rows than
            outputs say nothing about most directions.
        deviations: `(samples, n_outputs)`, draw minus mean. They span more directions, but a posterior's own opinion
            of its size cannot be trusted, so they are scaled to the residuals.
        shrink: the share of the variance that is taken as independent.
    """
    own, drawn = np.mean(residuals**2, axis=0), np.mean(deviations**2, axis=0)
    moving = (own > 0.0) & (drawn > 0.0)
    scale = float(np.median(own[moving] / drawn[moving])) if moving.any() else 0.0
    weight = 0.5 * (1.0 - shrink)
    factor = np.concatenate(
        [
            residuals.T * np.sqrt(weight / max(len(residuals), 1)),
            deviations.T * np.sqrt(weight * scale / max(len(deviations), 1)),
        ],
        axis=1,
    )
    return Covariance(factor, shrink * 0.5 * (own + scale * drawn))


@functools.lru_cache(maxsize=16)
def _forward(architecture: Architecture) -> Callable[..., jax.Array]:
    def forward(mean: Any, log_std: Any, key: jax.Array, index: Any, x: Any) -> jax.Array:
        noise = jax.random.normal(jax.random.fold_in(key, index), mean.shape, mean.dtype)
        return architecture.forward(mean + jnp.exp(log_std) * noise, x)

    return jax.jit(forward)
