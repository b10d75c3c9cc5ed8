"""What importers share: rows come in, are measured against the physics, and are kept, flagged or refused."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feasibly.data.dataset import Dataset, store_header
from feasibly.data.schema import CHUNK, Arrays, Provenance, sizes_of, versions_now
from feasibly.data.store import Builder
from feasibly.data.varied import covering
from feasibly.measure.metrics import measure_rows
from feasibly.problem.core import Problem
from feasibly.problem.errors import FeasiblyError
from feasibly.problem.grid import Grid
from feasibly.solve.outcome import Outcome

FEASIBILITY = 1e-4
"""A claimed solution may violate its constraints by this much (per unit), rounding of the file aside."""

OBJECTIVE = 1e-4
"""The objective computed here may differ from the stated one by this much, relatively."""

LISTED = 100
"""Flags kept in a report; the rest are counted."""

Array = NDArray[np.float64]


class ForeignDataError(FeasiblyError):
    """Data from elsewhere that cannot be used."""


@dataclass(frozen=True)
class Flag:
    """Something that was left out or is no label: where it stands in the source, and why."""

    where: str
    why: str


@dataclass(frozen=True)
class ImportReport:
    """What an import found. The worst figures are over the labels, in per unit and relative.

    `rows` are in the dataset, `labels` of them are solved and fit; `flagged` lists the first of `n_flagged`
    instances that were left out or are no labels.
    """

    source: str
    rows: int
    labels: int
    worst_equality: float
    worst_inequality: float
    worst_objective: float
    n_flagged: int
    flagged: tuple[Flag, ...]
    warnings: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {**self.__dict__, "flagged": [flag.__dict__ for flag in self.flagged]}


@dataclass(frozen=True)
class ImportProgress:
    """How far an import has come; `total` is `None` where the source does not say."""

    done: int
    total: int | None
    flagged: int


class Intake:
    """Takes rows of one grid, measures them, and keeps them in memory or in a store that appears at the end.

    Args:
        problem: measures the rows; `finish` may name another one of the same shape (other nominal loads).
        source: `opfdata` or `pglearn`.
        out: where to store, or `None`.
        rounding: the relative error of one stored number (2**-24 for float32); violations that rounding of
            this size explains are not held against a row.
    """

    def __init__(
        self,
        problem: Problem,
        source: str,
        out: str | os.PathLike[str] | None,
        *,
        rounding: float = 0.0,
        progress: Callable[[ImportProgress], None] | None = None,
    ) -> None:
        self.problem = problem
        self._source, self._rounding, self._progress = source, rounding, progress
        self._stack = ExitStack()
        self._builder: Builder | None = None
        if out is not None:
            self._path = Path(out)
            builder = Builder(self._path, sizes_of(problem), duals=False, block=CHUNK)
            self._builder = self._stack.enter_context(builder)
        self._kept: list[Arrays] = []
        self.rows = self.labels = self.n_flagged = 0
        self._flags: list[Flag] = []
        self.warnings: list[str] = []
        self._worst = np.zeros(3)
        self._low = np.full(problem.n_inputs, np.inf)
        self._high = np.full(problem.n_inputs, -np.inf)
        self._sum = np.zeros(problem.n_inputs)
        self._most_out = 0
        self._statuses = [problem.inputs[name] for name in ("branch", "generator") if name in problem.inputs]

    def flag(self, where: str, why: str) -> None:
        """Count and list something that does not fit."""
        self.n_flagged += 1
        if len(self._flags) < LISTED:
            self._flags.append(Flag(where, why))

    def tell(self, done: int, total: int | None) -> None:
        """Report progress."""
        if self._progress is not None:
            self._progress(ImportProgress(done, total, self.n_flagged))

    def add(
        self,
        names: Sequence[str],
        x: Array,
        y: Array,
        stated: Array,
        outcome: NDArray[np.int8],
        seconds: Array | None = None,
    ) -> None:
        """Take rows: `stated` is the objective in the source (NaN where it has none), `names` says where each stands
        there."""
        outcome = np.array(outcome, dtype=np.int8)
        claimed = np.flatnonzero(outcome == Outcome.OK.value)
        objective = np.full(len(x), np.nan)
        if len(claimed):
            bad, figures = self._measure(x[claimed], y[claimed], stated[claimed])
            objective[claimed] = figures.pop()
            for i, why in bad.items():
                self.flag(names[claimed[i]], why)
            outcome[claimed[list(bad)]] = Outcome.INACCURATE.value
            fit = np.setdiff1d(np.arange(len(claimed)), list(bad))
            if len(fit):
                self._worst = np.maximum(self._worst, [figure[fit].max() for figure in figures])
        solved = outcome == Outcome.OK.value
        arrays: Arrays = {
            "x": x,
            "y": np.where(solved[:, None], y, np.nan),
            "objective": np.where(solved, objective, np.nan),
            "outcome": outcome,
            "iterations": np.zeros(len(x), dtype=np.int32),
            "seconds": np.zeros(len(x)) if seconds is None else seconds,
        }
        self.rows += len(x)
        self.labels += int(solved.sum())
        if len(x):
            self._low = np.minimum(self._low, x.min(axis=0))
            self._high = np.maximum(self._high, x.max(axis=0))
            self._sum += x.sum(axis=0)
            out = sum(((x[:, part] == 0.0).sum(axis=1) for part in self._statuses), np.zeros(len(x)))
            self._most_out = max(self._most_out, int(out.max()))
        if self._builder is None:
            self._kept.append(arrays)
        else:
            self._builder.append(arrays)

    def _measure(self, x: Array, y: Array, stated: Array) -> tuple[dict[int, str], list[Array]]:
        """What is wrong with which row; then equality, inequality, objective difference, objective."""
        rows = measure_rows(self.problem, x, y)
        slack_equal, slack_unequal = self._explained(x, y)
        unstated = np.isnan(stated)
        stated = np.where(unstated, rows.objective, stated)
        difference = np.abs(rows.objective - stated) / np.maximum(np.abs(stated), 1.0)
        difference = np.where(np.isfinite(difference), difference, np.inf)
        bad = {}
        for i in range(len(x)):
            if not np.isfinite(y[i]).all():
                bad[i] = "its solution is not finite"
            elif not rows.max_eq[i] <= FEASIBILITY + slack_equal[i]:
                bad[i] = f"its power balance is off by {rows.max_eq[i]:.3g} p.u."
            elif not rows.max_ineq[i] <= FEASIBILITY + slack_unequal[i]:
                bad[i] = f"it exceeds a limit by {rows.max_ineq[i]:.3g} p.u."
            elif difference[i] > OBJECTIVE:
                bad[i] = f"its objective is {stated[i]:.6g} in the source and {rows.objective[i]:.6g} here"
        return bad, [rows.max_eq, rows.max_ineq, difference, rows.objective]

    def _explained(self, x: Array, y: Array) -> tuple[Array, Array]:
        """Ten times how far residuals move when every number moves by its rounding, at random."""
        if not self._rounding:
            return np.zeros(len(x)), np.zeros(len(x))
        signs = np.random.Generator(np.random.Philox(key=0)).choice([-1.0, 1.0], size=y.shape)
        moved = y * (1.0 + self._rounding * signs)
        equal = np.abs(self.problem.equalities(x, moved) - self.problem.equalities(x, y))
        unequal = np.abs(self.problem.violations(x, moved) - self.problem.violations(x, y))
        width = np.abs(y).max(axis=1, initial=0.0) * self._rounding
        return 10.0 * equal.max(axis=1, initial=0.0), 10.0 * (unequal.max(axis=1, initial=0.0) + width)

    # ---- what the rows say about the range of inputs ----------------------------------------------------

    def mean_input(self) -> Array:
        """The mean of the rows taken."""
        return self._sum / max(self.rows, 1)

    def covering(self, grid: Grid) -> Problem:
        """The problem of `grid` whose declared range covers every row taken."""
        if not self.rows:
            return self.problem
        return covering(self.problem, grid, self._low, self._high, self._most_out, self.warnings)

    def finish(self, problem: Problem, notes: Mapping[str, Any]) -> tuple[Dataset, ImportReport]:
        """The dataset and what was found on the way.

        Raises:
            ForeignDataError: not one row fits.
        """
        if not self.labels:
            first = f"; the first: {self._flags[0].where}: {self._flags[0].why}" if self._flags else ""
            raise ForeignDataError(f"no instance can be used as a label{first}")
        equality, inequality, objective = map(float, self._worst)
        if self._rounding and equality > FEASIBILITY:
            self.warnings.append(
                f"the source has single precision, whose rounding alone puts power balances off by up to "
                f"{equality:.1g} p.u.; solve the inputs anew for labels that are exact"
            )
        report = ImportReport(
            source=self._source,
            rows=self.rows,
            labels=self.labels,
            worst_equality=equality,
            worst_inequality=inequality,
            worst_objective=objective,
            n_flagged=self.n_flagged,
            flagged=tuple(self._flags),
            warnings=tuple(self.warnings),
        )
        found = {**notes, "report": report.as_dict()}
        provenance = Provenance(self._source, problem.fingerprint, versions=versions_now(), notes=found)
        if self._builder is None:
            columns = {name: np.concatenate([part[name] for part in self._kept]) for name in self._kept[0]}
            return Dataset.from_columns(problem, columns, provenance), report
        self._builder.publish(*store_header(problem, provenance))
        return Dataset.open(self._path, problem), report

    def __enter__(self) -> Intake:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()  # an unfinished store vanishes


def check_fits(problem: Problem, grid: Grid) -> None:
    """Refuse a problem that cannot be that of `grid` by its sizes; the residuals judge the rest."""
    sizes = {"branch": grid.n_branches, "generator": grid.n_generators}
    loads = sum(part.stop - part.start for name, part in problem.inputs.items() if name in ("pd", "qd"))
    mine = [loads, problem.n_outputs]
    mine += [part.stop - part.start for name, part in problem.inputs.items() if name in sizes]
    theirs = [2 * grid.n_loads, 2 * grid.n_generators + 2 * grid.n_buses]
    theirs += [sizes[name] for name in problem.inputs if name in sizes]
    if mine != theirs:
        raise ForeignDataError(f"the problem {problem.name!r} has {_sizes(mine)}, the data {_sizes(theirs)}")


def _sizes(found: Sequence[int]) -> str:
    more = f" and statuses of {' and '.join(map(str, found[2:]))}" if len(found) > 2 else ""
    return f"{found[0]} inputs for loads and {found[1]} outputs{more}"


def with_loads(grid: Grid, nominal: Array) -> Grid:
    """The same grid with other nominal loads."""
    n = grid.n_loads
    return replace(grid, pd=nominal[:n], qd=nominal[n : 2 * n])


def check_branches(grid: Grid, name: str) -> None:
    """Refuse what the equations cannot hold."""
    bad = np.flatnonzero((grid.r == 0.0) & (grid.x == 0.0))
    if len(bad):
        raise ForeignDataError(f"{name}: the impedance of branch {int(bad[0]) + 1} is zero")
    if not len(grid.reference):
        raise ForeignDataError(f"{name}: no bus is a reference")
