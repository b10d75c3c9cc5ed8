"""Whether a batch looks like the calibration inputs: few false alarms, real shifts seen, strays named."""

import numpy as np
import pytest

from feasibly.promise import PromiseError, check_batch, learn_reference

WIDTH = 12
LOW, HIGH = np.full(WIDTH, 0.8), np.full(WIDTH, 1.2)


def _inputs(rng: np.random.Generator, count: int) -> np.ndarray:
    return rng.uniform(0.8, 1.2, (count, WIDTH))


@pytest.fixture(scope="module")
def reference():
    return learn_reference(_inputs(np.random.default_rng(0), 600), LOW, HIGH)


@pytest.mark.parametrize("size", [1, 20])
def test_false_alarms_stay_below_the_level(size: int) -> None:
    rng = np.random.default_rng(1)
    alarms, odd, runs = 0, 0, 150
    for run in range(runs):
        seen = learn_reference(_inputs(rng, 120), seed=run)
        check = check_batch(seen, _inputs(rng, size), 0.1, permutations=199, seed=run)
        alarms += check.alarm
        odd += bool(check.odd.any())
    # 0.1 x 150 = 15 expected at most; 28 is more than three standard deviations above.
    assert alarms <= 28
    assert odd <= 28


def test_single_p_values_are_valid(reference) -> None:
    """Averaged over references, P(p <= u) <= u."""
    rng = np.random.default_rng(2)
    small = [
        check_batch(learn_reference(_inputs(rng, 60), seed=k), _inputs(rng, 5), 0.1, permutations=39).p_values
        for k in range(200)
    ]
    assert np.mean(np.concatenate(small) <= 0.2) <= 0.2 + 0.04
    assert np.mean(np.concatenate(small) <= 0.2) >= 0.1


@pytest.mark.parametrize(
    ("change", "statistic"),
    [
        (lambda x: x + 0.05, "location"),
        (lambda x: 1.0 + 1.6 * (x - 1.0), "more leverage"),
        (lambda x: 1.0 + 0.4 * (x - 1.0), "less leverage"),
    ],
)
def test_real_shifts_raise_the_alarm(reference, change, statistic: str) -> None:
    check = check_batch(reference, change(_inputs(np.random.default_rng(3), 60)))
    assert check.alarm
    assert check.statistic == statistic
    assert check.void.all()
    assert "void for all of it" in check.describe()


def test_a_correlation_that_was_not_there_is_seen() -> None:
    rng = np.random.default_rng(4)
    along = rng.uniform(0.9, 1.1, (400, 1)) + 0.01 * rng.normal(size=(400, WIDTH))
    check = check_batch(learn_reference(along), _inputs(rng, 5))
    assert check.alarm
    assert check.odd.all()


def test_an_honest_batch_passes(reference) -> None:
    check = check_batch(reference, _inputs(np.random.default_rng(5), 200))
    assert not check.alarm
    assert not check.void.any()
    assert "Nothing speaks against" in check.describe()


def test_strays_are_named(reference) -> None:
    x = _inputs(np.random.default_rng(6), 30)
    x[4, 2], x[9, 0] = 1.25, 0.5
    names = [f"pd{k}" for k in range(WIDTH)]
    check = check_batch(reference, x, names=names)
    assert np.flatnonzero(check.outside_rows).tolist() == [4, 9]
    assert [(item.row, item.name) for item in check.outside] == [(4, "pd2"), (9, "pd0")]
    assert "row 4: pd2 = 1.25 is above 1.2" in check.describe()
    assert "row 9: pd0 = 0.5 is below 0.8" in check.describe()
    assert check.void[[4, 9]].all()


def test_one_far_instance_is_singled_out(reference) -> None:
    far = np.full((1, WIDTH), 1.6)
    assert check_batch(reference, far).odd.all()
    assert check_batch(reference, far[0]).p_values[0] == pytest.approx(1 / 301)
    batch = np.concatenate([_inputs(np.random.default_rng(7), 2), far])
    assert check_batch(reference, batch, 0.05).odd.tolist() == [False, False, True]


def test_constant_inputs_and_more_inputs_than_samples() -> None:
    rng = np.random.default_rng(8)
    x = np.c_[_inputs(rng, 40), np.ones(40), rng.normal(size=(40, 60))]
    seen = learn_reference(x)
    assert np.isfinite(seen.leverage).all()
    moved = x[:5].copy()
    moved[:, WIDTH] = 100.0
    assert check_batch(seen, moved, 0.1).odd.all()


def test_the_same_seed_gives_the_same_verdict(reference) -> None:
    x = _inputs(np.random.default_rng(9), 10)
    assert check_batch(reference, x, seed=3).batch_p == check_batch(reference, x, seed=3).batch_p


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda r: learn_reference(np.zeros((3, 2))), "At least 8 inputs"),
        (lambda r: learn_reference(np.zeros((9, 2)), low=[0.0, 0.0, 0.0]), "each of 2 inputs"),
        (lambda r: learn_reference(np.full((9, 2), np.nan)), "NaN"),
        (lambda r: check_batch(r, np.zeros((3, 5))), f"must have {WIDTH} inputs"),
        (lambda r: check_batch(r, np.zeros((0, WIDTH))), "empty"),
        (lambda r: check_batch(r, np.ones((3, WIDTH)), 0.001), "at least 3999 permutations"),
        (lambda r: check_batch(r, np.ones((3, WIDTH)), 2.0), "between 0 and 1"),
        (lambda r: check_batch(r, np.ones((3, WIDTH)), names=["a"]), "1 names"),
    ],
)
def test_bad_inputs_are_told(reference, call, said: str) -> None:
    with pytest.raises(PromiseError) as caught:
        call(reference)
    assert said in str(caught.value)


def test_a_very_large_batch_is_affordable(reference) -> None:
    check = check_batch(reference, _inputs(np.random.default_rng(10), 30_000), permutations=399)
    assert check.p_values.shape == (30_000,)
    assert not check.alarm
