"""Anderson's acceleration on linear iterations, where it is GMRES."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from feasibly.answer.acceleration import Acceleration
from feasibly.answer.acceleration_wide import accelerated, no_history
from feasibly.precision import double


def contraction(size, radius, seed):
    """`u <- T u + b` with a `T` of this spectral radius, one for each of five rows, and where each ends."""
    random = np.random.default_rng(seed)
    matrices, offsets = random.standard_normal((5, size, size)), random.standard_normal((5, size))
    matrices *= radius / np.abs(np.linalg.eigvals(matrices)).max(axis=1)[:, None, None]
    return matrices, offsets, np.linalg.solve(np.eye(size) - matrices, offsets[..., None])[..., 0]


def run(matrices, offsets, steps, acceleration=None, afresh=None):
    u = np.zeros_like(offsets)
    for number in range(steps):
        step = np.einsum("rij,rj->ri", matrices, u) + offsets - u
        if acceleration is not None:
            parts, moves = [u[:, :4], u[:, 4:]], [step[:, :4], step[:, 4:]]
            new = np.zeros(len(u), dtype=bool) if afresh is None else afresh(number)
            step = np.concatenate(acceleration(parts, moves, new), axis=1)
        u = u + step
    return u


def test_a_linear_iteration_ends_within_as_many_steps_as_it_has_dimensions():
    matrices, offsets, end = contraction(6, 0.99, 0)
    weights = np.ones(4)
    # Both parts move alike; lengths are measured by the first, which has four entries of the six.
    fast = run(matrices, offsets, 14, Acceleration(6, weights))
    slow = run(matrices, offsets, 14)
    assert np.abs(fast - end).max() < 1e-3 * np.abs(slow - end).max()


def test_three_earlier_steps_are_worth_many():
    matrices, offsets, end = contraction(30, 0.97, 1)
    off = [np.abs(run(matrices, offsets, 40, how) - end).max() for how in (None, Acceleration(3, np.ones(4)))]
    assert off[1] < 0.1 * off[0]


def test_rows_that_begin_afresh_take_their_own_steps():
    matrices, offsets, _ = contraction(6, 0.9, 2)
    always = run(matrices, offsets, 10, Acceleration(3, np.ones(4)), lambda _: np.ones(5, dtype=bool))
    np.testing.assert_array_equal(always, run(matrices, offsets, 10))


def test_a_row_does_not_depend_on_the_others():
    matrices, offsets, _ = contraction(6, 0.9, 3)
    together = run(matrices, offsets, 9, Acceleration(3, np.ones(4)))
    alone = [run(matrices[[r]], offsets[[r]], 9, Acceleration(3, np.ones(4)))[0] for r in range(5)]
    np.testing.assert_allclose(together, alone, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("keep", [[0, 2], [3]])
def test_rows_that_stay_go_on_as_before(keep):
    matrices, offsets, _ = contraction(6, 0.9, 4)
    whole = run(matrices, offsets, 9, Acceleration(3, np.ones(4)))
    acceleration = Acceleration(3, np.ones(4))
    u = run(matrices, offsets, 5, acceleration)
    acceleration.keep(np.array(keep))
    for _ in range(4):
        step = np.einsum("rij,rj->ri", matrices[keep], u[keep]) + offsets[keep] - u[keep]
        new = acceleration(
            [u[keep, :4], u[keep, 4:]], [step[:, :4], step[:, 4:]], np.zeros(len(keep), dtype=bool)
        )
        u[keep] += np.concatenate(new, axis=1)
    np.testing.assert_allclose(u[keep], whole[keep], rtol=1e-9, atol=1e-9)


def test_steps_that_repeat_one_another_do_no_harm():
    acceleration, weights = Acceleration(3, np.ones(2)), np.zeros(1, dtype=bool)
    point, step = np.zeros((1, 2)), np.ones((1, 2))
    for _ in range(6):
        (moved,) = acceleration([point], [step], weights)
        assert np.isfinite(moved).all()


def test_a_step_that_was_shortened_is_no_part_of_the_history():
    """What follows is as if the row had begun where that step ended."""
    matrices, offsets, _ = contraction(6, 0.9, 5)
    acceleration, fresh = Acceleration(3, np.ones(6)), Acceleration(3, np.ones(6))
    none, every = np.zeros(5, dtype=bool), np.ones(5, dtype=bool)
    u = np.zeros_like(offsets)
    for number in range(8):
        step = np.einsum("rij,rj->ri", matrices, u) + offsets - u
        if number == 3:
            (moved,) = acceleration([u], [0.1 * step], none, shortened=every)
            np.testing.assert_array_equal(moved, 0.1 * step)
        else:
            (moved,) = acceleration([u], [step], none)
        if number > 3:
            np.testing.assert_array_equal(moved, fresh([u], [step], none)[0])
        u = u + moved


def run_wide(matrices, offsets, steps, depth, weights, afresh=None, short=None):
    """The compiled form, rows last, on the same iteration."""
    with double():
        u = np.zeros_like(offsets)
        history = no_history(depth, (jnp.asarray(u[:, :4].T), jnp.asarray(u[:, 4:].T)))
        once = jax.jit(accelerated)
        none = np.zeros(len(u), dtype=bool)
        for number in range(steps):
            step = np.einsum("rij,rj->ri", matrices, u) + offsets - u
            parts, moves = (u[:, :4].T, u[:, 4:].T), (step[:, :4].T, step[:, 4:].T)
            new = none if afresh is None else afresh(number)
            cut = none if short is None else short(number)
            found, history = once(history, parts, moves, new, cut, weights)
            u = u + np.concatenate([np.asarray(part) for part in found]).T
        return u


def test_the_compiled_form_takes_the_same_steps():
    matrices, offsets, _ = contraction(9, 0.95, 6)
    weights = np.linspace(0.5, 2.0, 4)

    def afresh(number):
        return np.arange(5) * 2 == number

    def short(number):
        return np.arange(5) * 3 == number - 1

    acceleration, u = Acceleration(3, weights), np.zeros_like(offsets)
    for number in range(12):
        step = np.einsum("rij,rj->ri", matrices, u) + offsets - u
        new = acceleration([u[:, :4], u[:, 4:]], [step[:, :4], step[:, 4:]], afresh(number), short(number))
        u = u + np.concatenate(new, axis=1)
    np.testing.assert_allclose(run_wide(matrices, offsets, 12, 3, weights, afresh, short), u, atol=1e-9)
    plain = run(matrices, offsets, 12)
    assert np.abs(plain - u).max() > 1e-3  # it does something


def test_the_compiled_form_ends_within_as_many_steps_as_it_has_dimensions():
    matrices, offsets, end = contraction(6, 0.99, 0)
    fast, slow = run_wide(matrices, offsets, 14, 6, np.ones(4)), run(matrices, offsets, 14)
    assert np.abs(fast - end).max() < 1e-3 * np.abs(slow - end).max()
