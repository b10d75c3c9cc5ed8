"""Feed-forward networks as one flat vector of parameters.

One vector for all weights and biases makes a mean-field posterior two vectors, an optimiser's state a few more, and
a draw from the posterior one call to the random generator.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from feasibly._codec import record


@record("architecture")
@dataclass(frozen=True)
class Architecture:
    """One ReLU network per block of outputs, all with the same hidden widths, side by side.

    Parameters lie block by block and layer by layer: the weight matrix `(fan in, fan out)` row by row, then the
    bias where the layer has one.
    """

    n_inputs: int
    hidden: tuple[int, ...]
    outputs: tuple[int, ...]
    """How many outputs each block has, in order."""
    output_bias: bool = False
    """The paper's networks have none in the last layer."""

    @functools.cached_property
    def layers(self) -> tuple[tuple[tuple[int, int, bool], ...], ...]:
        """Fan in, fan out and whether there is a bias, of every layer of every block."""
        blocks = []
        for size in self.outputs:
            widths = (self.n_inputs, *self.hidden, size)
            last = len(widths) - 2
            pairs = itertools.pairwise(widths)
            blocks.append(tuple((a, b, i < last or self.output_bias) for i, (a, b) in enumerate(pairs)))
        return tuple(blocks)

    @functools.cached_property
    def n_outputs(self) -> int:
        """All blocks together."""
        return sum(self.outputs)

    @functools.cached_property
    def size(self) -> int:
        """Number of parameters."""
        return sum(a * b + b * has_bias for block in self.layers for a, b, has_bias in block)

    def _pieces(self) -> list[tuple[bool, int, int]]:
        """Whether each stretch of the vector is a weight matrix, its length, and its fan in."""
        pieces = []
        for block in self.layers:
            for a, b, has_bias in block:
                pieces.append((True, a * b, a))
                if has_bias:
                    pieces.append((False, b, a))
        return pieces

    @functools.cached_property
    def is_weight(self) -> NDArray[np.bool_]:
        """Which parameters are weights (the others are biases): `(size,)`."""
        return np.concatenate([np.full(length, weight) for weight, length, _ in self._pieces()])

    def initial(self, seed: int, gain: float = 1.0 / 3.0, bias_gain: float = 0.0) -> NDArray[np.float32]:
        """Normal weights of variance `gain / fan in`, and biases of `bias_gain / fan in`.

        Torch starts its linear layers with a third for both; 2 keeps the size of signals in a deep ReLU network.
        """
        random = np.random.Generator(np.random.Philox(key=seed))
        parts = []
        for weight, length, fan_in in self._pieces():
            std = math.sqrt((gain if weight else bias_gain) / fan_in)
            parts.append(std * random.standard_normal(length, dtype=np.float32))
        return np.concatenate(parts).astype(np.float32)

    def unpack(self, vector: Any) -> list[list[tuple[Any, Any]]]:
        """Weight and bias (`None` where there is none) of every layer of every block."""
        lengths = [length for _, length, _ in self._pieces()]
        # A split, not slices: its gradient is one concatenation instead of a padded copy for each slice.
        pieces = iter(jnp.split(vector, np.cumsum(lengths)[:-1].tolist()))
        blocks = []
        for block in self.layers:
            layers = []
            for a, b, has_bias in block:
                weight = next(pieces).reshape(a, b)
                layers.append((weight, next(pieces) if has_bias else None))
            blocks.append(layers)
        return blocks

    def forward(self, vector: Any, x: Any) -> jax.Array:
        """Outputs `(rows, n_outputs)` for scaled inputs `(rows, n_inputs)`."""
        return jnp.concatenate([_apply(layers, x) for layers in self.unpack(vector)], axis=1)

    def forward_local(self, mean: Any, std: Any, x: Any, key: jax.Array) -> jax.Array:
        """The same for weights drawn anew for every row, by sampling each layer's sums instead of its weights.

        The local reparameterisation of Kingma et al. 2015: gradients of the expected loss with less variance, at
        about twice the arithmetic.
        """
        outputs = []
        keys = iter(jax.random.split(key, sum(len(block) for block in self.layers)))
        for means, stds in zip(self.unpack(mean), self.unpack(std), strict=True):
            value = x
            for i, ((weight, bias), (weight_std, bias_std)) in enumerate(zip(means, stds, strict=True)):
                centre = value @ weight
                variance = (value * value) @ (weight_std * weight_std)
                if bias is not None:
                    centre, variance = centre + bias, variance + bias_std * bias_std
                noise = jax.random.normal(next(keys), centre.shape, centre.dtype)
                value = centre + jnp.sqrt(variance + 1e-20) * noise
                if i < len(means) - 1:
                    value = jax.nn.relu(value)
            outputs.append(value)
        return jnp.concatenate(outputs, axis=1)

    def check_parameters(self, vector: Any) -> None:
        """Raise `ValueError` unless `vector` has one number for each parameter."""
        if np.shape(vector) != (self.size,):
            raise ValueError(f"the network has {self.size} parameters, not {np.shape(vector)}")


def _apply(layers: Sequence[tuple[Any, Any]], x: Any) -> jax.Array:
    value = x
    for i, (weight, bias) in enumerate(layers):
        value = value @ weight
        if bias is not None:
            value = value + bias
        if i < len(layers) - 1:
            value = jax.nn.relu(value)
    return value
