"""Elements to arrays: every one checked, what is out left out, islands given references, all as a `Grid`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feasibly.problem._costs import Costs, prices
from feasibly.problem._gather import Gathering, corners
from feasibly.problem._islands import split_islands
from feasibly.problem._stars import star_points
from feasibly.problem._unread import dc_lines
from feasibly.problem.errors import Fault, ProblemError
from feasibly.problem.grid import Grid

Element = Mapping[str, Any]
Numbered = list[tuple[int, Element]]

_UNMODELLED = {"storage": "storage unit", "static_var_compensators": "static var compensator"}
_ENDS = {"branch": ("from_id", "to_id"), "DC line": ("from_id", "to_id"), "switch": ("from_id", "to_id")}


def assemble(
    network: Any,
    name: str,
    notes: Sequence[str],
    costs: Costs | None,
    faults: list[Fault],
    *,
    current_base: float | None = None,
    fixed_dc: bool = False,
    matpower: bool = False,
) -> Grid:
    """The grid that a file's elements make.

    Args:
        network: elements by powerio's names (buses, generators, ...): MW, Mvar, degrees.
        name: what to call the grid.
        notes: what a reader should know already.
        costs: costs given beside the file.
        faults: what is wrong already; what is found joins it.
        current_base: what divides current limits to give per unit; the base power unless told.
        fixed_dc: DC lines stand at their set point instead of being dispatched.
        matpower: whether MATPOWER's conventions on generators hold (capability curves, dispatchable loads).

    Raises:
        ProblemError: listing every element that cannot be modelled, by component and id.
    """
    warnings = list(notes)
    base = float(network.base_mva)
    if not 0 < base < 1e12:
        raise ProblemError(
            f"grid {name!r}", [Fault("base power", f"must be a positive number of MVA, got {base}")]
        )
    stars, legs, cores = star_points(network, base, faults)
    every = [*network.buses, *stars]
    buses, isolated = _buses(every, faults)
    for number in sorted(isolated):
        dropped = [load["p"] for load in network.loads if load["bus"] == number]
        also = f" with its load of {sum(dropped):g} MW" if dropped else ""
        warnings.append(f"bus {number}: type 4 (isolated), left out{also}")
    listed = {
        "generator": network.generators,
        "load": network.loads,
        "shunt": [*network.shunts, *cores],
        "branch": [*network.branches, *legs],
        "DC line": dc_lines(network),
        "switch": network.switches,
    }
    numbers = {int(bus["id"]) for bus in buses}
    kept = {
        kind: _in_service(kind, elements, faults, warnings, numbers, isolated)
        for kind, elements in listed.items()
    }
    for attribute, what in _UNMODELLED.items():
        active = sum(1 for element in getattr(network, attribute) if _active(element))
        if active:
            faults.append(Fault(f"{what}s", f"{active} in service, and the AC-OPF model here has none"))
    links = _links(kept, faults, warnings)
    buses = split_islands(buses, kept, links, faults, warnings)
    place = {int(bus["id"]): i for i, bus in enumerate(buses)}
    loose = {row for row, _ in links}
    branches = [(row, b) for row, b in kept["branch"] if row not in loose and b["from_id"] in place]
    generators, loads, shunts, lines = (
        [(row, e) for row, e in kept[kind] if e[_ENDS.get(kind, ("bus",))[0]] in place]
        for kind in ("generator", "load", "shunt", "DC line")
    )
    shunts += [pair for _, link in links for pair in _charging(link, base)]
    faults += _check_buses(buses) + _check_generators(generators) + _check_branches(kept["branch"])
    faults += _check_finite("load", loads, ("p", "q")) + _check_finite("shunt", shunts, ("g", "b"))
    if not generators:
        faults.append(Fault("generators", "none is in service"))
    if not loads:
        faults.append(Fault("loads", "none is in service, so there is nothing to vary"))
    bent: list[int] = []
    given = prices(generators, costs, faults, bent, count=len(network.generators))
    if costs is not None and any(
        any((g.get("reactive_cost") or {}).get("coeffs", ())) for _, g in generators
    ):
        warnings.append("costs are given, so that those of reactive power in the file do not count either")
    gathering = Gathering(base, len(generators), len(buses))
    if not faults:
        gathering.dc_lines(lines, place, fixed_dc, faults)
        gathering.links(links, place)
        gathering.generators(generators, faults, matpower=matpower, reactive=costs is None)
        if getattr(network, "linear", None) is not None:
            network.linear.join(gathering, generators, branches, place, faults)
        for (row, g), (c2, c1, _) in zip(generators, given.tolist(), strict=True):
            gathering.curvature(f"generator {row} (bus {g['bus']})", c2, c1, (g["pmin"], g["pmax"]))
    for i in bent:
        row, g = generators[i]
        found = corners(g["cost"], "cost", f"generator {row} (bus {g['bus']})", faults)
        if found is None:
            continue
        if len(found) == 1:
            given[i] = 0.0, *found[0]
        else:
            span = (g["pmin"] / base, g["pmax"] / base)
            gathering.corners(("pg", i), "cost_pg", g["bus"], found, span)
    if faults:
        raise ProblemError(f"grid {name!r}", faults)

    def column(elements: Iterable[tuple[int, Element]], key: str, scale: float = 1.0) -> NDArray[np.float64]:
        return np.array([float(element[key]) for _, element in elements], dtype=np.float64) / scale

    def at(elements: Sequence[tuple[int, Element]], key: str = "bus") -> NDArray[np.int64]:
        return np.array([place[element[key]] for _, element in elements], dtype=np.int64)

    def rows(elements: Sequence[tuple[int, Element]]) -> NDArray[np.int64]:
        return np.array([row for row, _ in elements], dtype=np.int64)

    numbered = list(enumerate(buses))
    tap = column(branches, "tap")
    angmin, angmax = _angle_limits(branches)
    arrays: dict[str, NDArray[Any]] = {
        "bus_id": np.array([bus["id"] for bus in buses], dtype=np.int64),
        "vmin": column(numbered, "vmin"),
        "vmax": column(numbered, "vmax"),
        "reference": np.array([i for i, bus in numbered if bus["kind"] == "REF"], dtype=np.int64),
        "gen_id": rows(generators),
        "gen_bus": at(generators),
        "cost": given * np.array([base**2, base, 1.0]),
        "load_id": rows(loads),
        "load_bus": at(loads),
        "pd": column(loads, "p", base),
        "qd": column(loads, "q", base),
        "shunt_bus": at(shunts),
        "gs": column(shunts, "g", base),
        "bs": column(shunts, "b", base),
        "branch_id": rows(branches),
        "branch_from": at(branches, "from_id"),
        "branch_to": at(branches, "to_id"),
        "g_from": column(branches, "g_fr"),
        "b_from": column(branches, "b_fr"),
        "g_to": column(branches, "g_to"),
        "b_to": column(branches, "b_to"),
        "r": column(branches, "r"),
        "x": column(branches, "x"),
        "tap": np.where(tap == 0.0, 1.0, tap),
        "shift": np.deg2rad(column(branches, "shift")),
        "rate": _limit(branches, "rate_a", base),
        "current": _limit(branches, "c_rating_a", current_base or base),
        "angmin": angmin,
        "angmax": angmax,
        "position": _positions(buses),
        "area": _areas(buses),
    }
    arrays |= {key: column(generators, key, base) for key in ("pmin", "pmax", "qmin", "qmax")}
    grid = Grid.from_arrays(name, base, arrays)
    return replace(grid, warnings=(*warnings, *gathering.notes()), extras=gathering.finish())


def _active(element: Element) -> bool:
    return bool(element.get("in_service", True))


def _buses(buses: Sequence[Element], faults: list[Fault]) -> tuple[list[Element], set[int]]:
    counts = Counter(int(bus["id"]) for bus in buses)
    faults += [Fault(f"bus {number}", f"stands {n} times") for number, n in counts.items() if n > 1]
    isolated = {int(bus["id"]) for bus in buses if bus["kind"] == "ISOLATED"}
    return [bus for bus in buses if int(bus["id"]) not in isolated], isolated


def _in_service(
    kind: str,
    elements: Sequence[Element],
    faults: list[Fault],
    warnings: list[str],
    numbers: set[int],
    isolated: set[int],
) -> Numbered:
    """The elements in service with their row in the file.

    One at a bus that is not there is a fault; one at an isolated bus is left out, as MATPOWER and PowerModels do, and
    told of.
    """
    kept: Numbered = []
    for row, element in enumerate(elements, start=1):
        if not _active(element):
            continue
        ends = [element[end] for end in _ENDS.get(kind, ("bus",))]
        missing = [number for number in ends if number not in numbers and number not in isolated]
        for number in missing:
            faults.append(Fault(f"{kind} {row}", f"is in service at bus {number}, which does not exist"))
        dead = [number for number in ends if number in isolated]
        if dead and not missing and kind != "load":
            warnings.append(f"{kind} {row}: left out, since bus {dead[0]} is of type 4 (isolated)")
        if not missing and not dead:
            kept.append((row, element))
    return kept


def _links(kept: Mapping[str, Numbered], faults: list[Fault], warnings: list[str]) -> Numbered:
    """Branches without impedance and closed switches, less those that close a loop of such."""
    parent: dict[int, int] = {}

    def root(bus: int) -> int:
        while parent.setdefault(bus, bus) != bus:
            bus = parent[bus]
        return bus

    found: Numbered = [(row, b) for row, b in kept["branch"] if b["r"] == 0 and b["x"] == 0]
    for row, switch in kept["switch"]:
        if switch["closed"]:
            plain = {
                "r": 0.0,
                "x": 0.0,
                "tap": 1.0,
                "shift": 0.0,
                "g_fr": 0.0,
                "b_fr": 0.0,
                "g_to": 0.0,
                "b_to": 0.0,
            }
            found.append((-row, {**switch, **plain, "rate_a": switch.get("thermal_rating")}))
    links: Numbered = []
    for row, b in found:
        where = f"branch {row} ({b['from_id']}-{b['to_id']})" if row > 0 else f"switch {-row}"
        f, t = root(b["from_id"]), root(b["to_id"])
        if b["from_id"] == b["to_id"]:
            continue
        if f != t:
            parent[f] = t
            links.append((row, b))
        elif b["rate_a"] or b["shift"] or b["tap"] not in (0.0, 1.0):
            what = "has no impedance and closes a loop of such branches, so that nothing says what flows through it"
            faults.append(Fault(where, f"{what}; give it a small reactance"))
        else:
            warnings.append(f"{where}: has no impedance and joins what is joined already; left out")
    return links


def _charging(link: Element, base: float) -> list[tuple[int, Element]]:
    """What a branch without impedance draws at its ends, as shunts."""
    found: list[tuple[int, Element]] = []
    for bus, g, b in (
        (link["from_id"], link["g_fr"] / (link["tap"] or 1.0) ** 2, link["b_fr"] / (link["tap"] or 1.0) ** 2),
        (link["to_id"], link["g_to"], link["b_to"]),
    ):
        if g or b:
            found.append((0, {"bus": bus, "g": g * base, "b": b * base}))
    return found


def _check_finite(kind: str, elements: Iterable[tuple[int, Element]], keys: Sequence[str]) -> list[Fault]:
    faults = []
    for row, element in elements:
        bad = [key for key in keys if element[key] is None or not np.isfinite(element[key])]
        if bad:
            faults.append(Fault(f"{kind} {row}", f"{', '.join(bad)} must be a finite number"))
    return faults


def _check_range(where: str, low: Any, high: Any, what: str, unit: str) -> list[Fault]:
    if low is None or high is None or np.isnan(low) or np.isnan(high):
        return [Fault(where, f"its {what} limits must both be numbers")]
    if low > high:
        return [Fault(where, f"{what} limits are crossed: {low:g} > {high:g} {unit}".rstrip())]
    return []


def _check_buses(buses: Sequence[Element]) -> list[Fault]:
    faults = []
    for bus in buses:
        where = f"bus {bus['id']}"
        faults += _check_range(where, bus["vmin"], bus["vmax"], "voltage", "p.u.")
        if bus["vmin"] is not None and bus["vmin"] < 0:
            what = f"the lower voltage limit must not be negative, got {bus['vmin']:g} p.u."
            faults.append(Fault(where, what))
        if bus["vmax"] is not None and bus["vmax"] <= 0:
            faults.append(Fault(where, f"the upper voltage limit must be positive, got {bus['vmax']:g} p.u."))
    return faults


def _check_generators(generators: Iterable[tuple[int, Element]]) -> list[Fault]:
    faults = []
    for row, g in generators:
        where = f"generator {row} (bus {g['bus']})"
        faults += _check_range(where, g["pmin"], g["pmax"], "active power", "MW")
        faults += _check_range(where, g["qmin"], g["qmax"], "reactive power", "Mvar")
    return faults


def _check_branches(branches: Sequence[tuple[int, Element]]) -> list[Fault]:
    faults = _check_finite("branch", branches, ("r", "x", "g_fr", "b_fr", "g_to", "b_to", "tap", "shift"))
    for row, branch in branches:
        where = f"branch {row} ({branch['from_id']}-{branch['to_id']})"
        if branch["from_id"] == branch["to_id"]:
            faults.append(Fault(where, "it joins a bus to itself"))
        for key, what in (("rate_a", "apparent-power"), ("c_rating_a", "current")):
            if branch[key] is not None and (np.isnan(branch[key]) or branch[key] < 0):
                faults.append(Fault(where, f"the {what} limit must not be negative, got {branch[key]:g}"))
        if branch["tap"] < 0:
            faults.append(Fault(where, f"the tap ratio must be positive, got {branch['tap']:g}"))
        faults += _check_range(where, branch["angmin"], branch["angmax"], "angle-difference", "degrees")
    return faults


def _limit(branches: Sequence[tuple[int, Element]], key: str, base: float) -> NDArray[np.float64]:
    """A rating per unit, infinite where the file has none or zero."""
    given = np.array([element[key] or np.inf for _, element in branches], dtype=np.float64)
    return given / base


def _angle_limits(branches: Sequence[tuple[int, Element]]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Radians; both zero, or a full turn and more, mean no limit (MATPOWER's convention)."""
    low = np.array([element["angmin"] for _, element in branches], dtype=np.float64)
    high = np.array([element["angmax"] for _, element in branches], dtype=np.float64)
    none = (low == 0.0) & (high == 0.0)
    low = np.where(none | (low <= -360.0), -np.inf, np.deg2rad(low))
    high = np.where(none | (high >= 360.0), np.inf, np.deg2rad(high))
    return low, high


def _areas(buses: Sequence[Element]) -> NDArray[np.int64]:
    """Numbers of areas, where the file names more than one."""
    given = np.array([bus.get("area") or 0.0 for bus in buses], dtype=np.float64)
    sound = np.isfinite(given) & (np.abs(given) < 2**31)
    areas = np.where(sound, given, 0.0).astype(np.int64)
    return areas if len(np.unique(areas)) > 1 else areas[:0]


def _positions(buses: Sequence[Element]) -> NDArray[np.float64]:
    """Longitude and latitude where the file has them."""
    found = np.full((len(buses), 2), np.nan)
    for i, bus in enumerate(buses):
        longitude, latitude = bus.get("longitude"), bus.get("latitude")
        if longitude is not None and latitude is not None:
            found[i] = longitude, latitude
    return found
