"""Damaged files, drawn by seed: refused, or read as what they now say (benchmarks/mutations.py has more)."""

from __future__ import annotations

import json
import random
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import powerio
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


ANYTHING = (None, "x", "", True, -1, 0, 2.5, 1e300, [], {}, [1, 2], {"a": 1}, 10**19)


def _ways(part: Any, way: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = list(
        part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
    )
    return [step for key, value in inner for step in ((*way, key), *_ways(value, (*way, key)))]


@pytest.mark.parametrize("format", ["powermodels-json", "egret-json"])
def test_fields_of_any_kind_never_end_in_a_traceback(format: str, tmp_path: Path) -> None:
    line = "mpc.dcline = [\n 1 3 1 20 18.5 0 0 1 1 0 40 -10 10 -5 5 0.5 0.05;\n];"
    source = replace(GRID3, extra=line).write(tmp_path / "grid.m")
    text, path, refused = powerio.emit(powerio.parse(str(source)), format).text, tmp_path / "grid.json", 0
    ways = _ways(json.loads(text))
    for number in range(200):
        lot = random.Random(f"{format}-{number}")
        part = whole = json.loads(text)
        *outer, last = lot.choice(ways)
        for key in outer:
            part = part[key]
        if lot.random() < 0.3:
            del part[last]
        else:
            part[last] = lot.choice(ANYTHING)
        path.write_text(json.dumps(whole), encoding="utf-8")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                read_grid(path)
            except FeasiblyError:
                refused += 1
    assert 40 < refused < 200


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
