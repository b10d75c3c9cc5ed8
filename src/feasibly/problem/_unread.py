"""What a file says and powerio passes over in silence (0.11): found by looking at the file a second time."""

from __future__ import annotations

import json
from collections.abc import Mapping
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


def look_again(path: Path, source_format: str) -> tuple[list[Fault], float | None]:
    """Faults of the file itself, and what divides its current limits to give per unit (`None`: the base).

    PowerModels: a value that is missing or is not a number would be read as zero; current limits are handed
    on as they stand, per unit where the file says that it is and MVA elsewhere.
    """
    if source_format == "powermodels-json":
        document = json.loads(path.read_text(encoding="utf-8"))
        return _check_powermodels(document), 1.0 if document.get("per_unit") else None
    return [], None


def _check_powermodels(document: Mapping[str, Any]) -> list[Fault]:
    faults = []
    if not isinstance(document.get("per_unit"), bool):
        faults.append(Fault("per_unit", "must say true or false; without it MW and per unit look alike"))
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
