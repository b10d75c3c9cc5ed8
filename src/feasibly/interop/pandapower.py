"""A pandapower net as a problem: the model that `pandapower.runopp` optimises, element by element.

pandapower's own converter makes the electrical model (switches, taps, three-winding transformers, wards), so that
it cannot differ from what its power flows use; this module reads the result, the costs and the limits.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feasibly.interop._pandapower_case import Case, check_net, convert
from feasibly.problem._gather import Gathering
from feasibly.problem.acopf import SPREAD, acopf
from feasibly.problem.core import Problem
from feasibly.problem.errors import Fault, FeasiblyError, ProblemError
from feasibly.problem.grid import Grid

Floats = NDArray[np.float64]

_UNMODELLED = {
    "asymmetric_load": "is unbalanced, and runopp would leave it out in silence",
    "asymmetric_sgen": "is unbalanced, and runopp would leave it out in silence",
    "dcline": "is a DC line, which the model here has none of",
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
_NO_LIMIT = 1e8
"""pandapower writes 1e9 MW where there is no limit."""


def from_pandapower(
    net: Any,
    *,
    spread: float = SPREAD,
    slack_voltage: str = "fixed",
    flow_limit: str = "current",
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
        name: what to call it in tables; the net's own name unless told.

    Raises:
        ProblemError: listing every element that cannot be modelled, by table and index.
        MissingExtraError: where pandapower is not installed.
    """
    return acopf(
        read_pandapower(net, slack_voltage=slack_voltage, flow_limit=flow_limit, name=name), spread=spread
    )


def read_pandapower(
    net: Any, *, slack_voltage: str = "fixed", flow_limit: str = "current", name: str | None = None
) -> Grid:
    """The grid of a pandapower net; arguments as for `from_pandapower`."""
    check_net(net)
    for given, known, what in (
        (slack_voltage, ("fixed", "free"), "slack_voltage"),
        (flow_limit, ("current", "power"), "flow_limit"),
    ):
        if given not in known:
            raise FeasiblyError(f"{what} must be {' or '.join(known)}, not {given!r}")
    title = str(name or net.name or "pandapower net")
    faults = _unmodelled(net)
    if faults:
        raise ProblemError(f"pandapower net {title!r}", faults)
    case = convert(net, free_slack=slack_voltage == "free")
    return build_grid(case, net, title, flow_limit)


def build_grid(case: Case, net: Any, name: str, flow_limit: str) -> Grid:
    """The grid of a converted net."""
    from pandapower.pypower import idx_brch, idx_bus, idx_gen

    bus, gen, branch, base = case.ppci["bus"], case.ppci["gen"], case.ppci["branch"], case.base
    faults, warnings = _check_case(case), list[str]()
    cost, beyond = _costs(net, case, faults)
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
        "pmin": _open(gen[:, idx_gen.PMIN]) / base,
        "pmax": _open(gen[:, idx_gen.PMAX]) / base,
        "qmin": _open(gen[:, idx_gen.QMIN]) / base,
        "qmax": _open(gen[:, idx_gen.QMAX]) / base,
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
    object.__setattr__(grid, "warnings", tuple(warnings))
    return grid


def _unmodelled(net: Any) -> list[Fault]:
    """Faults that stand in the net's own tables."""
    faults = []
    for table, why in _UNMODELLED.items():
        if table in net and len(net[table]):
            faults += [Fault(f"{table} {index}", why) for index in _in_service(net[table])]
    columns = [c for c in net.load if c.startswith("const_") and c.endswith("percent")]
    for index in _in_service(net.load):
        if any(np.nan_to_num(net.load.at[index, column]) != 0.0 for column in columns):
            what = "depends on voltage; set its const_* columns to 0 to take it as constant power, as runopp does"
            faults.append(Fault(f"load {index}", what))
    for table in ("gen", "sgen"):
        if "reactive_capability_curve" in net[table]:
            curved = net[table]["reactive_capability_curve"].fillna(False).astype(bool)
            what = "has a capability curve; set reactive_capability_curve to False and limits instead"
            faults += [Fault(f"{table} {i}", what) for i in _in_service(net[table]) if curved[i]]
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


def _costs(net: Any, case: Case, faults: list[Fault]) -> tuple[Floats, Gathering]:
    """Columns c2, c1, c0 in MW, and costs with corners or of reactive power beside them.

    Without any cost in the net every MW costs 1, as in pandapower.
    """
    from pandapower.pypower import idx_gen

    gen, base = case.ppci["gen"], case.base
    found = np.zeros((len(case.generators), 3))
    beyond = Gathering(base, len(case.generators), len(case.bus_id))
    if not len(net.poly_cost) and not len(net.pwl_cost):
        found[:, 1] = 1.0
        return found, beyond
    place = {key: i for i, key in enumerate(case.generators)}
    seen = set()

    def located(row: Any, power: str) -> tuple[int, str, float] | None:
        """The generator, what to call it, and the sign that pandapower gives its cost."""
        key = (str(row["et"]), int(row["element"]))
        if key not in place:
            return None  # out of service or not controllable: pandapower has no variable for it either
        where = f"{key[0]} {key[1]}"
        if (key, power) in seen:
            faults.append(Fault(where, "has several costs"))
        seen.add((key, power))
        # pandapower turns the whole cost of a load round, not its argument.
        return place[key], where, -1.0 if key[0] in ("load", "storage") else 1.0

    def span(i: int, power: str) -> tuple[float, float]:
        low, high = (idx_gen.PMIN, idx_gen.PMAX) if power == "p" else (idx_gen.QMIN, idx_gen.QMAX)
        return float(_open(gen[i, low]) / base), float(_open(gen[i, high]) / base)

    for _, row in net.poly_cost.iterrows():
        at = located(row, "p")
        if at is None:
            continue
        i, where, sign = at
        terms = [row[c] for c in ("cp2_eur_per_mw2", "cp1_eur_per_mw", "cp0_eur")]
        reactive = [row[c] for c in ("cq2_eur_per_mvar2", "cq1_eur_per_mvar", "cq0_eur")]
        if not np.isfinite([*terms, *reactive]).all():
            faults.append(Fault(where, "every cost must be a finite number"))
            continue
        found[i] = np.array(terms, dtype=np.float64) * sign
        if any(reactive[:2]):  # pandapower leaves out constants that stand alone
            cost = {"model": 2, "coeffs": [sign * float(term) for term in reactive]}
            beyond.cost(
                ("qg", i), "cost_qg", int(case.bus_id[int(gen[i, idx_gen.GEN_BUS])]), cost, where, faults, span(i, "q"),
                "reactive power ",
            )  # fmt: skip
    for _, row in net.pwl_cost.iterrows():
        power = str(row["power_type"])
        at = located(row, power)
        if at is None:
            continue
        i, where, sign = at
        points = _corner_points(row["points"], sign)
        if points is None:
            faults.append(Fault(where, "the areas of its piecewise linear cost must follow one another"))
            continue
        cost = {"model": 1, "ncost": len(points) // 2, "coeffs": points}
        what = "" if power == "p" else "reactive power "
        beyond.cost(
            (f"{power}g", i), f"cost_{power}g", int(case.bus_id[int(gen[i, idx_gen.GEN_BUS])]), cost, where, faults,
            span(i, power), what,
        )  # fmt: skip
    return found, beyond


def _corner_points(areas: Any, sign: float) -> list[float] | None:
    """Power and cost at every corner, from areas `[from, to, slope]`; the first lies on a line through zero."""
    points: list[float] = []
    for low, high, slope in areas:
        if not points:
            points = [float(low), float(low) * float(slope) * sign]
        elif points[-2] != float(low):
            return None
        points += [float(high), points[-1] + (float(high) - float(low)) * float(slope) * sign]
    return points or None


def _open(limits: Floats) -> Floats:
    return np.where(np.abs(limits) >= _NO_LIMIT, np.copysign(np.inf, limits), limits)


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
