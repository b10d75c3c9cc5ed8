"""The tables of a MATPOWER case: modelled, known to change nothing, or refused by name and line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from feasibly.problem.errors import Fault, argument
from feasibly.problem.matpower.evaluate import Cell, Unknown
from feasibly.problem.matpower.linear import TABLES
from feasibly.problem.matpower.tokens import Matrix

ADVICE = "save the case that MATPOWER makes of it (savecase) and load that"
NEEDED = ("baseMVA", "bus", "gen", "branch")
MODELLED = (*NEEDED, "gencost", "dcline", "dclinecost", *TABLES)
_KEPT = (*NEEDED, "version", "gencost", "dclinecost")
"""What a grid is made of, and costs, which others can take the place of: not to be left out."""
_WIDTHS = {"bus": (13, 17), "gen": (10, 25), "branch": (11, 21), "gencost": (5, None), "dcline": (17, 23)}
"""Columns that a table needs, and those that MATPOWER gives a meaning to."""

HARMLESS = (
    "version", "areas", "bus_name", "gen_name", "branch_name", "gentype", "genfuel", "order", "om", "raw",
    "success", "et", "f", "iterations", "x", "mu", "lin", "var", "nle", "nli", "qcn",
    "lc",  # line constructions, which a three-phase table refers to
)  # fmt: skip
"""Descriptions, and what a solver left behind."""

_USER = "constraints or costs of the user's own"
_THREE_PHASE = "a three-phase part of the grid"
_DC_GRID = "a DC grid"
_KNOWN = {
    **dict.fromkeys(("N", "H", "Cw", "fparm", "z0", "zl", "zu", "userfcn", "softlims", "gizmo"), _USER),
    **dict.fromkeys(
        ("bus3p", "line3p", "xfmr3p", "shunt3p", "load3p", "gen3p", "buslink"), _THREE_PHASE
    ),
    **dict.fromkeys(
        ("dcbus", "dcconv", "dcbranch", "busdc", "convdc", "branchdc", "dcpol", "dcgen", "gendc", "loaddc"), _DC_GRID
    ),
    "storage": "storage units",
    "switch": "switches",
    "ne_branch": "branches that may be built",
    "time_series": "time series",
}  # fmt: skip
_STATUS = {"storage": 16, "switch": 6}
"""Where PowerModels' tables say whether an element is in service."""


class Tables:
    """What a file assigned, table by table, and what is wrong with it."""

    def __init__(
        self, text: str, found: Mapping[str, Any], prefix: str, lines: Mapping[str, list[int]],
        ignore: tuple[str, ...], faults: list[Fault],
    ) -> None:  # fmt: skip
        self.text, self.found, self.prefix, self.lines = text, found, prefix, lines
        self.ignore, self.faults = ignore, faults
        self.notes: list[str] = []
        self.complete = True
        version = found.get("version")
        self.first_version = (version is None and not prefix) or is_version(version, "1")

    def where(self, name: str) -> str:
        """The name of a table and the line that sets it."""
        at = self.lines.get(self.prefix + name)
        return f"{self.prefix}{name}" + (f" (line {at[-1]})" if at else "")

    def number(self, name: str) -> float:
        """A setting of one number."""
        value = self.found[name]
        if isinstance(value, Unknown):
            self.unknown(name, value)
        elif isinstance(value, np.ndarray) and value.size == 1:
            return float(value[0, 0])
        else:
            self.faults.append(Fault(self.where(name), "must be one number"))
        return 1.0

    def table(self, name: str) -> Matrix:
        """A table that is modelled, empty where there is none."""
        least, known = _WIDTHS[name]
        empty = np.zeros((0, least))
        value = self.found.get(name)
        if value is None:
            return empty
        if isinstance(value, Unknown):
            self.unknown(name, value)
            return empty
        if not isinstance(value, np.ndarray):
            self.faults.append(Fault(self.where(name), "must be a table of numbers"))
            self.complete = False
            return empty
        if value.size == 0:
            return empty
        width = value.shape[1]
        if width < least or (name == "branch" and width == 12):
            self.faults.append(Fault(self.where(name), f"has {width} columns and needs {least}"))
            self.complete = False
            return empty
        if known is not None and width > known:
            self.notes.append(f"{self.where(name)}: MATPOWER knows {known} columns; the others are left out")
        return np.asarray(value, dtype=np.float64)

    def unknown(self, name: str, value: Unknown) -> None:
        """Refuse what depends on something that could not be computed."""
        self.complete = False
        self.faults.append(
            Fault(
                f"{self.prefix}{name}, line {value.line}{quote(self.text, value.line)}",
                f"{value.what}; {ADVICE}",
            )
        )

    def left_out(self) -> None:
        """Names to leave out must be of tables that the file holds and a grid can do without."""
        for name in self.ignore:
            if name in _KEPT and name in self.found:
                self.faults.append(
                    Fault(self.where(name), "cannot be left out: without it there is no problem")
                )
            elif name not in self.found:
                self.notes.append(f"{name!r} is to be left out, and the file holds no {self.prefix}{name}")

    def other_tables(self) -> None:
        """Refuse what is neither modelled nor known to change nothing, tables of one purpose together."""
        refused: dict[str | None, list[str]] = {}
        priced = any(name in self.found and not is_empty(self.found[name]) for name in ("Cw", "H"))
        for name, value in self.found.items():
            if name in MODELLED or name in HARMLESS or not self.prefix:
                continue
            if isinstance(value, (str, Cell)) or is_empty(value):
                continue
            if name in _STATUS and _all_out(value, _STATUS[name]):
                continue
            if name in ("N", "fparm") and isinstance(value, np.ndarray) and not priced:
                self.notes.append(
                    f"{self.where(name)}: there is no Cw or H that prices it, and so it changes nothing"
                )
                continue
            if isinstance(value, np.ndarray) and value.size == 1 and name not in (*_KNOWN, *self.ignore):
                self.notes.append(f"{self.where(name)}: a number that nothing here asks for; left out")
                continue
            if name in self.ignore:
                self.notes.append(f"{self.where(name)}: left out, as asked")
            else:
                refused.setdefault(_KNOWN.get(name), []).append(name)
        for what, names in refused.items():
            said = "not known here" if what is None else f"{what}, which the AC-OPF model here does not have"
            where = ", ".join(self.where(name) for name in names)
            advice = f"take it out of the file, or leave it out with {argument('ignore', ','.join(names))}"
            self.faults.append(Fault(where, f"{said}; {advice}"))

    def whole(self, name: str, table: Matrix, column: int, what: str) -> list[int]:
        """A column of whole numbers; anything else is refused by row."""
        found = []
        for row, value in enumerate(table[:, column].tolist(), start=1):
            if not np.isfinite(value) or value != int(value):
                self.faults.append(
                    Fault(
                        f"{self.where(name)}, row {row}", f"the {what} must be a whole number, got {value:g}"
                    )
                )
                found.append(-row)
            else:
                found.append(int(value))
        return found

    def status(self, name: str, table: Matrix, column: int) -> list[bool]:
        """Which elements are in service."""
        found = []
        for row, value in enumerate(table[:, column].tolist(), start=1):
            # MATPOWER: a generator is in service where its status is above zero (MOST has 2 and -1 too).
            whole = name == "gen" and np.isfinite(value) and value == int(value)
            if value not in (0.0, 1.0) and not whole:
                self.faults.append(
                    Fault(f"{self.where(name)}, row {row}", f"the status must be 0 or 1, got {value:g}")
                )
            elif value not in (-1.0, 0.0, 1.0, 2.0):
                counts = "in service" if value > 0 else "out of service"
                self.notes.append(f"{self.where(name)}, row {row}: a status of {value:g} counts as {counts}")
            found.append(value > 0)
        return found


def quote(text: str, line: int) -> str:
    """A line of the file, in brackets."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    shown = " ".join(lines[line - 1].split()) if 0 < line <= len(lines) else ""
    shown = "".join(c if c.isprintable() else "?" for c in shown)
    return f" ({shown[:57] + '...' if len(shown) > 60 else shown})" if shown else ""


def is_version(value: Any, number: str) -> bool:
    """Whether a version is this one, as a number or as text."""
    if isinstance(value, np.ndarray):
        return bool(value.size == 1 and value[0, 0] == float(number))
    return bool(value == number)


def is_empty(value: Any) -> bool:
    """Whether a table has no entry."""
    if isinstance(value, dict):
        return all(is_empty(part) for part in value.values())
    return isinstance(value, np.ndarray) and value.size == 0


def _all_out(value: Any, column: int) -> bool:
    return isinstance(value, np.ndarray) and value.shape[1] > column and not value[:, column].any()
