"""Files that engineers use: units in names, ids that come back, templates to start from."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from feasibly._cli.columns import kept_columns, match_inputs, read_table, write_table
from feasibly._cli.files import FileError
from feasibly._cli.gridtables import write_grid_tables
from feasibly._cli.units import input_columns, with_units
from feasibly.cli import app
from feasibly.problem.acopf import acopf
from feasibly.problem.core import Problem
from feasibly.problem.families import grid_of, load_problem
from feasibly.solve.nlp import solve
from tests.grids import GRID3


@pytest.fixture(scope="module")
def problem(tmp_path_factory: pytest.TempPathFactory) -> Problem:
    return load_problem(GRID3.write(tmp_path_factory.mktemp("grid") / "grid.m"))


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".npz"])
def test_inputs_are_read_in_the_unit_that_their_name_says(
    ending: str, problem: Problem, tmp_path: Path
) -> None:
    x = problem.nominal * np.array([[1.0], [1.1]])
    for per_unit in (False, True):
        columns = {"time": np.array(["08:00", "007"]), **input_columns(problem, x, per_unit=per_unit)}
        assert ("pd_2_mw" in columns) is not per_unit
        path = tmp_path / f"loads-{per_unit}{ending}"
        write_table(path, columns)
        table = read_table(path)
        np.testing.assert_allclose(match_inputs(problem, table), x, rtol=1e-12)
        assert [str(v) for v in kept_columns(problem, table)["time"]] == ["08:00", "007"]
    assert input_columns(problem, x, per_unit=False)["pd_2_mw"].tolist() == pytest.approx([80.0, 88.0])


@pytest.mark.parametrize("index", [None, "hour"])
@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_the_index_of_a_table_of_pandas_comes_back(
    ending: str, index: str | None, problem: Problem, tmp_path: Path
) -> None:
    pandas = pytest.importorskip("pandas")
    x = problem.nominal * np.array([[1.0], [1.1]])
    given = pandas.DataFrame(input_columns(problem, x, per_unit=False), index=["a", "b"])
    path = tmp_path / f"loads{ending}"
    if ending == ".csv":
        given.to_csv(path)  # without a name, it has none in the file either
    else:
        given.rename_axis(index).to_parquet(path)
    table = read_table(path)
    np.testing.assert_allclose(match_inputs(problem, table), x, rtol=1e-12)
    name = index if index and ending == ".parquet" else "index"
    assert [str(v) for v in kept_columns(problem, table)[name]] == ["a", "b"]


def test_a_name_of_rows_that_stands_twice_is_refused(problem: Problem, tmp_path: Path) -> None:
    write_table(tmp_path / "loads.csv", input_columns(problem, problem.nominal[None], per_unit=False))
    head, row = (tmp_path / "loads.csv").read_text().splitlines()
    (tmp_path / "loads.csv").write_text(f"id,id,{head}\n1,2,{row}\n")
    with pytest.raises(FileError, match="id stands more than once"):
        match_inputs(problem, read_table(tmp_path / "loads.csv"))


def test_a_load_in_two_units_is_refused(problem: Problem, tmp_path: Path) -> None:
    both = input_columns(problem, problem.nominal[None], per_unit=True) | {"pd_2_mw": np.array([80.0])}
    write_table(tmp_path / "both.csv", both)
    with pytest.raises(FileError, match="pd_2_mw is not an input"):
        match_inputs(problem, read_table(tmp_path / "both.csv"))


def test_answers_carry_their_units(problem: Problem) -> None:
    y = np.tile(problem.start, (2, 1))
    y[:, problem.blocks["va"]] = [0.0, np.pi / 6, -np.pi / 6]
    columns = {name: y[:, i] for i, name in enumerate(problem.output_names)}
    columns |= {
        "objective": np.ones(2),
        "std_pg_1": np.full(2, 0.1),
        "p_from_1": np.full(2, 0.5),
        "loading_1": np.ones(2),
        "price_losses_2": np.ones(2),
        "reactive_price_2": np.ones(2),
        "price_limit": np.ones(2),
    }
    found = with_units(problem, columns)
    assert found["pg_1_mw"].tolist() == [100.0, 100.0]
    assert found["va_2_degree"].tolist() == pytest.approx([30.0, 30.0])
    assert found["vm_1_pu"].tolist() == [1.0, 1.0]
    assert found["std_pg_1_mw"].tolist() == pytest.approx([10.0, 10.0])
    assert found["p_from_1_mw"].tolist() == [50.0, 50.0]
    assert {"objective", "loading_1_percent", "price_losses_2_per_mwh"} <= set(found)
    assert {"reactive_price_2_per_mvarh", "price_limit"} <= set(found)
    assert not set(problem.output_names) & set(found)


def test_a_grid_as_three_tables(problem: Problem, tmp_path: Path) -> None:
    (solved,) = solve(problem, problem.nominal[None])
    paths = write_grid_tables(
        tmp_path, problem, problem.nominal[None], solved.y[None], {"id": np.array(["a"])}
    )
    assert [path.name for path in paths] == ["generators.csv", "buses.csv", "branches.csv"]
    with paths[2].open(newline="") as file:
        branches = list(csv.DictReader(file))
    assert [line["branch"] for line in branches] == ["1", "2", "3"]
    assert {line["id"] for line in branches} == {"a"}
    # Branch 1 is at its limit of 70 MVA; what comes in and does not go out is lost in the grid.
    loading = max(float(branches[0][f"loading_{end}_percent"]) for end in ("from", "to"))
    assert loading == pytest.approx(100.0, abs=1e-3)
    assert branches[1]["loading_from_percent"] in ("", "nan")
    lost = sum(float(line["p_from_mw"]) + float(line["p_to_mw"]) for line in branches)
    with paths[0].open(newline="") as file:
        made = sum(float(line["p_mw"]) for line in csv.DictReader(file))
    assert made == pytest.approx(140.0 + lost, abs=1e-5)


def test_a_branch_is_loaded_by_the_limit_that_it_has(problem: Problem, tmp_path: Path) -> None:
    """A limit on current loads a branch by its current, which a limit on power at 1 p.u. would understate below it."""
    grid = grid_of(problem)
    assert grid is not None
    by_current = acopf(replace(grid, rate=np.full_like(grid.rate, np.inf), current=grid.rate))
    x, y = problem.nominal[None], np.tile(problem.start, (1, 1))
    y[0, problem.blocks["vm"]] = [0.9, 1.0, 1.0]
    y[0, problem.blocks["va"]] = [0.0, -0.1, -0.1]
    lines = []
    for i, kind in enumerate((problem, by_current)):
        (tmp_path / str(i)).mkdir()
        prices = np.full((1, 3), 20.0), np.zeros((1, 3))
        paths = write_grid_tables(tmp_path / str(i), kind, x, y, {}, prices)
        with paths[2].open(newline="") as file:
            lines.append(next(csv.DictReader(file)))
        with paths[1].open(newline="") as file:
            assert [line["price_per_mwh"] for line in csv.DictReader(file)] == ["20"] * 3
    power, current = lines
    assert power["limit_mva"] == current["limit_mva"] == "70"
    assert float(power["loading_from_percent"]) == pytest.approx(
        100.0 * np.hypot(float(power["p_from_mw"]), float(power["q_from_mvar"])) / 70.0
    )
    assert float(current["loading_from_percent"]) == pytest.approx(float(power["loading_from_percent"]) / 0.9)
    assert float(current["loading_to_percent"]) == pytest.approx(float(power["loading_to_percent"]))


def test_a_file_without_costs_is_shown_and_its_template_filled_in(tmp_path: Path) -> None:
    path, costs = replace(GRID3, gencost=[]).write(tmp_path / "grid.m"), tmp_path / "costs.csv"
    shown = CliRunner().invoke(app, ["case", str(path), "--costs-template", str(costs)])
    assert shown.exit_code == 0, shown.output
    assert "label needs --costs FILE" in " ".join(shown.output.split())
    lines = costs.read_text().splitlines()
    assert lines[0] == "generator,bus,min_p_mw,max_p_mw,c2,c1,c0"
    assert lines[1:] == ["1,1,0.0,200.0,,,", "2,3,10.0,100.0,,,"]
    costs.write_text("\n".join([lines[0], "1,1,0,200,0.02,20,0", "2,3,10,100,0,30,5"]))
    given = load_problem(path, costs=costs)
    assert given.fingerprint == load_problem(GRID3.write(tmp_path / "whole.m")).fingerprint
    refused = CliRunner().invoke(app, ["label", str(path), "--out", str(tmp_path / "data")])
    assert refused.exit_code == 2
    assert "pass --costs FILE" in refused.output + refused.stderr


OPTIONS = {
    "a table": ((), "mpc.bus3p = [1 2];", "or leave it out with --ignore bus3p"),
    "a voltage": (("--slack-voltage", "free"), "", "--slack-voltage is for pandapower's nets, and"),
    "a limit": (("--flow-limit", "power"), "", "--flow-limit is for pandapower's nets, and"),
    "a bent cost": (
        (),
        "mpc.gencost = [1 0 0 3 0 0 50 1000 99 1200; 2 0 0 2 1 0 0 0 0 0];",
        "one with --costs",
    ),
}


@pytest.mark.parametrize("which", OPTIONS)
def test_messages_name_the_option_of_the_interface_in_use(which: str, tmp_path: Path) -> None:
    words, extra, sentence = OPTIONS[which]
    path = replace(GRID3, extra=extra).write(tmp_path / "grid.m")
    for command in (["case"], ["label", "--out", str(tmp_path / "data")]):
        refused = CliRunner().invoke(app, [command[0], str(path), *command[1:], *words])
        assert refused.exit_code == 2
        said = " ".join((refused.stdout + refused.stderr).split())
        assert sentence in said
        assert "ignore=" not in said
        assert "costs=" not in said


def test_a_template_of_a_file_with_costs_holds_them(tmp_path: Path) -> None:
    path, costs = GRID3.write(tmp_path / "grid.m"), tmp_path / "costs.csv"
    assert CliRunner().invoke(app, ["case", str(path), "--costs-template", str(costs)]).exit_code == 0
    assert load_problem(path, costs=costs).fingerprint == load_problem(path).fingerprint
    again = CliRunner().invoke(app, ["case", str(path), "--costs-template", str(costs)])
    assert again.exit_code == 2


def test_concave_costs_are_told_of_by_every_command(tmp_path: Path) -> None:
    path, costs = GRID3.write(tmp_path / "grid.m"), tmp_path / "costs.csv"
    costs.write_text("generator,c2,c1,c0\n1,-0.02,20,0\n2,0,30,5\n")
    shown = CliRunner().invoke(app, ["case", str(path), "--costs", str(costs)])
    words = ["label", str(path), "--costs", str(costs), "--count", "2", "--jobs", "1", "--out"]
    labelled = CliRunner().invoke(app, [*words, str(tmp_path / "data")])
    for done in (shown, labelled):
        assert done.exit_code == 0, done.output
        said = " ".join((done.stdout + done.stderr).split())
        assert "generator 1 (bus 1): the cost is concave" in said
    assert "concave" not in CliRunner().invoke(app, ["case", str(path)]).output


def test_predict_never_replaces_its_input(home: Path, tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    made = CliRunner().invoke(app, ["inputs", str(home / "model"), "--out", str(path), "--count", "2"])
    assert made.exit_code == 0, made.output
    before = path.read_bytes()
    done = CliRunner().invoke(app, ["predict", str(home / "model"), str(path), "--out", str(path), "--force"])
    assert done.exit_code == 2
    assert path.read_bytes() == before
    out = tmp_path / "out.csv"
    buses = path.rename(tmp_path / "buses.csv")
    words = [
        "predict",
        str(home / "model"),
        str(buses),
        "--out",
        str(out),
        "--tables",
        str(tmp_path),
        "--force",
    ]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 2
    assert "is the input itself" in done.output + done.stderr
    assert buses.rename(path).read_bytes() == before
    done = CliRunner().invoke(
        app, ["predict", str(home / "model"), str(path), "--out", str(out), "--answer", "mean"]
    )
    assert done.exit_code == 0, done.output
    table = read_table(out)
    assert table.names[0] == "id"
    assert table.values[0].tolist() == ["1", "2"]
