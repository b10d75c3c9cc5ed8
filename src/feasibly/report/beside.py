"""Published beside measured: every cell with whether it is better, equal to the printed digits, or worse."""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from feasibly._words import timing
from feasibly.report.published import METRICS, PublishedTable, judge
from feasibly.report.render import COLUMNS, Summary, figure, summarise
from feasibly.report.sheet import Cell, Row, Sheet, failed

TITLES: Mapping[str, str] = {column.key: column.title for column in COLUMNS}
HOW_TO_READ = (
    "Each cell: measured (published), then ✓ better, = equal to the digits printed, ✗ worse. Rows without a published "
    "one are held against the best published value of each column."
)


@dataclass(frozen=True)
class Verdict:
    """One figure of ours and the published one it is held against."""

    measured: float
    published: float | None
    verdict: str
    """`better`, `equal`, `worse`, or empty where the paper has no figure."""


@dataclass(frozen=True)
class Line:
    """A method and an answer; `label` is the paper's name for what was asked for, or empty where it has none."""

    label: str
    method: str
    answer: str
    cells: Mapping[str, Verdict]
    summary: Summary

    @property
    def failed(self) -> str:
        """Why there are no figures, or nothing."""
        return "" if self.summary.seeds else self.summary.failed


def put_beside(table: PublishedTable, rows: Iterable[Mapping[str, Any]]) -> list[Line]:
    """The paper's rows in its order, then ours that it does not have. Missing measurements are left out."""
    found = {(s.asked, s.answer, s.method): s for s in summarise(rows)}
    lines = []
    for row in table.rows:
        for key in [key for key in found if key[:2] == (row.method, row.answer)]:
            summary = found.pop(key)
            cells = {m: _cell(summary, table, m, row.values.get(m), row.digits.get(m, 3)) for m in METRICS}
            lines.append(Line(row.label, summary.method, row.answer, cells, summary))
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


def _cell(
    summary: Summary, table: PublishedTable, metric: str, published: float | None, digits: int
) -> Verdict:
    measured = summary.mean.get(table.ours(metric), math.nan)
    known = summary.seeds > 0 and published is not None
    return Verdict(measured, published, judge(measured, published or 0.0, digits) if known else "")


def count_verdicts(lines: Iterable[Line], *, own: bool = False) -> Counter[str]:
    """How many cells are better, equal and worse, over the paper's rows (or, with `own`, over ours alone).

    Rows with a note are left out, and so is what stands in for a method: it says nothing of it.
    """
    return Counter(
        cell.verdict
        for line in lines
        if bool(line.label) != own and not line.summary.note and not line.summary.stands_in
        for cell in line.cells.values()
        if cell.verdict
    )


def beside_sheet(lines: list[Line], *, narrow: bool = False) -> Sheet:
    """The table of all lines; a `narrow` one has one column of names."""
    names = ("Method", "Answer") if narrow else ("Paper's name", "Method", "Answer")
    head = [*names, *(TITLES[m] for m in METRICS), "All ineq.", "Train", "Per instance"]
    found = []
    for before, line in zip([None, *lines], lines, strict=False):
        new = before is not None and bool(before.label) and not line.label
        mean, mark = line.summary.mean, " †" if line.summary.note else ""
        label = f"{line.label} ({line.method})" if line.summary.stands_in else line.label
        named = [f"{label}{mark}" if line.label else line.summary.name, line.answer]
        if not narrow:
            named = [line.label or "(not in the paper)", line.summary.name, line.answer]
        if line.failed:
            found.append(failed(named, line.failed, len(head) - len(named), new))
            continue
        cells = [
            *map(Cell, named),
            *(_shown(line, metric) for metric in METRICS),
            Cell(figure(mean["max_ineq"])),
        ]
        times = (mean["train_seconds"], mean["predict_seconds_per_instance"])
        found.append(Row([*cells, *(Cell(timing(seconds)) for seconds in times)], new))
    return Sheet(head, found, len(names))


def _shown(line: Line, metric: str) -> Cell:
    cell = line.cells[metric]
    beside = f"({cell.published:g})" if line.label and cell.published is not None else ""
    return Cell(figure(cell.measured), beside, cell.verdict)


def beside_csv(lines: list[Line]) -> str:
    """A line for every cell."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        [
            "label",
            "method",
            "answer",
            "metric",
            "measured",
            "published",
            "verdict",
            "seeds",
            "failed",
            "asked",
        ]
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
                    line.summary.asked if line.summary.stands_in else "",
                ]
            )
    return out.getvalue()
