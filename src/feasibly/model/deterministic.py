"""A network with one answer; its uncertainty is that of its errors on rows it was not trained on."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from feasibly._codec import record
from feasibly.arrays import padded
from feasibly.model.belief import Belief, Covariance, Model
from feasibly.model.networks import Architecture
from feasibly.model.scale import Scale
from feasibly.model.scaling import OutputMap
from feasibly.precision import turn

Array = NDArray[np.float64]


@record(
    "network",
    shapes={
        "parameters": "size", "inputs.mean": "inputs", "outputs.lower": "outputs", "covariance.diagonal": "outputs",
    },
)  # fmt: skip
@dataclass(frozen=True, eq=False)
class Network(Model):
    """One parameter vector, with the scales of inputs and outputs."""

    architecture: Architecture
    inputs: Scale
    outputs: OutputMap
    parameters: NDArray[np.float32]
    covariance: Covariance

    def __post_init__(self) -> None:
        self.architecture.check_parameters(self.parameters)

    def predict(self, x: Array) -> Belief:
        """The answer, with the same spread for every row."""
        scaled = self.inputs.apply(np.asarray(x, dtype=np.float64)).astype(np.float32)
        with turn():
            z = np.asarray(_forward(self.architecture)(jnp.asarray(self.parameters), padded(scaled)))
        mean = self.outputs.answers(z[: len(scaled)])
        return Belief(mean, np.broadcast_to(np.sqrt(self.covariance.variance), mean.shape).copy())


@functools.lru_cache(maxsize=16)
def _forward(architecture: Architecture) -> Callable[..., jax.Array]:
    return jax.jit(architecture.forward)
