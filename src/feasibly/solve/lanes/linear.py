"""The linear algebra of an iteration as columns for lanes: the condensed matrix and what is multiplied by its parts.

`[H + A' diag(ratio) A + diagonal, J'; J, -E]`, with `A` the inequalities and bounds, in the order of `Newton`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from feasibly.solve.lanes.builder import Column, ProgramBuilder
from feasibly.solve.lanes.program import Layout
from feasibly.solve.lanes.shared import SharedPrograms


class CondensedColumns:
    """Formulas of one model; `layout` has the blocks of `shared`, and may have more."""

    def __init__(self, shared: SharedPrograms, layout: Layout) -> None:
        self._newton, self._model, self.layout = shared.newton, shared.newton.model, layout
        self._settings = shared.newton.settings
        self.entry, self.pattern = shared.entry, shared.pattern
        self.of_y, self.of_nu = shared.of_y, shared.of_nu

    def add_jacobian_times(self, build: ProgramBuilder, dy: Column, onto: Column) -> None:
        """Add `A dy`."""
        newton, ni, nl = self._newton, self._model.n_inequalities, len(self._newton.below)
        build.add_product(*self.pattern["A"], build.block("A"), dy, onto)
        below, above = onto[ni : ni + nl], onto[ni + nl : ni + nl + len(newton.above)]
        build.sub(below, dy[newton.below], below)
        build.add(above, dy[newton.above], above)

    def add_transposed_times(self, build: ProgramBuilder, z: Column, onto: Column) -> None:
        """Add `A' z`."""
        newton, ni, nl = self._newton, self._model.n_inequalities, len(self._newton.below)
        rows, columns = self.pattern["A"]
        build.add_product(columns, rows, build.block("A"), z, onto)
        below, above = onto[newton.below], onto[newton.above]
        build.sub(below, z[ni : ni + nl], below)
        build.add(above, z[ni + nl : ni + nl + len(newton.above)], above)

    def along(self, build: ProgramBuilder, dy: Column) -> Column:
        """`A dy`."""
        along = build.copy(np.broadcast_to(build.constant(0.0), self._newton.n_slacks))
        self.add_jacobian_times(build, dy, along)
        return along

    def solution(self, build: ProgramBuilder, number: int) -> tuple[Column, Column]:
        """What replaced a right-hand side: `dy` and `dnu`."""
        found = build.block(f"right {number}")
        return found[self.of_y], found[self.of_nu]

    def right_hand(self, build: ProgramBuilder, gradient: Column, offset: Column, number: int) -> Column:
        """The right-hand side's first part, `-(gradient + A' offset)`; the whole of it is returned."""
        right = build.block(f"right {number}")
        total = build.copy(gradient)
        self.add_transposed_times(build, offset, total)
        build.apply("NEG", total, None, right[self.of_y])
        return right

    def matrix(self, build: ProgramBuilder, diagonal: Column) -> Column:
        """Write the matrix, `diagonal` added to the outputs' own; the diagonal of its lower corner is returned."""
        newton, model, ni = self._newton, self._model, self._model.n_inequalities
        n, ne, nl = newton.n, model.n_equalities, len(newton.below)
        values = build.block("values")

        def at(rows: Any, columns: Any) -> Column:
            pairs = zip(np.minimum(rows, columns).tolist(), np.maximum(rows, columns).tolist(), strict=True)
            return values[np.array([self.entry[pair] for pair in pairs], dtype=np.int64)]

        build.copy(np.broadcast_to(build.constant(0.0), len(values)), values)
        rows, columns = self.pattern["H"]
        upper = rows <= columns
        build.copy(build.block("H")[upper], at(rows[upper], columns[upper]))
        every = np.arange(n)
        own = at(every, every)
        build.add(own, diagonal, own)
        ratio = build.block("ratio")
        for bounded, part in (
            (newton.below, ratio[ni : ni + nl]),
            (newton.above, ratio[ni + nl : ni + nl + len(newton.above)]),
        ):
            build.add(own[bounded], part, own[bounded])
        # A' diag(ratio) A: for every inequality, each pair of its entries.
        rows, columns = self.pattern["A"]
        entry = build.block("A")
        weighted = build.mul(entry, ratio[rows]) if len(rows) else entry
        first, second = _pairs(rows)
        order = _in_turn(columns[first] * n + columns[second])
        first, second = first[order], second[order]
        if len(first):
            build.accumulate(at(columns[first], columns[second]), weighted[first], entry[second])
        rows, columns = self.pattern["J"]
        build.copy(build.block("J"), at(columns, n + rows))
        corner = at(n + np.arange(ne), n + np.arange(ne))
        build.copy(np.broadcast_to(build.constant(-self._settings.dual_regularisation), ne), corner)
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
