"""The words, figures and table of a report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feasibly._words import counted, percent, timing
from feasibly.data.dataset import Dataset
from feasibly.problem.core import Problem
from feasibly.problem.families import grid_of
from feasibly.report.render import COLUMNS, figure, sheet_of
from feasibly.report.rows import called
from feasibly.report.sheet import Cell, Row, Sheet

RUNGS: Mapping[str, str] = {
    "mean": "what was learnt, as it is",
    "svp": "the draw from the posterior that breaks the equalities least",
    "conditioned": "the optimum up to a small proximal term at what was learnt",
    "polished": "then taken on to the optimum itself",
    "solved": "the solver as it makes labels",
    "auto": "climbs for each instance until the tolerance holds",
}


def lead(problem: Problem, row: Mapping[str, Any], solver: float | None, who: str) -> str:
    """The result in a sentence or two; `who` names the solver that takes `solver` seconds."""
    if not row:
        return f"Nothing could be measured for {problem.name}; the table says why."
    speed = ""
    each = row["predict_seconds_per_instance"]
    if solver and each:
        speed = f", at {timing(each)} an instance where {who} takes {timing(solver)}"
    return (
        f"A proxy for {problem.name}, {called(row)}, learnt from {row['labels']:,} solved instances. On "
        f"{row['count']:,} others, unseen until then, its {row['answer']} answers cost {_gap(row['gap_percent'])} more "
        f"or less than the optimum on average, and {percent(row['share_feasible'], '.1f')} of them keep every "
        f"constraint to within 0.0001{speed}."
    )


def _gap(value: float) -> str:
    return f"{value:.3f} %" if value >= 1e-3 else f"{value:.0e} %"


def cards(row: Mapping[str, Any], solver: float | None, who: str) -> list[dict[str, str]]:
    """The figures that matter most."""
    if not row:
        return []
    cards = [
        {"value": _gap(row["gap_percent"]), "name": "from the optimal cost, on average"},
        {
            "value": figure(max(row["max_eq"], row["max_ineq"])),
            "name": "largest violation, averaged over instances",
        },
        {"value": percent(row["share_feasible"], ".1f"), "name": "of answers keep every constraint"},
        {
            "value": timing(row["predict_seconds_per_instance"]),
            "name": "an instance, answered in one batch",
        },
    ]
    if solver and row["predict_seconds_per_instance"]:
        times = solver / row["predict_seconds_per_instance"]
        shown = f"{times:,.0f}" if times >= 10.0 else f"{times:.2g}"
        cards.append({"value": f"{shown} x", "name": f"the speed of {who}"})
    return cards


def asked(data: Dataset, rows: Sequence[Mapping[str, Any]], row: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What was asked, of what, and with which means; `row` is the one the report is about."""
    problem, grid = data.problem, grid_of(data.problem)
    facts = [("Problem", problem.name)]
    if grid is not None:
        sizes = f"{grid.n_buses:,} buses, {grid.n_generators:,} generators, {grid.n_branches:,} branches"
        facts.append(("Grid", f"{sizes}, {grid.n_loads:,} loads, base {grid.base_mva:g} MVA"))
    spread = data.provenance.spread
    drawn = f", each within {spread:.0%} of its usual value" if spread is not None else ""
    facts += [
        ("Inputs", f"{problem.n_inputs:,} numbers{drawn}"),
        (
            "Outputs",
            f"{problem.n_outputs:,} numbers: "
            + ", ".join(f"{k} {v.stop - v.start}" for k, v in problem.blocks.items()),
        ),
        (
            "Constraints",
            f"{problem.n_equalities:,} equalities, {problem.n_inequalities:,} inequalities, and bounds on the outputs",
        ),
        ("Solved instances", ", ".join(f"{n:,} {name}" for name, n in data.outcomes().items())),
    ]
    if row:
        methods = list(dict.fromkeys(called(r) for r in rows))
        free = f"; {row['unlabelled']:,} more inputs without labels" if row["unlabelled"] else ""
        facts += [
            ("Labels learnt from", f"{row['labels']:,}, validation included{free}"),
            ("Tested on", f"{row['count']:,} instances that no training saw"),
            ("Methods", ", ".join(methods)),
            ("Training budget", f"{timing(row['budget_seconds'])} of wall-clock time each, compilation included"),
            ("Answer shown in plots", f"{called(row)}, {row['answer']}: {RUNGS.get(row['answer'], '')}"),
            ("Seeds", ", ".join(str(s) for s in sorted({r["seed"] for r in rows}))),
        ]  # fmt: skip
    return facts


def proven(gaps: NDArray[np.float64], which: str) -> str:
    """What proofs say, apart from what a certificate promises."""
    known = gaps[np.isfinite(gaps)]
    if not len(known):
        return "Nothing is proven of these instances."
    return (
        f"Proven, and no matter of probability: of {counted(len(known), 'instance')} at hand answered by {which}, half "
        f"cost at most {np.median(known):.2g} % more than the least that any feasible answer can, and none more than "
        f"{known.max():.2g} %. What follows is statistical, about instances to come."
    )


def time_words(row: Mapping[str, Any]) -> list[str]:
    """What the names in the plot of time mean."""
    if not row or row.get("train_seconds") is None:
        return []
    return [
        f"{called(row)} was given {timing(row['budget_seconds'])} and took {timing(row['train_seconds'])} to "
        "learn; a budget counts compilation, validation and every trial. In the plot, sup is learning from labels, "
        "unsup learning from unlabelled inputs; conditioning and frames are the constants that conditioned answers "
        "need, found once a model."
    ]


def table(rows: Iterable[Mapping[str, Any]], solver: float | None, who: str) -> Sheet:
    """The table of all rows for the page, with the time of the solver beneath."""
    found = sheet_of(rows)
    if not solver:
        return found
    last = [Cell(who, span=2), *[Cell("")] * (len(COLUMNS) - 1), Cell(timing(solver))]
    return replace(found, rows=[*found.rows, Row(last, new=True)])


def table_words(per_unit: bool) -> list[str]:
    """How to read the table."""
    unit = " Violations are per unit." if per_unit else ""
    return [
        "Every measure is taken of each unseen instance, in double precision and over all constraints, and averaged "
        f"over instances.{unit} The best of a column is bold; violations below a millionth tie. Smaller is better but "
        "for Feasible, the share of instances with every violation below 0.0001."
    ]


def glossary(per_unit: bool, rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """The words that a newcomer to either field may not know."""
    law = (
        "Kirchhoff's laws: power in equals power out at every bus"
        if per_unit
        else "what must be exactly zero"
    )
    limit = "voltage, generator, line and angle limits" if per_unit else "inequalities and bounds"
    used = {row["answer"] for row in rows}
    return [
        ("Label", "an instance solved exactly, to learn from or to test with"),
        (
            "Gap",
            "|cost - optimal cost| / |optimal cost|; it can be small because an answer breaks constraints",
        ),
        ("Eq.", f"equalities: {law}. Max: the worst of an instance; mean: the average over all of them"),
        (
            "Ineq.",
            f"inequalities: {limit}; how far the worst is exceeded. Max bound: bounds on outputs alone",
        ),
        *((name, words) for name, words in RUNGS.items() if name in used),
    ]
