"""`feasibly compare` and `feasibly reproduce`, on a store that is finished already."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from feasibly.cli import app
from feasibly.report import cells
from feasibly.report.reproduce import Reproduction
from tests.report.conftest import LABELS, TESTS


def _run(*words: str, status: int = 0) -> str:
    done = CliRunner().invoke(app, list(words))
    assert done.exit_code == status, (done.output, done.stderr, done.exception)
    return done.stdout if status == 0 else done.stderr


def _no_training(*args: Any, **settings: Any) -> None:
    raise AssertionError("nothing was to be trained")


@pytest.fixture
def asked(reproduced: Reproduction, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(cells, "fit", _no_training)
    store = reproduced.parts[0].comparison.store
    assert store is not None
    return [
        "compare", str(store / "rows.zarr"), "--methods", "ridge", "--answers", "mean,conditioned", "--budget", "500",
        "--labels", str(LABELS), "--tests", str(TESTS), "--unlabelled", "8", "--store", str(store),
    ]  # fmt: skip


def test_compare_prints_the_table(asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    text = _run(*asked)
    for word in (
        "Gap",
        "Eq.",
        "Ineq.",
        "bound",
        "Feasible",
        "Train",
        "Labels",
        "ridge",
        "mean",
        "conditioned",
    ):
        assert word in text


def test_compare_prints_one_json_document(asked: list[str], reproduced: Reproduction) -> None:
    rows = json.loads(_run(*asked, "--json"))
    assert [row["answer"] for row in rows] == ["mean", "conditioned"]
    assert rows[0]["gap_percent"] == reproduced.parts[0].comparison.rows[0]["gap_percent"]


def test_compare_prints_csv_or_latex(asked: list[str]) -> None:
    assert [line["answer"] for line in csv.DictReader(io.StringIO(_run(*asked, "--csv")))] == [
        "mean",
        "conditioned",
    ]
    assert _run(*asked, "--latex").startswith(r"\begin{tabular}")
    assert "choose one of" in _run(*asked, "--latex", "--csv", status=2)


def test_compare_refuses_what_does_not_exist(asked: list[str]) -> None:
    assert "no method 'magic'" in _run(*asked, "--methods", "magic", status=2)


def test_reproduce_prints_published_beside_measured(
    reproduced: Reproduction, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cells, "fit", _no_training)
    words = [
        "reproduce",
        "table-57",
        "--scale",
        "0.5",
        "--out",
        str(out),
        "--methods",
        "ridge",
        "--answers",
        "mean,conditioned",
    ]
    text = _run(*words)
    assert "scale 0.5" in text
    assert "ridge" in text
    document = json.loads(_run(*words, "--json"))
    assert (document["name"], document["scale"]) == ("table-57", 0.5)
    assert document["tables"][0]["rows"][0]["method"] == "ridge"
    assert "choose one of" in _run("reproduce", "table-1", status=2)
