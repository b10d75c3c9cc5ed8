"""pandapower nets against `runopp`, which shares no code with the solver here."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import feasibly as fb
from feasibly.interop._pandapower_write import write_pandapower
from feasibly.problem.families import grid_of
from tests.interop.nets import many_kinds, two_bus

pp = pytest.importorskip("pandapower")


def _solved(problem: fb.Problem, x: Any = None) -> Any:
    """A stand-in for an answer, from labels: the writer needs arrays and a problem."""
    data = fb.label(problem, problem.nominal[None] if x is None else x, jobs=1)
    assert data.solved.all()
    grid = grid_of(problem)
    assert grid is not None
    lam = -np.asarray(data.duals.equality) / grid.base_mva
    return SimpleNamespace(
        x=data.x, y=data.y, objective=data.objective, problem=problem, duals=data.duals,
        prices=lam[:, : grid.n_buses], reactive_prices=lam[:, grid.n_buses :], outcome=[None] * len(data.x),
    )  # fmt: skip


@pytest.fixture(scope="module")
def solved() -> tuple[Any, Any, Any]:
    """The net of many kinds, our optimum of it, and the net after `runopp`."""
    net = many_kinds()
    answer = _solved(fb.from_pandapower(net))
    theirs = copy.deepcopy(net)
    pp.runopp(
        theirs, numba=False, PDIPM_COSTTOL=1e-9, PDIPM_GRADTOL=1e-8, PDIPM_COMPTOL=1e-9, OPF_VIOLATION=1e-9
    )
    return net, answer, theirs


def test_the_optimum_is_that_of_runopp(solved: tuple[Any, Any, Any]) -> None:
    _, answer, theirs = solved
    assert answer.objective[0] == pytest.approx(theirs.res_cost, rel=1e-7)


def test_every_result_table_is_that_of_runopp(solved: tuple[Any, Any, Any]) -> None:
    net, answer, theirs = solved
    mine = copy.deepcopy(net)
    write_pandapower(answer, mine)
    tables = [key for key in theirs if key.startswith("res_") and key != "res_cost" and len(theirs[key])]
    assert {"res_bus", "res_gen", "res_sgen", "res_ext_grid", "res_line", "res_trafo", "res_trafo3w"} <= set(
        tables
    )
    for key in tables:
        assert list(mine[key].columns) == list(theirs[key].columns)
        assert mine[key].index.equals(theirs[key].index)
        for column in theirs[key]:
            np.testing.assert_allclose(
                mine[key][column], theirs[key][column], rtol=2e-3, atol=2e-3, err_msg=f"{key}.{column}"
            )
    assert mine.OPF_converged
    # What was given is not touched.
    for table in ("bus", "gen", "sgen", "load", "ext_grid", "trafo3w", "ward"):
        assert mine[table].equals(net[table])


def test_a_row_of_other_loads_is_that_of_runopp_with_those_loads(solved: tuple[Any, Any, Any]) -> None:
    net, answer, _ = solved
    changed = copy.deepcopy(net)
    changed.load.loc[0, "p_mw"] = 17.0
    changed.sgen.loc[1, ["p_mw", "q_mvar"]] = 1.0, 0.1
    problem = answer.problem
    there = fb.from_pandapower(changed)
    other = _solved(problem, there.nominal[None])
    write_pandapower(other, net)
    pp.runopp(changed, numba=False)
    assert net.res_cost == pytest.approx(changed.res_cost, rel=1e-6)
    assert net.res_load.p_mw[0] == pytest.approx(17.0)
    assert net.res_sgen.p_mw[1] == pytest.approx(0.9)
    np.testing.assert_allclose(net.res_bus.p_mw, changed.res_bus.p_mw, atol=0.01)


def test_phase_shifts_turn_angles_and_nothing_else(solved: tuple[Any, Any, Any]) -> None:
    net, answer, _ = solved
    turned = many_kinds(shift=150.0)
    write_pandapower(answer, net)
    write_pandapower(_solved(fb.from_pandapower(turned)), turned)
    assert turned.res_cost == pytest.approx(net.res_cost, rel=1e-7)
    beyond = [10, 11, 12, 15]
    np.testing.assert_allclose(
        turned.res_bus.va_degree[beyond], net.res_bus.va_degree[beyond] - 150.0, atol=1e-3
    )
    assert net.res_bus.va_degree[3] == turned.res_bus.va_degree[3] == pytest.approx(7.0)


def test_transformers_that_turn_angles_leave_ordinary_nets_solvable() -> None:
    """With one source and no freedom the optimum is the power flow; from flat angles it was taken for infeasible."""
    import pandapower.networks as networks

    net = networks.simple_mv_open_ring_net()
    assert set(net.trafo.shift_degree) == {150.0}
    found = _solved(fb.from_pandapower(net))
    write_pandapower(found, net)
    voltages = net.res_bus.vm_pu.copy()
    pp.runpp(net, numba=False)
    assert found.objective[0] == pytest.approx(net.res_ext_grid.p_mw.sum(), rel=1e-6)
    np.testing.assert_allclose(voltages, net.res_bus.vm_pu, atol=1e-6)


def test_the_open_end_of_a_line_has_no_limits_that_nobody_gave() -> None:
    """pandapower's converter holds it between 0.9 and 1.1 p.u., so that a weak net without limits had no solution."""
    net = pp.create_empty_network(name="open end", sn_mva=1.0)
    a, b, c = (pp.create_bus(net, 0.4) for _ in range(3))
    pp.create_ext_grid(net, a, vm_pu=0.95)
    for f, t in ((a, b), (b, c)):
        pp.create_line_from_parameters(net, f, t, 0.2, 0.64, 0.08, 210.0, 0.14)
    pp.create_switch(net, c, 1, et="l", closed=False)
    pp.create_load(net, b, 0.07, 0.005, controllable=False)
    pp.create_transformer3w_from_parameters(
        net, a, pp.create_bus(net, 0.2), pp.create_bus(net, 0.1), 0.4, 0.2, 0.1, 0.4, 0.4, 0.4, 10.0, 10.0, 10.0, 0.3,
        0.3, 0.3, 0.0, 0.0,
    )  # fmt: skip
    problem = fb.from_pandapower(net)
    grid = grid_of(problem)
    assert grid is not None
    assert len(grid.vmin) == 6  # c is cut off; an open end and a star point are added
    np.testing.assert_array_equal(grid.vmin, np.where(np.arange(6) == 0, 0.95, 0.0))
    np.testing.assert_array_equal(grid.vmax, np.where(np.arange(6) == 0, 0.95, 2.0))
    found = _solved(problem)
    pp.runpp(net, numba=False)
    assert net.res_bus.vm_pu[b] < 0.89
    assert found.objective[0] == pytest.approx(net.res_ext_grid.p_mw.sum(), rel=1e-6)


def test_what_pandapower_leaves_out_is_told_and_costs_of_nothing_are_refused() -> None:
    net = two_bus()
    pp.create_load(net, pp.create_bus(net, 20.0), 1.0, 0.1, controllable=False)
    problem = fb.from_pandapower(net)
    grid = grid_of(problem)
    assert grid is not None
    assert grid.warnings == ("load 1: left out, since no path leads from an external grid to its bus",)
    net.poly_cost.loc[0, "element"] = 7
    with pytest.raises(fb.ProblemError, match="ext_grid 7: has a cost, and there is no such element"):
        fb.from_pandapower(net)


def test_pandapowers_own_plots_colour_what_was_written(solved: tuple[Any, Any, Any]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    import pandapower.plotting as plotting

    net = copy.deepcopy(solved[0])
    write_pandapower(solved[1], net)
    net.bus["geo"] = [f'{{"type":"Point","coordinates":[{i}.0,{i % 3}.0]}}' for i in range(len(net.bus))]
    colours, norm = plotting.cmap_continuous([(0, "green"), (100, "red")])
    lines = plotting.create_line_collection(
        net, net.line.index, cmap=colours, norm=norm, use_bus_geodata=True
    )
    buses = plotting.create_bus_collection(net, net.bus.index, z=net.res_bus.lam_p, cmap=colours)
    shown = net.res_line.loading_percent[net.line.in_service]
    np.testing.assert_allclose(np.asarray(lines.get_array(), dtype=float), shown)
    np.testing.assert_allclose(np.asarray(buses.get_array(), dtype=float), net.res_bus.lam_p)
    plotting.draw_collections([lines, buses])
    plt.close("all")


def test_a_grid_at_the_edge_of_what_its_source_can_feed() -> None:
    """Iwamoto's eleven buses: nothing carries the load at the source's voltage; a higher one does."""
    import pandapower.networks as networks

    net = networks.case11_iwamoto()
    fixed, free = (fb.from_pandapower(net, slack_voltage=how) for how in ("fixed", "free"))
    data = fb.label(fixed, fixed.nominal[None], jobs=1)
    assert data.outcomes() == {"INFEASIBLE": 1}
    found = _solved(free)
    vm, va = (found.y[0, free.blocks[block]] for block in ("vm", "va"))
    net.ext_grid["vm_pu"] = vm[0]
    pp.runpp(net, numba=False, init_vm_pu=vm, init_va_degree=np.rad2deg(va))
    assert net.res_ext_grid.p_mw.sum() == pytest.approx(found.objective[0], rel=1e-6)


def test_slack_voltage_fixed_or_free() -> None:
    """Free can only cost less; its optimum is that of an external grid that says it is controllable."""
    net = many_kinds()
    fixed, free = (
        _solved(fb.from_pandapower(net, slack_voltage=how)).objective[0] for how in ("fixed", "free")
    )
    assert free < fixed
    net.ext_grid["controllable"] = True
    assert _solved(fb.from_pandapower(net)).objective[0] == pytest.approx(free, rel=1e-9)


def test_flow_limits_on_current_or_power() -> None:
    net = many_kinds()
    current, power = (grid_of(fb.from_pandapower(net, flow_limit=how)) for how in ("current", "power"))
    assert current is not None
    assert power is not None
    np.testing.assert_array_equal(current.current, power.rate)
    assert np.isinf(current.rate).all()
    assert np.isinf(power.current).all()


def test_the_net_is_left_as_it_was() -> None:
    net = many_kinds()
    before = copy.deepcopy(net)
    fb.from_pandapower(net)
    assert pp.toolbox.nets_equal(net, before)


def test_elements_that_cannot_be_modelled_are_all_named() -> None:
    net = two_bus()
    pp.create_asymmetric_load(net, 1, 0.1, 0.1, 0.1)
    pp.create_svc(net, 1, 1.0, -10.0, 1.0, 100.0)
    net.load.loc[0, "const_z_p_percent"] = 30.0
    with pytest.raises(fb.ProblemError) as error:
        fb.from_pandapower(net)
    assert {fault.where for fault in error.value.faults} == {"asymmetric_load 0", "svc 0", "load 0"}


def test_crossed_limits_and_doubled_costs_are_all_named() -> None:
    net = two_bus()
    net.bus.loc[1, "min_vm_pu"] = 1.2
    net.ext_grid.loc[0, "min_q_mvar"] = 60.0
    pp.create_poly_cost(net, 0, "ext_grid", cp1_eur_per_mw=2.0, check=False)
    with pytest.raises(fb.ProblemError) as error:
        fb.from_pandapower(net)
    assert [fault.where for fault in error.value.faults] == ["bus 1", "ext_grid 0", "ext_grid 0"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [({"slack_voltage": "loose"}, "fixed or free"), ({"flow_limit": "heat"}, "current or power")],
)
def test_options_that_do_not_exist(arguments: dict[str, str], words: str) -> None:
    with pytest.raises(fb.FeasiblyError, match=words):
        fb.from_pandapower(two_bus(), **arguments)


def test_limits_that_pandapower_insists_on_are_named() -> None:
    import pandapower.networks as networks

    with pytest.raises(fb.FeasiblyError, match=r"missing in gen: \['min_p_mw' 'max_p_mw'\]"):
        fb.from_pandapower(networks.create_cigre_network_hv())


def test_things_that_are_no_net() -> None:
    with pytest.raises(fb.FeasiblyError, match="got dict"):
        fb.from_pandapower({})
    with pytest.raises(fb.FeasiblyError, match="no buses"):
        fb.from_pandapower(pp.create_empty_network())


def test_another_net_is_not_written_to(solved: tuple[Any, Any, Any]) -> None:
    _, answer, _ = solved
    with pytest.raises(fb.ProblemError, match="differs"):
        write_pandapower(answer, two_bus())


def test_a_cost_of_an_element_out_of_service_is_nobodys() -> None:
    """In pandapower 3.5 it lands on the last generator, whoever that is."""
    net = two_bus()
    pp.create_gen(
        net, 1, 1.0, min_p_mw=0, max_p_mw=3, min_q_mvar=-1, max_q_mvar=1, in_service=False, controllable=True
    )
    pp.create_gen(net, 1, 1.0, min_p_mw=0, max_p_mw=3, min_q_mvar=-1, max_q_mvar=1, controllable=True)
    pp.create_poly_cost(net, 1, "gen", cp1_eur_per_mw=0.5)
    pp.create_poly_cost(net, 0, "gen", cp1_eur_per_mw=99.0)
    grid = grid_of(fb.from_pandapower(net))
    assert grid is not None
    np.testing.assert_allclose(grid.cost[:, 1], [1.0 * 10, 0.5 * 10])


def test_an_impedance_that_differs_by_direction_is_named() -> None:
    net = two_bus()
    pp.create_impedance(net, 0, 1, 0.05, 0.12, 50.0, rtf_pu=0.06, xtf_pu=0.12)
    with pytest.raises(fb.ProblemError, match="impedance 0: has another series impedance"):
        fb.from_pandapower(net)


def test_costs_with_corners_are_those_of_runopp() -> None:
    net = two_bus()
    pp.create_gen(net, 1, 1.0, 1.0, min_p_mw=0, max_p_mw=3, min_q_mvar=-1, max_q_mvar=1, controllable=True)
    net.poly_cost = net.poly_cost.iloc[:0]
    pp.create_pwl_cost(net, 0, "ext_grid", [[0, 1.5, 10.0], [1.5, 50, 30.0]])
    pp.create_pwl_cost(net, 0, "gen", [[0, 1, 5.0], [1, 2, 20.0], [2, 3, 40.0]])
    theirs = copy.deepcopy(net)
    pp.runopp(theirs, numba=False)
    write_pandapower(_solved(fb.from_pandapower(net)), net)
    assert net.res_cost == pytest.approx(theirs.res_cost, rel=1e-4)
    assert net.res_gen.p_mw[0] == pytest.approx(2.0, abs=1e-4)
    # A price on its reactive power, either way: none is made. (runopp 3.5 puts this cost on the external grid's.)
    pp.create_pwl_cost(net, 0, "gen", [[-1, 0, -2.0], [0, 1, 3.0]], power_type="q")
    write_pandapower(_solved(fb.from_pandapower(net)), net)
    assert net.res_gen.q_mvar[0] == pytest.approx(0.0, abs=1e-4)
    net.pwl_cost.at[1, "points"] = [[0, 1, 50.0], [1, 3, 20.0]]
    with pytest.raises(fb.ProblemError, match="gen 0: its piecewise-linear cost is not convex"):
        fb.from_pandapower(net)
