"""A problem, and the grid behind it, as plain values and as a table."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from feasibly._words import counted
from feasibly.problem.core import Problem
from feasibly.problem.families import grid_of
from feasibly.problem.grid import Grid

if TYPE_CHECKING:
    from rich.table import Table


def describe_problem(problem: Problem) -> dict[str, Any]:
    """What was read, in plain values: powers in MW and Mvar, voltages per unit, angles in degrees."""
    grid = grid_of(problem)
    finite = int(np.isfinite(problem.lower).sum() + np.isfinite(problem.upper).sum())
    box = problem.box()
    return {
        "name": problem.name,
        "family": None if problem.spec is None else problem.spec.get("family"),
        "fingerprint": problem.fingerprint,
        "sizes": {
            "inputs": problem.n_inputs,
            "outputs": problem.n_outputs,
            "equalities": problem.n_equalities,
            "inequalities": problem.n_inequalities,
            "bounds": finite,
        },
        "blocks": {name: part.stop - part.start for name, part in problem.blocks.items()},
        "spread": problem.spread,
        "box": None if box is None else [float(box[0].min()), float(box[1].max())],
        "grid": None if grid is None else _describe_grid(grid),
        "warnings": [] if grid is None else list(grid.warnings),
    }


def _describe_grid(grid: Grid) -> dict[str, Any]:
    base = grid.base_mva
    pairs = Counter(frozenset(pair) for pair in zip(grid.branch_from, grid.branch_to, strict=True))
    kinds = np.where(grid.cost[:, 0] != 0.0, 2, np.where(grid.cost[:, 1] != 0.0, 1, 0))
    angles = np.isfinite(grid.angmin) | np.isfinite(grid.angmax)
    return {
        "base_mva": base,
        "buses": grid.n_buses,
        "generators": grid.n_generators,
        "branches": grid.n_branches,
        "loads": grid.n_loads,
        "shunts": len(grid.shunt_bus),
        "reference_buses": grid.bus_id[grid.reference],
        "transformers": int(((grid.tap != 1.0) | (grid.shift != 0.0)).sum()),
        "parallel_branches": sum(count for count in pairs.values() if count > 1),
        "load_mw": float(grid.pd.sum() * base),
        "load_mvar": float(grid.qd.sum() * base),
        "generation_mw": [float(grid.pmin.sum() * base), float(grid.pmax.sum() * base)],
        "generation_mvar": [float(grid.qmin.sum() * base), float(grid.qmax.sum() * base)],
        "shunt_mw": float(grid.gs.sum() * base),
        "shunt_mvar": float(grid.bs.sum() * base),
        "voltage_limits": [float(grid.vmin.min()), float(grid.vmax.max())],
        "limits": {
            "apparent_power": int(np.isfinite(grid.rate).sum()),
            "current": int(np.isfinite(grid.current).sum()),
            "angle_difference": int(angles.sum()),
        },
        "costs": {
            "quadratic": int((kinds == 2).sum()),
            "linear": int((kinds == 1).sum()),
            "constant": int((kinds == 0).sum()),
        },
        "located_buses": int(np.isfinite(grid.position).all(axis=1).sum()),
    }


def problem_table(found: dict[str, Any]) -> Table:
    """`describe_problem` for people."""
    from rich.table import Table

    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    if found["grid"] is not None:
        for row in _grid_rows(found["name"], found["grid"]):
            table.add_row(*row)
    sizes, blocks = found["sizes"], found["blocks"]
    if found["spread"] is not None:
        varies = f"each load's P and Q vary by {found['spread']:.0%} around nominal, each on its own"
    elif found["box"] is not None:
        varies = f"each between {found['box'][0]:g} and {found['box'][1]:g}"
    else:
        varies = "drawn by the problem's own sampler"
    parts = ", ".join(f"{name} {size}" for name, size in blocks.items())
    if found["grid"] is None:
        table.add_row("Problem", found["name"])
    table.add_row("Inputs", f"{sizes['inputs']:,}: {varies}")
    table.add_row("Outputs", f"{sizes['outputs']:,}" + (f": {parts}" if len(blocks) > 1 else ""))
    table.add_row(
        "Constraints",
        f"{counted(sizes['equalities'], 'equality', 'equalities')}, "
        f"{counted(sizes['inequalities'], 'inequality', 'inequalities')}, {counted(sizes['bounds'], 'bound')}",
    )
    for i, warning in enumerate(found["warnings"]):
        table.add_row("Warnings" if i == 0 else "", warning)
    if not found["warnings"] and found["grid"] is not None:
        table.add_row("Warnings", "none")
    return table


def _grid_rows(name: str, grid: dict[str, Any]) -> list[tuple[str, str]]:
    references = ", ".join(map(str, grid["reference_buses"]))
    low, high = grid["voltage_limits"]
    p_low, p_high = grid["generation_mw"]
    q_low, q_high = grid["generation_mvar"]
    share = f", {grid['load_mw'] / p_high:.0%} of what can be generated" if p_high > 0 else ""
    limits, costs = grid["limits"], grid["costs"]
    kinds = ", ".join(f"{kind} for {count}" for kind, count in costs.items() if count)
    bounded = [
        f"{words} on {count}"
        for words, count in (
            ("apparent power", limits["apparent_power"]),
            ("current", limits["current"]),
            ("angle difference", limits["angle_difference"]),
        )
        if count
    ]
    return [
        ("Grid", f"{name}, base {grid['base_mva']:g} MVA, elements in service"),
        ("Buses", f"{grid['buses']:,}; reference {references}; voltages {low:g} to {high:g} p.u."),
        (
            "Generators",
            f"{grid['generators']:,}: {p_low:,.1f} to {p_high:,.1f} MW, {q_low:,.1f} to {q_high:,.1f} Mvar",
        ),
        ("Loads", f"{grid['loads']:,}: {grid['load_mw']:,.1f} MW, {grid['load_mvar']:,.1f} Mvar{share}"),
        (
            "Shunts",
            f"{grid['shunts']:,}: {grid['shunt_mw']:,.1f} MW, {grid['shunt_mvar']:,.1f} Mvar at 1 p.u.",
        ),
        (
            "Branches",
            f"{grid['branches']:,}: {grid['transformers']} with a tap or shift, "
            f"{grid['parallel_branches']} side by side with another",
        ),
        ("Limits", "; ".join(bounded) if bounded else "none on branches"),
        ("Costs", kinds or "none"),
    ]
