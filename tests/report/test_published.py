"""The paper's tables, checked against what its text says of them, and put beside ours."""

from __future__ import annotations

import csv
import io
import math

import pytest
from rich.console import Console

import feasibly as fb
from feasibly.report.beside import beside_csv, beside_sheet, count_verdicts, put_beside
from feasibly.report.paperfigures import robustness_entries
from feasibly.report.published import (
    METRICS,
    NONCONVEX_20,
    ROBUSTNESS_118,
    TABLE_57,
    TABLE_118,
    TABLES,
    judge,
)
from feasibly.report.sheet import to_latex, to_markdown, to_rich
from tests.report.test_render import row


def test_every_row_is_of_a_method_and_answer_that_exist() -> None:
    tables = [table for tables in TABLES.values() for table in tables]
    assert len({table.slug for table in tables}) == 4 + 2 + 6
    for table in tables:
        for each in table.rows:
            assert each.method in fb.METHODS
            assert each.answer in fb.ANSWERS
            assert set(each.values) <= set(METRICS)
    assert len({table.slug for table in tables}) == len(tables)


def test_what_the_text_says_of_the_tables() -> None:
    """Sentences of the paper's section 5, computed from the rows as they were typed in."""
    best = TABLE_57.best("max_eq")
    assert best is not None
    assert (best.label, best.values["max_eq"]) == ("Sandwich BNN SvP", 0.027)
    dual = TABLE_118.find("lagrangian-dual", "mean")
    assert dual is not None
    assert dual.values["max_eq"] == 1.284
    ten, fifteen = (ROBUSTNESS_118[i].find("sandwich-bnn", "svp") for i in (2, 5))
    assert ten is not None
    assert fifteen is not None
    # "Max Eq. is 6.18 % lesser for 2048 samples when we increase training time from 10-Min to 15-Min"
    assert 100 * (1 - fifteen.values["max_eq"] / ten.values["max_eq"]) == pytest.approx(6.18, abs=0.005)
    # "1.50 % Gap, 0.094 as Max Eq. and 0.014 as Max Ineq. with 512 supervised training samples and 10-Min"
    first = ROBUSTNESS_118[0].find("sandwich-bnn", "svp")
    assert first is not None
    assert (math.floor(first.values["gap_percent"] * 100), round(first.values["max_eq"], 3)) == (150, 0.094)
    # "All the methods proposed in this paper outperform the best DNN results" in Max Eq., but for the Sandwich DNN
    dnn = min(r.values["max_eq"] for r in TABLE_57.rows[5:])
    assert all(r.values["max_eq"] < dnn for r in TABLE_57.rows[:4])


def test_settings_are_the_papers() -> None:
    for name in ("table-57", "table-118", "table-500", "table-2000"):
        (table,) = TABLES[name]
        assert (table.labels, table.unlabelled, table.budget, table.tests) == (512, 2048, 600.0, 1000)
    assert [(t.labels, t.unlabelled, t.budget, t.tests) for t in TABLES["table-nonconvex"]] == [
        (4096, 512, 400.0, 100),
        (4096, 512, 800.0, 100),
    ]
    assert {(t.budget, t.labels) for t in ROBUSTNESS_118} == {
        (b, n) for b in (600.0, 900.0) for n in (512, 1024, 2048)
    }


@pytest.mark.parametrize(
    ("measured", "published", "digits", "verdict"),
    [
        (0.026, 0.027, 3, "better"),
        (0.0274, 0.027, 3, "equal"),
        (0.0266, 0.027, 3, "equal"),
        (0.028, 0.027, 3, "worse"),
        (1e-9, 0.0, 3, "equal"),
        (0.01, 0.0, 3, "worse"),
        (2.64, 2.6, 1, "equal"),
        (math.nan, 1.0, 3, "worse"),
        (math.inf, 1.0, 3, "worse"),
    ],
)
def test_judging_to_the_digits_printed(measured: float, published: float, digits: int, verdict: str) -> None:
    assert judge(measured, published, digits) == verdict


ROWS = [
    row("sandwich-bnn", "svp", 0.5, max_bound=0.2, max_ineq=0.9),
    row("mae", "mean", 9.0),
    row("ridge", "mean", 0.05),
    row("gp", "mean", 0.1) | {"failed": "no luck"},
]


def test_each_row_is_held_against_its_own_and_ours_against_the_best() -> None:
    lines = {(line.method, line.answer): line for line in put_beside(TABLE_57, ROWS)}
    ours = lines["sandwich-bnn", "svp"]
    assert ours.label == "Sandwich BNN SvP"
    assert (ours.cells["gap_percent"].published, ours.cells["gap_percent"].verdict) == (0.928, "better")
    # The published inequalities are bounds alone, so ours are too.
    assert (ours.cells["max_ineq"].measured, ours.cells["max_ineq"].verdict) == (0.2, "worse")
    assert lines["mae", "mean"].cells["gap_percent"].verdict == "worse"
    ridge = lines["ridge", "mean"]
    assert (ridge.label, ridge.cells["max_eq"].published) == ("", 0.027)
    assert not any(cell.verdict for cell in lines["gp", "mean"].cells.values())
    assert sum(count_verdicts(lines.values()).values()) == 10
    assert sum(count_verdicts(lines.values(), own=True).values()) == 5


def test_inequalities_of_the_nonconvex_family_are_not_bounds() -> None:
    (line,) = put_beside(NONCONVEX_20, [row("sandwich-bnn", "mean", 0.05, max_bound=0.0, max_ineq=0.9)])
    assert (line.cells["max_ineq"].measured, line.cells["max_ineq"].verdict) == (0.9, "worse")
    assert line.cells["mean_eq"].verdict == ""


def test_renderings_say_the_same() -> None:
    lines = put_beside(TABLE_57, ROWS)
    markdown = to_markdown(beside_sheet(lines))
    assert "| Sandwich BNN SvP | sandwich-bnn | svp | 0.500 (0.928) ✓ |" in markdown
    assert len({text.count("|") for text in markdown.splitlines()}) == 1
    assert "0.500 (0.928) $+$" in to_latex(beside_sheet(lines))
    cells = list(csv.DictReader(io.StringIO(beside_csv(lines))))
    assert len(cells) == 5 * len(lines)
    assert cells[0]["verdict"] == "better"
    console = Console(width=220, file=io.StringIO(), record=True)
    console.print(to_rich(beside_sheet(lines, narrow=True)))
    text = console.export_text()
    assert "0.500 ✓" in text
    assert "(0.928)" in text


def test_what_stands_in_for_a_method_is_not_counted() -> None:
    lines = put_beside(TABLE_57, [row("sandwich-bnn", "svp", 0.5, note="ridge stands in")])
    assert not count_verdicts(lines)
    assert "| Sandwich BNN SvP | sandwich-bnn † | svp |" in to_markdown(beside_sheet(lines))


def test_a_stand_in_stands_beside_the_row_it_was_to_be() -> None:
    rows = [row("sandwich-bnn", "svp", 0.5), row("ridge", "svp", 0.7, seed=1, asked="sandwich-bnn")]
    lines = put_beside(TABLE_57, rows)
    assert [(line.label, line.method, line.summary.asked) for line in lines] == [
        ("Sandwich BNN SvP", "sandwich-bnn", "sandwich-bnn"),
        ("Sandwich BNN SvP", "ridge", "sandwich-bnn"),
    ]
    assert count_verdicts(lines) == count_verdicts(lines[:1])
    assert "| Sandwich BNN SvP | ridge (instead of sandwich-bnn) | svp |" in to_markdown(beside_sheet(lines))
    assert "Sandwich BNN SvP (ridge)" in to_markdown(beside_sheet(lines, narrow=True))
    assert {entry["method"] for entry in robustness_entries(TABLE_57, rows)} == {"sandwich-bnn"}
