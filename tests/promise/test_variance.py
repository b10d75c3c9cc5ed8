"""Variances of posterior predictions: the law of total variance, the paper's version, and alpha."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from feasibly.promise import (
    PromiseError,
    Spread,
    measure_alpha,
    measure_spread,
)

matrices = hnp.arrays(
    np.float64,
    st.tuples(st.integers(2, 6), st.integers(2, 7), st.integers(1, 3)),
    elements=st.floats(-10, 10, width=32),
)


@given(predictions=matrices, seed=st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_total_variance_is_the_variance_of_all_errors(predictions: np.ndarray, seed: int) -> None:
    labels = np.random.default_rng(seed).normal(size=predictions.shape[1:])
    report = measure_alpha(measure_spread(predictions), labels, resamples=5)
    errors = labels - predictions
    np.testing.assert_allclose(
        report.total, errors.reshape(-1, errors.shape[2]).var(axis=0), atol=1e-9, rtol=1e-9
    )


@given(predictions=matrices, seed=st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_the_papers_version_never_exceeds_twice_mpv_and_ignores_the_labels(predictions, seed) -> None:
    spread = measure_spread(predictions)
    rng = np.random.default_rng(seed)
    near, far = rng.normal(size=spread.mean.shape), 1e3 * rng.normal(size=spread.mean.shape)
    one, other = measure_alpha(spread, near, resamples=5), measure_alpha(spread, far, resamples=5)
    assert one.paper is not None
    assert (one.paper <= 2.0 * one.mpv * (1 + 1e-12) + 1e-12).all()
    np.testing.assert_array_equal(one.paper, other.paper)
    errors = near - predictions
    by_hand = errors.var(axis=0).mean(axis=0) + errors.mean(axis=1).var(axis=0)
    np.testing.assert_allclose(one.paper, by_hand, atol=1e-9)


@given(predictions=matrices)
@settings(max_examples=40, deadline=None)
def test_draws_may_come_one_by_one(predictions: np.ndarray) -> None:
    found = measure_spread(draw for draw in predictions)
    np.testing.assert_allclose(found.mean, predictions.mean(axis=0), atol=1e-9)
    np.testing.assert_allclose(found.variance, predictions.var(axis=0), atol=1e-9)
    np.testing.assert_allclose(found.draw_mean, predictions.mean(axis=1), atol=1e-9)


def _posterior(overconfidence: float, seed: int = 0):
    """A centre that is off by as much as a calibrated posterior would spread, over `overconfidence`."""
    rng = np.random.default_rng(seed)
    labels = rng.normal(size=(400, 3))
    centre = labels + 0.1 * rng.normal(size=labels.shape)
    draws = centre + 0.1 / np.sqrt(overconfidence) * rng.normal(size=(300, *labels.shape))
    return measure_spread(draws), labels


def test_a_calibrated_posterior_measures_alpha_two() -> None:
    reports = [measure_alpha(*_posterior(1.0, seed), seed=seed, resamples=200) for seed in range(20)]
    alpha = np.array([report.alpha for report in reports])
    assert alpha.mean() == pytest.approx(2.0, abs=0.03)
    # Alpha sits on the limit itself, so one interval in forty should lie above it.
    assert np.mean([report.surely_violated for report in reports]) < 0.1
    for report in reports:
        assert (report.alpha_lower < report.alpha).all()
        assert (report.alpha < report.alpha_upper).all()
        # Var|Z| = 1 - 2/pi: the absolute error of a calibrated normal posterior needs much less than 2.
        np.testing.assert_allclose(report.needed, 1 - 2 / np.pi, rtol=0.3)


def test_overconfidence_is_seen_by_the_right_version_and_not_by_the_papers() -> None:
    report = measure_alpha(*_posterior(25.0), seed=1)
    np.testing.assert_allclose(report.alpha, 26.0, rtol=0.2)
    assert report.violated.all()
    assert report.surely_violated.all()
    assert not report.holds
    assert (report.alpha_paper <= 2.0).all()
    assert "violated for 3 of 3 outputs" in report.describe()


def test_underconfidence_holds() -> None:
    report = measure_alpha(*_posterior(0.25), seed=1)
    assert report.holds
    assert "not contradicted" in report.describe()


def test_alphas_interval_covers_most_of_the_time() -> None:
    hits = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        variance = np.full((300, 1), 0.01)
        labels = rng.normal(0, 0.1, (300, 1))
        report = measure_alpha(Spread(np.zeros((300, 1)), variance), labels, seed=seed)
        hits += int(report.alpha_lower[0] <= 2.0 <= report.alpha_upper[0])
    assert 50 <= hits <= 60


def test_outputs_without_spread() -> None:
    mean = np.zeros((10, 3))
    labels = np.c_[np.zeros(10), np.arange(10.0), np.full(10, 0.1)]
    report = measure_alpha(Spread(mean, np.zeros((10, 3))), labels)
    assert report.alpha.tolist() == [1.0, np.inf, 1.0]
    assert report.paper is None
    assert report.violated.tolist() == [False, True, False]
    assert not np.isnan(report.alpha_lower).any()
    assert not np.isnan(report.alpha_upper).any()


def test_the_papers_version_stays_between_one_and_two_where_only_rounding_moves() -> None:
    """An output at a bound has no spread; the last bits of its draws' means are no variance to divide by it."""
    rounding = 1e-17 * np.random.default_rng(0).normal(size=(50, 2))
    spread = Spread(np.zeros((10, 2)), np.zeros((10, 2)), rounding)
    report = measure_alpha(spread, np.c_[np.arange(10.0), np.zeros(10)])
    assert report.alpha.tolist() == [np.inf, 1.0]
    assert report.alpha_paper.tolist() == [1.0, 1.0]
    assert report.paper.tolist() == [0.0, 0.0]


def test_the_verdict_in_words_never_calls_infinity_a_number() -> None:
    mean, labels = np.zeros((40, 3)), np.random.default_rng(0).normal(size=(40, 3))
    silent, rare = np.zeros((40, 3)), np.zeros((40, 3))
    words = measure_alpha(Spread(mean, silent), labels).describe()
    assert words == (
        "The hypothesis (alpha <= 2) is violated for 3 of 3 outputs (for 3 the whole interval lies above it). For 3 "
        "outputs the posterior states no spread at all and the errors vary: no alpha is enough. Bounds that rest on "
        "it are no promises."
    )
    rare[0], rare[:, 1] = 1.0, 0.0  # one instance with a spread, which a resample may well leave out
    words = measure_alpha(Spread(mean, rare), labels).describe()
    assert "For 1 output the posterior states no spread" in words
    assert "The largest finite alpha measured is" in words
    assert "or more with confidence 0.95, with no upper end: too few instances show any spread" in words
    assert "inf" not in words.replace("finite", "")
    spread = np.full((40, 3), 1.1 * labels.var(axis=0))  # alpha is 1.9
    words = measure_alpha(Spread(mean, spread), labels).describe()
    assert words.startswith(
        "The hypothesis (alpha <= 2) is not contradicted, nor is it sure for 3 outputs, whose interval reaches above"
    )
    assert "finite" not in words


def test_bad_shapes_are_told() -> None:
    spread = measure_spread(np.zeros((3, 4, 2)))
    with pytest.raises(PromiseError, match="2 dimensions"):
        measure_spread(np.zeros((3, 4)))
    with pytest.raises(PromiseError, match="two posterior draws"):
        measure_spread(np.zeros((1, 4, 2)))
    with pytest.raises(PromiseError, match="same shape"):
        measure_alpha(spread, np.zeros((4, 3)))
    with pytest.raises(PromiseError, match="at least two"):
        measure_alpha(measure_spread(np.zeros((3, 1, 2))), np.zeros((1, 2)))
    with pytest.raises(PromiseError, match="NaN"):
        measure_spread(np.full((3, 4, 2), np.nan))
    with pytest.raises(PromiseError, match="one shape"):
        measure_spread([np.zeros((4, 2)), np.zeros((5, 2))])
