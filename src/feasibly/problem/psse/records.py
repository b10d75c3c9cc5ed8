"""A RAW file as sections of records: free format, quotes, comments, repeated and missing fields."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from feasibly.problem.errors import Fault, FeasiblyError

REVISIONS = range(29, 36)

_OLD = ("bus", "load", "generator", "branch", "transformer", "area", "two-terminal DC", "VSC DC", "switched shunt",
        "impedance correction", "multi-terminal DC", "multi-section line", "zone", "inter-area transfer", "owner",
        "FACTS")  # fmt: skip
_31 = ("bus", "load", "fixed shunt", "generator", "branch", "transformer", "area", "two-terminal DC", "VSC DC",
       "impedance correction", "multi-terminal DC", "multi-section line", "zone", "inter-area transfer", "owner",
       "FACTS", "switched shunt")  # fmt: skip
_34 = ("system-wide", "bus", "load", "fixed shunt", "generator", "branch", "switching device", *_31[5:], "GNE device",
       "induction machine", "substation")  # fmt: skip
ORDER = {29: _OLD, 30: _OLD, 31: _31, 32: (*_31, "GNE device"), 33: (*_31, "GNE device", "induction machine"),
         34: _34, 35: _34}  # fmt: skip
"""Sections of every revision, in the order in which they stand."""

_LABELS = (
    ("SYSTEM-WIDE", "system-wide"), ("SWITCHED SHUNT", "switched shunt"), ("SHUNT", "fixed shunt"),
    ("SWITCHING DEVICE", "switching device"), ("LOAD", "load"), ("GENERATOR", "generator"), ("BRANCH", "branch"),
    ("IMPEDANCE CORRECTION", "impedance correction"), ("TRANSFORMER", "transformer"),
    ("INTER", "inter-area transfer"), ("AREA", "area"),
    ("MULTI-TERMINAL", "multi-terminal DC"),
    ("TWO-TERMINAL", "two-terminal DC"), ("VOLTAGE SOURCE", "VSC DC"), ("VSC", "VSC DC"),
    ("MULTI-SECTION", "multi-section line"), ("ZONE", "zone"), ("OWNER", "owner"), ("FACTS", "FACTS"),
    ("GNE", "GNE device"), ("INDUCTION", "induction machine"), ("SUBSTATION", "substation"), ("BUS", "bus"),
)  # fmt: skip
"""How the ends of sections are labelled, the more particular first."""

_ESSENTIAL = ("bus", "load", "fixed shunt", "generator", "branch", "transformer")
"""Sections that a file always ends, also where they are empty."""

_TOKEN = re.compile(r"""\s*(?:'([^']*)'|"([^"]*)"|([^,\s'"/]+))?\s*""")
_END = re.compile(r"END\s+OF\s+(.+?)\s+DATA", re.IGNORECASE)
_BEGIN = re.compile(r"BEGIN\s+(.+?)\s+DATA", re.IGNORECASE)
_QUOTED = re.compile(r"""('[^']*'|"[^"]*")""")


@dataclass(frozen=True)
class Record:
    """One line of a section, or several that belong together: fields as text, and where it stands."""

    line: int
    cells: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.cells)


@dataclass
class RawFile:
    """What a file holds, section by section."""

    base: float
    revision: int
    sections: dict[str, list[Record]]
    faults: list[Fault] = field(default_factory=list)

    def number(self, record: Record, place: int, default: float | None, what: str) -> float:
        """The field at a place (from 0); where it is missing the default, and a fault where there is none."""
        text = record.cells[place].strip() if place < len(record.cells) else ""
        if not text:
            if default is None:
                self.faults.append(Fault(f"line {record.line}", f"{what} is missing (field {place + 1})"))
                return 0.0
            return default
        try:
            value = float(text.replace("D", "E").replace("d", "e"))
        except ValueError:
            value = float("nan")
        if value != value or value in (float("inf"), float("-inf")):
            said = f"{what} must be a number, and {text!r} stands there (field {place + 1})"
            self.faults.append(Fault(f"line {record.line}", said))
            return 0.0 if default is None else default
        return value

    def whole(self, record: Record, place: int, default: int | None, what: str) -> int:
        """A whole number."""
        value = self.number(record, place, default, what)
        if value != int(value):
            self.faults.append(Fault(f"line {record.line}", f"{what} must be a whole number, got {value:g}"))
        return int(value)


def split(text: str, name: str) -> RawFile:
    """The sections of a file. What the end of a section says it was counts; where it says nothing, the order does.

    Raises:
        FeasiblyError: where the first line gives no base or no revision that is read here, or the file breaks off.
    """
    lines = [(i, line) for i, line in enumerate(text.splitlines(), start=1) if not line.startswith("@!")]
    if not lines:
        raise FeasiblyError(f"{name} cannot be read as a grid: it is an empty file")
    found = RawFile(*_heading(lines[0][1], name), {})
    order = ORDER[found.revision]
    place, current = 0, list[Record]()
    begun: tuple[int, str] | None = None
    for i, line in lines[3:]:
        body = _strip(line)
        first = body.strip()
        if first.upper() == "Q":
            break
        if re.fullmatch(r"0[\s,]*", first):
            said = _label(line)
            if current and begun is not None and said is not None and _section(begun[1]) != said:
                what = f"line {begun[0]} begins {begun[1]!r} data, and line {i} ends them as {said} data; mend one"
                raise FeasiblyError(f"{name} cannot be read as a grid: {what}")
            opens = _BEGIN.search(line)
            begun = None if opens is None else (i, opens.group(1))
            if not current and ((said is not None and said not in order) or place >= len(order)):
                continue  # an empty section of a later revision
            if said is not None and said in order:
                passed = order[place : order.index(said)]
                if any(section in _ESSENTIAL for section in passed):
                    what = f"line {i} ends the {said} data, and the {passed[0]} data before them have no end"
                    raise FeasiblyError(f"{name} cannot be read as a grid: {what}")
                place = order.index(said)
            if (
                place >= len(order)
                or order[place] in found.sections
                or (said is not None and said not in order)
            ):
                what = f"line {i} ends a section that revision {found.revision} does not have there"
                raise FeasiblyError(f"{name} cannot be read as a grid: {what}")
            found.sections[order[place]] = current
            place, current = place + 1, []
        elif first:
            current.append(Record(i, fields(body)))
    if current or "branch" not in found.sections:
        after = list(found.sections)[-1] if found.sections else "heading"
        what = f"it breaks off after the {after} data; every section ends with a line that begins with 0"
        raise FeasiblyError(f"{name} cannot be read as a grid: {what}")
    return found


def _label(line: str) -> str | None:
    """The section that a line `0 / END OF ... DATA` says it ends."""
    said = _END.search(line)
    return None if said is None else _section(said.group(1))


def _section(label: str) -> str | None:
    """The section that is called so."""
    words = label.upper()
    return next((section for part, section in _LABELS if part in words), None)


def fields(body: str) -> tuple[str, ...]:
    """Fields of a line: separated by commas or blanks, in quotes where they hold either; `,,` is a missing field."""
    found: list[str] = []
    place = 0
    while place < len(body):
        match = _TOKEN.match(body, place)
        assert match is not None
        text = next((group for group in match.groups() if group is not None), None)
        found.append("" if text is None else text)
        place = match.end()
        if place < len(body) and body[place] == ",":
            place += 1
            if place >= len(body.rstrip()):
                found.append("")
                break
        elif text is None:  # a quote without an end: taken as it is
            found[-1] = body[place:].strip()
            break
    return tuple(found)


def _strip(line: str) -> str:
    """A line without its comment, which begins at a slash outside quotes."""
    parts = _QUOTED.split(line)
    kept = []
    for i, part in enumerate(parts):
        if i % 2 == 0 and "/" in part:
            kept.append(part[: part.index("/")])
            break
        kept.append(part)
    return "".join(kept)


def _heading(line: str, name: str) -> tuple[float, int]:
    cells = fields(_strip(line))
    try:
        case, base = int(float(cells[0])), float(cells[1])
        assert case in (0, 1)
        text = cells[2] if len(cells) > 2 and cells[2] else _said(line)
        revision = int(float(text))
    except (IndexError, ValueError, AssertionError):
        raise FeasiblyError(
            f"{name} cannot be read as a grid: line 1 must give the case, the base power and the revision, as in "
            "0, 100.0, 33"
        ) from None
    if case == 1:
        raise FeasiblyError(
            f"{name} cannot be read as a grid: it adds to another case (line 1 begins with 1)"
        )
    if revision not in REVISIONS:
        raise FeasiblyError(
            f"{name} cannot be read as a grid: it is of revision {revision}; {REVISIONS[0]} to {REVISIONS[-1]} are "
            "read, so save it as one of these"
        )
    return base, revision


def _said(line: str) -> Any:
    """`PSS/E-29.0` in the comment of the first line, which is where older files say it."""
    found = re.search(r"PSS\S*E-(\d+)", line, re.IGNORECASE)
    return found.group(1) if found else ""
