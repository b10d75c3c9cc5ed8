from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from feasibly.data.dataset import Dataset
from feasibly.data.importing import ForeignDataError
from feasibly.data.pglearn import import_pglearn
from feasibly.problem.families import grid_of
from feasibly.problem.grid import Grid
from feasibly.solve.outcome import Outcome
from tests.data.foreign import pglearn_case, pglearn_split, solved_grid, write_pglearn


@pytest.fixture(scope="module")
def solved() -> tuple[Grid, Dataset]:
    return solved_grid(10)


@pytest.fixture
def case(solved: tuple[Grid, Dataset]) -> dict[str, Any]:
    return pglearn_case(solved[0])


@pytest.fixture
def split(solved: tuple[Grid, Dataset]) -> dict[str, Any]:
    return copy.deepcopy(pglearn_split(*solved))


@pytest.mark.parametrize("packed", [True, False])
def test_a_case_imports_with_its_splits(
    tmp_path: Path, solved: tuple[Grid, Dataset], case: Any, split: Any, packed: bool
) -> None:
    grid, data = solved
    parts = {"train": split, "test": pglearn_split(grid, data.take(np.arange(4)))}
    folder = write_pglearn(tmp_path / "case6", case, parts, packed=packed)
    found, report = import_pglearn(folder, tmp_path / "out.zarr")
    assert report.rows == report.labels == 14
    assert found.provenance.notes["splits"] == {"train": [0, 10], "test": [10, 14]}
    assert np.abs(found.y[:10] - data.y).max() < 1e-6
    assert np.abs(found.objective[:10] / data.objective - 1).max() < 1e-6
    assert 1e-9 < report.worst_equality < 1e-4  # float32 shows, and no more
    assert report.worst_objective < 1e-6
    assert (found.seconds == 0.25).all()
    rebuilt = grid_of(Dataset.open(tmp_path / "out.zarr").problem)
    assert rebuilt is not None
    for name, array in grid.arrays().items():
        if name not in ("bus_id", "load_id", "gen_id", "branch_id", "position", "angmin", "angmax"):
            assert np.allclose(getattr(rebuilt, name), array, rtol=1e-12, atol=1e-12), name
    only, _ = import_pglearn(folder, splits=("test",))
    assert len(only) == 4


def test_rows_that_were_not_solved_keep_their_outcome(tmp_path: Path, case: Any, split: Any) -> None:
    words = [b"LOCALLY_INFEASIBLE", b"ITERATION_LIMIT", b"TIME_LIMIT", b"NUMERICAL_ERROR", b"LOCALLY_SOLVED"]
    split["ACOPF/meta"]["termination_status"][:5] = words
    split["ACOPF/primal"]["vm"][:4] = np.nan
    found, report = import_pglearn(write_pglearn(tmp_path, case, {"infeasible": split}, packed=False))
    wanted = [Outcome.INFEASIBLE, Outcome.ITERATION_LIMIT, Outcome.TIME_LIMIT, Outcome.NUMERICAL, Outcome.OK]
    assert found.outcome[:5].tolist() == [outcome.value for outcome in wanted]
    assert report.labels == 6
    assert report.n_flagged == 0
    assert np.isnan(found.y[:4]).all()


@pytest.mark.parametrize("kind", ["branch_status", "gen_status"])
def test_rows_of_another_topology_are_left_out_of_a_problem_with_loads_alone(
    tmp_path: Path, solved: tuple[Grid, Dataset], case: Any, split: Any, kind: str
) -> None:
    plain = solved[1].problem
    split["input"][kind][2, 1] = 0
    folder = write_pglearn(tmp_path / "a", case, {"train": split}, packed=False)
    found, report = import_pglearn(folder, problem=plain)
    assert len(found) == 9
    assert [flag.where for flag in report.flagged] == ["train row 2"]
    split["input"][kind][:, 1] = 0
    folder = write_pglearn(tmp_path / "b", case, {"train": split}, packed=False)
    with pytest.raises(ForeignDataError, match=r"no instance can be used .* other branches or generators"):
        import_pglearn(folder, problem=plain)


def test_an_objective_without_its_quadratic_part_is_flagged(tmp_path: Path, case: Any) -> None:
    grid, data = solved_grid(4, linear=True)
    assert any(case["data"]["c2"])
    assert not grid.cost[:, 0].any()
    folder = write_pglearn(tmp_path, case, {"train": pglearn_split(grid, data)}, packed=False)
    found, report = import_pglearn(folder)
    assert report.labels == 4
    assert "leave out the quadratic part" in report.warnings[0]
    assert report.worst_objective < 1e-6
    kept = grid_of(found.problem)
    assert kept is not None
    assert not kept.cost[:, 0].any()


def test_a_solution_beyond_rounding_is_no_label(tmp_path: Path, case: Any, split: Any) -> None:
    split["ACOPF/primal"]["va"][1, 2] += 1e-3
    split["ACOPF/primal"]["pg"][4, 0] += 1e-3
    found, report = import_pglearn(write_pglearn(tmp_path, case, {"train": split}, packed=False))
    assert np.flatnonzero(~found.solved).tolist() == [1, 4]
    assert report.n_flagged == 2
    assert report.worst_equality < 1e-4


def test_missing_and_damaged_files_are_named(tmp_path: Path, case: Any, split: Any) -> None:
    folder = write_pglearn(tmp_path / "a", case, {"train": split}, packed=True)
    meta = folder / "train" / "ACOPF" / "meta.h5.gz"
    whole = meta.read_bytes()
    meta.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ForeignDataError, match=r"meta.h5.gz is cut short or damaged"):
        import_pglearn(folder, tmp_path / "out.zarr")
    meta.unlink()
    with pytest.raises(ForeignDataError, match=r"has no train/ACOPF/meta.h5 or train/ACOPF/meta.h5.gz"):
        import_pglearn(folder)
    (folder / "train" / "ACOPF" / "meta.h5").write_bytes(b"not HDF5")
    with pytest.raises(ForeignDataError, match="cannot be read as HDF5"):
        import_pglearn(folder)
    with pytest.raises(ForeignDataError, match="has no split test; there: train"):
        import_pglearn(folder, splits=("test",))
    with pytest.raises(ForeignDataError, match="is not a folder"):
        import_pglearn(folder / "nowhere")
    with pytest.raises(ForeignDataError, match=r"has no case.json"):
        import_pglearn(tmp_path)
    (folder / "case.json.gz").unlink()
    (folder / "case.json").write_text('{"data": {"N": 3}}')
    with pytest.raises(ForeignDataError, match="is not a PGLearn case"):
        import_pglearn(folder)
    assert not (tmp_path / "out.zarr").exists()


def test_arrays_of_another_shape_are_refused(tmp_path: Path, case: Any, split: Any) -> None:
    split["ACOPF/primal"]["vm"] = split["ACOPF/primal"]["vm"][:, :-1]
    with pytest.raises(ForeignDataError, match=r"vm has shape \(10, 5\), expected \(10, 6\)"):
        import_pglearn(write_pglearn(tmp_path, case, {"train": split}, packed=False))
