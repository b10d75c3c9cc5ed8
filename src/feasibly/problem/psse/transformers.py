"""Transformers of RAW files: records of four or five lines, in units that codes choose, as branches."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

from feasibly.problem._stars import HIGH, LOW
from feasibly.problem.errors import Fault
from feasibly.problem.psse.records import RawFile, Record

Element = dict[str, Any]


class Transformers:
    """What the transformers of a file become: branches, and the star points of three windings."""

    def __init__(self, file: RawFile, kilovolts: Mapping[int, float]) -> None:
        self.file, self.kilovolts = file, kilovolts
        self.branches: list[Element] = []
        self.buses: list[Element] = []
        self.tables = _corrections(file)
        # From revision 34 on twelve ratings stand where there were three; from 35 on a node follows the bus.
        self.after_ratings = 15 if file.revision >= 34 else 6
        self.last_star = max(kilovolts, default=0)

    def read(self) -> None:
        """Every transformer of the section."""
        records, at = self.file.sections.get("transformer", []), 0
        while at < len(records):
            first = records[at]
            three = self.file.whole(first, 2, 0, "the third bus of a transformer") != 0
            count = 5 if three else 4
            group = records[at : at + count]
            if len(group) < count:
                what = f"a transformer of {3 if three else 2} windings takes {count} lines, and {len(group)} are left"
                self.file.faults.append(Fault(f"line {first.line}", what))
                return
            (self.three if three else self.two)(group)
            at += count

    def two(self, group: list[Record]) -> None:
        """Two windings: the tap is the ratio of theirs, and the impedance is seen through the second one."""
        file, first = self.file, group[0]
        i, j = (file.whole(first, k, None, "the bus of a transformer") for k in (0, 1))
        codes = tuple(file.whole(first, k, 1, name) for k, name in ((4, "CW"), (5, "CZ"), (6, "CM")))
        if not self.known(first, (i, j), codes):
            return
        base = file.number(group[1], 2, file.base, "SBASE1-2")
        nominal = [self.nominal(record, bus) for record, bus in ((group[2], i), (group[3], j))]
        ratio = [self.ratio(record, bus, codes[0]) for record, bus in ((group[2], i), (group[3], j))]
        z = (
            self.impedance(group[1], 0, codes[1], base, nominal[0], i)
            * self.correction(group[2])
            * ratio[1] ** 2
        )
        on = bool(file.whole(first, 11, 1, "STAT"))
        core = self.magnetising(first, i, codes[2], base, nominal[0])
        self.branches.append(self.branch(i, j, z, ratio[0] / ratio[1], group[2], on, core))

    def three(self, group: list[Record]) -> None:
        """Three windings: a star point, and a branch from each winding to it."""
        file, first = self.file, group[0]
        buses = [abs(file.whole(first, k, None, "the bus of a transformer")) for k in range(3)]
        codes = tuple(file.whole(first, k, 1, name) for k, name in ((4, "CW"), (5, "CZ"), (6, "CM")))
        if not self.known(first, buses, codes):
            return
        state = file.whole(first, 11, 1, "STAT")
        nominal = [self.nominal(record, bus) for record, bus in zip(group[2:], buses, strict=True)]
        bases = [file.number(group[1], 3 * k + 2, file.base, "SBASE") for k in range(3)]
        z12, z23, z31 = (
            self.impedance(group[1], 3 * k, codes[1], bases[k], nominal[k], buses[k]) for k in range(3)
        )
        self.last_star += 1
        on = state != 0
        self.buses.append(
            {"id": self.last_star, "kind": "PQ" if on else "ISOLATED", "vmin": LOW, "vmax": HIGH, "va": 0.0}
        )
        legs = ((z12 + z31 - z23) / 2, (z12 + z23 - z31) / 2, (z23 + z31 - z12) / 2)
        for k, (bus, leg, out) in enumerate(zip(buses, legs, (4, 2, 3), strict=True)):
            record = group[2 + k]
            leg *= self.correction(record)
            in_service = on and state != out
            ratio = self.ratio(record, bus, codes[0])
            core = self.magnetising(first, bus, codes[2], bases[0], nominal[0]) if k == 0 else 0j
            self.branches.append(self.branch(bus, self.last_star, leg, ratio, record, in_service, core))

    # ---- units -----------------------------------------------------------------------------------------

    def known(self, first: Record, buses: Any, codes: tuple[int, ...]) -> bool:
        """Whether buses and codes are such as there are."""
        missing = [bus for bus in buses if abs(bus) not in self.kilovolts]
        for bus in missing:
            self.file.faults.append(
                Fault(f"line {first.line}", f"a transformer is at bus {bus}, which does not exist")
            )
        wrong = [f"{name} is {code}" for name, code, most in zip(("CW", "CZ", "CM"), codes, (3, 3, 2), strict=True)
                 if not 1 <= code <= most]  # fmt: skip
        if wrong:
            what = f"{' and '.join(wrong)}; CW and CZ are 1, 2 or 3, CM is 1 or 2"
            self.file.faults.append(Fault(f"line {first.line}", what))
        return not missing and not wrong

    def nominal(self, record: Record, bus: int) -> float:
        """The winding's nominal voltage in kV; zero means that of its bus."""
        return self.file.number(record, 1, 0.0, "NOMV") or self.kilovolts[abs(bus)]

    def ratio(self, record: Record, bus: int, code: int) -> float:
        """The winding's voltage per unit of its bus."""
        kilovolts = self.kilovolts[abs(bus)]
        value = self.file.number(record, 0, kilovolts if code == 2 else 1.0, "WINDV")
        if code == 2:
            value = value / kilovolts if kilovolts else 0.0
        elif code == 3:
            value = value * self.nominal(record, bus) / kilovolts if kilovolts else 0.0
        if value < 0.0 or not kilovolts >= 0.0:
            self.file.faults.append(Fault(f"line {record.line}", "a winding's voltage must not be negative"))
        return value if value > 0.0 else 1.0  # MATPOWER writes 0 for a nominal ratio

    def impedance(self, record: Record, at: int, code: int, base: float, nominal: float, bus: int) -> complex:
        """Per unit on the system's base and the bus's voltage."""
        r = self.file.number(record, at, 0.0, "a transformer's R")
        x = self.file.number(record, at + 1, None, "a transformer's X")
        if code == 1:
            return complex(r, x)
        if not base > 0.0:
            self.file.faults.append(Fault(f"line {record.line}", "a transformer's base must be positive"))
            return complex(r, x)
        if code == 3:  # R is losses in W, X is the size of the impedance
            r = 1e-6 * r / base
            x = math.copysign(math.sqrt(max(x * x - r * r, 0.0)), x)
        kilovolts = self.kilovolts[abs(bus)]
        turns = nominal / kilovolts if kilovolts else 1.0
        return complex(r, x) * self.file.base / base * turns**2

    def magnetising(self, first: Record, bus: int, code: int, base: float, nominal: float) -> complex:
        """The admittance at the first winding's bus, per unit."""
        g, b = (self.file.number(first, 7 + k, 0.0, f"MAG{k + 1}") for k in range(2))
        if code == 2:  # no-load losses in W, exciting current per unit on the transformer's base
            kilovolts = self.kilovolts[abs(bus)]
            turns = (kilovolts / nominal) ** 2 if nominal else 1.0
            g = 1e-6 * g / self.file.base
            size = b * base / self.file.base
            b = -math.sqrt(max(size * size - g * g, 0.0))
            g, b = g * turns, b * turns
        return complex(g, b)

    def correction(self, record: Record) -> float:
        """The factor of the winding's impedance correction table at its ratio or angle."""
        last = self.after_ratings + (8 if self.file.revision >= 35 else 7)
        number = self.file.whole(record, last, 0, "TAB")
        if number == 0:
            return 1.0
        if number not in self.tables:
            what = f"impedance correction table {number} does not exist, or holds complex factors, which are not read"
            self.file.faults.append(Fault(f"line {record.line}", what))
            return 1.0
        points = self.tables[number]
        turned = abs(self.file.whole(record, self.after_ratings, 0, "COD")) == 3
        turned = turned or points[0][0] < 0.0 or points[-1][0] > 2.0
        at = self.file.number(record, 2 if turned else 0, 0.0 if turned else 1.0, "the position of a tap")
        if at <= points[0][0]:
            return points[0][1]
        for (low, first), (high, last_factor) in itertools.pairwise(points):
            if at <= high:
                return first + (at - low) / (high - low) * (last_factor - first)
        return points[-1][1]

    def branch(
        self, i: int, j: int, z: complex, tap: float, record: Record, on: bool, core: complex
    ) -> Element:
        """A branch with its tap at the from side, and its core there too, on the bus's side of the tap."""
        core *= tap * tap
        rate = self.file.number(record, 3, 0.0, "a rating")
        shift = self.file.number(record, 2, 0.0, "ANG")
        return {"from_id": abs(i), "to_id": abs(j), "r": z.real, "x": z.imag, "g_fr": core.real, "b_fr": core.imag,
                "g_to": 0.0, "b_to": 0.0, "rate_a": rate, "c_rating_a": None, "tap": tap, "shift": shift,
                "in_service": on, "angmin": 0.0, "angmax": 0.0}  # fmt: skip


def _corrections(file: RawFile) -> dict[int, list[tuple[float, float]]]:
    """Tables of factors by their number: pairs of a ratio or an angle and a factor, up to the first empty pair."""
    found = {}
    for record in file.sections.get("impedance correction", []) if file.revision < 34 else []:
        values = [file.number(record, k, 0.0, "an impedance correction") for k in range(1, len(record))]
        pairs = list(zip(values[::2], values[1::2], strict=False))
        while pairs and pairs[-1][1] == 0.0:
            pairs.pop()
        if pairs:
            found[file.whole(record, 0, None, "the number of a table")] = sorted(pairs)
    return found
