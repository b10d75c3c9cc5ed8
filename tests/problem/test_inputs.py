"""Inputs with names: statuses, costs and ratings beside the loads, in functions, bounds, draws and checks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import feasibly as fb
from feasibly.problem.acopf import acopf
from feasibly.problem.core import Problem
from feasibly.problem.drawing import VARY, Draws
from feasibly.problem.families import describe, load_problem, rebuild
from feasibly.problem.grid import Grid
from feasibly.problem.read import read_grid
from feasibly.problem.sampling import input_range, sample
from feasibly.problem.topology import bridges, cut_off
from tests.grids import GRID3, GRID6

BUILT_IN = {
    "grid3": "ea6035795ce8ff12a5b8bec3327a20f5",
    "grid6": "196ed6b512e5b9d1d0397796f730172d",
}
"""Fingerprints of problems with loads alone, as stores of earlier versions have them."""


@pytest.fixture(scope="module")
def grid6(tmp_path_factory: pytest.TempPathFactory) -> Grid:
    return read_grid(GRID6.write(tmp_path_factory.mktemp("grid") / "grid.json"))


@pytest.fixture(scope="module")
def everything(grid6: Grid) -> Problem:
    return acopf(grid6, vary=VARY)


def scattered(problem: Problem, rows: int) -> np.ndarray:
    random = np.random.Generator(np.random.Philox(key=4))
    return problem.start + 0.05 * random.standard_normal((rows, problem.n_outputs))


# ---- blocks and identity -----------------------------------------------------------------------------------


def test_loads_alone_are_the_problem_they_always_were(grid6: Grid, tmp_path: Path) -> None:
    assert acopf(grid6).fingerprint == BUILT_IN["grid6"]
    assert acopf(grid6, vary="load").fingerprint == BUILT_IN["grid6"]
    assert load_problem(GRID3.write(tmp_path / "grid.json"), vary=("load",)).fingerprint == BUILT_IN["grid3"]
    assert list(acopf(grid6).inputs) == ["pd", "qd"]


def test_inputs_are_blocks_in_order_and_cover_x(everything: Problem, grid6: Grid) -> None:
    assert list(everything.inputs) == ["pd", "qd", "branch", "generator", "c1", "c2", "rating"]
    sizes = {name: part.stop - part.start for name, part in everything.inputs.items()}
    rated = int(np.isfinite(grid6.rate).sum())
    assert sizes == {"pd": 4, "qd": 4, "branch": 8, "generator": 4, "c1": 4, "c2": 4, "rating": rated}
    assert everything.n_inputs == sum(sizes.values()) == len(everything.input_names)
    assert everything.input_names[8:11] == ("branch_31_10", "branch_10_2", "branch_10_2_2")
    assert "generator_10_2" in everything.input_names
    assert "rating_10_2_2" in everything.input_names


def test_costs_are_in_the_files_units_and_ratings_per_unit(everything: Problem) -> None:
    x = everything.nominal
    np.testing.assert_allclose(x[everything.inputs["c2"]], [0.04, 0.01, 0.02, 0.0], atol=1e-15)
    np.testing.assert_allclose(x[everything.inputs["c1"]], [18.0, 32.0, 28.0, 25.0])
    assert x[everything.inputs["rating"]].max() == 0.8


def test_the_order_that_is_asked_for_does_not_matter(grid6: Grid, everything: Problem) -> None:
    assert acopf(grid6, vary=VARY[::-1]).fingerprint == everything.fingerprint


@pytest.mark.parametrize("vary", ["weather", (), ("load", "loads")])
def test_what_cannot_vary_is_refused(grid6: Grid, vary: object) -> None:
    with pytest.raises(fb.FeasiblyError, match="choose from load, branch, generator, cost, rating"):
        acopf(grid6, vary=vary)  # type: ignore[arg-type]


def test_what_varies_and_how_it_is_drawn_are_part_of_the_identity(grid6: Grid, everything: Problem) -> None:
    prints = {
        acopf(grid6, vary=vary, draws=draws).fingerprint
        for vary, draws in (
            (("load", "branch"), None),
            (("load", "generator"), None),
            (("load", "branch"), Draws(outages=2)),
            (("load", "branch"), Draws(outages=0.1)),
            (VARY, Draws(cost_spread=0.1)),
        )
    }
    assert len(prints | {everything.fingerprint, BUILT_IN["grid6"]}) == 7


def test_a_described_problem_comes_back(grid6: Grid) -> None:
    problem = acopf(grid6, vary=("load", "branch", "cost"), draws=Draws(outages=2, costs="permuted"))
    described = describe(problem)
    assert described is not None
    again = rebuild(*described)
    assert again.fingerprint == problem.fingerprint
    np.testing.assert_array_equal(sample(again, 5, seed=1), sample(problem, 5, seed=1))


# ---- functions ---------------------------------------------------------------------------------------------


def test_with_everything_in_service_nothing_changes(everything: Problem, grid6: Grid) -> None:
    plain = acopf(grid6)
    loads, y = sample(plain, 5, seed=2), scattered(plain, 5)
    x = np.tile(everything.nominal, (5, 1))
    x[:, : plain.n_inputs] = loads
    for which in ("objectives", "equalities", "inequalities", "violations"):
        np.testing.assert_allclose(
            getattr(everything, which)(x, y), getattr(plain, which)(loads, y), atol=1e-12
        )


@pytest.mark.parametrize("row", [1, 3, 6])
def test_a_branch_that_is_out_is_a_branch_that_is_not_in_the_file(
    everything: Problem, grid6: Grid, row: int, tmp_path: Path
) -> None:
    without = acopf(read_grid(GRID6.edited(branch=(row, 10, 0.0)).write(tmp_path / "grid.json")))
    x, y = np.tile(everything.nominal, (3, 1)), scattered(everything, 3)
    x[:, everything.inputs["branch"].start + row] = 0.0
    np.testing.assert_allclose(everything.equalities(x, y), without.equalities(x[:, :8], y), atol=1e-12)
    # The rows of the missing branch are there and hold; all others are those of the smaller grid.
    natural = everything.violations(x, y)
    kept = np.isin(np.round(natural, 9), np.round(without.violations(x[:, :8], y), 9))
    assert (natural[~kept] < 0.0).all()
    assert kept.sum() >= 3 * without.n_inequalities


def test_a_unit_that_is_out_pays_nothing_and_its_bounds_meet_at_zero(everything: Problem) -> None:
    x = everything.nominal.copy()[None]
    x[0, everything.inputs["generator"].start] = 0.0
    lower, upper = everything.bounds(x)
    assert lower[0, 0] == upper[0, 0] == lower[0, 4] == upper[0, 4] == 0.0
    y = everything.pin(x, np.clip(everything.start, lower, upper))
    in_service = everything.objectives(everything.nominal[None], y)[0]
    assert in_service - everything.objectives(x, y)[0] == pytest.approx(100.0)  # its fixed cost
    # Whatever somebody writes there feeds nothing into the grid, and is a violated bound.
    wrong = y.copy()
    wrong[0, 0] = 0.5
    np.testing.assert_array_equal(everything.equalities(x, wrong), everything.equalities(x, y))
    assert everything.bound_violations(wrong, x).max() == 0.5
    assert everything.lower[1] == 0.0
    assert everything.limits.usual[0][1] == 0.05


def test_costs_and_ratings_are_those_of_the_input(everything: Problem) -> None:
    x, y = np.tile(everything.nominal, (2, 1)), scattered(everything, 2)
    x[1, everything.inputs["c1"].start + 2] += 3.0
    x[1, everything.inputs["c2"].start] += 0.5
    x[1, everything.inputs["rating"].start] -= 0.25
    y[1] = y[0]
    pg = y[0, :4] * 100.0
    cost = everything.objectives(x, y)
    assert cost[1] - cost[0] == pytest.approx(3.0 * pg[2] + 0.5 * pg[0] ** 2)
    more = everything.violations(x, y)[1] - everything.violations(x, y)[0]
    np.testing.assert_allclose(np.flatnonzero(more), [0, 7])  # both ends of the first branch
    np.testing.assert_allclose(more[[0, 7]], 0.25)


def test_some_inequalities_are_those_of_all(everything: Problem) -> None:
    import jax

    from feasibly.precision import double

    x = sample(everything, 4, seed=5)
    y, rows = scattered(everything, 4), np.array([0, 3, 9, 15, 17, 20, 24])
    with double():
        some = np.asarray(jax.vmap(everything.only(rows))(x, y))
    np.testing.assert_allclose(some, everything.inequalities(x, y)[:, rows], atol=1e-14)


# ---- drawing -----------------------------------------------------------------------------------------------


def test_loads_are_those_of_the_same_seed_with_loads_alone(everything: Problem, grid6: Grid) -> None:
    np.testing.assert_array_equal(sample(everything, 9, seed=7)[:, :8], sample(acopf(grid6), 9, seed=7))


@pytest.mark.parametrize(
    "draws", [Draws(), Draws(outages=2, costs="permuted"), Draws(outages=0.2, ratings="season")]
)
def test_more_rows_leave_the_first_as_they_were(grid6: Grid, draws: Draws) -> None:
    problem = acopf(grid6, vary=VARY, draws=draws)
    few, many = sample(problem, 5, seed=3), sample(problem, 50, seed=3)
    np.testing.assert_array_equal(few, many[:5])
    assert not np.array_equal(few, sample(problem, 5, seed=4))
    low, high = problem.box() or (0, 0)
    assert ((many >= low - 1e-12) & (many <= high + 1e-12)).all()
    assert not problem.unlike(many).any()


def outages(problem: Problem, x: np.ndarray) -> np.ndarray:
    parts = [x[:, problem.inputs[name]] for name in ("branch", "generator") if name in problem.inputs]
    return np.concatenate(parts, axis=1) == 0.0


def test_single_outages_are_half_branches_and_half_generators_and_no_bridges(tmp_path: Path) -> None:
    tables = replace(
        GRID6, branch=np.vstack([GRID6.branch, [2, 6, 0.03, 0.2, 0, 50, 0, 0, 0, 0, 1, -30, 30]])
    )
    tables = replace(tables, charging=None, current=None)
    grid = read_grid(tables.edited(branch=(6, 10, 0.0)).write(tmp_path / "grid.json"))
    problem = acopf(grid, vary=("load", "branch", "generator"))
    x = sample(problem, 2000, seed=1)
    out = outages(problem, x)
    assert (out.sum(axis=1) == 1).all()
    branches = out[:, : grid.n_branches]
    assert 900 < branches.any(axis=1).sum() < 1100
    np.testing.assert_array_equal(branches.any(axis=0), ~bridges(grid))
    assert out[:, grid.n_branches :].any(axis=0).all()


def test_outages_by_number_by_probability_and_each_in_turn(grid6: Grid) -> None:
    vary = ("branch", "generator")
    two = acopf(grid6, vary=vary, draws=Draws(outages=2))
    assert two.n_inputs == 12
    assert (outages(two, sample(two, 200)).sum(axis=1) == 2).all()
    rare = acopf(grid6, vary=vary, draws=Draws(outages=0.1))
    assert outages(rare, sample(rare, 2000)).mean() == pytest.approx(0.1, abs=0.01)
    each = acopf(grid6, vary=vary, draws=Draws(outages="each"))
    np.testing.assert_array_equal(outages(each, sample(each, 12)), np.eye(12, dtype=bool))
    none = acopf(grid6, vary=vary, draws=Draws(outages="none"))
    assert not outages(none, sample(none, 5)).any()


def test_costs_are_scaled_together_or_change_places(grid6: Grid, everything: Problem) -> None:
    c1, c2 = everything.inputs["c1"], everything.inputs["c2"]
    x = sample(everything, 100, seed=1)
    factor = x[:, c1] / everything.nominal[c1]
    np.testing.assert_allclose(factor[:, :3], x[:, c2][:, :3] / everything.nominal[c2][:3])
    assert 0.7 <= factor.min() < 0.75
    assert 1.25 < factor.max() <= 1.3
    moved = acopf(grid6, vary="cost", draws=Draws(costs="permuted"))
    pairs = sample(moved, 50).reshape(50, 2, 4).transpose(0, 2, 1)
    usual = {tuple(pair) for pair in moved.nominal.reshape(2, 4).T}
    assert all({tuple(pair) for pair in row} == usual for row in pairs)


def test_ratings_are_scaled_by_line_or_by_season(grid6: Grid) -> None:
    for how, factors in (("line", 7), ("season", 1)):
        problem = acopf(grid6, vary="rating", draws=Draws(ratings=how))
        ratio = sample(problem, 20) / problem.nominal
        assert all(len(set(np.round(row, 12))) == factors for row in ratio)
        assert (np.abs(ratio - 1.0) <= 0.2 + 1e-12).all()


def test_loads_may_be_correlated_under_outages(everything: Problem) -> None:
    x = sample(everything, 50, seed=2, design="correlated")
    assert (outages(everything, x).sum(axis=1) == 1).all()
    low, high = input_range(everything, design="correlated") or (0, 0)
    assert ((x >= low - 1e-12) & (x <= high + 1e-12)).all()
    assert low[everything.inputs["branch"]].max() == 0.0


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"outages": "double"}, "outages must be single, each, none"),
        ({"outages": 1.5}, "whole number of elements or a probability"),
        ({"outages": -1}, "whole number of elements or a probability"),
        ({"costs": "doubled"}, "costs must be scaled or permuted"),
        ({"ratings": "daily"}, "by line or by season"),
        ({"cost_spread": 1.0}, "cost_spread must be at least 0 and below 1"),
    ],
)
def test_draws_that_cannot_be(wrong: dict[str, object], said: str) -> None:
    with pytest.raises(fb.FeasiblyError, match=said):
        Draws(**wrong)  # type: ignore[arg-type]


def test_draws_without_anything_to_draw_are_refused(grid6: Grid) -> None:
    with pytest.raises(fb.FeasiblyError, match="pass vary too"):
        acopf(grid6, draws=Draws())


# ---- judging -----------------------------------------------------------------------------------------------


def test_a_pattern_of_another_kind_is_unlike(everything: Problem) -> None:
    x = np.tile(everything.nominal, (3, 1))
    x[1, everything.inputs["generator"].start] = 0.0
    x[2, everything.inputs["generator"].start + np.arange(2)] = 0.0
    assert everything.unlike(x).tolist() == [False, False, True]


@pytest.mark.parametrize(
    ("block", "value", "said"),
    [
        (
            "branch",
            0.5,
            "row 1: branch_31_10 is 0.5; a status is 1 for an element in service and 0 for one that is out",
        ),
        ("generator", 2.0, "row 1: generator_31 is 2; a status"),
        ("c1", -3.0, "row 1: c1_31 is -3; a generator's cost must not be negative"),
        ("c2", -1.0, "row 1: c2_31 is -1; a generator's cost must not be negative"),
        ("rating", 0.0, "row 1: rating_31_10 is 0; a rating must be positive"),
    ],
)
def test_inputs_that_cannot_be_are_named(everything: Problem, block: str, value: float, said: str) -> None:
    x = np.tile(everything.nominal, (2, 1))
    x[1, everything.inputs[block].start] = value
    with pytest.raises(fb.FeasiblyError) as error:
        everything.check_rows(x)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_an_outage_that_splits_the_grid_names_the_buses_cut_off(grid6: Grid) -> None:
    problem = acopf(grid6, vary=("load", "branch"))
    x = np.tile(problem.nominal, (3, 1))
    ends = np.stack([grid6.bus_id[grid6.branch_from], grid6.bus_id[grid6.branch_to]])
    x[1, problem.inputs["branch"].start + np.flatnonzero((ends == 6).any(axis=0))] = 0.0
    found = problem.refused(x)
    assert list(found) == [1]
    assert found[1].kind == "islanded"
    assert found[1].why == "branches 57-6, 6-31 out cuts off bus 6"
    balanced = acopf(grid6, vary=("load", "branch"), draws=Draws(islands=True))
    assert balanced.refused(x)[1].kind == "infeasible"
    assert "leaves bus 6 without a generator" in balanced.refused(x)[1].why


def test_bridges_are_the_branches_that_cut_something_off(tmp_path: Path) -> None:
    for drop in (None, 0, 4, 6):
        tables = GRID6 if drop is None else GRID6.edited(branch=(drop, 10, 0.0))
        grid = read_grid(tables.write(tmp_path / "grid.json"))
        on = ~np.eye(grid.n_branches, dtype=bool)
        found = [bool(cut_off(grid, row)) for row in on]
        np.testing.assert_array_equal(bridges(grid), found)
