"""Outages from the draw to the answer: labels, stores, models, and rows that split the grid."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import feasibly as fb
from feasibly.problem.acopf import acopf
from feasibly.problem.drawing import Draws
from feasibly.problem.read import read_grid
from feasibly.solve import solve
from tests.conic import relax
from tests.grids import GRID6, Tables

VARY = ("load", "branch", "generator", "cost", "rating")


def problem_of(tables: Tables, folder: Path, vary: tuple[str, ...] = VARY, **draws: object) -> fb.Problem:
    return acopf(
        read_grid(tables.write(folder / "grid.json")),
        vary=vary,
        draws=Draws(**draws) if draws else None,  # type: ignore[arg-type]
    )


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> fb.Dataset:
    problem = problem_of(GRID6, tmp_path_factory.mktemp("grid"))
    x = fb.sample(problem, 96, seed=5)
    x[7, problem.inputs["branch"].start + np.array([5, 6])] = 0.0  # both lines of bus 6
    return fb.label(problem, x, jobs=1)


@pytest.mark.parametrize(
    ("block", "table", "row", "place"), [("branch", "branch", 3, 3), ("generator", "gen", 2, 2)]
)
def test_an_outage_costs_what_the_grid_without_the_element_costs(
    tmp_path: Path, block: str, table: str, row: int, place: int
) -> None:
    problem = problem_of(GRID6, tmp_path)
    without = acopf(
        read_grid(
            GRID6.edited(**{table: (row, 10 if table == "branch" else 7, 0.0)}).write(tmp_path / "w.json")
        )
    )
    x = problem.nominal.copy()
    x[problem.inputs[block].start + place] = 0.0
    (ours,), (theirs,) = solve(problem, x[None]), solve(without, without.nominal[None])
    assert ours.outcome.ok
    assert theirs.outcome.ok
    assert ours.objective == pytest.approx(theirs.objective, rel=1e-7)
    if block == "generator":
        assert ours.y[[place, 4 + place]].tolist() == [0.0, 0.0]


def test_rows_that_split_the_grid_have_an_outcome_of_their_own(data: fb.Dataset) -> None:
    assert data.outcomes()["ISLANDED"] == 1
    assert data.n_labels > 60
    assert np.isnan(data.y[7]).all()
    with pytest.raises(fb.FeasiblyError, match="row 7: branches 2-4, 57-6, 6-31 out cuts off bus 6"):
        data.raise_if_failed()


def test_parts_balance_each_on_its_own_when_asked_to(tmp_path: Path) -> None:
    # Bus 57 has a generator of its own and, cut off with bus 6, a load to serve.
    problem = problem_of(GRID6, tmp_path, ("load", "branch"), outages=2, islands=True)
    ends = problem.inputs["branch"].start + np.array([4, 6])
    x = np.tile(problem.nominal, (2, 1))
    x[0, ends] = 0.0
    x[1, problem.inputs["branch"].start + np.array([5, 6])] = 0.0
    x[0, problem.input_names.index("pd_6")] = 0.3
    found = fb.label(problem, x, jobs=1)
    assert found.outcomes() == {"OK": 1, "INFEASIBLE": 1}
    served = found.y[0, 3]
    assert 0.3 < served < 0.31  # what bus 6 takes, and the losses on the way


def test_stores_reopen_with_what_varies(data: fb.Dataset, tmp_path: Path) -> None:
    data.save(tmp_path / "data.zarr")
    again = fb.Dataset.open(tmp_path / "data.zarr")
    assert again.problem.fingerprint == data.problem.fingerprint
    assert again.problem.inputs == data.problem.inputs
    assert again.problem.drawing is not None
    np.testing.assert_array_equal(again.keys, data.keys)


@pytest.fixture(scope="module")
def proxy(data: fb.Dataset) -> fb.Proxy:
    return fb.fit(data.problem, data, "ridge", labels=50, budget=900)


def test_no_dispatch_undercuts_the_bound_under_outages_other_costs_and_other_ratings(
    data: fb.Dataset, proxy: fb.Proxy, tmp_path: Path
) -> None:
    problem = data.problem
    proxy.learn_proofs(labels=12, budget=900.0)
    test = data.split(50).test
    x = np.concatenate([data.x[test], data.x[[7]]])
    found = proxy.predict(x, "auto", prove=True)
    cost = data.objective[test]
    assert (found.lower_bound[:-1] <= cost * (1.0 + 1e-7)).all()
    assert np.median((cost - found.lower_bound[:-1]) / cost) < 0.05
    assert np.isnan(found.lower_bound[-1])
    assert found.outcome[-1].name == "ISLANDED"
    # The relaxation of the grid without the element, solved by somebody else.
    for block, table, row, place in (("branch", "branch", 3, 3), ("generator", "gen", 2, 2)):
        column = 10 if table == "branch" else 7
        without = read_grid(GRID6.edited(**{table: (row, column, 0.0)}).write(tmp_path / f"{table}.json"))
        one = problem.nominal.copy()
        one[problem.inputs[block].start + place] = 0.0
        value = relax(without, without.pd, without.qd).value
        bound = proxy.predict(one, "auto", prove=True).lower_bound[0]
        assert value * (1.0 - 1e-3) < bound < value * (1.0 + 1e-6)


def test_answers_under_outages(data: fb.Dataset, proxy: fb.Proxy, tmp_path: Path) -> None:
    problem = data.problem
    test = data.split(50).test
    x = data.x[[*test, 7]].copy()
    found = proxy.predict(x, "auto")
    assert found.ok[:-1].all()
    assert found.outcome[-1].name == "ISLANDED"
    assert np.isnan(found.y[-1]).all()
    assert any("cuts off bus 6" in warning for warning in found.warnings)
    np.testing.assert_allclose(found.objective[:-1], data.objective[test], rtol=1e-4)
    out = x[:-1, problem.inputs["generator"]] == 0.0
    assert out.any()
    assert (found.y[:-1, problem.blocks["pg"]][out] == 0.0).all()
    two = x[:1].copy()
    two[0, problem.inputs["generator"]] = [0.0, 0.0, 1.0, 1.0]
    assert proxy.predict(two, "mean").outcome[0].name in ("OUTSIDE", "VIOLATED")
    assert proxy.ladder.outside(two).all()
    proxy.save(tmp_path / "model")
    again = fb.Proxy.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict(x[:3]).y, proxy.predict(x[:3]).y)
    with pytest.raises(fb.FeasiblyError, match="a status is 1 for an element in service"):
        proxy.predict(np.where(two == 0.0, 0.5, two))


def test_the_command_line_draws_them(tmp_path: Path) -> None:
    from tests.cli.conftest import invoke

    grid = GRID6.write(tmp_path / "grid.json")
    words = ("--vary", "load,branch,cost", "--outages", "0.1", "--cost-draws", "permuted", "--jobs", "1")
    done = invoke("label", grid, "--count", "4", *words, "--out", tmp_path / "data.zarr", "--json")
    assert done.exit_code == 0, done.output
    found = fb.Dataset.open(tmp_path / "data.zarr")
    assert list(found.problem.inputs) == ["pd", "qd", "branch", "c1", "c2"]
    assert found.provenance.notes["draws"]["outages"] == 0.1
    assert found.provenance.notes["vary"] == ["load", "branch", "cost"]
    same = fb.load_problem(
        grid, vary=("load", "branch", "cost"), draws=fb.Draws(outages=0.1, costs="permuted")
    )
    assert same.fingerprint == found.problem.fingerprint


def test_an_input_outside_what_was_learnt_is_flagged_whatever_varies(
    data: fb.Dataset, tmp_path: Path
) -> None:
    """One coordinate of each kind out of range; in Python and on the command line in the same words."""
    from typer.testing import CliRunner

    from feasibly._cli.columns import read_table, write_table
    from feasibly.cli import app

    problem = data.problem
    proxy = fb.fit(problem, data, "ridge", labels=50, budget=1e-9)
    sound = data.x[data.solved][:1]
    rows = [sound[0]]
    for name in ("pd", "qd", "c1", "rating"):
        where = problem.inputs[name]
        row = sound[0].copy()
        row[where.start] = 3.0 * np.abs(data.x[:, where]).max() + 1.0
        rows.append(row)
    both = sound[0].copy()
    both[problem.inputs["branch"]] = 1.0
    both[problem.inputs["generator"]] = [0.0, 0.0, 1.0, 1.0]  # two outages, where one was learnt
    rows.append(both)
    x = np.array(rows)
    found = proxy.predict(x, "mean", tolerance=10.0)
    names = [outcome.name for outcome in found.outcome]
    assert names == ["OK", "OUTSIDE", "OUTSIDE", "OUTSIDE", "OUTSIDE", "OUTSIDE"]
    proxy.save(tmp_path / "model")
    write_table(tmp_path / "in.csv", {name: x[:, i] for i, name in enumerate(problem.input_names)})
    words = [
        "predict",
        tmp_path / "model",
        tmp_path / "in.csv",
        "--out",
        tmp_path / "out.npz",
        "--answer",
        "mean",
    ]
    done = CliRunner().invoke(app, [*map(str, words), "--tolerance", "10"])
    assert done.exit_code == 0, done.output
    assert f"5 OUTSIDE: {fb.AnswerOutcome.OUTSIDE.advice}" in " ".join(done.stdout.split())
    written = read_table(tmp_path / "out.npz")
    assert list(written.values[written.names.index("outcome")]) == names
