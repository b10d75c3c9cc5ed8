"""Reproducing by name: labels cached, trainings shared between tables and figures, scale and departures said."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import feasibly as fb
from feasibly.report import cells, variances
from feasibly.report.experiments import Request, labelled
from feasibly.report.files import ReportError
from feasibly.report.published import PublishedTable
from feasibly.report.reproduce import NAMES, Reproduction, reproduce
from results_page import DOCS, wanted
from tests.grids import GRID3
from tests.report.conftest import LABELS, TESTS


def test_a_table_is_made_apart_and_says_its_scale(reproduced: Reproduction, out: Path) -> None:
    (part,) = reproduced.parts
    assert [(line.method, line.answer) for line in part.lines] == [
        ("ridge", "mean"),
        ("ridge", "conditioned"),
    ]
    assert not any(line.failed for line in part.lines)
    rows = part.comparison.rows
    assert {(row["labels"], row["count"], row["budget_seconds"]) for row in rows} == {(LABELS, TESTS, 500.0)}
    assert part.comparison.info["cores_used"] == 1
    assert any("scale 0.5" in words for words in reproduced.said)
    names = {path.name for path in reproduced.files}
    assert names == {
        "table-57.md",
        "table-57.tex",
        "table-57.csv",
        "table-57-rows.csv",
        "compare-table-57.json",
    }
    assert "scale 0.5" in (out / "table-57" / "table-57.md").read_text()


def test_the_document_is_ready_for_the_page_of_results(
    reproduced: Reproduction, out: Path, tmp_path: Path
) -> None:
    document = json.loads((out / "table-57" / "compare-table-57.json").read_text())
    assert (document["benchmark"], document["published"], document["scale"]) == ("compare", "table-57", 0.5)
    assert {"machine", "cores", "cores_used", "commit", "versions", "rows", "plan"} <= set(document)
    (tmp_path / "compare-table-57.json").write_text(json.dumps(document))
    (page,) = (text for path, text in wanted(tmp_path).items() if path.parent == DOCS / "results")
    assert "Scale 0.5" in page
    assert "| (not in the paper) | ridge | mean |" in page


def _no_training(*args: Any, **settings: Any) -> None:
    raise AssertionError("nothing was to be trained")


def _again(name: str, out: Path, monkeypatch: pytest.MonkeyPatch, **more: Any) -> Reproduction:
    # In this process, where a training would be noticed.
    module = sys.modules["feasibly.report.compare"]
    monkeypatch.setattr(cells, "fit", _no_training)
    monkeypatch.setattr(module, "run_apart", lambda *job: module._run_here(*job[:-1]))
    return reproduce(name, 0.5, out, methods=("ridge",), draws=20, **more)


def test_variances_are_drawn_from_the_trained_posterior(
    reproduced: Reproduction, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = _again("figure-mpv", out, monkeypatch)
    numbers = made.drawings["mpv"].numbers
    assert numbers["block"] == ["pg", "qg", "vm", "va"]
    for doubled, paper in zip(numbers["2 x MPV"], numbers["paper's V_e"], strict=True):
        assert paper <= doubled * (1 + 1e-9)
    assert {path.name for path in made.files} == {"mpv.pdf", "mpv.svg", "mpv.png", "mpv.csv"}
    assert any("alpha" in words for words in made.said)


def test_bounds_by_bus(reproduced: Reproduction, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = _again("figure-bounds", out, monkeypatch)
    assert set(made.drawings) == {"bounds-grid-vm-ridge", "bounds-grid-va-ridge"}
    numbers = json.loads((out / "figure-bounds" / "figure-bounds.json").read_text())
    worst = numbers["largest half-width over buses"]["bounds-grid-vm-ridge"]
    # Hoeffding by hand: R sqrt(log(2/0.05) / (2 M)).
    assert worst["hoeffding"] == pytest.approx(worst["R"] * np.sqrt(np.log(2 / 0.05) / (2 * TESTS)))
    assert numbers["published for case118, vm"]["hoeffding"] == 0.064


def test_convergence_ends_at_the_whole(
    reproduced: Reproduction, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = _again("figure-convergence", out, monkeypatch)
    numbers = made.drawings["convergence"].numbers
    last = {}
    for i, (against, block) in enumerate(zip(numbers["against"], numbers["block"], strict=True)):
        last[against, block] = (numbers["count"][i], numbers["MPV"][i])
    assert last["test instances", "vm"][0] == TESTS
    assert last["posterior draws", "vm"][0] == 20
    assert last["test instances", "vm"][1] == pytest.approx(last["posterior draws", "vm"][1])


def test_an_examination_agrees_with_the_matrix_of_all_draws(reproduced: Reproduction) -> None:
    comparison = reproduced.parts[0].comparison
    assert comparison.store is not None
    data = fb.Dataset.open(comparison.store / "rows.zarr")
    proxy = comparison.proxy("ridge", 0, data)
    assert proxy is not None
    found = variances.examine(proxy, data, draws=12, seed=3, checkpoints=(5,))
    matrix = np.stack(list(proxy.model.draws(found.x, 12, 3)))
    assert found.spread.mean == pytest.approx(matrix.mean(axis=0))
    assert found.spread.variance == pytest.approx(matrix.var(axis=0), abs=1e-15)
    assert found.checkpoints[0][1].variance == pytest.approx(matrix[:5].var(axis=0), abs=1e-15)
    assert len(found.truth) == TESTS


def test_labels_are_solved_once(reproduced: Reproduction, out: Path) -> None:
    (store,) = (out / "labels").iterdir()
    assert len(fb.Dataset.open(store)) >= LABELS + TESTS


def test_infeasible_draws_are_made_up_for(tmp_path: Path) -> None:
    """Generators that are too small for the largest loads: the first rows that can be solved are taken."""
    case = GRID3.edited(gen=(0, 8, 52.0)).write(tmp_path / "tight.json")
    request = Request(1.0, tmp_path / "a", 1, None, None, None, None, 10, lambda words: None)
    few = labelled(str(case), 12, request)
    many = labelled(str(case), 24, request)
    assert (few.n_labels, many.n_labels) == (12, 24)
    assert len(fb.Dataset.open(next((tmp_path / "a" / "labels").iterdir()))) > 24
    assert np.array_equal(many.x[:12], few.x)


def test_names_are_those_of_the_paper() -> None:
    assert set(NAMES) == {
        "table-57", "table-118", "table-500", "table-2000", "table-nonconvex", "robustness-118", "figure-growth",
        "figure-mpv", "figure-bounds", "figure-convergence", "all",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "scale", "said"),
    [
        ("table-1", 1.0, "choose one of table-57"),
        ("table-57", 0.0, "above 0"),
        ("table-57", 2.0, "at most 1"),
    ],
)
def test_bad_questions_get_a_sentence(
    patched: PublishedTable, tmp_path: Path, name: str, scale: float, said: str
) -> None:
    with pytest.raises(ReportError, match=said):
        reproduce(name, scale, tmp_path)
