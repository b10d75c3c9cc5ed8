"""The Lagrange dual of a convex problem: refused for what is not convex, and lifted above no optimum by rounding."""

import functools
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

import feasibly as fb
from feasibly.bound.lagrange import convex_bound
from feasibly.problem.point import Duals


def bound(problem, x, y, **multipliers):
    shapes = {
        "equality": problem.n_equalities, "inequality": problem.n_inequalities,
        "lower": problem.n_outputs, "upper": problem.n_outputs,
    }  # fmt: skip
    duals = Duals(**{name: multipliers.get(name, np.zeros((len(x), size))) for name, size in shapes.items()})
    return convex_bound(problem, np.asarray(x, dtype=float), np.asarray(y, dtype=float), duals)


def on_box(cost, size=2, **more):
    return fb.Problem(cost, np.full(size, -1.0), np.full(size, 1.0), box=([0.0], [1.0]), **more)


WEEK = {
    "a quartic of outputs a week apart": {"cost": lambda x, y: jnp.sum(y**2) - 0.05 * (y[7] - y[0]) ** 4},
    "a cubic limit": {"cost": lambda x, y: jnp.sum(y**2), "inequality": lambda x, y: ((y[0] - y[7]) ** 3)[None]},
    "a product in a loop": {"cost": lambda x, y: jax.lax.scan(lambda s, v: (s * v, None), 1.0, y)[0]},
}  # fmt: skip


@pytest.mark.parametrize("name", WEEK)
def test_a_degree_above_two_is_seen_in_the_operations(name):
    problem = on_box(size=8, **WEEK[name])
    with pytest.raises(fb.FeasiblyError, match="degree above two"):
        bound(problem, np.full((1, 1), 0.5), np.full((1, 8), 0.5))


def test_what_is_not_affine_or_jumps_is_refused():
    bent = on_box(lambda x, y: y[0], equality=lambda x, y: (y[0] ** 2)[None])
    with pytest.raises(fb.FeasiblyError, match="an equality is not affine"):
        bound(bent, [[0.5]], [[0.0, 0.0]])
    whole = on_box(lambda x, y: 2.0 * y.astype(jnp.int32)[0])
    with pytest.raises(fb.FeasiblyError, match="convert_element_type of outputs is no polynomial"):
        bound(whole, [[0.5]], [[0.0, 0.0]])


def test_derivatives_are_those_of_the_operations():
    still = on_box(lambda x, y: jax.lax.stop_gradient(y[0]) + y[1] ** 2)
    assert bound(still, [[0.5]], [[0.5, 0.0]])[0] == pytest.approx(-1.0, abs=1e-12)

    @jax.custom_jvp
    def named(value):
        return 3.0 * value

    named.defjvp(lambda primals, tangents: (named(*primals), 0.0 * tangents[0]))
    assert bound(on_box(lambda x, y: named(y[0])), [[0.5]], [[0.5, 0.0]])[0] == pytest.approx(-3.0, abs=1e-12)


def test_a_row_whose_own_input_bends_the_cost_downwards_has_none():
    problem = on_box(lambda x, y: (x[0] - 0.5) * y[0] ** 2 + y[1])
    found = bound(problem, [[0.2], [0.8]], [[0.5, 0.5], [0.0, -1.0]])
    assert np.isnan(found[0])
    assert found[1] == pytest.approx(-1.0, abs=1e-12)
    with pytest.raises(fb.FeasiblyError, match="second derivatives are negative"):
        bound(problem, [[0.2]], [[0.5, 0.5]])


def test_bounds_that_depend_on_the_input_are_the_rows_own():
    problem = fb.Problem(
        lambda x, y: jnp.sum(y**2),
        lambda x: jnp.stack([x[0], x[0]]),
        lambda x: jnp.stack([x[0] + 1.0, x[0] + 1.0]),
        box=([1.0], [5.0]),
    )
    x = np.array([[4.5], [1.0]])
    found = bound(problem, x, np.tile(x, 2))
    assert (found <= 2 * x[:, 0] ** 2).all()
    assert np.allclose(found, 2 * x[:, 0] ** 2, rtol=1e-9)


number = some.floats(-2.0, 2.0, allow_nan=False).map(lambda value: round(value, 3))
large = some.sampled_from([0.0, 1.0, 1e4, 1e8, -1e6])


def _cancels(x, y):
    a, b, c, far = x.reshape(2, 4).T
    moved = a * ((y - b + far) ** 2 - 2.0 * far * (y - b)) - a * far**2
    return jnp.sum(moved + 1e8 * (y + far) - 1e8 * y + c * y)


@functools.cache
def cancelling():
    """Costs whose numbers are inputs, so that one compiled bound serves all of them."""
    return fb.Problem(_cancels, np.full(2, -1.0), np.full(2, 1.0), box=(np.full(8, -1e9), np.full(8, 1e9)))


@settings(deadline=None, max_examples=40)
@given(
    curves=some.lists(some.tuples(number.map(abs), number, number, large), min_size=2, max_size=2), at=number
)
def test_what_cancels_inside_of_functions_lifts_no_bound(curves, at):
    """Costs whose terms are up to 1e16 times what is left of them, beside the least of them in exact arithmetic."""
    exact = sum(least(*map(Fraction, map(float, curve))) for curve in curves)
    found = bound(cancelling(), [np.ravel(curves)], np.full((1, 2), np.clip(at, -1.0, 1.0)))[0]
    assert Fraction(float(found)) <= exact


def least(a: Fraction, b: Fraction, c: Fraction, far: Fraction) -> Fraction:
    """Of `a (y - b)^2 + c y + 1e8 far` between -1 and 1, the smallest of both ends and the vertex."""
    places = [Fraction(-1), Fraction(1)]
    if a > 0:
        places.append(min(max(b - c / (2 * a), Fraction(-1)), Fraction(1)))
    return min(a * (y - b) ** 2 + c * y + 10**8 * far for y in places)
