"""A PyPSA network as a problem: the AC optimal power flow of one snapshot.

PyPSA optimises a linear model and has an AC power flow; the electrical model here is that of its power flow, the costs
and limits are those of its optimisation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from feasibly.interop._pypsa_links import join_links, unmodelled_links
from feasibly.problem._gather import Gathering
from feasibly.problem.acopf import SPREAD, acopf
from feasibly.problem.core import Problem
from feasibly.problem.errors import Fault, FeasiblyError, MissingExtraError, ProblemError
from feasibly.problem.grid import Grid

Floats = NDArray[np.float64]

VOLTAGE = (0.9, 1.1)
"""Per unit, for buses without limits of their own: PyPSA's linear optimisation does not need any."""
BASE = 100.0
"""MVA. PyPSA's own base is 1 MVA, on which a transmission grid's numbers are far from 1."""


@dataclass(frozen=True, eq=False)
class Branches:
    """Lines, then transformers, in service; `turned` where the tap is at bus1, which is then the from end."""

    component: tuple[str, ...]
    name: tuple[Any, ...]
    turned: NDArray[np.bool_]
    arrays: dict[str, NDArray[Any]]


def from_pypsa(
    network: Any,
    *,
    snapshot: Any = None,
    spread: float = SPREAD,
    voltage: tuple[float, float] | None = None,
    power_factor: float | None = None,
    base_mva: float = BASE,
    name: str | None = None,
) -> Problem:
    """The AC optimal power flow of one snapshot of a PyPSA network.

    Inputs are the loads in service, in the order of their table, per unit on `base_mva`; limits, availabilities and
    costs are those of the snapshot. The network is not changed.

    Args:
        network: a `pypsa.Network` of AC buses, lines, transformers, links, generators, loads and shunt impedances.
        snapshot: which; the first unless told.
        spread: how far loads vary around their values in the snapshot when they are drawn.
        voltage: limits per unit for buses whose own are 0 and infinite, as they are unless set; 0.9 and 1.1 unless
            told.
        power_factor: limits reactive power of every generator to what goes with its nominal power at this power factor;
            PyPSA has no limits on reactive power, and without this there are none.
        base_mva: of per unit.
        name: what to call it in tables; the network's own name unless told.

    Raises:
        ProblemError: listing every component that cannot be modelled, by its name.
        MissingExtraError: where PyPSA is not installed.
    """
    grid = read_pypsa(
        network, snapshot=snapshot, voltage=voltage, power_factor=power_factor, base_mva=base_mva, name=name
    )
    grid.tell()
    return acopf(grid, spread=spread)


def read_network(path: Path) -> Any:
    """The network that a folder of CSV files or a NetCDF file holds."""
    try:
        import pypsa
    except ImportError:
        raise MissingExtraError("pypsa", "pypsa", f"{path.name}, which is a PyPSA network") from None
    network = pypsa.Network()
    read = network.import_from_netcdf if path.suffix.lower() == ".nc" else network.import_from_csv_folder
    try:
        read(path)
    except Exception as error:  # of a file's content: whatever PyPSA makes of it
        said = (str(error).splitlines() or [type(error).__name__])[0]
        raise FeasiblyError(f"{path.name} cannot be read as a PyPSA network: {said}") from None
    return network


def read_pypsa(
    network: Any,
    *,
    snapshot: Any = None,
    voltage: tuple[float, float] | None = None,
    power_factor: float | None = None,
    base_mva: float = BASE,
    name: str | None = None,
) -> Grid:
    """The grid of one snapshot; arguments as for `from_pypsa`."""
    moment = check_network(network, snapshot)
    if power_factor is not None and not 0.0 < power_factor <= 1.0:
        raise FeasiblyError(f"a power factor lies above 0 and up to 1, got {power_factor}")
    if not (np.isfinite(base_mva) and base_mva > 0.0):
        raise FeasiblyError(f"the base must be a positive number of MVA, got {base_mva}")
    title = str(name or network.name or "PyPSA network")
    faults = list(_unmodelled(network))
    if faults:
        raise ProblemError(f"PyPSA network {title!r}", faults)
    work = network.copy()
    work.calculate_dependent_values()
    buses = list(work.buses.index)
    place = {bus: i for i, bus in enumerate(buses)}
    branches = read_branches(work, moment, place, base_mva)
    generators, loads = in_service(work.generators), in_service(work.loads)
    low, high = _voltages(work.buses, voltage or VOLTAGE)

    def at(component: str, attribute: str, names: Any) -> Floats:
        dense = work.get_switchable_as_dense(component, attribute, snapshots=[moment])
        return np.asarray(dense.loc[moment, list(names)], dtype=np.float64)

    nominal = generators["p_nom"].to_numpy(dtype=np.float64)
    pmin, pmax = (nominal * at("Generator", f"p_{end}_pu", generators.index) for end in ("min", "max"))
    fixed = at("Generator", "p_set", generators.index)
    pmin, pmax = (np.where(np.isfinite(fixed), fixed, limit) for limit in (pmin, pmax))
    reactive = np.full(len(nominal), np.inf)
    if power_factor is not None:
        reactive = nominal * np.tan(np.arccos(power_factor))
    cost = np.zeros((len(generators), 3))
    cost[:, 0] = at("Generator", "marginal_cost_quadratic", generators.index)
    cost[:, 1] = at("Generator", "marginal_cost", generators.index)
    sign = -loads["sign"].to_numpy(dtype=np.float64)
    pd, qd = (sign * at("Load", f"{letter}_set", loads.index) for letter in "pq")
    faults += _check(generators, pmin, pmax, pd, qd, loads, buses, low, high, branches, cost)
    reference, alone = _references(work, buses, place, branches, generators)
    faults += alone
    beyond = Gathering(base_mva, len(generators), len(buses))
    join_links(in_service(work.links), at, beyond, place, faults)
    if faults:
        raise ProblemError(f"PyPSA network {title!r}", faults)

    shunts = in_service(work.shunt_impedances)
    arrays: dict[str, NDArray[Any]] = {
        "bus_id": np.arange(1, len(buses) + 1),
        "vmin": low,
        "vmax": high,
        "reference": reference,
        "gen_id": np.arange(1, len(generators) + 1),
        "gen_bus": np.array([place[bus] for bus in generators["bus"]], dtype=np.int64),
        "pmin": pmin / base_mva,
        "pmax": pmax / base_mva,
        "qmin": -reactive / base_mva,
        "qmax": reactive / base_mva,
        "cost": cost * np.array([base_mva**2, base_mva, 1.0]),
        "load_id": np.arange(1, len(loads) + 1),
        "load_bus": np.array([place[bus] for bus in loads["bus"]], dtype=np.int64),
        "pd": pd / base_mva,
        "qd": qd / base_mva,
        "shunt_bus": np.array([place[bus] for bus in shunts["bus"]], dtype=np.int64),
        "gs": shunts["g_pu"].to_numpy(dtype=np.float64) / base_mva,
        "bs": shunts["b_pu"].to_numpy(dtype=np.float64) / base_mva,
        "position": work.buses[["x", "y"]].to_numpy(dtype=np.float64),
    }
    extras = beyond.finish()
    arrays |= branches.arrays | ({} if extras is None else extras.arrays())
    grid = Grid.from_arrays(title, base_mva, arrays)
    for i, generator in enumerate(generators.index):
        beyond.curvature(f"Generator {generator}", cost[i, 0], cost[i, 1], (pmin[i], pmax[i]))
    assumed = _assumed(work, moment, first=snapshot is None, limits=None if voltage else VOLTAGE)
    return replace(grid, warnings=(*assumed, *beyond.notes()))


def _assumed(work: Any, moment: Any, *, first: bool, limits: tuple[float, float] | None) -> Iterator[str]:
    """What a reader should know of what was chosen for lack of anything said, and of what has no effect."""
    if first and len(work.snapshots) > 1:
        yield f"loads, limits and costs are those of snapshot {moment}, the first of {len(work.snapshots)}"
    bare = (work.buses["v_mag_pu_min"] <= 0.0) | np.isinf(work.buses["v_mag_pu_max"])
    if limits is not None and bare.any():
        low, high = limits
        yield f"{int(bare.sum())} buses lack a limit of voltage; {low:g} and {high:g} p.u. stand in for it"
    for kind in ("Generator", "Link"):
        table = in_service(work.components[kind].static)
        ramps = [table[f"ramp_limit_{way}"] for way in ("up", "down") if f"ramp_limit_{way}" in table]
        names = [name for name in table.index if any(np.isfinite(ramp[name]) for ramp in ramps)]
        if names:
            more = f" and {len(names) - 5} more" if len(names) > 5 else ""
            listed = ", ".join(map(str, names[:5])) + more
            yield f"{kind} {listed}: limits of ramps join snapshots, and one is optimised; they have no effect"


def check_network(network: Any, snapshot: Any) -> Any:
    """The snapshot that is meant. Raises `FeasiblyError` for anything but a network that has it."""
    try:
        import pypsa
    except ImportError:
        raise MissingExtraError("pypsa", "pypsa", "a PyPSA network") from None
    if not isinstance(network, pypsa.Network):
        raise FeasiblyError(f"expected a pypsa.Network, got {type(network).__name__}")
    if not len(network.buses):
        raise FeasiblyError("the PyPSA network has no buses")
    if getattr(network, "has_scenarios", False):
        raise FeasiblyError("the PyPSA network has scenarios; pass the network of one of them")
    if snapshot is None:
        return network.snapshots[0]
    if snapshot not in network.snapshots:
        raise FeasiblyError(f"the PyPSA network has no snapshot {snapshot!r}")
    return snapshot


def in_service(table: Any) -> Any:
    """The rows that are active."""
    return table[table["active"].astype(bool)] if "active" in table else table


def _unmodelled(network: Any) -> Iterator[Fault]:
    wrong = network.buses.index[~network.buses["carrier"].isin(["AC", ""])]
    for bus in wrong:
        yield Fault(
            f"Bus {bus}", f"carries {network.buses.at[bus, 'carrier']}; an AC optimal power flow needs AC"
        )
    for key, why in (
        ("storage_units", "joins one snapshot to the next, and one snapshot is optimised"),
        ("stores", "joins one snapshot to the next, and one snapshot is optimised"),
        ("processes", "turns one carrier into others, which the model here has none of"),
    ):
        if key in network.components.keys():  # noqa: SIM118 (PyPSA forbids the shorter form)
            for name in in_service(network.components[key].static).index:
                yield Fault(f"{network.components[key].name} {name}", why)
    for kind, ends in (("Generator", ("bus",)), ("Load", ("bus",)), ("ShuntImpedance", ("bus",)),
                       ("Line", ("bus0", "bus1")), ("Transformer", ("bus0", "bus1"))):  # fmt: skip
        table = in_service(network.components[kind].static)
        for end in ends:
            for name in table.index[~table[end].isin(network.buses.index)]:
                yield Fault(f"{kind} {name}", f"is at bus {table.at[name, end]!r}, which does not exist")
    for name in network.global_constraints.index:
        yield Fault(f"GlobalConstraint {name}", "binds more than one snapshot or investment")
    for component in ("Generator", "Line", "Transformer"):
        table = in_service(network.components[component].static)
        size = "p_nom" if component == "Generator" else "s_nom"
        for name in table.index[table[f"{size}_extendable"].astype(bool)]:
            yield Fault(
                f"{component} {name}", f"its {size} is to be decided; fix it, as fix_optimal_capacities does"
            )
    yield from unmodelled_links(in_service(network.links), network.buses.index)
    generators = in_service(network.generators)
    for end, none in (("e_sum_min", -np.inf), ("e_sum_max", np.inf)):
        for name in generators.index[generators[end] != none] if end in generators else ():
            yield Fault(f"Generator {name}", f"{end} binds snapshots together, and one is optimised")
    for name in generators.index[generators["committable"].astype(bool)]:
        yield Fault(f"Generator {name}", "is committable, and whether units run is not decided here")
    for name in generators.index[generators["sign"] != 1.0]:
        yield Fault(f"Generator {name}", "has a sign other than 1")


def read_branches(work: Any, moment: Any, place: dict[Any, int], base: float) -> Branches:
    """Lines and transformers of a network whose dependent values are known, per unit on `base`."""
    component: list[str] = []
    names: list[Any] = []
    columns: dict[str, list[Floats]] = {
        key: [] for key in ("r", "x", "g", "b", "tap", "shift", "rate", "turned")
    }
    ends: list[tuple[int, int]] = []
    for kind in ("Line", "Transformer"):
        table = in_service(work.components[kind].static)
        if not len(table):
            continue
        component += [kind] * len(table)
        names += list(table.index)
        ends += [(place[a], place[b]) for a, b in zip(table["bus0"], table["bus1"], strict=True)]
        flat = np.zeros(len(table))
        tapped = kind == "Transformer"
        tap = table["tap_ratio"].to_numpy(dtype=np.float64) if tapped else flat + 1.0
        dense = work.get_switchable_as_dense(kind, "s_max_pu", snapshots=[moment])
        share = np.asarray(dense.loc[moment, list(table.index)], dtype=np.float64)
        for key, factor in (("r", base), ("x", base), ("g", 1.0 / base), ("b", 1.0 / base)):
            columns[key].append(table[f"{key}_pu"].to_numpy(dtype=np.float64) * factor)
        columns["tap"].append(np.where(tap == 0.0, 1.0, tap))
        columns["shift"].append(
            np.deg2rad(table["phase_shift"].to_numpy(dtype=np.float64)) if tapped else flat
        )
        columns["rate"].append(table["s_nom"].to_numpy(dtype=np.float64) * share / base)
        columns["turned"].append(table["tap_side"].to_numpy(dtype=np.float64) if tapped else flat)
    joined = {key: np.concatenate([*parts, np.zeros(0)]) for key, parts in columns.items()}
    turned = joined["turned"] == 1.0
    zero, one = np.array(ends, dtype=np.int64).reshape(-1, 2).T
    none = np.full(len(ends), np.inf)
    arrays: dict[str, NDArray[Any]] = {
        "branch_id": np.arange(1, len(ends) + 1),
        "branch_from": np.where(turned, one, zero),
        "branch_to": np.where(turned, zero, one),
        "r": joined["r"],
        "x": joined["x"],
        "g_from": joined["g"] / 2.0,
        "b_from": joined["b"] / 2.0,
        "g_to": joined["g"] / 2.0,
        "b_to": joined["b"] / 2.0,
        "tap": joined["tap"],
        "shift": np.where(turned, -joined["shift"], joined["shift"]),
        "rate": joined["rate"],
        "current": none,
        "angmin": -none,
        "angmax": none,
    }
    return Branches(tuple(component), tuple(names), turned, arrays)


def _voltages(buses: Any, given: tuple[float, float]) -> tuple[Floats, Floats]:
    low = buses["v_mag_pu_min"].to_numpy(dtype=np.float64)
    high = buses["v_mag_pu_max"].to_numpy(dtype=np.float64)
    return np.where(low <= 0.0, given[0], low), np.where(np.isinf(high), given[1], high)


def _check(
    generators: Any, pmin: Floats, pmax: Floats, pd: Floats, qd: Floats, loads: Any, buses: list[Any], low: Floats,
    high: Floats, branches: Branches, cost: Floats,
) -> list[Fault]:  # fmt: skip
    faults = []
    for name, a, b in zip(generators.index, pmin, pmax, strict=True):
        if not a <= b:
            faults.append(Fault(f"Generator {name}", f"active power limits are crossed: {a:g} > {b:g} MW"))
    for name, terms in zip(generators.index, cost, strict=True):
        if not np.isfinite(terms).all():
            faults.append(Fault(f"Generator {name}", "its marginal costs must be finite numbers"))
    for name, p, q in zip(loads.index, pd, qd, strict=True):
        if not np.isfinite([p, q]).all():
            faults.append(Fault(f"Load {name}", "p_set and q_set must be finite numbers"))
    for bus, a, b in zip(buses, low, high, strict=True):
        if not 0.0 <= a <= b:
            faults.append(Fault(f"Bus {bus}", f"voltage limits are crossed: {a:g} > {b:g} p.u."))
    arrays = branches.arrays
    for kind, name, r, x, rate in zip(
        branches.component, branches.name, arrays["r"], arrays["x"], arrays["rate"], strict=True
    ):
        if not np.isfinite([r, x]).all() or (r == 0.0 and x == 0.0):
            faults.append(Fault(f"{kind} {name}", "has no series impedance"))
        if not rate > 0.0:
            faults.append(Fault(f"{kind} {name}", "may carry nothing; set s_nom, or infinity for no limit"))
    if not len(generators):
        faults.append(Fault("generators", "none is active"))
    if not len(loads):
        faults.append(Fault("loads", "none is active, so there is nothing to vary"))
    return faults


def _references(
    work: Any, buses: list[Any], place: dict[Any, int], branches: Branches, generators: Any
) -> tuple[NDArray[np.int64], list[Fault]]:
    """One bus an island: that of its slack generator, else of its first, as PyPSA has it."""
    n, arrays = len(buses), branches.arrays
    ends = (arrays["branch_from"], arrays["branch_to"])
    count, island = connected_components(
        coo_array((np.ones(len(ends[0])), ends), shape=(n, n)), directed=False
    )
    faults, found = [], []
    order = np.argsort(~(generators["control"] == "Slack").to_numpy(), kind="stable")
    spots = [place[generators["bus"].iloc[k]] for k in order]
    for k in range(count):
        here = [spot for spot in spots if island[spot] == k]
        if here:
            found.append(here[0])
        else:
            members = [buses[i] for i in np.flatnonzero(island == k)[:5]]
            faults.append(
                Fault(f"Bus {members[0]}", f"its island ({', '.join(map(str, members))}) has no generator")
            )
    return np.array(sorted(found), dtype=np.int64), faults
