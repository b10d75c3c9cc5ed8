"""A folder with a small dataset and a model of it, made by the commands themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from feasibly._cli.columns import write_table
from feasibly.cli import app
from tests.grids import GRID3

CASE = "nonconvex:8,3,5"
LABELS = 40


def invoke(*words: object) -> Any:
    """Run a command in this process; the result has `exit_code`, `stdout` and `stderr`."""
    return CliRunner().invoke(app, [str(word) for word in words])


def _made(*words: object) -> str:
    done = invoke(*words)
    assert done.exit_code == 0, (words, done.output)
    return str(done.stdout)


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`rows` (60 solved), `model` (ridge on 40 of them, `told.json`), `grid.m`, `grid-rows`, `inputs.csv`."""
    folder = tmp_path_factory.mktemp("home")
    GRID3.write(folder / "grid.m")
    rows, grid, model = folder / "rows", folder / "grid-rows", folder / "model"
    how = ("--method", "ridge", "--labels", LABELS, "--seed", 3, "--budget", 900, "--json")
    _made("label", CASE, "--count", 60, "--jobs", 1, "--out", rows)
    _made("label", folder / "grid.m", "--count", 8, "--jobs", 1, "--out", grid)
    (folder / "told.json").write_text(_made("train", rows, "--out", model, *how))
    x = np.random.Generator(np.random.Philox(key=1)).uniform(-1.0, 1.0, (7, 3))
    write_table(folder / "inputs.csv", {f"x{i}": x[:, i] for i in range(3)})
    return folder
