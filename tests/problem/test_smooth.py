"""Kinks in a user's functions are noticed when the problem is made, and nothing else is."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import feasibly as fb
from feasibly.problem._smooth import ADVICE, find_kinks

X, Y = np.array([0.3, 0.7]), np.array([0.2, 0.4, 0.6])
A = np.array([[1.0, 2.0, 3.0], [0.5, -1.0, 0.0]])


@pytest.mark.parametrize(
    ("function", "kinks"),
    [
        (lambda x, y: jnp.abs(y).sum(), ["abs"]),
        (lambda x, y: jnp.maximum(y[0], y[1]), ["max"]),
        (lambda x, y: jnp.minimum(y, 0.5).sum(), ["max"]),
        (lambda x, y: jnp.clip(y, 0.0, 1.0).sum(), ["max"]),
        (lambda x, y: y.max() - x[0], ["max"]),
        (lambda x, y: jax.nn.relu(y - x[0]).sum(), ["max"]),
        (lambda x, y: jnp.linalg.norm(A @ y), ["norm"]),
        (lambda x, y: jnp.sqrt(jnp.sum(y**2)), ["norm"]),
        (lambda x, y: jnp.where(y[0] > 0.5, y[0], 0.0), ["where"]),
        (lambda x, y: jnp.round(y).sum(), ["step"]),
        (lambda x, y: jnp.abs(y).sum() + jnp.linalg.norm(y), ["abs", "norm"]),
        (jax.jit(lambda x, y: jnp.abs(y).sum()), ["abs"]),
        (lambda x, y: (y**2).sum() + jnp.exp(y[0]) * jnp.sin(y[1]), []),
        (lambda x, y: jnp.sqrt(jnp.sum(y**2) + 1e-8), []),
        (lambda x, y: jnp.abs(x).sum() + jnp.maximum(x[0], 0.0) * y[0], []),
        (lambda x, y: jnp.where(x[0] > 0.0, y[0], y[1]), []),
        (lambda x, y: jax.lax.fori_loop(0, 3, lambda i, s: s + jnp.abs(y[0]), 0.0), ["abs"]),
        (lambda x, y: jax.lax.scan(lambda s, v: (jnp.abs(s) + v, None), 0.0, y)[0], ["abs"]),
    ],
)
def test_kinks_are_found_where_they_are(function: Callable[..., Any], kinks: list[str]) -> None:
    found = find_kinks(function, X, Y)
    assert [kind for kind in found if kind in kinks] == kinks
    assert kinks or not found
    assert set(found) <= set(ADVICE)


def test_a_problem_with_a_kink_says_what_to_write_instead() -> None:
    bounds = {"lower": -np.ones(2), "upper": np.ones(2), "box": (-np.ones(2), np.ones(2))}
    with pytest.warns(UserWarning, match=r"objective of problem 'kinked' is not smooth.*t >= a and t >= -a"):
        fb.Problem(lambda x, y: jnp.abs(y - x).sum(), name="kinked", **bounds)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fb.Problem(lambda x, y: ((y - x) ** 2).sum(), name="smooth", **bounds)
