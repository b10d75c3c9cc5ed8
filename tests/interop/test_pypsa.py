"""PyPSA networks against PyPSA's own AC power flow, which shares no code with the model here."""

from __future__ import annotations

import logging
import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import feasibly as fb
from feasibly.problem.errors import GridWarning
from feasibly.problem.families import grid_of

pypsa = pytest.importorskip("pypsa")


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)


def _network() -> Any:
    """Meshed lines, one of a standard type; a transformer in the T model with its tap at bus1 and a phase shift."""
    network = pypsa.Network(name="four")
    network.set_snapshots(range(3))
    network.add("Bus", ["a", "b", "c", "d"], v_nom=[220.0, 220.0, 220.0, 110.0])
    network.add("Line", "ab", bus0="a", bus1="b", x=20.0, r=3.0, b=1e-4, s_nom=100.0, s_max_pu=0.9)
    network.add("Line", "bc", bus0="b", bus1="c", x=25.0, r=3.0, b=1e-4, g=1e-6, s_nom=80.0)
    network.add(
        "Line",
        "ac",
        bus0="a",
        bus1="c",
        type="Al/St 240/40 2-bundle 220.0",
        length=60.0,
        s_nom=70.0,
        num_parallel=2,
    )
    network.add("Line", "out", bus0="a", bus1="c", x=9.0, s_nom=10.0, active=False)
    network.add(
        "Transformer", "T", bus0="c", bus1="d", x=0.12, r=0.01, g=0.002, b=-0.01, s_nom=90.0, tap_ratio=1.03,
        tap_side=1, phase_shift=30.0, model="t",
    )  # fmt: skip
    network.add("Generator", "far", bus="d", p_nom=80.0, marginal_cost=20.0, p_max_pu=[1.0, 0.5, 0.2])
    network.add(
        "Generator",
        "near",
        bus="a",
        p_nom=150.0,
        marginal_cost=10.0,
        marginal_cost_quadratic=0.1,
        control="Slack",
    )
    network.add("ShuntImpedance", "coil", bus="b", b=-1e-4, g=1e-5)
    network.add("Load", "town", bus="b", p_set=60.0, q_set=15.0)
    network.add("Load", "village", bus="d", p_set=[50.0, 40.0, 30.0], q_set=10.0)
    return network


def _solved(problem: fb.Problem) -> Any:
    data = fb.label(problem, problem.nominal[None], jobs=1)
    assert data.solved.all()
    grid = grid_of(problem)
    assert grid is not None
    prices = -np.asarray(data.duals.equality)[:, : grid.n_buses] / grid.base_mva
    return SimpleNamespace(
        x=data.x,
        y=data.y,
        objective=data.objective,
        problem=problem,
        duals=data.duals,
        prices=prices,
        outcome=[None],
    )


def _write(answer: Any, network: Any, snapshot: Any) -> None:
    from feasibly.interop._pypsa_write import write_pypsa

    write_pypsa(answer, network, 0, snapshot)


def test_a_power_flow_of_the_optimum_gives_the_optimum() -> None:
    """Set points in, voltages, flows and injections out: PyPSA's Newton lands where ours stands."""
    network = _network()
    answer = _solved(fb.from_pypsa(network, snapshot=1))
    mine, theirs = network.copy(), network.copy()
    _write(answer, mine, 1)
    theirs.generators["control"] = ["PV", "Slack"]
    theirs.generators["p_set"] = mine.generators_t.p.loc[1]
    theirs.buses["v_mag_pu_set"] = mine.buses_t.v_mag_pu.loc[1]
    theirs.pf(snapshots=[1])
    for component, attributes in (
        ("Bus", ("v_mag_pu", "v_ang", "p", "q")),
        ("Generator", ("p", "q")),
        ("Load", ("p", "q")),
        ("Line", ("p0", "p1", "q0", "q1")),
        ("Transformer", ("p0", "p1", "q0", "q1")),
        ("ShuntImpedance", ("p", "q")),
    ):
        for attribute in attributes:
            ours, other = (n.components[component].dynamic[attribute].loc[1] for n in (mine, theirs))
            names = [name for name in other.index if name != "out"]
            np.testing.assert_allclose(
                ours[names], other[names], atol=1e-5, err_msg=f"{component}.{attribute}"
            )


def test_costs_limits_and_availability_are_those_of_the_snapshot() -> None:
    network = _network()
    grid = grid_of(fb.from_pypsa(network, snapshot=2, power_factor=0.9, voltage=(0.95, 1.05)))
    assert grid is not None
    np.testing.assert_allclose(grid.pmax, [0.16, 1.5])
    np.testing.assert_allclose(grid.qmax, np.array([0.8, 1.5]) * np.tan(np.arccos(0.9)))
    np.testing.assert_allclose(grid.cost, [[0, 2000, 0], [1000, 1000, 0]])
    np.testing.assert_allclose(grid.pd, [0.6, 0.3])
    np.testing.assert_allclose(grid.rate, [0.9, 0.8, 0.7, 0.9])
    np.testing.assert_allclose([grid.vmin[0], grid.vmax[0]], [0.95, 1.05])
    assert list(grid.reference) == [0]


def test_what_was_chosen_for_lack_of_anything_said_is_told() -> None:
    network = _network()
    network.generators.loc["far", "ramp_limit_up"] = 0.5
    with pytest.warns(GridWarning) as told:
        fb.from_pypsa(network)
    said = " ".join(str(warning.message) for warning in told)
    assert f"those of snapshot {network.snapshots[0]}, the first of {len(network.snapshots)}" in said
    assert "buses lack a limit of voltage; 0.9 and 1.1 p.u. stand in for it" in said
    assert "Generator far: limits of ramps join snapshots" in said
    network.generators["ramp_limit_up"] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fb.from_pypsa(network, snapshot=network.snapshots[1], voltage=(0.9, 1.1))


def test_the_price_of_a_bus_is_what_a_little_more_load_costs() -> None:
    network = _network()
    answer = _solved(fb.from_pypsa(network))
    _write(answer, network, 0)
    more = network.copy()
    more.loads.loc["town", "p_set"] += 0.01
    rise = _solved(fb.from_pypsa(more)).objective[0] - answer.objective[0]
    assert network.buses_t.marginal_price.at[0, "b"] == pytest.approx(rise / 0.01, rel=1e-3)
    # Other snapshots were not written.
    assert (network.buses_t.marginal_price.loc[1] == 0.0).all()


def _linked(**link: Any) -> Any:
    network = _network()
    network.generators.loc["far", "marginal_cost"] = 60.0
    network.add("Link", "cable", bus0="a", bus1="d", efficiency=0.99, marginal_cost=0.1, **link)
    return network


def test_a_link_takes_costs_and_gives_as_pypsa_has_it() -> None:
    """Between its limits a link carries until what arrives is worth what is taken and its cost."""
    network = _linked(p_nom=60.0)
    answer = _solved(fb.from_pypsa(network, snapshot=1))
    mine, theirs = network.copy(), network.copy()
    _write(answer, mine, 1)
    taken, given = mine.links_t.p0.at[1, "cable"], -mine.links_t.p1.at[1, "cable"]
    assert 1.0 < taken < 59.0
    assert given == pytest.approx(0.99 * taken)
    price = mine.buses_t.marginal_price.loc[1]
    assert 0.99 * price["d"] == pytest.approx(price["a"] + 0.1, rel=1e-5)
    theirs.generators["control"] = ["PV", "Slack"]
    theirs.generators["p_set"] = mine.generators_t.p.loc[1]
    theirs.links["p_set"] = mine.links_t.p0.loc[1]
    theirs.buses["v_mag_pu_set"] = mine.buses_t.v_mag_pu.loc[1]
    theirs.pf(snapshots=[1])
    for component, attribute in (
        ("Bus", "v_ang"),
        ("Bus", "p"),
        ("Generator", "p"),
        ("Link", "p1"),
        ("Line", "p0"),
    ):
        ours, other = (n.components[component].dynamic[attribute].loc[1] for n in (mine, theirs))
        names = [name for name in other.index if name != "out"]
        np.testing.assert_allclose(ours[names], other[names], atol=1e-5, err_msg=f"{component}.{attribute}")


def test_limits_of_a_link_hold_where_power_is_taken() -> None:
    network = _linked(p_nom=10.0, p_max_pu=0.0, p_min_pu=-1.0)
    network.generators["marginal_cost"] = [1.0, 90.0]  # what is cheap is at the link's far end
    answer = _solved(fb.from_pypsa(network))
    _write(answer, network, 0)
    assert network.links_t.p0.at[0, "cable"] == pytest.approx(-10.0, abs=1e-4)
    network = _linked(p_nom=10.0, p_set=4.0)
    _write(_solved(fb.from_pypsa(network)), network, 0)
    assert network.links_t.p0.at[0, "cable"] == pytest.approx(4.0)
    with pytest.raises(fb.ProblemError, match="links"):
        _write(_solved(fb.from_pypsa(network)), _network(), 0)


def test_everything_that_cannot_be_modelled_is_named() -> None:
    network = _network()
    network.add("Bus", "z", v_nom=1.0, carrier="DC")
    network.add("Link", "cable", bus0="a", bus1="b", bus2="c", efficiency2=0.1, p_nom=5.0)
    network.generators.loc["near", "e_sum_max"] = 10.0
    network.add("StorageUnit", "lake", bus="a", p_nom=1.0)
    network.add("Store", "tank", bus="a")
    network.add("Generator", "new", bus="a", p_nom_extendable=True)
    network.generators.loc["far", "committable"] = True
    with pytest.raises(fb.ProblemError) as error:
        fb.from_pypsa(network)
    assert {fault.where for fault in error.value.faults} == {
        "Bus z", "Link cable", "StorageUnit lake", "Store tank", "Generator new", "Generator far", "Generator near",
    }  # fmt: skip


def test_values_that_cannot_be_meant_are_named() -> None:
    network = _network()
    network.add("Bus", "alone", v_nom=220.0)
    network.add("Line", "bare", bus0="a", bus1="b", x=1.0)
    network.loads.loc["town", "q_set"] = np.nan
    network.buses.loc["c", "v_mag_pu_min"] = 1.5
    network.generators.loc["near", "p_min_pu"] = 2.0
    with pytest.raises(fb.ProblemError) as error:
        fb.from_pypsa(network)
    assert {fault.where for fault in error.value.faults} == {
        "Bus alone", "Line bare", "Load town", "Bus c", "Generator near",
    }  # fmt: skip


def test_things_that_are_no_network() -> None:
    with pytest.raises(fb.FeasiblyError, match="got dict"):
        fb.from_pypsa({})
    with pytest.raises(fb.FeasiblyError, match="no buses"):
        fb.from_pypsa(pypsa.Network())
    with pytest.raises(fb.FeasiblyError, match="no snapshot 'noon'"):
        fb.from_pypsa(_network(), snapshot="noon")
    with pytest.raises(fb.FeasiblyError, match="power factor"):
        fb.from_pypsa(_network(), power_factor=1.5)


def test_another_network_is_not_written_to() -> None:
    network = _network()
    answer = _solved(fb.from_pypsa(network))
    network.lines.loc["ab", "x"] = 30.0
    with pytest.raises(fb.ProblemError, match="differs"):
        _write(answer, network, 0)


def test_concave_costs_are_told_of_by_generator() -> None:
    network = _network()
    network.generators.loc["far", "marginal_cost_quadratic"] = -0.01
    with pytest.warns(GridWarning, match="Generator far: the cost is concave"):
        fb.from_pypsa(network)
