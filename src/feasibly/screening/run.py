"""Screening: a profile crossed with outages, answered in batches by a proxy."""

from __future__ import annotations

import functools
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feasibly.answer.record import AnswerOutcome
from feasibly.data.engines import Answered, Engine, RowBlock, Work, open_workers
from feasibly.problem.errors import FeasiblyError
from feasibly.problem.families import grid_of
from feasibly.problem.flows import compute_flows
from feasibly.proxy import Proxy
from feasibly.screening.plan import ScreeningPlan, make_plan
from feasibly.screening.store import Store

BATCH = 4096
"""Rows answered at a time, unless told; a block is as many whole hours."""


@dataclass(frozen=True)
class ScreenProgress:
    """How far a screening has come, in hours; `resumed` of them were there before."""

    done: int
    total: int
    resumed: int
    cells: int
    seconds: float

    @property
    def seconds_left(self) -> float | None:
        """At the rate so far; `None` while unknown."""
        new = self.done - self.resumed
        return (self.total - self.done) * self.seconds / new if new else None


class ScreenInterrupt(KeyboardInterrupt):
    """Ctrl-C while screening; the same call goes on where it stopped."""

    def __init__(self, path: Path, done: int, total: int) -> None:
        super().__init__(
            f"interrupted: {done} of {total} hours are in {path}; run the same command again for the rest"
        )


class Screening:
    """A result: every array with hours first, NaN or -1 where nothing was answered yet.

    `cost`, `outcome` (values of `AnswerOutcome`), `violation`, `lowest_voltage`, `highest_voltage` and `loading` are
    `(hours, outages)`, the first outage being none at all; `bus_lowest`, `bus_highest` and `branch_loading` the worst
    over all outages, `(hours, elements)`.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._store = Store.open(self.path)
        self.question: dict[str, Any] = self._store.attributes["question"]
        self.outages: tuple[str, ...] = tuple(self.question["outages"])
        self.buses: tuple[int, ...] = tuple(self.question["buses"])
        self.branches: tuple[str, ...] = tuple(self.question["branches"])

    def __getattr__(self, name: str) -> NDArray[Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self._store.read(name)
        except KeyError:
            raise AttributeError(f"a screening has no {name!r}") from None

    @property
    def hours(self) -> int:
        """How many there are."""
        return int(self._store.attributes["hour"])

    @property
    def finished(self) -> bool:
        """Whether every hour is answered."""
        return bool(self._store.done.all())

    def outcomes(self) -> dict[str, int]:
        """How many cells ended how, by name."""
        codes, counts = np.unique(self.outcome, return_counts=True)
        names = {kind.value: kind.name for kind in AnswerOutcome} | {-1: "UNANSWERED"}
        return {names[int(code)]: int(count) for code, count in zip(codes, counts, strict=True)}

    def write_page(self, path: str | os.PathLike[str]) -> None:
        """The summary as one HTML file."""
        from feasibly.screening.page import render

        Path(path).write_text(render(self), encoding="utf-8")

    def __repr__(self) -> str:
        return f"Screening({str(self.path)!r}, {self.hours} hours, {len(self.outages) - 1} outages)"


def screen(
    proxy: Proxy,
    profile: Any,
    outages: str | Sequence[str] = "all",
    out: str | os.PathLike[str] = "screening.zarr",
    *,
    answer: str = "auto",
    tolerance: float = 1e-4,
    batch: int = BATCH,
    full: bool = False,
    jobs: int = 1,
    progress: Callable[[ScreenProgress], None] | None = None,
) -> Screening:
    """Answer every hour of `profile` with everything in service and under every single outage.

    Blocks of hours are stored as they are answered; the same call, after any interruption, answers what is missing.

    Args:
        proxy: trained on a grid with statuses among its inputs (`vary=("load", "branch", "generator")`).
        profile: an hour a row. Columns by name (a mapping or a pandas table): every load (`pd_12`, `qd_12`, per unit)
            or one `factor` of all nominal loads, any cost or rating, and `hour` or `time`, checked for gaps; or an
            array of the loads in the problem's order, or of all inputs.
        outages: `all`, `branches`, `generators`, or names of elements as in `problem.input_names`.
        out: the result, a folder.
        answer, tolerance: how to answer; see `Proxy.predict`.
        batch: rows to answer at a time.
        full: keep every answer too, not only its cost, outcome, violation and worst elements.
        jobs: processes to answer in; each has a copy of the model.
        progress: called with a `ScreenProgress` after every block.

    Raises:
        FeasiblyError: the profile, the outages or the model do not fit together.
        StoreError: `out` holds something else.
        ScreenInterrupt: Ctrl-C.
    """
    if int(batch) != batch or batch < 1:
        raise FeasiblyError(f"batch must be a whole number of rows, at least 1, not {batch}")
    if int(jobs) != jobs or jobs < 1:
        raise FeasiblyError(f"jobs must be a whole number of processes, at least 1, not {jobs}")
    plan = make_plan(proxy.problem, profile, outages)
    hours, count = len(plan.hours), len(plan.names)
    shared_out = -(-hours // (2 * int(jobs)))  # so that no process is left without a block
    block = max(1, min(int(batch) // count, shared_out))
    ends = zip(plan.grid.branch_from, plan.grid.branch_to, strict=True)
    header = {
        "plan": plan.digest, "model": proxy.digest(), "answer": answer, "tolerance": float(tolerance),
        "full": bool(full), "problem": proxy.problem.name, "outages": list(plan.names),
        "buses": plan.grid.bus_id.tolist(),
        "branches": [f"{plan.grid.bus_id[a]}-{plan.grid.bus_id[b]}" for a, b in ends],
    }  # fmt: skip
    sizes = {
        "hour": hours, "outage": count, "bus": plan.grid.n_buses, "branch": plan.grid.n_branches,
        "output": proxy.problem.n_outputs,
    }  # fmt: skip
    path = Path(out)
    store = Store.create_or_resume(path, header, sizes, block, full=full)
    try:
        ask = Asking(len(plan.names), answer, tolerance, full)
        with _workers(proxy, ask, min(int(jobs), int((~store.done).sum()))) as engine:
            _answer(plan, store, engine, progress)
    finally:
        store.close()
    return Screening(path)


_ALONE = {"PJRT_NPROC": "1", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
"""In a process that is one of several, unless the user says otherwise: one thread of JAX, no accelerator for itself."""


@dataclass(frozen=True)
class Asking:
    """How cells are answered and what of them is kept."""

    outages: int
    """Cells of an hour."""
    answer: str
    tolerance: float
    full: bool


@contextmanager
def _workers(proxy: Proxy, ask: Asking, jobs: int) -> Iterator[Engine]:
    """What answers blocks of cells: this process, or others that open a copy of the model."""
    if jobs <= 1:
        yield _Here(proxy, ask)
        return
    with tempfile.TemporaryDirectory(prefix="feasibly-screen-") as folder:
        copy = str(Path(folder) / "model")
        proxy.save(copy)
        with open_workers(_open_and_answer, (copy, ask), jobs, _ALONE) as engine:
            yield engine


class _Here:
    jobs = 1

    def __init__(self, proxy: Proxy, ask: Asking) -> None:
        self._work = functools.partial(answer_block, proxy, ask)

    def run(self, tasks: Iterable[RowBlock], window: int | None = None) -> Iterator[Answered]:
        for task in tasks:
            yield task, self._work(task.x)


def _open_and_answer(model: str, ask: Asking) -> Work:
    """What a worker process does."""
    return functools.partial(answer_block, Proxy.load(model), ask)


def _answer(
    plan: ScreeningPlan, store: Store, engine: Engine, progress: Callable[[ScreenProgress], None] | None
) -> None:
    hours, count, block = len(plan.hours), len(plan.names), store.block
    there = store.done
    before = sum(min(block, hours - i * block) for i in np.flatnonzero(there).tolist())
    done, began = before, time.perf_counter()
    missing = (
        RowBlock(index, plan.rows(index * block, min((index + 1) * block, hours)))
        for index in np.flatnonzero(~there).tolist()
    )
    try:
        for task, arrays in engine.run(missing):
            if arrays is None:
                raise FeasiblyError(
                    f"hours from {task.index * block} on could not be answered: the processes that tried died, "
                    f"perhaps for want of memory; {done} of {hours} hours are in {store.path}. Try fewer jobs"
                )
            store.write(task.index, arrays)
            done += len(task.x) // count
            if progress is not None:
                spent = time.perf_counter() - began
                progress(ScreenProgress(done, hours, before, (done - before) * count, spent))
    except KeyboardInterrupt:
        raise ScreenInterrupt(store.path, done, hours) from None


def answer_block(proxy: Proxy, ask: Asking, x: NDArray[np.float64]) -> dict[str, NDArray[Any]]:
    """Everything that is stored of some hours; in `x`, every outage has all of them before the next has any."""
    grid = grid_of(proxy.problem)
    assert grid is not None  # a plan was made of it
    found = proxy.predict(x, ask.answer, tolerance=ask.tolerance)
    loadings = compute_flows(proxy.problem, grid, x, found.y).loading / 100.0
    voltages = found.y[:, proxy.problem.blocks["vm"]]
    shape = (ask.outages, len(x) // ask.outages)

    def cells(values: NDArray[Any]) -> NDArray[Any]:
        return values.reshape(*shape, *values.shape[1:]).swapaxes(0, 1)

    known = np.asarray(np.isfinite(found.y).all(axis=1))
    vm, loading = (np.where(known[:, None], part, np.nan) for part in (voltages, np.nan_to_num(loadings)))
    low, high = (np.where(known[:, None], vm, fill) for fill in (np.inf, -np.inf))
    load = np.where(known[:, None], loading, -np.inf)
    rows = np.arange(len(x))
    weakest, strongest, fullest = low.argmin(axis=1), high.argmax(axis=1), load.argmax(axis=1)
    arrays = {
        "cost": np.where(known, found.objective, np.nan),
        "outcome": np.array([outcome.value for outcome in found.outcome], dtype=np.int8),
        "violation": np.where(known, np.maximum(found.max_equality, found.max_inequality), np.nan),
        "lowest_voltage": vm[rows, weakest],
        "lowest_voltage_bus": np.where(known, weakest, -1),
        "highest_voltage": vm[rows, strongest],
        "highest_voltage_bus": np.where(known, strongest, -1),
        "loading": loading[rows, fullest],
        "loading_branch": np.where(known, fullest, -1),
    }
    arrays = {name: cells(values) for name, values in arrays.items()}
    for name, values, worst in (
        ("bus_lowest", low, np.min), ("bus_highest", high, np.max), ("branch_loading", load, np.max),
    ):  # fmt: skip
        over = worst(cells(values), axis=1)
        arrays[name] = np.where(np.isfinite(over), over, np.nan)
    if ask.full:
        arrays["y"] = cells(found.y)
    return arrays
