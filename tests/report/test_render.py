"""Tables: the paper's columns, ranges over seeds, ties, failures, in every format."""

from __future__ import annotations

import csv
import io
import math
from typing import Any

import pytest
from rich.console import Console

from feasibly.report import render, sheet
from feasibly.report.compare import Comparison


def row(method: str, answer: str, gap: float, seed: int = 0, **more: Any) -> dict[str, Any]:
    values = dict.fromkeys(("max_eq", "mean_eq", "max_ineq", "mean_ineq", "max_bound"), gap / 10.0)
    return {
        "method": method, "answer": answer, "labels": 512, "unlabelled": 0, "budget_seconds": 600.0,
        "train_seconds": 0.5,
        "predict_seconds_per_instance": 85e-6, "seed": seed, "count": 1000, "gap_percent": gap,
        "signed_gap_percent": gap,
        "share_feasible": 0.5, **values, **more,
    }  # fmt: skip


ROWS = (
    row("ridge", "mean", 0.045),
    row("ridge", "mean", 0.055, seed=1),
    row("gp", "mean", 3e-7, share_feasible=1.0),
    row("response", "mean", 2e-8, share_feasible=1.0),
    row("mae", "mean", math.nan) | {"failed": "it & that", "gap_percent": None, "count": 0},
)
COMPARISON = Comparison(
    "case57_ieee", ROWS, {"plan": {"labels": 512, "budget": 600.0}, "solver_seconds_per_instance": 0.008}
)


def _text() -> str:
    console = Console(width=200, file=io.StringIO(), record=True)
    console.print(sheet.to_rich(render.sheet_of(ROWS)))
    return console.export_text()


def test_the_mean_and_the_range_over_seeds() -> None:
    line = render.summarise(ROWS)[0]
    assert (line.seeds, line.mean["gap_percent"]) == (2, pytest.approx(0.05))
    assert (line.low["gap_percent"], line.high["gap_percent"]) == (0.045, 0.055)
    assert "[0.045, 0.055]" in _text()


def test_the_papers_columns_come_first() -> None:
    assert [column.title for column in render.COLUMNS[:5]] == [
        "Gap %",
        "Max Eq.",
        "Mean Eq.",
        "Max Ineq.",
        "Mean Ineq.",
    ]
    lines = _text().splitlines()
    heading = next(i for i, line in enumerate(lines) if "Method" in line)
    for column in render.COLUMNS:
        for word in column.title.split():
            assert word in lines[heading - 1] + lines[heading]


def test_negligible_values_tie_and_failures_are_never_best() -> None:
    lines = render.summarise(ROWS)
    assert {lines[i].method for i in render.best_of(lines, render.COLUMNS[0])} == {"gp", "response"}
    assert {lines[i].method for i in render.best_of(lines, render.COLUMNS[6])} == {"gp", "response"}


def test_a_failure_has_its_row_and_its_reason() -> None:
    assert any("mae" in line and "failed" in line for line in _text().splitlines())
    assert any("mae, mean failed: it & that" in words for words in render.describe(COMPARISON))
    assert r"it \& that" in sheet.to_latex(render.sheet_of(ROWS))
    assert "| mae | mean | failed |" in sheet.to_markdown(render.sheet_of(ROWS))


def test_overrun_budgets_are_named() -> None:
    spent = {
        "ridge.0": {"seconds": {"total": 700.0}},
        "gp.0": {"seconds": {"total": 5.0}},
    }
    words = render.describe(Comparison("p", ROWS, COMPARISON.info, (), spent))
    assert any("Over the budget" in line and "ridge.0 700 s" in line and "gp" not in line for line in words)


def test_csv_holds_every_row() -> None:
    lines = list(csv.DictReader(io.StringIO(render.to_csv(COMPARISON))))
    assert [line["method"] for line in lines] == [row["method"] for row in ROWS]
    assert float(lines[0]["gap_percent"]) == 0.045
    assert lines[4]["failed"] == "it & that"


def test_latex_is_balanced() -> None:
    text = sheet.to_latex(render.sheet_of(ROWS))
    body = [line for line in text.splitlines() if line.endswith(r"\\") and "multicolumn" not in line]
    assert all(line.count("&") == len(render.COLUMNS) + 1 for line in body)
    assert text.count("{") == text.count("}")
    assert r"\textbf" in text


def test_markdown_has_one_cell_a_column() -> None:
    lines = sheet.to_markdown(render.sheet_of(ROWS)).splitlines()
    assert len({line.count("|") for line in lines}) == 1


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (0.0, "measure", "0"),
        (0.0451, "measure", "0.045"),
        (3.2e-7, "measure", "3e-07"),
        (0.99951e-3, "measure", "0.001"),
        (None, "measure", "-"),
        (math.nan, "measure", "-"),
        (0.985, "share", "98.5%"),
        (85e-6, "seconds", "85 us"),
        (3.14e-3, "seconds", "3.14 ms"),
        (600.0, "seconds", "600 s"),
        (8000.0, "seconds", "2.2 h"),
        (4096, "count", "4,096"),
    ],
)
def test_figures_as_people_write_them(value: float | None, kind: str, text: str) -> None:
    assert render.figure(value, kind) == text


def test_a_stand_in_is_marked_and_never_best() -> None:
    """A budget too small leaves ridge under another method's name; its figures must not pass for that method's."""
    rows = [row("ridge", "mean", 0.05), row("sandwich-bnn", "mean", 0.01, note="ridge stands in")]
    comparison = Comparison("p", tuple(rows), COMPARISON.info)
    lines = render.summarise(rows)
    assert render.best_of(lines, render.COLUMNS[0]) == {0}
    assert "| sandwich-bnn † | mean | 0.010 |" in sheet.to_markdown(render.sheet_of(rows))
    assert r"sandwich-bnn $\dagger$ & mean" in sheet.to_latex(render.sheet_of(rows))
    assert "† sandwich-bnn: ridge stands in" in render.describe(comparison)
    assert "ridge stands in" in render.to_csv(comparison)


def test_a_seed_that_fell_back_is_a_line_of_its_own_and_not_averaged() -> None:
    rows = [
        row("ridge", "mean", 0.05),
        row("response", "mean", 0.01),
        row("response", "mean", 0.03, seed=1),
        row("ridge", "mean", 0.9, seed=2, asked="response", note="no time"),
    ]
    old = [*rows[:3], row("response", "mean", 0.9, seed=2, instead="ridge", note="no time")]
    for given in (rows, old):
        lines = render.summarise(given)
        assert [(s.asked, s.method, s.seeds) for s in lines] == [
            ("ridge", "ridge", 1),
            ("response", "response", 2),
            ("response", "ridge", 1),
        ]
        assert lines[1].mean["gap_percent"] == pytest.approx(0.02)
        assert "| ridge (instead of response) † | mean | 0.900 |" in sheet.to_markdown(render.sheet_of(given))
        assert render.notes_of(given) == ["† ridge (instead of response): no time"]
    found = Comparison("p", tuple(rows))
    assert [r["seed"] for r in found.pick("response", "mean")] == [0, 1]
    assert [r["seed"] for r in found.pick("ridge", "mean")] == [0]
    assert [line["asked"] for line in csv.DictReader(io.StringIO(render.to_csv(found)))] == [
        "",
        "",
        "",
        "response",
    ]
