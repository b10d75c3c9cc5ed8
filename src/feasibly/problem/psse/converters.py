"""DC lines of RAW files. The format has a set point and no limits, so that is where they stand.

Losses are computed at the set point, from the resistance of the line and what converters lose. Reactive power of
thyristor bridges is drawn, somewhere between what the smallest and the largest firing angle need.
"""

from __future__ import annotations

import math
from typing import Any

from feasibly.problem.errors import Fault
from feasibly.problem.psse.records import RawFile, Record

Element = dict[str, Any]


def dc_lines(file: RawFile, notes: list[str]) -> list[Element]:
    """Two-terminal lines, then lines between voltage source converters."""
    found = [_bridges(file, *group) for group in _groups(file, "two-terminal DC")]
    found += [_sources(file, *group) for group in _groups(file, "VSC DC")]
    kept = [line for line in found if line is not None]
    if any(line["in_service"] for line in kept):
        notes.append("DC lines stand at the set points of the file, with the losses they have there")
    return kept


def _groups(file: RawFile, section: str) -> list[tuple[Record, Record, Record]]:
    records = file.sections.get(section, [])
    if len(records) % 3:
        what = f"{section} data come in three lines each, and there are {len(records)}"
        file.faults.append(Fault(f"line {records[0].line}", what))
        return []
    return [(records[i], records[i + 1], records[i + 2]) for i in range(0, len(records), 3)]


def _bridges(file: RawFile, line: Record, rectifier: Record, inverter: Record) -> Element | None:
    mode = file.whole(line, 1, 0, "MDC")
    resistance = file.number(line, 2, 0.0, "RDC")
    value = file.number(line, 3, 0.0, "SETVL")
    voltage = file.number(line, 4, 0.0, "VSCHD")
    if mode == 0 or not value:
        return _line(file, rectifier, inverter, 0.0, 0.0, (0.0, 0.0), (0.0, 0.0), on=False)
    if mode not in (1, 2) or not voltage > 0.0:
        file.faults.append(Fault(f"line {line.line}", "a DC line needs MDC 0, 1 or 2 and a positive VSCHD"))
        return None
    # The scheduled voltage is taken at the inverter. A positive power is what enters, a negative one what leaves.
    if mode == 2:
        current = abs(value) / 1000.0
        leaves = voltage * current
        enters = leaves + resistance * current**2
    elif value < 0.0:
        leaves = -value
        enters = leaves + resistance * (leaves / voltage) ** 2
    else:
        enters = value
        share = 4.0 * resistance * enters / voltage**2
        current = (
            (math.sqrt(1.0 + share) - 1.0) * voltage / (2.0 * resistance)
            if resistance > 0.0
            else enters / voltage
        )
        leaves = voltage * current
    return _line(
        file, rectifier, inverter, enters, leaves, _drawn(file, rectifier, enters), _drawn(file, inverter, leaves),
    )  # fmt: skip


def _drawn(file: RawFile, bridge: Record, power: float) -> tuple[float, float]:
    """Mvar injected, which is never above zero: overlap angles up to 60 degrees."""
    most, least = (math.radians(file.number(bridge, k, 0.0, "a firing angle")) for k in (2, 3))
    small = power * math.tan(min(abs(least), 1.5))
    large = power * math.tan(math.acos(max(0.5 * (math.cos(most) + math.cos(math.radians(60.0))), 0.05)))
    return -max(small, large), -min(small, large)


def _sources(file: RawFile, line: Record, first: Record, second: Record) -> Element | None:
    if file.whole(line, 1, 1, "MDC") == 0:
        return _line(file, first, second, 0.0, 0.0, (0.0, 0.0), (0.0, 0.0), on=False)
    kinds = [file.whole(end, 1, 0, "TYPE") for end in (first, second)]
    if sorted(kinds) != [1, 2]:
        what = "of the two converters one must hold the voltage (TYPE 1) and one the power (TYPE 2)"
        file.faults.append(Fault(f"line {line.line}", what))
        return None
    power_end, voltage_end = (first, second) if kinds[0] == 2 else (second, first)
    power = file.number(power_end, 3, 0.0, "DCSET")  # into the grid at its bus
    voltage = abs(file.number(voltage_end, 3, 0.0, "DCSET"))
    if not voltage > 0.0:
        file.faults.append(Fault(f"line {voltage_end.line}", "a DC voltage must be positive"))
        return None
    current = abs(power) / voltage
    lost = file.number(line, 2, 0.0, "RDC") * current**2
    for end in (first, second):
        fixed, slope, least = (file.number(end, 5 + k, 0.0, "converter losses") for k in range(3))
        lost += max(fixed + slope * 1000.0 * current, least) / 1000.0
    draws, feeds = (voltage_end, power_end) if power >= 0.0 else (power_end, voltage_end)
    enters, leaves = (power + lost, power) if power >= 0.0 else (-power, -power - lost)
    limits = [
        (file.number(end, 12, -9999.0, "MINQ"), file.number(end, 11, 9999.0, "MAXQ"))
        for end in (draws, feeds)
    ]
    return _line(file, draws, feeds, enters, leaves, limits[0], limits[1])


def _line(
    file: RawFile, start: Record, stop: Record, enters: float, leaves: float, q_start: tuple[float, float],
    q_stop: tuple[float, float], *, on: bool = True,
) -> Element:  # fmt: skip
    i, j = (abs(file.whole(end, 0, None, "the bus of a converter")) for end in (start, stop))
    return {"from_id": i, "to_id": j, "in_service": on, "cost": None, "pf": enters, "pt": leaves, "pmin": enters,
            "pmax": enters, "qminf": q_start[0], "qmaxf": q_start[1], "qmint": q_stop[0], "qmaxt": q_stop[1],
            "loss0": enters - leaves, "loss1": 0.0}  # fmt: skip
