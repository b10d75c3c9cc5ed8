"""Row i depends on the seed and i alone."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feasibly.problem.core import Problem
from feasibly.problem.errors import ProblemError
from feasibly.problem.sampling import DESIGNS, sample
from tests.problems import CASES, make

DRAWN = Problem(
    lambda x, y: jnp.sum((y - x) ** 2),
    np.zeros(3),
    np.ones(3),
    sampler=lambda generator: generator.normal(size=3) ** 2,
    nominal=np.ones(3),
    name="drawn",
)


@settings(max_examples=40)
@given(
    name=st.sampled_from(["grid6", "toy", "nonconvex", "drawn"]),
    design=st.sampled_from(DESIGNS),
    seed=st.integers(0, 2**64 - 1),
    few=st.integers(0, 40),
    more=st.integers(0, 200),
)
def test_more_rows_never_change_earlier_ones(name: str, design: str, seed: int, few: int, more: int) -> None:
    problem = DRAWN if name == "drawn" else make(name)
    if name == "drawn":
        design = "uniform"
    first, longer = (sample(problem, count, seed, design=design) for count in (few, few + more))
    assert first.shape == (few, problem.n_inputs)
    np.testing.assert_array_equal(first, longer[:few])


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("design", DESIGNS)
def test_draws_fill_the_declared_box_and_no_more(name: str, design: str) -> None:
    problem = make(name)
    box = problem.box()
    assert box is not None
    low, high = box
    x = sample(problem, 512, seed=1, design=design)
    assert (x >= low).all()
    assert (x <= high).all()
    # Of 512 rows the lowest lies within 2 % of the edge but for one draw in thirty thousand.
    width = high - low
    assert (x.min(axis=0) <= low + 0.02 * width).all()
    assert (x.max(axis=0) >= high - 0.02 * width).all()
    np.testing.assert_allclose(x.mean(axis=0), (low + high) / 2.0, atol=0.1 * width.max())


@pytest.mark.parametrize("design", DESIGNS)
def test_seeds_differ(design: str, toy: Problem) -> None:
    one, other = sample(toy, 8, 0, design=design), sample(toy, 8, 1, design=design)
    assert not np.isclose(one, other).any()


@pytest.mark.parametrize(
    ("design", "expected"),
    [
        (
            "uniform",
            [[-0.3723487927874538, -0.16232596101844599], [-0.4787003798394003, -0.5584173039741365]],
        ),
        ("sobol", [[-0.37234879191964865, -0.16232596058398485], [0.6276512080803514, 0.8376740394160151]]),
    ],
)
def test_the_stream_is_written_down(design: str, expected: list[list[float]], toy: Problem) -> None:
    """Labels are stored by seed: another version of anything must not draw other inputs."""
    np.testing.assert_allclose(sample(toy, 2, seed=17, design=design), expected, rtol=0, atol=1e-15)


def test_spread_scales_each_load_by_itself(grid6: Problem) -> None:
    x = sample(grid6, 4000, seed=0, spread=0.4)
    factor = x / grid6.nominal
    assert factor.min() >= 0.6 - 1e-12
    assert factor.max() <= 1.4 + 1e-12
    correlation = np.corrcoef(factor.T) - np.eye(grid6.n_inputs)
    assert abs(correlation).max() < 0.08
    np.testing.assert_array_equal(sample(grid6, 3, 0, spread=0.0), np.tile(grid6.nominal, (3, 1)))
    np.testing.assert_array_equal(sample(grid6, 3, 0), sample(grid6, 3, 0, spread=0.2))


def test_sobol_covers_more_evenly(nonconvex20: Problem) -> None:
    """The mean of each input over 256 rows: scrambled Sobol is far closer to the middle than chance."""
    off = {design: abs(sample(nonconvex20, 256, 3, design=design).mean(axis=0)).max() for design in DESIGNS}
    assert off["sobol"] < off["uniform"] / 5.0


def test_a_sampler_has_no_sobol() -> None:
    with pytest.raises(ProblemError, match="'sobol' needs a box"):
        sample(DRAWN, 3, design="sobol")


def test_no_global_random_state_is_touched(toy: Problem) -> None:
    before = np.random.get_state()[1].copy()  # noqa: NPY002 - to see that nobody uses it
    sample(toy, 5, 0)
    sample(DRAWN, 5, 0)
    np.testing.assert_array_equal(before, np.random.get_state()[1])  # noqa: NPY002
