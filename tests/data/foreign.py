"""Writers of the two foreign layouts, from a solved grid: what the importers are tested against."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from feasibly.data.dataset import Dataset
from feasibly.data.label import label
from feasibly.problem.acopf import acopf
from feasibly.problem.families import grid_of
from feasibly.problem.grid import Grid
from tests.problems import make


def solved_grid(count: int, *, linear: bool = False) -> tuple[Grid, Dataset]:
    """The six-bus grid without current limits, which neither layout has, and solutions of it."""
    grid = grid_of(make("grid6"))
    assert grid is not None
    grid = replace(grid, current=np.full(grid.n_branches, np.inf))
    if linear:
        grid = replace(grid, cost=grid.cost * np.array([0.0, 1.0, 1.0]))
    return grid, label(acopf(grid), count=count, seed=5, jobs=1)


# ---- OPFData -----------------------------------------------------------------------------------------------


def opfdata_instance(grid: Grid, x: NDArray[Any], y: NDArray[Any], objective: float) -> dict[str, Any]:
    """One instance as OPFData writes it."""
    g, n, loads = grid.n_generators, grid.n_buses, grid.n_loads
    pg, qg, vm, va = y[:g], y[g : 2 * g], y[2 * g : 2 * g + n], y[2 * g + n :]
    kind = np.ones(n)
    kind[grid.reference] = 3.0
    turns = (grid.tap != 1.0) | (grid.shift != 0.0)
    rate = np.where(np.isfinite(grid.rate), grid.rate, 0.0)
    free = ~np.isfinite(grid.angmin)
    angmin, angmax = np.where(free, 0.0, grid.angmin), np.where(free, 0.0, grid.angmax)
    line = np.stack([angmin, angmax, grid.b_from, grid.b_to, grid.r, grid.x, rate, rate, rate], axis=1)
    transformer = np.stack(
        [angmin, angmax, grid.r, grid.x, rate, rate, rate, grid.tap, grid.shift, grid.b_from, grid.b_to],
        axis=1,
    )

    def edges(mask: NDArray[np.bool_], features: NDArray[Any]) -> dict[str, Any]:
        return {
            "senders": grid.branch_from[mask].tolist(),
            "receivers": grid.branch_to[mask].tolist(),
            "features": features[mask].tolist(),
        }

    def link(bus: NDArray[Any]) -> dict[str, Any]:
        return {"senders": list(range(len(bus))), "receivers": bus.tolist()}

    generator = [
        [100.0, 0.0, lo, hi, 0.0, qlo, qhi, 1.0, *cost]
        for lo, hi, qlo, qhi, cost in zip(
            grid.pmin, grid.pmax, grid.qmin, grid.qmax, grid.cost.tolist(), strict=True
        )
    ]
    return {
        "grid": {
            "nodes": {
                "bus": np.stack([np.ones(n), kind, grid.vmin, grid.vmax], axis=1).tolist(),
                "generator": generator,
                "load": np.stack([x[:loads], x[loads:]], axis=1).tolist(),
                "shunt": np.stack([grid.bs, grid.gs], axis=1).tolist(),
            },
            "edges": {
                "ac_line": edges(~turns, line),
                "transformer": edges(turns, transformer),
                "generator_link": link(grid.gen_bus),
                "load_link": link(grid.load_bus),
                "shunt_link": link(grid.shunt_bus),
            },
            "context": [[[grid.base_mva]]],
        },
        "solution": {
            "nodes": {
                "bus": np.stack([va, vm], axis=1).tolist(),
                "generator": np.stack([pg, qg], axis=1).tolist(),
            },
            "edges": {},
        },
        "metadata": {"objective": objective},
    }


def opfdata_instances(grid: Grid, data: Dataset) -> list[dict[str, Any]]:
    """Every row as an instance."""
    return [
        opfdata_instance(grid, x, y, float(o)) for x, y, o in zip(data.x, data.y, data.objective, strict=True)
    ]


def write_folder(path: Path, instances: list[dict[str, Any]]) -> Path:
    """`example_0.json`, `example_1.json`, ..."""
    path.mkdir(parents=True, exist_ok=True)
    for i, instance in enumerate(instances):
        (path / f"example_{i}.json").write_text(json.dumps(instance))
    return path


def write_archive(path: Path, instances: list[dict[str, Any]]) -> Path:
    """The same in a `.tar.gz`."""
    with tarfile.open(path, "w:gz") as archive:
        for i, instance in enumerate(instances):
            text = json.dumps(instance).encode()
            member = tarfile.TarInfo(f"release/case6/group_0/example_{i}.json")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text))
    return path


# ---- PGLearn -----------------------------------------------------------------------------------------------


def pglearn_case(grid: Grid) -> dict[str, Any]:
    """`case.json`, with one branch and one generator more than the grid has, both out of service."""
    series = 1.0 / (grid.r + 1j * grid.x)
    y_ff, y_ft, y_tf, y_tt = grid.admittances()
    limit = np.where(np.isfinite(grid.angmin), grid.angmin, -np.pi)
    shunt = np.zeros((2, grid.n_buses))
    np.add.at(shunt[0], grid.shunt_bus, grid.gs)
    np.add.at(shunt[1], grid.shunt_bus, grid.bs)

    def branches(values: NDArray[Any]) -> list[Any]:
        return [*values.tolist(), values.tolist()[0]]

    def generators(values: NDArray[Any]) -> list[Any]:
        return [*values.tolist(), values.tolist()[0]]

    def members(bus: NDArray[Any]) -> list[list[int]]:
        return [[int(k) + 1 for k in np.flatnonzero(bus == i)] for i in range(grid.n_buses)]

    with_spare = members(np.append(grid.gen_bus, grid.gen_bus[0]))
    data = {
        "case": "pglib_opf_case6_test", "base_mva": grid.base_mva, "N": grid.n_buses,
        "E": grid.n_branches + 1,
        "L": grid.n_loads, "G": grid.n_generators + 1, "ref_bus": int(grid.reference[0]) + 1,
        "vmin": grid.vmin.tolist(), "vmax": grid.vmax.tolist(), "gs": shunt[0].tolist(),
        "bs": shunt[1].tolist(),
        "pd": grid.pd.tolist(), "qd": grid.qd.tolist(), "bus_loads": members(grid.load_bus),
        "bus_gens": with_spare,
        "pgmin": generators(grid.pmin), "pgmax": generators(grid.pmax), "qgmin": generators(grid.qmin),
        "qgmax": generators(grid.qmax), "c2": generators(grid.cost[:, 0]), "c1": generators(grid.cost[:, 1]),
        "c0": generators(grid.cost[:, 2]), "gen_status": [True] * grid.n_generators + [False],
        "branch_status": [True] * grid.n_branches + [False], "bus_fr": branches(grid.branch_from + 1),
        "bus_to": branches(grid.branch_to + 1), "g": branches(series.real), "b": branches(series.imag),
        "smax": [None if not np.isfinite(v) else v for v in branches(grid.rate)], "dvamin": branches(limit),
        "dvamax": branches(-limit),
    }  # fmt: skip
    for name, value in (("ff", y_ff), ("ft", y_ft), ("tf", y_tf), ("tt", y_tt)):
        data |= {f"g{name}": branches(value.real), f"b{name}": branches(value.imag)}
    return {"data": data}


def pglearn_split(grid: Grid, data: Dataset) -> dict[str, dict[str, Any]]:
    """The arrays of a split, file by file."""
    g, n, loads, rows = grid.n_generators, grid.n_buses, grid.n_loads, len(data)
    x, y = data.x, data.y
    spare = np.zeros((rows, 1))
    on = np.ones(rows, dtype=np.uint8)[:, None]
    return {
        "input": {
            "pd": x[:, :loads],
            "qd": x[:, loads:],
            "branch_status": np.hstack([np.tile(on, grid.n_branches), 0 * on]),
            "gen_status": np.hstack([np.tile(on, g), 0 * on]),
        },
        "ACOPF/primal": {
            "pg": np.hstack([y[:, :g], spare]),
            "qg": np.hstack([y[:, g : 2 * g], spare]),
            "vm": y[:, 2 * g : 2 * g + n],
            "va": y[:, 2 * g + n :],
        },
        "ACOPF/meta": {
            "primal_objective_value": data.objective,
            "termination_status": np.array([b"LOCALLY_SOLVED"] * rows, dtype=object),
            "solve_time": np.full(rows, 0.25),
        },
    }


def write_pglearn(folder: Path, case: dict[str, Any], splits: dict[str, Any], *, packed: bool) -> Path:
    """A case folder in float32, gzipped or plain."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(case).encode()
    (folder / ("case.json.gz" if packed else "case.json")).write_bytes(
        gzip.compress(text) if packed else text
    )
    for split, files in splits.items():
        for name, arrays in files.items():
            path = folder / split / f"{name}.h5"
            path.parent.mkdir(parents=True, exist_ok=True)
            with h5py.File(path, "w") as file:
                for key, values in arrays.items():
                    kind = np.float32 if values.dtype == np.float64 else None
                    file.create_dataset(key, data=values if kind is None else values.astype(kind))
            if packed:
                path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
                path.unlink()
    return folder


# ---- GridFM ------------------------------------------------------------------------------------------------


def write_gridfm(path: Path, grid: Grid, data: Dataset, *, partitioned: bool = False) -> Path:
    """The tables of GridFM's datakit for rows of a problem that all of loads, statuses, costs and ratings vary in."""
    import pyarrow
    from pyarrow import parquet

    path.mkdir(parents=True, exist_ok=True)
    base, n, g, m = grid.base_mva, grid.n_buses, grid.n_generators, grid.n_branches
    y_ff, y_ft, _, _ = grid.admittances()
    part = {name: data.x[:, where] for name, where in data.problem.inputs.items()}
    tables: dict[str, list[dict[str, Any]]] = {"bus": [], "gen": [], "branch": []}
    shunt = np.zeros((2, n))
    np.add.at(shunt[0], grid.shunt_bus, grid.gs)
    np.add.at(shunt[1], grid.shunt_bus, grid.bs)
    for row in range(len(data)):
        demand = np.zeros((2, n))
        demand[0, grid.load_bus], demand[1, grid.load_bus] = part["pd"][row] * base, part["qd"][row] * base
        pg, qg, vm, va = np.split(data.y[row], [g, 2 * g, 2 * g + n])
        rate = grid.rate.copy()
        rate[np.isfinite(rate)] = part["rating"][row]
        voltage = vm * np.exp(1j * va)
        f, t = grid.branch_from, grid.branch_to
        flow = (voltage[f] * np.conj(y_ff * voltage[f] + y_ft * voltage[t])).real * base * part["branch"][row]
        tables["bus"] += [
            {
                "scenario": row, "load_scenario_idx": float(row), "bus": i, "Pd": demand[0, i], "Qd": demand[1, i],
                "Vm": vm[i], "Va": np.rad2deg(va[i]) + 7.0, "REF": int(i in grid.reference), "min_vm_pu": grid.vmin[i],
                "max_vm_pu": grid.vmax[i], "GS": shunt[0, i], "BS": shunt[1, i],
            }
            for i in range(n)
        ]  # fmt: skip
        tables["gen"] += [
            {
                "scenario": row, "idx": i, "bus": int(grid.gen_bus[i]), "p_mw": pg[i] * base, "q_mvar": qg[i] * base,
                "min_p_mw": grid.pmin[i] * base, "max_p_mw": grid.pmax[i] * base, "min_q_mvar": grid.qmin[i] * base,
                "max_q_mvar": grid.qmax[i] * base, "cp0_eur": grid.cost[i, 2], "cp1_eur_per_mw": part["c1"][row, i],
                "cp2_eur_per_mw2": part["c2"][row, i], "in_service": int(part["generator"][row, i]),
            }
            for i in range(g)
        ]  # fmt: skip
        tables["branch"] += [
            {
                "scenario": row, "idx": i, "from_bus": int(f[i]), "to_bus": int(t[i]), "pf": flow[i], "r": grid.r[i],
                "x": grid.x[i], "b": 2.0 * grid.b_from[i], "tap": grid.tap[i], "shift": np.rad2deg(grid.shift[i]),
                "ang_min": np.rad2deg(max(grid.angmin[i], -2.0 * np.pi)),
                "ang_max": np.rad2deg(min(grid.angmax[i], 2.0 * np.pi)),
                "rate_a": rate[i] * base if np.isfinite(rate[i]) else 0.0, "br_status": int(part["branch"][row, i]),
            }
            for i in range(m)
        ]  # fmt: skip
    for kind, rows in tables.items():
        table = pyarrow.Table.from_pylist(rows)
        if partitioned:
            number = pyarrow.array([one["scenario"] // 5 for one in rows])
            table = table.append_column("scenario_partition", number)
            parquet.write_to_dataset(
                table, path / f"{kind}_data.parquet", partition_cols=["scenario_partition"]
            )
        else:
            parquet.write_table(table, path / f"{kind}_data.parquet")
    return path
