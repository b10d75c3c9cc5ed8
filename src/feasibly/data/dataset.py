"""The rows of a problem and what is known of each: drawn, solved, failed or still to do."""

from __future__ import annotations

import functools
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from feasibly.data.reading import open_frame, read_values, rebuild_stored
from feasibly.data.schema import (
    ALL,
    CHUNK,
    DUALS,
    LARGEST_BLOCK,
    OUTCOME,
    PENDING,
    Provenance,
    StoreError,
    X,
    sizes_of,
    stored_fields,
    versions_now,
)
from feasibly.data.split import VALIDATION_SHARE, Keys, Split, first_of_each, row_keys, split_rows
from feasibly.data.store import Builder
from feasibly.problem.core import Problem
from feasibly.problem.errors import FeasiblyError
from feasibly.problem.families import describe
from feasibly.problem.point import Duals
from feasibly.solve.outcome import Outcome

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

Array = NDArray[np.float64]


class LabelError(FeasiblyError):
    """Rows that could not be solved, or inputs that cannot be."""


class Dataset:
    """Rows of one problem. A row is a draw: one that cannot be solved keeps its outcome and is no label.

    Made by `label`, `Dataset.from_arrays`, `Dataset.open` or an importer. Arrays are read when asked for.
    `x` is `(rows, n_inputs)`, `y` `(rows, n_outputs)`, the rest `(rows,)`; NaN where a row has no answer.

    Attributes:
        problem: what the rows are rows of.
        provenance: where they came from.
        path: the store behind them, or `None`.
    """

    def __init__(
        self, problem: Problem, frame: xr.Dataset, provenance: Provenance, path: Path | None = None
    ) -> None:
        self.problem = problem
        self.provenance = provenance
        self.path = path
        self._frame = frame

    # ---- making ----------------------------------------------------------------------------------------

    @classmethod
    def from_arrays(cls, problem: Problem, x: ArrayLike, y: ArrayLike) -> Dataset:
        """Labels from elsewhere: inputs `(rows, n_inputs)` and answers `(rows, n_outputs)`.

        The objective is computed. A row whose `y` or objective is not finite is kept as unsolved, one whose
        `x` is not finite as such; neither is a label. Whether the answers are feasible or optimal is not
        checked here: `evaluate` measures it.

        Raises:
            ProblemError: the shapes do not fit the problem.
        """
        x, y = problem.check_rows(x, y)
        assert isinstance(x, np.ndarray)
        assert isinstance(y, np.ndarray)
        fine = np.isfinite(x).all(axis=1) & np.isfinite(y).all(axis=1)
        objective = np.full(len(x), np.nan)
        objective[fine] = problem.objectives(x[fine], y[fine])
        fine &= np.isfinite(objective)
        outcome = np.where(fine, Outcome.OK.value, PENDING)
        outcome[~np.isfinite(x).all(axis=1)] = Outcome.NOT_FINITE_INPUT.value
        provenance = Provenance("arrays", problem.fingerprint, versions=versions_now())
        arrays = {"x": x, "y": np.where(fine[:, None], y, np.nan), "objective": objective, "outcome": outcome}
        return cls.from_columns(problem, arrays, provenance)

    @classmethod
    def from_columns(
        cls, problem: Problem, arrays: Mapping[str, NDArray[Any]], provenance: Provenance
    ) -> Dataset:
        """A dataset in memory from arrays named as in a store; those left out are empty."""
        import xarray as xr

        sizes, rows = sizes_of(problem), len(arrays["x"])
        fields = stored_fields(sizes, duals="dual_lower" in arrays)
        columns = {}
        for field in fields:
            given = arrays.get(field.name)
            values = field.empty(rows, sizes) if given is None else np.array(given, dtype=field.dtype)
            columns[field.name] = (["row"] if field.dimension is None else ["row", field.dimension], values)
        frame = xr.Dataset(columns, coords={"row": np.arange(rows)})
        return cls(problem, frame, provenance)

    @classmethod
    def open(cls, path: str | os.PathLike[str], problem: Problem | None = None) -> Dataset:
        """Open a store. A built-in family comes back by itself; your own problem is passed in and checked.

        Raises:
            StoreError: there is no store, it is damaged, newer than this version, or of another problem.
        """
        where = Path(path)
        frame = open_frame(where)
        stored = frame.attrs["problem"]
        if problem is None:
            if stored["family"] is None:
                raise StoreError(
                    f"{where} holds rows of a problem of your own, {stored['name']!r}; pass it: "
                    "Dataset.open(path, problem=problem)"
                )
            problem = rebuild_stored(stored, where)
        if problem.fingerprint != stored["fingerprint"]:
            raise StoreError(
                f"{where} holds rows of another problem ({stored['name']!r}, fingerprint "
                f"{stored['fingerprint'][:8]}) than {problem.name!r} ({problem.fingerprint[:8]})"
            )
        frame = frame.assign_coords(row=np.arange(frame.sizes["row"]))
        return cls(problem, frame, Provenance.read(frame.attrs["provenance"]), where)

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write a store that `open` reads. It appears whole or not at all.

        Raises:
            StoreError: something is there already (pass `overwrite=True` to replace a dataset), the disk is
                full, or another process is writing there.
        """
        where = Path(path)
        if overwrite and self.path is not None and where.exists() and where.samefile(self.path):
            raise StoreError(f"{where} is the store these rows are read from; choose another path")
        arrays = {field.name: self._column(field.name) for field in ALL if field.name in self._frame}
        block = block_rows(self.problem) if self.provenance.source == "label" else CHUNK
        with Builder(
            where, sizes_of(self.problem), duals=self.duals is not None, block=block, overwrite=overwrite
        ) as builder:
            builder.append(arrays)
            attributes, problem_arrays = store_header(self.problem, self.provenance)
            builder.publish(attributes, problem_arrays)

    # ---- columns ---------------------------------------------------------------------------------------

    def _column(self, name: str) -> NDArray[Any]:
        values = read_values(self._frame, name, self.path)
        values.setflags(write=False)
        return values

    def _answers(self, name: str) -> NDArray[Any]:
        values = self._column(name)
        if self.path is not None and not np.isfinite(values[self.solved]).all():
            raise StoreError(f"{self.path} is damaged: solved rows lack their {name}")
        return values

    @functools.cached_property
    def x(self) -> Array:
        """Inputs."""
        return self._column(X.name)

    @functools.cached_property
    def y(self) -> Array:
        """Solutions."""
        return self._answers("y")

    @functools.cached_property
    def objective(self) -> Array:
        """The cost of each solution."""
        return self._answers("objective")

    @functools.cached_property
    def outcome(self) -> NDArray[np.int8]:
        """What became of each row: the value of an `Outcome`, or `PENDING` (-1); `outcome_names` has them by name."""
        return self._column(OUTCOME.name)

    @functools.cached_property
    def iterations(self) -> NDArray[np.int32]:
        """Solver iterations, all attempts together."""
        return self._column("iterations")

    @functools.cached_property
    def seconds(self) -> Array:
        """Wall-clock seconds the solver took."""
        return self._column("seconds")

    @functools.cached_property
    def duals(self) -> Duals | None:
        """Multipliers, or `None` where the rows came without any."""
        if "dual_lower" not in self._frame:
            return None
        sizes = sizes_of(self.problem)
        found = {}
        for field in DUALS:
            there = field.name in self._frame
            found[field.name.removeprefix("dual_")] = (
                self._answers(field.name) if there else field.empty(len(self), sizes)
            )
        return Duals(**found)

    def to_xarray(self) -> xr.Dataset:
        """The same as an xarray dataset, by the problem's names; outcomes by name, as in `Answer.to_xarray`."""
        names = {"input": list(self.problem.input_names), "output": list(self.problem.output_names)}
        named = self._frame.assign_coords({k: v for k, v in names.items() if k in self._frame.dims})
        return named.assign(outcome=("row", np.array(self.outcome_names, dtype=np.str_)))

    def to_pandas(self) -> pd.DataFrame:
        """One line a row: inputs and outputs by name, cost, outcome by name, and what the solver took.

        Examples:
            >>> data.to_pandas()[["objective", "outcome"]].shape
            (100, 2)
        """
        import pandas as pd

        names = [*self.problem.input_names, *self.problem.output_names]
        index = pd.Index(self.rows, name="row")
        frame = pd.DataFrame(np.hstack([self.x, self.y]), columns=names, index=index)
        scalars = {
            "objective": self.objective,
            "outcome": list(self.outcome_names),
            "iterations": self.iterations,
            "seconds": self.seconds,
        }
        return pd.concat([frame, pd.DataFrame(scalars, index=index)], axis=1)

    # ---- counting --------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return int(self._frame.sizes["row"])

    @property
    def rows(self) -> NDArray[np.int64]:
        """The number of each row in the store or array it came from."""
        return np.asarray(self._frame["row"].values)

    @functools.cached_property
    def solved(self) -> NDArray[np.bool_]:
        """Which rows are labels."""
        return np.asarray(self.outcome == Outcome.OK.value)

    @property
    def n_labels(self) -> int:
        """How many rows are labels."""
        return int(self.solved.sum())

    @property
    def outcome_names(self) -> tuple[str, ...]:
        """What became of each row, by name, as in `Answer.outcome_names`; `PENDING` where it was not solved yet."""
        return tuple(outcome_name(code) for code in self.outcome.tolist())

    def outcomes(self) -> dict[str, int]:
        """How many rows ended how, by name: `{"OK": 638, "INFEASIBLE": 2}`."""
        counts = Counter(int(code) for code in self.outcome)
        return {outcome_name(code): counts[code] for code in sorted(counts)}

    def raise_if_failed(self) -> None:
        """Raise one `LabelError` that lists every row that is not a label, with what to do about it."""
        if self.solved.all():
            return
        lines = []
        for code in sorted(set(self.outcome[~self.solved].tolist())):
            where = self.rows[self.outcome == code]
            listed = ", ".join(map(str, where))
            advice = "They have no answer yet." if code == PENDING else _outcome(code).advice
            lines.append(f"  - {outcome_name(code)}, {len(where)} rows ({listed}): {advice}")
        reasons = self.problem.refused(self.x)
        lines += [f"    row {self.rows[i]}: {refusal.why}" for i, refusal in reasons.items()]
        failed = len(self) - self.n_labels
        raise LabelError(f"{failed} of {len(self)} rows are not labels:\n" + "\n".join(lines))

    # ---- choosing rows ---------------------------------------------------------------------------------

    @functools.cached_property
    def keys(self) -> Keys:
        """A hash of each input, equal wherever the same input of the same problem is stored."""
        return row_keys(self.problem.fingerprint, self.x)

    def unseen(self, keys: ArrayLike) -> NDArray[np.bool_]:
        """Which rows are not among `keys`, for leaving out what a model was trained on."""
        return ~np.isin(self.keys, np.asarray(keys, dtype="S32"))

    def split(self, labels: int | None = None, *, validation: float = VALIDATION_SHARE) -> Split:
        """Training, validation and test rows by rule.

        The first `labels` solved rows (all of them when not given) are what a method sees; `validation` of
        those, evenly spread, are for choosing only. The solved rows after them are the test. An input that
        stands in the data twice counts once.

        Raises:
            FeasiblyError: there are fewer labels than asked for.
        """
        return split_rows(self.solved & first_of_each(self.keys), labels, validation)

    def take(self, rows: ArrayLike) -> Dataset:
        """These rows alone (positions or a mask), in memory."""
        chosen = np.asarray(rows)
        if chosen.dtype == bool:
            chosen = np.flatnonzero(chosen)
        columns = {field.name: self._column(field.name)[chosen] for field in ALL if field.name in self._frame}
        small = Dataset.from_columns(self.problem, columns, self.provenance)
        small._frame = small._frame.assign_coords(row=self.rows[chosen])
        return small

    def labelled(self, count: int | None = None) -> Dataset:
        """The first `count` labels, or all of them, in memory."""
        return self.take(self.split(count, validation=0.0).train)

    def __repr__(self) -> str:
        return f"Dataset({self.problem.name!r}, {len(self)} rows, {self.n_labels} labels)"


def outcome_name(code: int) -> str:
    """The name of an outcome's code, the one for rows without an answer included."""
    return "PENDING" if code == PENDING else _outcome(code).name


def _outcome(code: int) -> Outcome:
    return next(outcome for outcome in Outcome if outcome.value == code)


def block_rows(problem: Problem) -> int:
    """Rows a block, some tenths of a second of solving: 32 on small problems, 2 on grids of 2000 buses."""
    fitting = max(1, 16384 // max(problem.n_outputs, 1))
    return min(LARGEST_BLOCK, 1 << (fitting.bit_length() - 1))


def store_header(problem: Problem, provenance: Provenance) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Attributes and arrays that let a store reopen by itself (or, for a user's own problem, be checked)."""
    described = describe(problem)
    family, arrays = (None, {}) if described is None else described
    attributes = {
        "problem": {
            "name": problem.name,
            "fingerprint": problem.fingerprint,
            "family": family,
            "sizes": sizes_of(problem),
            "input_names": list(problem.input_names),
            "output_names": list(problem.output_names),
        },
        "provenance": asdict(provenance),
    }
    return attributes, dict(arrays)
