"""The symbolic analysis of a symmetric sparse matrix whose pattern all rows share, and its factorisation by lanes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from feasibly.solve.lanes.kernels import Slots, Workspace, kernels


@dataclass(frozen=True, eq=False)
class Factors:
    """The symbolic analysis: where the entries of `L D L'` stand, and which products are taken off which.

    Attributes:
        order: position k of the factorisation is row and column `order[k]` of the matrix.
        columns: where the entries below the diagonal begin in each column, and where the last one ends.
        rows: of each of these entries.
        targets: for each column and each pair of its entries in turn, the value that their product is taken off.
        entries: for each entry of the matrix's upper triangle (rows not below columns), its value.
    """

    order: Slots
    columns: Slots
    rows: Slots
    targets: Slots
    entries: Slots
    upper: Slots
    """Which of the matrix's entries, column by column, these are."""

    @property
    def size(self) -> int:
        """Rows of the matrix."""
        return len(self.order)

    @property
    def values(self) -> int:
        """How many values there are: the diagonal, then the entries below it."""
        return len(self.order) + len(self.rows)

    def factor(self, values: Workspace, inverses: Workspace) -> Callable[[], None]:
        """What replaces the matrix's values by the factors', and writes the inverse of the diagonal and, behind it, how
        many of its entries are negative."""
        factor, size = kernels(values.shape[1]).factor, self.size
        addresses = [part.ctypes.data for part in (self.columns, self.targets, values, inverses)]
        return lambda: factor(*addresses[:2], size, *addresses[2:])

    def substitute(self, values: Workspace, inverses: Workspace, right: Workspace) -> Callable[[], None]:
        """What replaces a right-hand side, in the order of the factorisation, by the solution."""
        substitute, size = kernels(values.shape[1]).substitute, self.size
        addresses = [part.ctypes.data for part in (self.columns, self.rows, values, inverses, right)]
        return lambda: substitute(*addresses[:2], size, *addresses[2:])


def analyse(pattern: Any) -> Factors:
    """Analyse a symmetric CasADi pattern, which holds both triangles, ordered for little fill."""
    size = pattern.size1()
    order = np.array(pattern.amd(), dtype=np.int32)
    position = np.empty(size, dtype=np.int32)
    position[order] = np.arange(size)
    row, column = np.array(pattern.row()), np.array(pattern.get_col())
    upper = np.flatnonzero(row <= column)
    a, b = position[row[upper]], position[column[upper]]
    low, high = np.maximum(a, b), np.minimum(a, b)  # below the diagonal: row `low` of column `high`
    below = [set() for _ in range(size)]  # type: list[set[int]]
    for i, j in zip(low.tolist(), high.tolist(), strict=True):
        if i != j:
            below[j].add(i)
    for j in range(size):  # what eliminating a column fills in shows in the next one it touches
        if below[j]:
            parent = min(below[j])
            below[parent] |= below[j] - {parent}
    lists = [sorted(rows) for rows in below]
    columns = np.concatenate([[0], np.cumsum([len(rows) for rows in lists])]).astype(np.int32)
    rows = np.array([i for rows in lists for i in rows], dtype=np.int32)
    place = [{i: size + int(columns[j]) + k for k, i in enumerate(rows)} for j, rows in enumerate(lists)]
    targets = [i if i == j else place[j][i] for rows in lists for k, j in enumerate(rows) for i in rows[k:]]
    entries = [i if i == j else place[j][i] for i, j in zip(low.tolist(), high.tolist(), strict=True)]
    return Factors(
        order,
        columns,
        rows,
        np.array(targets, dtype=np.int32),
        np.array(entries, dtype=np.int32),
        upper.astype(np.int32),
    )
