"""A call of the driver in progress, and what it came to: every row's best point so far, and what it took."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from feasibly.answer.step import State
from feasibly.problem.point import Duals

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


class Passed(NamedTuple):
    """One pass: its place among all (see `Calibration.worthwhile_passes`), processor seconds, and the rows it left."""

    place: int
    seconds: float
    left: int


@dataclass(frozen=True, eq=False)
class Found:
    """What a schedule came to, row by row."""

    state: State
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
    passes: tuple[Passed, ...] = ()
    """What each pass over shared operators took and brought."""

    @property
    def y(self) -> Array:
        """The decisions."""
        return np.asarray(self.state.y)


@dataclass(eq=False)
class Progress:
    """A call in progress: what was asked, and what has been found so far."""

    x: Array
    mean: Array
    until: float
    single: bool
    state: State
    measured: tuple[Array, Array, Array]
    """Cost, largest |equality| and largest violation of each row's best point; NaN where it was not looked at."""
    converged: Mask
    feasible: Mask
    """Rows whose belief was far off, that had converged with its pull: what they stand at serves if nothing better is
    found."""
    steps: Ints
    level: NDArray[np.object_]
    factorisations: Ints
    solved: list[tuple[Ints, Duals]]
    most_passes: float
    """Rows that have not converged after so many passes are handed on."""
    passes: list[Passed]
    went_on: bool
    """Whether rows begin where an earlier call left them."""

    @staticmethod
    def of(
        x: Array, mean: Array, state: State, until: float, most_passes: float, went_on: bool = False
    ) -> Progress:
        """Nothing found yet."""
        rows = len(x)

        def unknown() -> Array:
            return np.full(rows, np.nan)

        return Progress(
            x=x,
            mean=mean,
            until=until,
            single=rows == 1,
            state=state,
            measured=(unknown(), unknown(), unknown()),
            converged=np.zeros(rows, dtype=bool),
            feasible=np.zeros(rows, dtype=bool),
            steps=np.zeros(rows, dtype=np.int64),
            level=np.full(rows, "", dtype=object),
            factorisations=np.zeros(rows, dtype=np.int64),
            solved=[],
            most_passes=most_passes,
            passes=[],
            went_on=went_on,
        )

    @property
    def late(self) -> bool:
        """Whether no further pass may begin."""
        return time.monotonic() > self.until

    def write(self, rows: Ints, state: State, measured: Sequence[Array]) -> None:
        """Where some rows stand now, and what was measured there."""
        for part, now in zip((*self.state, *self.measured), (*state, *measured), strict=True):
            part[rows] = now

    def found(self, std: Array) -> Found:
        """What the call came to; `std` is the conditioned belief's, by output."""
        return Found(
            self.state,
            self.converged | self.feasible,
            np.broadcast_to(std, self.state.y.shape),
            self.steps,
            self.level,
            self.factorisations,
            self.solved,
            self.measured,
            tuple(self.passes),
        )
