"""Jackknife+ and CV+: the published definition by hand, coverage with real refits, honest guarantees."""

import math

import numpy as np
import pytest

from feasibly.promise import PromiseError, TooFewLabelsError, cv_plus, jackknife_plus


def _fit(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.linalg.solve(x.T @ x + 1e-3 * np.eye(x.shape[1]), x.T @ y)


def _refits(x, y, fold, new):
    """Residuals, and predictions of new instances, by models that left each fold out."""
    residuals, predictions = np.empty_like(y), []
    for k in range(fold.max() + 1):
        weights = _fit(x[fold != k], y[fold != k])
        residuals[fold == k] = y[fold == k] - x[fold == k] @ weights
        predictions.append(new @ weights)
    return residuals, np.stack(predictions)


def _world(rng: np.random.Generator, count: int, outputs: int = 2):
    x = rng.normal(size=(count, 8))
    weights = np.linspace(-1, 1, 8 * outputs).reshape(8, outputs)
    return x, x @ weights + rng.standard_t(3, size=(count, outputs)) * (0.2 + np.abs(x[:, :1]))


def test_against_the_definition() -> None:
    rng = np.random.default_rng(0)
    residuals, predictions = rng.normal(size=25), rng.normal(size=(25, 3))
    result = jackknife_plus(residuals, predictions, 0.9)
    for i in range(3):
        ups = sorted(predictions[:, i] + np.abs(residuals))
        downs = sorted(predictions[:, i] - np.abs(residuals))
        assert result.upper[i, 0] == ups[math.ceil(0.9 * 26) - 1]
        assert result.lower[i, 0] == downs[math.floor(0.1 * 26 + 1e-9) - 1]
    assert result.lower.shape == (3, 1)
    assert result.guarantee == pytest.approx(0.8)
    assert result.nominal == 0.9


@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("folds", [30, 6])
def test_coverage_with_real_refits(folds: int, joint: bool) -> None:
    rng = np.random.default_rng(1)
    hits = []
    for _ in range(120):
        x, y = _world(rng, 50)
        fold = rng.permutation(np.arange(30) % folds)
        residuals, predictions = _refits(x[:30], y[:30], fold, x[30:])
        if folds == 30:
            order = np.argsort(fold)
            result = jackknife_plus(residuals[order], predictions, 0.9, joint=joint)
        else:
            result = cv_plus(residuals, predictions, fold, 0.9, joint=joint)
        inside = (result.lower <= y[30:]) & (y[30:] <= result.upper)
        hits.append((inside.all(axis=1) if joint else inside).mean())
    assert np.mean(hits) > 0.85 > result.guarantee
    assert result.folds == folds
    assert result.count == 30


def test_cv_plus_with_one_label_a_fold_is_jackknife_plus() -> None:
    rng = np.random.default_rng(2)
    residuals, predictions = rng.normal(size=(20, 3)), rng.normal(size=(20, 4, 3))
    one = jackknife_plus(residuals, predictions, 0.9)
    other = cv_plus(residuals, predictions, np.arange(20), 0.9)
    np.testing.assert_array_equal(one.lower, other.lower)
    np.testing.assert_array_equal(one.upper, other.upper)
    assert one.guarantee == other.guarantee == pytest.approx(0.8)


def test_the_guarantee_of_cv_plus_is_smaller() -> None:
    residuals, predictions = np.zeros(100), np.zeros((10, 2))
    result = cv_plus(residuals, predictions, np.arange(100) % 10, 0.9)
    assert result.guarantee == pytest.approx(0.8 - min(2 * 0.9 / 11, 0.9 / 11))
    assert "at least 0.7182 (usually near 0.9" in result.describe()
    assert cv_plus(np.zeros(4), np.zeros((2, 1)), [0, 1, 0, 1], 0.5).guarantee == 0.0


def test_scaled_intervals_widen_where_the_models_say_so() -> None:
    rng = np.random.default_rng(3)
    scale = np.exp(rng.normal(size=(40, 2)))
    residuals = scale * rng.normal(size=(40, 2))
    ahead = np.broadcast_to(np.array([[1.0, 1.0], [7.0, 7.0]]), (40, 2, 2))
    result = jackknife_plus(residuals, np.zeros((40, 2, 2)), 0.9, residual_scale=scale, scale=ahead)
    np.testing.assert_allclose(result.upper[1], 7 * result.upper[0])


def test_a_joint_region_is_wider_than_separate_ones() -> None:
    rng = np.random.default_rng(4)
    residuals, predictions = rng.normal(size=(40, 5)), np.zeros((40, 1, 5))
    each, joint = (jackknife_plus(residuals, predictions, 0.9, joint=flag) for flag in (False, True))
    assert (joint.upper >= each.upper).all()


def test_too_few_labels() -> None:
    with pytest.raises(TooFewLabelsError, match="at least 19 labels and there are 18"):
        jackknife_plus(np.zeros(18), np.zeros((18, 2)), 0.95)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: jackknife_plus(np.zeros((20, 2)), np.zeros((20, 3))), "(models, instances, 2)"),
        (lambda: jackknife_plus(np.zeros(20), np.zeros((19, 3))), "(20, instances, 1)"),
        (lambda: jackknife_plus(np.full(20, np.nan), np.zeros((20, 3))), "NaN"),
        (lambda: jackknife_plus(np.zeros(20), np.zeros((20, 3)), scale=np.ones((20, 3))), "or neither"),
        (lambda: cv_plus(np.zeros(20), np.zeros((3, 3)), np.arange(20) % 3), "equal size"),
        (lambda: cv_plus(np.zeros(20), np.zeros((2, 3)), np.arange(19) % 2), "one integer"),
        (lambda: cv_plus(np.zeros(20), np.zeros((2, 3)), np.zeros(20)), "one integer"),
        (lambda: cv_plus(np.zeros(20), np.zeros((2, 3)), np.arange(20) % 2 - 1), "equal size"),
    ],
)
def test_bad_shapes_are_told(call, said: str) -> None:
    with pytest.raises(PromiseError) as caught:
        call()
    assert said in str(caught.value)
