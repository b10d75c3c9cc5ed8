"""GridFM's datakit: parquet tables of buses, generators and branches, a row an element and scenario.

`bus_data.parquet`, `gen_data.parquet` and `branch_data.parquet` are files or partitioned folders in MW, Mvar, degrees
and per unit; every scenario lists every element with its status, and generators with their costs. The base power is in
none of them: it is what turns the flows that voltages make into those that are stated.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feasibly.data.dataset import Dataset
from feasibly.data.importing import (
    ForeignDataError,
    ImportProgress,
    ImportReport,
    Intake,
    check_branches,
    check_fits,
    with_loads,
)
from feasibly.data.schema import CHUNK
from feasibly.data.varied import in_order, join_inputs, vary_of
from feasibly.problem.acopf import acopf
from feasibly.problem.core import Problem
from feasibly.problem.grid import Grid
from feasibly.solve.outcome import Outcome

_BUS = ("bus", "Pd", "Qd", "Vm", "Va", "REF", "min_vm_pu", "max_vm_pu", "GS", "BS")
_GEN = (
    "idx", "bus", "p_mw", "q_mvar", "min_p_mw", "max_p_mw", "min_q_mvar", "max_q_mvar", "cp0_eur", "cp1_eur_per_mw",
    "cp2_eur_per_mw2", "in_service",
)  # fmt: skip
_BRANCH = (
    "idx", "from_bus", "to_bus", "pf", "r", "x", "b", "tap", "shift", "ang_min", "ang_max", "rate_a", "br_status",
)  # fmt: skip
_TABLES = {"bus": _BUS, "gen": _GEN, "branch": _BRANCH}

Array = NDArray[np.float64]
Table = dict[str, Array]
"""Columns of one kind of element, `(scenarios, elements)` each."""


def import_gridfm(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    problem: Problem | None = None,
    progress: Callable[[ImportProgress], None] | None = None,
) -> tuple[Dataset, ImportReport]:
    """Import the optimal power flows that GridFM's datakit wrote: the folder with `bus_data.parquet` and its like.

    Where elements are out of service in some scenarios, or costs or ratings differ, statuses, costs or ratings are
    inputs; if a `problem` is given, what it is made of. A scenario whose impedances are scaled is left out and flagged;
    one whose power balance or limits do not hold keeps its row and is no label. The tables state no objective and no
    nominal loads: the cost is computed, and unless `problem` is given the mean of the rows stands in for the loads.

    Args:
        path: the folder (`.../raw`).
        out: a store to create; in memory when not given.
        problem: the AC-OPF these are instances of, when it is at hand.
        progress: called with an `ImportProgress` every few hundred scenarios.

    Raises:
        ForeignDataError: a table is missing or of another shape, or not one scenario fits.
        StoreError: `out` exists or cannot be written.
    """
    folder = Path(path)
    source = _Source(folder)
    numbers = source.scenarios()
    first = source.read(numbers[:1])
    seen = source.ranges()
    grid, keep = _grid(first, seen, folder)
    if problem is not None:
        check_fits(problem, grid)
    vary = _varying(seen, keep) if problem is None else vary_of(problem)
    with Intake(problem or acopf(grid, vary=vary), "gridfm", out, progress=progress) as intake:
        fixed = set()
        for start in range(0, len(numbers), CHUNK):
            chosen = numbers[start : start + CHUNK]
            tables = source.read(chosen)
            _take(intake, grid, keep, first, tables, chosen)
            costs = tables["gen"]["cp0_eur"][:, keep["gen"]]
            fixed.update(np.round(costs.sum(axis=1), 6).tolist())
            intake.tell(min(start + CHUNK, len(numbers)), len(numbers))
        if len(fixed) > 1:
            intake.warnings.append("fixed costs differ among scenarios; those of the first stand for all")
        if problem is None:
            intake.warnings.append(
                "the tables do not carry nominal loads; the mean of the rows stands in for them "
                "(pass the problem to use its own)"
            )
            problem = intake.covering(with_loads(grid, intake.mean_input()))
        return intake.finish(problem, {"scenarios": len(numbers)})


# ---- tables ------------------------------------------------------------------------------------------------


class _Source:
    """The three tables, read some scenarios at a time."""

    def __init__(self, folder: Path) -> None:
        from pyarrow import dataset

        if not folder.is_dir():
            raise ForeignDataError(f"{folder} is not a folder; give the one that holds bus_data.parquet")
        self._tables = {}
        for kind, columns in _TABLES.items():
            place = folder / f"{kind}_data.parquet"
            if not place.exists():
                raise ForeignDataError(f"{folder} has no {place.name}")
            try:
                table = dataset.dataset(place, format="parquet", partitioning="hive")
            except (OSError, ValueError) as error:
                reason = (str(error).splitlines() or [type(error).__name__])[0]
                raise ForeignDataError(f"{place.name} cannot be read as parquet: {reason}") from None
            missing = [name for name in ("scenario", *columns) if name not in table.schema.names]
            if missing:
                raise ForeignDataError(f"{place.name} has no column {', '.join(missing)}")
            self._tables[kind] = table

    def scenarios(self) -> NDArray[np.int64]:
        """The number of every scenario."""
        column = self._tables["bus"].to_table(columns=["scenario"])["scenario"]
        numbers = np.unique(column.to_numpy())
        if not len(numbers):
            raise ForeignDataError("bus_data.parquet has no rows")
        return np.asarray(numbers, dtype=np.int64)

    def read(self, numbers: NDArray[np.int64]) -> dict[str, Table]:
        """All columns of these scenarios."""
        from pyarrow import compute

        among = (compute.field("scenario") >= int(numbers[0])) & (
            compute.field("scenario") <= int(numbers[-1])
        )
        return {
            kind: self._shaped(
                kind, _TABLES[kind], self._tables[kind].to_table(list(_columns(kind)), filter=among)
            )
            for kind in _TABLES
        }

    def ranges(self) -> dict[str, tuple[Array, Array]]:
        """The least and largest of what may vary, an element each: statuses, costs and ratings."""
        found: dict[str, tuple[Array, Array]] = {}
        for kind, names in (
            ("branch", ("br_status", "rate_a")),
            ("gen", ("in_service", "cp1_eur_per_mw", "cp2_eur_per_mw2")),
        ):
            table = self._tables[kind].to_table(["scenario", "idx", *names])
            idx = np.asarray(table["idx"].to_numpy(), dtype=np.int64)
            for name in names:
                values = np.asarray(table[name].to_numpy(), dtype=np.float64)
                low, high = np.full(idx.max() + 1, np.inf), np.full(idx.max() + 1, -np.inf)
                np.minimum.at(low, idx, values)
                np.maximum.at(high, idx, values)
                found[name] = low, high
        return found

    @staticmethod
    def _shaped(kind: str, columns: tuple[str, ...], table: Any) -> Table:
        scenario = np.asarray(table["scenario"].to_numpy(), dtype=np.int64)
        place = np.asarray(table[columns[0]].to_numpy(), dtype=np.int64)
        order = np.lexsort((place, scenario))
        count = len(np.unique(scenario))
        width = len(order) // count
        within = place[order].reshape(count, width) if width * count == len(order) else np.zeros((0, 0))
        if within.size == 0 or (within != np.arange(width)).any():
            raise ForeignDataError(
                f"{kind}_data.parquet does not list the same {columns[0]} from 0 on in every scenario"
            )
        return {
            name: np.asarray(table[name].to_numpy(), dtype=np.float64)[order].reshape(count, width)
            for name in columns
        }


def _columns(kind: str) -> tuple[str, ...]:
    return ("scenario", *_TABLES[kind])


# ---- the grid and its rows ---------------------------------------------------------------------------------


def _grid(
    first: Mapping[str, Table], seen: Mapping[str, tuple[Array, Array]], folder: Path
) -> tuple[Grid, dict[str, NDArray[np.int64]]]:
    """The grid of the first scenario with every element that is ever in service, and which those are."""
    bus, gen, branch = ({name: column[0] for name, column in first[kind].items()} for kind in _TABLES)
    keep = {
        "gen": np.flatnonzero(seen["in_service"][1] > 0.5),
        "branch": np.flatnonzero(seen["br_status"][1] > 0.5),
        "load": np.flatnonzero((bus["Pd"] != 0.0) | (bus["Qd"] != 0.0)),
    }
    base = _base(bus, branch)
    g, b = (
        {name: column[keep[kind]] for name, column in part.items()}
        for kind, part in (("gen", gen), ("branch", branch))
    )
    shunts = np.flatnonzero((bus["GS"] != 0.0) | (bus["BS"] != 0.0))
    free = (b["ang_min"] == 0.0) & (b["ang_max"] == 0.0)
    n, m = len(bus["bus"]), len(b["r"])
    arrays: dict[str, NDArray[Any]] = {
        "bus_id": bus["bus"].astype(np.int64),
        "vmin": bus["min_vm_pu"],
        "vmax": bus["max_vm_pu"],
        "reference": np.flatnonzero(bus["REF"] > 0.5),
        "gen_id": keep["gen"] + 1,
        "gen_bus": g["bus"].astype(np.int64),
        "pmin": g["min_p_mw"] / base,
        "pmax": g["max_p_mw"] / base,
        "qmin": g["min_q_mvar"] / base,
        "qmax": g["max_q_mvar"] / base,
        "cost": np.stack([g["cp2_eur_per_mw2"] * base**2, g["cp1_eur_per_mw"] * base, g["cp0_eur"]], axis=1),
        "load_id": np.arange(1, len(keep["load"]) + 1),
        "load_bus": keep["load"],
        "pd": bus["Pd"][keep["load"]] / base,
        "qd": bus["Qd"][keep["load"]] / base,
        "shunt_bus": shunts,
        "gs": bus["GS"][shunts],
        "bs": bus["BS"][shunts],
        "branch_id": keep["branch"] + 1,
        "branch_from": b["from_bus"].astype(np.int64),
        "branch_to": b["to_bus"].astype(np.int64),
        "r": b["r"],
        "x": b["x"],
        "g_from": np.zeros(m),
        "b_from": b["b"] / 2.0,
        "g_to": np.zeros(m),
        "b_to": b["b"] / 2.0,
        "tap": np.where(b["tap"] == 0.0, 1.0, b["tap"]),
        "shift": np.deg2rad(b["shift"]),
        "rate": np.where(b["rate_a"] > 0.0, b["rate_a"], np.inf) / base,
        "current": np.full(m, np.inf),
        "angmin": np.where(free | (b["ang_min"] <= -360.0), -np.inf, np.deg2rad(b["ang_min"])),
        "angmax": np.where(free | (b["ang_max"] >= 360.0), np.inf, np.deg2rad(b["ang_max"])),
        "position": np.full((n, 2), np.nan),
    }
    resolved = folder.resolve()
    name = (resolved.parent.name if resolved.name == "raw" else resolved.name).removeprefix("pglib_opf_")
    grid = Grid.from_arrays(name, base, arrays)
    check_branches(grid, "branch_data.parquet")
    return grid, keep


def _base(bus: Mapping[str, Array], branch: Mapping[str, Array]) -> float:
    """The base power in MVA: stated flows over those that the voltages make, per unit."""
    on = np.flatnonzero(branch["br_status"] > 0.5)
    f, t = branch["from_bus"][on].astype(np.int64), branch["to_bus"][on].astype(np.int64)
    voltage = bus["Vm"] * np.exp(1j * np.deg2rad(bus["Va"]))
    tap = np.where(branch["tap"] == 0.0, 1.0, branch["tap"])[on] * np.exp(
        1j * np.deg2rad(branch["shift"][on])
    )
    series = 1.0 / (branch["r"][on] + 1j * branch["x"][on])
    current = (series + 0.5j * branch["b"][on]) * voltage[f] / np.abs(tap) ** 2 - series * voltage[
        t
    ] / np.conj(tap)
    made = (voltage[f] * np.conj(current)).real
    scale = float(np.sum(made * branch["pf"][on]) / max(float(np.sum(made * made)), 1e-300))
    if not 1e-3 < scale < 1e9:
        raise ForeignDataError(
            "the flows in branch_data.parquet are not those of the voltages in bus_data.parquet"
        )
    return float(f"{scale:.4g}")


def _varying(
    seen: Mapping[str, tuple[Array, Array]], keep: Mapping[str, NDArray[np.int64]]
) -> tuple[str, ...]:
    def moves(name: str, kind: str) -> bool:
        low, high = (end[keep[kind]] for end in seen[name])
        return not np.allclose(low, high, rtol=1e-9, atol=1e-12)

    return in_order({
        "branch": moves("br_status", "branch"),
        "generator": moves("in_service", "gen"),
        "cost": moves("cp1_eur_per_mw", "gen") or moves("cp2_eur_per_mw2", "gen"),
        "rating": moves("rate_a", "branch"),
    })  # fmt: skip


def _take(
    intake: Intake,
    grid: Grid,
    keep: Mapping[str, NDArray[np.int64]],
    first: Mapping[str, Table],
    tables: Mapping[str, Table],
    numbers: NDArray[np.int64],
) -> None:
    bus, gen, branch = (tables[kind] for kind in _TABLES)
    base, problem = grid.base_mva, intake.problem
    rated = np.isfinite(grid.rate)
    parts = {
        "pd": bus["Pd"][:, keep["load"]] / base,
        "qd": bus["Qd"][:, keep["load"]] / base,
        "branch": (branch["br_status"][:, keep["branch"]] > 0.5).astype(np.float64),
        "generator": (gen["in_service"][:, keep["gen"]] > 0.5).astype(np.float64),
        "c1": gen["cp1_eur_per_mw"][:, keep["gen"]],
        "c2": gen["cp2_eur_per_mw2"][:, keep["gen"]],
        "rating": branch["rate_a"][:, keep["branch"]][:, rated] / base,
    }
    nominal = acopf(grid, vary=("branch", "generator", "cost", "rating"))
    same = np.ones(len(numbers), dtype=bool)
    for name in ("branch", "generator", "c1", "c2", "rating"):
        if name not in problem.inputs:
            usual = nominal.nominal[nominal.inputs[name]]
            same &= np.isclose(parts[name], usual, rtol=1e-9, atol=1e-12).all(axis=1)
    for name in ("r", "x", "b", "tap", "shift"):
        same &= np.isclose(branch[name], first["branch"][name], rtol=1e-9, atol=1e-12).all(axis=1)
    other = np.setdiff1d(np.arange(grid.n_buses), keep["load"])
    same &= (bus["Pd"][:, other] == 0.0).all(axis=1) & (bus["Qd"][:, other] == 0.0).all(axis=1)
    names = [f"scenario {number}" for number in numbers]
    for i in np.flatnonzero(~same):
        intake.flag(names[i], "its impedances, loaded buses, topology or costs are not those that may vary")
    on = parts["generator"]
    va = np.deg2rad(bus["Va"])
    va -= va[:, grid.reference[:1]]
    pg, qg = (gen[name][:, keep["gen"]] / base * on for name in ("p_mw", "q_mvar"))
    kept = np.flatnonzero(same)
    intake.add(
        [names[i] for i in kept],
        join_inputs(problem, parts)[kept],
        np.concatenate([pg, qg, bus["Vm"], va], axis=1)[kept],
        np.full(len(kept), np.nan),
        np.full(len(kept), Outcome.OK.value, dtype=np.int8),
    )
