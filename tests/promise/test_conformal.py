"""Split conformal: exact on every small case, and plain about what it cannot promise."""

import itertools
import json
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feasibly._codec import pack, unpack
from feasibly.promise import (
    PromiseError,
    TooFewLabelsError,
    calibrate,
    calibrate_scores,
    coverage_range,
    labels_needed,
    to_plain,
)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("values", ["distinct", "ties", "equal"])
def test_coverage_is_exact_by_enumeration(count: int, values: str) -> None:
    """Every order of n + 1 exchangeable scores: the last is covered in at least the asked share of them."""
    pool = {
        "distinct": range(count + 1),
        "ties": [k // 2 for k in range(count + 1)],
        "equal": [3] * (count + 1),
    }
    orders = np.array(list(itertools.permutations(pool[values])), dtype=float)
    for rank in range(1, count + 1):
        confidence = math.floor(1e6 * rank / (count + 1)) / 1e6  # 5/6 as a float lies above 5/6
        covered = sum(
            bool(calibrate(order[:-1], confidence).covers(order[-1], 0.0).all()) for order in orders
        )
        share = Fraction(covered, len(orders))
        if values == "distinct":
            assert share == Fraction(rank, count + 1)
        else:
            assert share >= Fraction(rank, count + 1)


@pytest.mark.parametrize("confidence", [0.5, 0.8, 0.9, 0.95, 0.99, 0.999])
def test_too_few_labels_says_how_many(confidence: float) -> None:
    needed = labels_needed(confidence)
    assert needed == {0.5: 1, 0.8: 4, 0.9: 9, 0.95: 19, 0.99: 99, 0.999: 999}[confidence]
    assert calibrate(np.arange(needed, dtype=float), confidence).rank == needed
    if needed == 1:
        return
    with pytest.raises(TooFewLabelsError, match=f"at least {needed} calibration labels") as caught:
        calibrate(np.arange(needed - 1, dtype=float), confidence)
    assert (caught.value.have, caught.value.needed) == (needed - 1, needed)


def test_the_confidence_an_error_offers_instead_is_really_enough() -> None:
    for have in range(2, 60):
        with pytest.raises(TooFewLabelsError) as caught:
            calibrate(np.arange(have, dtype=float), 0.999)
        offered = float(str(caught.value).split("confidence ")[-1].split(" ")[0])
        assert calibrate(np.arange(have, dtype=float), offered).count == have
    for have in range(4, 60):
        with pytest.raises(TooFewLabelsError, match="for 3 promises that hold together") as caught:
            calibrate(np.ones((have, 3)), 0.999, simultaneous=True)
        offered = float(str(caught.value).split("confidence ")[-1].split(" ")[0])
        assert calibrate(np.ones((have, 3)), offered, simultaneous=True).count == have
    with pytest.raises(TooFewLabelsError, match=r"there are 2: add \d+\.$"):
        calibrate(np.ones((2, 3)), 0.9, simultaneous=True)


def test_ranks_do_not_suffer_from_binary_fractions() -> None:
    for count, confidence, rank in [
        (9, 0.9, 9),
        (19, 0.95, 19),
        (99, 0.07, 7),
        (999, 0.29, 290),
        (99, 0.57, 57),
    ]:
        assert calibrate(np.arange(count, dtype=float), confidence).rank == rank


@given(st.integers(19, 60), st.integers(0, 999), st.floats(0.1, 100.0))
@settings(max_examples=40, deadline=None)
def test_more_confidence_is_never_narrower_and_units_do_not_matter(count, seed, unit) -> None:
    residuals = np.random.default_rng(seed).normal(size=(count, 2))
    quantiles = [calibrate(residuals, level).quantile for level in (0.5, 0.8, 0.9, 0.95)]
    assert all((a <= b).all() for a, b in itertools.pairwise(quantiles))
    np.testing.assert_allclose(calibrate(unit * residuals, 0.9).quantile, unit * quantiles[2])


def _instances(rng: np.random.Generator, count: int):
    """Errors whose size differs between instances and outputs; the last output is always exact."""
    scale = np.exp(rng.normal(size=(count, 1))) * np.array([1.0, 0.1, 3.0, 0.0])
    return scale * rng.normal(size=(count, 4)), scale


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("kind", ["each", "joint", "simultaneous"])
def test_coverage_on_fresh_instances(scaled: bool, kind: str) -> None:
    rng = np.random.default_rng(0)
    hits = []
    for _ in range(150):
        residual, scale = _instances(rng, 150)
        split = slice(0, 100), slice(100, 150)
        region = calibrate(
            residual[split[0]],
            0.9,
            scale=scale[split[0]] if scaled else None,
            joint=kind == "joint",
            simultaneous=kind == "simultaneous",
        )
        inside = region.covers(residual[split[1]], np.zeros((50, 4)), scale[split[1]] if scaled else None)
        assert inside.shape == ((50, 4) if kind == "each" else (50,))
        hits.append(inside.mean(axis=0))
    covered = np.mean(hits, axis=0)
    assert (covered > 0.88).all()
    if kind == "joint":
        assert covered < 0.93
    if kind == "each":
        assert (covered[:3] < 0.93).all()


def test_a_scale_gives_hard_instances_wider_intervals() -> None:
    residual, scale = _instances(np.random.default_rng(1), 200)
    region = calibrate(residual, 0.9, scale=scale, joint=True)
    lower, upper = region.interval(np.zeros((2, 4)), np.array([[1.0, 1.0, 1.0, 0.0], [5.0, 5.0, 5.0, 0.0]]))
    np.testing.assert_allclose((upper - lower)[1], 5 * (upper - lower)[0])
    assert (upper - lower)[0, 3] == 0.0
    with pytest.raises(PromiseError, match="give the scale"):
        region.interval(np.zeros((2, 4)))


def test_an_output_without_spread_but_with_error_needs_a_floor() -> None:
    residual, scale = _instances(np.random.default_rng(2), 100)
    residual[7, 3] = 1e-6
    with pytest.raises(PromiseError, match=r"1 outputs \(3\) have scale 0 and an error"):
        calibrate(residual, 0.9, scale=scale, joint=True)
    region = calibrate(residual, 0.9, scale=scale, joint=True, floor=np.array([0.0, 0.0, 0.0, 1e-5]))
    assert (region.half_width(np.zeros(4)) == region.quantile * np.array([0, 0, 0, 1e-5])).all()
    tiny = np.where(scale == 0, 1e-12, scale)
    blown = calibrate(residual, 0.99, scale=np.where(np.arange(100)[:, None] == 7, tiny, tiny), joint=True)
    held = calibrate(residual, 0.99, scale=tiny, joint=True, floor=1e-5)
    assert held.quantile[0] <= blown.quantile[0]


def test_one_sided_scores() -> None:
    scores = np.arange(1.0, 20.0)
    assert calibrate_scores(scores, 0.95).upper() == 19.0
    assert calibrate_scores(scores, 0.9).upper() == 18.0
    several = calibrate_scores(np.c_[scores, 10 * scores], 0.9, simultaneous=True)
    np.testing.assert_array_equal(several.limit, [19.0, 190.0])  # 0.95 each
    scaled = calibrate_scores(scores, 0.9, scale=scores)
    np.testing.assert_allclose(scaled.upper([1.0, 2.0]), [1.0, 2.0])
    assert scaled.upper(3.0) == pytest.approx(3.0)
    np.testing.assert_allclose(several.upper(), several.limit)


def test_unanswered_instances_count_as_infinitely_bad() -> None:
    scores = np.r_[np.arange(17.0), np.inf, np.inf]
    assert calibrate_scores(scores, 0.85).limit == 16.0
    assert np.isinf(calibrate_scores(scores, 0.9).limit)


def test_coverage_of_one_calibration_set() -> None:
    low, high = coverage_range(100, 0.95)
    rng = np.random.default_rng(3)
    seen = [calibrate_scores(rng.random(100), 0.95).limit for _ in range(4000)]
    assert np.mean((np.array(seen) >= low) & (np.array(seen) <= high)) == pytest.approx(0.9, abs=0.02)
    assert coverage_range(1000, 0.95)[0] > low


def test_promises_travel_as_json() -> None:
    residual, scale = _instances(np.random.default_rng(4), 50)
    for record in (
        calibrate(residual, 0.9, scale=scale, joint=True),
        calibrate_scores(np.r_[np.arange(17.0), np.inf, np.inf], 0.9),
    ):
        plain, arrays = pack(record)
        back = unpack(json.loads(json.dumps(plain, allow_nan=False)), arrays, type(record))
        for name, value in vars(record).items():
            np.testing.assert_array_equal(getattr(back, name), value)
        json.dumps(to_plain(record), allow_nan=False)


def test_promises_in_words() -> None:
    region = calibrate(np.ones((20, 3)), 0.9, joint=True)
    assert "all 3 voltages together lie" in region.describe("voltage")
    assert "at most 1 with probability at least 0.9" in calibrate_scores(np.ones(20), 0.9).describe("gap")


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: calibrate([np.nan] * 30), "NaN"),
        (lambda: calibrate([]), "empty"),
        (lambda: calibrate(np.zeros((30, 2)), scale=np.ones((30, 3))), "same shape"),
        (lambda: calibrate(np.zeros((30, 2)), scale=-np.ones((30, 2))), "negative"),
        (lambda: calibrate(np.zeros((30, 2)), joint=True, simultaneous=True), "not both"),
        (lambda: calibrate(np.zeros((30, 2))).interval(np.zeros((5, 3))), "2 outputs"),
        (lambda: calibrate_scores(np.full(30, np.nan)), "NaN"),
        (lambda: calibrate_scores(np.zeros(30), scale=np.zeros(30)), "positive"),
        (lambda: calibrate_scores(np.zeros(30), scale=np.ones(29)), "each of 30"),
        (lambda: calibrate_scores(np.zeros(30), scale=np.ones(30)).upper(), "give the scale"),
        (lambda: calibrate(np.zeros(30), 0.0), "between 0 and 1"),
    ],
)
def test_bad_numbers_are_told_what_is_wrong(call, said: str) -> None:
    with pytest.raises(PromiseError) as caught:
        call()
    assert said in str(caught.value)
