"""The text of a MATPOWER file as tokens, each with its line; comments and continued lines are settled here."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]

CONTINUED = "\v"
"""Stands for a line end after `...`: white space that is counted as a line."""


class MatlabError(Exception):
    """Something that this reader does not compute, and the line where it stands."""

    def __init__(self, line: int, what: str) -> None:
        super().__init__(what)
        self.line, self.what = line, what


@dataclass(frozen=True)
class Token:
    """`kind` is `number`, `name`, `string`, `table`, `names`, `op` or `end` (`;`, `,`, a new line)."""

    kind: str
    value: Any
    line: int
    spaced: bool
    """Whether white space stands before it, which tells `[1 -2]` from `[1 - 2]`."""


_TOKEN = re.compile(
    r"(?P<number>(?:\d+(?:\.(?![*/\\^'])\d*)?|\.\d+)(?:[eEdD][+-]?\d+)?)"
    r"|(?P<name>[A-Za-z]\w*)"
    r"|(?P<op>\.\*|\./|\.\\|\.\^|\.'|==|~=|!=|<=|>=|&&|\|\||[-+*/\\^<>=()\[\]{}.,;:'@~!&|])"
)
_SPACE = re.compile(r"[ \t\r\f\v]+")
_PLAIN = re.compile(r"(?:[-+\d.eE\s,;]|Inf|NaN|inf|nan)*\Z")
_NUMBER = re.compile(r"[-+]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[Ii]nf|NaN|nan)\Z")
_NAMES = re.compile(r"""\{(?:[\s;,]|'(?:[^'\n]|'')*'|"[^"\n]*"|[-+\d.])*\}""")
"""A cell array of strings and plain numbers."""
_OPEN, _CLOSE = "([{", ")]}"


def tokenize(text: str) -> list[Token]:
    """Every token of `text`, the last one an `end`.

    Raises:
        MatlabError: at a character that has no place in the language, or a bracket that does not close.
    """
    clean = _without_comments(text.replace("\r\n", "\n").replace("\r", "\n"))
    tokens: list[Token] = []
    place, line, spaced = 0, 1, False
    depth: list[tuple[str, int]] = []
    while place < len(clean):
        character = clean[place]
        if character == "\n":
            if depth and depth[-1][0] == "(":
                raise MatlabError(depth[-1][1], "a bracket is opened and not closed on its line")
            tokens.append(Token("end", "\n", line, spaced))
            place, line, spaced = place + 1, line + 1, False
            continue
        space = _SPACE.match(clean, place)
        if space:
            line += space.group().count(CONTINUED)
            place, spaced = space.end(), True
            continue
        if character == '"' or (character == "'" and not _is_transpose(clean, place, bool(depth))):
            end, inside = _string(clean, place, line)
            tokens.append(Token("string", inside, line, spaced))
            place, spaced = end, False
            continue
        if character == "[" and tokens and tokens[-1].value == "=" and not depth:
            end = clean.find("]", place)
            rows = _plain_table(clean[place + 1 : end], line) if end > 0 else None
            if rows is not None:
                tokens.append(Token("table", rows, line, spaced))
                body = clean[place:end]
                line += body.count("\n") + body.count(CONTINUED)
                place, spaced = end + 1, False
                continue
        names = _NAMES.match(clean, place) if character == "{" and not depth else None
        if names:
            tokens.append(Token("names", None, line, spaced))
            line += names.group().count("\n") + names.group().count(CONTINUED)
            place, spaced = names.end(), False
            continue
        found = _TOKEN.match(clean, place)
        if found is None:
            raise MatlabError(line, f"the character {character!r} has no meaning here")
        kind = str(found.lastgroup)
        value: Any = found.group()
        if kind == "op":
            if value in _OPEN:
                depth.append((value, line))
            elif value in _CLOSE:
                if not depth or _OPEN.index(depth[-1][0]) != _CLOSE.index(value):
                    raise MatlabError(line, f"{value!r} closes no bracket")
                depth.pop()
            elif value in ",;" and not depth:
                kind = "end"
        elif kind == "number":
            value = float(value.replace("d", "e").replace("D", "e"))
            if place + len(found.group()) < len(clean) and clean[found.end()].isalpha():
                raise MatlabError(
                    line, f"{found.group() + clean[found.end()]!r} is neither a number nor a name"
                )
        tokens.append(Token(kind, value, line, spaced))
        place, spaced = found.end(), False
    if depth:
        raise MatlabError(depth[-1][1], "a bracket is opened and never closed")
    tokens.append(Token("end", "\n", line, False))
    return tokens


def _without_comments(text: str) -> str:
    """The same lines without `% ...`, `# ...`, blocks `%{ ... %}` and what follows `...`."""
    kept, nested = [], 0
    for raw in text.split("\n"):
        bare = raw.strip()
        if bare in ("%{", "#{"):
            nested += 1
        if nested:
            nested -= bare in ("%}", "#}")
            kept.append("\n")
            continue
        if "%" not in raw and "#" not in raw and "..." not in raw:
            kept.append(raw + "\n")
            continue
        cut, continued = _cut(raw)
        kept.append(raw[:cut] + (CONTINUED if continued else "\n"))
    return "".join(kept)


def _cut(line: str) -> tuple[int, bool]:
    """Where the comment of a line begins, and whether the statement goes on in the next."""
    quote = ""
    for i, character in enumerate(line):
        if quote:
            quote = "" if character == quote else quote
        elif character == '"' or (
            character == "'" and not _is_transpose(line, i, "[" in line or "{" in line)
        ):
            quote = character
        elif character in "%#":
            return i, False
        elif line.startswith("...", i):
            return i, True
    return len(line), False


def _is_transpose(text: str, place: int, bracketed: bool) -> bool:
    """A quote right after a value transposes it; after a space inside brackets it opens a string."""
    before = text[place - 1] if place else " "
    if before in " \t" and not bracketed:
        before = text[:place].rstrip(" \t")[-1:] or " "
    return before.isalnum() or before in "_)]}'."


def _string(text: str, place: int, line: int) -> tuple[int, str]:
    quote, i, value = text[place], place + 1, ""
    while i < len(text) and text[i] not in ("\n", CONTINUED):
        if text[i] == quote:
            if text[i + 1 : i + 2] == quote:
                value, i = value + quote, i + 2
                continue
            return i + 1, value
        value, i = value + text[i], i + 1
    raise MatlabError(line, "a string is opened and not closed on its line")


def _plain_table(body: str, line: int) -> Matrix | None:
    """A table of numbers alone, the quick way; `None` where it holds anything else."""
    if not _PLAIN.match(body):
        return None
    rows: list[list[float]] = []
    at = line
    for physical in body.split("\n"):
        for part in physical.split(";"):
            if "," in part:
                cells = [cell.strip() for cell in part.split(",")]
                if cells[-1] == "":
                    cells.pop()
                if any(not _NUMBER.match(cell) for cell in cells):
                    return None
            else:
                cells = part.split()
            if not cells:
                continue
            try:
                row = [float(cell) for cell in cells]
            except ValueError:
                return None
            if rows and len(row) != len(rows[0]):
                raise MatlabError(
                    at, f"a row of {len(row)} values in a table whose first row has {len(rows[0])}"
                )
            rows.append(row)
        at += 1 + physical.count(CONTINUED)
    return np.array(rows, dtype=np.float64) if rows else np.zeros((0, 0))
