"""The page of results and README's table say what the kept JSON says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from feasibly.report.files import ReportError
from gather import gather
from results_page import BEGIN, DOCS, END, README, insert, wanted
from tests.report.test_render import row

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"


def test_the_pages_are_those_of_the_stored_results() -> None:
    for path, text in wanted().items():
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
    page = wanted(folder)[DOCS / "results" / "case57_ieee.md"]
    assert "## compare-table-57\n\nFull scale: 512 labels" in page
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
    assert "Scale 0.1: 512 labels" in wanted(folder)[DOCS / "results" / "mine.md"]


def test_where_the_papers_tables_stand_comes_first(folder: Path) -> None:
    page = wanted(folder)[DOCS / "results.md"]
    (line,) = (line for line in page.splitlines() if line.startswith("| [table-57]"))
    assert "(results/case57_ieee.md#compare-table-57) | 1 |" in line
    assert "Naïve MAE (gap" in line  # 9 % against 4.029
    assert "Sandwich BNN SvP (gap" not in line  # 0.5 % against 0.928
    assert "- [mine](results/mine.md): 4 rows in 1 comparison" in page
    assert "- [Everything else that was measured](results/other.md)" in page


def test_the_readme_takes_the_default_from_where_it_was_repeated(folder: Path) -> None:
    once = {"problem": "mine", "rows": [row("response", "conditioned", 0.1)], "scale": 0.1}
    rows = [row("response", "conditioned", gap) | {"seed": seed} for seed, gap in enumerate((0.2, 0.4))]
    networks = [row("sandwich-bnn", "svp", 7.0) | {"seed": seed} for seed in range(3)]
    (folder / "compare-6-mine.json").write_text(json.dumps(once))
    (folder / "compare-6-mine-seeds.json").write_text(json.dumps(once | {"rows": rows}))
    (folder / "compare-6-mine-networks.json").write_text(json.dumps(once | {"rows": networks}))
    lines = [line for line in wanted(folder)[README].splitlines() if line.startswith("| mine |")]
    assert len(lines) == 1
    assert "| 0.300 |" in lines[0]


def test_single_trainings_are_gathered_into_one_comparison(tmp_path: Path) -> None:
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
    assert (
        "Slide rule (Imaginary 8088 beside it), 2 of 16 cores"
        in wanted(tmp_path)[DOCS / "results" / "case2000_goc.md"]
    )


def test_other_results_of_any_shape(folder: Path) -> None:
    page = wanted(folder)[DOCS / "results" / "other.md"]
    assert "| seconds | 1.235 |" in page
    assert "| ratios | a b 2 |" in page
    assert "| case | inner time |" in page
    assert "| y | 2 |" in page
    assert "many: 99 entries in the file." in page
    assert "names: p, q" in page


def test_the_readme_has_a_line_for_a_grid_and_counts_all_time(folder: Path) -> None:
    path = folder / "compare-table-57.json"
    document = json.loads(path.read_text())
    document["seconds"] = {"response.0": {"sup": 3.0, "conditioning": 5.0, "total": 9.0}}
    path.write_text(json.dumps(document | {"solver_seconds_per_instance": 0.01, "commit": "0123456789"}))
    text = wanted(folder)[README]
    (line,) = (line for line in text.splitlines() if line.startswith("| case57_ieee |"))
    assert line.startswith("| case57_ieee | 512 | 1e-08 (0.928) |")
    assert "| 5.12 s + 9 s (600 s) |" in line
    assert line.endswith("| 10 ms | 0123456 |")
    lines = [line for line in text[text.index(BEGIN) : text.index(END)].splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in lines}) == 1


def test_a_row_that_is_as_good_is_not_kept_quiet(folder: Path) -> None:
    path = folder / "compare-table-57.json"
    document = json.loads(path.read_text())
    document["rows"].append(row("ridge", "conditioned", 1e-8))
    path.write_text(json.dumps(document))
    assert "On 1 of 1 problems" in wanted(folder)[README]
    document["rows"][-1] = row("ridge", "conditioned", 0.5)
    path.write_text(json.dumps(document))
    assert "On 0 of 1 problems" in wanted(folder)[README]


def test_the_time_of_training_counts_everything_that_the_file_knows_of(folder: Path) -> None:
    path = folder / "compare-6-mine.json"
    document = json.loads(path.read_text())
    spent = {"mae.0": {"conditioning": 7.0, "total": 7.5}, "response.0": {"conditioning": 0.4, "total": 0.7}}
    fallen = row("sandwich-bnn", "mean", 0.1, seed=1) | {"instead": "ridge", "train_seconds": 0.1}
    document["rows"].append(fallen)
    spent["sandwich-bnn.1"] = {"total": 33.0}
    path.write_text(json.dumps(document | {"seconds": spent}))
    page = wanted(folder)[DOCS / "results" / "mine.md"]
    shown = {line.split(" | ")[0].strip("| "): line for line in page.splitlines() if line.startswith("| ")}
    assert "| 7.5 s |" in shown["mae"]
    assert "| 700 ms |" in shown["response"]
    assert "| 33 s |" in shown["ridge (instead of sandwich-bnn)"]
    assert "| 500 ms |" in shown["sandwich-bnn"]  # nothing more is known of it


def test_pages_that_benchmarks_wrote_are_taken_over(folder: Path) -> None:
    (folder / "speed.md").write_text("# How fast\n\nVery.\n")
    made = wanted(folder)
    assert made[DOCS / "results" / "speed.md"] == "# How fast\n\nVery.\n"
    assert "- [How fast](results/speed.md)" in made[DOCS / "results.md"]
    assert DOCS / "results" / "other.md" not in made


def test_inserting_replaces_what_was_between_the_markers() -> None:
    page = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    assert insert(page, "new") == f"before\n{BEGIN}\nnew\n{END}\nafter\n"
    assert insert(insert(page, "new"), "new") == insert(page, "new")
    with pytest.raises(ReportError, match="needs one"):
        insert("no markers", "new")


def test_an_empty_comparison_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "compare-x.json").write_text('{"rows": []}')
    with pytest.raises(ReportError, match="no rows"):
        wanted(tmp_path)
    (tmp_path / "compare-x.json").write_text("{")
    with pytest.raises(ReportError, match="cannot be read"):
        wanted(tmp_path)
