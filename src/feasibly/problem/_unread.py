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


def look_again(path: Path, network: Any) -> tuple[list[Fault], float | None]:
    """Faults of the file itself, and what divides its current limits to give per unit (`None`: the base).

    - PowerModels: a value that is missing or is not a number would be read as zero; current limits are handed
      on as they stand, per unit where the file says that it is and MVA elsewhere; costs of DC lines are dropped.
    """
    if network.source_format == "powermodels-json":
        document = json.loads(path.read_text(encoding="utf-8"))
        return _check_powermodels(document), 1.0 if document.get("per_unit") else None
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
    return faults


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
