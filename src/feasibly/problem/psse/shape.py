"""Whether records look as their revision has them: a file that gives another revision than its own is read too.

Columns moved from revision to revision, and a rating may stand where a later one has a name. Refused are records that
are longer than those of their revision, numbers in the place of names, statuses that are neither 0 nor 1, and elements
that stand twice.
"""

from __future__ import annotations

from collections.abc import Iterable

from feasibly.problem.errors import Fault
from feasibly.problem.psse.records import RawFile, Record

_STATUS = {"load": 2, "fixed shunt": 2, "generator": 14, "branch": 13}
_KEYS = {"bus": 1, "load": 2, "fixed shunt": 2, "generator": 2, "branch": 3}
"""So many of the first fields name an element; what follows the buses is 1 unless told."""


def check_shape(file: RawFile) -> None:
    """Add what does not look as it should to the faults of a file."""
    for section in _KEYS:
        records = file.sections.get(section, [])
        most = _longest(section, file.revision)
        for record in records:
            if any(cell.strip() and not _is_zero(cell) for cell in record.cells[most:]):
                what = f"{section} data of revision {file.revision} have {most} fields, and here are {len(record)}"
                file.faults.append(Fault(f"line {record.line}", f"{what}; is the revision in line 1 right?"))
                break
        file.faults += _twice(section, records)
        if section in _STATUS:
            place = _STATUS[section] + _moved(section, file.revision)
            for record in records:
                status = file.whole(record, place, 1, "a status")
                if status not in (0, 1):
                    file.faults.append(Fault(f"line {record.line}", f"a status must be 0 or 1, got {status}"))
    file.faults += _names(file)


def _longest(section: str, revision: int) -> int:
    """How many fields a record can have, with four owners."""
    later = revision - 29
    return {
        "bus": (11, 11, 9, 9, 13, 13, 13),
        "load": (13, 13, 13, 13, 14, 17, 18),
        "fixed shunt": (5,) * 7,
        "generator": (28, 28, 28, 28, 28, 28, 30),
        "branch": (24, 24, 24, 24, 24, 34, 34),
    }[section][later]


def _moved(section: str, revision: int) -> int:
    if section == "generator":
        return int(revision >= 35)
    return 10 if section == "branch" and revision >= 34 else 0


def _twice(section: str, records: list[Record]) -> Iterable[Fault]:
    """Elements that stand twice, of which nobody says which counts."""
    seen: dict[tuple[str, ...], int] = {}
    for record in records:
        count = _KEYS[section]
        cells = [cell.strip().upper() for cell in record.cells[:count]]
        cells += ["1"] * (count - len(cells))
        buses = sorted(cell.lstrip("-") for cell in cells[:2]) if section == "branch" else cells[:1]
        key = (*buses, *(cell or "1" for cell in cells[len(buses) :]))
        if section != "bus" and key in seen:
            yield Fault(f"line {record.line}", f"this {section} stands in line {seen[key]} already")
        seen.setdefault(key, record.line)


def _names(file: RawFile) -> Iterable[Fault]:
    """Numbers where the revision has a name."""
    places = [("switched shunt", {29: 5, 30: 6, 31: 6, 35: 10}.get(file.revision, 8), "the converter's name")]
    if file.revision >= 34:
        places.append(("branch", 6, "the branch's name"))
    for section, place, what in places:
        for record in file.sections.get(section, []):
            text = record.cells[place].strip() if place < len(record) else ""
            short = (
                section != "branch" or len(record) <= 24
            )  # a name may be a number, in a record of full length
            if text and short and _is_number(text):
                said = f"{text!r} stands where revision {file.revision} has {what} (field {place + 1})"
                yield Fault(f"line {record.line}", f"{said}; is the revision in line 1 right?")
                break
    if file.revision <= 30:
        for record in file.sections.get("bus", []):
            if len(record) > 8 and file.number(record, 8, 1.0, "VM") <= 0.0:
                said = f"VM must be positive in revision {file.revision} (field 9)"
                yield Fault(f"line {record.line}", f"{said}; is the revision in line 1 right?")
                break


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _is_zero(text: str) -> bool:
    return _is_number(text) and float(text) == 0.0
