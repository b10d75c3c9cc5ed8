"""What training minimises, against the float64 functions that measure."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from feasibly.problem.core import Problem
from feasibly.problem.sampling import sample
from feasibly.train.feasibility import feasibility
from feasibly.train.single import single
from tests.problems import make

NAMES = ["toy", "unconstrained", "grid3", "nonconvex"]


def _rows(problem: Problem, count: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    y = problem.start + 0.1 * random.standard_normal((count, problem.n_outputs))
    return sample(problem, count, seed=3), y


def _expected(problem: Problem, x: np.ndarray, y: np.ndarray, lambda_e: float, lambda_i: float) -> np.ndarray:
    equal, unequal = problem.equalities(x, y), np.maximum(problem.inequalities(x, y), 0.0)
    bounds = problem.bound_violations(y)
    return lambda_e * (equal**2).sum(1) + lambda_i * ((unequal**2).sum(1) + (bounds**2).sum(1))


@pytest.mark.parametrize("name", NAMES)
def test_f_counts_all_constraints(name):
    problem = make(name)
    x, y = _rows(problem, 37)
    function = jax.jit(feasibility(problem, 2.0, 0.5, rows=16))
    value = function(x.astype(np.float32), jnp.asarray(y, jnp.float32))
    np.testing.assert_allclose(value, _expected(problem, x, y, 2.0, 0.5), rtol=2e-4, atol=1e-5)


def test_gradient_is_that_of_f():
    problem = make("grid3")
    x, y = _rows(problem, 5)
    function = feasibility(problem, rows=2)
    single_x = x.astype(np.float32)
    gradient = jax.jit(jax.grad(lambda y: jnp.sum(function(single_x, y))))(jnp.asarray(y, jnp.float32))
    direction = np.random.default_rng(1).standard_normal(y.shape)
    small = 1e-6
    ahead, behind = (_expected(problem, x, y + s * small * direction, 1.0, 1.0).sum() for s in (1.0, -1.0))
    assert float(np.sum(np.asarray(gradient) * direction)) == pytest.approx(
        (ahead - behind) / (2 * small), rel=1e-3
    )


def test_training_precision_does_not_touch_measuring_precision():
    """Captured arrays keep their 64 bits for measuring, whichever comes first."""
    fine = np.array([1.0 / 3.0, 2.0 / 7.0])
    places = np.array([1, 0])

    def build() -> Problem:
        return Problem(
            lambda x, y: jnp.sum(y * fine[places]),
            [0.0, 0.0],
            [1.0, 1.0],
            equality=lambda x, y: y[places] - fine * x,
            box=([0.0, 0.0], [1.0, 1.0]),
        )

    x, y = np.ones((3, 2)), np.tile(fine[places], (3, 1))
    for train_first in (True, False):
        problem = build()
        if not train_first:
            assert np.abs(problem.equalities(x, y)).max() < 1e-15
        compiled = jax.jit(feasibility(problem))
        assert float(compiled(x.astype(np.float32), y.astype(np.float32)).max()) < 1e-12
        assert np.abs(problem.equalities(x, y)).max() < 1e-15  # 1e-8 if rounded to float32
        np.testing.assert_allclose(problem.objectives(x, y), (y * fine[places]).sum(1), rtol=1e-15)


def test_control_flow_is_left_as_it_stands():
    def bent(x, y):
        return jax.lax.cond(x[0] > 0.0, lambda: y, lambda: -y)

    function = single(bent, 1, 2)
    np.testing.assert_array_equal(function(jnp.asarray([-1.0]), jnp.asarray([1.0, 2.0])), [-1.0, -2.0])
    assert function(jnp.asarray([1.0]), jnp.asarray([1.0, 2.0])).dtype == jnp.float32
