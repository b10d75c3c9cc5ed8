"""Formulas of whole columns, built into programs for lanes.

A column is a list of slots of the workspace. What a `ProgramBuilder` is told is kept as one run an operation, and
temporary columns share their slots once nobody reads them any more.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from feasibly.solve.lanes.operations import CODES, MULTIPLY_ADD
from feasibly.solve.lanes.program import Layout, Program

Column = NDArray[np.int64]
"""Slots; of temporary columns, numbers that stand for slots, counted from `_TEMPORARY`."""
_TEMPORARY = 1 << 40


class ProgramBuilder:
    """Builds one program."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._runs: list[tuple[int, Column, Column, Column]] = []
        self._temporaries: list[int] = []  # the size of each temporary column
        self._next = _TEMPORARY

    # ---- columns ---------------------------------------------------------------------------------------

    def block(self, name: str, size: int | None = None) -> Column:
        """The column of a block, which is made if it is not there."""
        block = self._layout.blocks[name] if size is None else self._layout.add(name, size)
        return np.arange(block.start, block.stop)

    def constant(self, value: float) -> Column:
        """A number."""
        return np.array([self._layout.constant(value)])

    def temporary(self, size: int) -> Column:
        """A column that only this program needs."""
        self._temporaries.append(size)
        self._next += size
        return np.arange(self._next - size, self._next)

    # ---- operations ------------------------------------------------------------------------------------

    def apply(self, name: str, first: Any, second: Any = None, into: Column | None = None) -> Column:
        """An operation on columns, or on a column and a number."""
        a = self._column(first)
        b = a if second is None else self._column(second)
        size = _common(a, b)
        into = self.temporary(size) if into is None else into
        if size:
            self._runs.append((CODES[name], into, np.broadcast_to(a, size), np.broadcast_to(b, size)))
        return into

    def add(self, first: Any, second: Any, into: Column | None = None) -> Column:
        """`first + second`."""
        return self.apply("ADD", first, second, into)

    def sub(self, first: Any, second: Any, into: Column | None = None) -> Column:
        """`first - second`."""
        return self.apply("SUB", first, second, into)

    def mul(self, first: Any, second: Any, into: Column | None = None) -> Column:
        """`first * second`."""
        return self.apply("MUL", first, second, into)

    def div(self, first: Any, second: Any, into: Column | None = None) -> Column:
        """`first / second`."""
        return self.apply("DIV", first, second, into)

    def copy(self, column: Any, into: Column | None = None) -> Column:
        """The same values elsewhere."""
        return self.apply("ASSIGN", column, None, into)

    def fma(self, first: Any, second: Any, third: Any, into: Column | None = None) -> Column:
        """`first * second + third`."""
        a, b, c = (self._column(part) for part in (first, second, third))
        size = _common(a, b, c)
        total = self.copy(np.broadcast_to(c, size) if size else c[:0], into)
        self.accumulate(total, a, b)
        return total

    def accumulate(self, into: Column, first: Any, second: Any) -> None:
        """Add the products of two columns to a third."""
        if len(into):
            a, b = (np.broadcast_to(self._column(part), len(into)) for part in (first, second))
            self._runs.append((MULTIPLY_ADD, into, a, b))

    def add_product(self, rows: Any, columns: Any, values: Column, vector: Column, onto: Column) -> None:
        """Add a sparse matrix times a column to another: what belongs to one row is added in turn, not at once."""
        rows, columns = np.asarray(rows, dtype=np.int64), np.asarray(columns, dtype=np.int64)
        if not len(rows):
            return
        order = np.argsort(rows, kind="stable")
        _, first, counts = np.unique(rows[order], return_index=True, return_counts=True)
        turn = np.arange(len(rows)) - np.repeat(first, counts)
        order = order[np.argsort(turn, kind="stable")]
        self.accumulate(onto[rows[order]], values[order], vector[columns[order]])

    def total(self, column: Column) -> Column:
        """The sum of all entries, in pairs, so that no addition waits for a long chain of others."""
        return self._pairwise("ADD", column)

    def largest(self, column: Column) -> Column:
        """The largest entry."""
        return self._pairwise("FMAX", column)

    def _pairwise(self, name: str, column: Column) -> Column:
        if not len(column):
            return self.constant(0.0)
        while len(column) > 1:
            half = len(column) // 2
            paired = self.apply(name, column[:half], column[half : 2 * half])
            column = np.concatenate([paired, column[2 * half :]])
        return column

    def _column(self, value: Any) -> Column:
        return self.constant(value) if isinstance(value, int | float) else value

    # ---- the program -----------------------------------------------------------------------------------

    def program(self) -> Program:
        """What was built; temporary columns get their slots now."""
        slot = self._slots()
        words: list[NDArray[np.int64]] = []
        for code, into, first, second in self._runs:
            own = np.stack([_placed(part, slot) for part in (into, first, second)], axis=1)
            words += [np.array([code, len(into)]), own.ravel()]
        joined = np.concatenate(words).astype(np.int32) if words else np.zeros(0, dtype=np.int32)
        return Program(joined, len(self._runs), sum(len(run[1]) for run in self._runs))

    def _slots(self) -> Column:
        """The slot of each entry of the temporary columns: a column's slots are free after its last use."""
        begins = np.concatenate([[0], np.cumsum(self._temporaries)]).astype(np.int64)
        last: dict[int, int] = {}
        uses: list[list[int]] = []
        for k, (_, *parts) in enumerate(self._runs):
            joined = np.concatenate(parts)
            inner = joined[joined >= _TEMPORARY] - _TEMPORARY
            owners = np.unique(np.searchsorted(begins, inner, side="right") - 1).tolist()
            uses.append(owners)
            last |= dict.fromkeys(owners, k)
        slot = np.full(int(begins[-1]), -1, dtype=np.int64)
        free: dict[int, list[Column]] = {}
        used = 0
        given: dict[int, Column] = {}
        for k, owners in enumerate(uses):
            for owner in owners:
                if owner in given:
                    continue
                size = self._temporaries[owner]
                kept = free.get(size)
                if kept:
                    own = kept.pop()
                else:
                    own = np.array([self._layout.temporary(used + i) for i in range(size)])
                    used += size
                given[owner] = own
                slot[begins[owner] : begins[owner + 1]] = own
            for owner in owners:
                if last[owner] == k:
                    free.setdefault(self._temporaries[owner], []).append(given[owner])
        return slot


def _common(*columns: Column) -> int:
    """The length of an operation's result; none where one of the columns has none."""
    lengths = [len(column) for column in columns]
    return max(lengths) if min(lengths) else 0


def _placed(column: Column, slot: Column) -> Column:
    """A column with slots for what stood for them."""
    inner = column >= _TEMPORARY
    return np.where(inner, slot[np.where(inner, column - _TEMPORARY, 0)] if len(slot) else column, column)
