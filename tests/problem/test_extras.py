"""What files hold beyond branches and polynomials, against optima worked out by other means."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from feasibly.problem.acopf import acopf
from feasibly.problem.core import Problem
from feasibly.problem.errors import FeasiblyError, GridWarning
from feasibly.problem.families import describe, grid_of, load_problem, rebuild
from feasibly.problem.flows import equality_names, limits
from feasibly.problem.grid import Grid
from feasibly.problem.read import read_grid
from feasibly.solve.nlp import solve
from tests.grids import GRID3, GRID6, Tables

# Known before this release: whoever has a model of these grids keeps it.
FINGERPRINTS = {
    "pglib:case5_pjm": "7d89340d2a887f879128802c8a18e3a8",
    "pglib:case14_ieee": "7c745282cdc8c3dfa1cb5f38467e3fe9",
    "pglib:case57_ieee": "a9504e11d9fbcbb8c0ced168ba9c5bd9",
    "pglib:case118_ieee__api": "3872b738cf4921b3f6513083f340a194",
    "pglib:case240_pserc": "3b62fcc742689f5e38badd642d28b811",
    "pglib:case500_goc__sad": "f3a11a1e5d7b878426008c731f55d8ab",
}


@pytest.mark.parametrize("case", FINGERPRINTS)
def test_grids_of_the_library_are_what_they_were(case: str) -> None:
    grid = read_grid(case)
    assert grid.extras is None
    assert grid.digest == FINGERPRINTS[case]


def _load(tables: Tables, tmp_path: Path, name: str = "grid.m", **options: object) -> Problem:
    return load_problem(tables.write(tmp_path / name), **options)  # type: ignore[arg-type]


def _optimum(problem: Problem) -> tuple[float, np.ndarray]:
    (found,) = solve(problem, problem.nominal[None])
    assert found.outcome.name == "OK", found.outcome
    return float(found.objective), found.y


def _by(problem: Problem, name: str, y: np.ndarray) -> float:
    return float(y[problem.output_names.index(name)])


def test_a_cost_with_corners_is_its_epigraph(tmp_path: Path) -> None:
    """Two linear generators at one bus cost what one with a corner does: cheap up to 60 MW, dear above."""
    corner = replace(GRID3, gencost=[[1, 0, 0, 3, 0, 0, 60, 600, 200, 6200], [2, 0, 0, 2, 30, 5, 0, 0, 0, 0]])
    gen = np.vstack([GRID3.gen[0], GRID3.gen[0], GRID3.gen[1]])
    gen[0, 8], gen[1, 8], gen[:2, 3:5] = 60.0, 140.0, [50.0, -50.0]
    twin = replace(GRID3, gen=gen, gencost=[[2, 0, 0, 2, 10, 0], [2, 0, 0, 2, 40, 0], [2, 0, 0, 2, 30, 5]])
    one, two = _load(corner, tmp_path, "corner.m"), _load(twin, tmp_path, "twin.m")
    assert list(one.blocks)[-1] == "cost_pg"
    assert one.output_names[-1] == "cost_pg_1"
    cost, y = _optimum(one)
    assert cost == pytest.approx(_optimum(two)[0], rel=1e-6)
    assert 100.0 * _by(one, "pg_1", y) == pytest.approx(
        60.0, abs=1e-3
    )  # 30 $/MWh elsewhere: it stops at the corner


def test_a_straight_line_needs_no_corner(tmp_path: Path) -> None:
    straight = replace(
        GRID3, gencost=[[1, 0, 0, 3, 0, 7, 100, 2007, 200, 4007], [2, 0, 0, 2, 30, 5, 0, 0, 0, 0]]
    )
    grid = read_grid(straight.write(tmp_path / "grid.m"))
    assert grid.extras is None
    np.testing.assert_allclose(grid.cost[0], [0.0, 2000.0, 7.0])


def test_reactive_power_may_cost(tmp_path: Path) -> None:
    rows = [[*cost, *[0.0] * (7 - len(cost))] for cost in GRID3.gencost]
    free = _load(GRID3, tmp_path, "free.m")
    dear = _load(replace(GRID3, gencost=[*rows, [2, 0, 0, 3, 0.5, 0, 3], [2, 0, 0, 2, 0, 0, 0]]), tmp_path)
    cost, y = _optimum(dear)
    q = 100.0 * _by(dear, "qg_1", y)
    (again,) = free.objectives(dear.nominal[None], y[None])
    assert cost == pytest.approx(float(again) + 0.5 * q**2 + 3.0, rel=1e-9)
    assert abs(q) < abs(100.0 * _by(free, "qg_1", _optimum(free)[1]))
    with pytest.warns(GridWarning, match="those of reactive power in the file do not count either"):
        load_problem(tmp_path / "grid.m", costs=10.0)


DC_LINE = "mpc.dcline = [\n 1 3 1 20 0 0 0 1 1 {pmin} {pmax} -10 10 -5 5 0.5 0.05;\n];"


def test_a_dc_line_moves_power_and_loses_some(tmp_path: Path) -> None:
    problem = _load(replace(GRID3, extra=DC_LINE.format(pmin=-30, pmax=40)), tmp_path)
    assert list(problem.blocks)[4:] == ["pdc_from", "pdc_to", "qdc_from", "qdc_to"]
    cost, y = _optimum(problem)
    sent, arrived = (100.0 * _by(problem, name, y) for name in ("pdc_from_1", "pdc_to_1"))
    assert arrived == pytest.approx(sent - 0.5 - 0.05 * sent, abs=1e-6)
    # The same power as a load here and a negative load there, and reactive power likewise.
    bus = GRID3.bus.copy()
    bus[0, 2], bus[2, 2] = sent, bus[2, 2] - arrived
    bus[0, 3], bus[2, 3] = (
        -100.0 * _by(problem, "qdc_from_1", y),
        bus[2, 3] - 100.0 * _by(problem, "qdc_to_1", y),
    )
    assert cost == pytest.approx(_optimum(_load(replace(GRID3, bus=bus), tmp_path, "loads.m"))[0], rel=1e-6)
    assert cost < _optimum(_load(GRID3, tmp_path, "without.m"))[0]


def test_a_dc_line_at_its_set_point(tmp_path: Path) -> None:
    problem = _load(replace(GRID3, extra=DC_LINE.format(pmin=-30, pmax=40)), tmp_path, dc_lines="fixed")
    where = problem.blocks["pdc_from"]
    assert problem.lower[where] == problem.upper[where] == 0.2
    with pytest.raises(FeasiblyError, match="'free' or 'fixed', not 'loose'"):
        _load(GRID3, tmp_path, dc_lines="loose")


def test_limits_of_a_dc_line_hold_at_the_end_that_sends(tmp_path: Path) -> None:
    for (pmin, pmax), name, bounds in (
        ((10, 40), "pdc_from_1", (0.1, 0.4)), ((-40, -10), "pdc_to_1", (-0.4, -0.1)),
    ):  # fmt: skip
        problem = _load(replace(GRID3, extra=DC_LINE.format(pmin=pmin, pmax=pmax)), tmp_path)
        at = problem.output_names.index(name)
        assert (problem.lower[at], problem.upper[at]) == pytest.approx(bounds)


def test_a_branch_without_impedance_joins_its_buses(tmp_path: Path) -> None:
    joined = _load(GRID3.edited(branch=(2, 2, 0)).edited(branch=(2, 3, 0)), tmp_path)
    nearly = _load(GRID3.edited(branch=(2, 2, 0)).edited(branch=(2, 3, 1e-7)), tmp_path, "nearly.m")
    cost, y = _optimum(joined)
    assert cost == pytest.approx(_optimum(nearly)[0], rel=1e-6)
    assert _by(joined, "vm_1", y) == pytest.approx(_by(joined, "vm_3", y), abs=1e-9)
    assert joined.input_names == nearly.input_names
    assert joined.output_names[: nearly.n_outputs] == nearly.output_names


def test_the_limit_of_a_branch_without_impedance_holds(tmp_path: Path) -> None:
    tight = GRID3.edited(branch=(2, 2, 0)).edited(branch=(2, 3, 0)).edited(branch=(2, 5, 20))
    problem = _load(tight, tmp_path)
    _, y = _optimum(problem)
    assert np.hypot(_by(problem, "plink_3", y), _by(problem, "qlink_3", y)) == pytest.approx(0.2, abs=1e-5)


def test_islands_have_references_of_their_own(tmp_path: Path) -> None:
    """Two copies of a grid in one file cost twice as much; the second has no reference bus in the file."""
    bus, gen, branch = GRID3.bus.copy(), GRID3.gen.copy(), GRID3.branch.copy()
    bus[:, 0] += 10
    bus[0, 1] = 2
    gen[:, 0] += 10
    branch[:, :2] += 10
    two = replace(
        GRID3, bus=np.vstack([GRID3.bus, bus]), gen=np.vstack([GRID3.gen, gen]),
        branch=np.vstack([GRID3.branch, branch]), gencost=[*GRID3.gencost, *GRID3.gencost],
    )  # fmt: skip
    with pytest.warns(
        GridWarning, match="island of bus 11: has no reference bus .* bus 11, that of its largest"
    ):
        problem = _load(two, tmp_path)
    assert _optimum(problem)[0] == pytest.approx(2.0 * _optimum(_load(GRID3, tmp_path, "one.m"))[0], rel=1e-7)


def test_an_island_with_nothing_in_it_is_left_out(tmp_path: Path) -> None:
    lonely = np.vstack([GRID3.bus, GRID3.bus[0]])
    lonely[3, 0], lonely[3, 1] = 99, 1
    grid = read_grid(replace(GRID3, bus=lonely).write(tmp_path / "grid.m"))
    assert grid.bus_id.tolist() == [1, 2, 3]
    assert "island of bus 99: nothing generates or draws power there (buses 99); left out" in grid.warnings


def test_elements_at_isolated_buses_are_left_out_and_told(tmp_path: Path) -> None:
    with pytest.warns(GridWarning, match=r"branch 1: left out, since bus 2 is of type 4"):
        problem = _load(GRID3.edited(bus=(1, 1, 4)), tmp_path)
    grid = grid_of(problem)
    assert grid is not None
    assert grid.branch_id.tolist() == [3]


def _with_generator(cells: list[float], extra_columns: list[float]) -> Tables:
    gen = np.hstack([GRID3.gen, np.zeros((2, 11))])
    gen[1, 3:5], gen[1, 8:10] = cells[:2], cells[2:]
    gen[1, 10:16] = extra_columns
    return replace(GRID3, gen=gen)


def test_capability_curves_cut_corners(tmp_path: Path) -> None:
    """60 Mvar at 10 MW, 20 Mvar at 100 MW: between them a straight edge."""
    problem = _load(_with_generator([60, -60, 100, 10], [10, 100, -60, 60, -60, 20]), tmp_path)
    row = problem.violations(problem.nominal[None], problem.start[None]).shape[1] - 1
    y = np.tile(problem.start, (3, 1))
    p, q = (problem.output_names.index(name) for name in ("pg_3", "qg_3"))
    y[:, p], y[:, q] = [0.1, 1.0, 0.55], [0.6, 0.2, 0.4]
    np.testing.assert_allclose(
        problem.violations(np.tile(problem.nominal, (3, 1)), y)[:, row], 0.0, atol=1e-12
    )
    y[:, q] += 0.1
    assert (problem.violations(np.tile(problem.nominal, (3, 1)), y)[:, row] > 0.05).all()
    whole = _load(_with_generator([60, -60, 100, 10], [0, 0, 0, 0, 0, 0]), tmp_path, "whole.m")
    assert problem.n_inequalities == whole.n_inequalities + 1


def test_dispatchable_loads_keep_their_power_factor(tmp_path: Path) -> None:
    problem = _load(_with_generator([0, -10, 0, -40], [0] * 6).edited(branch=(0, 5, 0)), tmp_path)
    _, y = _optimum(problem)
    assert _by(problem, "qg_3", y) == pytest.approx(_by(problem, "pg_3", y) / 4.0, abs=1e-8)
    assert _load(_with_generator([10, -10, 0, -40], [0] * 6), tmp_path, "free.m").n_equalities == 6


def test_extras_are_stored_named_and_part_of_the_identity(tmp_path: Path) -> None:
    corner = replace(GRID3, gencost=[[1, 0, 0, 3, 0, 0, 60, 600, 200, 6200], [2, 0, 0, 2, 30, 5, 0, 0, 0, 0]])
    problem = _load(replace(corner, extra=DC_LINE.format(pmin=-30, pmax=40)), tmp_path)
    other = _load(replace(corner, extra=DC_LINE.format(pmin=-30, pmax=41)), tmp_path, "other.m")
    described = describe(problem)
    assert described is not None
    again = rebuild(*described)
    assert again.fingerprint == problem.fingerprint != other.fingerprint
    x, y = problem.nominal[None], problem.start[None]
    np.testing.assert_array_equal(again.equalities(x, y), problem.equalities(x, y))
    grid = grid_of(problem)
    assert isinstance(grid, Grid)
    outputs, rows = limits(problem, grid)
    assert len(outputs) == problem.n_outputs
    assert len(rows) == problem.n_inequalities
    assert len(equality_names(problem, grid)) == problem.n_equalities
    # Some rows alone are those rows.
    picked = np.array([0, problem.n_inequalities - 1])
    np.testing.assert_allclose(
        np.asarray(problem.only(picked)(x[0], y[0])),
        problem.inequalities(x, y)[0, picked],
        rtol=1e-6,
        atol=1e-6,
    )
    with pytest.raises(FeasiblyError, match="their statuses and costs cannot be inputs"):
        acopf(grid, vary=("load", "generator"))


def test_three_windings_are_a_star() -> None:
    from feasibly.problem._stars import star_points
    from feasibly.problem.matpower.case import Network

    winding = {"tap": 1.0, "shift": 0.0, "rate_a": 50.0}
    z = [{"r": 0.0, "x": x, "base_mva": 50.0} for x in (0.10, 0.06, 0.12)]
    one = {"windings": [{**winding, "bus": b} for b in (1, 2, 3)], "z": z, "mag_g": 0.0, "mag_b": -0.01,
           "in_service": True}  # fmt: skip
    network = Network(100.0, buses=[{"id": 3}], transformers_3w=[one, {**one, "in_service": False}])
    buses, branches, shunts = star_points(network, 100.0, [])
    assert [bus["id"] for bus in buses] == [4]
    x = [branch["x"] for branch in branches]
    np.testing.assert_allclose(
        [x[0] + x[1], x[1] + x[2], x[0] + x[2]], [0.20, 0.12, 0.24]
    )  # twice: half the base
    assert [branch["from_id"] for branch in branches] == [1, 2, 3]
    assert shunts == [{"bus": 1, "g": 0.0, "b": -1.0, "in_service": True}]


def test_six_buses_are_no_different(tmp_path: Path) -> None:
    assert read_grid(GRID6.write(tmp_path / "grid.json")).extras is None


@pytest.mark.parametrize(
    ("gencost", "named"),
    [
        ([[2, 0, 0, 3, -0.01, 20, 0], [2, 0, 0, 3, 0.01, 20, 0]], r"generator 1 \(bus \d\): the cost is concave"),
        ([[2, 0, 0, 3, -0.01, 20, 0], [2, 0, 0, 3, -1e-3, 5, 0]], r"generator 1 \(bus \d\), generator \d \(bus 3\): "),
        ([[2, 0, 0, 3, -1e-9, 20, 0], [2, 0, 0, 3, 0.0, 20, 0]], ""),
        (
            [[2, 0, 0, 3, 0.01, 20, 0]] * 2 + [[2, 0, 0, 3, 0, 0, 0], [2, 0, 0, 3, -0.1, 0, 0]],
            r"generator \d \(bus 3\), reactive power: the cost is concave",
        ),
    ],
    ids=["one", "two", "rounding", "reactive"],
)  # fmt: skip
def test_concave_costs_are_told_of_by_generator(
    gencost: list[list[float]], named: str, tmp_path: Path
) -> None:
    """They are solved, and what is found may be one optimum among several: nothing to keep quiet about."""
    grid = read_grid(replace(GRID3, gencost=gencost).write(tmp_path / "grid.m"))
    assert len(grid.warnings) == bool(named)
    if named:
        with pytest.warns(GridWarning, match=named + ".*may be local"):
            _load(replace(GRID3, gencost=gencost), tmp_path)


def test_a_generator_that_cannot_move_may_have_any_cost(tmp_path: Path) -> None:
    held = replace(GRID3, gencost=[[2, 0, 0, 3, -0.01, 20, 0], [2, 0, 0, 3, 0.01, 20, 0]])
    most = float(held.gen[0, 8])
    assert read_grid(held.edited(gen=(0, 9, most)).write(tmp_path / "grid.m")).warnings == ()
