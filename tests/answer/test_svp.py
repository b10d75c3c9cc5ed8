"""Selection via Posterior, against all draws held in memory."""

import numpy as np
import pytest

from feasibly.answer.svp import select, selection
from feasibly.model.belief import Belief, Covariance, Model, NoPosteriorError
from feasibly.problem.errors import FeasiblyError
from feasibly.problem.sampling import sample
from tests.problems import make


class Scatter(Model):
    """Answers scattered around a point, the same way for every run."""

    kind = "scatter"

    def __init__(self, centre: np.ndarray) -> None:
        self.centre = centre
        self.covariance = Covariance(np.zeros((len(centre), 0)), np.ones(len(centre)))

    def predict(self, x):
        return Belief(np.tile(self.centre, (len(x), 1)), np.ones((len(x), len(self.centre))))

    def draws(self, x, count, seed):
        random = np.random.default_rng(seed)
        for _ in range(count):
            yield self.centre + 0.1 * random.standard_normal((len(x), len(self.centre)))

    def state(self):
        return {}, {}

    @classmethod
    def restore(cls, settings, arrays):
        raise NotImplementedError


@pytest.mark.parametrize("name", ["toy", "grid3"])
@pytest.mark.parametrize("weight", [0.0, 2.0])
def test_each_row_gets_its_best_draw(name, weight):
    problem = make(name)
    model = Scatter(problem.start)
    x = sample(problem, 11, seed=2)
    found = selection(problem, model, x, draws=30, seed=4, inequality_weight=weight)
    every = np.stack(list(model.draws(x, 30, 4)))
    for row in range(len(x)):
        here = np.repeat(x[row : row + 1], 30, axis=0)
        score = np.abs(problem.equalities(here, every[:, row])).max(1)
        violation = np.maximum(problem.violations(here, every[:, row]), 0.0).max(1, initial=0.0)
        bounds = problem.bound_violations(every[:, row]).max(1, initial=0.0)
        score = score + weight * np.maximum(violation, bounds)
        assert found.draw[row] == np.argmin(score)
        assert found.score[row] == pytest.approx(score.min(), rel=1e-9)
        np.testing.assert_array_equal(found.y[row], every[found.draw[row], row])
    np.testing.assert_allclose(found.moments.mean, every.mean(0), rtol=1e-12)
    np.testing.assert_allclose(found.moments.variance, every.var(0), rtol=1e-9)
    np.testing.assert_array_equal(
        select(problem, model, x, draws=30, seed=4, inequality_weight=weight), found.y
    )


def test_without_equalities_the_inequalities_decide():
    problem = make("unconstrained")
    x = sample(problem, 3, seed=0)
    found = selection(problem, Scatter(problem.start), x, draws=5)
    np.testing.assert_array_equal(found.score, 0.0)  # nothing to violate: the first draw is as good as any
    np.testing.assert_array_equal(found.draw, 0)


def test_a_draw_that_is_not_finite_is_never_chosen_over_one_that_is():
    problem = make("toy")

    class Broken(Scatter):
        def draws(self, x, count, seed):
            yield np.full((len(x), 2), np.nan)
            yield from super().draws(x, count - 1, seed)

    found = selection(problem, Broken(problem.start), sample(problem, 4, seed=0), draws=5)
    assert np.isfinite(found.y).all()
    assert np.all(found.draw > 0)


def test_moments_stream():
    problem = make("toy")
    x = sample(problem, 3, seed=0)
    model = Scatter(np.array([1e6, 2.0]))  # far from zero, where a difference of sums would lose its digits
    every = np.stack(list(model.draws(x, 40, 0)))
    found = selection(problem, model, x, draws=40, seed=0).moments
    np.testing.assert_allclose(found.variance, every.var(0), rtol=1e-6)
    assert found.count == 40
    with pytest.raises(FeasiblyError, match="one draw at least, not 0"):
        selection(problem, model, x, draws=0)


def test_models_without_a_posterior_say_so():
    class Plain(Scatter):
        draws = Model.draws

    problem = make("toy")
    with pytest.raises(NoPosteriorError, match="no posterior"):
        select(problem, Plain(problem.start), sample(problem, 2, seed=0))
