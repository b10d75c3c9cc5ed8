"""The linear algebra of an iteration, as formulas for lanes: the condensed matrix and what is multiplied by its parts.

`[H + A' diag(ratio) A + diagonal, J'; J, -E]`, with `A` the inequalities and bounds, in the order of `Newton`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from feasibly.solve.lanes.pen import Column, Pen
from feasibly.solve.lanes.program import Layout
from feasibly.solve.lanes.shared import Shared


class Linear:
    """Formulas of one model; `layout` has the blocks of `shared`, and may have more."""

    def __init__(self, shared: Shared, layout: Layout) -> None:
        self._newton, self._model, self.layout = shared.newton, shared.newton.model, layout
        self._numbers = shared.newton.settings
        self.entry, self.places = shared.entry, shared.places
        self.of_y, self.of_nu = shared.of_y, shared.of_nu

    def add_limits(self, pen: Pen, dy: Column, onto: Column) -> None:
        """Add the Jacobian of all rows times `dy`."""
        newton, ni, nl = self._newton, self._model.n_inequalities, len(self._newton.below)
        pen.multiply(*self.places["A"], pen.block("A"), dy, onto)
        below, above = onto[ni : ni + nl], onto[ni + nl : ni + nl + len(newton.above)]
        pen.sub(below, dy[newton.below], below)
        pen.add(above, dy[newton.above], above)

    def add_pull(self, pen: Pen, pull: Column, onto: Column) -> None:
        """Add the same transposed, times a column of the rows."""
        newton, ni, nl = self._newton, self._model.n_inequalities, len(self._newton.below)
        rows, columns = self.places["A"]
        pen.multiply(columns, rows, pen.block("A"), pull, onto)
        below, above = onto[newton.below], onto[newton.above]
        pen.sub(below, pull[ni : ni + nl], below)
        pen.add(above, pull[ni + nl : ni + nl + len(newton.above)], above)

    def along(self, pen: Pen, dy: Column) -> Column:
        """The Jacobian of all rows times `dy`."""
        along = pen.copy(np.broadcast_to(pen.constant(0.0), self._newton.rows))
        self.add_limits(pen, dy, along)
        return along

    def solution(self, pen: Pen, number: int) -> tuple[Column, Column]:
        """What a right-hand side was replaced by: `dy` and `dnu`."""
        found = pen.block(f"right {number}")
        return found[self.of_y], found[self.of_nu]

    def right_hand(self, pen: Pen, slope: Column, pull: Column, number: int) -> Column:
        """The right-hand side's first part, `-(slope + A' pull)`; the whole of it is returned."""
        right = pen.block(f"right {number}")
        total = pen.copy(slope)
        self.add_pull(pen, pull, total)
        pen.do("NEG", total, None, right[self.of_y])
        return right

    def matrix(self, pen: Pen, diagonal: Column) -> Column:
        """Write the matrix, `diagonal` added to the outputs' own; the places of its lower corner are returned."""
        newton, model, ni = self._newton, self._model, self._model.n_inequalities
        n, ne, nl = newton.n, model.n_equalities, len(newton.below)
        values = pen.block("values")

        def at(rows: Any, columns: Any) -> Column:
            pairs = zip(np.minimum(rows, columns).tolist(), np.maximum(rows, columns).tolist(), strict=True)
            return values[np.array([self.entry[pair] for pair in pairs], dtype=np.int64)]

        pen.copy(np.broadcast_to(pen.constant(0.0), len(values)), values)
        rows, columns = self.places["H"]
        upper = rows <= columns
        pen.copy(pen.block("H")[upper], at(rows[upper], columns[upper]))
        every = np.arange(n)
        own = at(every, every)
        pen.add(own, diagonal, own)
        ratio = pen.block("ratio")
        for places, part in (
            (newton.below, ratio[ni : ni + nl]),
            (newton.above, ratio[ni + nl : ni + nl + len(newton.above)]),
        ):
            pen.add(own[places], part, own[places])
        # A' diag(ratio) A: for every inequality, each pair of its entries.
        rows, columns = self.places["A"]
        entry = pen.block("A")
        weighted = pen.mul(entry, ratio[rows]) if len(rows) else entry
        first, second = _pairs(rows)
        order = _in_turn(columns[first] * n + columns[second])
        first, second = first[order], second[order]
        if len(first):
            pen.accumulate(at(columns[first], columns[second]), weighted[first], entry[second])
        rows, columns = self.places["J"]
        pen.copy(pen.block("J"), at(columns, n + rows))
        corner = at(n + np.arange(ne), n + np.arange(ne))
        pen.copy(np.broadcast_to(pen.constant(-self._numbers.dual_regularisation), ne), corner)
        return corner


def _pairs(rows: Any) -> tuple[Any, Any]:
    """Positions of the entries of a sparse matrix, two of one row at a time, each pair once."""
    order = np.argsort(rows, kind="stable")
    _, first, counts = np.unique(rows[order], return_index=True, return_counts=True)
    left, right = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    for begin, count in zip(first.tolist(), counts.tolist(), strict=True):
        i, j = np.triu_indices(count)
        left.append(order[begin + i])
        right.append(order[begin + j])
    return np.concatenate(left), np.concatenate(right)


def _in_turn(keys: Any) -> Any:
    """An order in which equal keys are far from one another: the first of each, the second of each, and so on."""
    order = np.argsort(keys, kind="stable")
    _, first, counts = np.unique(keys[order], return_index=True, return_counts=True)
    turn = np.arange(len(keys)) - np.repeat(first, counts)
    return order[np.argsort(turn, kind="stable")]
