"""Networks as flat vectors, and the models made of them."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from feasibly._codec import pack, unpack
from feasibly.model.belief import Covariance, NoPosteriorError
from feasibly.model.deterministic import Network
from feasibly.model.networks import Architecture
from feasibly.model.posterior import BayesianNetwork, predictive_covariance
from feasibly.model.scale import Scale
from feasibly.model.scaling import OutputMap, floored

NET = Architecture(3, (5, 4), (2, 1))
LOWER, UPPER = np.array([0.0, -np.inf, -np.inf]), np.array([1.0, 2.0, np.inf])


def _by_hand(vector: np.ndarray, x: np.ndarray) -> np.ndarray:
    outputs, place = [], 0
    for size in NET.outputs:
        value = x
        widths = [3, 5, 4, size]
        for layer, (a, b) in enumerate(itertools.pairwise(widths)):
            value = value @ vector[place : place + a * b].reshape(a, b)
            place += a * b
            if layer < 2:
                value = np.maximum(value + vector[place : place + b], 0.0)
                place += b
        outputs.append(value)
    assert place == len(vector)
    return np.concatenate(outputs, axis=1)


def _bayesian(repair: str = "none") -> BayesianNetwork:
    random = np.random.default_rng(0)
    return BayesianNetwork(
        architecture=NET,
        inputs=Scale(np.array([1.0, 2.0, 3.0]), np.array([1.0, 0.5, 2.0])),
        outputs=OutputMap(Scale(np.array([0.5, 1.0, 0.0]), np.array([0.2, 1.0, 1e-6])), LOWER, UPPER, repair),
        mean=random.standard_normal(NET.size).astype(np.float32),
        log_std=np.full(NET.size, -2.0, dtype=np.float32),
        noise=np.array([0.1, 0.1, 0.2]),
        covariance=Covariance.pooled(random.standard_normal((4, 3))),
        count=50,
        seed=3,
    )


def test_forward_is_plain_arithmetic():
    random = np.random.default_rng(0)
    vector, x = random.standard_normal(NET.size), random.standard_normal((7, 3))
    np.testing.assert_allclose(NET.forward(vector, x), _by_hand(vector, x), rtol=1e-5, atol=1e-5)
    assert NET.is_weight.sum() == sum(a * b for block in NET.layers for a, b, _ in block)
    assert unpack(*pack(NET), Architecture) == NET


def test_initial_weights_have_the_wanted_size():
    net = Architecture(200, (300,), (100,), output_bias=True)
    start = net.initial(0, gain=2.0, bias_gain=1.0)
    (first, bias), (second, _) = net.unpack(start)[0]
    assert float(jnp.var(first)) == pytest.approx(2.0 / 200, rel=0.05)
    assert float(jnp.var(second)) == pytest.approx(2.0 / 300, rel=0.05)
    assert float(jnp.var(bias)) == pytest.approx(1.0 / 200, rel=0.3)
    np.testing.assert_array_equal(start, net.initial(0, gain=2.0, bias_gain=1.0))


def test_local_reparameterisation_has_the_mean_and_spread_of_drawn_weights():
    net = Architecture(3, (), (2,), output_bias=True)  # linear, so that both are exactly normal
    random = np.random.default_rng(0)
    mean, std = random.standard_normal(net.size), 0.1 + random.random(net.size)
    x = np.repeat(random.standard_normal((1, 3)), 20000, axis=0)
    local = np.asarray(net.forward_local(mean, std, x, jax.random.key(0)))
    weights = mean + std * random.standard_normal((20000, net.size))
    shared = np.stack([np.asarray(x[0] @ w[:6].reshape(3, 2) + w[6:]) for w in weights])
    np.testing.assert_allclose(local.mean(0), shared.mean(0), atol=0.06)
    np.testing.assert_allclose(local.std(0), shared.std(0), rtol=0.04)


@pytest.mark.parametrize("repair", ["none", "sigmoid", "clip"])
def test_answers_agree_in_both_precisions_and_obey_bounds(repair):
    scale = Scale(np.array([0.5, 1.0, 0.0]), np.array([0.2, 1.0, 2.0]))
    outputs = OutputMap(scale, LOWER, UPPER, repair)
    z = 5.0 * np.random.default_rng(0).standard_normal((50, 3))
    exact = outputs.answers(z)
    np.testing.assert_allclose(outputs.answer(jnp.asarray(z, jnp.float32)), exact, rtol=1e-5, atol=1e-5)
    if repair != "none":
        assert np.all(exact >= LOWER)
        assert np.all(exact <= UPPER)
    np.testing.assert_allclose(exact[:, 2], 2.0 * z[:, 2])
    with pytest.raises(ValueError, match="one of none, sigmoid, clip"):
        OutputMap(scale, LOWER, UPPER, "hope")


def test_constant_columns_are_scaled_down_not_up():
    scale = floored(np.array([[1.0, 5.0], [3.0, 5.0]]))
    np.testing.assert_allclose(scale.std, [1.0, 1e-6])


def test_moments_are_those_of_the_draws():
    model = _bayesian()
    x = np.random.default_rng(1).standard_normal((5, 3))
    draws = np.stack(list(model.draws(x, 50, 3)))
    mean, variance = model.moments(x, 50, 3)
    np.testing.assert_allclose(mean, draws.mean(0), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(variance, draws.var(0), rtol=1e-9, atol=1e-15)
    belief = model.predict(x)
    noise = model.noise * model.outputs.scale.std**2
    np.testing.assert_allclose(belief.std, np.sqrt(draws.var(0) + noise), rtol=1e-9)


def test_a_draw_is_one_function_for_all_rows():
    model = _bayesian()
    x = np.random.default_rng(1).standard_normal((9, 3))
    whole = list(model.draws(x, 3, 0))
    for first, second in zip(whole, model.draws(x[4:5], 3, 0), strict=True):
        np.testing.assert_allclose(first[4], second[0], rtol=1e-4, atol=1e-5)
    assert not np.allclose(whole[0], whole[1])


@pytest.mark.parametrize("repair", ["none", "sigmoid"])
def test_bayesian_network_comes_back_the_same(repair):
    model = _bayesian(repair)
    again = unpack(*pack(model), BayesianNetwork)
    x = np.random.default_rng(1).standard_normal((4, 3))
    np.testing.assert_array_equal(again.predict(x).mean, model.predict(x).mean)
    np.testing.assert_array_equal(again.predict(x).std, model.predict(x).std)
    np.testing.assert_array_equal(again.covariance.factor, model.covariance.factor)


def test_network_comes_back_the_same_and_has_no_posterior():
    bayesian = _bayesian()
    model = Network(NET, bayesian.inputs, bayesian.outputs, bayesian.mean, bayesian.covariance)
    again = unpack(*pack(model), Network)
    with pytest.raises(ValueError, match="parameters"):
        dataclasses.replace(model, parameters=model.parameters[1:])
    x = np.random.default_rng(1).standard_normal((4, 3))
    expected = model.outputs.answers(_by_hand(model.parameters, model.inputs.apply(x)))
    np.testing.assert_allclose(model.predict(x).mean, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(again.predict(x).mean, model.predict(x).mean)
    np.testing.assert_allclose(model.predict(x).std[0], np.sqrt(model.covariance.variance))
    with pytest.raises(NoPosteriorError):
        next(iter(model.draws(x, 1, 0)))


def test_predictive_covariance_trusts_the_residuals_size_and_the_draws_shape():
    random = np.random.default_rng(0)
    mixing = random.standard_normal((3, 3))
    residuals = random.standard_normal((4000, 3)) @ mixing
    deviations = 100.0 * random.standard_normal((4000, 3)) @ mixing
    found = predictive_covariance(residuals, deviations)
    whole = found.factor @ found.factor.T + np.diag(found.diagonal)
    expected = mixing.T @ mixing
    np.testing.assert_allclose(np.diag(whole), np.diag(expected), rtol=0.15)
    assert np.sign(whole[0, 1]) == np.sign(expected[0, 1])
    alone = predictive_covariance(residuals, np.zeros((5, 3)))
    assert np.isfinite(alone.factor).all()
