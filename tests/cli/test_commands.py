"""Every command does what it says, and says what it did, in words and in JSON."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import feasibly as fb
from feasibly._cli import demo as demo_module
from feasibly._cli.columns import match_inputs, read_table, write_table
from feasibly._cli.options import ANSWERS
from feasibly.train import registry
from tests.cli.conftest import CASE, LABELS, invoke
from tests.data.foreign import (
    opfdata_instances,
    pglearn_case,
    pglearn_split,
    solved_grid,
    write_folder,
    write_pglearn,
)
from tests.grids import GRID3


def document(*words: object) -> Any:
    """What a command prints with `--json`: that alone, without NaN."""
    done = invoke(*words, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout, parse_constant=lambda name: pytest.fail(f"{name} in JSON"))


def text(*words: object) -> str:
    done = invoke(*words)
    assert done.exit_code == 0, done.output
    return str(done.stdout)


def test_help_names_the_methods_and_answers_there_are() -> None:
    for command in ("train", "compare", "reproduce"):
        assert ", ".join(fb.METHODS) in " ".join(text(command, "--help").split())
    assert tuple(ANSWERS.split(", ")) == fb.ANSWERS
    assert f"[default: {fb.DEFAULT_METHOD}]" in text("train", "--help")


def test_help_names_what_was_registered_meanwhile() -> None:
    before = text("train", "--help")
    with registry.scope():
        fb.register(replace(registry.find("ridge"), name="ridge-again"))
        assert "ridge-again" in text("train", "--help")
    assert text("train", "--help") == before


def test_version() -> None:
    assert text("--version") == f"feasibly {fb.__version__}\n"


# ---- case --------------------------------------------------------------------------------------------------


def test_case_of_a_grid(home: Path) -> None:
    """Against the tables that the file was written from."""
    found = document("case", home / "grid.m", "--spread", 0.1)
    grid = found["grid"]
    assert (grid["buses"], grid["generators"], grid["branches"], grid["loads"]) == (3, 2, 3, 2)
    assert (grid["load_mw"], grid["load_mvar"]) == pytest.approx((80 + 60, 20 + 15))
    assert grid["generation_mw"] == pytest.approx([10, 300])
    assert grid["generation_mvar"] == pytest.approx([-160, 160])
    assert (grid["shunts"], grid["shunt_mvar"]) == (1, pytest.approx(5))
    assert grid["limits"] == {"apparent_power": 1, "current": 0, "angle_difference": 2}
    assert grid["costs"] == {"quadratic": 1, "linear": 1, "constant": 0}
    assert grid["reference_buses"] == [1]
    assert found["spread"] == 0.1
    assert found["blocks"] == {"pg": 2, "qg": 2, "vm": 3, "va": 3}
    # Six balances; two ends of one rated branch and two sides of two angle differences; 2 + 2 generators' and
    # 3 voltages' ranges and the fixed reference angle.
    assert found["sizes"] == {"inputs": 4, "outputs": 10, "equalities": 6, "inequalities": 6, "bounds": 16}
    shown = text("case", home / "grid.m")
    for words in ("140.0 MW", "35.0 Mvar", "47% of what can be generated", "vary by 20%", "Warnings"):
        assert words in shown


def test_case_of_a_family() -> None:
    found = document("case", "nonconvex:70,20,50")
    assert found["sizes"] == {"inputs": 20, "outputs": 70, "equalities": 20, "inequalities": 50, "bounds": 0}
    assert found["grid"] is None
    assert "20: each between -1 and 1" in text("case", "nonconvex:70,20,50")


def test_warnings_of_the_reader_are_shown(tmp_path: Path) -> None:
    bus = GRID3.bus.copy()
    bus[2, 1] = 3  # a second reference
    path = type(GRID3)(bus, GRID3.gen, GRID3.branch, GRID3.gencost).write(tmp_path / "two.m")
    assert "all references" in text("case", path)
    assert any("all references" in warning for warning in document("case", path)["warnings"])


# ---- rows --------------------------------------------------------------------------------------------------


def test_label_resumes_and_extends(home: Path, tmp_path: Path) -> None:
    words = ("label", CASE, "--jobs", 1, "--out", tmp_path / "rows", "--count")
    assert document(*words, 20)["rows_found"] == 0
    again = document(*words, 20)
    assert (again["rows_found"], again["rows"], again["labels"]) == (20, 20, 20)
    more = document(*words, 60)
    assert (more["rows_found"], more["rows"], more["outcomes"]) == (20, 60, {"OK": 60})
    one, other = fb.Dataset.open(tmp_path / "rows"), fb.Dataset.open(home / "rows")
    assert np.array_equal(one.y, other.y)


def test_rows_without_a_solution_are_counted_and_named(home: Path, tmp_path: Path) -> None:
    words = (
        "label",
        home / "grid.m",
        "--count",
        12,
        "--spread",
        2.5,
        "--jobs",
        1,
        "--out",
        tmp_path / "rows",
    )
    found = document(*words)
    assert found["outcomes"]["INFEASIBLE"] > 0
    assert found["labels"] + sum(n for name, n in found["outcomes"].items() if name != "OK") == 12
    shown = text(*words)
    assert f"{found['outcomes']['INFEASIBLE']} INFEASIBLE: No feasible point was found" in shown
    assert "12 were there already" in shown


def test_import(tmp_path: Path) -> None:
    grid, data = solved_grid(4)
    instances = opfdata_instances(grid, data)
    instances[2]["metadata"]["objective"] *= 1.5
    folder = write_folder(tmp_path / "json", instances)
    words = ("import", "opfdata", folder, "--out", tmp_path / "rows")
    found = document(*words)
    assert (found["rows"], found["labels"], found["n_flagged"]) == (4, 3, 1)
    assert found["worst_equality"] < 1e-6
    assert invoke(*words).exit_code == 2
    write_folder(folder, opfdata_instances(grid, data))
    shown = text(*words, "--force")
    assert "4 rows" in shown
    assert "4 labels" in shown
    assert "Worst power balance error" in shown
    assert fb.Dataset.open(tmp_path / "rows").n_labels == 4
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["json", "rows"]


def test_import_pglearn(tmp_path: Path) -> None:
    grid, data = solved_grid(3, linear=True)
    folder = write_pglearn(
        tmp_path / "case", pglearn_case(grid), {"train": pglearn_split(grid, data)}, packed=True
    )
    found = document("import", "pglearn", folder, "--out", tmp_path / "rows")
    assert (found["rows"], found["labels"]) == (3, 3)


# ---- proxies -----------------------------------------------------------------------------------------------


def test_train_saves_what_it_tells(home: Path) -> None:
    proxy = fb.Proxy.load(home / "model")
    assert (proxy.method, proxy.record.labels, proxy.record.seed) == ("ridge", LABELS, 3)
    assert proxy.problem.name == CASE
    told = (home / "told.json").read_text()
    found = json.loads(told)
    assert found["train_seconds"] == proxy.record.train_seconds
    assert found["interrupted"] is False


def test_a_budget_of_no_time_at_all_is_kept(home: Path, tmp_path: Path) -> None:
    told = document(
        "train", home / "rows", "--labels", 40, "--method", "mse", "--budget", 1e-9, "--out", tmp_path / "m"
    )
    assert told["method"] == "ridge"
    assert "too small to compile mse" in told["note"]
    found = document("evaluate", tmp_path / "m", home / "rows", "--answer", "mean")
    assert found["budget_seconds"] == 1e-9
    assert found["count"] == 20
    text("inputs", tmp_path / "m", "--out", tmp_path / "in.csv")
    ask = (
        "predict",
        tmp_path / "m",
        tmp_path / "in.csv",
        "--answer",
        "mean",
        "--force",
        "--out",
        tmp_path / "a.csv",
    )
    told = document(*ask)
    assert (told["method"], told["asked"]) == ("ridge", "mse")
    assert "answered by ridge (instead of mse) in" in text(*ask).splitlines()[0]


def test_evaluate_is_the_library_s(home: Path) -> None:
    found = document("evaluate", home / "model", home / "rows", "--answer", "mean")
    proxy, data = fb.Proxy.load(home / "model"), fb.Dataset.open(home / "rows")
    metrics = fb.evaluate_proxy(proxy, data, "mean").metrics
    assert found["count"] == 60 - LABELS == metrics.count
    for name in ("gap_percent", "max_eq", "mean_eq", "max_ineq", "mean_ineq", "max_bound", "share_feasible"):
        assert found[name] == getattr(metrics, name)
    assert {
        "method", "answer", "labels", "unlabelled", "budget_seconds", "train_seconds",
        "predict_seconds_per_instance", "seed",
    } <= set(found)  # fmt: skip
    shown = text("evaluate", home / "model", home / "rows", "--answer", "mean", "--limit", 5)
    assert "5 instances" in shown
    assert "max_ineq" in shown


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".npz"])
def test_predict_from_and_to_any_format(home: Path, tmp_path: Path, ending: str) -> None:
    proxy = fb.Proxy.load(home / "model")
    table = read_table(home / "inputs.csv")
    x = match_inputs(proxy.problem, table)
    columns = dict(zip(table.names, table.values, strict=True))
    shuffled = {name: columns[name] for name in ("x2", "x0", "x1")}
    write_table(tmp_path / f"in{ending}", shuffled)
    out = tmp_path / f"out{ending}"
    found = document(
        "predict", home / "model", tmp_path / f"in{ending}", "--out", out, "--answer", "mean", "--std"
    )
    expected = proxy.predict(x, "mean")
    assert (found["rows"], found["outcomes"]) == (7, expected.outcomes())
    written = read_table(out)
    got = dict(zip(written.names, written.values, strict=True))
    names = proxy.problem.output_names
    assert written.names[: len(names) + 5] == (
        *names, "objective", "max_equality", "max_inequality", "outcome", "rung",
    )  # fmt: skip
    assert np.allclose(np.stack([got[name] for name in names], axis=1), expected.y, rtol=1e-15, atol=0)
    assert np.allclose(
        np.stack([got[f"std_{name}"] for name in names], axis=1), expected.std, rtol=1e-15, atol=0
    )
    assert np.allclose(got["max_inequality"].astype(float), expected.max_inequality, rtol=1e-15, atol=0)
    assert got["outcome"].tolist() == [outcome.name for outcome in expected.outcome]
    assert set(got["rung"].tolist()) == {"mean"}


def test_predict_takes_a_plain_matrix(home: Path, tmp_path: Path) -> None:
    proxy = fb.Proxy.load(home / "model")
    x = match_inputs(proxy.problem, read_table(home / "inputs.csv"))
    np.savez(tmp_path / "in.npz", x=x)
    text("predict", home / "model", tmp_path / "in.npz", "--out", tmp_path / "out.npz", "--answer", "mean")
    with np.load(tmp_path / "out.npz", allow_pickle=False) as written:
        assert np.array_equal(written["y0"], proxy.predict(x, "mean").y[:, 0])


def test_predict_by_the_default_answer_says_what_came_of_it(home: Path, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out.csv"
    words = ("predict", home / "model", home / "inputs.csv", "--out", out)
    shown = text(*words)
    assert "7 instances" in shown
    assert "7 OK: every constraint holds." in shown
    assert invoke(*words).exit_code == 2
    assert [entry.name for entry in out.parent.iterdir()] == ["out.csv"]


def test_certify_keeps_its_promise_with_the_model(home: Path, tmp_path: Path) -> None:
    model, out = tmp_path / "model", tmp_path / "out.csv"
    shutil.copytree(home / "model", model)
    words = ("certify", model, home / "rows", "--answers", "mean", "--confidence", 0.8, "--range", "y=3")
    found = document(*words, "--no-save")
    assert fb.Proxy.load(model).certificate is None
    assert (found["confidence"], found["labels"], found["saved"]) == (0.8, 60 - LABELS, False)
    assert "With probability 80 %" in text(*words, "--full")
    short = text(*words).strip().splitlines()
    assert len(short) == 3  # the whole, a line for the answer, and where the rest is
    assert "80 % confidence, from 20 labels" in short[0]
    assert short[1].startswith("  mean: its cost is within ")
    assert short[2].endswith("--full.")
    kept = fb.Proxy.load(model).certificate
    assert kept is not None
    assert any("--range NAME=R" in sentence for sentence in found["sentences"])
    assert not any("ranges=" in sentence for sentence in found["sentences"])
    text("predict", model, home / "inputs.csv", "--out", out, "--answer", "mean")
    written = read_table(out)
    column = dict(zip(written.names, written.values, strict=True))
    assert (column["lower_y0"] <= column["y0"]).all()
    assert (column["y0"] <= column["upper_y0"]).all()
    assert (column["gap_limit_percent"] == kept.answers["mean"].gap.limit).all()


def test_the_demo_from_end_to_end(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On three buses and a few rows; then the first command that it suggests."""
    monkeypatch.chdir(tmp_path)
    small = {
        "CASE": str(home / "grid.m"),
        "DRAWN": 50,
        "LABELS": 28,
        "TESTS": 10,
        "TIMED": 3,
        "BUDGET": 900.0,
    }
    for name, value in small.items():
        monkeypatch.setattr(demo_module, name, value)
    monkeypatch.setattr(demo_module, "CERTIFIED", "mean")  # which compiles nothing
    monkeypatch.setattr(
        demo_module, "RUNGS", {key: demo_module.RUNGS[key] for key in ("mean", "conditioned")}
    )
    shown = text("demo", "--jobs", 1)
    for rung in (*demo_module.RUNGS, "IPOPT"):
        assert f"\n {rung} " in shown or f"\n  {rung} " in shown, shown
    suggested = next(line for line in shown.splitlines() if line.strip().startswith("feasibly predict"))
    words = suggested.split("dispatch.csv")[0].split()[1:]
    text(*words, "dispatch.csv", "--answer", "mean")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["dispatch.csv", "feasibly-demo"]
    made = sorted(entry.name for entry in (tmp_path / "feasibly-demo").iterdir())
    assert made == ["loads.csv", "model", "report.html", "rows.zarr"]
