"""Labels: inputs in, solved rows out, on one core or many machines, in memory or straight into a store."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from feasibly.data.dataset import Dataset, LabelError, block_rows, store_header
from feasibly.data.engines import Engine, RowBlock, check_engine, open_engine
from feasibly.data.schema import (
    ANSWER,
    DUALS,
    OUTCOME,
    PENDING,
    Arrays,
    Provenance,
    StoreError,
    sizes_of,
    versions_now,
)
from feasibly.data.store import Builder, Writer
from feasibly.problem.core import Problem
from feasibly.problem.drawing import Refusal
from feasibly.problem.sampling import FACTOR, NOISE, sample
from feasibly.solve.outcome import Outcome
from feasibly.solve.records import SolverOptions


@dataclass(frozen=True)
class Progress:
    """How far labelling has come; `resumed` of the `done` rows were there before."""

    stage: str
    """`translating` while the problem is made ready for the solver, then `solving`."""
    done: int
    total: int
    failed: int
    resumed: int
    seconds: float

    @property
    def rate(self) -> float:
        """Rows a second, those found in the store left out; 0 while unknown."""
        return (self.done - self.resumed) / self.seconds if self.seconds > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        """At this rate; `None` while unknown."""
        return (self.total - self.done) / self.rate if self.rate > 0 else None


class LabelInterrupt(KeyboardInterrupt):
    """Ctrl-C while labelling. `data` holds what was solved; so does a store, which the same call resumes."""

    def __init__(self, data: Dataset) -> None:
        self.data = data
        done = int((data.outcome != PENDING).sum())
        where = (
            ""
            if data.path is None
            else f" and stored in {data.path}; run the same command again for the rest"
        )
        super().__init__(f"interrupted: {done} of {len(data)} rows are solved{where}")


def label(
    problem: Problem,
    x: ArrayLike | None = None,
    *,
    count: int | None = None,
    seed: int = 0,
    spread: float | None = None,
    design: str = "uniform",
    factor: tuple[float, float] | None = None,
    noise: float | None = None,
    jobs: int | None = None,
    engine: str = "local",
    address: str | None = None,
    out: str | os.PathLike[str] | None = None,
    options: SolverOptions | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Dataset:
    """Solve the problem for every row of `x`, or for `count` drawn rows.

    A row that cannot be solved never stops the run: it keeps its outcome (`data.outcomes()` counts them,
    `data.raise_if_failed()` lists them). Rows are the same to the last bit, `seconds` aside, whatever the
    engine and the number of workers. With `out`, blocks of rows are stored as they finish, and the same call
    run again, after any interruption, solves what is missing and nothing else; a larger `count` (or more rows
    in `x`) extends the store.

    Args:
        problem: what to solve.
        x: inputs, `(rows, n_inputs)`; or leave it out and give `count`.
        count, seed, spread, design, factor, noise: how to draw inputs; see `sample`.
        jobs: worker processes on this machine; all cores when not given, and 1 solves in this process.
        engine: `local`, `dask` or `ray`.
        address: an existing Dask or Ray cluster; one is started here when not given.
        out: a store to create, resume or extend.
        options: how rows are solved.
        progress: called with a `Progress` after every block.

    Raises:
        LabelError: an input is not finite; its row is named.
        StoreError: `out` holds something else, is being written by another process, or the disk is full.
        EngineError, MissingExtraError: the engine is not to be had.
        TranslationError: the problem cannot be translated for the solver.
        LabelInterrupt: Ctrl-C, with what was solved.

    Examples:
        With the problem of `fit`'s example:

        >>> solved = fb.label(problem, [[0.25, 1.5], [0.5, -1.0]], jobs=1)
        >>> solved.outcomes()
        {'OK': 2}
        >>> abs(solved.y - [[0.25, 1.0], [0.5, 0.0]]).max() < 1e-6
        np.True_
    """
    check_engine(engine, jobs=jobs, address=address)
    options = options or SolverOptions()
    drawing: dict[str, Any] = {}
    if x is None:
        if count is None:
            raise LabelError("give the inputs x, or count, the number of rows to draw")
        x = sample(problem, count, seed, spread=spread, design=design, factor=factor, noise=noise)
        drawing = {"seed": seed, "design": design}
        if design == "correlated":
            low, high = factor or FACTOR
            drawing |= {
                "factor": (float(low), float(high)),
                "noise": float(NOISE if noise is None else noise),
            }
        else:
            drawing["spread"] = problem.spread if spread is None else float(spread)
    elif count is not None:
        raise LabelError("give the inputs x or count, not both")
    rows = _checked(problem, x)
    if problem.drawing is not None and problem.spec is not None:
        drawing["notes"] = {"vary": problem.spec["vary"], "draws": asdict(problem.spec["draws"])}
    provenance = Provenance(
        "label", problem.fingerprint, **drawing, solver=asdict(options), versions=versions_now()
    )
    sink: _Sink = (
        _Memory(problem, rows, provenance) if out is None else _Stored(problem, rows, provenance, Path(out))
    )
    try:
        _fill(sink, problem, rows, options, progress, jobs, engine, address)
    except KeyboardInterrupt:
        raise LabelInterrupt(sink.finish()) from None
    except BaseException:
        sink.abandon()
        raise
    return sink.finish()


def _checked(problem: Problem, x: ArrayLike) -> NDArray[np.float64]:
    rows, _ = problem.check_rows(x)
    bad = np.flatnonzero(~np.isfinite(rows).all(axis=1))
    if len(bad):
        listed = ", ".join(map(str, bad[:10])) + (f" and {len(bad) - 10} more" if len(bad) > 10 else "")
        raise LabelError(f"inputs must be finite; mend or drop rows {listed}")
    return rows


def _fill(
    sink: _Sink,
    problem: Problem,
    x: NDArray[np.float64],
    options: SolverOptions,
    progress: Callable[[Progress], None] | None,
    jobs: int | None,
    engine: str,
    address: str | None,
) -> None:
    """Solve the blocks that `sink` lacks."""
    todo, block = sink.missing(), sink.block
    if not todo:
        return
    resumed = int((sink.outcome != PENDING).sum())
    began = time.perf_counter()

    def tell(stage: str) -> None:
        if progress is not None:
            outcome = sink.outcome[: len(x)]
            done = int((outcome != PENDING).sum())
            failed = int((outcome > Outcome.OK.value).sum())
            progress(Progress(stage, done, len(x), failed, min(resumed, done), time.perf_counter() - began))

    tell("translating")
    from feasibly.solve.nlp import Solver

    # Rows that cannot have an answer are not solved: the solver passes over what is not finite.
    refused = problem.refused(x)
    asked = x
    if refused:
        asked = x.copy()
        asked[list(refused)] = np.nan

    payload = Solver.build(problem, options).serialise()
    here = jobs
    if engine == "local":
        import loky

        here = min(jobs or loky.cpu_count(), len(todo))
    with open_engine(engine, payload, jobs=here, address=address) as workers:
        began = time.perf_counter()
        died = []
        tasks = (RowBlock(i, asked[i * block : (i + 1) * block]) for i in todo)
        for task, arrays in workers.run(tasks):
            if arrays is None:
                died.append(task)
                continue
            sink.write(task.index, _judged(arrays, refused, task.index * block))
            tell("solving")
        for task in died:
            arrays = _row_by_row(workers, task, sizes_of(problem))
            sink.write(task.index, _judged(arrays, refused, task.index * block))
            tell("solving")


def _judged(arrays: Arrays, refused: Mapping[int, Refusal], first: int) -> Arrays:
    """A block from row `first` on, with the outcomes that were known beforehand."""
    outcome = arrays[OUTCOME.name]
    for i in range(len(outcome)):
        if first + i in refused:
            outcome[i] = Outcome[refused[first + i].kind.upper()].value
    return arrays


def _row_by_row(workers: Engine, task: RowBlock, sizes: Mapping[str, int]) -> Arrays:
    """A block that kills its worker, one row at a time: only the rows to blame are lost."""
    found: dict[int, Arrays | None] = {}
    singles: Iterable[RowBlock] = (RowBlock(i, task.x[i : i + 1]) for i in range(len(task.x)))
    for single, arrays in workers.run(singles, window=1):
        found[single.index] = arrays
    fields = (*ANSWER, *DUALS, OUTCOME)
    block = {field.name: field.empty(len(task.x), sizes) for field in fields}
    block[OUTCOME.name][:] = Outcome.CRASHED.value
    for i, arrays in found.items():
        if arrays is not None:
            for field in fields:
                block[field.name][i] = arrays[field.name][0]
    return block


# ---- where rows go -----------------------------------------------------------------------------------------


class _Sink(Protocol):
    block: int

    @property
    def outcome(self) -> NDArray[np.int8]: ...

    def missing(self) -> list[int]:
        """Blocks to solve."""

    def write(self, index: int, arrays: Arrays) -> None: ...

    def finish(self) -> Dataset: ...

    def abandon(self) -> None: ...


class _Memory:
    """Rows kept in arrays."""

    def __init__(self, problem: Problem, x: NDArray[np.float64], provenance: Provenance) -> None:
        self._problem, self._provenance = problem, provenance
        self.block = block_rows(problem)
        sizes = sizes_of(problem)
        self._arrays: Arrays = {f.name: f.empty(len(x), sizes) for f in (*ANSWER, *DUALS, OUTCOME)}
        self._arrays["x"] = x

    @property
    def outcome(self) -> NDArray[np.int8]:
        return self._arrays[OUTCOME.name]

    def missing(self) -> list[int]:
        return list(range(-(-len(self.outcome) // self.block)))

    def write(self, index: int, arrays: Arrays) -> None:
        rows = slice(index * self.block, index * self.block + len(arrays[OUTCOME.name]))
        for name, values in arrays.items():
            self._arrays[name][rows] = values

    def finish(self) -> Dataset:
        return Dataset.from_columns(self._problem, self._arrays, self._provenance)

    def abandon(self) -> None:
        """Nothing to let go of."""


class _Stored:
    """Rows written to a store as they come: a new one, or one that lacks some of them."""

    def __init__(self, problem: Problem, x: NDArray[np.float64], provenance: Provenance, path: Path) -> None:
        self._problem, self._asked = problem, len(x)
        if not (path / "zarr.json").exists():
            _create(problem, x, provenance, path)
        self._writer = Writer(path)
        self.block = self._writer.block
        try:
            _check_same(self._writer, problem, x, provenance)
            if len(x) > len(self._writer):
                self._writer.extend(x[len(self._writer) :])
            self._missing = self._find_missing(self._writer.sound_blocks())
            if self._missing:
                _note_versions(self._writer, provenance)
        except BaseException:
            self._writer.close()
            raise

    @property
    def outcome(self) -> NDArray[np.int8]:
        return self._writer.outcome

    def missing(self) -> list[int]:
        return self._missing

    def _find_missing(self, sound: set[int]) -> list[int]:
        crashed = np.unique(np.flatnonzero(self.outcome == Outcome.CRASHED.value) // self.block)
        good = sound.difference(crashed.tolist())
        missing = [i for i in range(-(-self._asked // self.block)) if i not in good]
        for index in missing:
            if (self.outcome[self._writer.rows(index)] != PENDING).all():
                self._writer.forget(index)  # damaged or crashed: nobody may read it as solved meanwhile
        return missing

    def write(self, index: int, arrays: Arrays) -> None:
        self._writer.write(index, arrays)

    def finish(self) -> Dataset:
        self._writer.close()
        return Dataset.open(self._writer.path, self._problem)

    def abandon(self) -> None:
        self._writer.close()


def _create(problem: Problem, x: NDArray[np.float64], provenance: Provenance, path: Path) -> None:
    with Builder(path, sizes_of(problem), duals=True, block=block_rows(problem)) as builder:
        builder.append({"x": x})
        builder.publish(*store_header(problem, provenance))


def _check_same(writer: Writer, problem: Problem, x: NDArray[np.float64], asked: Provenance) -> None:
    """A store is resumed or extended only by the very inputs, problem and options that began it."""
    path, stored = writer.path, writer.attributes["problem"]
    if stored["fingerprint"] != problem.fingerprint:
        raise StoreError(
            f"{path} holds rows of another problem ({stored['name']!r}, not {problem.name!r}); "
            "choose another path"
        )
    had = Provenance.read(writer.attributes["provenance"])
    if had.source != "label":
        raise StoreError(
            f"{path} holds rows from elsewhere ({had.source}), not solved here; choose another path"
        )
    options = {key: (had.solver.get(key), value) for key, value in asked.solver.items()}
    changed = {key: pair for key, pair in options.items() if pair[0] != pair[1]}
    if changed:
        raise StoreError(
            f"{path} was made with other solver options ({_differences(changed)}); choose another path"
        )
    damaged = writer.damaged_inputs()
    shared = min(len(x), len(writer))
    blocks = [i for i in range(-(-shared // writer.block)) if i not in damaged]
    ends = [slice(i * writer.block, min((i + 1) * writer.block, shared)) for i in blocks]
    if not all(np.array_equal(writer.read("x", rows), x[rows]) for rows in ends):
        keys = ("seed", "spread", "design", "factor", "noise")
        drawn = {key: (getattr(had, key), getattr(asked, key)) for key in keys}
        why = _differences({key: pair for key, pair in drawn.items() if pair[0] != pair[1]})
        raise StoreError(f"{path} holds other inputs ({why or 'the rows differ'}); choose another path")
    for index in sorted(damaged):
        if writer.rows(index).stop <= len(x):
            writer.mend_inputs(index, x[writer.rows(index)])


def _note_versions(writer: Writer, asked: Provenance) -> None:
    """Rows solved by other versions agree to the solver's tolerance, not to the last bit: say which were at work."""
    had = Provenance.read(writer.attributes["provenance"])
    known = [had.versions, *had.notes.get("later_versions", [])]
    if asked.versions not in known:
        writer.note("later_versions", [*known[1:], dict(asked.versions)])


def _differences(changed: Mapping[str, tuple[Any, Any]]) -> str:
    return ", ".join(f"{key} {had}, now {now}" for key, (had, now) in changed.items())
