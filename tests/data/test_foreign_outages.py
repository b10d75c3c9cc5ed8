"""Outages, costs and ratings of other people's data, as inputs: OPFData, PGLearn and GridFM."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from feasibly.data.dataset import Dataset
from feasibly.data.gridfm import import_gridfm
from feasibly.data.importing import ForeignDataError
from feasibly.data.label import label
from feasibly.data.opfdata import import_opfdata
from feasibly.data.pglearn import import_pglearn
from feasibly.problem.acopf import acopf
from feasibly.problem.drawing import VARY
from feasibly.problem.families import grid_of
from feasibly.problem.grid import Grid
from feasibly.problem.sampling import sample
from tests.data.foreign import (
    opfdata_instance,
    pglearn_case,
    pglearn_split,
    write_folder,
    write_gridfm,
    write_pglearn,
)
from tests.problems import make

OUTAGES = ("load", "branch", "generator")


def solved(vary: tuple[str, ...], count: int) -> tuple[Grid, Dataset]:
    """Rows of the six-bus grid, buses numbered from 0 and ends of a branch alike, that have a solution."""
    grid = grid_of(make("grid6"))
    assert grid is not None
    half = (grid.b_from + grid.b_to) / 2.0
    grid = replace(
        grid,
        current=np.full(grid.n_branches, np.inf),
        b_from=half,
        b_to=half,
        bus_id=np.arange(grid.n_buses),
    )
    problem = acopf(grid, vary=vary)
    data = label(problem, sample(problem, count, seed=8), jobs=1)
    return grid, data.take(data.solved)


@pytest.fixture(scope="module")
def single() -> tuple[Grid, Dataset]:
    return solved(OUTAGES, 24)


@pytest.fixture(scope="module")
def everything() -> tuple[Grid, Dataset]:
    return solved(VARY, 24)


def instance(grid: Grid, data: Dataset, row: int) -> dict[str, Any]:
    """A row as OPFData would write it: without what is out."""
    part = {name: data.x[row, where] for name, where in data.problem.inputs.items()}
    on, unit = part["branch"] == 1.0, part["generator"] == 1.0
    rate, cost, base = grid.rate.copy(), grid.cost.copy(), grid.base_mva
    if "rating" in part:
        rate[np.isfinite(rate)] = part["rating"]
        cost[:, 0], cost[:, 1] = part["c2"] * base**2, part["c1"] * base
    branches = ("branch_from", "branch_to", "r", "x", "g_from", "b_from", "g_to", "b_to", "tap", "shift")
    small = replace(
        grid,
        rate=rate[on],
        cost=cost[unit],
        **{name: getattr(grid, name)[on] for name in (*branches, "branch_id", "current", "angmin", "angmax")},
        **{name: getattr(grid, name)[unit] for name in ("gen_id", "gen_bus", "pmin", "pmax", "qmin", "qmax")},
    )
    g = grid.n_generators
    y = np.concatenate([data.y[row, :g][unit], data.y[row, g : 2 * g][unit], data.y[row, 2 * g :]])
    return opfdata_instance(small, np.concatenate([part["pd"], part["qd"]]), y, float(data.objective[row]))


@pytest.mark.parametrize("which", ["single", "everything"])
def test_opfdata_without_some_elements(tmp_path: Path, request: Any, which: str) -> None:
    grid, data = request.getfixturevalue(which)
    folder = write_folder(tmp_path / "json", [instance(grid, data, row) for row in range(len(data))])
    found, report = import_opfdata(folder, tmp_path / "out.zarr")
    assert report.labels == len(data)
    assert report.n_flagged == 0
    assert list(found.problem.inputs) == list(data.problem.inputs)
    np.testing.assert_allclose(found.y, data.y, atol=1e-12)
    np.testing.assert_allclose(found.objective, data.objective, rtol=1e-9)
    for name in ("pd", "generator"):
        np.testing.assert_array_equal(
            found.x[:, found.problem.inputs[name]], data.x[:, data.problem.inputs[name]]
        )
    out = (found.x[:, found.problem.inputs["branch"]] == 0.0).sum(axis=1)
    np.testing.assert_array_equal(out, (data.x[:, data.problem.inputs["branch"]] == 0.0).sum(axis=1))
    box = found.problem.box()
    assert box is not None
    assert ((found.x >= box[0] - 1e-9) & (found.x <= box[1] + 1e-9)).all()
    assert not found.problem.unlike(found.x).any()
    again = Dataset.open(tmp_path / "out.zarr")
    assert again.problem.fingerprint == found.problem.fingerprint


def test_opfdata_into_the_problem_one_has(tmp_path: Path, single: tuple[Grid, Dataset]) -> None:
    grid, data = single
    rows = [instance(grid, data, row) for row in range(6)]
    rows[4]["grid"]["edges"]["ac_line"]["features"][0][5] *= 1.5  # a branch that the grid does not have
    found, report = import_opfdata(write_folder(tmp_path / "json", rows), problem=data.problem)
    assert found.problem is data.problem
    assert report.rows == 5
    assert "branch number 1 is not in the grid" in report.flagged[0].why
    np.testing.assert_allclose(found.x, data.x[[0, 1, 2, 3, 5]], atol=1e-12)


def test_opfdata_into_a_problem_with_loads_alone_leaves_outages_out(
    tmp_path: Path, single: tuple[Grid, Dataset]
) -> None:
    grid, data = single
    row = int(np.flatnonzero((data.x[:, data.problem.inputs["branch"]] == 0.0).any(axis=1))[0])
    plain = acopf(grid)
    whole = label(plain, data.x[:3, : plain.n_inputs], jobs=1)
    rows = [opfdata_instance(grid, whole.x[i], whole.y[i], float(whole.objective[i])) for i in range(3)]
    folder = write_folder(tmp_path / "json", [*rows, instance(grid, data, row)])
    found, report = import_opfdata(folder, problem=plain)
    assert len(found) == 3
    assert "not those of the first instance" in report.flagged[0].why


def test_pglearn_with_statuses(tmp_path: Path, single: tuple[Grid, Dataset]) -> None:
    grid, data = single
    part = {name: data.x[:, where] for name, where in data.problem.inputs.items()}
    split = pglearn_split(grid, replace_inputs(grid, data))
    split["input"]["branch_status"][:, :-1] = part["branch"]
    split["input"]["gen_status"][:, :-1] = part["generator"]
    found, report = import_pglearn(
        write_pglearn(tmp_path / "a", pglearn_case(grid), {"train": split}, packed=True)
    )
    assert report.labels == len(data)
    assert list(found.problem.inputs) == list(data.problem.inputs)
    np.testing.assert_allclose(found.x, data.x, rtol=1e-6)
    np.testing.assert_allclose(found.objective, data.objective, rtol=1e-6)
    split["input"]["branch_status"][2, -1] = 1  # the spare that the case has out of service
    found, report = import_pglearn(
        write_pglearn(tmp_path / "b", pglearn_case(grid), {"train": split}, packed=False)
    )
    assert [flag.where for flag in report.flagged] == ["train row 2"]


def replace_inputs(grid: Grid, data: Dataset) -> Dataset:
    """The same rows with loads alone as inputs, for a writer that knows no others."""
    plain = acopf(grid)
    columns = {
        "x": data.x[:, : plain.n_inputs],
        "y": data.y,
        "objective": data.objective,
        "outcome": data.outcome,
    }
    return Dataset.from_columns(plain, columns, data.provenance)


@pytest.mark.parametrize("partitioned", [False, True])
def test_gridfm_with_everything(tmp_path: Path, everything: tuple[Grid, Dataset], partitioned: bool) -> None:
    grid, data = everything
    folder = write_gridfm(tmp_path / "case6" / "raw", grid, data, partitioned=partitioned)
    found, report = import_gridfm(folder, tmp_path / "out.zarr")
    assert report.labels == len(data)
    assert found.problem.name == "case6"
    rebuilt = grid_of(found.problem)
    assert rebuilt is not None
    assert rebuilt.base_mva == 100.0
    assert list(found.problem.inputs) == list(data.problem.inputs)
    np.testing.assert_allclose(found.x, data.x, atol=1e-9)
    np.testing.assert_allclose(found.y, data.y, atol=1e-9)
    np.testing.assert_allclose(found.objective, data.objective, rtol=1e-9)
    assert not found.problem.unlike(found.x).any()


def test_gridfm_tables_that_are_something_else(tmp_path: Path, everything: tuple[Grid, Dataset]) -> None:
    import pyarrow
    from pyarrow import parquet

    grid, data = everything
    with pytest.raises(ForeignDataError, match="is not a folder"):
        import_gridfm(tmp_path / "nowhere")
    folder = write_gridfm(tmp_path / "raw", grid, data.take(np.arange(4)))
    table = parquet.read_table(folder / "branch_data.parquet")
    scaled = np.where(table["scenario"].to_numpy() == 2, 1.1, 1.0) * table["x"].to_numpy()
    changed = table.set_column(table.schema.get_field_index("x"), "x", pyarrow.array(scaled))
    parquet.write_table(changed, folder / "branch_data.parquet")
    found, report = import_gridfm(folder)
    assert len(found) == 3
    assert report.flagged[0].where == "scenario 2"
    assert "impedances" in report.flagged[0].why
    parquet.write_table(table.drop_columns(["br_status"]), folder / "branch_data.parquet")
    with pytest.raises(ForeignDataError, match=r"branch_data\.parquet has no column br_status"):
        import_gridfm(folder)
    parquet.write_table(table.slice(0, table.num_rows - 1), folder / "branch_data.parquet")
    with pytest.raises(ForeignDataError, match="does not list the same idx"):
        import_gridfm(folder)
    (folder / "gen_data.parquet").unlink()
    with pytest.raises(ForeignDataError, match=r"has no gen_data\.parquet"):
        import_gridfm(folder)
