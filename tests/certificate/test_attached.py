"""Certificates in use: attached to answers, withdrawn when they should be, saved with the model."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

import feasibly as fb
from feasibly import promise
from feasibly.answer.auto import difficulty
from feasibly.answer.schedule import CONFIRMED
from feasibly.answer.settings import METHOD_VERSION
from feasibly.certificate import Rule
from feasibly.data.dataset import Dataset
from feasibly.problem.errors import CertificateWarning
from feasibly.promise import ScoreLimit
from feasibly.proxy import Proxy
from tests.certified import MEAN, believer, gaps, solved
from tests.proxies import patient
from tests.sealed import edit


@pytest.fixture(scope="module")
def full(toy_data: Dataset) -> Proxy:
    """A proxy with the whole ladder, certified for all of it."""
    proxy = patient(fb.fit(toy_data.problem, toy_data, "ridge", labels=60, budget=900.0))
    fb.certify(
        proxy, toy_data, 0.9, answers=("mean", "conditioned", "polished", "auto"), unlabelled=200, draws=50
    )
    return proxy


# ---- at answer time -------------------------------------------------------------------------------------


def test_an_input_outside_the_range_has_no_promise(plain: Dataset) -> None:
    proxy = believer(plain, 100)
    fb.certify(proxy, plain, 0.9, **MEAN)
    x = fb.sample(plain.problem, 20, seed=8)
    x[7, 1] = 1.5
    x[3] = np.nan
    found = proxy.predict(x, "mean")
    lost = np.isnan(found.lower).all(axis=1)  # type: ignore[arg-type]
    assert np.flatnonzero(lost).tolist() == [3, 7]
    assert np.isnan(found.gap_limit[lost]).all()  # type: ignore[index]
    assert found.outcome[7] is fb.AnswerOutcome.OUTSIDE
    assert found.outcome[0] is fb.AnswerOutcome.OK
    assert "No promise for 1 of 20 answers" in found.warnings[0]
    assert "row 7: x1 = 1.5 is above 1" in found.warnings[0]


def test_a_batch_drawn_from_elsewhere_has_no_promise(plain: Dataset) -> None:
    proxy = believer(plain, 100)
    fb.certify(proxy, plain, 0.9, **MEAN)
    corner = 0.8 + 0.1 * fb.sample(plain.problem, 60, seed=8)
    found = proxy.predict(corner, "mean")
    assert np.isnan(found.lower).all()  # type: ignore[arg-type]
    assert "is not drawn like the calibration inputs" in found.warnings[0]
    single = proxy.predict(
        corner[0], "mean"
    )  # one instance inside the range says nothing about how it was drawn
    assert np.isfinite(single.lower).all()  # type: ignore[arg-type]
    assert single.warnings == ()


def test_an_instance_unlike_any_other_has_no_promise() -> None:
    """Without a declared range, leverage is what there is."""
    problem = fb.Problem(
        lambda x, y: ((y - x) ** 2).sum(), [-np.inf] * 2, [np.inf] * 2, nominal=[0.0, 0.0],
        sampler=lambda random: random.standard_normal(2), name="free",
    )  # fmt: skip
    x = fb.sample(problem, 300, seed=0)
    proxy = believer(Dataset.from_arrays(problem, x, x), 100)
    fb.certify(proxy, Dataset.from_arrays(problem, x, x), 0.9, answers=("mean",), unlabelled=1000, draws=10)
    far = np.array([[9.0, -9.0]])
    found = proxy.predict(far, "mean")
    assert found.outcome[0] is fb.AnswerOutcome.OUTSIDE
    assert np.isnan(found.lower).all()  # type: ignore[arg-type]
    assert "unlike any calibration input" in found.warnings[0]


def test_no_promise_for_what_was_not_certified(full: Proxy, toy_data: Dataset) -> None:
    x = toy_data.x[:20]
    for found, words in (
        (full.predict(x, "svp"), "promises nothing of 'svp'"),
        (full.predict(x, "auto", tolerance=1e-3), "auto was certified at tolerance 1e-06"),
    ):
        assert found.lower is None
        assert words in found.warnings[0]
    with pytest.raises(fb.FeasiblyError, match="there is no region 'wide'"):
        full.predict(x, region="wide")


# ---- auto as one predictor ------------------------------------------------------------------------------


def test_auto_is_calibrated_by_running_auto(full: Proxy, toy_data: Dataset) -> None:
    made = full.certificate
    assert made is not None
    assert made.rule is not None
    usable = np.random.default_rng(0).permutation(np.arange(60, 320))
    aside = usable[: len(usable) // 4]
    assert made.rule.labels == len(aside)
    kept = toy_data.take(usable[len(aside) :])
    found = full.predict(kept.x, "auto")
    rank = math.ceil((len(kept) + 1) * 0.9)
    limit = float(made.answers["auto"].gap.limit)  # type: ignore[union-attr]
    # Rows of another batch may make a move more or less once they are settled.
    assert limit == pytest.approx(np.sort(gaps(kept, found.objective))[rank - 1], abs=1e-8)
    assert made.answers["auto"].labels == len(kept)
    fresh = solved("toy", 1500, 9)
    answers = full.predict(fresh.x, "auto")
    low, _ = promise.coverage_range(len(kept), 0.9, share=0.9999)
    covered = ((answers.lower <= fresh.y) & (fresh.y <= answers.upper)).all(axis=1)
    assert covered.mean() > low - 0.03
    assert f"{made.rule.labels} of the labels fixed the shape" in made.describe()


def test_hard_instances_climb_and_easy_ones_do_not(full: Proxy, toy_data: Dataset) -> None:
    def rule(limit: float) -> Rule:
        made = ScoreLimit(np.asarray(limit), True, 1e-6, 0.9, 100, 91)
        return Rule(made, made, 100)

    ladder, x = full.ladder, toy_data.x[:64]
    hard = difficulty(ladder.driver, x, full.model.predict(x))
    assert hard.min() < hard.max()
    rest = ladder.driver.run(x, full.model.predict(x).mean, CONFIRMED).converged
    border = float(np.median(hard[rest & (hard > 1e-6)]))
    found = ladder.answer(x, "auto", tolerance=1e-4, trust=rule(1e-4 / border).trusts)
    climbed = np.array(found.rung) != "polished"
    np.testing.assert_array_equal(climbed, ~rest | (np.maximum(hard, 1e-6) > border))
    assert climbed.any()
    assert not climbed.all()
    bare = ladder.answer(x, "auto", tolerance=1e-4)
    assert (np.array(bare.rung) == "polished").sum() >= (~climbed).sum()


def test_a_rule_needs_labels_of_its_own(full: Proxy, toy_data: Dataset) -> None:
    few = toy_data.take(np.arange(60, 75))
    made = fb.certify(full, few, 0.9, answers=("auto",), unlabelled=50, draws=5, attach=False)
    assert made.rule is None
    assert "15 labels are too few to certify the gap of each rung" in made.notes[0]


# ---- on disk --------------------------------------------------------------------------------------------


def test_it_travels_with_the_model(full: Proxy, toy_data: Dataset, tmp_path: Path) -> None:
    full.save(tmp_path / "model")
    again = Proxy.load(tmp_path / "model", problem=toy_data.problem)
    assert again.certificate is not None
    assert full.certificate is not None
    assert again.certificate.describe() == full.certificate.describe()
    assert again.certificate.as_dict(full=True) == full.certificate.as_dict(full=True)
    x = toy_data.x[200:]
    for answer in ("mean",):
        first, second = full.predict(x, answer), again.predict(x, answer)
        np.testing.assert_allclose(first.lower, second.lower, rtol=1e-9, atol=1e-12)  # type: ignore[arg-type]
        np.testing.assert_array_equal(first.gap_limit, second.gap_limit)  # type: ignore[arg-type]
    json.dumps(full.certificate.as_dict(full=True), allow_nan=False)


def test_it_fits_no_other_model(toy_data: Dataset) -> None:
    first, second = believer(toy_data, 100), believer(toy_data, 90)
    made = fb.certify(first, toy_data, 0.9, **MEAN)
    with pytest.raises(fb.FeasiblyError, match="made for another model"):
        second.certificate = made


def test_it_is_left_behind_where_the_method_has_changed_since(toy_data: Dataset, tmp_path: Path) -> None:
    proxy = believer(toy_data, 100)
    fb.certify(proxy, toy_data, 0.9, **MEAN)
    proxy.save(tmp_path / "model")
    edit(tmp_path / "model", lambda text: text["certificate"].pop("version"))  # as those of the first version
    with pytest.warns(CertificateWarning, match="made for answers of another version .* certify it again"):
        again = Proxy.load(tmp_path / "model", problem=toy_data.problem)
    assert again.certificate is None
    assert fb.certify(again, toy_data, 0.9, **MEAN).version == METHOD_VERSION


def test_it_fits_no_other_problem_with_the_same_optima(plain: Dataset, tmp_path: Path) -> None:
    """The very same model, but what it costs to be wrong is another thing."""
    proxy = believer(plain, 100)
    made = fb.certify(proxy, plain, 0.9, **MEAN)
    old = plain.problem
    dear = fb.Problem(
        lambda x, y: 100.0 * old.objective(x, y), old.lower, old.upper, box=old.box(), name="dear"
    )
    other = believer(Dataset.from_arrays(dear, plain.x, plain.y), 100)
    assert other.digest() == proxy.digest()
    with pytest.raises(fb.FeasiblyError, match="made for another problem"):
        other.certificate = made
    proxy.save(tmp_path / "one")
    other.save(tmp_path / "two")
    theirs = json.loads((tmp_path / "one" / "proxy.json").read_text())
    (tmp_path / "two" / "arrays.safetensors").write_bytes(
        (tmp_path / "one" / "arrays.safetensors").read_bytes()
    )
    # By hand, on disk: everything is the other's but the problem.
    edit(tmp_path / "two", lambda text: text.update(theirs | {"problem": text["problem"]}))
    with pytest.raises(fb.FeasiblyError, match="made for another problem"):
        Proxy.load(tmp_path / "two", problem=dear)


def test_a_damaged_certificate_says_so(toy_data: Dataset, tmp_path: Path) -> None:
    proxy = believer(toy_data, 100)
    fb.certify(proxy, toy_data, 0.9, **MEAN)
    proxy.save(tmp_path / "model")
    edit(tmp_path / "model", lambda text: text["certificate"]["answers"]["mean"].pop("max_eq"))
    with pytest.raises(fb.FeasiblyError, match=r"answers\.mean .* is incomplete"):
        Proxy.load(tmp_path / "model", problem=toy_data.problem)
