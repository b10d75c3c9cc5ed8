"""Batched complementarity problems against SciPy's non-negative least squares."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls

from feasibly.model.complementarity import pivot, solve
from feasibly.model.settings import DEFAULT
from feasibly.precision import double


def reference(matrix, q):
    """min 1/2 lam'(M + e I)lam - q'lam, lam >= 0, row by row."""
    scale = 1.0 / np.sqrt(np.diag(matrix))
    root = np.linalg.cholesky(matrix * scale[:, None] * scale + DEFAULT.hard * np.eye(len(matrix)))
    return np.stack(
        [scale * nnls(root.T, np.linalg.solve(root, scale * column))[0] for column in q.T], axis=1
    )


compiled = jax.jit(solve, static_argnums=(4, 5))


def run(matrix, base, q, max_changes):
    with double():
        size, rows = q.shape
        found = compiled(
            pivot(matrix, base),
            jnp.asarray(q),
            jnp.zeros((size, rows)),
            jnp.zeros((size, rows), bool),
            max_changes,
            (40, 40),
        )
    return [np.asarray(part) for part in found]


@given(st.integers(0, 10_000), st.sampled_from([2, 3, 7, 12]), st.floats(0.0, 1.0))
@settings(max_examples=25, deadline=None)
def test_agrees_with_nonnegative_least_squares(seed, size, share):
    random = np.random.default_rng(seed)
    rows = random.standard_normal((size, size + 4))
    matrix = rows @ rows.T
    base = random.random(size) < share
    q = random.standard_normal((size, 16)) * 10.0 ** random.integers(-2, 3)
    lam, active, settled = run(matrix, base, q, size)
    expected = reference(matrix, q)
    assert settled.mean() > 0.9
    scale = np.abs(expected).max(axis=0) + 1e-12
    assert np.all(np.abs(lam - expected)[:, settled] / scale[settled] < 1e-6)
    assert np.all(lam >= 0.0)
    assert np.array_equal(
        lam[:, settled] > 1e-9 * scale[settled], (active & (lam > 1e-9 * scale))[:, settled]
    )


def test_rows_that_say_the_same_twice_do_no_harm():
    row = np.array([[1.0, 2.0, 0.5]])
    rows = np.concatenate([row, row, -row])
    lam, _, settled = run(rows @ rows.T, np.array([True, False, False]), np.array([[3.0], [3.0], [-3.0]]), 3)
    assert settled.all()
    slack = rows @ rows.T @ lam - np.array([[3.0], [3.0], [-3.0]])
    assert slack.min() > -1e-6


@pytest.mark.parametrize("max_changes", [1, 2])
def test_says_so_when_more_rows_differ_than_it_may_look_at(max_changes):
    matrix = np.eye(6)
    lam, _, settled = run(matrix, np.zeros(6, dtype=bool), np.ones((6, 1)), max_changes)
    assert not settled.any()
    assert np.all(lam >= 0.0)
