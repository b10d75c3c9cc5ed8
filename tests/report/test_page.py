"""The page of results and README's table say what the kept JSON says."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from feasibly.report.files import ReportError
from feasibly.report.page import BEGIN, END, insert, readme_table, results_page
from tests.report.test_render import row

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"


def _load(name: str) -> Any:
    """A script of `benchmarks`, which is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _script() -> Any:
    return _load("results_page")


def test_the_pages_are_those_of_the_stored_results() -> None:
    for path, text in _script().wanted().items():
        assert path.read_text(encoding="utf-8") == text, "run python benchmarks/results_page.py"


def test_stored_comparisons_say_where_they_come_from() -> None:
    for path in RESULTS.glob("compare-*.json"):
        document = json.loads(path.read_text())
        for key in ("machine", "processor", "cores", "cores_used", "commit", "scale", "problem", "rows"):
            assert document.get(key) is not None, (path.name, key)
        assert 0 < document["scale"] <= 1


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = [row("sandwich-bnn", "svp", 0.5), row("mae", "mean", 9.0), row("response", "conditioned", 1e-8)]
    rows.append(row("gp", "mean", 0.0) | {"failed": "no luck", "count": 0})
    document = {
        "problem": "case57_ieee", "published": "table-57", "scale": 1.0, "processor": "Imaginary 8088", "cores": 2,
        "cores_used": 1, "commit": "abcdef0123456789+changes", "rows": rows, "departures": ["One trial."],
        "remarks": ["It was raining."], "why": {"mae": "It had one second."},
    }  # fmt: skip
    (tmp_path / "compare-table-57.json").write_text(json.dumps(document))
    smaller = {k: v for k, v in document.items() if k != "published"} | {"scale": 0.1, "problem": "mine"}
    (tmp_path / "compare-6-mine.json").write_text(json.dumps(smaller))
    other = {
        "benchmark": "speed", "processor": "Imaginary 8088", "cores": 2, "seconds": 1.23456, "ok": True,
        "ratios": {"a_b": 2.0}, "cases": [{"case": "x", "inner": {"time": 1}}, {"case": "y", "inner": {"time": 2}}],
        "many": [{"i": i} for i in range(99)], "names": ["p", "q"],
    }  # fmt: skip
    (tmp_path / "speed.json").write_text(json.dumps(other))
    return tmp_path


def test_a_comparison_beside_the_paper(folder: Path) -> None:
    page = results_page(folder)
    assert "### case57_ieee, full scale (`compare-table-57.json`)" in page
    assert "Measured on Imaginary 8088, 1 of 2 cores, commit `abcdef0123` with changes." in page
    assert "- One trial." in page
    assert "- It was raining." in page
    assert "| Sandwich BNN SvP | sandwich-bnn | svp | 0.500 (0.928) ✓ |" in page
    (behind,) = (
        line for line in page.splitlines() if line.startswith("- Naïve MAE: gap 9.000 against 4.029")
    )
    assert behind.endswith(". It had one second.")
    assert "gap at least 928,000 x smaller" in page.replace("9.28e+05", "928,000")
    assert "- gp, mean failed: no luck" in page
    assert page.index("mine, scale 0.1") < page.index("case57_ieee, full scale")


def test_where_the_papers_tables_stand_comes_first(folder: Path) -> None:
    page = results_page(folder)
    (line,) = (line for line in page.splitlines() if line.startswith("| `compare-table-57.json` | 1 |"))
    assert "Naïve MAE (gap" in line  # 9 % against 4.029
    assert "Sandwich BNN SvP (gap" not in line  # 0.5 % against 0.928
    assert page.index(line) < page.index("### ")


def test_the_readme_takes_the_default_from_where_it_was_repeated(folder: Path) -> None:
    once = {"problem": "mine", "rows": [row("response", "conditioned", 0.1)], "scale": 0.1}
    rows = [row("response", "conditioned", gap) | {"seed": seed} for seed, gap in enumerate((0.2, 0.4))]
    networks = [row("sandwich-bnn", "svp", 7.0) | {"seed": seed} for seed in range(3)]
    (folder / "compare-6-mine.json").write_text(json.dumps(once))
    (folder / "compare-6-mine-seeds.json").write_text(json.dumps(once | {"rows": rows}))
    (folder / "compare-6-mine-networks.json").write_text(json.dumps(once | {"rows": networks}))
    lines = [line for line in readme_table(folder).splitlines() if line.startswith("| mine |")]
    assert len(lines) == 1
    assert "| 0.300 |" in lines[0]


def test_single_trainings_are_gathered_into_one_comparison(tmp_path: Path) -> None:
    gather = _load("gather").gather
    files = []
    for method in ("mae", "mse"):
        single = {
            "problem": "case2000_goc", "rows": [row(method, "mean", 1.0) | {"budget_seconds": 300.0}], "commit": "abc",
            "versions": {}, "machine": {"processor": "Imaginary 8088", "device": "Slide rule"},
            "seconds": {"train": 9.0, "conditioning": 0.0},
        }  # fmt: skip
        files.append(tmp_path / f"{method}.json")
        files[-1].write_text(json.dumps(single))
    found = gather(files, "table-2000", cores=(16, 2), at_a_time=3, remarks=["Slow."], why={})
    assert found["scale"] == 0.5
    assert [r["method"] for r in found["rows"]] == ["mae", "mse"]
    assert found["seconds"] == {"mae.0": {"train": 9.0}, "mse.0": {"train": 9.0}}
    (tmp_path / "compare-table-2000.json").write_text(json.dumps(found))
    files[1].write_text(json.dumps(json.loads(files[1].read_text()) | {"commit": "def"}))
    with pytest.raises(ReportError, match="was not measured like"):
        gather(files, "table-2000", cores=(16, 2), at_a_time=3, remarks=[], why={})
    with pytest.raises(ReportError, match="there twice"):
        gather(files[:1] * 2, "table-2000", cores=(16, 2), at_a_time=3, remarks=[], why={})
    for path in files:
        path.unlink()
    assert "Slide rule (Imaginary 8088 beside it), 2 of 16 cores" in results_page(tmp_path)


def test_other_results_of_any_shape(folder: Path) -> None:
    page = results_page(folder)
    assert "| seconds | 1.235 |" in page
    assert "| ratios | a b 2 |" in page
    assert "| case | inner time |" in page
    assert "| y | 2 |" in page
    assert "many: 99 entries in the file." in page
    assert "names: p, q" in page


def test_the_readme_shows_a_few_rows_and_the_published_one(folder: Path) -> None:
    table = readme_table(folder)
    assert "| case57_ieee | 512 | response, conditioned | 1e-08 |" in table
    assert "| case57_ieee | 512 | *Sandwich BNN SvP, as published* | 0.928 | 0.027 | 0 |" in table
    assert "mae" not in table
    lines = [line for line in table.splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in lines}) == 1


def test_inserting_replaces_what_was_between_the_markers() -> None:
    page = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    assert insert(page, "new") == f"before\n{BEGIN}\nnew\n{END}\nafter\n"
    assert insert(insert(page, "new"), "new") == insert(page, "new")
    with pytest.raises(ReportError, match="needs one"):
        insert("no markers", "new")


def test_an_empty_comparison_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "compare-x.json").write_text('{"rows": []}')
    with pytest.raises(ReportError, match="no rows"):
        results_page(tmp_path)
    (tmp_path / "compare-x.json").write_text("{")
    with pytest.raises(ReportError, match="cannot be read"):
        results_page(tmp_path)
