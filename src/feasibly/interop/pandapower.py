"""A pandapower net as a problem: the model that `pandapower.runopp` optimises, element by element.

pandapower's own converter makes the electrical model (switches, taps, three-winding transformers, wards), so that
it cannot differ from what its power flows use; this module reads the result, the costs and the limits.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feasibly.interop._pandapower_case import Case, check_net, convert, left_out
from feasibly.interop._pandapower_check import check_tables
from feasibly.interop._pandapower_costs import dc_ends, join_dc_lines, open_limits, read_costs
from feasibly.problem._costs import Costs, prices
from feasibly.problem._gather import Gathering
from feasibly.problem.acopf import SPREAD, acopf
from feasibly.problem.core import Problem
from feasibly.problem.errors import Fault, FeasiblyError, ProblemError, argument
from feasibly.problem.grid import Grid
from feasibly.problem.read import listed

Floats = NDArray[np.float64]

_UNMODELLED = {
    "asymmetric_load": "is unbalanced, and runopp would leave it out in silence",
    "asymmetric_sgen": "is unbalanced, and runopp would leave it out in silence",
    "svc": "is a static var compensator, which optimal power flow here and in pandapower has none of",
    "ssc": "is a static synchronous compensator, which optimal power flow here and in pandapower has none of",
    "tcsc": "is a series compensator, which optimal power flow here and in pandapower has none of",
    "vsc": "is a converter, which optimal power flow here and in pandapower has none of",
    "vsc_stacked": "is a converter, which optimal power flow here and in pandapower has none of",
    "vsc_bipolar": "is a converter, which optimal power flow here and in pandapower has none of",
    "line_dc": "is a DC line, which the model here has none of",
    "load_dc": "is a DC load, which the model here has none of",
    "source_dc": "is a DC source, which the model here has none of",
}


def from_pandapower(
    net: Any,
    *,
    spread: float = SPREAD,
    slack_voltage: str = "fixed",
    flow_limit: str = "current",
    dc_lines: str = "free",
    costs: Costs | None = None,
    ignore: str | Sequence[str] = (),
    name: str | None = None,
) -> Problem:
    """The AC optimal power flow of a pandapower net: what `pandapower.runopp(net)` minimises.

    Inputs are the power of every load, static generator, storage unit and ward in service that is not
    controllable, in that order and then that of their tables, as loads per unit on `net.sn_mva` (a static generator
    is a negative load). Outputs are those of every AC-OPF; generators come in pandapower's own order: external
    grids, generators, then controllable static generators, loads and storage units. The net is not changed.

    Args:
        net: a pandapower net. Costs come from `poly_cost` and `pwl_cost`; without any, generation is minimised, as in
            pandapower.
        spread: how far inputs vary around their values in the net when they are drawn.
        slack_voltage: `fixed` holds an external grid at its `vm_pu` unless its `controllable` says otherwise, as
            pandapower does; `free` lets it move between the limits of its bus, as PYPOWER and MATPOWER do.
        flow_limit: `current` limits the current of a branch, as `max_loading_percent` means it and `runopp` does;
            `power` takes the same rating as a limit on apparent power, as PYPOWER and MATPOWER do.
        dc_lines: `free`, dispatched between nothing and `max_p_mw` in the direction of their set point, as in
            pandapower; or `fixed` at `p_mw`.
        costs: in place of the net's own: a table with a row `c2, c1, c0` a generator in the problem's order, the path
            of a CSV file with the columns `generator, c2, c1, c0`, or one number for all.
        ignore: tables to leave out although they may change the optimum (`"asymmetric_load"`, `"svc"`), or
            `"voltage_dependence"` of loads; without it such a net is refused.
        name: what to call it in tables; the net's own name unless told.

    Raises:
        ProblemError: listing every element that cannot be modelled, by table and index.
        MissingExtraError: where pandapower is not installed.
    """
    grid = read_pandapower(
        net, slack_voltage=slack_voltage, flow_limit=flow_limit, dc_lines=dc_lines, costs=costs, ignore=ignore,
        name=name,
    )  # fmt: skip
    grid.tell()
    return acopf(grid, spread=spread)


def read_pandapower(
    net: Any,
    *,
    slack_voltage: str = "fixed",
    flow_limit: str = "current",
    dc_lines: str = "free",
    costs: Costs | None = None,
    ignore: str | Sequence[str] = (),
    name: str | None = None,
    notes: Sequence[str] = (),
) -> Grid:
    """The grid of a pandapower net; arguments as for `from_pandapower`, and what a reader should know already."""
    check_net(net)
    for given, known, what in (
        (slack_voltage, ("fixed", "free"), "slack_voltage"),
        (flow_limit, ("current", "power"), "flow_limit"),
        (dc_lines, ("free", "fixed"), "dc_lines"),
    ):
        if given not in known:
            raise FeasiblyError(f"{argument(what)} must be {' or '.join(known)}, not {given!r}")
    title = str(name or net.name or "pandapower net")
    warnings = list(notes)
    faults = check_tables(net) or _unmodelled(net, listed(ignore), warnings)
    if faults:
        raise ProblemError(f"pandapower net {title!r}", faults)
    case = convert(net, free_slack=slack_voltage == "free")
    return build_grid(case, net, title, flow_limit, fixed_dc=dc_lines == "fixed", costs=costs, notes=warnings)


def build_grid(
    case: Case,
    net: Any,
    name: str,
    flow_limit: str,
    *,
    fixed_dc: bool = False,
    costs: Costs | None = None,
    notes: Sequence[str] = (),
) -> Grid:
    """The grid of a converted net."""
    from pandapower.pypower import idx_brch, idx_bus, idx_gen

    bus, gen, branch, base = case.ppci["bus"], case.ppci["gen"], case.ppci["branch"], case.base
    faults, warnings = _check_case(case), [*notes, *left_out(case)]
    beyond = Gathering(base, len(case.generators), len(case.bus_id))
    if costs is None:
        cost = read_costs(net, case, beyond, faults, warnings)
    else:
        rows = [
            (i, {"bus": f"{case.bus_id[int(at)]}, {table} {index}"})
            for i, ((table, index), at) in enumerate(
                zip(case.generators, gen[:, idx_gen.GEN_BUS], strict=True), start=1
            )
        ]
        cost = prices(rows, costs, faults, count=len(rows))
    join_dc_lines(net, case, beyond, fixed_dc, faults)
    if not len(gen):
        faults.append(Fault("generators", "no external grid or generator is in service"))
    if not len(case.draws.bus):
        faults.append(Fault("loads", "none is in service, so there is nothing to vary"))
    reference = np.flatnonzero(bus[:, idx_bus.BUS_TYPE] == 3)
    if not len(reference):
        faults.append(Fault("ext_grid", "none is in service, so no angle is given"))
    if faults:
        raise ProblemError(f"pandapower net {name!r}", faults)

    def column(place: int) -> Floats:
        return np.real(branch[:, place]).astype(np.float64)

    half_g, half_b = column(idx_brch.BR_G) / 2.0, column(idx_brch.BR_B) / 2.0
    tap, rate = column(idx_brch.TAP), column(idx_brch.RATE_A)
    limit = np.where((rate > 0.0) & (rate < 1e10), rate / base, np.inf)
    none = np.full(len(branch), np.inf)
    arrays: dict[str, NDArray[Any]] = {
        "bus_id": case.bus_id,
        "vmin": bus[:, idx_bus.VMIN],
        "vmax": bus[:, idx_bus.VMAX],
        "reference": reference,
        "gen_id": np.arange(1, len(gen) + 1),
        "gen_bus": gen[:, idx_gen.GEN_BUS].astype(np.int64),
        "pmin": open_limits(gen[:, idx_gen.PMIN]) / base,
        "pmax": open_limits(gen[:, idx_gen.PMAX]) / base,
        "qmin": open_limits(gen[:, idx_gen.QMIN]) / base,
        "qmax": open_limits(gen[:, idx_gen.QMAX]) / base,
        "cost": cost * np.array([base**2, base, 1.0]),
        "load_id": np.arange(1, len(case.draws.bus) + 1),
        "load_bus": case.draws.bus,
        "pd": case.draws.p / base,
        "qd": case.draws.q / base,
        "branch_id": np.arange(1, len(branch) + 1),
        "branch_from": column(idx_brch.F_BUS).astype(np.int64),
        "branch_to": column(idx_brch.T_BUS).astype(np.int64),
        "r": column(idx_brch.BR_R),
        "x": column(idx_brch.BR_X),
        "g_from": half_g,
        "b_from": half_b,
        "g_to": half_g + column(idx_brch.BR_G_ASYM) / 2.0,
        "b_to": half_b + column(idx_brch.BR_B_ASYM) / 2.0,
        "tap": np.where(tap == 0.0, 1.0, tap),
        "shift": np.deg2rad(column(idx_brch.SHIFT)),
        "rate": limit if flow_limit == "power" else none,
        "current": limit if flow_limit == "current" else none,
        "angmin": -none,
        "angmax": none,
        "position": _positions(net, case.bus_id),
    }
    shunted = np.flatnonzero((bus[:, idx_bus.GS] != 0.0) | (bus[:, idx_bus.BS] != 0.0))
    arrays["shunt_bus"] = shunted
    arrays["gs"], arrays["bs"] = bus[shunted, idx_bus.GS] / base, bus[shunted, idx_bus.BS] / base
    extras = beyond.finish()
    grid = Grid.from_arrays(name, base, arrays | ({} if extras is None else extras.arrays()))
    limits = zip(open_limits(gen[:, idx_gen.PMIN]), open_limits(gen[:, idx_gen.PMAX]), strict=True)
    lines = {("gen", ends[1]): ("dcline", line) for line, ends in dc_ends(case).items()}
    for key, (c2, c1, _), span in zip(case.generators, cost.tolist(), limits, strict=True):
        table, index = lines.get(key, key)
        beyond.curvature(f"{table} {index}", c2, c1, span)
    object.__setattr__(grid, "warnings", (*warnings, *beyond.notes()))
    return grid


def _unmodelled(net: Any, ignore: Sequence[str], warnings: list[str]) -> list[Fault]:
    """Faults that stand in the net's own tables; what `ignore` names is told of instead."""
    known = (*_UNMODELLED, "voltage_dependence", "reactive_capability_curve")
    faults = [
        Fault(argument("ignore"), f"{name!r} cannot be left out of a pandapower net; {', '.join(known)} can")
        for name in ignore
        if name not in known
    ]

    def refuse(table: str, rows: Sequence[Any], why: str, name: str) -> None:
        if not rows:
            return
        where = f"{table} {', '.join(map(str, rows[:10]))}"
        where += f" and {len(rows) - 10} more" if len(rows) > 10 else ""
        if name in ignore:
            warnings.append(f"{where}: {name} is left out, as asked")
        else:
            faults.append(Fault(where, f"{why}; leave it out with {argument('ignore', name)}"))

    for table, why in _UNMODELLED.items():
        if table in net and len(net[table]):
            refuse(table, list(_in_service(net[table])), why, table)
    columns = [c for c in net.load if c.startswith("const_") and c.endswith("percent")]
    bent = [i for i in _in_service(net.load) if any(np.nan_to_num(net.load.at[i, c]) != 0.0 for c in columns)]
    refuse("load", bent, "depends on voltage, which runopp passes over in silence", "voltage_dependence")
    for table in ("gen", "sgen"):
        if "reactive_capability_curve" in net[table]:
            curved = net[table]["reactive_capability_curve"].fillna(False).astype(bool)
            rows = [i for i in _in_service(net[table]) if curved[i]]
            refuse(table, rows, "has a capability curve, which is not modelled", "reactive_capability_curve")
    for table, power in (("gen", "p_mw"), ("sgen", "p_mw"), ("load", "p_mw")):
        bad = [i for i in _in_service(net[table]) if not np.isfinite(net[table].at[i, power])]
        faults += [Fault(f"{table} {i}", f"{power} must be a finite number") for i in bad]
    return faults


def _in_service(table: Any) -> Iterable[Any]:
    return table.index[table["in_service"].astype(bool)] if "in_service" in table else table.index


def _check_case(case: Case) -> list[Fault]:
    """Limits that are crossed and branches that the model has no form for, by pandapower's own tables."""
    from pandapower.pypower import idx_brch, idx_bus, idx_gen

    faults = []
    bus, gen, branch = case.ppci["bus"], case.ppci["gen"], case.ppci["branch"]
    for number, low, high in zip(case.bus_id, bus[:, idx_bus.VMIN], bus[:, idx_bus.VMAX], strict=True):
        if low > high:
            faults.append(Fault(f"bus {number}", f"voltage limits are crossed: {low:g} > {high:g} p.u."))
    for (table, index), row in zip(case.generators, gen, strict=True):
        for low, high, what in (
            (row[idx_gen.PMIN], row[idx_gen.PMAX], "active power limits are crossed"),
            (row[idx_gen.QMIN], row[idx_gen.QMAX], "reactive power limits are crossed"),
        ):
            if low > high:
                faults.append(Fault(f"{table} {index}", f"{what}: {low:g} > {high:g}"))
    lopsided = np.abs(branch[:, [idx_brch.BR_R_ASYM, idx_brch.BR_X_ASYM]]).max(axis=1, initial=0.0) > 1e-12
    shorted = np.abs(branch[:, idx_brch.BR_R] + 1j * branch[:, idx_brch.BR_X]) == 0.0
    # The lookup counts every branch, the case those in service alone.
    row_of = np.flatnonzero(case.ppci["internal"]["branch_is"])
    for table, (first, stop) in case.net._pd2ppc_lookups["branch"].items():
        members = (row_of >= first) & (row_of < stop)
        for bad, why in (
            (lopsided, "has another series impedance seen from its other end"),
            (shorted, "has no series impedance; close it with a switch between its buses instead"),
        ):
            for place in np.flatnonzero(members & bad):
                number = row_of[place] - first
                rows = case.net.get(table)
                label = rows.index[number % len(rows)] if rows is not None and len(rows) else number
                faults.append(Fault(f"{table} {label}", why))
    return faults


def _positions(net: Any, bus_id: NDArray[np.int64]) -> Floats:
    """Longitude and latitude (or whatever plane the net is drawn in) from the buses' GeoJSON points."""
    found = np.full((len(bus_id), 2), np.nan)
    if "geo" not in net.bus:
        return found
    for i, number in enumerate(bus_id):
        text = net.bus["geo"].get(number)
        try:
            found[i] = json.loads(text)["coordinates"][:2]
        except (TypeError, ValueError, KeyError):
            continue
    return found
