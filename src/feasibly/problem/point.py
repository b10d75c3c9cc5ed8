"""The one shape of a primal-dual point: decisions and multipliers, batched, full length, rows first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from feasibly._codec import record

if TYPE_CHECKING:  # a worker that solves rows has neither problems nor JAX
    from feasibly.problem.core import Problem

Array = NDArray[np.float64]


@record("duals")
@dataclass(frozen=True, eq=False)
class Duals:
    """Multipliers of every row, rows first. NaN where a row has none.

    They belong to the Lagrangian

        objective + equality' c(x, y) + inequality' h(x, y) + lower' (l - y) + upper' (y - u)

    with `c` the equalities, `h` the inequalities and `l`, `u` the bounds of the problem, in its own units; those of
    inequalities and bounds are never negative. An output fixed by equal bounds has its multiplier in `lower` or
    `upper`, by sign.
    """

    equality: Array
    """`(rows, n_equalities)`."""
    inequality: Array
    """`(rows, n_inequalities)`."""
    lower: Array
    """`(rows, n_outputs)`; zero where there is no lower bound."""
    upper: Array
    """`(rows, n_outputs)`; zero where there is no upper bound."""

    def __len__(self) -> int:
        return len(self.equality)

    def take(self, rows: Any) -> Duals:
        """These rows alone (positions, a slice or a mask)."""
        return Duals(*(getattr(self, part.name)[rows] for part in fields(self)))

    def put(self, rows: Any, other: Duals) -> None:
        """Write the rows of `other` in the places `rows`."""
        for part in fields(self):
            getattr(self, part.name)[rows] = getattr(other, part.name)

    def without(self, rows: NDArray[np.bool_]) -> Duals:
        """The same with NaN for these rows."""
        parts = (getattr(self, part.name) for part in fields(self))
        return Duals(*(np.where(rows[:, None], np.nan, part) for part in parts))

    @property
    def known(self) -> NDArray[np.bool_]:
        """Which rows have multipliers."""
        parts = (getattr(self, part.name) for part in fields(self))
        return np.asarray(np.all([np.isfinite(part).all(axis=1) for part in parts], axis=0))

    @staticmethod
    def nothing(problem: Problem, rows: int) -> Duals:
        """NaN throughout, to be filled in."""
        sizes = (problem.n_equalities, problem.n_inequalities, problem.n_outputs, problem.n_outputs)
        return Duals(*(np.full((rows, size), np.nan) for size in sizes))


@record("point")
@dataclass(frozen=True, eq=False)
class Point:
    """Where every row stands: decisions `(rows, n_outputs)` and the multipliers of all constraints.

    Labels, the solver's starts and solutions, the iteration's results and answers are all of this shape; what is
    compressed to the candidates is compressed in `answer.candidates` alone. One row of it, as `take(3)` gives and a
    solver takes, has arrays without the leading axis.
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

    @property
    def parts(self) -> tuple[Array, ...]:
        """Decisions and multipliers one after the other, as `of` takes them."""
        return self.y, *(getattr(self.duals, field.name) for field in fields(Duals))

    @property
    def is_finite(self) -> bool:
        """Whether every number in it is one."""
        return all(bool(np.isfinite(part).all()) for part in self.parts)

    def copy(self) -> Point:
        """The same values in arrays of its own."""
        return self.take(np.arange(len(self)))

    @staticmethod
    def join(parts: Sequence[Point]) -> Point:
        """The rows of all `parts`, one after the other."""
        return Point.of(*(np.concatenate(same) for same in zip(*(part.parts for part in parts), strict=True)))

    @staticmethod
    def of(y: Array, *multipliers: Array) -> Point:
        """Decisions and the multipliers of equalities, inequalities, lower and upper bounds."""
        return Point(y, Duals(*multipliers))

    @staticmethod
    def nothing(problem: Problem, rows: int) -> Point:
        """NaN throughout, to be filled in."""
        return Point(np.full((rows, problem.n_outputs), np.nan), Duals.nothing(problem, rows))
