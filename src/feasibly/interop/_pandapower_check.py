"""Whether the tables of a net hold what they must: pandapower's converter trusts them, compiled parts of it blindly.

An element at a bus that does not exist would read memory that is not its own; a word in the place of a number ends in
an error of whatever meets it first. Both are refused here by table, index and column, before anything is converted.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from feasibly.problem.errors import Fault

_ENDS = {
    "bus": ("load", "sgen", "gen", "ext_grid", "storage", "motor", "ward", "xward", "shunt", "switch", "svc", "ssc",
            "asymmetric_load", "asymmetric_sgen"),
    "from_bus": ("line", "dcline", "impedance", "tcsc"),
    "to_bus": ("line", "dcline", "impedance", "tcsc"),
    "hv_bus": ("trafo", "trafo3w"),
    "mv_bus": ("trafo3w",),
    "lv_bus": ("trafo", "trafo3w"),
}  # fmt: skip
"""Columns that name a bus, and the tables that have them."""
_SWITCHED = {"b": "bus", "l": "line", "t": "trafo", "t3": "trafo3w"}
_NEEDED = {
    "bus": ("vn_kv", "in_service"),
    "load": ("p_mw", "q_mvar", "scaling", "in_service"),
    "sgen": ("p_mw", "q_mvar", "scaling", "in_service"),
    "storage": ("p_mw", "q_mvar", "scaling", "in_service"),
    "gen": ("p_mw", "vm_pu", "in_service"),
    "ext_grid": ("vm_pu", "in_service"),
    "switch": ("element", "et", "closed"),
    "dcline": ("p_mw", "loss_percent", "loss_mw", "in_service"),
    "poly_cost": ("element", "et", "cp0_eur", "cp1_eur_per_mw", "cp2_eur_per_mw2", "cq0_eur", "cq1_eur_per_mvar",
                  "cq2_eur_per_mvar2"),
    "pwl_cost": ("element", "et", "power_type", "points"),
}  # fmt: skip
"""Columns that are read here; what else is missing pandapower's converter says."""
_UNITS = ("_mw", "_mvar", "_pu", "_percent", "_degree", "_kv", "_mva", "_km", "_ohm", "_kw", "_ka")
_SHOWN = 5


def check_tables(net: Any) -> list[Fault]:
    """What stands in a net's tables that nothing can be made of."""
    faults: list[Fault] = []
    for name, kinds in _standard().items():
        table = net.get(name)
        if table is None or not hasattr(table, "columns") or not len(table):
            continue
        faults += _index(name, table)
        missing = [column for column in _NEEDED.get(name, ()) if column not in table]
        missing += [end for end, tables in _ENDS.items() if name in tables and end not in table]
        if missing:
            faults.append(Fault(name, f"has no column {', '.join(missing)}"))
        for column in table.columns:
            kind = kinds.get(column, "f" if str(column).endswith(_UNITS) else "O")
            faults += _cells(name, table, column, "b" if column == "controllable" else kind)
    if not faults and len(net.bus):
        odd = net.bus.index[~(net.bus["vn_kv"] > 0.0) & net.bus["in_service"].astype(bool)]
        faults += [Fault(f"bus {i}", f"vn_kv must be positive, got {net.bus.at[i, 'vn_kv']:g}") for i in odd]
    return faults or list(_references(net))


@functools.cache
def _standard() -> Mapping[str, Mapping[str, str]]:
    """The tables of an empty net, and whether a column holds numbers (`f`), yes and no (`b`) or other things."""
    import pandapower

    found = {}
    for name, table in pandapower.create_empty_network().items():
        if hasattr(table, "dtypes") and not name.startswith(("res_", "_")):
            kinds = {str(column): getattr(kind, "kind", "O") for column, kind in table.dtypes.items()}
            found[name] = {column: "f" if kind in "fiu" else kind for column, kind in kinds.items()}
    return found


def _index(name: str, table: Any) -> Iterator[Fault]:
    index = table.index
    whole = getattr(index.dtype, "kind", "O") in "iu" or all(isinstance(i, (int, np.integer)) for i in index)
    if not whole or (np.asarray(index, dtype=object) < 0).any():
        yield Fault(name, "its index must be whole numbers from 0 on")
    elif not index.is_unique:
        twice = index[index.duplicated()].unique()[:_SHOWN]
        yield Fault(f"{name} {', '.join(map(str, twice))}", "stands more than once in its table")


def _cells(name: str, table: Any, column: str, kind: str) -> Iterator[Fault]:
    """Words where numbers belong; what is empty is for pandapower to judge."""
    values = table[column]
    if kind not in "fb" or getattr(values.dtype, "kind", "O") in "fiub":
        return
    bad = [index for index, value in values.items() if not _is_number(value)]
    if bad:
        what = "a number" if kind == "f" else "true or false"
        shown = ", ".join(map(str, bad[:_SHOWN])) + (
            f" and {len(bad) - _SHOWN} more" if len(bad) > _SHOWN else ""
        )
        yield Fault(f"{name} {shown}", f"{column} must be {what}, got {values[bad[0]]!r}")


def _is_number(value: Any) -> bool:
    if value is None or isinstance(value, (bool, int, float, np.number, np.bool_)):
        return True
    return type(value).__name__ in ("NAType", "NaTType")


def _references(net: Any) -> Iterator[Fault]:
    """Elements at what does not exist."""
    for column, tables in _ENDS.items():
        for name in tables:
            table = net.get(name)
            if table is not None and len(table):
                yield from _missing(name, table[column], net.bus.index, "bus")
    for et, kind in _SWITCHED.items():
        rows = net.switch[net.switch["et"] == et] if len(net.switch) else net.switch
        if len(rows):
            yield from _missing("switch", rows["element"], net[kind].index, kind)
    odd = net.switch.index[~net.switch["et"].isin(list(_SWITCHED))] if len(net.switch) else ()
    for index in odd:
        yield Fault(f"switch {index}", f"et must be b, l, t or t3, got {net.switch.at[index, 'et']!r}")


def _missing(name: str, places: Any, known: Any, kind: str) -> Iterator[Fault]:
    for index, place in places[~places.isin(known)].items():
        yield Fault(f"{name} {index}", f"is at {kind} {place}, which does not exist")
