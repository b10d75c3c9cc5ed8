"""A call of the driver in progress, and what it came to: every row's best point so far, and what it took."""

from __future__ import annotations

import enum
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from feasibly.answer.plan import Plan
from feasibly.answer.step import Iterate
from feasibly.problem.point import Duals

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


class Status(enum.IntEnum):
    """What has become of a row so far: the one place that says so, from which `Found.converged` is derived."""

    OPEN = 0
    """Nothing has converged: the row stands at the least violated point met."""
    FALLBACK = 1
    """It converged with the proximal term though its belief was far off: that serves if nothing better is found."""
    CONVERGED = 2
    """It satisfies every constraint and its level's test of convergence."""


class PassRecord(NamedTuple):
    """One pass: its place among all (see `Calibration.worthwhile_passes`), processor seconds, and the rows it left."""

    place: int
    seconds: float
    left: int


@dataclass(frozen=True, eq=False)
class Found:
    """What a schedule came to, row by row."""

    iterate: Iterate
    """Decisions and multipliers, the latter compressed to the candidates (see `answer.multipliers`)."""
    converged: Mask
    """Rows that satisfy every constraint and, in optimal mode, can gain nothing more."""
    std: Array
    steps: Ints
    """Steps on shared operators."""
    level: NDArray[np.object_]
    """The name of the level that answered; empty where none did."""
    factorisations: Ints
    """Iterations of the row-wise solver, all attempts together, each with a factorisation of the row's own system."""
    solved: list[tuple[Ints, Duals]]
    """Multipliers of rows that the row-wise solver answered: those of all constraints."""
    measured: tuple[Array, Array, Array]
    """Cost, largest |equality| and largest violation of what each row stands at; NaN where nobody looked."""
    infeasible: Mask
    """Rows that the row-wise solver has shown to have no solution."""
    passes: tuple[PassRecord, ...] = ()
    """What each pass over shared operators took and brought."""

    @property
    def y(self) -> Array:
        """The decisions."""
        return np.asarray(self.iterate.y)


@dataclass(eq=False)
class Progress:
    """A call in progress: what was asked, and what has been found so far."""

    x: Array
    mean: Array
    plan: Plan
    until: float
    iterate: Iterate
    """The converged point of each row, or the least violated one met so far."""
    resumed: bool = False
    """Whether rows begin where an earlier call left them."""

    def __post_init__(self) -> None:
        rows = len(self.x)
        self.single = rows == 1
        self.status: NDArray[np.int64] = np.full(rows, Status.OPEN, dtype=np.int64)
        self.measured = np.full(rows, np.nan), np.full(rows, np.nan), np.full(rows, np.nan)
        """Cost, largest |equality| and largest violation where each row stands; NaN where it was not looked at."""
        self.steps: Ints = np.zeros(rows, dtype=np.int64)
        self.level: NDArray[np.object_] = np.full(rows, "", dtype=object)
        self.factorisations: Ints = np.zeros(rows, dtype=np.int64)
        self.solved: list[tuple[Ints, Duals]] = []
        self.infeasible: Mask = np.zeros(rows, dtype=bool)
        self.passes: list[PassRecord] = []

    @property
    def finished(self) -> Mask:
        """Rows that need nothing more: not those whose belief was far off, which `Found.converged` includes."""
        return np.asarray(self.status == Status.CONVERGED)

    @property
    def late(self) -> bool:
        """Whether no further pass may begin."""
        return time.monotonic() > self.until

    def write(self, rows: Ints, iterate: Iterate, measured: Sequence[Array]) -> None:
        """Where some rows stand now, and what was measured there."""
        for part, now in zip((*self.iterate, *self.measured), (*iterate, *measured), strict=True):
            part[rows] = now

    def keep(self, rows: Ints, iterate: Iterate, name: str, measured: Sequence[Array]) -> None:
        """Rows that have converged on the level of this name."""
        self.write(rows, iterate, measured)
        self.status[rows] = Status.CONVERGED
        self.level[rows] = name

    def found(self, std: Array) -> Found:
        """What the call came to; `std` is the conditioned belief's, by output."""
        return Found(
            self.iterate,
            self.status > Status.OPEN,
            np.broadcast_to(std, self.iterate.y.shape),
            self.steps,
            self.level,
            self.factorisations,
            self.solved,
            self.measured,
            self.infeasible,
            tuple(self.passes),
        )
