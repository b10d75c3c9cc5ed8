"""Making certificates: what is promised is what was counted, and it comes true."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import certificate_tables
import feasibly as fb
from feasibly import promise
from feasibly.certificate import CertificateError
from feasibly.certificate.making.alphas import Variance
from feasibly.certificate.making.split import Scored
from feasibly.certificate.sentences import SHELL
from feasibly.data.dataset import Dataset
from feasibly.measure.metrics import measure_rows
from feasibly.model.linear import LinearModel
from feasibly.proxy import Proxy
from tests.certified import MEAN, believer, gaps, solved
from tests.problems import CASES, make

ROOT = Path(__file__).parents[2]


# ---- what is counted ------------------------------------------------------------------------------------


def test_limits_are_order_statistics_of_what_the_proxy_answers(toy_data: Dataset) -> None:
    proxy = believer(toy_data, 100)
    made = fb.certify(proxy, toy_data, 0.9, **MEAN).answers["mean"]
    proxy.certificate = None
    rest = toy_data.take(np.arange(100, 320))
    found = proxy.predict(rest.x, "mean")
    rank = math.ceil(221 * 0.9)
    assert made.gap is not None
    assert float(made.gap.limit) == np.sort(gaps(rest, found.objective))[rank - 1]
    assert made.labels == 220
    scale = np.maximum(found.std, 1e-3 * np.sqrt(proxy.model.covariance.variance))
    ratio = np.abs(rest.y - found.y) / scale
    assert made.each is not None
    np.testing.assert_allclose(made.each.quantile, np.sort(ratio, axis=0)[rank - 1], rtol=1e-12)
    # The joint region: its shape from a quarter of the labels, its size from the others.
    ratio = ratio[np.random.default_rng(0).permutation(220)]
    worst = (ratio[:55] / np.sqrt(np.mean(ratio[:55] ** 2, axis=0))).max(axis=1)
    shape = ratio[:55][worst <= np.quantile(worst, 0.9)].max(axis=0)
    size = np.sort((ratio[55:] / shape).max(axis=1))[math.ceil(166 * 0.9) - 1]
    assert made.joint is not None
    np.testing.assert_allclose(made.joint.quantile, size * shape, rtol=1e-12)


def test_rows_of_training_take_no_part(toy_data: Dataset) -> None:
    proxy = believer(toy_data, 100)
    whole = fb.certify(proxy, toy_data, 0.9, **MEAN)
    rest = fb.certify(proxy, toy_data.take(np.arange(100, 320)), 0.9, **MEAN)
    assert whole.labels == rest.labels == 220
    assert "220 labels that the proxy was not trained on" in whole.describe()
    assert sorted(whole.answers["mean"].mean) == ["outputs"]
    for name, bound in whole.answers["mean"].mean["outputs"].items():
        if name != "betting":  # which depends on the order, and the permutation of other positions differs
            np.testing.assert_array_equal(bound.upper, rest.answers["mean"].mean["outputs"][name].upper)


def test_a_row_that_stands_twice_counts_once(toy_data: Dataset) -> None:
    proxy = believer(toy_data, 100)
    twice = toy_data.take(np.concatenate([np.arange(320), np.arange(150, 320)]))
    assert fb.certify(proxy, twice, 0.9, **MEAN).labels == 220


def test_violations_come_from_unlabelled_inputs_and_need_no_labels(toy_data: Dataset) -> None:
    proxy = believer(toy_data, 100)
    inputs = fb.sample(toy_data.problem, 99, seed=5)
    wrong = Dataset.from_arrays(toy_data.problem, toy_data.x, toy_data.y + 0.1)
    first, second = (fb.certify(proxy, data, 0.9, **{**MEAN, "inputs": inputs}) for data in (toy_data, wrong))
    proxy.certificate = None
    found = proxy.predict(inputs, "mean")
    assert float(first.answers["mean"].max_ineq.limit) == np.sort(found.max_inequality)[89]
    assert float(second.answers["mean"].max_ineq.limit) == float(first.answers["mean"].max_ineq.limit)
    assert first.answers["mean"].unlabelled == 99
    assert first.inputs_from == "given by the caller"


def test_inputs_are_drawn_only_where_the_data_look_drawn_so() -> None:
    honest, problem = solved("unconstrained", 200, 0), make("unconstrained")
    x = 0.2 * fb.sample(problem, 200, seed=3)
    narrow = Dataset.from_arrays(problem, x, CASES["unconstrained"].optimum(x))  # type: ignore[misc]
    assert "seem to be" in fb.certify(believer(honest, 50), honest, 0.9, **MEAN).inputs_from
    other = fb.certify(believer(narrow, 50), narrow, 0.9, **MEAN)
    assert "the data's own 150 inputs" in other.inputs_from
    assert other.unlabelled == 150


def test_too_few_labels_says_how_many(toy_data: Dataset) -> None:
    some = toy_data.take(np.arange(112))
    with pytest.raises(fb.FeasiblyError, match="needs at least 19 calibration labels and there are 12"):
        fb.certify(believer(toy_data, 100), some, 0.95, **MEAN)
    with pytest.raises(fb.FeasiblyError, match="label at least 19 more rows, or use the variant 'cross'"):
        fb.certify(believer(toy_data, 112), some, 0.95, **MEAN)
    words = (
        "0.95 for 3 promises that hold together needs at least 59 calibration labels and there are 30: add 29"
    )
    with pytest.raises(fb.FeasiblyError, match=words) as caught:
        fb.certify(believer(toy_data, 290), toy_data, 0.95, simultaneous=True, **MEAN)
    offered = float(str(caught.value).split("confidence ")[-1].split(" ")[0])
    made = fb.certify(believer(toy_data, 290), toy_data, offered, simultaneous=True, **MEAN)
    assert made.labels == 30
    # A third of 0.1 rounded up would ask for 30.
    assert fb.certify(believer(toy_data, 291), toy_data, 0.9, simultaneous=True, **MEAN).labels == 29


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"confidence": 95.0}, "for 95 % say 0.95"),
        ({"answers": ("best",)}, "there is no answer 'best'"),
        ({"answers": "mean"}, "must be a list"),
        ({"variant": "loo"}, "there is no variant 'loo'"),
        ({"ranges": {"vm": 1.0}}, "nothing called 'vm'"),
        ({"ranges": {"y": -1.0}}, "finite number of zero or more"),
    ],
)
def test_bad_requests(toy_data: Dataset, asked: dict[str, Any], words: str) -> None:
    with pytest.raises(fb.FeasiblyError, match=words):
        fb.certify(believer(toy_data, 100), toy_data, **{**MEAN, **asked})


def test_data_of_another_problem(toy_data: Dataset, plain: Dataset) -> None:
    with pytest.raises(CertificateError, match="belong to another problem"):
        fb.certify(believer(toy_data, 100), plain)


# ---- whether it comes true ------------------------------------------------------------------------------


@pytest.mark.parametrize("region", ["joint", "each"])
def test_intervals_cover_as_often_as_promised(toy_data: Dataset, region: str) -> None:
    proxy = believer(toy_data, 100)
    fb.certify(proxy, toy_data, 0.9, **MEAN)
    fresh = solved("toy", 4000, 9)
    found = proxy.predict(fresh.x, "mean", region=region)
    assert not found.warnings
    inside = (found.lower <= fresh.y) & (fresh.y <= found.upper)
    covered = inside.all(axis=1) if region == "joint" else inside
    # The share for this one calibration set is Beta distributed; to be outside this range is one chance in 10^4.
    low, high = promise.coverage_range(220, 0.9, share=0.9999)
    assert low - 0.02 < covered.mean() < high + 0.02
    held = (gaps(fresh, found.objective) <= found.gap_limit).mean()
    assert low - 0.02 < held < high + 0.02
    assert (
        low - 0.02 < (found.max_inequality <= float(proxy.certificate.answers["mean"].max_ineq.limit)).mean()
    )  # type: ignore[union-attr]


def test_coverage_over_random_splits(toy_data: Dataset) -> None:
    """The mean over calibration sets is at least what was asked, up to sampling error."""
    pool, shares = solved("toy", 3000, 4), []
    proxy = believer(toy_data, 100)
    for number in range(60):
        order = np.random.default_rng(number).permutation(3000)
        fb.certify(proxy, pool.take(order[:39]), 0.9, answers=("mean",), unlabelled=50, draws=2, seed=number)
        rest = order[39:300]
        found = proxy.predict(pool.x[rest], "mean")
        shares.append(((found.lower <= pool.y[rest]) & (pool.y[rest] <= found.upper)).all(axis=1).mean())
    assert np.mean(shares) > 0.9 - 4 * np.std(shares) / np.sqrt(len(shares))


# ---- mean errors ----------------------------------------------------------------------------------------


def test_the_range_is_the_box_or_stated_and_never_the_sample(toy_data: Dataset, plain: Dataset) -> None:
    boxed = fb.certify(believer(toy_data, 100), toy_data, 0.9, **MEAN).answers["mean"]
    assert set(boxed.mean["outputs"]) == {
        "betting", "maurer-pontil", "hoeffding", "empirical-bernstein", "mpv-bernstein",
    }  # fmt: skip
    for bound in boxed.mean["outputs"].values():
        np.testing.assert_array_equal(bound.range, [1.0, 1.0])
        assert (bound.lower <= bound.mean).all()
        assert (bound.mean <= bound.upper).all()
    assert boxed.clipped[0] > 0  # ridge leaves the box here, and the mean error is of the clipped answer

    proxy = believer(plain, 100)
    silent = fb.certify(proxy, plain, 0.9, **MEAN)
    assert silent.answers["mean"].mean == {}
    assert silent.answers["mean"].absent["y"].startswith("no range R is known")
    assert set(silent.answers["mean"].absent) == {"y", "gap_percent", "max_eq", "max_ineq"}
    assert (
        "No bound on the mean of y, gap_percent, max_eq, max_ineq: no range R is known" in silent.describe()
    )
    stated = fb.certify(proxy, plain, 0.9, ranges={"y": 2.0, "y1": 3.0, "gap_percent": 50.0}, **MEAN).answers[
        "mean"
    ]
    np.testing.assert_array_equal(stated.mean["outputs"]["hoeffding"].range, [2.0, 3.0, 2.0])
    assert stated.mean["gap_percent"]["betting"].count == 200
    assert set(stated.absent) == {"max_eq", "max_ineq"}


def test_sentences_say_what_they_speak_of_and_advice_fits_the_reader(plain: Dataset) -> None:
    made = fb.certify(believer(plain, 100), plain, 0.9, ranges={"gap_percent": 50.0}, **MEAN)
    said = made.sentences()
    assert {sentence.answer for sentence in said} == {"", "mean"}
    assert {sentence.kind for sentence in said} >= {"origin", "next", "mean", "absent", "hypothesis", "void"}
    (absent,) = (sentence for sentence in said if sentence.kind == "absent")
    assert "ranges={name: R}" in absent.say()
    assert "--range NAME=R" in absent.say(SHELL)
    assert "ranges=" not in absent.say(SHELL)
    lines = made.describe().splitlines()
    assert [line.removeprefix("- ") for line in lines if line and not line.startswith("Answers by")] == [
        sentence.say() for sentence in said
    ]


def test_a_stated_range_that_errors_exceed_gives_no_bound(toy_data: Dataset) -> None:
    made = fb.certify(believer(toy_data, 100), toy_data, 0.9, ranges={"max_ineq": 1e-6}, **MEAN)
    assert "max_ineq" not in made.answers["mean"].mean
    assert "exceed the stated range R" in made.answers["mean"].absent["max_ineq"]
    with pytest.raises(fb.FeasiblyError, match="exceed the stated range R"):
        fb.certify(believer(toy_data, 100), toy_data, 0.9, ranges={"y": 1e-6}, **MEAN)


def test_an_overconfident_posterior_is_named(toy_data: Dataset) -> None:
    def boast(model: LinearModel) -> LinearModel:
        return dataclasses.replace(model, root=1e-3 * model.root, loads=1e3 * model.loads)  # the same mean

    def doubt(model: LinearModel) -> LinearModel:
        return dataclasses.replace(model, root=30.0 * model.root, loads=model.loads / 30.0)

    bold = fb.certify(believer(toy_data, 100, boast), toy_data, 0.9, **MEAN)
    report = bold.answers["mean"].alpha
    assert report is not None
    assert report.surely_violated.all()
    assert report.alpha_paper is not None
    assert (report.alpha_paper <= 2.0).all()  # as the paper writes it, it cannot fail
    assert "is violated for 2 of 2 outputs" in bold.describe()
    assert "By the paper's own formula alpha lies between 1 and 2 for any posterior" in bold.describe()
    meek = fb.certify(believer(toy_data, 100, doubt), toy_data, 0.9, **MEAN)
    assert meek.answers["mean"].alpha is not None
    assert meek.answers["mean"].alpha.holds
    assert "is not contradicted" in meek.describe()
    first, second = (c.answers["mean"].mean["outputs"]["mpv-bernstein"] for c in (bold, meek))
    assert (first.epsilon < second.epsilon).all()


def test_the_papers_alpha_cannot_exceed_two_when_rows_get_no_answer() -> None:
    """The only row on which an output has any spread is the one without an answer: seen on case57, as "at most inf"."""
    draws = np.zeros((20, 6, 1))
    draws[:, 5, 0] = np.random.default_rng(0).normal(size=20)
    rows = np.arange(6)
    y, nothing = np.zeros((6, 1)), np.zeros(6)
    scored = Scored(y, y, nothing, nothing, nothing, rows < 5, {})
    variance = Variance(rows, promise.measure_spread(draws), np.ones(1), "20 posterior draws")
    report = variance.alpha(scored, np.arange(6.0)[:, None], rows, limit=2.0, confidence=0.9)
    assert report is not None
    assert report.count == 5
    assert np.isinf(report.alpha).all()
    assert report.alpha_paper is not None
    assert (report.alpha_paper >= 1.0).all()
    assert (report.alpha_paper <= 2.0).all()


def test_metrics_have_the_papers_bound_too_and_its_alpha_beside_it(toy_data: Dataset, tmp_path: Path) -> None:
    proxy = believer(toy_data, 100)
    inputs = fb.sample(toy_data.problem, 300, seed=5)
    stated = {"gap_percent": 1e7, "max_ineq": 10.0}
    asked: dict[str, Any] = {"answers": ("mean",), "inputs": inputs, "draws": 40, "ranges": stated}
    certificate = fb.certify(proxy, toy_data, 0.9, **asked)
    made = certificate.answers["mean"]
    answers = np.stack(list(proxy.model.draws(inputs, 40, 0)))
    by_hand = [measure_rows(toy_data.problem, inputs, y) for y in answers]
    cost = np.stack([rows.objective for rows in by_hand])
    mpv = {
        "gap_percent": np.mean(cost.var(axis=0) * (100.0 / cost.mean(axis=0)) ** 2),
        "max_ineq": np.stack([rows.max_ineq for rows in by_hand]).var(axis=0).mean(),
    }
    log = math.log(2.0 / 0.1)
    assert set(made.mean) == {"outputs", *stated}
    for name, size in stated.items():
        bound = made.mean[name]["mpv-bernstein"]
        epsilon = math.sqrt(4.0 * mpv[name] * log / bound.count) + 2.0 * size * log / (3.0 * bound.count)
        assert float(bound.epsilon) == pytest.approx(epsilon, rel=1e-11)
    proxy.certificate = None
    kept = toy_data.take(np.random.default_rng(0).permutation(np.arange(100, 320))[55:])
    gap = gaps(kept, proxy.predict(kept.x, "mean").objective)
    assert made.metric_alpha["gap_percent"].count == 165
    assert made.metric_alpha["max_ineq"].count == 300
    assert float(made.metric_alpha["gap_percent"].between[0]) == pytest.approx(gap.var())
    words = certificate.describe()
    assert "For the largest limit violation, mpv-bernstein rests on a hypothesis." in words
    proxy.certificate = certificate
    proxy.save(tmp_path / "model")
    again = Proxy.load(tmp_path / "model", problem=toy_data.problem).certificate
    assert again is not None
    assert again.describe() == words
    assert fb.certify(proxy, toy_data, 0.9, **MEAN).answers["mean"].metric_alpha == {}  # no range, no bound


def test_mpv_is_the_posterior_variance_of_unlabelled_inputs(toy_data: Dataset) -> None:
    proxy = believer(toy_data, 100)
    inputs = fb.sample(toy_data.problem, 300, seed=5)
    made = fb.certify(proxy, toy_data, 0.9, inputs=inputs, answers=("mean",), draws=4000).answers["mean"]
    model = proxy.model
    assert isinstance(model, LinearModel)
    reach = model.inputs.apply(inputs) @ model.root
    exact = np.mean(np.sum(reach**2, axis=1)) * model.covariance.variance
    bound = made.mean["outputs"]["mpv-bernstein"]
    log = math.log(2.0 / 0.1)
    mpv = ((bound.epsilon - 2.0 * log / (3.0 * 220)) ** 2) * 220 / (2.0 * log) / 2.0
    np.testing.assert_allclose(mpv, exact, rtol=0.1)


def test_all_at_once(toy_data: Dataset) -> None:
    proxy = believer(toy_data, 100)
    one = fb.certify(proxy, toy_data, 0.9, **MEAN).answers["mean"]
    together = fb.certify(proxy, toy_data, 0.9, simultaneous=True, **MEAN)
    many = together.answers["mean"]
    assert (many.mean["outputs"]["hoeffding"].epsilon > one.mean["outputs"]["hoeffding"].epsilon).all()
    assert many.gap is not None
    assert many.gap.confidence == pytest.approx(1 - 0.1 / 3)
    assert many.gap.limit >= one.gap.limit  # type: ignore[union-attr]
    assert "hold together" in together.describe()


# ---- the page -------------------------------------------------------------------------------------------


def test_the_page_shows_the_stored_result() -> None:
    page = (ROOT / "docs" / "guarantees.md").read_text()
    result = json.loads((ROOT / "benchmarks" / "results" / "certificates.json").read_text())
    assert certificate_tables.insert(page, certificate_tables.render(result)) == page
    guarantee = promise.cv_plus(np.zeros(512), np.zeros((8, 1)), np.repeat(np.arange(8), 64), 0.95).guarantee
    assert f"with 512 labels {100 * guarantee:.1f} % at a nominal 95 %" in page
    for methods in result["cases"].values():
        for made in methods.values():
            for row in made["coverage"]:
                assert row["splits"] >= 100
                for name in ("each", "joint", "gap", "max_eq", "max_ineq"):
                    assert row[name]["mean"] > row["confidence"] - 4 * row[name]["error"], (
                        row["answer"],
                        name,
                    )
