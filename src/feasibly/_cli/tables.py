"""Measures as tables for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from feasibly.problem.core import Problem
from feasibly.problem.families import grid_of

if TYPE_CHECKING:
    from rich.table import Table

    from feasibly.measure.metrics import Metrics


def metrics_table(problem: Problem, metrics: Metrics) -> Table:
    """The paper's five columns and the bounds alone, as rows: the mean over instances and its spread."""
    from rich.table import Table

    unit = " (p.u.)" if grid_of(problem) is not None else ""
    balance = "power balance" if unit else "equality"
    rows = [
        ("gap_percent", "distance from the optimal cost (%)"),
        ("max_eq", f"largest {balance} error{unit}"),
        ("mean_eq", f"mean {balance} error{unit}"),
        ("max_ineq", f"largest violation of any limit{unit}"),
        ("mean_ineq", f"mean violation of all limits{unit}"),
        ("max_bound", f"largest violation of a bound{unit}"),
    ]
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("")
    table.add_column("each instance's", no_wrap=True)
    for name in ("mean", "median", "95 %", "worst"):
        table.add_column(name, justify="right")
    for name, words in rows:
        spread = metrics.percentiles[name]
        values = (getattr(metrics, name), spread["p50"], spread["p95"], spread["p100"])
        table.add_row(name, words, *(figure(value) for value in values))
    return table


def figure(value: float) -> str:
    """A figure that may be tiny: fixed down to a ten-thousandth, powers of ten below, plain 0 for none."""
    if value == 0.0:
        return "0"
    return f"{value:.4f}" if 1e-3 <= abs(value) < 1e4 else f"{value:.1e}"
