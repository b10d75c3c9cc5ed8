"""The one shape of a primal-dual point: decisions and multipliers, batched, full length, rows first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feasibly.problem.core import Problem
from feasibly.problem.duals import Duals

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Point:
    """Where every row stands: decisions `(rows, n_outputs)` and the multipliers of all constraints.

    Labels, the solver's starts, the iteration's results and answers are all of this shape; what is compressed to
    the watched constraints is compressed in `answer.candidates` alone.
    """

    y: Array
    duals: Duals

    def __len__(self) -> int:
        return len(self.y)

    def take(self, rows: Any) -> Point:
        """These rows alone (positions, a slice or a mask)."""
        return Point(self.y[rows], self.duals.take(rows))

    def put(self, rows: Any, other: Point) -> None:
        """Write the rows of `other` in the places `rows`."""
        self.y[rows] = other.y
        self.duals.put(rows, other.duals)

    def copy(self) -> Point:
        """The same values in arrays of its own."""
        return self.take(np.arange(len(self)))

    @staticmethod
    def join(parts: Sequence[Point]) -> Point:
        """The rows of all `parts`, one after the other."""
        duals = (
            np.concatenate([getattr(part.duals, field.name) for part in parts]) for field in fields(Duals)
        )
        return Point(np.concatenate([part.y for part in parts]), Duals(*duals))

    @staticmethod
    def nothing(problem: Problem, rows: int) -> Point:
        """NaN throughout, to be filled in."""
        return Point(np.full((rows, problem.n_outputs), np.nan), Duals.nothing(problem, rows))
