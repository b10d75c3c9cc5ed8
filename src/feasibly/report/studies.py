"""The studies behind the paper's figures: growth with size, variances, bounds, convergence."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from feasibly.data.dataset import Dataset
from feasibly.proxy import Proxy
from feasibly.report.drawing import Drawing
from feasibly.report.experiments import Part, Request, labelled, run_table
from feasibly.report.figures import draw_bounds
from feasibly.report.files import ReportError
from feasibly.report.paperfigures import draw_convergence, draw_growth, draw_mpv
from feasibly.report.published import TABLE_57, TABLE_118, TABLE_500, VOLTAGE_BOUNDS_118, PublishedTable
from feasibly.report.render import summarise
from feasibly.report.variances import BOUNDS, block_variances, bus_bounds, by_draws, by_tests, examine

POSTERIORS = ("supervised-bnn", "sandwich-bnn")
LINES = (
    ("sandwich-bnn", "svp"), ("supervised-bnn", "svp"), ("sandwich-dnn", "mean"), ("mae", "mean"),
    ("lagrangian-dual", "mean"), ("ridge", "mean"), ("gp", "mean"), ("response", "conditioned"),
)  # fmt: skip
"""What the figure of growth draws; its numbers hold every row."""
SIZES = {"table-57": 57, "table-118": 118, "table-500": 500, "table-2000": 2000}
GRIDS = (TABLE_57, TABLE_118, TABLE_500)

Made = tuple[dict[str, Drawing], list[str], dict[str, Any] | None]
"""Figures by file name, what to say of them, and further numbers."""


def study_growth(parts: Sequence[Part]) -> Made:
    """Metrics against the size of the grid, from the tables of all four."""
    measured = {SIZES[part.table.name]: summarise(part.comparison.rows) for part in parts}
    published = {SIZES[part.table.name]: part.table for part in parts}
    said = [words for part in parts for words in part.departures]
    return {"growth": draw_growth(measured, published, LINES)}, list(dict.fromkeys(said)), None


def _posteriors(
    request: Request, tables: Sequence[PublishedTable], methods: tuple[str, ...]
) -> list[tuple[PublishedTable, str, Proxy, Dataset, Part]]:
    """Trained proxies with a posterior, each with its table and data."""
    found = []
    for table in tables:
        part = run_table(table, request, methods, ("mean", "svp"))
        labels, tests = request.labels or table.labels, request.tests or table.tests
        data = labelled(table.case, labels + tests, request)
        for method in methods:
            proxy = part.comparison.proxy(method, 0, data)
            if proxy is None:
                rows = part.comparison.pick(method, "mean")
                why = rows[0].get("failed", "it was not kept") if rows else "it was not trained"
                request.watch(f"{table.slug}: {method} is left out: {why}")
                continue
            found.append((table, method, proxy, data, part))
    if not found:
        raise ReportError("no method with a posterior could be trained, so there is nothing to draw")
    return found


def _case(table: PublishedTable) -> str:
    return Path(table.case.rpartition(":")[2]).stem.partition("_")[0]


def _grids(given: Sequence[PublishedTable] | None) -> Sequence[PublishedTable]:
    return GRIDS if given is None else given


def study_mpv(request: Request, grids: Sequence[PublishedTable] | None = None) -> Made:
    """2 x MPV against the variance of the error, on 57, 118 and 500 buses."""
    entries: dict[tuple[str, str], Any] = {}
    said: list[str] = []
    for table, method, proxy, data, part in _posteriors(
        request, _grids(grids), request.methods or POSTERIORS
    ):
        request.watch(f"{table.slug}: drawing from the posterior of {method}")
        found = examine(proxy, data, tests=request.tests or table.tests, draws=request.draws)
        entries[_case(table), method] = block_variances(found)
        said += [f"{_case(table)}, {method}: {found.alpha.describe()}", *part.departures]
    return {"mpv": draw_mpv(entries)}, list(dict.fromkeys(said)), None


def study_bounds(request: Request, grids: Sequence[PublishedTable] | None = None) -> Made:
    """Bounds on the mean error of every bus's voltage, on 57, 118 and 500 buses."""
    drawings: dict[str, Drawing] = {}
    said: list[str] = []
    worst: dict[str, Any] = {}
    for table, method, proxy, data, part in _posteriors(
        request, _grids(grids), request.methods or ("sandwich-bnn",)
    ):
        request.watch(f"{table.slug}: bounding the errors of {method}")
        found = examine(proxy, data, tests=request.tests or table.tests, draws=request.draws)
        for block, what, unit in (
            ("vm", "voltage magnitude error", "p.u."),
            ("va", "voltage angle error", "rad"),
        ):
            error, bounds, span = bus_bounds(found, block)
            names = [
                name.partition("_")[2] for name in proxy.problem.output_names[proxy.problem.blocks[block]]
            ]
            stated = f"R up to {span.max():.3g} {unit}, confidence 0.95, M = {len(found.truth)}."
            stem = f"bounds-{_case(table)}-{block}" + ("" if method == "sandwich-bnn" else f"-{method}")
            drawings[stem] = draw_bounds(
                names, error, {BOUNDS[k]: v for k, v in bounds.items()}, what=what, unit=unit, note=stated
            )
            worst[stem] = {name: float(width.max()) for name, width in bounds.items()} | {
                "R": float(span.max())
            }
        said += [f"{_case(table)}, {method}: {found.alpha.describe()}", *part.departures]
    numbers = {"largest half-width over buses": worst, "published for case118, vm": dict(VOLTAGE_BOUNDS_118)}
    said.append(
        "The published bounds do not state R; ours use the width of the voltage box, and pi rad for angles. "
        "docs/guarantees.md has the R that each published figure implies."
    )
    return drawings, list(dict.fromkeys(said)), numbers


def study_convergence(request: Request) -> Made:
    """How mean error and variances settle with test instances and with draws, on 118 buses."""
    method = (request.methods or ("sandwich-bnn",))[-1]
    ((table, _, proxy, data, part),) = _posteriors(request, (TABLE_118,), (method,))
    tests = request.tests or table.tests
    checkpoints = _steps(request.draws)
    found = examine(proxy, data, tests=tests, draws=request.draws, checkpoints=checkpoints)
    blocks = ("vm", "va")
    counts = _steps(len(found.truth))
    drawing = draw_convergence(
        {block: by_tests(found, block, counts) for block in blocks},
        {block: by_draws(found, block) for block in blocks},
    )
    return {"convergence": drawing}, [*part.departures], None


def _steps(most: int) -> list[int]:
    return sorted({round(n) for n in np.geomspace(min(5, most), most, 16)})
