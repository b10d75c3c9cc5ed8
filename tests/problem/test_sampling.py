"""Row i depends on the seed and i alone."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feasibly.problem.core import Problem
from feasibly.problem.errors import ProblemError
from feasibly.problem.sampling import DESIGNS, input_range, sample
from tests.problems import CASES, make

IN_A_BOX = ("uniform", "sobol")

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
    if name == "drawn" or (design == "correlated" and problem.spread is None):
        design = "uniform"
    first, longer = (sample(problem, count, seed, design=design) for count in (few, few + more))
    assert first.shape == (few, problem.n_inputs)
    np.testing.assert_array_equal(first, longer[:few])


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("design", IN_A_BOX)
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
def test_seeds_differ(design: str, toy: Problem, grid6: Problem) -> None:
    problem = grid6 if design == "correlated" else toy
    one, other = sample(problem, 8, 0, design=design), sample(problem, 8, 1, design=design)
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
    off = {design: abs(sample(nonconvex20, 256, 3, design=design).mean(axis=0)).max() for design in IN_A_BOX}
    assert off["sobol"] < off["uniform"] / 5.0


def test_correlated_loads_rise_and_fall_together(grid6: Problem) -> None:
    x = sample(grid6, 4000, seed=0, design="correlated")
    np.testing.assert_array_equal(
        x, sample(grid6, 4000, 0, design="correlated", factor=(0.75, 1.1), noise=0.1)
    )
    ratio = x / grid6.nominal
    # Independent draws of the same two factors, made here: the same spread, the same correlation.
    rng = np.random.default_rng(3)
    expected = rng.uniform(0.75, 1.1, (4000, 1)) * rng.uniform(0.9, 1.1, ratio.shape)
    np.testing.assert_allclose(ratio.mean(axis=0), expected.mean(), atol=0.01)
    np.testing.assert_allclose(ratio.std(axis=0), expected.std(), rtol=0.05)
    np.testing.assert_allclose(np.corrcoef(ratio.T), np.corrcoef(expected.T), atol=0.06)
    low, high = input_range(grid6, design="correlated")  # type: ignore[misc]
    ends = np.sort([0.75 * 0.9 * grid6.nominal, 1.1 * 1.1 * grid6.nominal], axis=0)  # one load is negative
    np.testing.assert_allclose([low, high], ends)
    assert ((low <= x) & (x <= high)).all()
    still = sample(grid6, 5, 0, design="correlated", factor=(0.8, 1.2), noise=0.0) / grid6.nominal
    np.testing.assert_allclose(still, np.tile(still[:, :1], (1, grid6.n_inputs)))


def test_the_correlated_stream_is_written_down(grid6: Problem) -> None:
    ratio = sample(grid6, 2, seed=17, design="correlated") / grid6.nominal
    expected = [[0.8458815426913968, 0.8186784375265026], [1.167527300666093, 1.0250060308451523]]
    np.testing.assert_allclose(ratio[:, :2], expected, rtol=0, atol=1e-15)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"design": "correlated", "spread": 0.1},
            "spread: correlated draws have a factor and a noise instead",
        ),
        ({"design": "correlated", "factor": (1.1, 0.9)}, "factor: must be two numbers in rising order"),
        ({"design": "correlated", "factor": (float("nan"), 1.0)}, "factor: must be two numbers"),
        ({"design": "correlated", "noise": -0.1}, "noise: must be zero or more"),
        ({"noise": 0.1}, "noise: applies to the design 'correlated'"),
        ({"design": "sobol", "factor": (0.9, 1.0)}, "factor: applies to the design 'correlated'"),
    ],
)
def test_settings_that_do_not_apply_are_refused(
    grid6: Problem, settings: dict[str, object], sentence: str
) -> None:
    with pytest.raises(ProblemError, match=sentence):
        sample(grid6, 3, **settings)  # type: ignore[arg-type]


def test_correlated_needs_nominal_loads(nonconvex20: Problem) -> None:
    with pytest.raises(ProblemError, match="vary around nominal loads"):
        sample(nonconvex20, 3, design="correlated")


def test_a_sampler_has_no_sobol() -> None:
    with pytest.raises(ProblemError, match="'sobol' needs a box"):
        sample(DRAWN, 3, design="sobol")


def test_no_global_random_state_is_touched(toy: Problem) -> None:
    before = np.random.get_state()[1].copy()  # noqa: NPY002 - to see that nobody uses it
    sample(toy, 5, 0)
    sample(DRAWN, 5, 0)
    np.testing.assert_array_equal(before, np.random.get_state()[1])  # noqa: NPY002
