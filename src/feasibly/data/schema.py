"""What a row of a dataset holds, in memory and on disk, in one table."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from feasibly._codec import build, record
from feasibly._fields import CodecError
from feasibly._version import __version__
from feasibly.problem.core import Problem
from feasibly.problem.errors import FeasiblyError

FORMAT = "feasibly-dataset"
FORMAT_VERSION = 2
"""The first had grids as arrays alone."""

PENDING = -1
"""The outcome of a row that was not solved yet; every other code is an `Outcome`. (`UNSOLVED`, of an answer, is another
thing: a solver tried and found nothing.)"""

LARGEST_BLOCK = 32
"""Rows solved, sent and stored together, at most. The number of workers has no say in it, and a store
is chunked by blocks, so that one is written whole or not at all."""

CHUNK = 256
"""Rows a chunk of a store that was not solved block by block."""

Arrays = dict[str, NDArray[Any]]


class StoreError(FeasiblyError):
    """A dataset on disk that cannot be read, written or used as asked."""


@dataclass(frozen=True)
class Field:
    """One array of a dataset: a value a row, or a vector a row along `dimension`."""

    name: str
    dimension: str | None
    dtype: DTypeLike
    fill: float

    def shape(self, rows: int, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """The shape of `rows` rows."""
        return (rows,) if self.dimension is None else (rows, sizes[self.dimension])

    def empty(self, rows: int, sizes: Mapping[str, int]) -> NDArray[Any]:
        """Rows that hold nothing yet."""
        return np.full(self.shape(rows, sizes), self.fill, dtype=self.dtype)


X = Field("x", "input", np.float64, np.nan)
OUTCOME = Field("outcome", None, np.int8, PENDING)
ANSWER = (
    Field("y", "output", np.float64, np.nan),
    Field("objective", None, np.float64, np.nan),
    Field("iterations", None, np.int32, 0),
    Field("seconds", None, np.float64, 0.0),
)
DUALS = (
    Field("dual_equality", "equality", np.float64, np.nan),
    Field("dual_inequality", "inequality", np.float64, np.nan),
    Field("dual_lower", "output", np.float64, np.nan),
    Field("dual_upper", "output", np.float64, np.nan),
)
ALL = (X, *ANSWER, *DUALS, OUTCOME)


def sizes_of(problem: Problem) -> dict[str, int]:
    """The length of every dimension but the rows."""
    return {
        "input": problem.n_inputs,
        "output": problem.n_outputs,
        "equality": problem.n_equalities,
        "inequality": problem.n_inequalities,
    }


def stored_fields(sizes: Mapping[str, int], duals: bool) -> tuple[Field, ...]:
    """The fields that a store of these sizes has, the outcome last. Vectors of no length are left out."""
    chosen = (X, *ANSWER, *(DUALS if duals else ()), OUTCOME)
    return tuple(f for f in chosen if f.dimension is None or sizes[f.dimension] > 0)


@record("provenance")
@dataclass(frozen=True)
class Provenance:
    """Where the rows came from.

    `source` is `label`, `arrays`, `opfdata` or `pglearn`; `seed`, `spread`, `design`, `factor` and `noise` say how
    inputs were drawn (`None` where they were given, or where the design has no such setting); `solver` holds its
    options; `notes` whatever the source adds.
    """

    source: str
    fingerprint: str
    seed: int | None = None
    spread: float | None = None
    design: str | None = None
    factor: tuple[float, float] | None = None
    noise: float | None = None
    solver: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    notes: Mapping[str, Any] = field(default_factory=dict)

    @staticmethod
    def read(values: Any) -> Provenance:
        """What a store says of itself; entries of a later version are left out.

        Raises:
            StoreError: something in it is not what it should be.
        """
        try:
            if not isinstance(values, Mapping):
                raise CodecError("it is no mapping")
            known = [each.name for each in fields(Provenance)]
            return build(Provenance, {name: values[name] for name in known if name in values})
        except CodecError as error:
            raise StoreError(f"the store's provenance is damaged ({error}); label into a new one") from error

    def drawing(self, problem: Problem) -> dict[str, Any]:
        """What `sample` and `input_range` take to draw further rows of `problem` as these were drawn."""
        if self.design == "correlated":
            return {"design": self.design, "factor": self.factor, "noise": self.noise}
        return {"spread": self.spread if problem.spread is not None else None}


def versions_now() -> dict[str, str]:
    """The packages that shape a label, as they are installed here."""
    found = {"feasibly": __version__, "python": platform.python_version()}
    for package in ("numpy", "jax", "casadi", "powerio", "xarray", "zarr"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
