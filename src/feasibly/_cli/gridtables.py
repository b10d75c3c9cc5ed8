"""Answers of a grid as three tables: generators, buses and branches, a line an element and row, in engineers' units."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feasibly._cli.columns import write_table
from feasibly._cli.files import FileError
from feasibly.problem.core import Problem
from feasibly.problem.families import grid_of
from feasibly.problem.flows import compute_flows, ratings

Array = NDArray[np.float64]

TABLES = ("generators", "buses", "branches")


def write_grid_tables(
    folder: Path,
    problem: Problem,
    x: Array,
    y: Array,
    ids: dict[str, NDArray[Any]],
    prices: tuple[Array, Array] | None = None,
) -> list[Path]:
    """Write `generators.csv`, `buses.csv` and `branches.csv`; every line carries the row (from 1) and its ids.

    A branch whose current is limited has that limit as the apparent power at 1 p.u. `prices` (active, reactive, a
    column a bus) stand with the buses.

    Raises:
        FileError: the problem is no grid.
    """
    grid = grid_of(problem)
    if grid is None:
        raise FileError(f"--tables is for grids, and {problem.name} is none")
    rows, base = len(y), grid.base_mva
    power, blocks = y * base, problem.blocks
    flows = compute_flows(problem, grid, x, y)
    limit = np.minimum(ratings(problem, grid, x), grid.current) * base
    limit = np.where(np.isfinite(limit), limit, np.nan)
    priced = {} if prices is None else {"price_per_mwh": prices[0], "reactive_price_per_mvarh": prices[1]}
    tables: dict[str, tuple[int, dict[str, Any]]] = {
        "generators": (grid.n_generators, {
            "generator": grid.gen_id, "bus": grid.bus_id[grid.gen_bus],
            "p_mw": power[:, blocks["pg"]], "q_mvar": power[:, blocks["qg"]],
            "min_p_mw": grid.pmin * base, "max_p_mw": grid.pmax * base,
            "min_q_mvar": grid.qmin * base, "max_q_mvar": grid.qmax * base,
        }),
        "buses": (grid.n_buses, {
            "bus": grid.bus_id, "vm_pu": y[:, blocks["vm"]], "va_degree": np.rad2deg(y[:, blocks["va"]]),
            "min_vm_pu": grid.vmin, "max_vm_pu": grid.vmax,
            **priced,
        }),
        "branches": (grid.n_branches, {
            "branch": grid.branch_id, "from_bus": grid.bus_id[grid.branch_from], "to_bus": grid.bus_id[grid.branch_to],
            "p_from_mw": flows.p_from * base, "q_from_mvar": flows.q_from * base,
            "p_to_mw": flows.p_to * base, "q_to_mvar": flows.q_to * base, "limit_mva": limit,
            "loading_from_percent": flows.loading_from, "loading_to_percent": flows.loading_to,
        }),
    }  # fmt: skip
    written = []
    for name, (count, columns) in tables.items():
        found: dict[str, NDArray[Any]] = {"instance": np.repeat(np.arange(1, rows + 1), count)}
        found |= {key: np.repeat(values, count) for key, values in ids.items()}
        for key, values in columns.items():
            found[key] = np.broadcast_to(values, (rows, count)).ravel()
        path = folder / f"{name}.csv"
        write_table(path, found)
        written.append(path)
    return written
