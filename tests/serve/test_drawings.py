"""Where buses are drawn, and that it is worked out once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from feasibly.problem.families import grid_of
from feasibly.serve import drawings
from feasibly.serve.drawings import Drawings
from feasibly.serve.layout import from_network
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
