"""Running the paper's experiments: labels from a cache, trainings that resume, published beside measured."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from feasibly._words import counted, timing
from feasibly.data.dataset import Dataset
from feasibly.data.label import Progress, label
from feasibly.data.schema import PENDING
from feasibly.problem.families import load_problem
from feasibly.report.beside import Line, put_beside
from feasibly.report.cells import Step
from feasibly.report.compare import Comparison, compare
from feasibly.report.files import ReportError
from feasibly.report.published import PublishedTable

TRIALS = {"robustness-118": 5, "table-nonconvex": 3}

Watch = Callable[[str], None]


@dataclass(frozen=True)
class Part:
    """A published table beside what was measured with its settings."""

    table: PublishedTable
    comparison: Comparison
    lines: list[Line]
    departures: tuple[str, ...]

    def document(self, scale: float) -> dict[str, Any]:
        """For `benchmarks/results`."""
        return self.comparison.document(
            name=self.table.slug, published=self.table.slug, scale=scale, departures=list(self.departures)
        )


@dataclass(frozen=True)
class Request:
    """What `reproduce` was asked for."""

    scale: float
    out: Path
    jobs: int
    labels: int | None
    tests: int | None
    methods: tuple[str, ...] | None
    answers: tuple[str, ...] | None
    draws: int
    watch: Watch


def scale_words(request: Request) -> list[str]:
    """What a result made at less than full scale has to say of itself."""
    if request.scale >= 1.0:
        return []
    return [
        f"Made at scale {request.scale:g}: budgets and trials are that share of the paper's. A quick look, no result."
    ]


def labelled(case: str, need: int, request: Request) -> Dataset:
    """The first `need` solved draws of a case, from the cache or solved now."""
    path = request.out / "labels" / f"{re.sub(r'[^a-zA-Z0-9_]+', '-', case).strip('-')}.zarr"
    problem = load_problem(case)
    data = Dataset.open(path) if path.exists() else None
    drawn = need

    def solving(now: Progress) -> None:
        left = now.seconds_left
        rest = "" if left is None else f", {timing(left)} left"
        request.watch(f"solving instances of {problem.name}: {now.done:,} of {now.total:,}{rest}")

    # Rows that nobody has answered yet come first: which rows are the first solved ones must not depend on luck.
    while data is None or (pending := bool((data.outcome == PENDING).any())) or data.n_labels < need:
        if data is not None:
            drawn = max(need, len(data)) if pending else len(data) + need - data.n_labels + 8
        request.watch(f"solving instances of {problem.name}: {drawn:,} draws")
        data = label(problem, count=drawn, seed=0, jobs=request.jobs, out=path, progress=solving)
        if data.n_labels < len(data) / 4:
            raise ReportError(
                f"fewer than a quarter of the draws of {problem.name} can be solved: {data.outcomes()}"
            )
    return data.take(np.flatnonzero(data.solved)[:need])


def run_table(
    table: PublishedTable, request: Request, methods: tuple[str, ...], answers: tuple[str, ...]
) -> Part:
    """Train and answer with the settings of a published table, and put the result beside it."""
    labels, tests = request.labels or table.labels, request.tests or table.tests
    trials = max(1, round(TRIALS.get(table.name, 1) * request.scale))
    data = labelled(table.case, labels + tests, request)
    budget = table.budget * request.scale

    def watch(step: Step) -> None:
        what = f"{step.method}, seed {step.seed}: {step.doing} {step.answer}".rstrip()
        request.watch(f"{table.slug}: {what} ({step.done} of {step.total} done) {step.note}".rstrip())

    found = compare(
        data, methods, answers, budget=budget, labels=labels, seeds=trials, unlabelled=table.unlabelled,
        tests=tests, jobs=request.jobs,
        store=request.out / "runs" / _run_name(table, request, labels, tests), progress=watch,
    )  # fmt: skip
    return Part(
        table, found, put_beside(table, found.rows), tuple(_departures(table, request, labels, tests, trials))
    )


def _run_name(table: PublishedTable, request: Request, labels: int, tests: int) -> str:
    odd = "" if (labels, tests) == (table.labels, table.tests) else f"-{labels}-{tests}"
    return f"{table.slug}-scale{request.scale:g}{odd}"


def _departures(table: PublishedTable, request: Request, labels: int, tests: int, trials: int) -> list[str]:
    words = scale_words(request)
    words.append(
        f"{timing(table.budget * request.scale)} a training on one core, compilation included (published: "
        f"{timing(table.budget)}, {table.machine}); {counted(trials, 'trial')} (published: "
        f"{table.runs})."
    )
    if labels != table.labels:
        words.append(f"{labels:,} labels instead of {table.labels:,}.")
    if tests != table.tests:
        words.append(f"{tests:,} test instances instead of {table.tests:,}.")
    words.append(f"{labels:,} labels count validation; the paper's validation labels come on top.")
    if table.bounds_only:
        words.append(
            "Max Ineq. counts bounds alone, as the published table does; All ineq. counts every inequality."
        )
    return words
