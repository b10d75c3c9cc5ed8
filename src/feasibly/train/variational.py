"""Mean-field variational inference for a network's weights: the objective of Sup and of UnSup.

The posterior over parameters is a product of normals; so is the prior, which makes their divergence exact. The
noise of the labels is one log-normal variance per output block. `tests/train` checks the objective against NumPyro's
`TraceMeanField_ELBO`.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

LOG_2PI = math.log(2.0 * math.pi)


class Posterior(NamedTuple):
    """Normal factors of the parameters, and of the logarithm of each block's noise variance."""

    mean: Any
    log_std: Any
    noise_mean: Any
    noise_log_std: Any


class Prior(NamedTuple):
    """Mean and logarithm of the standard deviation of each parameter; numbers or arrays."""

    mean: Any
    log_std: Any


class NoisePrior(NamedTuple):
    """A normal prior of each block's noise variance, cut off at zero."""

    mean: Any
    std: Any


def divergence(posterior: Posterior, prior: Prior, learnt: NDArray[np.bool_] | None = None) -> jax.Array:
    """KL(posterior || prior) over the parameters, or over those `learnt` alone."""
    ratio = posterior.log_std - prior.log_std
    shift = (posterior.mean - prior.mean) * jnp.exp(-prior.log_std)
    each = 0.5 * (jnp.exp(2.0 * ratio) + shift * shift - 1.0) - ratio
    return jnp.sum(each if learnt is None else jnp.where(learnt, each, 0.0))


def draw(posterior: Posterior, key: jax.Array) -> jax.Array:
    """One parameter vector."""
    noise = jax.random.normal(key, posterior.mean.shape, posterior.mean.dtype)
    return posterior.mean + jnp.exp(posterior.log_std) * noise


def draw_log_noise(posterior: Posterior, key: jax.Array) -> jax.Array:
    """One logarithm of the noise variance of each block."""
    noise = jax.random.normal(key, posterior.noise_mean.shape, posterior.noise_mean.dtype)
    return posterior.noise_mean + jnp.exp(posterior.noise_log_std) * noise


def noise_terms(posterior: Posterior, prior: NoisePrior, log_noise: Any) -> jax.Array:
    """`log q(v) - log p(v)` of the noise variances drawn, with the entropy of q in closed form.

    The normalising constant of the cut-off prior is left out: it depends on nothing that is learnt.
    """
    variance = jnp.exp(log_noise)
    shift = (variance - prior.mean) / prior.std
    log_prior = -0.5 * shift * shift - jnp.log(prior.std) - 0.5 * LOG_2PI
    entropy = 0.5 * (1.0 + LOG_2PI) + posterior.noise_log_std + posterior.noise_mean
    return -jnp.sum(log_prior + entropy)


def label_surprise(error: Any, log_noise: Any, block_of: NDArray[np.int64]) -> jax.Array:
    """`-log N(label | answer, variance of its block)`, summed over rows and outputs.

    `error` is `(rows, outputs)` in normalised units; `block_of` says to which block each output belongs.
    """
    log_variance = log_noise[block_of]
    squares = jnp.sum(error * error, axis=0)
    return 0.5 * jnp.sum(squares * jnp.exp(-log_variance) + len(error) * (log_variance + LOG_2PI))


def feasibility_surprise(violation: Any, variance: Any) -> jax.Array:
    """`-log N(0 | F, variance)`, summed over rows."""
    return 0.5 * jnp.sum(violation * violation) / variance + 0.5 * len(violation) * (
        jnp.log(variance) + LOG_2PI
    )
