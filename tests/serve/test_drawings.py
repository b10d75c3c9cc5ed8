"""Where buses are drawn, and that it is worked out once."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from feasibly.problem.families import grid_of, load_problem
from feasibly.problem.grid import Grid
from feasibly.serve import drawings
from feasibly.serve.drawings import Drawings
from feasibly.serve.layout import from_network, regions
from tests.grids import GRID3
from tests.problems import make


def test_a_layout_is_kept_and_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    grid = grid_of(make("grid6"))
    assert grid is not None
    made, how = Drawings(tmp_path / "new").place(grid)
    assert how == "layout"
    assert made.shape == (grid.n_buses, 2)
    assert made.min() >= 0.0
    assert made.max() <= 1.0
    assert len(np.unique(made.round(3), axis=0)) == grid.n_buses  # no bus on top of another
    assert [path.suffix for path in (tmp_path / "new").iterdir()] == [".npy"]

    def never(grid: object) -> np.ndarray:
        raise AssertionError("worked out again")

    monkeypatch.setattr(drawings, "from_network", never)
    again, _ = Drawings(tmp_path / "new").place(grid)
    np.testing.assert_allclose(again, made, atol=1e-6)


@pytest.mark.parametrize("raw", [b"", b"nonsense", b"\x93NUMPY\x01\x00", "short", "nan", "words"])
def test_a_damaged_drawing_is_made_anew(tmp_path: Path, raw: bytes | str) -> None:
    grid = grid_of(make("grid3"))
    assert grid is not None
    kept = Drawings(tmp_path)
    want, _ = kept.place(grid)
    (path,) = tmp_path.iterdir()
    if isinstance(raw, bytes):
        path.write_bytes(raw)
    else:
        odd = {
            "short": want[:1].astype(np.float32),
            "nan": np.full(want.shape, np.nan, np.float32),
            "words": np.array([["a"] * 2] * len(want)),
        }
        np.save(path, odd[raw])
    np.testing.assert_allclose(kept.place(grid)[0], want, atol=1e-6)
    np.testing.assert_allclose(np.load(path), want, atol=1e-6)


def test_a_folder_that_cannot_be_written_costs_nothing_but_time(tmp_path: Path) -> None:
    grid = grid_of(make("grid3"))
    assert grid is not None
    (tmp_path / "file").write_text("in the way")
    np.testing.assert_allclose(Drawings(tmp_path / "file").place(grid)[0], from_network(grid))


def test_a_file_that_says_where_buses_are_is_believed(tmp_path: Path) -> None:
    grid = grid_of(make("grid6"))
    assert grid is not None
    east, north = np.arange(grid.n_buses) * 2.0, np.arange(grid.n_buses)[::-1] * 1.0
    known = np.column_stack([east, north])
    placed, how = Drawings(tmp_path).place(dataclasses.replace(grid, position=known))
    assert how == "coordinates"
    assert (np.diff(placed[:, 0]) > 0.0).all()  # east is right
    assert (np.diff(placed[:, 1]) > 0.0).all()  # north is up, and pages count downwards
    assert list(tmp_path.iterdir()) == []  # nothing was worked out
    for useless in (np.full_like(known, np.nan), np.zeros_like(known)):
        assert Drawings(tmp_path).place(dataclasses.replace(grid, position=useless))[1] == "layout"


def test_areas_are_the_files_or_found_in_the_network() -> None:
    grid = grid_of(make("grid6"))
    assert grid is not None
    own = np.arange(grid.n_buses) % 2 * 6 + 1
    assert regions(dataclasses.replace(grid, area=own))[1:] == (["Area 1", "Area 7"], "file")
    owner, names, how = regions(dataclasses.replace(grid, area=np.ones(grid.n_buses, dtype=np.int64)))
    assert how == "network"
    assert set(owner) == set(range(len(names)))


def test_areas_of_a_file_come_with_its_grid(tmp_path: Path) -> None:
    """MATPOWER has them in the seventh column of a bus."""
    path = GRID3.write(tmp_path / "grid.m")
    one = grid_of(load_problem(path))
    path.write_text(path.read_text().replace("3 2 60 15 0 0 1 1", "3 2 60 15 0 0 4 1"))
    two = grid_of(load_problem(path))
    assert one is not None
    assert two is not None
    assert len(one.area) == 0
    assert two.area.tolist() == [1, 1, 4]
    assert two.digest == one.digest  # the problem is the same
    assert Grid.from_arrays("again", 100.0, two.arrays()).area.tolist() == [1, 1, 4]
