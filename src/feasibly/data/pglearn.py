"""PGLearn: a folder with `case.json` and HDF5 files a split, plain or gzipped, in float32.

Beside `case.json[.gz]` stand, for each of the splits train, test and infeasible, `input.h5[.gz]` (pd, qd,
branch_status, gen_status), `ACOPF/primal.h5[.gz]` (vm, va, pg, qg) and `ACOPF/meta.h5[.gz]`
(termination_status, primal_objective_value).
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feasibly.data.dataset import Dataset
from feasibly.data.importing import (
    OBJECTIVE,
    ForeignDataError,
    ImportProgress,
    ImportReport,
    Intake,
    check_branches,
    check_fits,
)
from feasibly.data.schema import CHUNK
from feasibly.data.varied import in_order, join_inputs, vary_of
from feasibly.problem.acopf import acopf
from feasibly.problem.core import Problem
from feasibly.problem.grid import Grid
from feasibly.solve.outcome import Outcome

SPLITS = ("train", "test", "infeasible")

_OUTCOMES = {
    "OPTIMAL": Outcome.OK,
    "LOCALLY_SOLVED": Outcome.OK,
    "INFEASIBLE": Outcome.INFEASIBLE,
    "LOCALLY_INFEASIBLE": Outcome.INFEASIBLE,
    "ITERATION_LIMIT": Outcome.ITERATION_LIMIT,
    "TIME_LIMIT": Outcome.TIME_LIMIT,
    "NORM_LIMIT": Outcome.UNBOUNDED,
    "DUAL_INFEASIBLE": Outcome.UNBOUNDED,
}
"""By MathOptInterface's name for how a solver ended; any other is numerical trouble."""

_STATUS = {"branch": "branch", "generator": "gen"}
"""Our name for a block of statuses, and the source's."""

Array = NDArray[np.float64]


def import_pglearn(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    splits: tuple[str, ...] | None = None,
    problem: Problem | None = None,
    progress: Callable[[ImportProgress], None] | None = None,
) -> tuple[Dataset, ImportReport]:
    """Import the AC-OPF solutions of a PGLearn case folder.

    Rows stand in the order train, test, infeasible; `data.provenance.notes["splits"]` says which are which. Where
    branches or generators are out in some rows, as in the N-1 sets, their statuses are inputs; if a `problem` is given
    that has none, such rows are left out and flagged. A row that was not solved keeps its outcome; one whose power
    balance, limits or objective do not hold is no label. PGLearn solves without the quadratic part of the costs: where
    a case has one, the labels are optimal for the linear part alone, the problem of the dataset is made to match, and
    the report says so.

    Args:
        path: the folder with `case.json.gz`.
        out: a store to create; in memory when not given.
        splits: which of train, test and infeasible; all that are there when not given.
        problem: the AC-OPF these are instances of, when it is at hand; from the case file otherwise.
        progress: called with an `ImportProgress` every few hundred rows.

    Raises:
        ForeignDataError: a file is missing, damaged or of another shape, or not one row fits.
        StoreError: `out` exists or cannot be written.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise ForeignDataError(f"{folder} is not a folder; give the one that holds case.json.gz")
    grid, status = _case(folder)
    there = tuple(s for s in SPLITS if _find(folder / s / "input.h5") is not None)
    chosen = there if splits is None else splits
    missing = [s for s in chosen if s not in there]
    if missing or not chosen:
        raise ForeignDataError(
            f"{folder} has no split {', '.join(missing) or 'at all'}; there: {', '.join(there) or 'none'}"
        )
    if problem is not None:
        check_fits(problem, grid)
    vary = _varying(folder, chosen, status) if problem is None else vary_of(problem)
    spans: dict[str, list[int]] = {}
    with ExitStack() as stack:
        intake: Intake | None = None
        done = 0
        for split in chosen:
            files = stack.enter_context(_open_split(folder, split))
            _check_shapes(files, grid, status, split)
            if intake is None:
                first = _Rows(files, slice(0, CHUNK), grid, status, problem or acopf(grid, vary=vary))
                linear = problem is None and _ignores_quadratic(grid, first)
                if linear:
                    grid = replace(grid, cost=grid.cost * np.array([0.0, 1.0, 1.0]))
                measured = problem or acopf(grid, vary=vary)
                intake = stack.enter_context(
                    Intake(measured, "pglearn", out, rounding=2.0**-24, progress=progress)
                )
                if linear:
                    intake.warnings.append(
                        "the stated objectives leave out the quadratic part of the costs, so these are "
                        "solutions of a simpler problem; the dataset's problem has linear costs to match"
                    )
            began = intake.rows
            total = len(files["input"]["pd"])
            for start in range(0, total, CHUNK):
                part = slice(start, min(start + CHUNK, total))
                _take(intake, split, _Rows(files, part, grid, status, intake.problem))
                done += min(CHUNK, total - start)
                intake.tell(done, None)
            spans[split] = [began, intake.rows]
        assert intake is not None
        if problem is None:
            problem = intake.covering(grid)
        return intake.finish(problem, {"splits": spans})


# ---- rows --------------------------------------------------------------------------------------------------


def _varying(
    folder: Path, splits: tuple[str, ...], status: Mapping[str, NDArray[np.bool_]]
) -> tuple[str, ...]:
    """Loads, and the statuses that differ from those of the case in some row."""
    found = {"branch": False, "generator": False}
    for split in splits:
        with _open_split(folder, split) as files:
            for name, kind in _STATUS.items():
                given = files["input"].get(f"{kind}_status")
                if given is not None and given.shape[1:] == status[kind].shape:
                    found[name] |= bool((np.asarray(given) != status[kind]).any())
    return in_order(found)


class _Rows:
    """A slice of a split, in float64."""

    def __init__(
        self,
        files: Mapping[str, Any],
        rows: slice,
        grid: Grid,
        status: Mapping[str, NDArray[np.bool_]],
        problem: Problem,
    ) -> None:
        def read(file: str, name: str) -> Array:
            return np.asarray(files[file][name][rows], dtype=np.float64)

        self.first = rows.start
        parts = {"pd": read("input", "pd"), "qd": read("input", "qd")}
        gen = status["gen"]
        va = read("primal", "va")
        va -= va[:, grid.reference[:1]]
        self.y = np.concatenate(
            [read("primal", "pg")[:, gen], read("primal", "qg")[:, gen], read("primal", "vm"), va], axis=1
        )
        self.stated = read("meta", "primal_objective_value")
        self.seconds = read("meta", "solve_time") if "solve_time" in files["meta"] else None
        words = [_word(value) for value in files["meta"]["termination_status"][rows]]
        self.outcome = np.array([_OUTCOMES.get(w, Outcome.NUMERICAL).value for w in words], dtype=np.int8)
        self.same = np.ones(len(parts["pd"]), dtype=bool)
        for name, kind in _STATUS.items():
            if f"{kind}_status" in files["input"]:
                usual = status[kind]
                given = np.asarray(files["input"][f"{kind}_status"][rows]) != 0
                known = ~usual if name in problem.inputs else np.full(len(usual), True)
                self.same &= (given == usual)[:, known].all(axis=1)
                parts[name] = given[:, usual].astype(np.float64)
        self.x = join_inputs(problem, parts)
        self.on = parts.get("generator", np.ones((len(self.x), grid.n_generators)))
        self.y[:, : 2 * grid.n_generators] *= np.concatenate([self.on, self.on], axis=1)


def _take(intake: Intake, split: str, rows: _Rows) -> None:
    names = [f"{split} row {rows.first + i}" for i in range(len(rows.x))]
    for i in np.flatnonzero(~rows.same):
        intake.flag(names[i], "it has other branches or generators in service than the problem lets vary")
    broken = rows.same & ~np.isfinite(rows.x).all(axis=1)
    for i in np.flatnonzero(broken):
        intake.flag(names[i], "its loads are not finite")
    keep = np.flatnonzero(rows.same & ~broken)
    seconds = None if rows.seconds is None else rows.seconds[keep]
    kept = [names[i] for i in keep]
    intake.add(kept, rows.x[keep], rows.y[keep], rows.stated[keep], rows.outcome[keep], seconds)


def _ignores_quadratic(grid: Grid, rows: _Rows) -> bool:
    """Whether the stated objectives fit the costs without their quadratic part, and not with it."""
    solved = rows.same & (rows.outcome == Outcome.OK.value) & np.isfinite(rows.y).all(axis=1)
    if not grid.cost[:, 0].any() or not solved.any():
        return False
    pg, stated = rows.y[solved, : grid.n_generators], rows.stated[solved]
    linear = pg @ grid.cost[:, 1] + rows.on[solved] @ grid.cost[:, 2]
    whole = linear + (pg * pg) @ grid.cost[:, 0]
    scale = np.maximum(np.abs(stated), 1.0)
    off_linear, off_whole = (float(np.median(np.abs(cost - stated) / scale)) for cost in (linear, whole))
    return off_linear <= OBJECTIVE < off_whole


def _word(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


# ---- files -------------------------------------------------------------------------------------------------


def _find(path: Path) -> Path | None:
    for candidate in (path, path.with_name(path.name + ".gz")):
        if candidate.is_file():
            return candidate
    return None


@contextmanager
def _open_split(folder: Path, split: str) -> Iterator[dict[str, Any]]:
    """The HDF5 files of a split; gzipped ones are unpacked to a temporary folder, for HDF5 must seek."""
    wanted = {"input": "input.h5", "primal": "ACOPF/primal.h5", "meta": "ACOPF/meta.h5"}
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="feasibly-")))
        files = {}
        for key, name in wanted.items():
            found = _find(folder / split / name)
            if found is None:
                raise ForeignDataError(f"{folder} has no {split}/{name} or {split}/{name}.gz")
            files[key] = stack.enter_context(_open_h5(found, scratch / f"{key}.h5"))
        yield files


@contextmanager
def _open_h5(path: Path, scratch: Path) -> Iterator[Any]:
    import h5py

    plain = path
    if path.suffix == ".gz":
        try:
            with gzip.open(path, "rb") as packed, scratch.open("wb") as unpacked:
                shutil.copyfileobj(packed, unpacked, 1 << 20)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise ForeignDataError(
                f"{path.name} is cut short or damaged ({error}); download it again"
            ) from None
        plain = scratch
    try:
        handle = h5py.File(plain, "r")
    except OSError as error:
        raise ForeignDataError(f"{path.name} cannot be read as HDF5 ({error}); download it again") from None
    with handle:
        yield handle


def _case(folder: Path) -> tuple[Grid, dict[str, NDArray[np.bool_]]]:
    found = _find(folder / "case.json")
    if found is None:
        raise ForeignDataError(f"{folder} has no case.json or case.json.gz")
    try:
        packed = found.read_bytes()
        data = json.loads(gzip.decompress(packed) if found.suffix == ".gz" else packed)["data"]
        return _grid(data)
    except (ValueError, KeyError, TypeError, IndexError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ForeignDataError(
            f"{found.name} is not a PGLearn case ({type(error).__name__}: {error})"
        ) from None


def _grid(data: Mapping[str, Any]) -> tuple[Grid, dict[str, NDArray[np.bool_]]]:
    """The grid of a case and which of its branches and generators are in service."""

    def floats(key: str) -> Array:
        return np.array([np.nan if v is None else v for v in data[key]], dtype=np.float64)

    on = {kind: np.array(data[f"{kind}_status"], dtype=bool) for kind in ("branch", "gen")}
    branch, gen = on["branch"], on["gen"]
    series = (floats("g") + 1j * floats("b"))[branch]
    impedance = 1.0 / series
    # The file has the four admittances of each branch; the tap follows from the one that holds it alone.
    ratio = -series / (floats("gtf") + 1j * floats("btf"))[branch]
    tap = np.abs(ratio)
    y_from = _clean((floats("gff") + 1j * floats("bff"))[branch] * tap**2 - series, series)
    y_to = _clean((floats("gtt") + 1j * floats("btt"))[branch] - series, series)
    gs, bs = floats("gs"), floats("bs")
    shunted = np.flatnonzero((gs != 0.0) | (bs != 0.0))
    rate = floats("smax")[branch]
    n = int(data["N"])
    arrays = {
        "bus_id": np.arange(1, n + 1),
        "vmin": floats("vmin"),
        "vmax": floats("vmax"),
        "reference": np.atleast_1d(np.array(data["ref_bus"], dtype=np.int64)) - 1,
        "gen_id": np.flatnonzero(gen) + 1,
        "gen_bus": _owners(data["bus_gens"], len(gen))[gen],
        "pmin": floats("pgmin")[gen],
        "pmax": floats("pgmax")[gen],
        "qmin": floats("qgmin")[gen],
        "qmax": floats("qgmax")[gen],
        "cost": np.stack([floats("c2"), floats("c1"), floats("c0")], axis=1)[gen],
        "load_id": np.arange(1, len(data["pd"]) + 1),
        "load_bus": _owners(data["bus_loads"], len(data["pd"])),
        "pd": floats("pd"),
        "qd": floats("qd"),
        "shunt_bus": shunted,
        "gs": gs[shunted],
        "bs": bs[shunted],
        "branch_id": np.flatnonzero(branch) + 1,
        "branch_from": np.array(data["bus_fr"], dtype=np.int64)[branch] - 1,
        "branch_to": np.array(data["bus_to"], dtype=np.int64)[branch] - 1,
        "r": impedance.real,
        "x": impedance.imag,
        "g_from": y_from.real,
        "b_from": y_from.imag,
        "g_to": y_to.real,
        "b_to": y_to.imag,
        "tap": tap,
        "shift": _clean(np.angle(ratio) + 0j, ratio).real,
        "rate": np.where(np.isfinite(rate) & (rate > 0.0), rate, np.inf),
        "current": np.full(int(branch.sum()), np.inf),
        "angmin": floats("dvamin")[branch],
        "angmax": floats("dvamax")[branch],
        "position": np.full((n, 2), np.nan),
    }
    name = str(data["case"]).removeprefix("pglib_opf_")
    grid = Grid.from_arrays(name, float(data["base_mva"]), arrays)
    check_branches(grid, "case.json")
    return grid, on


def _clean(difference: NDArray[np.complex128], scale: NDArray[Any]) -> NDArray[np.complex128]:
    """Zero where a difference of numbers as large as `scale` is mere rounding."""
    least = 1e-12 * np.abs(scale)
    real = np.where(np.abs(difference.real) < least, 0.0, difference.real)
    return real + 1j * np.where(np.abs(difference.imag) < least, 0.0, difference.imag)


def _owners(lists: Any, count: int) -> NDArray[np.int64]:
    """The bus of each element, from the elements of each bus (numbered from 1)."""
    bus = np.full(count, -1, dtype=np.int64)
    for i, members in enumerate(lists):
        for member in members:
            bus[int(member) - 1] = i
    if (bus < 0).any():
        raise ValueError(f"element {int(np.flatnonzero(bus < 0)[0]) + 1} stands at no bus")
    return bus


def _check_shapes(
    files: Mapping[str, Any], grid: Grid, status: Mapping[str, NDArray[np.bool_]], split: str
) -> None:
    generators = len(status["gen"])
    wanted: dict[str, dict[str, int | None]] = {
        "input": {"pd": grid.n_loads, "qd": grid.n_loads},
        "primal": {"pg": generators, "qg": generators, "vm": grid.n_buses, "va": grid.n_buses},
        "meta": {"primal_objective_value": None, "termination_status": None},
    }
    rows = None
    for file, names in wanted.items():
        for name, width in names.items():
            if name not in files[file]:
                raise ForeignDataError(f"{split}: the {file} file has no {name}")
            shape = files[file][name].shape
            rows = shape[0] if rows is None else rows
            if shape != ((rows,) if width is None else (rows, width)):
                expected = (rows,) if width is None else (rows, width)
                raise ForeignDataError(
                    f"{split}: {name} has shape {shape}, expected {expected} for this case"
                )
