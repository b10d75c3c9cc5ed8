from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from feasibly.data.dataset import Dataset
from feasibly.data.importing import ForeignDataError, ImportProgress
from feasibly.data.opfdata import import_opfdata
from feasibly.data.schema import StoreError
from feasibly.problem.acopf import acopf
from feasibly.problem.grid import Grid
from feasibly.solve.outcome import Outcome
from tests.data.foreign import opfdata_instances, solved_grid, write_archive, write_folder
from tests.problems import make


@pytest.fixture(scope="module")
def solved() -> tuple[Grid, Dataset]:
    return solved_grid(12)


@pytest.fixture
def instances(solved: tuple[Grid, Dataset]) -> list[dict[str, Any]]:
    return copy.deepcopy(opfdata_instances(*solved))


def test_a_folder_imports_in_order(
    tmp_path: Path, solved: tuple[Grid, Dataset], instances: list[Any]
) -> None:
    _, data = solved
    told: list[ImportProgress] = []
    folder = write_folder(tmp_path / "json", instances)
    found, report = import_opfdata(folder, tmp_path / "out.zarr", progress=told.append)
    assert report.rows == report.labels == len(data) == 12
    assert np.array_equal(found.x, data.x)  # example_10 comes after example_9
    assert np.array_equal(found.y, data.y)
    assert np.allclose(
        found.objective, data.objective, rtol=1e-7
    )  # the solver tells it before clipping to bounds
    assert report.worst_equality < 1e-6
    assert report.worst_inequality < 1e-6
    assert report.worst_objective < 1e-7
    assert report.n_flagged == 0
    assert "nominal loads" in report.warnings[0]
    assert told[-1] == ImportProgress(12, 12, 0)
    box = found.problem.box()
    assert box is not None
    assert ((box[0] <= found.x) & (found.x <= box[1])).all()
    back = Dataset.open(tmp_path / "out.zarr")
    assert back.provenance.source == "opfdata"
    assert back.provenance.notes["report"]["rows"] == 12
    assert np.array_equal(back.y, data.y)


def test_an_archive_streams_into_the_problem_one_has(
    tmp_path: Path, solved: tuple[Grid, Dataset], instances: list[Any]
) -> None:
    grid, data = solved
    problem = acopf(grid)
    found, report = import_opfdata(write_archive(tmp_path / "case6_0.tar.gz", instances), problem=problem)
    assert np.array_equal(found.y, data.y)
    assert found.problem is problem
    assert not report.warnings
    assert found.unseen(data.keys).sum() == 0  # the same rows, known again


def _drop_line(one: dict[str, Any]) -> None:
    for part in one["grid"]["edges"]["ac_line"].values():
        part.pop()


def _other_cost(one: dict[str, Any]) -> None:
    one["grid"]["nodes"]["generator"][0][9] *= 2.0


@pytest.mark.parametrize("change", [_drop_line, _other_cost])
def test_another_grid_than_the_problem_lets_vary_is_left_out_and_flagged(
    tmp_path: Path, solved: tuple[Grid, Dataset], instances: list[Any], change: Any
) -> None:
    change(instances[3])
    found, report = import_opfdata(write_folder(tmp_path / "json", instances), problem=acopf(solved[0]))
    assert len(found) == 11
    assert report.n_flagged == 1
    assert report.flagged[0].where == "example_3.json"
    assert "not those of the first instance" in report.flagged[0].why


def _shift_angle(one: dict[str, Any]) -> None:
    one["solution"]["nodes"]["bus"][1][0] += 0.01


def _megawatts(one: dict[str, Any]) -> None:
    one["solution"]["nodes"]["generator"] = [
        [100 * p, 100 * q] for p, q in one["solution"]["nodes"]["generator"]
    ]


def _wrong_objective(one: dict[str, Any]) -> None:
    one["metadata"]["objective"] *= 1.01


def _not_a_number(one: dict[str, Any]) -> None:
    one["solution"]["nodes"]["bus"][1][0] = float("nan")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (_shift_angle, "power balance is off"),
        (_megawatts, "power balance is off"),
        (_wrong_objective, "objective is"),
        (_not_a_number, "not finite"),
    ],
)
def test_what_the_physics_denies_is_no_label(
    tmp_path: Path, instances: list[Any], change: Any, why: str
) -> None:
    change(instances[5])
    found, report = import_opfdata(write_folder(tmp_path / "json", instances))
    assert len(found) == 12
    assert report.labels == found.n_labels == 11
    assert found.outcome[5] == Outcome.INACCURATE.value
    assert why in report.flagged[0].why
    assert report.worst_equality < 1e-6  # over the labels


def test_a_whole_set_in_other_units_is_refused(tmp_path: Path, instances: list[Any]) -> None:
    for one in instances:
        _megawatts(one)
    with pytest.raises(ForeignDataError, match=r"no instance can be used as a label; .* example_0\.json"):
        import_opfdata(write_folder(tmp_path / "json", instances), tmp_path / "out.zarr")
    assert not (tmp_path / "out.zarr").exists()


def test_files_that_are_something_else_are_flagged(tmp_path: Path, instances: list[Any]) -> None:
    folder = write_folder(tmp_path / "json", instances)
    (folder / "example_0.json").write_text('{"grid": ')
    (folder / "example_2.json").write_text(json.dumps({"weather": "fine"}))
    found, report = import_opfdata(folder)
    assert len(found) == 10
    assert {flag.where for flag in report.flagged} == {"example_0.json", "example_2.json"}


def test_an_archive_cut_short_is_refused(tmp_path: Path, instances: list[Any]) -> None:
    path = write_archive(tmp_path / "case6_0.tar.gz", instances)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ForeignDataError, match=r"case6_0.tar.gz is cut short or damaged after \d+ instances"):
        import_opfdata(path, tmp_path / "out.zarr")
    assert not (tmp_path / "out.zarr").exists()


def test_nothing_to_import(tmp_path: Path, instances: list[Any]) -> None:
    with pytest.raises(ForeignDataError, match="there is no file or folder"):
        import_opfdata(tmp_path / "nowhere")
    with pytest.raises(ForeignDataError, match=r"neither \.json files nor tar archives"):
        import_opfdata(tmp_path)
    (tmp_path / "a.json").write_text("[]")
    with pytest.raises(ForeignDataError, match="there is no OPFData instance in"):
        import_opfdata(tmp_path)


def test_a_problem_of_another_size_is_refused(tmp_path: Path, instances: list[Any]) -> None:
    with pytest.raises(ForeignDataError, match="has 4 inputs"):
        import_opfdata(write_folder(tmp_path / "json", instances), problem=make("grid3"))


def test_a_store_that_exists_is_left_alone(tmp_path: Path, instances: list[Any]) -> None:
    folder = write_folder(tmp_path / "json", instances)
    import_opfdata(folder, tmp_path / "out.zarr")
    with pytest.raises(StoreError, match="exists already"):
        import_opfdata(folder, tmp_path / "out.zarr")
    assert len(Dataset.open(tmp_path / "out.zarr")) == 12
