"""A RAW file as elements: what it holds is modelled, known to change nothing, or refused by section and line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from feasibly.problem.errors import Fault, argument
from feasibly.problem.matpower.case import Case
from feasibly.problem.matpower.network import Network
from feasibly.problem.psse.converters import dc_lines
from feasibly.problem.psse.records import RawFile, Record, split
from feasibly.problem.psse.shape import check_shape
from feasibly.problem.psse.transformers import Transformers

Element = dict[str, Any]

_KINDS = {1: "PQ", 2: "PV", 3: "REF", 4: "ISOLATED"}
_VOLTAGE = (0.9, 1.1)
"""Limits of buses in revisions that have no columns for them, as MATPOWER takes them."""
_UNLIMITED = 9999.0
"""MW and Mvar, where the format has no limit; kept as it stands."""
_UNMODELLED = {
    "multi-terminal DC": "a DC grid of several terminals",
    "FACTS": "a FACTS device",
    "GNE device": "a device of a model of its own",
    "induction machine": "an induction machine",
}


def read_psse(path: Path, ignore: Sequence[str] = ()) -> Case:
    """Read a RAW file; `ignore` names sections to leave out though they may change the problem (`"FACTS"`).

    Raises:
        FeasiblyError: for a text that is no RAW file of a revision that is read.
    """
    file = split(path.read_text(encoding="utf-8-sig", errors="replace"), path.name)
    reader = _Reader(file, {name.lower() for name in ignore})
    network = reader.network()
    return Case(network, file.faults, reader.notes)


class _Reader:
    """One pass over the sections of a file."""

    def __init__(self, file: RawFile, ignore: set[str]) -> None:
        self.file, self.ignore = file, ignore
        self.notes: list[str] = []

    def network(self) -> Network:
        check_shape(self.file)
        self.other_sections()
        buses = [self.bus(record) for record in self.records("bus")]
        kilovolts = {bus["id"]: bus["base_kv"] for bus in buses}
        voltage = {bus["id"]: bus["vm"] for bus in buses}
        if self.file.revision < 33 and buses:
            low, high = _VOLTAGE
            self.notes.append(
                f"revision {self.file.revision} has no voltage limits; buses are held between {low:g} and {high:g} p.u."
            )
        loads, shunts = self.loads(voltage)
        if self.file.revision < 31:
            shunts += [
                {"bus": b["id"], "g": b["gl"], "b": b["bl"], "in_service": True}
                for b in buses
                if b["gl"] or b["bl"]
            ]
        shunts += self.shunts()
        branches = [self.branch(record) for record in self.records("branch")]
        transformers = Transformers(self.file, kilovolts)
        transformers.read()
        return Network(
            self.file.base,
            [*buses, *transformers.buses],
            [self.generator(record) for record in self.records("generator")],
            loads,
            shunts,
            [*branches, *transformers.branches, *self.switches()],
            dc_lines(self.file, self.notes),
            source_format="psse",
        )

    def records(self, section: str) -> list[Record]:
        return self.file.sections.get(section, [])

    def other_sections(self) -> None:
        """Refuse what is in service and has no place in the model, and names that are none of these."""
        known = {name.lower().replace(" ", "-") for name in _UNMODELLED}
        for name in sorted(self.ignore):
            if name.replace(" ", "-") not in known:
                can = ", ".join(section.replace(" ", "-") for section in _UNMODELLED)
                self.file.faults.append(
                    Fault(argument("ignore"), f"{name!r} cannot be left out of a RAW file; {can} can")
                )
        for section, what in _UNMODELLED.items():
            records = self.records(section)
            if section == "FACTS":  # its control mode is 0 where it is out of service
                records = [r for r in records if len(r) > 3 and r.cells[3].strip() not in ("0", "")]
            elif section == "induction machine":
                records = [r for r in records if len(r) > 2 and r.cells[2].strip() != "0"]
            name = section.replace(" ", "-")
            asked = section.lower() in self.ignore or name.lower() in self.ignore
            if not records:
                if asked:
                    self.notes.append(f"{name!r} is to be left out, and the file holds none in service")
                continue
            if asked:
                self.notes.append(f"{section}: {len(records)} lines left out, as asked")
            else:
                advice = f"take it out of the file, or leave it out with {argument('ignore', name)}"
                said = f"{what}, which the AC-OPF model here does not have; {advice}"
                self.file.faults.append(Fault(f"line {records[0].line} ({section} data)", said))

    # ---- elements --------------------------------------------------------------------------------------

    def bus(self, record: Record) -> Element:
        file, new = self.file, self.file.revision >= 31
        number = file.whole(record, 0, None, "the bus number")
        code = file.whole(record, 3, 1, "the bus type")
        if code not in _KINDS:
            file.faults.append(Fault(f"line {record.line}", f"the bus type must be 1, 2, 3 or 4, got {code}"))
        low, high = _VOLTAGE
        if file.revision >= 33:
            high, low = (file.number(record, 9 + k, d, "a voltage limit") for k, d in ((0, high), (1, low)))
        vm, va = (7, 8) if new else (8, 9)
        return {
            "id": number, "kind": _KINDS.get(code, "PQ"), "vmin": low, "vmax": high,
            "base_kv": file.number(record, 2, 0.0, "the base voltage"),
            "gl": 0.0 if new else file.number(record, 4, 0.0, "GL"),
            "bl": 0.0 if new else file.number(record, 5, 0.0, "BL"),
            "vm": file.number(record, vm, 1.0, "VM"), "va": file.number(record, va, 0.0, "VA"),
            "area": file.whole(record, 4 if new else 6, 1, "the area"),
        }  # fmt: skip

    def loads(self, voltage: dict[int, float]) -> tuple[list[Element], list[Element]]:
        """Loads of constant power, and what depends on the square of the voltage as shunts."""
        file = self.file
        found, shunts, bent = [], [], []
        for record in self.records("load"):
            bus = file.whole(record, 0, None, "the bus of a load")
            on = bool(file.whole(record, 2, 1, "the status of a load"))
            p, q, ip, iq, yp, yq = (file.number(record, 5 + k, 0.0, "a load") for k in range(6))
            if on and (ip or iq):
                vm = voltage.get(bus, 1.0)
                p, q = p + ip * vm, q + iq * vm
                bent.append(bus)
            made = [file.number(record, 14 + k, 0.0, "distributed generation") for k in range(2)]
            if on and file.revision >= 34 and any(made) and file.whole(record, 16, 0, "DGENM"):
                p, q = p - made[0], q - made[1]
            found.append({"bus": bus, "p": p, "q": q, "in_service": on and bool(p or q or not (yp or yq))})
            if yp or yq:
                shunts.append({"bus": bus, "g": yp, "b": yq, "in_service": on})
        if bent:
            shown = ", ".join(map(str, bent[:5])) + (", ..." if len(bent) > 5 else "")
            self.notes.append(f"loads at buses {shown}: their part of constant current is taken as constant power at "
                              "the file's voltage")  # fmt: skip
        if any(shunt["in_service"] for shunt in shunts):
            self.notes.append(
                f"{len(shunts)} loads have a part of constant admittance, which is taken as a shunt"
            )
        return found, shunts

    def shunts(self) -> list[Element]:
        """Fixed shunts, and switched ones as they stand."""
        file, found = self.file, []
        for record in self.records("fixed shunt"):
            g, b = (file.number(record, 3 + k, 0.0, "a shunt") for k in range(2))
            on = bool(file.whole(record, 2, 1, "the status of a shunt"))
            found.append(
                {"bus": file.whole(record, 0, None, "the bus of a shunt"), "g": g, "b": b, "in_service": on}
            )
        place, status = {29: (6, None), 30: (7, None), 31: (7, None), 35: (11, 4)}.get(file.revision, (9, 3))
        moved = 0
        for record in self.records("switched shunt"):
            on = status is None or bool(file.whole(record, status, 1, "the status of a shunt"))
            b = file.number(record, place, 0.0, "BINIT")
            moved += on and file.whole(record, 2 if file.revision >= 35 else 1, 1, "MODSW") != 0
            if b:
                found.append(
                    {
                        "bus": file.whole(record, 0, None, "the bus of a shunt"),
                        "g": 0.0,
                        "b": b,
                        "in_service": on,
                    }
                )
        if moved:
            self.notes.append(f"{moved} switched shunts stay at their initial value")
        return found

    def generator(self, record: Record) -> Element:
        file = self.file
        more = int(file.revision >= 35)  # a node follows the regulated bus
        qmax, qmin, pmax, pmin = (
            file.number(record, place, default, "a generator's limit")
            for place, default in (
                (4, _UNLIMITED), (5, -_UNLIMITED), (16 + more, _UNLIMITED), (17 + more, -_UNLIMITED),
            )
        )  # fmt: skip
        return {
            "bus": file.whole(record, 0, None, "the bus of a generator"),
            "pg": file.number(record, 2, 0.0, "PG"), "qg": file.number(record, 3, 0.0, "QG"),
            "qmax": qmax, "qmin": qmin, "pmax": pmax, "pmin": pmin, "vg": file.number(record, 6, 1.0, "VS"),
            "in_service": bool(file.whole(record, 14 + more, 1, "STAT")), "cost": None,
            "reactive_cost": None, "caps": [],
        }  # fmt: skip

    def branch(self, record: Record) -> Element:
        """A line; what stands at its ends per unit becomes part of its own admittances."""
        file = self.file
        after, rate = (19, 7) if file.revision >= 34 else (9, 6)
        i, j = (abs(file.whole(record, k, None, "the bus of a branch")) for k in range(2))
        r, b = file.number(record, 3, 0.0, "R"), file.number(record, 5, 0.0, "B")
        gi, bi, gj, bj = (file.number(record, after + k, 0.0, "a line shunt") for k in range(4))
        return {
            "from_id": i, "to_id": j, "r": r, "x": file.number(record, 4, None, "X"), "g_fr": gi, "b_fr": b / 2 + bi,
            "g_to": gj, "b_to": b / 2 + bj, "rate_a": file.number(record, rate, 0.0, "a rating"), "c_rating_a": None,
            "tap": 0.0, "shift": 0.0, "in_service": bool(file.whole(record, after + 4, 1, "ST")), "angmin": 0.0,
            "angmax": 0.0,
        }  # fmt: skip

    def switches(self) -> list[Element]:
        """Closed switching devices, which join two buses by their small reactance."""
        file, found = self.file, []
        for record in self.records("switching device"):
            i, j = (abs(file.whole(record, k, None, "the bus of a switch")) for k in range(2))
            found.append(
                {"from_id": i, "to_id": j, "r": 0.0, "x": file.number(record, 3, 0.0, "X"), "g_fr": 0.0, "b_fr": 0.0,
                 "g_to": 0.0, "b_to": 0.0, "rate_a": file.number(record, 4, 0.0, "a rating"), "c_rating_a": None,
                 "tap": 0.0, "shift": 0.0, "in_service": bool(file.whole(record, 16, 1, "STAT")), "angmin": 0.0,
                 "angmax": 0.0}
            )  # fmt: skip
        return found
