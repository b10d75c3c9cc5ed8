"""A table before anybody decides how it looks, and the ways in which it can: terminal, Markdown, LaTeX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

SIGNS: Mapping[str, str] = {"better": "✓", "equal": "=", "worse": "✗"}
"""What follows a figure that is held against another, so that nothing hangs on colour alone."""

_LATEX_SIGNS: Mapping[str, str] = {"✓": "$+$", "✗": "$-$", "†": r"$\dagger$"}
_STYLES: Mapping[str, str] = {"best": "bold green", "better": "green", "worse": "red"}


@dataclass(frozen=True)
class Cell:
    """A figure or a word; `below` (a range, a published figure) stands under it or behind it.

    `kind` is `best`, `better`, `equal`, `worse`, `failed`, or nothing. A cell may span several columns.
    """

    text: str
    below: str = ""
    kind: str = ""
    span: int = 1

    @property
    def line(self) -> str:
        """All of it on one line."""
        return " ".join(filter(None, (self.text, self.below, SIGNS.get(self.kind, ""))))


@dataclass(frozen=True)
class Row:
    """Cells side by side, with a rule above them where something `new` begins."""

    cells: Sequence[Cell]
    new: bool = False


@dataclass(frozen=True)
class Sheet:
    """Headings and rows; the first `words` columns hold words, the others figures."""

    head: Sequence[str]
    rows: Sequence[Row]
    words: int = 2


def failed(names: Sequence[str], reason: str, columns: int, new: bool = False) -> Row:
    """The row of something that has no figures."""
    return Row([*map(Cell, names), Cell(f"failed: {reason}", kind="failed", span=columns)], new)


def to_rich(sheet: Sheet, title: str | None = None) -> Table:
    """For the terminal: headings and cells on two lines, so that a usual one is wide enough."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), title=title, title_justify="left")
    for i, head in enumerate(sheet.head):
        left = i < sheet.words
        table.add_column(
            head.replace(" ", "\n", 1), justify="left" if left else "right", overflow="fold", no_wrap=left,
            style="bold" if i == 0 else "",
        )  # fmt: skip
    before = ""
    for row in sheet.rows:
        if row.new and before:
            table.add_section()
        first = row.cells[0].text
        shown = [Text("" if first == before else first)]
        before = first
        for cell in row.cells[1:]:
            if cell.span > 1:  # the reason stands below the table, where there is room for it
                shown += [Text("failed"), *[Text("")] * (cell.span - 1)]
                continue
            over = f"{'*' if cell.kind == 'best' else ''}{cell.text} {SIGNS.get(cell.kind, '')}".rstrip()
            shown.append(Text(f"{over}\n{cell.below}".rstrip(), style=_STYLES.get(cell.kind, "")))
        table.add_row(*shown)
    return table


def to_markdown(sheet: Sheet) -> str:
    """For a page; the best of a column is bold."""
    text = ["| " + " | ".join(sheet.head) + " |"]
    text.append("|" + "---|" * sheet.words + "---:|" * (len(sheet.head) - sheet.words))
    for row in sheet.rows:
        cells: list[str] = []
        for cell in row.cells:
            said = "failed" if cell.kind == "failed" else cell.line
            cells += [f"**{said}**" if cell.kind == "best" else said, *[""] * (cell.span - 1)]
        text.append("| " + " | ".join(cells) + " |")
    return "\n".join(text) + "\n"


def to_latex(sheet: Sheet) -> str:
    """A tabular with booktabs' rules; the best of a column is bold."""
    text = [
        r"\begin{tabular}{" + "l" * sheet.words + "r" * (len(sheet.head) - sheet.words) + "}",
        r"\toprule",
    ]
    text += [" & ".join(map(_escape, sheet.head)) + r" \\", r"\midrule"]
    for i, row in enumerate(sheet.rows):
        if row.new and i:
            text.append(r"\midrule")
        cells = [
            rf"\multicolumn{{{cell.span}}}{{l}}{{{_escape(cell.text)}}}" if cell.span > 1
            else rf"\textbf{{{_escape(cell.line)}}}" if cell.kind == "best" else _escape(cell.line)
            for cell in row.cells
        ]  # fmt: skip
        text.append(" & ".join(cells) + r" \\")
    return "\n".join([*text, r"\bottomrule", r"\end{tabular}", ""])


def _escape(text: str) -> str:
    """Text with LaTeX's own characters made harmless."""
    for sign in ("\\", "&", "%", "$", "#", "_", "{", "}"):
        text = text.replace(sign, r"\textbackslash " if sign == "\\" else f"\\{sign}")
    for sign, written in _LATEX_SIGNS.items():
        text = text.replace(sign, written)
    return text
