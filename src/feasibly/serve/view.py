"""What the page shows of a model and of an answer."""

from __future__ import annotations

import threading
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from feasibly.answer.forms import find_binding
from feasibly.answer.record import Answer
from feasibly.problem.core import Problem
from feasibly.problem.errors import FeasiblyError
from feasibly.problem.flows import limits
from feasibly.problem.grid import Grid
from feasibly.serve.drawings import Drawings
from feasibly.serve.layout import regions

if TYPE_CHECKING:
    from feasibly.serve.shelf import Served

Array = NDArray[np.float64]

BINDING = 200
"""Lines of the table of what binds; a page is no place for more."""

_drawing = threading.Lock()


def scene(served: Served, drawings: Drawings) -> dict[str, Any]:
    """Everything about a model that does not change with its inputs; worked out once."""
    with _drawing:
        if "scene" not in served.page:
            served.page["scene"] = _scene(served, drawings)
        found: dict[str, Any] = served.page["scene"]
    return found


def _scene(served: Served, drawings: Drawings) -> dict[str, Any]:
    problem, grid = served.problem, served.grid
    slices = getattr(problem, "inputs", None) or {}
    parts = {name: [where.start, where.stop] for name, where in slices.items()}
    if grid is None:
        return {
            "inputs": parts,
            "grid": None,
            "lower": problem.lower,
            "upper": problem.upper,
        }
    if not parts:
        parts = {"pd": [0, grid.n_loads], "qd": [grid.n_loads, 2 * grid.n_loads]}
    position, how = drawings.place(grid)
    area, names, source = regions(grid)
    return {
        "inputs": parts,
        "lower": problem.lower,
        "upper": problem.upper,
        "grid": {
            "base_mva": grid.base_mva,
            "placed": how,
            "bus": {
                "id": grid.bus_id, "x": _short(position[:, 0]), "y": _short(position[:, 1]), "area": area,
                "vmin": grid.vmin, "vmax": grid.vmax,
            },
            "areas": {"names": names, "from": source},
            "branch": {
                "id": grid.branch_id, "from": grid.branch_from, "to": grid.branch_to, "rate": grid.rate,
            },
            "generator": {"id": grid.gen_id, "bus": grid.gen_bus, "pmin": grid.pmin, "pmax": grid.pmax},
            "load": {"id": grid.load_id, "bus": grid.load_bus},
        },
    }  # fmt: skip


def look(served: Served, found: Answer, *, full: bool) -> dict[str, Any]:
    """The one answer in `found` as the page draws it; `full` adds what takes longer: prices and what binds."""
    said: dict[str, Any] = {
        "outcome": found.outcome[0].name,
        "advice": found.outcome[0].advice,
        "rung": found.rung[0],
        "objective": found.objective[0],
        "max_equality": found.max_equality[0],
        "max_inequality": found.max_inequality[0],
        "warnings": found.warnings,
    }
    for name in ("lower_bound", "proven_gap_percent"):
        values = getattr(found, name, None)
        if values is not None:
            said[name] = values[0]
    if found.gap_limit is not None:
        said["gap_limit"] = found.gap_limit[0]
    if not np.isfinite(found.y).all():
        return said
    said["y"] = _short(found.y[0])
    if found.lower is not None and found.upper is not None:
        said["lower"], said["upper"] = _short(found.lower[0]), _short(found.upper[0])
    if full:
        said["binding"] = _binding(found)
    grid = served.grid
    if grid is not None:
        said |= _on_grid(served, grid, found)
    return said


def _on_grid(served: Served, grid: Grid, found: Answer) -> dict[str, Any]:
    problem = served.problem
    blocks = {name: found.y[0, where] for name, where in problem.blocks.items()}
    loading = found.loading[0]
    bus, branch = _violations(problem, grid, found, _branch_rows(served, grid))
    try:
        prices: Any = _short(found.prices[0])
    except FeasiblyError:  # a mean has no multipliers
        prices = None
    return {
        "bus": {"vm": _short(blocks["vm"]), "va": _short(np.rad2deg(blocks["va"])), "price": prices,
                "violation": _short(bus)},
        "branch": {"loading": _short(loading), "p": _short(found.flows.p_from[0] * grid.base_mva),
                   "violation": _short(branch)},
        "generator": {"pg": _short(blocks["pg"] * grid.base_mva), "qg": _short(blocks["qg"] * grid.base_mva)},
    }  # fmt: skip


def _branch_rows(served: Served, grid: Grid) -> NDArray[np.int64]:
    """Which branch each inequality belongs to."""
    if "branch_rows" not in served.page:
        at = {int(number): i for i, number in enumerate(grid.branch_id)}
        rows = limits(served.problem, grid)[1]
        served.page["branch_rows"] = np.array([at[int(limit.id)] for limit in rows], dtype=np.int64)
    found: NDArray[np.int64] = served.page["branch_rows"]
    return found


def _violations(problem: Problem, grid: Grid, found: Answer, rows: NDArray[np.int64]) -> tuple[Array, Array]:
    """The largest violation at every bus (balance, voltage, its generators) and on every branch, per unit."""
    assert found.x is not None
    y = found.y[0]
    balance = np.abs(problem.equalities(found.x, found.y)[0]).reshape(-1, grid.n_buses)
    bus = balance.max(axis=0) if balance.size else np.zeros(grid.n_buses)
    lower, upper = problem.lower, problem.upper
    if hasattr(problem, "bounds"):
        lower, upper = (np.asarray(side)[0] for side in problem.bounds(found.x))
    beyond = np.maximum(np.maximum(lower - y, y - upper), 0.0)
    bus = np.maximum(bus, beyond[problem.blocks["vm"]])
    for kind in ("pg", "qg"):
        np.maximum.at(bus, grid.gen_bus, beyond[problem.blocks[kind]])
    branch = np.zeros(grid.n_branches)
    over = problem.violations(found.x, found.y)[0]
    if len(rows) == len(over):
        np.maximum.at(branch, rows, np.maximum(over, 0.0))
    return bus, branch


def _binding(found: Answer) -> list[dict[str, Any]]:
    """What binds, dearest first."""
    lines = sorted(find_binding(found), key=lambda line: -np.nan_to_num(abs(line.multiplier)))
    return [
        asdict(line.limit) | {"slack": line.slack, "multiplier": line.multiplier} for line in lines[:BINDING]
    ]


def _short(values: Any) -> NDArray[np.float32]:
    """Seven digits: half the text, and more than a screen shows."""
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(values, dtype=np.float32)
