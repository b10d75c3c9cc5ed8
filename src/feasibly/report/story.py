"""What a report says, before anybody decides how it looks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feasibly.certificate import Certificate
from feasibly.certificate.making.means import bound_means, clipped_errors, find_ranges
from feasibly.data.dataset import Dataset
from feasibly.evaluation import Evaluation, evaluate_proxy
from feasibly.problem.families import grid_of
from feasibly.report import words
from feasibly.report.cells import instances_of
from feasibly.report.compare import Comparison, rank_of
from feasibly.report.drawing import Drawing
from feasibly.report.figures import (
    FLOOR,
    bus_errors,
    draw_agreement,
    draw_bounds,
    draw_budget,
    draw_grid,
    draw_learning,
    draw_spread,
)
from feasibly.report.proven import draw_proven
from feasibly.report.rows import as_now, asked_of, called, key_of, stands_in
from feasibly.report.sheet import Sheet
from feasibly.train.registry import DEFAULT_METHOD

Array = NDArray[np.float64]

MOST_BOXES = 24
"""More ways of answering than this make a box plot nobody reads; the main rung of each method stands for the rest."""


@dataclass(frozen=True)
class Story:
    """The parts of a report, in the order in which they are told."""

    lead: str
    cards: Sequence[Mapping[str, str]]
    asked: Sequence[tuple[str, str]]
    table: Sheet
    words: Sequence[tuple[str, str]]
    notes: Sequence[str] = ()
    time: Sequence[Drawing] = ()
    time_words: Sequence[str] = ()
    table_words: Sequence[str] = ()
    spread: Sequence[Drawing] = ()
    spread_words: Sequence[str] = ()
    agreement: Sequence[Drawing] = ()
    grid: Sequence[Drawing] = ()
    bounds: Sequence[Drawing] = ()
    bound_words: Sequence[str] = ()
    learning: Sequence[Drawing] = ()
    learning_words: Sequence[str] = ()
    promise: Sequence[Mapping[str, Any]] = ()
    promise_words: Sequence[str] = ()


@dataclass(frozen=True)
class _Material:
    """Rows of the table, their instances, and the trainings behind them, wherever they came from."""

    rows: list[Mapping[str, Any]] = field(default_factory=list)
    instances: list[Mapping[str, Any]] = field(default_factory=list)
    seconds: dict[str, Mapping[str, float]] = field(default_factory=dict)
    histories: dict[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def tell(
    data: Dataset,
    evaluations: Sequence[Evaluation],
    comparison: Comparison | None,
    *,
    main: str,
    seconds: Mapping[str, float],
    solver_seconds: float | None,
    solver_name: str,
    certificate: Certificate | None,
    notes: Sequence[str],
    prove: bool,
) -> Story:
    """Gather and draw everything that a report shows."""
    problem = data.problem
    per_unit = grid_of(problem) is not None
    shown = list(evaluations) or _main_evaluation(data, comparison, main)
    chosen = _choose(shown, main)
    belief = next(
        (e for e in shown if e.which == "mean" and chosen is not None and e.proxy is chosen.proxy), None
    )
    material = _gather(evaluations, comparison)
    solver = solver_seconds if solver_seconds else _solver_seconds(data)
    who = solver_name if solver_seconds else "the solver that made the labels"
    promised = (
        certificate if certificate is not None else getattr(chosen and chosen.proxy, "certificate", None)
    )
    headline = _headline(material.rows, chosen, main)
    proven = _proven(data, chosen, prove)
    which = main if chosen is None else chosen.which
    return Story(
        lead=words.lead(problem, headline, solver, who),
        cards=words.cards(headline, solver, who),
        asked=words.asked(data, material.rows, headline),
        notes=[*notes, *dict.fromkeys(material.notes)],
        time=[draw_budget(_spent(material, seconds))] if material.seconds or seconds else [],
        time_words=words.time_words(headline),
        table=words.table(material.rows, solver, who),
        table_words=words.table_words(per_unit),
        spread=[
            *_spreads(material, main, per_unit),
            *([] if proven is None else [draw_proven(proven, which)]),
        ],
        spread_words=[SPREAD_WORDS],
        agreement=_agreement(data, chosen),
        grid=_grids(data, chosen, belief),
        **_bounds(data, chosen),
        **_learning(material, per_unit),
        **_promise(promised, proven, which),
        words=words.glossary(per_unit, material.rows),
    )


# ---- material --------------------------------------------------------------------------------------------


def _main_evaluation(data: Dataset, comparison: Comparison | None, main: str) -> list[Evaluation]:
    """The main rung (and the bare mean) of a proxy that a comparison kept: the default method's, or another's."""
    if comparison is None or comparison.store is None:
        return []
    methods = dict.fromkeys([DEFAULT_METHOD, *(asked_of(row) for row in comparison.rows)])
    for method in methods:
        rows = [row for row in comparison.rows if asked_of(row) == method and "failed" not in row]
        rows.sort(key=stands_in)  # a seed that has the method itself, where there is one
        if rows and (proxy := comparison.proxy(method, rows[0]["seed"], data)) is not None:
            answers = [a for a in dict.fromkeys(["mean", main]) if any(row["answer"] == a for row in rows)]
            limit = max(row["count"] for row in rows)
            return [evaluate_proxy(proxy, data, answer, limit=limit, repeat=False) for answer in answers]
    return []


def _choose(evaluations: Sequence[Evaluation], main: str) -> Evaluation | None:
    """The one whose answers are drawn: the main rung of the default method, or the nearest to it."""
    if not evaluations:
        return None

    def distance(each: Evaluation) -> tuple[bool, bool]:
        return each.which != main, each.proxy.method != DEFAULT_METHOD

    return min(evaluations, key=distance)


def _gather(evaluations: Sequence[Evaluation], comparison: Comparison | None) -> _Material:
    material = _Material()
    if comparison is not None:
        material.rows.extend(map(as_now, comparison.rows))
        material.instances.extend(comparison.instances or [{}] * len(comparison.rows))
        several = len({row["seed"] for row in comparison.rows}) > 1
        for name, record in comparison.trainings.items():
            method, _, seed = name.rpartition(".")
            method = called(
                {"method": record.get("method") or method, "asked": record.get("asked") or method}
            )
            label = f"{method}, seed {seed}" if several else method
            material.seconds[label] = record.get("seconds", {})
            if record.get("history"):
                material.histories[label] = record["history"]
            if record.get("note"):
                material.notes.append(f"† {label}: {record['note']}")
    seen = {(*key_of(row), row["seed"]) for row in material.rows}
    for each in evaluations:
        made = each.proxy.record
        row = each.as_dict() | ({"note": made.note} if made.note else {})
        if (*key_of(row), row["seed"]) in seen:
            continue
        name = called(row)
        material.rows.append(row)
        material.instances.append(instances_of(each.rows))
        material.seconds.setdefault(name, made.seconds)
        if made.history:
            material.histories.setdefault(name, made.history)
        if made.note:
            material.notes.append(f"† {name}: {made.note}")
    order = sorted(range(len(material.rows)), key=lambda i: rank_of(material.rows[i]))
    material.rows[:] = [material.rows[i] for i in order]
    material.instances[:] = [material.instances[i] for i in order]
    return material


def _solver_seconds(data: Dataset) -> float | None:
    spent = data.seconds[data.solved]
    return float(spent.mean()) if len(spent) and spent.sum() > 0 else None


def _headline(rows: Sequence[Mapping[str, Any]], chosen: Evaluation | None, main: str) -> Mapping[str, Any]:
    """The row that the report is about: that of the answers drawn, or the main rung of the default method."""
    fine = [row for row in rows if "failed" not in row]
    if chosen is not None:
        own = chosen.as_dict()
        return next((r for r in fine if (*key_of(r), r["seed"]) == (*key_of(own), own["seed"])), own)
    mains = [row for row in fine if row["answer"] == main] or fine
    return next((row for row in mains if row["method"] == DEFAULT_METHOD), mains[0] if mains else {})


# ---- plots of all answers ---------------------------------------------------------------------------------


def _spent(material: _Material, seconds: Mapping[str, float]) -> dict[str, Mapping[str, float]]:
    spent: dict[str, Mapping[str, float]] = {}
    if seconds:
        spent["apart from training"] = dict(seconds)
    return spent | {label: times for label, times in material.seconds.items() if times}


def _spreads(material: _Material, main: str, per_unit: bool) -> list[Drawing]:
    groups: dict[str, Mapping[str, Any]] = {}
    for row, values in zip(material.rows, material.instances, strict=True):
        if values and "failed" not in row:
            groups.setdefault(f"{called(row)}, {row['answer']}", values)
    if len(groups) > MOST_BOXES:
        groups = {k: v for k, v in groups.items() if k.endswith((", mean", f", {main}"))}
    if not groups:
        return []
    measures = ("gap_percent", "max_eq", "max_ineq")
    return [draw_spread({k: v[m] for k, v in groups.items()}, m, per_unit=per_unit) for m in measures]


SPREAD_WORDS = "An average hides the worst case. These show every unseen instance; further left is better."


# ---- plots of single answers -----------------------------------------------------------------------------


def _tested(data: Dataset, each: Evaluation) -> NDArray[np.int64]:
    """The rows behind an evaluation, by the rule of `evaluate_proxy`."""
    return np.flatnonzero(data.solved & data.unseen(each.proxy.keys))[: len(each.rows)]


def _agreement(data: Dataset, chosen: Evaluation | None) -> list[Drawing]:
    return (
        []
        if chosen is None
        else [draw_agreement(data.problem, data.y[_tested(data, chosen)], chosen.answer.y)]
    )


def _grids(data: Dataset, chosen: Evaluation | None, belief: Evaluation | None) -> list[Drawing]:
    grid = grid_of(data.problem)
    if grid is None or chosen is None:
        return []
    drawings = []
    for each, kind in ((belief, "power mismatch"), (chosen, "voltage error")):
        if each is not None:
            rows = _tested(data, each)
            values = bus_errors(data.problem, data.x[rows], each.answer.y, data.y[rows])[kind]
            drawings.append(draw_grid(grid, values, f"mean {kind}", note=f"Of {each.which} answers."))
    if chosen.answer.duals is not None:
        known = chosen.answer.prices[np.isfinite(chosen.answer.prices).all(axis=1)]
        if len(known):
            note = f"What one more MWh costs there, by {chosen.which} answers."
            unit = "currency per MWh"
            drawings.append(draw_grid(grid, known.mean(axis=0), "mean price", unit, note, logarithmic=False))
    return drawings


def _proven(data: Dataset, chosen: Evaluation | None, prove: bool) -> NDArray[np.float64] | None:
    """Proven gaps, where the proxy has what proofs need or it is to be learnt."""
    if chosen is None or not (prove or chosen.proxy._prover is not None):
        return None
    gaps = chosen.answer.proven_gap_percent
    if gaps is not None:
        return gaps
    return chosen.proxy.predict(data.x[_tested(data, chosen)], chosen.which, prove=True).proven_gap_percent


def _bounds(data: Dataset, chosen: Evaluation | None) -> dict[str, Any]:
    """Bounds on the mean error of every output whose range is known, for answers clipped to their bounds."""
    if chosen is None:
        return {}
    problem, grid = data.problem, grid_of(data.problem)
    part = problem.blocks["vm"] if grid is not None else slice(0, problem.n_outputs)
    ranges, rows = find_ranges(problem, None), _tested(data, chosen)
    error, _ = clipped_errors(problem, chosen.answer.y, data.y[rows], ranges)
    span = ranges.outputs[ranges.known]
    shown = (span > 0) & np.isin(ranges.known, np.arange(problem.n_outputs)[part])
    if not shown.any() or len(rows) < 2:
        return {}
    made, error = bound_means(error[:, shown], span[shown], 0.95), error[:, shown]
    titles = {
        "hoeffding": "Hoeffding",
        "empirical-bernstein": "empirical Bernstein",
        "betting": "betting (tightest)",
    }
    bounds = {title: made[name].epsilon for name, title in titles.items()}
    place = ranges.known[shown] - part.start
    names = grid.bus_id[place].tolist() if grid is not None else place.tolist()
    drawing = draw_bounds(
        names, error.mean(axis=0), bounds,
        what="voltage magnitude error" if grid is not None else "error of the output",
        unit="p.u." if grid is not None else "", place="bus" if grid is not None else "output",
        note=f"Confidence 0.95 each, {len(rows)} instances; the range R is the width of each output's bounds.",
    )  # fmt: skip
    words = [
        f"How large the error of {chosen.which} answers is on average, and how far the true mean may lie from that of "
        "the sample. These bounds know nothing but the width of each output's range, so they cannot fall much below it "
        "divided by the number of instances, however good the answers are."
    ]
    return {"bounds": [drawing], "bound_words": words}


def _learning(material: _Material, per_unit: bool) -> dict[str, Any]:
    if not material.histories:
        return {
            "learning_words": [
                "The methods here learn in one go, in closed form, and have no learning curve."
            ]
        }
    known = next(iter(material.histories.values()))[-1]
    entries = [entry for history in material.histories.values() for entry in history]
    # A curve that lies on the floor from end to end (bounds kept by a repair layer) shows nothing.
    measures = [
        m
        for m in ("gap_percent", "max_eq", "max_ineq")
        if m in known and any((entry.get(m) or 0.0) > FLOOR for entry in entries)
    ]
    return {
        "learning": [draw_learning(material.histories, m, per_unit=per_unit) for m in measures],
        "learning_words": [
            "Measured on validation labels while training went on, on the answer that training sees."
        ],
    }


def _promise(
    certificate: Certificate | None, proven: NDArray[np.float64] | None, which: str
) -> dict[str, Any]:
    """What is promised of the next instance, and what is proven of those at hand."""
    parts: list[dict[str, Any]] = [] if proven is None else [{"words": words.proven(proven, which)}]
    if certificate is None:
        nothing = "Nothing of instances to come: no certificate was made; feasibly certify makes one."
        return {"promise": parts, "promise_words": [nothing]}
    for answer, said in groupby(certificate.sentences(), key=lambda sentence: sentence.answer):
        texts = [sentence.say() for sentence in said]
        parts += (
            [{"head": f"Answers by {answer!r}"}, {"items": texts}]
            if answer
            else [{"words": t} for t in texts]
        )
    return {"promise": parts}
