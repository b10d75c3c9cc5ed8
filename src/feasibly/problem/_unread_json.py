"""PowerModels' and Egret's JSON, looked at beside powerio: what it reads as zero, cuts short or passes over."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from feasibly.problem.errors import Fault

Element = Mapping[str, Any]

_UNKNOWN = "a table that the AC-OPF model here does not have; take it out of the file"

_KINDS = ("bus", "gen", "load", "shunt", "branch", "dcline", "storage", "switch")
_NEEDED = {"branch": ("br_r", "br_x"), "load": ("pd", "qd"), "shunt": ("gs", "bs")}
_NUMBERS = {
    "bus": ("vmin", "vmax"),
    "gen": ("pmin", "pmax", "qmin", "qmax"),
    "branch": ("b_fr", "b_to", "g_fr", "g_to", "tap", "shift", "angmin", "angmax", "rate_a", "c_rating_a"),
    "dcline": (
        "pf",
        "pminf",
        "pmaxf",
        "qminf",
        "qmaxf",
        "qmint",
        "qmaxt",
        "loss0",
        "loss1",
        "mp_pmin",
        "mp_pmax",
    ),
}
_STATUS = {
    "branch": "br_status", "gen": "gen_status", "load": "status", "shunt": "status", "dcline": "br_status",
}  # fmt: skip

_EGRET_KINDS = ("bus", "generator", "load", "shunt", "branch", "dc_branch")
_EGRET_NAMES = ("area", "zone")
"""Tables of Egret that only name things."""
_EGRET_NEEDED = {
    "bus": ("v_min", "v_max"),
    "generator": ("p_min", "p_max", "q_min", "q_max"),
    "load": ("p_load", "q_load"),
    "shunt": ("gs", "bs"),
    "branch": ("resistance", "reactance"),
}
_EGRET_WORDS = {
    "bus": ("matpower_bustype", ("ref", "PV", "PQ", "isolated")),
    "branch": ("branch_type", ("line", "transformer")),
    "shunt": ("shunt_type", ("fixed",)),
}
"""Words that the model depends on, and those that it has."""


def check_powermodels(document: Element) -> list[Fault]:
    """Faults of a PowerModels file."""
    faults = []
    if not isinstance(document.get("per_unit"), bool):
        faults.append(Fault("per_unit", "must say true or false; without it MW and per unit look alike"))
    if document.get("multinetwork") or not _is_one_of(document.get("conductors"), (None, 1)):
        what = "several networks or conductors in one file, which the AC-OPF model here does not have"
        faults.append(Fault("multinetwork" if document.get("multinetwork") else "conductors", what))
    for kind, elements in document.items():
        table = isinstance(elements, Mapping) and any(isinstance(e, Mapping) for e in elements.values())
        if table and kind not in _KINDS:
            faults.append(Fault(kind, _UNKNOWN))
    base = document.get("baseMVA")
    unit = float(base) if document.get("per_unit") and isinstance(base, (int, float)) else 1.0
    for kind, key, element in _elements(document, _KINDS, faults):
        status = _STATUS.get(kind, "")
        if _is_one_of(element.get(status, 1), (0,)):
            continue
        needed = [name for name in _NEEDED.get(kind, ()) if not _is_number(element.get(name))]
        # What is left out is one thing, a null where a number belongs another.
        given = [name for name in _NUMBERS.get(kind, ()) if name in element]
        allowed = (None,) if kind in ("bus", "gen", "branch") else ()
        bad = [name for name in given if not _is_number(element[name]) and element[name] not in allowed]
        if needed or bad:
            listed = ", ".join(dict.fromkeys(needed + bad))
            faults.append(Fault(f"{kind} {key}", f"{listed} must be a finite number"))
        if not _is_one_of(element.get(status, 1), (1,)):
            faults.append(Fault(f"{kind} {key}", f"{status} must be 0 or 1, got {element[status]!r}"))
        faults += [Fault(f"{kind} {key}", what) for what in _misread(kind, element, unit)]
    return faults


def _misread(kind: str, element: Element, unit: float) -> Iterator[str]:
    """What powerio makes something else of, in an element of PowerModels whose powers are in so many MW."""
    if kind == "bus":
        number, what = element.get("bus_i", 1), element.get("bus_type")
        if not (_is_number(number) and number > 0 and float(number).is_integer()):
            yield f"the bus number must be a whole number, got {number!r}"
        if not _is_one_of(what, (1, 2, 3, 4)):
            yield f"the bus type must be 1, 2, 3 or 4, got {what!r}"
    if kind == "branch" and element.get("transformer") is False and element.get("tap") not in (None, 0, 1):
        yield "has a tap and is no transformer; set transformer to true"
    if kind == "gen" and element.get("cost"):
        model, cost, given = element.get("model"), element["cost"], element.get("ncost")
        if not (isinstance(cost, list) and all(_is_number(term) for term in cost)):
            yield "its cost must be a list of numbers"
        elif not _is_one_of(model, (1, 2)):
            yield f"the model of its cost must be 1 (piecewise linear) or 2 (polynomial), got {model!r}"
        elif given is not None and not _is_one_of(given, (len(cost) / (2 if model == 1 else 1),)):
            yield f"ncost is {given}, and its cost has {len(cost)} numbers"
    if kind == "dcline":
        if element.get("cost") not in (None, []) and element["cost"] != [0.0] * len(element["cost"]):
            yield "has a cost, which cannot be read from this format"
        for own, other in (("pminf", "mp_pmin"), ("pmaxf", "mp_pmax")):
            # MATPOWER's limit in MW stands beside PowerModels' own, and holds at the from end unless it is negative.
            if not (_is_number(element.get(other)) and _is_number(element.get(own))):
                continue
            theirs, mine = float(element[other]), unit * float(element[own])
            if theirs >= 0.0 and not math.isclose(mine, theirs, rel_tol=1e-9, abs_tol=1e-9):
                yield f"{own} and {other} (in MW) differ, and both limit what it takes; leave one of them out"


def check_egret(document: Element) -> list[Fault]:
    """Faults of an Egret file."""
    faults: list[Fault] = []
    elements = document.get("elements", {})
    for kind in elements:
        if elements[kind] and kind not in (*_EGRET_KINDS, *_EGRET_NAMES):
            faults.append(Fault(kind, _UNKNOWN))
    holders = [("system", document.get("system", {}))]
    holders += [
        (f"{kind} {key}", element) for kind, key, element in _elements(elements, _EGRET_NAMES, faults)
    ]
    for where, holder in holders:
        for name in holder if isinstance(holder, Mapping) else ():
            if name.endswith("_requirement") and holder[name]:
                what = f"{name} asks for reserves, which the AC-OPF model here does not have; take it out of the file"
                faults.append(Fault(where, what))
    for kind, key, element in _elements(elements, _EGRET_KINDS, faults):
        if element.get("in_service", True):
            faults += [Fault(f"{kind} {key}", what) for what in _misread_egret(kind, element)]
    reference = str(document.get("system", {}).get("reference_bus", ""))
    buses = elements.get("bus", {})
    bus = buses.get(reference, {}) if isinstance(buses, Mapping) else {}
    if reference and isinstance(bus, Mapping) and bus.get("matpower_bustype") != "ref":
        faults.append(
            Fault("system", f"reference_bus is {reference}, and no bus of that name has the type ref")
        )
    return faults


def _misread_egret(kind: str, element: Element) -> Iterator[str]:
    bad = [name for name in _EGRET_NEEDED.get(kind, ()) if not _is_number(element.get(name))]
    if bad:
        yield f"{', '.join(bad)} must be a finite number"
    field, known = _EGRET_WORDS.get(kind, ("", ()))
    if not _is_one_of(element.get(field), (None, *known)):
        yield f"{field} must be {' or '.join(known)}, got {element[field]!r}"
    if kind == "generator":
        curve = element.get("p_cost")
        terms = curve.get("values") if isinstance(curve, Mapping) else None
        if isinstance(terms, Mapping) and not all(_is_number(term) for term in terms.values()):
            yield "the values of its p_cost must be numbers"
        if _is_one_of(element.get("fixed_commitment"), (0,)):
            yield "is held out of service by fixed_commitment; set in_service to false, or take that out"
        if element.get("q_cost"):
            yield "has a cost of reactive power, which cannot be read from this format"
    if kind == "branch":
        if element.get("planned_outage"):
            yield "has a planned outage; set in_service to false, or take planned_outage out"
        turned = (
            element.get("transformer_phase_shift") or (element.get("transformer_tap_ratio") or 1.0) != 1.0
        )
        if element.get("branch_type") != "transformer" and turned:
            yield "has a tap or a phase shift and is no transformer by its branch_type"


def _elements(
    tables: Element, kinds: Iterable[str], faults: list[Fault]
) -> Iterator[tuple[str, str, Element]]:
    """Every element of some kinds; what is no table of elements joins the faults."""
    for kind in kinds:
        table = tables.get(kind, {})
        if not isinstance(table, Mapping):
            faults.append(Fault(kind, "must be a table of elements by name"))
            continue
        for key, element in table.items():
            if isinstance(element, Mapping):
                yield kind, key, element
            else:
                faults.append(Fault(f"{kind} {key}", "must be an element with its fields by name"))


def _is_one_of(value: Any, known: Iterable[Any]) -> bool:
    """Whether a value is one of a few, also where it is of a kind that none of them is."""
    return any(isinstance(value, (int, float, str, type(None))) and value == one for one in known)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
