"""The hand-written objective against NumPyro's, and its parts against closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import TraceMeanField_ELBO
from scipy.stats import norm

from feasibly.model.networks import Architecture
from feasibly.train.optimise import clipped
from feasibly.train.variational import (
    NoisePrior,
    Posterior,
    Prior,
    divergence,
    draw,
    draw_log_noise,
    feasibility_surprise,
    label_surprise,
    noise_terms,
)

NET = Architecture(3, (4, 4), (2, 1))
BLOCK_OF = np.array([0, 0, 1])
NOISE = NoisePrior(0.3, 0.5)


def _posterior(seed: int = 0) -> Posterior:
    random = np.random.default_rng(seed)
    return Posterior(
        mean=jnp.asarray(0.3 * random.standard_normal(NET.size), jnp.float32),
        log_std=jnp.asarray(-2.0 + 0.3 * random.standard_normal(NET.size), jnp.float32),
        noise_mean=jnp.asarray([-1.0, -0.5], jnp.float32),
        noise_log_std=jnp.asarray([-1.5, -1.0], jnp.float32),
    )


def test_sup_objective_is_numpyros_mean_field_bound():
    random = np.random.default_rng(1)
    x = random.standard_normal((20, 3)).astype(np.float32)
    y = random.standard_normal((20, 3)).astype(np.float32)
    posterior, prior = _posterior(), Prior(0.0, np.log(0.4))

    def model() -> None:
        weights = numpyro.sample("weights", dist.Normal(jnp.zeros(NET.size), 0.4).to_event(1))
        cut = dist.TruncatedNormal(NOISE.mean * jnp.ones(2), NOISE.std, low=0.0)
        variance = numpyro.sample("variance", cut.to_event(1))
        numpyro.sample(
            "y", dist.Normal(NET.forward(weights, x), jnp.sqrt(variance[BLOCK_OF])).to_event(2), obs=y
        )

    def guide() -> None:
        numpyro.sample("weights", dist.Normal(posterior.mean, jnp.exp(posterior.log_std)).to_event(1))
        log_normal = dist.LogNormal(posterior.noise_mean, jnp.exp(posterior.noise_log_std))
        numpyro.sample("variance", log_normal.to_event(1))

    count = 2000
    elbo = TraceMeanField_ELBO(num_particles=count)
    theirs = float(jax.jit(lambda key: elbo.loss(key, {}, model, guide))(jax.random.key(0)))

    @jax.jit
    @jax.vmap
    def ours(key: jax.Array) -> jax.Array:
        of_weights, of_noise = jax.random.split(key)
        log_noise = draw_log_noise(posterior, of_noise)
        error = NET.forward(draw(posterior, of_weights), x) - y
        likelihood = label_surprise(error, log_noise, BLOCK_OF)
        return likelihood + noise_terms(posterior, NOISE, log_noise) + divergence(posterior, prior)

    values = np.asarray(ours(jax.random.split(jax.random.key(1), count)))
    cut_off = 2 * norm.logcdf(NOISE.mean / NOISE.std)  # the constant that the objective leaves out
    error = 5.0 * values.std() * np.sqrt(2.0 / count)
    assert error < 0.03 * abs(theirs)  # the comparison says something
    assert values.mean() + cut_off == pytest.approx(theirs, abs=error)


def test_divergence_of_two_normals():
    posterior = _posterior()
    prior = Prior(0.1, np.log(0.5))
    q = dist.Normal(posterior.mean, jnp.exp(posterior.log_std))
    expected = dist.kl_divergence(q, dist.Normal(0.1, 0.5))
    assert float(divergence(posterior, prior)) == pytest.approx(float(expected.sum()), rel=1e-5)
    weights = float(divergence(posterior, prior, NET.is_weight))
    assert weights == pytest.approx(float(expected[NET.is_weight].sum()), rel=1e-5)
    itself = Prior(posterior.mean, posterior.log_std)
    assert float(divergence(posterior, itself)) == pytest.approx(0.0, abs=1e-4)


def test_feasibility_surprise_is_a_normal_density():
    violation = np.array([0.0, 1e-3, 2e-2])
    expected = -norm.logpdf(0.0, violation, 1e-3).sum()
    assert float(feasibility_surprise(jnp.asarray(violation), 1e-6)) == pytest.approx(expected, rel=1e-5)


def test_clipping_shortens_and_keeps_direction():
    gradient = {"a": jnp.asarray([3.0, 0.0]), "b": jnp.asarray([4.0])}
    np.testing.assert_allclose(clipped(gradient, 1.0)["b"], [0.8], rtol=1e-6)
    np.testing.assert_allclose(clipped(gradient, 10.0)["b"], [4.0], rtol=1e-6)


def test_clipping_survives_lengths_that_overflow():
    clip = clipped({"a": jnp.asarray([3e30, -4e30])}, 10.0)["a"]
    np.testing.assert_allclose(clip, [6.0, -8.0], rtol=1e-5)
    assert np.all(np.asarray(clipped({"a": jnp.zeros(3)}, 10.0)["a"]) == 0.0)
