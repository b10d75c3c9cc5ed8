"""The page of guarantees says what was measured, and what it shows runs."""

import json
import re
from pathlib import Path

import pytest

import bound_coverage
from certificate_tables import implied_range
from feasibly.promise import coverage_range

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "guarantees.md").read_text()
RESULT = json.loads((ROOT / "benchmarks" / "results" / "coverage.json").read_text())


def test_the_tables_are_those_of_the_stored_result() -> None:
    assert bound_coverage.insert(PAGE, bound_coverage.render(RESULT)) == PAGE


def test_the_stored_result_is_complete_and_keeps_its_word() -> None:
    assert RESULT["repetitions"] >= 1000
    cells = {(row["confidence"], row["count"], row["distribution"]) for row in RESULT["simple"]}
    assert {cell[0] for cell in cells} == {0.9, 0.95}
    assert {cell[1] for cell in cells} == {50, 200, 1000}
    assert len({cell[2] for cell in cells}) >= 3
    for row in RESULT["simple"] + RESULT["posterior"]:
        if row["method"] not in ("normal theory", "mpv-bernstein"):
            assert not row["short"], row


def test_the_hypothesis_is_shown_holding_and_failing() -> None:
    row = {
        (row["distribution"], row["count"]): row["short"]
        for row in RESULT["posterior"]
        if row["method"] == "mpv-bernstein" and row["confidence"] == 0.95
    }
    assert not row["calibrated", 1000]
    assert row["100 x overconfident", 1000]


def test_a_fresh_small_run_has_the_stored_shape() -> None:
    fresh = bound_coverage.run(repetitions=20, seed=3)
    assert fresh.keys() == RESULT.keys()
    assert len(fresh["simple"]) == len(RESULT["simple"])


@pytest.mark.parametrize(
    ("epsilon", "method"),
    [
        (0.064, "hoeffding"),
        (0.018, "empirical-bernstein"),
        (0.010, "bernstein-one-sided"),
        (0.010, "bernstein"),
    ],
)
def test_implied_ranges_on_the_page(epsilon: float, method: str) -> None:
    assert f"{implied_range(epsilon, 1000, method=method):.3f} p.u." in PAGE


def test_figures_in_the_text() -> None:
    low, high = coverage_range(100, 0.95)
    assert f"between {100 * low:.1f} and\n{100 * high:.1f} %" in PAGE
    low, high = coverage_range(1000, 0.95)
    assert f"with 1000, between {100 * low:.1f} and {100 * high:.1f} %" in PAGE
    widths = {
        (r["distribution"], r["count"], r["confidence"], r["method"]): r["width"] for r in RESULT["posterior"]
    }
    for count in (50, 200, 1000):
        assert (
            widths["calibrated", count, 0.95, "betting"]
            < 0.5 * widths["calibrated", count, 0.95, "mpv-bernstein"]
        )


def test_betting_is_narrowest_in_every_row() -> None:
    for rows in (RESULT["simple"], RESULT["posterior"]):
        width = {(r["distribution"], r["count"], r["confidence"], r["method"]): r["width"] for r in rows}
        for (name, count, confidence, method), value in width.items():
            if method in ("hoeffding", "empirical-bernstein", "maurer-pontil"):
                assert width[name, count, confidence, "betting"] < value


def test_the_code_on_the_page_runs(capsys) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    assert blocks
    for block in blocks:
        exec(compile(block, "guarantees.md", "exec"), {})
    assert "every output at once" in capsys.readouterr().out
