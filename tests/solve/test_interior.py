"""How the interior-point method goes about problems of several sizes."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

import feasibly as fb
from feasibly.problem.sampling import sample
from feasibly.solve import solve
from feasibly.solve.settings import DEFAULT
from tests.problems import make


@pytest.mark.parametrize("name", ["grid6", "nonconvex", "toy"])
def test_large_problems_are_solved_with_their_own_attempts_to_the_same_optimum(name):
    problem = make(name)
    x = sample(problem, 6, seed=3)
    usual = solve(problem, x)
    large = solve(problem, x, settings=replace(DEFAULT, large_from=0))
    assert [one.outcome for one in large] == [one.outcome for one in usual]
    for one, other in zip(large, usual, strict=True):
        if one.outcome.ok:
            assert one.objective == pytest.approx(other.objective, rel=1e-7)


@pytest.mark.parametrize("at_once", [True, False])
def test_constraints_that_hold_nearly_do_not_change_the_cost_where_multipliers_are_large(at_once):
    weight = 1e-5  # its multiplier is 1e5: a residual of 1e-8 costs 1e-3
    problem = fb.Problem(
        lambda x, y: (y[0] - x[0]) ** 2 + y[1], np.array([-10.0, -100.0]), np.array([10.0, 100.0]),
        equality=lambda x, y: weight * (y[1:] - jnp.square(y[:1]) ** 2 - 1.0),
        box=(np.array([-3.0]), np.array([3.0])), name="steep",
    )  # fmt: skip
    x = np.linspace(-3.0, 3.0, 101)[:, None]
    found = (
        fb.label(problem, x, jobs=1).objective if at_once else [one.objective for one in solve(problem, x)]
    )
    # The minimum of (t - x)^2 + t^4 + 1: where 4 t^3 + 2 (t - x) = 0, a cubic with one real root.
    roots = np.array([np.roots([4.0, 0.0, 2.0, -2.0 * value[0]]) for value in x])
    t = roots.real[np.arange(len(x)), np.abs(roots.imag).argmin(axis=1)]
    assert np.asarray(found) == pytest.approx((t - x[:, 0]) ** 2 + t**4 + 1.0, rel=1e-8)
