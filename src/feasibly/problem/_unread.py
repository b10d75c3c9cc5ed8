"""What a file says and powerio passes over in silence (0.11): found by looking at the file a second time."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from feasibly.problem.errors import Fault

_NEEDED = {"branch": ("br_r", "br_x"), "load": ("pd", "qd"), "shunt": ("gs", "bs")}
_NUMBERS = {
    "bus": ("vmin", "vmax"),
    "gen": ("pmin", "pmax", "qmin", "qmax"),
    "branch": ("b_fr", "b_to", "g_fr", "g_to", "tap", "shift", "angmin", "angmax", "rate_a", "c_rating_a"),
}
_STATUS = {"branch": "br_status", "gen": "gen_status", "load": "status", "shunt": "status"}


_KINDS = ("bus", "gen", "load", "shunt", "branch", "dcline", "storage", "switch")
_PASSED_OVER = re.compile(
    r"\b(ignored|not model+ed|dropped|not mapped|unsupported|not applied)\b", re.IGNORECASE
)
_HARMLESS = re.compile(
    r"`(res_\w+|\w*geodata|measurement|controller|group\w*|characteristic\w*|output_writer)`"
    r"|rate_[bc]|rating|long_name|substation",
    re.IGNORECASE,
)
"""What reading may pass over: results, maps, names, and ratings that are not used here."""


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


def look_again(path: Path, network: Any) -> tuple[list[Fault], float | None]:
    """Faults of the file itself, and what divides its current limits to give per unit (`None`: the base).

    - PowerModels: a value that is missing or is not a number would be read as zero; current limits are handed
      on as they stand, per unit where the file says that it is and MVA elsewhere; costs of DC lines are dropped; bus
      numbers are taken from keys, costs cut to `ncost`, and unknown types and statuses taken for the usual ones.
    - Egret: values that are missing are read as zero, tables and words that are not known are passed over.
    """
    if network.source_format == "powermodels-json":
        document = json.loads(path.read_text(encoding="utf-8"))
        return _check_powermodels(document), 1.0 if document.get("per_unit") else None
    if network.source_format == "egret-json":
        return _check_egret(json.loads(path.read_text(encoding="utf-8"))), None
    return [], None


def passed_over(diagnostics: Iterable[Any]) -> tuple[list[Fault], list[str]]:
    """What powerio says that it left out: faults where that may change the optimum, notes otherwise."""
    faults, notes = [], []
    for said in diagnostics:
        if said.severity == "info":
            continue
        if _PASSED_OVER.search(said.message) and not _HARMLESS.search(said.message):
            faults.append(Fault("what cannot be read", said.message.rstrip(".")))
        elif not re.search(r"`res_\w+`", said.message):
            notes.append(f"{said.severity}: {said.message}")
    return faults, notes


def dc_lines(network: Any) -> Sequence[Mapping[str, Any]]:
    """powerio's DC lines with the names that branches have for their ends."""
    return [
        line if "from_id" in line else {**line, "from_id": line["from"], "to_id": line["to"]}
        for line in network.hvdc
    ]


def _check_powermodels(document: Mapping[str, Any]) -> list[Fault]:
    faults = []
    if not isinstance(document.get("per_unit"), bool):
        faults.append(Fault("per_unit", "must say true or false; without it MW and per unit look alike"))
    for kind, elements in document.items():
        table = isinstance(elements, Mapping) and any(isinstance(e, Mapping) for e in elements.values())
        if table and kind not in _KINDS:
            faults.append(
                Fault(kind, "a table that the AC-OPF model here does not have; take it out of the file")
            )
    for key, line in document.get("dcline", {}).items():
        if line.get("br_status", 1) and any(line.get("cost") or ()):
            faults.append(Fault(f"dcline {key}", "has a cost, which cannot be read from this format"))
    for kind in ("bus", "gen", "load", "shunt", "branch"):
        for key, element in document.get(kind, {}).items():
            if not element.get(_STATUS.get(kind, ""), 1):
                continue
            needed = [name for name in _NEEDED.get(kind, ()) if not _is_number(element.get(name))]
            given = [name for name in _NUMBERS.get(kind, ()) if element.get(name) is not None]
            bad = needed + [name for name in given if not _is_number(element[name])]
            if bad:
                faults.append(Fault(f"{kind} {key}", f"{', '.join(bad)} must be a finite number"))
            faults += [Fault(f"{kind} {key}", what) for what in _misread(kind, element)]
    return faults


def _misread(kind: str, element: Mapping[str, Any]) -> Iterable[str]:
    """What powerio makes something else of, in an element of PowerModels."""
    status = _STATUS.get(kind, "")
    if element.get(status, 1) not in (0, 1):
        yield f"{status} must be 0 or 1, got {element[status]!r}"
    if kind == "bus":
        number, what = element.get("bus_i"), element.get("bus_type")
        if number is not None and not (isinstance(number, int) or float(number).is_integer()):
            yield f"the bus number must be a whole number, got {number}"
        if what not in (1, 2, 3, 4):
            yield f"the bus type must be 1, 2, 3 or 4, got {what}"
    if kind == "gen" and element.get("cost"):
        model, cost, given = element.get("model"), element["cost"], element.get("ncost")
        if model not in (1, 2):
            yield f"the model of its cost must be 1 (piecewise linear) or 2 (polynomial), got {model}"
        elif given is not None and given * (3 - model) != len(cost):
            yield f"ncost is {given}, and its cost has {len(cost)} numbers"


def _check_egret(document: Mapping[str, Any]) -> list[Fault]:
    faults = []
    for kind, elements in document.get("elements", {}).items():
        if elements and kind not in (*_EGRET_KINDS, *_EGRET_NAMES):
            what = "a table that the AC-OPF model here does not have; take it out of the file"
            faults.append(Fault(kind, what))
        for key, element in elements.items() if kind in _EGRET_KINDS else ():
            if element.get("in_service", True):
                faults += [Fault(f"{kind} {key}", what) for what in _misread_egret(kind, element)]
    reference = str(document.get("system", {}).get("reference_bus", ""))
    buses = document.get("elements", {}).get("bus", {})
    if reference and buses.get(reference, {}).get("matpower_bustype") != "ref":
        faults.append(
            Fault("system", f"reference_bus is {reference}, and no bus of that name has the type ref")
        )
    return faults


def _misread_egret(kind: str, element: Mapping[str, Any]) -> Iterable[str]:
    bad = [name for name in _EGRET_NEEDED.get(kind, ()) if not _is_number(element.get(name))]
    if bad:
        yield f"{', '.join(bad)} must be a finite number"
    field, known = _EGRET_WORDS.get(kind, ("", ()))
    if element.get(field, None) not in (None, *known):
        yield f"{field} must be {' or '.join(known)}, got {element[field]!r}"
    if kind == "generator" and element.get("q_cost"):
        yield "has a cost of reactive power, which cannot be read from this format"
    if kind == "branch" and element.get("planned_outage"):
        yield "has a planned outage; set in_service to false, or take planned_outage out"
    turned = element.get("transformer_phase_shift") or (element.get("transformer_tap_ratio") or 1.0) != 1.0
    if kind == "branch" and element.get("branch_type") != "transformer" and turned:
        yield "has a tap or a phase shift and is no transformer by its branch_type"


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
