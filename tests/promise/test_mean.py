"""Bounds on a mean: formulas by hand, monotonicity, coverage, and what bad numbers are told."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from certificate_tables import implied_range
from feasibly.promise import (
    MeanBound,
    PromiseError,
    bernstein,
    betting,
    empirical_bernstein,
    hoeffding,
    maurer_pontil,
    mpv_bernstein,
)
from feasibly.promise.betting import _CAP

BOUNDS = {
    "hoeffding": hoeffding,
    "empirical-bernstein": empirical_bernstein,
    "maurer-pontil": maurer_pontil,
    "betting": betting,
    "bernstein": lambda errors, range, confidence=0.95, **kw: bernstein(
        errors, range, 0.01, confidence, **kw
    ),
    "mpv-bernstein": lambda errors, range, confidence=0.95, **kw: mpv_bernstein(
        errors, range, 0.005, confidence, **kw
    ),
}
# Betting depends on the order of the errors: it is monotone on average, not sample by sample.
CLOSED = sorted(set(BOUNDS) - {"betting"})
# The others are told a variance, in the errors' own units.
UNITLESS = sorted(set(BOUNDS) - {"bernstein", "mpv-bernstein"})
all_bounds = pytest.mark.parametrize("name", sorted(BOUNDS))
samples = hnp.arrays(
    np.float64, st.tuples(st.integers(3, 40), st.integers(1, 3)), elements=st.floats(0.0, 1.0, width=32)
)
confidences = st.sampled_from([0.5, 0.8, 0.9, 0.95, 0.99])


def test_formulas_against_numbers_worked_by_hand() -> None:
    errors = np.array([0.0, 0.0, 1.0, 1.0] * 25)  # M = 100, mean 1/2, variance 1/4 (25/99 unbiased)
    assert hoeffding(errors, 1.0).epsilon == pytest.approx(math.sqrt(3.6888794541139363 / 200))
    assert empirical_bernstein(errors, 1.0).epsilon == pytest.approx(
        math.sqrt(0.5 * math.log(60) / 100) + 3 * math.log(60) / 100
    )
    assert maurer_pontil(errors, 1.0).epsilon == pytest.approx(
        math.sqrt(2 * (25 / 99) * math.log(80) / 100) + 7 * math.log(80) / (3 * 99)
    )
    assert bernstein(errors, 1.0, 0.25).epsilon == pytest.approx(
        math.sqrt(0.5 * math.log(40) / 100) + 2 * math.log(40) / 300
    )
    assert mpv_bernstein(errors, 1.0, 0.125).epsilon == pytest.approx(bernstein(errors, 1.0, 0.25).epsilon)
    assert hoeffding(errors, 1.0).mean == pytest.approx(0.5)


@all_bounds
@given(errors=samples, confidence=confidences)
@settings(max_examples=25, deadline=None)
def test_the_interval_holds_the_sample_mean_and_stays_in_range(
    name: str, errors: np.ndarray, confidence: float
) -> None:
    bound = BOUNDS[name](errors, 1.0, confidence)
    assert bound.lower.shape == bound.upper.shape == errors.shape[1:]
    assert (bound.lower >= 0).all()
    assert (bound.upper <= 1).all()
    assert (bound.lower <= errors.mean(axis=0) + 1e-12).all()
    assert (bound.upper >= errors.mean(axis=0) - 1e-12).all()
    assert (bound.epsilon >= 0).all()


@pytest.mark.parametrize("name", CLOSED)
@given(errors=samples, low=confidences, high=confidences)
@settings(max_examples=25, deadline=None)
def test_more_confidence_is_never_narrower(name: str, errors: np.ndarray, low: float, high: float) -> None:
    low, high = min(low, high), max(low, high)
    small, large = BOUNDS[name](errors, 1.0, low), BOUNDS[name](errors, 1.0, high)
    assert (large.epsilon >= small.epsilon - 1e-12).all()


@pytest.mark.parametrize("name", CLOSED)
@given(errors=samples, factor=st.floats(1.0, 50.0))
@settings(max_examples=25, deadline=None)
def test_a_larger_range_is_never_narrower(name: str, errors: np.ndarray, factor: float) -> None:
    assert (BOUNDS[name](errors, factor).epsilon >= BOUNDS[name](errors, 1.0).epsilon - 1e-12).all()


@pytest.mark.parametrize("name", CLOSED)
@given(errors=samples, times=st.integers(2, 5))
@settings(max_examples=25, deadline=None)
def test_more_of_the_same_errors_is_narrower(name: str, errors: np.ndarray, times: int) -> None:
    once, often = BOUNDS[name](errors, 1.0), BOUNDS[name](np.tile(errors, (times, 1)), 1.0)
    assert (often.epsilon <= once.epsilon + 1e-12).all()


def test_betting_narrows_on_average_with_count_and_widens_with_range_and_confidence() -> None:
    rng = np.random.default_rng(0)
    errors = rng.beta(2.0, 10.0, (800, 200))
    width = [betting(errors[:count], 1.0).width.mean() for count in (25, 100, 400, 800)]
    assert width == sorted(width, reverse=True)
    width = [betting(errors[:100], range).width.mean() for range in (1.0, 2.0, 8.0)]
    assert width == sorted(width)
    width = [betting(errors[:100], 1.0, confidence).width.mean() for confidence in (0.8, 0.9, 0.99)]
    assert width == sorted(width)


@pytest.mark.parametrize("name", UNITLESS)
@given(errors=samples, scale=st.floats(1e-3, 1e3))
@settings(max_examples=20, deadline=None)
def test_units_do_not_matter(name: str, errors: np.ndarray, scale: float) -> None:
    one, other = BOUNDS[name](errors, 1.0), BOUNDS[name](errors * scale, scale)
    np.testing.assert_allclose(other.upper, one.upper * scale, rtol=1e-6, atol=1e-8 * scale)
    np.testing.assert_allclose(other.lower, one.lower * scale, rtol=1e-6, atol=1e-8 * scale)


@all_bounds
def test_one_output_among_many_is_bounded_as_if_alone(name: str) -> None:
    errors = np.random.default_rng(1).beta(1, 9, (60, 4))
    together = BOUNDS[name](errors, np.array([1.0, 2.0, 3.0, 4.0]))
    for j in range(4):
        alone = BOUNDS[name](errors[:, j], float(j + 1))
        assert alone.upper.shape == ()
        assert together.upper[j] == pytest.approx(float(alone.upper), abs=1e-12)
        assert together.lower[j] == pytest.approx(float(alone.lower), abs=1e-12)


@all_bounds
def test_simultaneous_is_the_union_bound(name: str) -> None:
    errors = np.random.default_rng(2).beta(1, 9, (60, 5))
    together = BOUNDS[name](errors, 1.0, 0.95, simultaneous=True)
    split = BOUNDS[name](errors, 1.0, 1 - 0.05 / 5)
    np.testing.assert_allclose(together.upper, split.upper, atol=1e-9)
    assert together.simultaneous
    assert together.confidence == 0.95


def test_betting_against_a_plain_grid() -> None:
    """The published definition, computed naively on a grid without blocks, logs or bisection."""
    rng = np.random.default_rng(3)
    for sample in (rng.beta(1, 5, 64), rng.uniform(0.4, 0.41, 48), 1.0 * (rng.random(80) < 0.1)):
        delta, count = 0.1, len(sample)
        x = sample[np.random.default_rng(7).permutation(count)]
        grid = np.linspace(0, 1, 2001)[1:-1]
        up, down = np.ones_like(grid), np.ones_like(grid)
        best_up, best_down = up.copy(), down.copy()
        total, square = 0.5, 0.25
        for turn, value in enumerate(x, start=1):
            bet = math.sqrt(2 * math.log(2 / delta) / (count * square / turn))
            up = up * (1 + np.minimum(bet, _CAP / grid) * (value - grid))
            down = down * (1 - np.minimum(bet, _CAP / (1 - grid)) * (value - grid))
            if turn % 16 == 0 or turn == count:
                best_up, best_down = np.maximum(best_up, up), np.maximum(best_down, down)
            total += value
            square += (value - total / (turn + 1)) ** 2
        kept = grid[(0.5 * best_up < 1 / delta) & (0.5 * best_down < 1 / delta)]
        bound = betting(sample, 1.0, 1 - delta, seed=7)
        step = grid[1] - grid[0]
        assert bound.lower <= kept[0] <= bound.lower + 1.01 * step
        assert bound.upper - 1.01 * step <= kept[-1] <= bound.upper


def test_betting_depends_on_its_seed_and_not_on_hidden_state() -> None:
    errors = np.random.default_rng(4).beta(1, 9, 200)
    first, again = betting(errors, 1.0, seed=5), betting(errors, 1.0, seed=5)
    assert first.upper == again.upper
    assert first.upper != betting(errors, 1.0, seed=6).upper


def test_betting_survives_extremes() -> None:
    errors = np.stack([np.zeros(100), np.ones(100), np.full(100, 0.5), np.r_[np.zeros(99), 1.0]], axis=1)
    bound = betting(errors, 1.0)
    assert np.isfinite(bound.upper).all()
    assert bound.lower[0] == 0.0
    assert bound.upper[1] == 1.0
    assert bound.upper[0] < 0.08  # rule of three with a safety factor; Hoeffding says 0.136
    assert betting([0.3], 1.0).lower == 0.0


def test_betting_on_a_trend_is_never_empty() -> None:
    bound = betting(np.r_[np.zeros(500), np.ones(500)][:, None].repeat(20, 1), 1.0, 0.5, seed=1)
    assert (bound.lower <= bound.mean).all()
    assert (bound.mean <= bound.upper).all()


@pytest.mark.parametrize("name", UNITLESS)
def test_no_range_left_over_for_an_output_that_cannot_err(name: str) -> None:
    bound = BOUNDS[name](np.c_[np.zeros(50), np.full(50, 0.1)], np.array([0.0, 1.0]))
    assert bound.lower[0] == bound.upper[0] == 0.0
    assert bound.upper[1] > 0.1


@all_bounds
@pytest.mark.parametrize(
    ("errors", "range", "confidence", "said"),
    [
        ([0.1, np.nan], 1.0, 0.95, "1 of 2 values are NaN"),
        ([], 1.0, 0.95, "is empty"),
        (np.zeros((2, 2, 2)), 1.0, 0.95, "dimensions"),
        ([0.1, 1.2, 1.3], 1.0, 0.95, "2 of 3 errors exceed the stated range"),
        ([[0.1, 1.2], [0.1, 0.2]], 1.0, 0.95, "in 1 outputs exceed"),
        ([0.1, -0.2], 1.0, 0.95, "negative: pass absolute errors"),
        ([0.1, 0.2], None, 0.95, "State the range R"),
        ([0.1, 0.2], -1.0, 0.95, "must not be negative"),
        ([0.1, 0.2], np.inf, 0.95, "infinite"),
        ([[0.1, 0.2]] * 3, [1.0, 1.0, 1.0], 0.95, "one number or of shape (2,)"),
        ([0.1, 0.2], 1.0, 95, "for 95 % say 0.95"),
        ([0.1, 0.2], 1.0, 1.0, "strictly between 0 and 1"),
        (["a", "b"], 1.0, 0.95, "array of numbers"),
    ],
)
def test_bad_numbers_are_told_what_is_wrong(name, errors, range, confidence, said) -> None:
    with pytest.raises(PromiseError) as caught:
        BOUNDS[name](errors, range, confidence)
    assert said in str(caught.value)


def test_too_few_errors_and_bad_multipliers() -> None:
    with pytest.raises(PromiseError, match="at least 2"):
        maurer_pontil([0.1], 1.0)
    with pytest.raises(PromiseError, match="alpha"):
        mpv_bernstein([0.1, 0.2], 1.0, 0.1, alpha=0.0)
    with pytest.raises(PromiseError, match="variance"):
        bernstein([0.1, 0.2], 1.0, -0.1)


def test_the_range_that_published_figures_imply() -> None:
    assert implied_range(0.064, 1000) == pytest.approx(1.490, abs=5e-4)
    assert implied_range(0.018, 1000, method="empirical-bernstein") == pytest.approx(1.465, abs=5e-4)
    assert implied_range(0.010, 1000, method="bernstein-one-sided") == pytest.approx(5.007, abs=5e-4)
    errors = np.random.default_rng(6).beta(1, 9, 300)
    assert implied_range(float(hoeffding(errors, 2.5).epsilon), 300) == pytest.approx(2.5)
    bound = empirical_bernstein(errors, 2.5)
    read = implied_range(
        float(bound.epsilon), 300, method="empirical-bernstein", variance=float(errors.var())
    )
    assert read == pytest.approx(2.5)
    two = float(bernstein(errors, 2.5, 0.01).epsilon)
    assert implied_range(two, 300, method="bernstein", variance=0.01) == pytest.approx(2.5)
    with pytest.raises(ValueError, match="alone gives more"):
        implied_range(0.001, 100, method="bernstein", variance=1.0)
    with pytest.raises(ValueError, match="betting"):
        implied_range(0.001, 100, method="betting")


def test_a_bound_says_what_it_promises() -> None:
    bound = mpv_bernstein(np.full((100, 2), 0.01), 0.12, 1e-4, simultaneous=True)
    said = bound.describe("voltage error", "p.u.")
    assert isinstance(bound, MeanBound)
    assert "every output at once" in said
    assert "2 times the mean predictive variance" in said
    with pytest.raises(AttributeError):
        bound.mean = 0.0  # type: ignore[misc]
