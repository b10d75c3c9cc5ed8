"""A comparison as a table with the paper's columns first, as CSV, and in words."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from feasibly._words import counted, timing
from feasibly.report.compare import Comparison
from feasibly.report.rows import as_now, called, key_of
from feasibly.report.sheet import Cell, Row, Sheet, failed


@dataclass(frozen=True)
class Column:
    """A column of a table: where it comes from, what it is called, and which way is better."""

    key: str
    title: str
    kind: str = "measure"
    """`measure`, `share`, `count` or `seconds`."""
    best: str = "least"
    """`least`, `most`, or empty where neither is."""


COLUMNS = (
    Column("gap_percent", "Gap %"),
    Column("max_eq", "Max Eq."),
    Column("mean_eq", "Mean Eq."),
    Column("max_ineq", "Max Ineq."),
    Column("mean_ineq", "Mean Ineq."),
    Column("max_bound", "Max bound"),
    Column("share_feasible", "Feasible", "share", "most"),
    Column("train_seconds", "Train", "seconds", ""),
    Column("labels", "Labels", "count", ""),
    Column("predict_seconds_per_instance", "Per instance", "seconds", ""),
)

TIE = 1e-6
"""Violations below this are equal: both are as good as none."""


@dataclass(frozen=True)
class Summary:
    """One line of a table: a method and an answer, over all seeds. `method` is what answered."""

    method: str
    answer: str
    seeds: int
    mean: Mapping[str, float]
    low: Mapping[str, float]
    high: Mapping[str, float]
    failed: str = ""
    note: str = ""
    """What has to be known of some of its trainings, as that a budget was too small and ridge stands in."""
    asked: str = ""
    """The method that it stands in for, or itself."""

    @property
    def stands_in(self) -> bool:
        """Whether another method was asked for."""
        return self.asked != self.method

    @property
    def name(self) -> str:
        """The method, with what it stands in for, and marked where there is a note."""
        name = called({"method": self.method, "asked": self.asked})
        return f"{name} †" if self.note else name


def summarise(rows: Iterable[Mapping[str, Any]]) -> list[Summary]:
    """Mean and range over seeds of each method and answer, in the order in which they come.

    A seed for which another method stands in is a line of its own: it says nothing of the method.
    """
    groups: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for row in map(as_now, rows):
        groups.setdefault(key_of(row), []).append(row)
    found = []
    for (asked, method, answer), members in groups.items():
        fine = [row for row in members if "failed" not in row]
        reasons = [row["failed"] for row in members if "failed" in row]
        values = {
            column.key: [math.nan if row.get(column.key) is None else float(row[column.key]) for row in fine]
            for column in COLUMNS
        }
        found.append(
            Summary(
                method,
                answer,
                len(fine),
                {key: sum(v) / len(v) if v else math.nan for key, v in values.items()},
                {key: min(v, default=math.nan) for key, v in values.items()},
                {key: max(v, default=math.nan) for key, v in values.items()},
                reasons[0] if reasons else "",
                next((row["note"] for row in fine if row.get("note")), ""),
                asked,
            )
        )
    return found


def best_of(summaries: Sequence[Summary], column: Column) -> set[int]:
    """Positions of the best lines of a column, ties among negligible values included."""
    if not column.best:
        return set()
    values = {
        i: s.mean[column.key]
        for i, s in enumerate(summaries)
        if s.seeds and not s.note and not s.stands_in and math.isfinite(s.mean[column.key])
    }
    if not values:
        return set()
    if column.best == "most":
        top = max(values.values())
        return {i for i, value in values.items() if value >= top - 1e-12}
    top = max(min(values.values()), TIE)
    return {i for i, value in values.items() if value <= top * (1.0 + 1e-9)}


# ---- figures as people write them ------------------------------------------------------------------------


def figure(value: float | None, kind: str = "measure") -> str:
    """A value of a table: fixed down to a thousandth, powers of ten below, a dash for none."""
    if value is None or not math.isfinite(value):
        return "-"
    if kind == "share":
        return f"{100.0 * value:.1f}%"
    if kind == "count":
        return f"{value:,.0f}"
    if kind == "seconds":
        return timing(value)
    if value == 0.0:
        return "0"
    if abs(value) < 0.9995e-3:
        return f"{value:.0e}"
    return f"{value:.3f}" if abs(value) < 1e3 else f"{value:.2e}"


# ---- tables ----------------------------------------------------------------------------------------------


def sheet_of(rows: Iterable[Mapping[str, Any]]) -> Sheet:
    """The table of a comparison's rows: a line for every method and answer, the best of each column marked."""
    lines = summarise(rows)
    best = {column.key: best_of(lines, column) for column in COLUMNS}
    found, before = [], ""
    for i, line in enumerate(lines):
        new, before = bool(before) and line.asked != before, line.asked
        if not line.seeds:
            found.append(failed([line.name, line.answer], line.failed, len(COLUMNS), new))
            continue
        cells = [Cell(line.name), Cell(line.answer)]
        cells += [_cell(line, column, i in best[column.key]) for column in COLUMNS]
        found.append(Row(cells, new))
    return Sheet(["Method", "Answer", *(column.title for column in COLUMNS)], found)


def _cell(summary: Summary, column: Column, best: bool) -> Cell:
    """The mean, and the range over seeds where there are several that differ."""
    mean, low, high = (part[column.key] for part in (summary.mean, summary.low, summary.high))
    shown = figure(low, column.kind), figure(high, column.kind)
    differ = summary.seeds > 1 and column.best and shown[0] != shown[1]
    range_ = f"[{shown[0]}, {shown[1]}]" if differ else ""
    return Cell(figure(mean, column.kind), range_, "best" if best else "")


def describe(comparison: Comparison) -> list[str]:
    """What stands under a table: how it was made, and what failed."""
    info, plan = comparison.info, comparison.info.get("plan", {})
    counts = sorted({row["count"] for row in comparison.rows if "failed" not in row})
    seeds = sorted({row["seed"] for row in comparison.rows})
    tested = " to ".join(f"{n:,}" for n in dict.fromkeys([counts[0], counts[-1]])) if counts else "no"
    words = [
        f"{comparison.problem}: {plan.get('labels', 0):,} labels, {timing(plan.get('budget', 0.0))} a training, "
        f"{tested} unseen instances, {counted(len(seeds), 'seed')}"
        + (
            " (mean and range; labels dealt anew)"
            if plan.get("resample")
            else " (mean and range)"
            if len(seeds) > 1
            else ""
        )
        + ".",
        "Violations per unit for grids, each instance's largest and mean, averaged over instances; Max Ineq. counts "
        "all inequalities, Max bound the bounds alone, as the published tables do. Feasible: every violation below "
        "1e-4. * marks the best of a column (violations below 1e-6 tie; rows with a note are left out).",
    ]
    solver = info.get("solver_seconds_per_instance")
    if solver:
        words.append(f"The solver that made the labels took {timing(solver)} an instance.")
    for line in summarise(comparison.rows):
        if line.failed:
            words.append(f"{line.method}, {line.answer} failed: {line.failed}")
    words += _not_given(comparison)
    words += notes_of(comparison.rows)
    budget = plan.get("budget", math.inf)
    over = [
        f"{name} {timing(total)}"
        for name, record in comparison.trainings.items()
        if (total := record.get("seconds", {}).get("total") or 0.0) > 1.02 * budget
    ]
    if over:
        words.append(f"Over the budget of {timing(budget)}: {', '.join(over)}.")
    return words


def _not_given(comparison: Comparison) -> list[str]:
    """Which methods were not given what others were, for they cannot honour it."""
    plan, found = comparison.info.get("plan", {}), []
    for key, none, what in (
        ("unlabelled", 0, "inputs without labels"),
        ("trials", 1, "trials"),
    ):
        asked = plan.get(key) or none
        without = dict.fromkeys(
            called(row) for row in comparison.rows if (row.get(key, asked) or none) == none
        )
        if asked > none and without:
            found.append(
                f"{asked:,} {what} were given to the methods that can use them: not to {', '.join(without)}."
            )
    return found


def notes_of(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """What the marks in a table mean, a sentence for each method and note."""
    found = dict.fromkeys((called(row), row["note"]) for row in map(as_now, rows) if row.get("note"))
    return [f"† {method}: {note}" for method, note in found]


def to_csv(comparison: Comparison) -> str:
    """One line a method, answer and seed; percentiles and outcomes left out."""
    names = [
        key
        for key in (comparison.rows[0] if comparison.rows else {})
        if key not in ("percentiles", "outcomes", "note", "failed", "asked")
    ]
    names += ["failed", "note", "asked"]
    out = io.StringIO()
    writer = csv.DictWriter(out, names, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(dict(row) for row in comparison.rows)
    return out.getvalue()
