"""Between a network's normalised outputs and the units of the answer, with or without a bound-repair layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from feasibly._codec import record
from feasibly.model.scale import Scale

Array = NDArray[np.float64]

FLOOR = 1e-6
"""Standard deviations are raised to this, as in the paper: an output that never moves is then answered by its mean."""

REPAIRS = ("none", "sigmoid", "clip")


def floored(values: Array, floor: float = FLOOR) -> Scale:
    """The mean and the standard deviation of each column, the latter raised to `floor`.

    `Scale.of` gives constant columns the scale 1, which suits an exact fit; a network's output is noisy, and the
    noise of a constant output has to be scaled down to nothing.
    """
    return Scale(np.mean(values, axis=0), np.maximum(np.std(values, axis=0), floor))


@record("output-map", shapes={"scale.mean": "outputs", "lower": "outputs", "upper": "outputs"})
@dataclass(frozen=True)
class OutputMap:
    """What turns a network's outputs into answers.

    `none` scales them back. `clip` does so and cuts at the bounds. `sigmoid` squeezes doubly bounded outputs between
    their bounds (`softplus` where there is one bound; scaled back where there is none), as ML4OPF does.
    """

    scale: Scale
    lower: Array
    upper: Array
    repair: str = "none"

    def __post_init__(self) -> None:
        if self.repair not in REPAIRS:
            raise ValueError(f"repair must be one of {', '.join(REPAIRS)}, not {self.repair!r}")

    def answer(self, z: Any) -> Any:
        """Answers in their own units from outputs `(..., n_outputs)`, in JAX, in the precision of `z`."""
        mean, std = (jnp.asarray(part, dtype=z.dtype) for part in (self.scale.mean, self.scale.std))
        scaled = z * std + mean
        if self.repair == "none":
            return scaled
        if self.repair == "clip":
            return jnp.clip(scaled, self.lower.astype(z.dtype), self.upper.astype(z.dtype))
        low, high = np.isfinite(self.lower), np.isfinite(self.upper)
        lower = np.where(low, self.lower, 0.0).astype(z.dtype)
        upper = np.where(high, self.upper, 0.0).astype(z.dtype)
        between = lower + (upper - lower) * jax.nn.sigmoid(z)
        above, below = lower + jax.nn.softplus(z), upper - jax.nn.softplus(z)
        return jnp.where(low & high, between, jnp.where(low, above, jnp.where(high, below, scaled)))

    def answers(self, z: NDArray[Any]) -> Array:
        """The same in NumPy and float64: float32 would cost a digit of the equality gap."""
        z = np.asarray(z, dtype=np.float64)
        scaled = z * self.scale.std + self.scale.mean
        if self.repair == "none":
            return np.asarray(scaled)
        if self.repair == "clip":
            return np.clip(scaled, self.lower, self.upper)
        low, high = np.isfinite(self.lower), np.isfinite(self.upper)
        lower, upper = np.where(low, self.lower, 0.0), np.where(high, self.upper, 0.0)
        # Written with tanh and logaddexp, which do not overflow.
        between = lower + (upper - lower) * (0.5 + 0.5 * np.tanh(0.5 * z))
        soft = np.logaddexp(0.0, z)
        choices = [low & high, low & ~high, high & ~low]
        return np.select(choices, [between, lower + soft, upper - soft], scaled)

    def normalised(self, y: Any) -> Any:
        """Labels in the units in which `none` networks answer."""
        return (y - self.scale.mean) / self.scale.std
