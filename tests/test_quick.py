"""Quick sines and cosines are the library's, in value and derivative, wherever they stand in a function."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from feasibly.precision import double
from feasibly.quick import cosine, quick, sine

angles = st.floats(-1e6, 1e6, allow_nan=False)


@given(angles)
def test_values_are_the_librarys(angle: float) -> None:
    with double():
        assert abs(float(sine(angle)) - np.sin(angle)) <= 5e-16
        assert abs(float(cosine(angle)) - np.cos(angle)) <= 5e-16


def test_what_is_not_a_number_stays_so() -> None:
    with double():
        assert np.isnan(sine(np.array([np.inf, -np.inf, np.nan]))).all()


def _mixed(x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    inner = jax.jit(lambda v: jnp.sin(v) * jnp.cos(v[::-1]))
    return inner(x) @ y, jax.nn.relu(jnp.cos(y)).at[0].add(jnp.sin(x[1]))


def test_a_rewritten_function_is_the_same_function() -> None:
    random = np.random.default_rng(0)
    x, y = random.normal(size=(2, 5)) * 3
    with double():
        for was, now in zip(_mixed(x, y), quick(_mixed)(x, y), strict=True):
            np.testing.assert_allclose(now, was, rtol=1e-13, atol=1e-14)
        was = jax.hessian(lambda v: _mixed(v, y)[0])(x)
        now = jax.hessian(lambda v: quick(_mixed)(v, y)[0])(x)
        np.testing.assert_allclose(now, was, rtol=1e-12, atol=1e-13)


def test_sines_are_replaced_and_single_precision_is_left_alone() -> None:
    def names(precision: np.typing.DTypeLike) -> str:
        return str(jax.make_jaxpr(quick(lambda x: jnp.sin(x)))(np.zeros(3, dtype=precision)))

    with double():
        assert "sine" in names(np.float64)
        assert "sine" not in names(np.float32)
