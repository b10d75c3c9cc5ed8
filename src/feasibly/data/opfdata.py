"""OPFData (Lovett et al. 2024): one JSON an instance, in folders or in the published tar archives.

Per unit and radians, costs in $/p.u. The constants below name the features of each element in their order.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feasibly.data.dataset import Dataset
from feasibly.data.elements import Mismatch, Row, Whole
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
from feasibly.data.varied import join_inputs, vary_of
from feasibly.problem.acopf import acopf
from feasibly.problem.core import Problem
from feasibly.problem.families import grid_of
from feasibly.problem.grid import Grid
from feasibly.solve.outcome import Outcome

_BUS = ("base_kv", "type", "vmin", "vmax")
_GENERATOR = ("mbase", "pg", "pmin", "pmax", "qg", "qmin", "qmax", "vg", "c2", "c1", "c0")
_LINE = ("angmin", "angmax", "b_from", "b_to", "r", "x", "rate", "rate_b", "rate_c")
_TRANSFORMER = ("angmin", "angmax", "r", "x", "rate", "rate_b", "rate_c", "tap", "shift", "b_from", "b_to")
_REFERENCE = 3.0
_LOOKED_AT = 64
"""From so many instances the grid is put together: any two with different single outages have all of it."""

Array = NDArray[np.float64]


def import_opfdata(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    problem: Problem | None = None,
    progress: Callable[[ImportProgress], None] | None = None,
) -> tuple[Dataset, ImportReport]:
    """Import OPFData: a JSON file, a `.tar.gz` archive, or a folder of either, read one instance at a time.

    The grid is put together from the first instances. Where elements are out in some of them (`N-1` files leave those
    out of their lists), or costs or ratings differ, statuses, costs or ratings are inputs; if a `problem` is given,
    what it is made of. An instance that differs otherwise is left out and flagged; one whose power balance, limits or
    objective do not hold keeps its row and is no label. The files do not carry nominal loads: unless `problem` is
    given, the mean of the rows stands in for them.

    Args:
        path: what to import.
        out: a store to create; in memory when not given.
        problem: the AC-OPF these are instances of, when it is at hand (`load_problem("pglib:case14_ieee")`).
        progress: called with an `ImportProgress` every few hundred instances.

    Raises:
        ForeignDataError: nothing there can be read, an archive is cut short, or not one instance fits.
        StoreError: `out` exists or cannot be written.
    """
    source = Path(path)
    total = _count(source)
    unread: list[tuple[str, str]] = []
    done = 0

    def instances() -> Iterator[_Instance]:
        nonlocal done
        for name, text in _instances(source):
            done += 1
            try:
                yield _read(name, text)
            except (ValueError, KeyError, TypeError, IndexError) as error:
                unread.append((name, f"it is not an OPFData instance ({type(error).__name__}: {error})"))

    stream = instances()
    first = list(itertools.islice(stream, _LOOKED_AT))
    if not first:
        why = f"; the first: {unread[0][0]}: {unread[0][1]}" if unread else ""
        raise ForeignDataError(f"there is no OPFData instance in {source}{why}")
    whole, vary = _whole(first, problem)
    grid = _grid(whole, first[0], source)
    if problem is not None:
        check_fits(problem, grid)
    with Intake(problem or acopf(grid, vary=vary), "opfdata", out, progress=progress) as intake:
        known: dict[str, Row | str] = {}
        batch: list[tuple[_Instance, Row]] = []
        for instance in itertools.chain(first, stream):
            row = _row(whole, vary, instance, known)
            if isinstance(row, str):
                intake.flag(instance.name, row)
            else:
                batch.append((instance, row))
            if len(batch) == CHUNK:
                _hand_in(intake, batch, grid, whole, vary)
                intake.tell(done, total)
        for where, what in unread:
            intake.flag(where, what)
        _hand_in(intake, batch, grid, whole, vary)
        intake.tell(done, total)
        if problem is None:
            intake.warnings.append(
                "the files do not carry nominal loads; the mean of the rows stands in for them "
                "(pass the problem to use its own)"
            )
            problem = intake.covering(with_loads(grid, intake.mean_input()))
        return intake.finish(problem, {"instances": done})


def _whole(first: list[_Instance], problem: Problem | None) -> tuple[Whole, tuple[str, ...]]:
    """The grid that all instances are parts of, and what varies among them."""
    begin = Whole(first[0].static)
    if problem is not None:
        vary, grid = vary_of(problem), grid_of(problem)
        return (begin if vary == ("load",) or grid is None else Whole.of_grid(grid)), vary
    different = {_digest(one.static): one.static for one in first}
    alike = [static for static in different.values() if begin.resembles(static)]
    whole = Whole.of(alike)
    return whole, whole.varying([whole.row(static) for static in alike])


def _row(whole: Whole, vary: tuple[str, ...], instance: _Instance, known: dict[str, Row | str]) -> Row | str:
    """An instance in terms of the whole grid, or why it is left out; the same for the same lists of elements."""
    digest = _digest(instance.static)
    if digest not in known:
        try:
            row = whole.row(instance.static)
            whole.inputs([row], vary)
            known[digest] = row
        except Mismatch as mismatch:
            known[digest] = str(mismatch)
    return known[digest]


def _hand_in(
    intake: Intake, batch: list[tuple[_Instance, Row]], grid: Grid, whole: Whole, vary: tuple[str, ...]
) -> None:
    if not batch:
        return
    rows = [row for _, row in batch]
    y = np.array([
        np.concatenate([row.spread_out(one.pg), row.spread_out(one.qg), one.vm, one.va]) for one, row in batch
    ])  # fmt: skip
    va = y[:, -grid.n_buses :]
    va -= va[:, grid.reference[:1]]
    loads = {"pd": np.array([one.pd for one, _ in batch]), "qd": np.array([one.qd for one, _ in batch])}
    intake.add(
        [one.name for one, _ in batch],
        join_inputs(intake.problem, loads | whole.inputs(rows, vary)),
        y,
        np.array([one.objective for one, _ in batch]),
        np.full(len(batch), Outcome.OK.value, dtype=np.int8),
    )
    batch.clear()


# ---- finding instances -------------------------------------------------------------------------------------


def _instances(source: Path) -> Iterator[tuple[str, bytes]]:
    if not source.exists():
        raise ForeignDataError(f"there is no file or folder {source}")
    if source.is_file():
        yield from _from_file(source)
        return
    files = _files(source)
    if not files:
        raise ForeignDataError(f"{source} holds neither .json files nor tar archives")
    for file in files:
        yield from _from_file(file)


def _files(folder: Path) -> list[Path]:
    wanted = [p for p in folder.rglob("*") if p.is_file() and (p.suffix == ".json" or _is_archive(p))]
    return sorted(wanted, key=lambda p: _in_order(str(p.relative_to(folder))))


def _in_order(name: str) -> list[Any]:
    """`example_10` after `example_9`."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def _is_archive(path: Path) -> bool:
    return path.name.endswith((".tar.gz", ".tgz", ".tar"))


def _count(source: Path) -> int | None:
    if source.is_file():
        return None if _is_archive(source) else 1
    files = _files(source)
    return None if any(map(_is_archive, files)) else len(files)


def _from_file(path: Path) -> Iterator[tuple[str, bytes]]:
    if not _is_archive(path):
        yield path.name, path.read_bytes()
        return
    read = 0
    try:
        with tarfile.open(path, mode="r|*") as archive:
            for member in archive:
                if member.isfile() and member.name.endswith(".json"):
                    handle = archive.extractfile(member)
                    assert handle is not None
                    yield f"{path.name}:{Path(member.name).name}", handle.read()
                    read += 1
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        raise ForeignDataError(
            f"{path.name} is cut short or damaged after {read} instances ({error}); download it again"
        ) from None


# ---- one instance ------------------------------------------------------------------------------------------


def _columns(rows: Any, names: tuple[str, ...], what: str) -> dict[str, Array]:
    table = np.array(rows, dtype=np.float64).reshape(-1, len(names)) if rows else np.zeros((0, len(names)))
    if rows and np.array(rows).shape != table.shape:
        raise ValueError(f"{what} has {np.array(rows).shape[1]} features, expected {len(names)}")
    return {name: table[:, i] for i, name in enumerate(names)}


def _static(document: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Everything about the grid that must not change from instance to instance, as the arrays of a `Grid`."""
    grid = document["grid"]
    nodes, edges = grid["nodes"], grid["edges"]
    bus = _columns(nodes["bus"], _BUS, "bus")
    gen = _columns(nodes["generator"], _GENERATOR, "generator")
    shunt = _columns(nodes.get("shunt", []), ("bs", "gs"), "shunt")
    line = _columns(edges["ac_line"]["features"], _LINE, "ac_line")
    transformer = _columns(edges["transformer"]["features"], _TRANSFORMER, "transformer")
    line |= {"tap": np.ones(len(line["r"])), "shift": np.zeros(len(line["r"]))}
    ends = {
        end: np.array([*edges["ac_line"][end], *edges["transformer"][end]], dtype=np.int64)
        for end in ("senders", "receivers")
    }
    branch = {key: np.concatenate([line[key], transformer[key]]) for key in _TRANSFORMER}
    count = len(branch["r"])
    unlimited = (branch["angmin"] == 0.0) & (branch["angmax"] == 0.0)
    full = 2.0 * np.pi
    n = len(bus["type"])
    return {
        "base": np.array([float(np.ravel(grid["context"])[0])]),
        "bus_id": np.arange(1, n + 1),
        "vmin": bus["vmin"],
        "vmax": bus["vmax"],
        "reference": np.flatnonzero(bus["type"] == _REFERENCE),
        "gen_id": np.arange(1, len(gen["pg"]) + 1),
        "gen_bus": _linked(edges, "generator_link", len(gen["pg"])),
        **{key: gen[key] for key in ("pmin", "pmax", "qmin", "qmax")},
        "cost": np.stack([gen["c2"], gen["c1"], gen["c0"]], axis=1),
        "load_bus": _linked(edges, "load_link", len(nodes["load"])),
        "load_id": np.arange(1, len(nodes["load"]) + 1),
        "shunt_bus": _linked(edges, "shunt_link", len(shunt["bs"])),
        "gs": shunt["gs"],
        "bs": shunt["bs"],
        "branch_id": np.arange(1, count + 1),
        "branch_from": ends["senders"],
        "branch_to": ends["receivers"],
        **{key: branch[key] for key in ("r", "x", "b_from", "b_to", "tap", "shift")},
        "g_from": np.zeros(count),
        "g_to": np.zeros(count),
        "rate": np.where(branch["rate"] == 0.0, np.inf, branch["rate"]),
        "current": np.full(count, np.inf),
        "angmin": np.where(unlimited | (branch["angmin"] <= -full), -np.inf, branch["angmin"]),
        "angmax": np.where(unlimited | (branch["angmax"] >= full), np.inf, branch["angmax"]),
        "position": np.full((n, 2), np.nan),
    }


def _linked(edges: Mapping[str, Any], key: str, count: int) -> NDArray[np.int64]:
    """The bus of each element."""
    link = edges.get(key, {"senders": [], "receivers": []})
    bus = np.full(count, -1, dtype=np.int64)
    bus[np.array(link["senders"], dtype=np.int64)] = np.array(link["receivers"], dtype=np.int64)
    if (bus < 0).any():
        raise ValueError(f"{key} leaves {int((bus < 0).sum())} elements without a bus")
    return bus


@dataclass(frozen=True, eq=False)
class _Instance:
    name: str
    static: Mapping[str, NDArray[Any]]
    pd: Array
    qd: Array
    pg: Array
    qg: Array
    vm: Array
    va: Array
    objective: float


def _read(name: str, text: bytes) -> _Instance:
    document = json.loads(text)
    load = _columns(document["grid"]["nodes"]["load"], ("pd", "qd"), "load")
    solution = document["solution"]["nodes"]
    bus = _columns(solution["bus"], ("va", "vm"), "solution bus")
    gen = _columns(solution["generator"], ("pg", "qg"), "solution generator")
    static = _static(document)
    if len(bus["va"]) != len(static["bus_id"]) or len(gen["pg"]) != len(static["gen_id"]):
        raise ValueError("the solution has another number of buses or generators than the grid")
    solved = (gen["pg"], gen["qg"], bus["vm"], bus["va"])
    return _Instance(name, static, load["pd"], load["qd"], *solved, float(document["metadata"]["objective"]))


def _digest(static: Mapping[str, NDArray[Any]]) -> str:
    digest = hashlib.sha256()
    for key, array in static.items():
        digest.update(key.encode() + repr(array.shape).encode() + np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _grid(whole: Whole, first: _Instance, source: Path) -> Grid:
    arrays = {key: array for key, array in whole.arrays.items() if key != "base"}
    base = float(whole.arrays["base"][0])
    name = source.resolve().name.split(".")[0].removeprefix("pglib_opf_")
    grid = Grid.from_arrays(name, base, {**arrays, "pd": first.pd, "qd": first.qd})
    check_branches(grid, first.name)
    return grid
