"""Bounds must cover as often as they say, and the simulation must be able to notice when they do not."""

import numpy as np
import pytest

from feasibly.promise import MeanBound, hoeffding
from simulated import posterior_distribution, simple_distributions, simulate_coverage, standard_bounds

VALID = {name: bound for name, bound in standard_bounds().items() if name != "mpv-bernstein"}


@pytest.mark.parametrize("distribution", simple_distributions(), ids=lambda d: d.name)
def test_valid_bounds_cover(distribution) -> None:
    table = simulate_coverage(VALID, [distribution], (50, 300), (0.8, 0.95), repetitions=400, seed=11)
    assert len(table) == len(VALID) * 4
    assert not table["short"].any(), table[table["short"]]


@pytest.mark.parametrize("distribution", simple_distributions(), ids=lambda d: d.name)
def test_stated_moments_are_those_of_the_draws(distribution) -> None:
    draw = distribution.draw(np.random.default_rng(0), 200_000, 1)
    assert draw.errors.mean() == pytest.approx(distribution.mean, rel=0.1)
    assert draw.errors.var() == pytest.approx(draw.variance, rel=0.1)


def test_betting_is_the_narrowest_valid_bound_here() -> None:
    table = simulate_coverage(VALID, simple_distributions(), (50, 300), (0.95,), repetitions=50, seed=1)
    for name in ("hoeffding", "empirical-bernstein", "maurer-pontil"):
        other = table["width"][table["method"] == name]
        assert (table["width"][table["method"] == "betting"] < other).all()


def test_the_hypothesis_holds_for_an_honest_posterior_and_fails_for_an_overconfident_one() -> None:
    bounds = {name: standard_bounds()[name] for name in ("mpv-bernstein", "betting")}
    honest, sure = posterior_distribution("honest", 1.0), posterior_distribution("sure", 100.0)
    table = simulate_coverage(bounds, [honest, sure], (1000,), (0.95,), repetitions=300, seed=2)
    cell = {(row["method"], row["distribution"]): row for row in table}
    assert not cell["mpv-bernstein", "honest"]["short"]
    assert cell["mpv-bernstein", "sure"]["short"]
    assert cell["mpv-bernstein", "sure"]["coverage"] < 0.8
    assert not cell["betting", "sure"]["short"]
    draw = honest.draw(np.random.default_rng(0), 400_000, 1)
    assert draw.errors.mean() == pytest.approx(honest.mean, rel=0.01)
    assert draw.errors.var() == pytest.approx(draw.variance, rel=0.02)


def test_a_false_bound_is_noticed() -> None:
    """Normal theory on 50 rarely large errors: most samples hold none, and their interval is a point at 0."""

    def normal(draw, confidence: float) -> MeanBound:
        bound = hoeffding(draw.errors, 1.0, confidence)
        half = 1.96 * draw.errors.std(axis=0) / np.sqrt(len(draw.errors))
        return MeanBound(**(vars(bound) | {"lower": bound.mean - half, "upper": bound.mean + half}))

    table = simulate_coverage({"normal": normal}, simple_distributions(), (50,), (0.95,), repetitions=300)
    assert table[table["distribution"] == "rarely large"]["short"].all()


def test_the_same_seed_gives_the_same_table() -> None:
    first, again = (
        simulate_coverage(VALID, simple_distributions()[:1], (50,), (0.9,), repetitions=20, seed=5)
        for _ in range(2)
    )
    np.testing.assert_array_equal(first, again)


def test_what_cannot_be_simulated_is_refused() -> None:
    with pytest.raises(ValueError, match="posterior"):
        simulate_coverage(standard_bounds(), simple_distributions()[:1], (50,), repetitions=2)
    with pytest.raises(ValueError, match="repetition"):
        simulate_coverage(VALID, simple_distributions()[:1], (50,), repetitions=0)
    with pytest.raises(ValueError, match="overconfidence"):
        posterior_distribution("x", 0.0)
