"""Damaged files, drawn by seed: refused, or read as what they now say (benchmarks/mutations.py has more)."""

from __future__ import annotations

import random
import warnings
from dataclasses import replace
from pathlib import Path

import pytest

from feasibly.problem.errors import FeasiblyError
from feasibly.problem.read import read_grid
from tests.grids import GRID3, GRID6, Tables

TABLES = {"three": GRID3, "six": replace(GRID6, charging=None, current=None)}
MATTERS = {"bus": (2, 3, 4, 5, 11, 12), "gen": (3, 4, 8, 9), "branch": (2, 3, 4, 5, 9), "gencost": (4, 5)}


def _damaged(text: str, lot: random.Random) -> str:
    at, letter = lot.randrange(len(text)), lot.choice("0123456789.-+eE;,[]{}()'\"%=\n \tabcNI\x00é")
    kind = lot.choice(["out", "in", "other", "less", "twice", "cut"])
    if kind == "out":
        return text[:at] + text[at + 1 :]
    if kind == "cut":
        return text[:at]
    if kind in ("in", "other"):
        return text[:at] + letter + text[at + (kind == "other") :]
    lines = text.split("\n")
    i = lot.randrange(len(lines))
    return "\n".join(lines[:i] + (lines[i + 1 :] if kind == "less" else [lines[i], *lines[i:]]))


@pytest.mark.parametrize("which", TABLES)
def test_damage_never_ends_in_a_traceback(which: str, tmp_path: Path) -> None:
    text, path, refused = TABLES[which].matpower(), tmp_path / "grid.m", 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in range(150):
            path.write_text(_damaged(text, random.Random(f"{which}-{number}")), encoding="utf-8")
            try:
                read_grid(path)
            except FeasiblyError:
                refused += 1
    assert 30 < refused < 150


def _changed(tables: Tables, lot: random.Random) -> Tables:
    name = lot.choice(list(MATTERS))
    rows = getattr(tables, name)
    row, column = lot.randrange(len(rows)), lot.choice(MATTERS[name])
    return tables.edited(**{name: (row, column, rows[row][column] * 1.5 + 0.25)})


def test_no_changed_number_passes_for_the_grid_it_was(tmp_path: Path) -> None:
    tables, path = GRID3, tmp_path / "grid.m"
    whole = read_grid(tables.write(path)).digest
    for number in range(80):
        changed = _changed(tables, random.Random(f"number-{number}"))
        try:
            assert read_grid(changed.write(path)).digest != whole
        except FeasiblyError:
            continue
