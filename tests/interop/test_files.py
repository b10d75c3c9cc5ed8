"""Files of pandapower and PyPSA are read as their packages read them, and nothing that they name is run."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import feasibly as fb
from feasibly.problem.errors import GridWarning
from feasibly.problem.families import grid_of
from tests.interop.nets import many_kinds, two_bus

pp = pytest.importorskip("pandapower")


def _grid(problem: fb.Problem) -> Any:
    return grid_of(problem)


def _written(net: Any, path: Path) -> Path:
    pp.to_json(net, str(path))
    return path


def test_a_net_from_its_file_is_the_net(tmp_path: Path) -> None:
    net = many_kinds()
    path = _written(net, tmp_path / "many.json")
    assert fb.load_problem(path).fingerprint == fb.from_pandapower(net).fingerprint
    free = fb.load_problem(path, slack_voltage="free", flow_limit="power")
    assert free.fingerprint == fb.from_pandapower(net, slack_voltage="free", flow_limit="power").fingerprint
    assert free.fingerprint != fb.from_pandapower(net).fingerprint


def test_what_a_file_names_is_not_run(tmp_path: Path) -> None:
    """pandapower's own reader would import the module and make the object."""
    document = json.loads(_written(two_bus(), tmp_path / "two.json").read_text())
    (tmp_path / "trap.py").write_text("raise SystemExit('imported')\n")
    document["_object"]["surprise"] = {"_module": "trap", "_class": "Trap", "_object": "{}"}
    (tmp_path / "two.json").write_text(json.dumps(document))
    with pytest.warns(match="surprise: an object of trap, which is left out"):
        problem = fb.load_problem(tmp_path / "two.json")
    assert problem.fingerprint == fb.from_pandapower(two_bus()).fingerprint


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"_class": "pandapowerNet", "_object": 3}', "it is no pandapower net"),
        ('{"_class": "pandapowerNet", "_object": {', "it is not valid JSON"),
        (
            '{"_class": "pandapowerNet", "_object": {"bus": {"_class": "DataFrame", "_object": "[1"}}}',
            "its table bus is damaged",
        ),
        ('{"_class": "pandapowerNet", "_object": {}}', "no buses"),
    ],
)
def test_damaged_files(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "net.json").write_text(text)
    with pytest.raises(fb.FeasiblyError, match=words):
        fb.load_problem(tmp_path / "net.json")


def _cell(table: str, column: str, value: Any, row: int = 0) -> Any:
    return lambda parts: parts[table]["data"][row].__setitem__(parts[table]["columns"].index(column), value)


DAMAGE = {
    "a bus below all": (_cell("load", "bus", -1), "load 0: bus must be a whole number from 0 on, got -1"),
    "a bus that is not there": (_cell("line", "to_bus", 9), "line 0: is at bus 9, which does not exist"),
    "half a bus": (_cell("load", "bus", 0.5), "load 0: bus must be a whole number from 0 on, got 0.5"),
    "half in service": (_cell("line", "in_service", 0.5), "line 0: in_service must be true or false, got 0.5"),
    "a status below": (_cell("load", "in_service", -1), "load 0: in_service must be true or false, got -1"),
    "a list for a choice": (_cell("load", "controllable", []), "load 0: controllable must be true or false"),
    "a list for a number": (_cell("load", "p_mw", []), "load"),
    "a voltage below": (_cell("bus", "vn_kv", -20.0), "bus 0: vn_kv must be positive, got -20"),
    "a cost in words": (_cell("poly_cost", "cp1_eur_per_mw", "x"), "poly_cost"),
    "an element in words": (_cell("poly_cost", "element", "x"), "poly_cost"),
    "an index in words": (lambda parts: parts["load"]["index"].__setitem__(0, "a"), "load: its index must be whole"),
    "an index twice": (lambda parts: parts["bus"]["index"].__setitem__(0, 1), "bus 1: stands more than once"),
    "a column gone": (
        lambda parts: (parts["poly_cost"]["columns"].remove("cp1_eur_per_mw"),
                       [row.pop() for row in parts["poly_cost"]["data"]]),
        "poly_cost: has no column cp1_eur_per_mw",
    ),
}  # fmt: skip


@pytest.mark.parametrize("which", DAMAGE)
def test_cells_that_nothing_can_be_made_of_are_refused(which: str, tmp_path: Path) -> None:
    """pandapower's compiled parts would read memory that is not theirs; words ended in errors of all kinds."""
    change, sentence = DAMAGE[which]
    document = json.loads(_written(two_bus(), tmp_path / "two.json").read_text())
    whole = document["_object"]
    parts = {name: json.loads(whole[name]["_object"]) for name in ("bus", "load", "line", "poly_cost")}
    change(parts)
    for name, part in parts.items():
        whole[name]["_object"] = json.dumps(part)
    (tmp_path / "two.json").write_text(json.dumps(document))
    with pytest.raises(fb.FeasiblyError, match=re.escape(sentence)):
        fb.load_problem(tmp_path / "two.json")


def test_a_net_in_memory_is_looked_at_too() -> None:
    net = two_bus()
    net.load["bus"] = [-1]
    pp.create_switch(net, 0, 1, et="b", closed=False)
    net.switch.loc[0, "element"] = 7
    with pytest.raises(fb.ProblemError, match=r"load 0: is at bus -1(.|\n)*switch 0: is at bus 7, which"):
        fb.from_pandapower(net)


def test_costs_given_and_none_at_all(tmp_path: Path) -> None:
    net = two_bus()
    net.poly_cost = net.poly_cost.iloc[:0]
    path = _written(net, tmp_path / "two.json")
    with pytest.warns(match="every MW costs 1, as in pandapower"):
        plain = _grid(fb.load_problem(path))
    np.testing.assert_allclose(plain.cost, [[0.0, 10.0, 0.0]])
    np.testing.assert_allclose(_grid(fb.load_problem(path, costs=3.0)).cost, [[0.0, 30.0, 0.0]])
    with pytest.raises(fb.ProblemError, match="expected 1 rows of c2, c1, c0"):
        fb.load_problem(path, costs=[])


def test_what_is_left_out_is_asked_for_by_name(tmp_path: Path) -> None:
    net = two_bus()
    for _ in range(12):
        pp.create_asymmetric_load(net, 1, 0.1, 0.1, 0.1)
    path = _written(net, tmp_path / "two.json")
    with pytest.raises(
        fb.ProblemError, match=r"asymmetric_load 0, .*9 and 2 more: .*ignore=.asymmetric_load"
    ):
        fb.load_problem(path)
    with pytest.warns(match="asymmetric_load is left out, as asked"):
        problem = fb.load_problem(path, ignore="asymmetric_load")
    assert problem.fingerprint == fb.from_pandapower(two_bus()).fingerprint
    with pytest.raises(
        fb.ProblemError, match="'ward' cannot be left out of a pandapower net; asymmetric_load, "
    ):
        fb.load_problem(path, ignore="asymmetric_load,ward")


def _with_dc_line(p_mw: float, sn_mva: float = 1.0) -> Any:
    net = pp.create_empty_network(sn_mva=sn_mva)
    a, b, c = (pp.create_bus(net, 110.0, min_vm_pu=0.95, max_vm_pu=1.05) for _ in range(3))
    pp.create_ext_grid(net, a, min_p_mw=-100, max_p_mw=100, min_q_mvar=-100, max_q_mvar=100)
    pp.create_gen(net, c, 10.0, min_p_mw=0, max_p_mw=60, min_q_mvar=-50, max_q_mvar=50, vm_pu=1.0)
    for f, t in ((a, b), (b, c)):
        pp.create_line_from_parameters(net, f, t, 30.0, 0.06, 0.14, 9.0, 0.5, max_loading_percent=100.0)
    pp.create_load(net, b, 50.0, 10.0)
    pp.create_dcline(
        net, c, b, p_mw, 2.0, 0.3, 1.0, 1.0, max_p_mw=20.0, min_q_from_mvar=-10, max_q_from_mvar=10,
        min_q_to_mvar=-10, max_q_to_mvar=10,
    )  # fmt: skip
    pp.create_poly_cost(net, 0, "ext_grid", cp1_eur_per_mw=20.0)
    pp.create_poly_cost(net, 0, "gen", cp1_eur_per_mw=8.0)
    pp.create_poly_cost(net, 0, "dcline", cp1_eur_per_mw=1.5)
    return net


def test_dc_lines_are_those_of_runopp() -> None:
    net = _with_dc_line(5.0)
    problem = fb.from_pandapower(net)
    data = fb.label(problem, problem.nominal[None], jobs=1)
    pp.runopp(net, numba=False, PDIPM_COSTTOL=1e-10, PDIPM_GRADTOL=1e-8, PDIPM_COMPTOL=1e-9)
    assert data.objective[0] == pytest.approx(net.res_cost, rel=1e-7)
    theirs = net.res_dcline.copy()
    from feasibly.interop._pandapower_write import ResultTables

    ours = ResultTables(net, problem).compute(data.x[0], data.y[0], float(data.objective[0]), None, None)
    for column in ("p_from_mw", "p_to_mw", "pl_mw"):
        np.testing.assert_allclose(ours["res_dcline"][column], theirs[column], atol=1e-4)


def test_a_dc_line_at_its_set_point_or_turned_round() -> None:
    """What a line loses is lost whichever way it runs, and MW are MW on any base."""
    for sn_mva in (1.0, 100.0):
        for p_mw, draws in ((5.0, "from"), (-5.0, "to")):
            problem = fb.from_pandapower(_with_dc_line(p_mw, sn_mva), dc_lines="fixed")
            data = fb.label(problem, problem.nominal[None], jobs=1)
            to_bus, from_bus = data.y[0][problem.blocks["pg"]][2:] * sn_mva
            drawn, arrives = (from_bus, to_bus) if draws == "from" else (to_bus, from_bus)
            assert drawn == pytest.approx(-5.0, abs=1e-6)
            assert arrives == pytest.approx((5.0 - 0.3) / 1.02, abs=1e-6)


def test_a_pypsa_folder_is_the_network(tmp_path: Path) -> None:
    pypsa = pytest.importorskip("pypsa")
    network = pypsa.Network(name="pair")
    network.add("Bus", ["a", "b"], v_nom=220.0)
    network.add("Line", "ab", bus0="a", bus1="b", x=20.0, r=2.0, s_nom=100.0)
    network.add("Generator", "hydro", bus="a", p_nom=120.0, marginal_cost=8.0, control="Slack")
    network.add("Load", "city", bus="b", p_set=30.0, q_set=5.0)
    network.export_to_csv_folder(tmp_path / "pair")
    assert fb.load_problem(tmp_path / "pair").fingerprint == fb.from_pypsa(network).fingerprint
    for option, value in (("ignore", "links"), ("dc_lines", "fixed")):
        with pytest.raises(fb.FeasiblyError, match=f"{option} is not for PyPSA's networks, and pair is one"):
            fb.load_problem(tmp_path / "pair", **{option: value})
    (tmp_path / "pair" / "lines.csv").write_text("name,bus0\nab\n\x00")
    with pytest.raises(fb.FeasiblyError):
        fb.load_problem(tmp_path / "pair")
    with pytest.raises(fb.FeasiblyError, match="slack_voltage is for pandapower"):
        fb.load_problem("nonconvex:10,4,6", slack_voltage="free")


def test_concave_costs_are_told_of_by_element(tmp_path: Path) -> None:
    """pandapower turns the cost of a load round: a convex one in its table is concave in the dispatch."""
    net = two_bus()
    net.poly_cost.loc[0, "cp2_eur_per_mw2"] = -0.01
    load = pp.create_load(
        net, 1, 2.0, 0.5, controllable=True, min_p_mw=0.0, max_p_mw=3.0, min_q_mvar=0.0, max_q_mvar=1.0
    )
    pp.create_poly_cost(net, load, "load", cp1_eur_per_mw=-2.0, cp2_eur_per_mw2=0.1)
    with pytest.warns(GridWarning, match="ext_grid 0, load 1: the cost is concave"):
        fb.from_pandapower(net)
    with pytest.warns(GridWarning, match="ext_grid 0, load 1: the cost is concave"):
        fb.load_problem(_written(net, tmp_path / "two.json"))
