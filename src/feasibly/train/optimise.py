"""Adam with clipped gradients, in a form that survives the enormous gradients of a tiny noise variance."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax  # type: ignore[import-untyped]

adam = optax.scale_by_adam


def clipped(gradient: Any, most: float) -> Any:
    """The gradient, shortened to length `most` if it is longer.

    Squares of entries of 1e20, as a feasibility variance of 1e-10 gives them for a network that knows nothing yet, do
    not fit into float32, and an infinite length would shorten every step to nothing. So lengths are taken relative
    to the largest entry.
    """
    leaves = jax.tree.leaves(gradient)
    largest = jnp.maximum(jnp.max(jnp.stack([jnp.max(jnp.abs(leaf)) for leaf in leaves])), 1e-30)
    relative = jnp.sqrt(sum(jnp.sum((leaf / largest) ** 2) for leaf in leaves))
    # Divided twice rather than by the product, which may overflow.
    factor = jnp.minimum(1.0, most / largest / relative)
    return jax.tree.map(lambda leaf: leaf * factor, gradient)


def decayed(rate: Any, decay: Any, step: Any) -> Any:
    """The paper's schedule within a stage."""
    return rate / (1.0 + decay * step)
