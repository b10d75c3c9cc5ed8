"""Comparisons: rows as the contract has them, resumed cell by cell, with failures kept."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

import feasibly as fb
from feasibly.model.belief import Model
from feasibly.model.linear import fit_ridge
from feasibly.report import _apart, cells
from feasibly.report.cells import applies
from feasibly.report.compare import Comparison, compare
from feasibly.report.files import ReportError
from feasibly.report.render import describe
from tests.report.conftest import LABELS, TESTS

CONTRACT = {
    "method", "answer", "labels", "unlabelled", "budget_seconds", "train_seconds", "predict_seconds_per_instance",
    "seed", "gap_percent", "signed_gap_percent", "max_eq", "mean_eq", "max_ineq", "mean_ineq", "max_bound",
    "share_feasible", "percentiles", "count",
}  # fmt: skip


def _again(
    data: fb.Dataset, store: Path, answers: tuple[str, ...] = ("mean", "svp"), **more: Any
) -> Comparison:
    asked: dict[str, Any] = {"budget": 20.0, "labels": LABELS, "store": store} | more
    return compare(data, asked.pop("methods", ["ridge"]), answers, **asked)


@pytest.fixture
def copied(toy_comparison: Comparison, toy_store: Path, tmp_path: Path) -> Path:
    """A finished store to spoil."""
    return Path(shutil.copytree(toy_store, tmp_path / "store"))


def _no_training(*args: Any, **settings: Any) -> None:
    raise AssertionError("nothing was to be trained")


def test_rows_are_those_of_the_contract(toy_comparison: Comparison) -> None:
    assert [(row["method"], row["answer"]) for row in toy_comparison.rows] == [
        ("ridge", "mean"),
        ("ridge", "svp"),
    ]
    for row in toy_comparison.rows:
        assert set(row) >= CONTRACT
        assert (row["labels"], row["count"], row["seed"]) == (LABELS, TESTS, 0)
    assert json.loads(json.dumps(toy_comparison.rows)) == list(toy_comparison.rows)


def test_rows_agree_with_a_proxy_trained_apart(toy_comparison: Comparison, toy_data: fb.Dataset) -> None:
    model = fit_ridge(toy_data.x[:LABELS], toy_data.y[:LABELS])
    metrics = fb.evaluate(
        toy_data.problem,
        toy_data.take(range(LABELS, LABELS + TESTS)),
        model.predict(toy_data.x[LABELS:]).mean,
    )
    assert toy_comparison.rows[0]["gap_percent"] == pytest.approx(metrics.gap_percent)
    assert toy_comparison.rows[0]["max_ineq"] == pytest.approx(metrics.max_ineq)


def test_instances_average_to_the_row(toy_comparison: Comparison) -> None:
    for row, values in zip(toy_comparison.rows, toy_comparison.instances, strict=True):
        assert len(values["max_eq"]) == TESTS
        assert sum(values["max_eq"]) / TESTS == pytest.approx(row["max_eq"], rel=1e-3, abs=1e-12)


def test_a_finished_store_is_read_without_training(
    copied: Path, toy_comparison: Comparison, toy_data: fb.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cells, "fit", _no_training)
    assert _again(toy_data, copied).rows == toy_comparison.rows


def test_a_lost_cell_is_answered_again_by_the_kept_proxy(
    copied: Path, toy_comparison: Comparison, toy_data: fb.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cells, "fit", _no_training)
    (copied / "cells" / "ridge.mean.0.json").unlink()
    before = (copied / "cells" / "ridge.svp.0.json").read_bytes()
    found = _again(toy_data, copied)
    assert found.rows[0]["gap_percent"] == toy_comparison.rows[0]["gap_percent"]
    assert (copied / "cells" / "ridge.svp.0.json").read_bytes() == before


def test_a_new_answer_is_added_without_training(
    copied: Path, toy_data: fb.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cells, "fit", _no_training)
    found = _again(toy_data, copied, ("mean", "svp", "conditioned"))
    assert [row["answer"] for row in found.rows] == ["mean", "svp", "conditioned"]
    assert "failed" not in found.rows[2]
    assert found.rows[2]["max_eq"] < 1e-6


def test_a_training_whose_proxy_is_lost_is_done_as_a_whole(
    copied: Path, toy_data: fb.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All rows of a training come from one training: the cell that was there is made again too."""
    shutil.rmtree(copied / "models")
    (copied / "cells" / "ridge.mean.0.json").unlink()
    monkeypatch.setattr(cells, "fit", _raise(RuntimeError("no luck")))
    found = _again(toy_data, copied)
    assert [row["failed"] for row in found.rows] == ["RuntimeError: no luck"] * 2


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"budget": 21.0}, "budget 20.0, not 21.0"),
        ({"labels": 30}, "labels 40, not 30"),
        ({"tests": 5}, "tests"),
    ],
)
def test_a_store_of_another_comparison_is_refused(
    copied: Path, toy_data: fb.Dataset, change: dict[str, Any], said: str
) -> None:
    with pytest.raises(ReportError, match=said):
        _again(toy_data, copied, **change)


def test_a_store_of_other_rows_is_refused(copied: Path, toy_data: fb.Dataset) -> None:
    with pytest.raises(ReportError, match="other labels"):
        _again(toy_data.take(range(1, LABELS + TESTS)), copied)


def _raise(error: BaseException) -> Any:
    def fit(*args: Any, **settings: Any) -> None:
        raise error

    return fit


def test_a_method_that_fails_keeps_a_row_with_the_reason_and_is_tried_again(
    copied: Path, toy_data: fb.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(cells, "fit", _raise(fb.FeasiblyError("nobody can learn this")))
        found = _again(toy_data, copied, methods=["ridge", "mae"])
    good, bad = found.pick("ridge", "mean")[0], found.pick("mae", "mean")[0]
    assert "failed" not in good
    assert bad["failed"] == "nobody can learn this"
    assert bad["gap_percent"] is None
    assert set(bad) >= CONTRACT - {"percentiles"}
    tried = []
    monkeypatch.setattr(cells, "fit", lambda *a, **k: tried.append(a[2]) or _raise(RuntimeError("again"))())
    found = _again(toy_data, copied, methods=["ridge", "mae"])
    assert tried == ["mae"]
    assert found.pick("mae", "mean")[0]["failed"] == "RuntimeError: again"


def test_ctrl_c_leaves_finished_cells_and_nothing_half_written(
    copied: Path, toy_comparison: Comparison, toy_data: fb.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cells, "fit", _raise(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        _again(toy_data, copied, methods=["ridge", "mae"])
    assert not list(copied.rglob("*.part"))
    monkeypatch.setattr(cells, "fit", _no_training)
    assert _again(toy_data, copied).rows == toy_comparison.rows


def test_training_that_ctrl_c_cut_short_is_no_row(
    copied: Path, toy_comparison: Comparison, toy_data: fb.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Training turns Ctrl-C into an early end and returns; a comparison must not take that for a result."""

    def cut_short(*args: Any, **settings: Any) -> Any:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            signal.pause()
        except KeyboardInterrupt:
            return toy_comparison.proxy("ridge", 0, toy_data)

    monkeypatch.setattr(cells, "fit", cut_short)
    with pytest.raises(KeyboardInterrupt):
        _again(toy_data, copied, methods=["mae"])
    assert not (copied / "cells" / "mae.mean.0.json").exists()


def test_the_order_of_trainings_is_random_and_seeded(
    toy_data: fb.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = []
    for seed in (0, 0, 1):
        seen: list[str] = []
        monkeypatch.setattr(
            cells, "fit", lambda *a, seen=seen, **k: seen.append(a[2]) or _raise(RuntimeError())()
        )
        found = compare(toy_data, answers=["mean"], labels=LABELS, order=seed)
        orders.append(seen)
        assert [row["method"] for row in found.rows] == list(fb.METHODS)
    assert orders[0] == orders[1]
    assert orders[0] != orders[2]
    assert sorted(orders[0]) == sorted(fb.METHODS)


def test_seeds_deal_rows_anew_when_asked(toy_data: fb.Dataset) -> None:
    plan = cells.ComparisonPlan(1.0, LABELS, resample=True)
    assert cells.deal(toy_data, plan, 0) is toy_data
    dealt = cells.deal(toy_data, plan, 3)
    assert sorted(dealt.keys) == sorted(toy_data.keys)
    assert list(dealt.keys) != list(toy_data.keys)


def test_selection_applies_to_posteriors_alone(toy_data: fb.Dataset) -> None:
    class Plain(Model):
        predict = state = restore = None  # type: ignore[assignment]

    Plain.__abstractmethods__ = frozenset()
    assert not applies("svp", Plain())
    assert applies("mean", Plain())
    assert applies("svp", fit_ridge(toy_data.x, toy_data.y))


def test_a_worker_that_dies_leaves_a_row(
    reproduced: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = fb.Dataset.open(reproduced.parts[0].comparison.store / "rows.zarr")
    monkeypatch.setattr(_apart.sys, "executable", "false")
    found = compare(data, ["ridge"], ["mean"], labels=LABELS, budget=5, jobs=2, store=tmp_path / "s")
    assert "ended with status 1" in found.rows[0]["failed"]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"methods": ["magic"]}, "no method 'magic'; choose from ridge"),
        ({"answers": ["guess"]}, "no answer 'guess'"),
        ({"methods": []}, "at least one method"),
        ({"labels": LABELS + TESTS}, "not enough"),
        ({"seeds": 0}, "seeds"),
        ({"seeds": [1, 1]}, "seeds"),
        ({"budget": 0.0}, "positive number of seconds"),
        ({"jobs": 2}, "problem of your own"),
        ({"methods": ["ridge", "gp"], "trials": 2}, "none of ridge, gp can be tried several times"),
        ({"methods": ["ridge"], "unlabelled": 8}, "none of ridge learns from inputs without"),
        ({"trials": 0}, "at least one trial"),
        ({"methods": ["mae"], "settings": {"mae": {"depth": 3}}}, "'mae' has no setting 'depth'"),
        ({"methods": ["mae"], "settings": {"magic": {}}}, "no method 'magic'"),
        (
            {"methods": ["ridge"], "settings": {"mae": {"width": 2.0}}},
            "settings for mae, which is not compared",
        ),
    ],
)
def test_bad_questions_get_a_sentence(toy_data: fb.Dataset, asked: dict[str, Any], said: str) -> None:
    with pytest.raises(ReportError, match=said):
        compare(toy_data, **({"labels": LABELS} | asked))


def test_a_fallback_is_called_by_its_own_name(toy_data: fb.Dataset, tmp_path: Path) -> None:
    found = compare(toy_data, ["ridge", "mae"], ["mean"], labels=LABELS, budget=1e-9, store=tmp_path / "s")
    assert [(row["method"], row.get("asked")) for row in found.rows] == [("ridge", None), ("ridge", "mae")]
    assert "too small to compile mae" in found.rows[1]["note"]
    assert found.trainings["mae.0"]["method"] == "ridge"
    assert not found.pick("mae", "mean")
    cell = tmp_path / "s" / "cells" / "mae.mean.0.json"
    stored = json.loads(cell.read_text())
    del stored["row"]["asked"]
    cell.write_text(json.dumps(stored | {"row": stored["row"] | {"method": "mae", "instead": "ridge"}}))
    again = compare(toy_data, ["ridge", "mae"], ["mean"], labels=LABELS, budget=1e-9, store=tmp_path / "s")
    assert again.rows == found.rows


def test_what_is_given_goes_to_the_methods_that_honour_it(
    toy_data: fb.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, Any] = {}

    def fit(*words: Any, **given: Any) -> Any:
        seen[words[2]] = given["unlabelled"], given["trials"], given.get("width")
        raise RuntimeError("enough")

    monkeypatch.setattr(cells, "fit", fit)
    found = compare(
        toy_data, ["ridge", "mae", "response"], ["mean"], labels=LABELS, unlabelled=8, trials=3,
        settings={"mae": {"width": 2.0}},
    )  # fmt: skip
    assert seen == {"ridge": (None, 1, None), "mae": (None, 3, 2.0), "response": (8, 1, None)}
    assert {row["method"]: (row["unlabelled"], row["trials"]) for row in found.rows} == {
        "ridge": (None, 1), "mae": (None, 3), "response": (8, 1),
    }  # fmt: skip
    words = describe(found)
    assert "8 inputs without labels were given to the methods that can use them: not to ridge, mae." in words
    assert "3 trials were given to the methods that can use them: not to ridge, response." in words


def test_a_store_may_be_for_other_methods_too(toy_data: fb.Dataset, tmp_path: Path) -> None:
    found = _again(toy_data, tmp_path / "s", ("mean",), trials=3)
    assert found.rows[0]["trials"] == 1
