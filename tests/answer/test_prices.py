"""Multipliers, prices, flows and forms of answers, each against something that shares no code with it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy.optimize import root

import feasibly as fb
from feasibly.problem.families import grid_of
from feasibly.problem.prices import price_parts
from tests.grids import GRID6
from tests.problems import make
from tests.proxies import trained, unseen


def _answered(name: str, which: str = "polished", count: int = 6) -> fb.Answer:
    proxy, data = trained(name)
    return proxy.predict(unseen(proxy, data, count)[0], which)


@pytest.mark.parametrize("name", ["grid3", "grid6", "toy", "nonconvex", "unconstrained"])
@pytest.mark.parametrize("which", ["conditioned", "polished", "solved", "auto"])
def test_multipliers_are_those_of_the_labels(name, which):
    proxy, data = trained(name)
    rows = np.flatnonzero(data.solved & data.unseen(proxy.keys))[:12]
    found = proxy.predict(data.x[rows], which)
    assert found.duals is not None
    assert data.duals is not None
    parts = ("equality", "inequality", "lower", "upper")
    sizes = [np.abs(getattr(data.duals, part)[rows]).max(initial=1e-3) for part in parts]
    alone = found.unique_duals
    assert alone.sum() > 6
    for part in parts:
        mine, theirs = getattr(found.duals, part), getattr(data.duals, part)[rows]
        assert mine.shape == theirs.shape
        assert np.abs(mine - theirs)[alone].max(initial=0.0) < 1e-4 * max(sizes)


def test_multipliers_are_refined_whatever_the_answer_rests_at_and_absent_where_there_is_none():
    """From answers that are off by more than any answer is, the same multipliers; nothing about the answer changes."""
    from feasibly.answer.multipliers import refine

    proxy, data = trained("grid6")
    x, _, y = unseen(proxy, data, 8)
    driver = proxy.ladder.driver
    off = y + 1e-3 * np.random.default_rng(2).standard_normal(y.shape)
    start, every = driver.start(x, off), np.ones(len(x), dtype=bool)
    before = start.y.copy()
    found = refine(driver, x, start, every)
    np.testing.assert_array_equal(start.y, before)
    solved = proxy.predict(x, "solved").duals
    largest = np.abs(solved.equality).max()
    assert np.abs(found.equality - solved.equality).max() < 1e-4 * largest
    broken = x.copy()
    broken[3] = np.nan
    assert proxy.predict(broken, "conditioned").duals.known.tolist() == [row != 3 for row in range(8)]


def test_prices_are_promised():
    proxy, data = trained("grid6")
    made = fb.certify(proxy, data, 0.8, answers=("mean", "conditioned"), unlabelled=40, attach=False)
    promised = made.answers["conditioned"].price
    assert made.answers["mean"].price is None
    assert promised.confidence == 0.8
    rows = np.flatnonzero(data.solved & data.unseen(proxy.keys))
    found = proxy.predict(data.x[rows], "conditioned")
    grid = grid_of(proxy.problem)
    theirs = -data.duals.equality[rows, : grid.n_buses] / grid.base_mva
    off = np.abs(found.prices - theirs).max(axis=1)
    assert np.sort(off)[promised.rank - 1] == pytest.approx(float(promised.limit))
    with_it = made.attach(found, data.x[rows], "conditioned", tolerance=1e-6, seed=0, draws=500)
    assert (with_it.price_limit[np.isfinite(with_it.price_limit)] == promised.limit).all()
    assert "price at every bus" in made.describe()


def test_rows_without_unique_multipliers_are_named():
    toy, _ = trained("toy")
    # At (0, 1) two bounds and the equality meet in one point of the plane; elsewhere one of them at most.
    found = toy.predict(np.array([[-1.0, 1.0], [0.0, 0.2]]), "polished")
    assert found.unique_duals.tolist() == [False, True]
    doubled, _ = trained("degenerate")
    assert not doubled.predict(np.array([[0.5]]), "conditioned").unique_duals.any()


def test_a_fixed_output_has_its_multiplier():
    problem = fb.Problem(
        lambda x, y: (y[0] - x[0]) ** 2 + 3.0 * y[1] * y[0],
        [-5.0, 0.5],
        [5.0, 0.5],
        box=([0.0], [1.0]),
        name="one fixed",
    )
    data = fb.label(problem, fb.sample(problem, 40, seed=1), jobs=1)
    proxy = fb.fit(problem, data, "ridge", labels=20, budget=900.0)
    x = np.array([[0.2], [0.9]])
    found = proxy.predict(x, "polished")
    expected = 3.0 * (x[:, 0] - 0.75)  # the slope of the cost along the fixed output, y[0] being x - 3/4
    assert np.allclose(found.duals.lower[:, 1] - found.duals.upper[:, 1], expected, atol=1e-6)
    assert (found.duals.lower >= 0.0).all()
    assert (found.duals.upper >= 0.0).all()


@pytest.mark.parametrize("name", ["grid3", "grid6"])
def test_a_price_is_what_one_more_mwh_costs(name):
    problem = make(name)
    grid = grid_of(problem)
    found = _answered(name, count=2)
    step = 1e-4
    for load in range(grid.n_loads):
        moved = found.x.copy()
        costs = []
        for sign in (1.0, -1.0):
            moved = found.x.copy()
            moved[:, load] += sign * step
            costs.append(fb.label(problem, moved, jobs=1).objective)
        per_mwh = (costs[0] - costs[1]) / (2.0 * step * grid.base_mva)
        assert np.allclose(found.prices[:, grid.load_bus[load]], per_mwh, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["grid3", "grid6"])
def test_loss_part_is_what_the_reference_delivers(name):
    """A power flow of our own: generator buses hold their voltages, the reference bus delivers."""
    problem = make(name)
    grid = grid_of(problem)
    found = _answered(name, count=1)
    x, y = found.x[0], found.y[0]
    n, g = grid.n_buses, grid.n_generators
    held = np.unique(grid.gen_bus)
    slack = np.setdiff1d(np.arange(n), held)
    turning = np.setdiff1d(np.arange(n), grid.reference)
    moving = np.concatenate([2 * g + slack, 2 * g + n + turning])

    def delivered(extra: np.ndarray) -> float:
        def off(state: np.ndarray) -> np.ndarray:
            at = y.copy()
            at[moving] = state
            balance = problem.equalities(x[None], at[None])[0]
            return np.concatenate([balance[n + slack], (balance[:n] - extra)[turning]])

        solved = root(off, y[moving], tol=1e-12)
        at = y.copy()
        at[moving] = solved.x
        return -float(problem.equalities(x[None], at[None])[0][grid.reference[0]])

    parts = found.price_parts
    price = found.prices[0, grid.reference[0]]
    assert np.allclose(parts.energy[0], price)
    assert np.allclose(parts.energy + parts.losses + parts.congestion, found.prices)
    for bus in turning:
        extra = np.zeros(n)
        extra[bus] = 1e-4
        more = (delivered(extra) - delivered(-extra)) / 2e-4
        assert np.isclose(parts.energy[0, bus] + parts.losses[0, bus], price * more, rtol=1e-5)


def test_a_unit_that_is_out_holds_no_voltage(tmp_path):
    """The parts are those of the grid without it, at the same voltages and prices."""
    names = "load", "generator"
    whole = fb.load_problem(GRID6.write(tmp_path / "whole.m"), vary=names)
    grid = grid_of(whole)
    out = int(
        np.flatnonzero(
            ~np.isin(grid.gen_bus, grid.reference) & (np.bincount(grid.gen_bus)[grid.gen_bus] == 1)
        )[0]
    )
    fewer = fb.load_problem(without_unit(GRID6, grid, out).write(tmp_path / "fewer.m"), vary=names)
    assert grid_of(fewer).n_generators == grid.n_generators - 1
    y = whole.start[None] + np.linspace(0.0, 0.02, whole.n_outputs)
    x = whole.nominal[None].copy()
    x[0, whole.inputs["generator"].start + out] = 0.0
    prices = np.linspace(20.0, 30.0, grid.n_buses)[None]
    there = fewer.start[None].copy()
    for block in ("vm", "va"):
        there[:, fewer.blocks[block]] = y[:, whole.blocks[block]]
    parts = price_parts(whole, grid, x, y, prices)
    others = price_parts(fewer, grid_of(fewer), fewer.nominal[None], there, prices)
    running = price_parts(whole, grid, whole.nominal[None], y, prices)
    assert np.allclose(parts.losses, others.losses)
    assert not np.allclose(parts.losses, running.losses)


def without_unit(tables, grid, out):
    """The file without the line of one unit in service."""
    line = [k for k, row in enumerate(tables.gen) if row[7] > 0][out]
    costs = [row for k, row in enumerate(tables.gencost) if k != line]
    return dataclasses.replace(tables, gen=np.delete(tables.gen, line, axis=0), gencost=costs)


def test_flows_balance_and_loadings_are_those_of_the_limits():
    problem = make("grid6")
    grid = grid_of(problem)
    found = _answered("grid6")
    flows, y = found.flows, found.y
    into = np.zeros((len(y), grid.n_buses), dtype=complex)
    for bus in range(grid.n_buses):
        into[:, bus] -= (flows.p_from + 1j * flows.q_from)[:, grid.branch_from == bus].sum(axis=1)
        into[:, bus] -= (flows.p_to + 1j * flows.q_to)[:, grid.branch_to == bus].sum(axis=1)
        square = y[:, problem.blocks["vm"]][:, bus] ** 2
        at = grid.shunt_bus == bus
        into[:, bus] -= square * (grid.gs[at] - 1j * grid.bs[at]).sum()
        made = y[:, problem.blocks["pg"]] + 1j * y[:, problem.blocks["qg"]]
        into[:, bus] += made[:, grid.gen_bus == bus].sum(axis=1)
        used = found.x[:, : grid.n_loads] + 1j * found.x[:, grid.n_loads :]
        into[:, bus] -= used[:, grid.load_bus == bus].sum(axis=1)
    assert np.abs(into).max() < 1e-6
    rated = np.isfinite(grid.rate)
    over = problem.violations(found.x, y)[:, : rated.sum()]  # |S| - rate at the from ends
    size = np.hypot(flows.p_from, flows.q_from)[:, rated]
    assert np.allclose(size - grid.rate[rated], over)
    assert (found.loading[:, rated] >= 100.0 * size / grid.rate[rated] - 1e-9).all()
    assert np.isnan(found.loading[:, ~(rated | np.isfinite(grid.current))]).all()


def test_binding_names_the_limit_that_binds():
    found = _answered("grid3")
    lines = found.binding
    line = lines[(lines.component == "branch") & (lines.id == 1)]
    loaded = np.flatnonzero(found.loading[:, 0] > 99.999)
    assert sorted(line.row) == loaded.tolist()
    assert len(loaded) > 0
    assert set(line.limit) <= {"apparent from", "apparent to"}
    assert (line.multiplier > 0.0).all()
    assert (lines.slack < 1e-5).all()


def test_forms_carry_every_name():
    found = _answered("grid6")
    grid = grid_of(make("grid6"))
    frame = found.to_pandas(std=True, duals=True)
    assert frame["price_31"].to_numpy() == pytest.approx(found.prices[:, list(grid.bus_id).index(31)])
    assert {
        "pg_31",
        "std_pg_31",
        "loading_1",
        "dual_p_balance_31",
        "dual_lower_pg_31",
        "outcome",
        "rung",
    } <= set(frame.columns)
    assert len(frame) == len(found)
    cube = found.to_xarray()
    assert tuple(cube["outcome"].values) == tuple(frame["outcome"]) == found.outcome_names
    assert tuple(cube["level"].values) == tuple(frame["level"]) == found.level
    assert cube["steps"].values.tolist() == frame["steps"].tolist() == found.steps.tolist()
    assert frame["factorisations"].tolist() == found.factorisations.tolist()
    assert (
        frame["unique_duals"].tolist() == cube["unique_duals"].values.tolist() == found.unique_duals.tolist()
    )
    assert cube["price"].sel(bus=31).values == pytest.approx(frame["price_31"].to_numpy())
    assert cube["y"].sel(output="pg_31").values == pytest.approx(frame["pg_31"].to_numpy())
    assert cube["x"].sel(input="pd_2").values == pytest.approx(found.x[:, 0])
    parts = cube["price_energy"] + cube["price_losses"] + cube["price_congestion"]
    assert np.allclose(parts, cube["price"])
    assert np.allclose(
        cube["dual_equality"].sel(equality="p_balance_31"), -grid.base_mva * cube["price"].sel(bus=31)
    )
    assert cube["dual_inequality"].shape == (len(found), make("grid6").n_inequalities)


def test_forms_of_a_problem_that_is_no_grid():
    found = _answered("toy", "conditioned")
    assert list(found.to_pandas().columns[:2]) == ["y0", "y1"]
    assert found.to_xarray()["y"].dims == ("row", "output")
    assert set(found.binding.component) <= {"output", "inequality"}
    with pytest.raises(fb.FeasiblyError, match="not a grid"):
        _ = found.prices


def test_what_cannot_be_had_is_said():
    believed = _answered("grid3", "mean")
    assert believed.duals is None
    assert believed.loading.shape == (6, 3)
    assert "level" not in believed.to_xarray()
    assert "price_1" not in believed.to_pandas().columns
    with pytest.raises(fb.FeasiblyError, match="ask for conditioned"):
        _ = believed.prices
    with pytest.raises(fb.FeasiblyError, match="without its problem"):
        _ = dataclasses.replace(believed, problem=None).to_pandas()
