"""A MATPOWER case as elements: every table is modelled, known to change nothing, or refused by name and line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from feasibly.problem.errors import Fault, FeasiblyError
from feasibly.problem.matpower.evaluate import Outcome, Unknown, run
from feasibly.problem.matpower.linear import TABLES, Linear
from feasibly.problem.matpower.network import Element, Network
from feasibly.problem.matpower.parse import parse
from feasibly.problem.matpower.tables import ADVICE, MODELLED, NEEDED, Tables, is_empty, is_version, quote
from feasibly.problem.matpower.tokens import MatlabError, Matrix, tokenize

_KINDS = {1: "PQ", 2: "PV", 3: "REF", 4: "ISOLATED"}


@dataclass(frozen=True)
class Case:
    """What a file says: its elements, what is wrong with it, and what a reader should know."""

    network: Network
    faults: list[Fault]
    notes: list[str]
    whole: bool = True
    """Whether every table could be read; without one of them more faults would only repeat the first."""


def read_matpower(path: Path, ignore: Sequence[str] = ()) -> Case:
    """Read a MATPOWER file; `ignore` names tables to leave out though they may change the problem.

    Raises:
        FeasiblyError: for a text that is no MATPOWER file, naming the line.
    """
    text = path.read_text(encoding="utf-8-sig", errors="replace")
    try:
        program = parse(tokenize(text))
    except MatlabError as error:
        raise FeasiblyError(
            f"{path.name} cannot be read as a grid: line {error.line}{quote(text, error.line)}: {error.what}"
        ) from None
    outcome = run(program)
    faults = [Fault(f"line {e.line}{quote(text, e.line)}", e.what) for e in outcome.faults]
    found, prefix = _outputs(program.outputs, outcome)
    if isinstance(found, Unknown):
        faults.append(Fault(f"line {found.line}{quote(text, found.line)}", f"{found.what}; {ADVICE}"))
        return Case(Network(1.0), faults, [], whole=False)
    missing = [name for name in NEEDED if name not in found]
    if missing:
        listed = ", ".join(prefix + name for name in missing)
        raise FeasiblyError(f"{path.name} cannot be read as a grid: it sets no {listed}")
    reader = _Reader(text, found, prefix, outcome.lines, tuple(ignore), faults)
    network = reader.network()
    return Case(network, faults, reader.notes, reader.complete)


def _outputs(names: Sequence[str], outcome: Outcome) -> tuple[Any, str]:
    """The case, as a mapping of its tables, and what stands before their names in the file."""
    known = outcome.names
    if len(names) == 1 or (not names and "mpc" in known):
        name = names[0] if names else "mpc"
        case = known.get(name, {})
        return (case if isinstance(case, (dict, Unknown)) else {}), f"{name}."
    return {name: value for name, value in known.items() if not names or name in names}, ""


class _Reader(Tables):
    """One pass over the tables of a case, which become elements."""

    def network(self) -> Network:
        self.left_out()
        self.other_tables()
        version = self.found.get("version")
        if version is not None and not (is_version(version, "1") or is_version(version, "2")):
            self.faults.append(Fault(self.where("version"), f"is {version!r}; versions 1 and 2 are read"))
        for name in MODELLED:
            at = self.lines.get(self.prefix + name, ())
            if len(at) > 1:
                listed = ", ".join(map(str, at))
                self.notes.append(f"{self.prefix}{name} is set in the lines {listed}; the last one holds")
        base = self.number("baseMVA")
        bus, gen, branch = (self.table(name) for name in ("bus", "gen", "branch"))
        if self.first_version:  # its further columns are results, where version 2 has limits
            gen, branch = gen[:, :10], branch[:, :11]
        numbers = self.whole("bus", bus, 0, "bus number")
        kinds = self.kinds(bus)
        buses = [
            {"id": number, "kind": kind, "vmin": row[12], "vmax": row[11], "vm": row[7], "va": row[8],
             "base_kv": row[9], "area": row[6]}
            for number, kind, row in zip(numbers, kinds, bus.tolist(), strict=True)
        ]  # fmt: skip
        loads = [
            {"bus": number, "p": row[2], "q": row[3], "in_service": kind != "ISOLATED"}
            for number, kind, row in zip(numbers, kinds, bus.tolist(), strict=True)
            if row[2] or row[3]
        ]
        shunts = [
            {"bus": number, "g": row[4], "b": row[5], "in_service": kind != "ISOLATED"}
            for number, kind, row in zip(numbers, kinds, bus.tolist(), strict=True)
            if row[4] or row[5]
        ]
        return Network(
            base, buses, self.generators(gen), loads, shunts, self.branches(branch), self.dc_lines(),
            linear=self.linear(numbers, len(gen)),
        )  # fmt: skip

    def kinds(self, bus: Matrix) -> list[str]:
        found = []
        for row, value in enumerate(bus[:, 1].tolist(), start=1):
            if value not in _KINDS:
                self.faults.append(
                    Fault(
                        f"{self.where('bus')}, row {row}", f"the bus type must be 1, 2, 3 or 4, got {value:g}"
                    )
                )
            found.append(_KINDS.get(value, "PQ"))
        return found

    def linear(self, buses: list[int], generators: int) -> Linear | None:
        """Constraints of the user's own, reserves and interface limits, where the file has any."""
        found: dict[str, Any] = {}
        for name in TABLES:
            value = self.found.get(name)
            if value is None or is_empty(value) or not self.prefix:
                continue
            kind = dict if name in ("reserves", "if") else np.ndarray
            if name in self.ignore or (name in ("l", "u") and "A" in self.ignore):
                self.notes.append(f"{self.where(name)}: left out, as asked")
            elif isinstance(value, Unknown):
                self.unknown(name, value)
            elif not isinstance(value, kind):
                self.faults.append(Fault(self.where(name), "must be a table of numbers"))
            else:
                found[name] = value
        if "reserves" in found or "if" in found:
            listed = " and ".join(self.where(name) for name in ("reserves", "if") if name in found)
            self.notes.append(f"{listed}: modelled, as MATPOWER does once they are switched on")
        for name in ("l", "u"):
            if name in found and "A" not in found:
                self.faults.append(Fault(self.where(name), "limits the rows of A, and there is no A"))
        fits = "A" in found and found["A"].shape[1] >= 2 * len(buses) + 2 * generators
        if fits and not ("l" in found or "u" in found):
            self.notes.append(f"{self.where('A')}: has no limits, l or u, and so changes nothing")
            del found["A"]
        if not found:
            return None
        return Linear(buses, generators, found, {name: self.where(name) for name in TABLES})

    # ---- elements --------------------------------------------------------------------------------------

    def generators(self, gen: Matrix) -> list[Element]:
        active, reactive = self.costs(len(gen))
        numbers, status = self.whole("gen", gen, 0, "bus number"), self.status("gen", gen, 7)
        return [
            {
                "bus": number, "pg": row[1], "qg": row[2], "qmax": row[3], "qmin": row[4], "vg": row[5],
                "in_service": on,
                "pmax": row[8], "pmin": row[9], "ramp_10": row[17] if len(row) > 17 else 0.0,
                "caps": row[10:16] if len(row) >= 16 else [],
                "cost": active[i], "reactive_cost": reactive[i],
            }
            for i, (number, on, row) in enumerate(zip(numbers, status, gen.tolist(), strict=True))
        ]  # fmt: skip

    def costs(self, count: int) -> tuple[list[Element | None], list[Element | None]]:
        """Of active and of reactive power: MATPOWER puts the second below the first."""
        none: list[Element | None] = [None] * count
        table = self.table("gencost")
        if not len(table):
            return none, none
        if len(table) not in (count, 2 * count):
            what = (
                f"has {len(table)} rows for {count} generators; it needs one each, or two with reactive costs"
            )
            self.faults.append(Fault(self.where("gencost"), what))
            return none, none
        found = [self.cost(row, line) for row, line in enumerate(table.tolist(), start=1)]
        return found[:count], (found[count:] or none)

    def cost(self, row: int, line: list[float]) -> Element | None:
        model, count = line[0], line[3]
        width = 2 * count if model == 1 else count
        where = f"{self.where('gencost')}, row {row}"
        if model not in (1.0, 2.0):
            self.faults.append(
                Fault(where, f"the model must be 1 (piecewise linear) or 2 (polynomial), got {model:g}")
            )
        elif not np.isfinite(count) or count != int(count) or count < 1 or 4 + width > len(line):
            self.faults.append(Fault(where, f"{count:g} terms do not fit in {len(line) - 4} columns"))
        else:
            return {"model": int(model), "ncost": int(count), "coeffs": line[4 : 4 + int(width)]}
        return None

    def branches(self, branch: Matrix) -> list[Element]:
        starts, stops = (self.whole("branch", branch, i, "bus number") for i in (0, 1))
        status = self.status("branch", branch, 10)
        angles = branch[:, 11:13] if branch.shape[1] >= 13 else np.zeros((len(branch), 2))
        found = []
        for start, stop, on, row, (low, high) in zip(
            starts, stops, status, branch.tolist(), angles.tolist(), strict=True
        ):
            found.append(
                {
                    "from_id": start, "to_id": stop, "r": row[2], "x": row[3], "g_fr": 0.0, "b_fr": row[4] / 2.0,
                    "g_to": 0.0, "b_to": row[4] / 2.0, "rate_a": row[5], "c_rating_a": None, "tap": row[8],
                    "shift": row[9], "in_service": on, "angmin": low, "angmax": high,
                }
            )  # fmt: skip
        return found

    def dc_lines(self) -> list[Element]:
        table, costs = self.table("dcline"), self.found.get("dclinecost")
        if "dcline" in self.ignore and len(table):
            self.notes.append(f"{self.where('dcline')}: left out, as asked")
            return []
        if isinstance(costs, Unknown):
            self.unknown("dclinecost", costs)
        elif costs is not None and not is_empty(costs):
            if not len(table):
                self.notes.append(f"{self.where('dclinecost')}: there are no DC lines; left out")
            elif not isinstance(costs, np.ndarray):
                self.faults.append(Fault(self.where("dclinecost"), "must be a table of numbers"))
        starts, stops = (self.whole("dcline", table, i, "bus number") for i in (0, 1))
        names = ("pf", "pt", "qf", "qt", "vf", "vt", "pmin", "pmax", "qminf", "qmaxf", "qmint", "qmaxt",
                 "loss0", "loss1")  # fmt: skip
        prices: list[Element | None] = [None] * len(table)
        if isinstance(costs, np.ndarray) and costs.size and len(table):
            if len(costs) == len(table) and costs.shape[1] >= 5:
                prices = [self.cost(row, line) for row, line in enumerate(costs.tolist(), start=1)]
            else:
                self.faults.append(Fault(self.where("dclinecost"), "needs a row for each DC line"))
        return [
            {"from_id": start, "to_id": stop, "in_service": on, "cost": price}
            | dict(zip(names, row[3:17], strict=True))
            for start, stop, on, price, row in zip(
                starts, stops, self.status("dcline", table, 2), prices, table.tolist(), strict=True
            )
        ]  # fmt: skip
