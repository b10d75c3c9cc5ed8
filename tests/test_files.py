"""Files that appear whole or not at all, and values as JSON can say them."""

from __future__ import annotations

import enum
import json
from pathlib import Path

import numpy as np
import pytest

from feasibly._files import plain, write_whole, writing


def test_what_fails_leaves_what_was_there_and_nothing_else(tmp_path: Path) -> None:
    write_whole(tmp_path / "made" / "note", "old")
    with pytest.raises(UnicodeEncodeError):
        write_whole(tmp_path / "made" / "note", "new \ud800")
    assert (tmp_path / "made" / "note").read_text() == "old"
    assert [path.name for path in (tmp_path / "made").iterdir()] == ["note"]


def test_writers_of_the_same_file_do_not_meet(tmp_path: Path) -> None:
    """Threads of one process, for instance: each has a path of its own, and the last to end stays."""
    with writing(tmp_path / "note") as first:
        first.write_text("first")
        with writing(tmp_path / "note") as second:
            second.write_text("second")
        assert (tmp_path / "note").read_text() == "second"
    assert (tmp_path / "note").read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["note"]


def test_a_folder_takes_the_place_of_one(tmp_path: Path) -> None:
    for name in ("old", "new"):
        with writing(tmp_path / "folder") as partial:
            partial.mkdir()
            (partial / name).touch()
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["new"]
    with pytest.raises(FileNotFoundError), writing(tmp_path / "folder"):
        pass  # nothing was written, so there is nothing to put in its place
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["new"]
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_everything_has_a_form_in_json() -> None:
    kind = enum.Enum("kind", ["GOOD"])
    value = {
        1: np.array([1.0, np.nan]),
        "a": (kind.GOOD, {2}),
        "b": Path("x"),
        "c": -np.inf,
        "d": np.int64(3),
    }
    said = {"1": [1.0, None], "a": ["GOOD", [2]], "b": "x", "c": None, "d": 3}
    assert json.loads(json.dumps(plain(value), allow_nan=False)) == said
