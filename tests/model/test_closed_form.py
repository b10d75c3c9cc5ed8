"""Ridge and the Gaussian process against textbook formulas and brute force."""

import dataclasses

import numpy as np
import pytest

from feasibly._codec import pack, unpack
from feasibly.model.belief import Covariance, NoPosteriorError
from feasibly.model.kernel import Kernel, KernelModel, fit_gp
from feasibly.model.linear import LinearModel, fit_ridge
from feasibly.model.response import fit_response
from feasibly.model.scale import Scale, score


@pytest.fixture(scope="module")
def data():
    random = np.random.default_rng(3)
    x = random.uniform(-1.0, 1.0, (60, 5))
    weights = random.standard_normal((5, 4))
    y = 2.0 + x @ weights + 0.3 * np.sin(2.0 * x[:, :4]) + 0.05 * random.standard_normal((60, 4))
    y[:, 3] = 1.5  # an output that never moves
    return x, y


def test_ridge_is_the_regularised_normal_equations(data):
    x, y = data
    model = fit_ridge(x, y)
    inputs = Scale.of(x)
    scaled = inputs.apply(x)
    centred = y - y.mean(axis=0)
    weights = np.linalg.solve(scaled.T @ scaled + model.penalty * np.eye(5), scaled.T @ centred)
    fresh = np.random.default_rng(4).uniform(-1.0, 1.0, (7, 5))
    assert np.allclose(model.predict(fresh).mean, y.mean(axis=0) + inputs.apply(fresh) @ weights, atol=1e-10)


def test_leave_one_out_residuals_are_what_leaving_out_gives(data):
    x, y = data
    model = fit_ridge(x, y)
    inputs = Scale.of(x)
    scaled = inputs.apply(x)
    left_out = np.empty_like(y)
    for i in range(len(x)):
        rest = np.arange(len(x)) != i
        design = np.concatenate([np.ones((len(x), 1)), scaled], axis=1)
        penalty = np.diag([0.0] + [model.penalty] * 5)
        beta = np.linalg.solve(design[rest].T @ design[rest] + penalty, design[rest].T @ y[rest])
        left_out[i] = y[i] - design[i] @ beta
    pooled = Covariance.pooled(left_out)
    assert np.allclose(model.covariance.variance, pooled.variance, rtol=1e-6, atol=1e-12)


def test_gp_mean_is_the_textbook_posterior(data):
    x, y = data
    model = fit_gp(x, y)
    inputs, outputs = Scale.of(x), Scale.of(y)
    points = inputs.apply(x) / np.sqrt(5)
    gram = model.kernel.between(points, points) + model.noise * np.eye(len(x))
    fresh = np.random.default_rng(5).uniform(-1.0, 1.0, (6, 5))
    cross = model.kernel.between(inputs.apply(fresh) / np.sqrt(5), points)
    assert np.allclose(
        model.predict(fresh).mean,
        cross @ np.linalg.solve(gram, outputs.apply(y)) * outputs.std + outputs.mean,
    )


@pytest.mark.parametrize("kernel", [Kernel("rbf", 0.5, 1.3), Kernel("arccosine", 0.7, 1.0)])
def test_kernels_are_positive_semidefinite_and_know_their_own_diagonal(kernel):
    points = np.random.default_rng(6).standard_normal((30, 4))
    gram = kernel.between(points, points)
    assert np.allclose(gram, gram.T)
    assert np.linalg.eigvalsh(gram).min() > -1e-9
    assert np.allclose(np.diag(gram), kernel.own(points))


@pytest.mark.parametrize("fit", [fit_ridge, fit_gp])
def test_uncertainty_is_calibrated_and_grows_away_from_the_data(fit, data):
    x, y = data
    model = fit(x, y)
    random = np.random.default_rng(7)
    fresh = random.uniform(-1.0, 1.0, (400, 5))
    belief, far = model.predict(fresh), model.predict(5.0 * fresh)
    assert np.all(far.std[:, :3] >= belief.std[:, :3] * 0.999)
    assert np.all(far.std[:, :3].mean(axis=0) > belief.std[:, :3].mean(axis=0))
    drawn = np.stack(list(model.draws(fresh[:20], 400, seed=1)))
    assert np.allclose(drawn.mean(axis=0), belief.mean[:20], atol=4 * belief.std[:20].max() / 20 + 1e-9)


@pytest.mark.parametrize(("fit", "kind"), [(fit_ridge, LinearModel), (fit_gp, KernelModel)])
def test_packed_and_unpacked_it_is_the_same_model(fit, kind, data):
    x, y = data
    model = fit(x, y)
    again = unpack(*pack(model), kind, sizes={"inputs": x.shape[1], "outputs": y.shape[1]})
    for one, other in ((model.predict(x), again.predict(x)),):
        # To rounding: matrices may be stored the other way round.
        assert np.allclose(one.mean, other.mean, rtol=1e-13, atol=1e-13)
        assert np.allclose(one.std, other.std, rtol=1e-13, atol=1e-13)


def test_score_is_not_drowned_by_outputs_that_are_pure_noise():
    random = np.random.default_rng(8)
    good, bad = np.full((50, 3), 0.01), np.full((50, 3), 0.1)
    noise = random.standard_normal((50, 1))
    assert score(np.concatenate([good, noise], axis=1)) < score(np.concatenate([bad, noise], axis=1)) - 1.0


def test_a_model_without_a_posterior_says_so():
    from feasibly.model.belief import Belief, Model

    class Fixed(Model):
        kind = "fixed"
        covariance = Covariance(np.zeros((1, 1)), np.zeros(1))

        def predict(self, x):
            return Belief(np.zeros((len(x), 1)), np.zeros((len(x), 1)))

        def state(self):
            return {}, {}

        @classmethod
        def restore(cls, settings, arrays):
            return cls()

    with pytest.raises(NoPosteriorError, match="no posterior"):
        next(iter(Fixed().draws(np.zeros((1, 1)), 1, 0)))


class HalfKnownMap:
    """A solution map that is off by a constant, and found for the first rows of a batch alone."""

    def __init__(self, found):
        self.found = found

    def respond(self, x):
        answer = x @ SLOPE + 0.3
        known = np.arange(len(x)) < self.found
        answer[~known] = 1e6
        return answer, known


SLOPE = np.random.default_rng(3).standard_normal((4, 3))


def test_a_law_is_corrected_on_the_rows_where_it_was_found():
    x = np.random.default_rng(0).standard_normal((60, 4))
    model = fit_response(HalfKnownMap(50), x, x @ SLOPE)
    assert model.correction.rows == 50
    model = dataclasses.replace(model, solution_map=HalfKnownMap(60))
    assert np.allclose(model.predict(x).mean, x @ SLOPE, atol=1e-6)
    assert fit_response(HalfKnownMap(20), x, x @ SLOPE).correction.rows == 60  # too few to go by
