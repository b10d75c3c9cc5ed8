"""The suite of grids as a page: who meets what, then every member."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Member = dict[str, Any]

GOALS: Sequence[tuple[str, Callable[[Member], float | None], Callable[[float], bool], str]] = (
    ("auto: rows answered below 1e-6", lambda m: m["auto"]["answered_1e-6"], lambda v: v >= 1.0, "100 %"),
    ("auto: mean gap, %", lambda m: m["auto"]["gap_mean"], lambda v: v <= 1e-5, "1e-5"),
    ("auto: worst gap, %", lambda m: m["auto"]["gap_max"], lambda v: v <= 1e-3, "1e-3"),
    ("auto: time over solving", lambda m: m["auto"]["over_solving"], lambda v: v <= 1.1, "1.1"),
    ("conditioned: rows below 1e-6", lambda m: m["conditioned"]["hold_1e-6"], lambda v: v >= 0.995, "99.5 %"),
    ("OK, and more than 1e-3 % above", lambda m: m["auto"]["ok_but_above"], lambda v: v == 0, "none"),
    (
        "a row without a solution, over solving it",
        lambda m: m["infeasible"]["added_over_solving"] if "infeasible" in m else None,
        lambda v: v <= 1.1,
        "1.1",
    ),
    ("fit beyond its budget, s", lambda m: m["fit_seconds"] - m["budget"], lambda v: v <= 2.0, "2"),
    (
        "label's cost over IPOPT's, relative",
        lambda m: None if m["solved_over_ipopt"] is None else m["solved_over_ipopt"]["highest"],
        lambda v: v <= 1e-8,
        "1e-8",
    ),
)
"""What the suite asks of every member: a figure, whether it is met, and the limit in words."""


def page(document: dict[str, Any]) -> str:
    """Markdown."""
    members = document["members"]
    inside = [m for m in members if "auto" in m]
    lines = [
        f"# Every grid: {document['tag']}",
        "",
        f"{document['labels']} labels, {document['rows']} unseen rows; {document['processor']}, one core, processor "
        f"seconds; commit {', '.join(sorted({m['commit'][:10] for m in inside}))}. Written by benchmarks/everygrid.py.",
    ]
    for half in ("choosing", "judging"):
        part = [m for m in inside if m["half"] == half]
        if part:
            lines += ["", f"## The {half} half: {len(part)} members", "", *summary(part)]
    lines += ["", "## Every member", "", *table(inside)]
    gone = [f"{m['case']} ({m['regime']})" for m in members if "auto" not in m]
    if gone:
        lines += ["", f"Too few draws have a solution even within 2 %: {', '.join(gone)}."]
    return "\n".join(lines) + "\n"


def summary(members: Sequence[Member]) -> list[str]:
    """How many members meet each goal."""
    lines = ["| | limit | members that meet it | median | worst |", "|---|---|---|---|---|"]
    for name, value, met, limit in GOALS:
        values = [v for m in members if (v := value(m)) is not None]
        if not values:
            continue
        worst = min(values) if met(1e9) else max(values)
        share = f"{sum(met(v) for v in values)} of {len(values)}"
        lines.append(f"| {name} | {limit} | {share} | {float(np.median(values)):.3g} | {worst:.3g} |")
    return lines


def table(members: Sequence[Member]) -> list[str]:
    """One line a member."""
    heads = (
        "case", "regime", "half", "range", "feasible", "`conditioned` holds at 1e-6 / 1e-4", "over solving",
        "`auto` answers", "gap mean / max %", "OK but above", "over solving", "solving ms",
        "infeasible: rows, over solving, called so", "fit s", "label over IPOPT",
    )  # fmt: skip
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for m in sorted(members, key=lambda m: (m["buses"], m["case"], m["regime"])):
        first, auto, lost = m["conditioned"], m["auto"], m.get("infeasible")
        label = m["solved_over_ipopt"]
        cells = (
            m["case"].removeprefix("case"), m["regime"], m["half"], f"{m['level']:.0%}",
            f"{m['feasible'] / m['drawn']:.0%}", f"{first['hold_1e-6']:.1%} / {first['hold_1e-4']:.1%}",
            f"{first['over_solving']:.2f}", f"{auto['answered_1e-6']:.1%}",
            f"{number(auto['gap_mean'])} / {number(auto['gap_max'])}", str(auto["ok_but_above"]),
            f"{auto['over_solving']:.2f}", f"{m['solving_ms']:.3g}",
            "-" if lost is None else
            f"{lost['rows']}, {lost['added_over_solving']:.2f}, {lost['outcomes'].get('INFEASIBLE', 0)}",
            f"{m['fit_seconds']:.0f}", "-" if label is None else f"{label['highest']:.0e}",
        )  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def number(value: float | None) -> str:
    """Short, or a dash."""
    return "-" if value is None else f"{value:.1e}"
