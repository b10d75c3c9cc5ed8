"""A network with one answer; its uncertainty is that of its errors on rows it was not trained on."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from feasibly.arrays import padded
from feasibly.model.belief import Belief, Covariance, Model
from feasibly.model.networks import Architecture
from feasibly.model.scale import Scale
from feasibly.model.scaling import OutputMap

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Network(Model):
    """One parameter vector, with the scales of inputs and outputs."""

    architecture: Architecture
    inputs: Scale
    outputs: OutputMap
    parameters: NDArray[np.float32]
    covariance: Covariance
    kind: ClassVar[str] = "network"

    def predict(self, x: Array) -> Belief:
        """The answer, with the same spread for every row."""
        scaled = self.inputs.apply(np.asarray(x, dtype=np.float64)).astype(np.float32)
        z = _forward(self.architecture)(jnp.asarray(self.parameters), padded(scaled))
        mean = self.outputs.answers(np.asarray(z)[: len(scaled)])
        return Belief(mean, np.broadcast_to(np.sqrt(self.covariance.variance), mean.shape).copy())

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Settings and arrays."""
        settings: dict[str, Any] = {"architecture": self.architecture.plain(), "repair": self.outputs.repair}
        arrays: dict[str, NDArray[Any]] = {
            "parameters": self.parameters,
            "input_mean": self.inputs.mean, "input_std": self.inputs.std,
            "factor": self.covariance.factor, "diagonal": self.covariance.diagonal,
            **self.outputs.arrays(),
        }  # fmt: skip
        return settings, arrays

    @classmethod
    def restore(cls, settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Network:
        """The model that `state` described."""
        return cls(
            architecture=Architecture.from_plain(settings["architecture"]),
            inputs=Scale(arrays["input_mean"], arrays["input_std"]),
            outputs=OutputMap.from_arrays(str(settings["repair"]), arrays),
            parameters=arrays["parameters"],
            covariance=Covariance(arrays["factor"], arrays["diagonal"]),
        )


@functools.lru_cache(maxsize=16)
def _forward(architecture: Architecture) -> Callable[..., jax.Array]:
    return jax.jit(architecture.forward)
