"""Published beside measured: every cell with whether it is better, equal to the printed digits, or worse."""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from feasibly.report.published import METRICS, PublishedTable, judge
from feasibly.report.render import COLUMNS, Summary, duration, escape_latex, figure, summarise

if TYPE_CHECKING:
    from rich.table import Table

SIGNS: Mapping[str, str] = {"better": "✓", "equal": "=", "worse": "✗", "": ""}
LATEX_SIGNS: Mapping[str, str] = {"✓": "$+$", "✗": "$-$", "†": r"$\dagger$"}
TITLES: Mapping[str, str] = {column.key: column.title for column in COLUMNS}
HOW_TO_READ = (
    "Each cell: measured (published), then ✓ better, = equal to the digits printed, ✗ worse. Rows without a published "
    "one are held against the best published value of each column."
)


@dataclass(frozen=True)
class Cell:
    """One figure of ours and the published one it is held against."""

    measured: float
    published: float | None
    verdict: str
    """`better`, `equal`, `worse`, or empty where the paper has no figure."""


@dataclass(frozen=True)
class Line:
    """A method and an answer; `label` is the paper's name for it, or empty where it has none."""

    label: str
    method: str
    answer: str
    cells: Mapping[str, Cell]
    summary: Summary

    @property
    def failed(self) -> str:
        """Why there are no figures, or nothing."""
        return "" if self.summary.seeds else self.summary.failed


def put_beside(table: PublishedTable, rows: Iterable[Mapping[str, Any]]) -> list[Line]:
    """The paper's rows in its order, then ours that it does not have. Missing measurements are left out."""
    found = {(s.method, s.answer): s for s in summarise(rows)}
    lines = []
    for row in table.rows:
        summary = found.pop((row.method, row.answer), None)
        if summary is not None:
            cells = {m: _cell(summary, table, m, row.values.get(m), row.digits.get(m, 3)) for m in METRICS}
            lines.append(Line(row.label, row.method, row.answer, cells, summary))
    for summary in found.values():
        cells = {}
        for metric in METRICS:
            best = table.best(metric)
            value = None if best is None else best.values[metric]
            cells[metric] = _cell(
                summary, table, metric, value, 3 if best is None else best.digits.get(metric, 3)
            )
        lines.append(Line("", summary.method, summary.answer, cells, summary))
    return lines


def _cell(summary: Summary, table: PublishedTable, metric: str, published: float | None, digits: int) -> Cell:
    measured = summary.mean.get(table.ours(metric), math.nan)
    known = summary.seeds > 0 and published is not None
    return Cell(measured, published, judge(measured, published or 0.0, digits) if known else "")


def count_verdicts(lines: Iterable[Line], *, own: bool = False) -> Counter[str]:
    """How many cells are better, equal and worse, over the paper's rows (or, with `own`, over ours alone).

    Rows with a note are left out: what stands in for a method says nothing of it.
    """
    return Counter(
        cell.verdict
        for line in lines
        if bool(line.label) != own and not line.summary.note
        for cell in line.cells.values()
        if cell.verdict
    )


def _text(line: Line, metric: str) -> str:
    cell = line.cells[metric]
    if not line.summary.seeds:
        return ""
    beside = f" ({cell.published:g})" if line.label and cell.published is not None else ""
    return f"{figure(cell.measured)}{beside} {SIGNS[cell.verdict]}".rstrip()


_HEAD = (
    "Paper's name",
    "Method",
    "Answer",
    *(TITLES[m] for m in METRICS),
    "All ineq.",
    "Train",
    "Per instance",
)


def _fields(line: Line) -> list[str]:
    mean = line.summary.mean
    names = [line.label or "(not in the paper)", line.summary.name, line.answer]
    if line.failed:
        return [*names, "failed", *[""] * 7]
    return [
        *names,
        *(_text(line, metric) for metric in METRICS),
        figure(mean["max_ineq"]),
        duration(mean["train_seconds"]),
        duration(mean["predict_seconds_per_instance"]),
    ]


def beside_table(lines: list[Line], title: str | None = None) -> Table:
    """For the terminal; the sign says what the colour says."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), title=title, title_justify="left")
    for i, head in enumerate(_HEAD[1:]):  # one column of names, and cells on two lines: terminals are narrow
        table.add_column(head.replace(" ", "\n", 1), justify="left" if i < 2 else "right", overflow="fold")
    colours = {"better": "green", "equal": "", "worse": "red", "": ""}
    for line in lines:
        name, method, *rest = _fields(line)
        fields = [Text(f"{name}{' †' if line.summary.note else ''}" if line.label else method, style="bold")]
        fields += [Text(_two_lines(each)) for each in rest]
        if not line.failed:
            for i, metric in enumerate(METRICS, start=2):
                fields[i].stylize(colours[line.cells[metric].verdict])
        table.add_row(*fields)
    return table


def _two_lines(cell: str) -> str:
    """`0.500 (0.928) ✓` as `0.500 ✓` above `(0.928)`."""
    measured, bracket, rest = cell.partition(" (")
    published, _, sign = rest.partition(")")
    return f"{measured}{sign}\n({published})" if bracket else cell


def beside_markdown(lines: list[Line]) -> str:
    """For a page."""
    text = ["| " + " | ".join(_HEAD) + " |", "|---|---|---|" + "---:|" * (len(_HEAD) - 3)]
    text += ["| " + " | ".join(_fields(line)) + " |" for line in lines]
    return "\n".join(text) + "\n"


def beside_latex(lines: list[Line]) -> str:
    """A tabular with booktabs' rules."""
    text = [r"\begin{tabular}{lll" + "r" * (len(_HEAD) - 3) + "}", r"\toprule"]
    text.append(" & ".join(escape_latex(head) for head in _HEAD) + r" \\")
    text.append(r"\midrule")
    for before, line in zip([None, *lines], lines, strict=False):
        if before is not None and before.label and not line.label:
            text.append(r"\midrule")
        fields = " & ".join(escape_latex(field) for field in _fields(line))
        for sign, written in LATEX_SIGNS.items():
            fields = fields.replace(sign, written)
        text.append(fields + r" \\")
    return "\n".join([*text, r"\bottomrule", r"\end{tabular}", ""])


def beside_csv(lines: list[Line]) -> str:
    """A line for every cell."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        ["label", "method", "answer", "metric", "measured", "published", "verdict", "seeds", "failed"]
    )
    for line in lines:
        for metric, cell in line.cells.items():
            measured = cell.measured if math.isfinite(cell.measured) else ""
            published = "" if cell.published is None else cell.published
            writer.writerow(
                [
                    line.label,
                    line.method,
                    line.answer,
                    metric,
                    measured,
                    published,
                    cell.verdict,
                    line.summary.seeds,
                    line.failed,
                ]
            )
    return out.getvalue()
