"""What a file says and powerio passes over in silence (0.11): found by looking at the file a second time."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from feasibly.problem._unread_json import check_egret, check_powermodels
from feasibly.problem.errors import Fault

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
      on as they stand, per unit where the file says that it is and MVA elsewhere; costs of DC lines are dropped; bus
      numbers are taken from keys, costs cut to `ncost`, and unknown types and statuses taken for the usual ones.
    - Egret: values that are missing are read as zero, tables and words that are not known are passed over.
    """
    if network.source_format == "powermodels-json":
        document = json.loads(path.read_text(encoding="utf-8"))
        return check_powermodels(document), 1.0 if document.get("per_unit") else None
    if network.source_format == "egret-json":
        return check_egret(json.loads(path.read_text(encoding="utf-8"))), None
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
