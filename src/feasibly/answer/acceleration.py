"""Anderson's acceleration: from a few steps of a linear iteration to where it leads.

With the active set settled, steps on a shared operator contract linearly, `u <- u + f(u)` with `f` nearly affine, by a
tenth in each step or by next to nothing. Of the last few points and their steps take the combination whose step would
be the shortest, and go on from there: what GMRES does for the row's own optimality system, preconditioned by the shared
one (Walker and Ni 2011), without a product that the iteration does not make anyhow. A row whose active set has changed
begins anew: what it did before belongs to another system.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

RIDGE = 1e-12
"""On the unit diagonal of the least squares, which differences that repeat one another would leave singular. A guard
against rounding, and no number of the method."""


class Acceleration:
    """The last steps of each row of a batch.

    Args:
        depth: how many of them are combined with the newest.
        weights: of the first part's entries, by which lengths are measured; other parts follow.
    """

    def __init__(self, depth: int, weights: Array) -> None:
        self._depth, self._weights = depth, weights
        self._past: list[tuple[list[Array], list[Array]]] = []
        """Points and steps, the newest first, each a list of parts `(rows, entries)`."""
        self._known = np.zeros(0, dtype=np.int64)
        """How many of these belong to what a row is doing now."""

    def __call__(
        self, point: Sequence[Array], step: Sequence[Array], afresh: Mask, shortened: Mask | None = None
    ) -> list[Array]:
        """The step to take instead of `step` from `point`; rows that begin `afresh` take it as it is.

        A step that was `shortened` is not `f(u)`: it is taken as it is, and its row's history begins after it.
        """
        if shortened is not None:
            afresh = afresh | shortened
        if not len(self._known):
            self._known = np.zeros(len(afresh), dtype=np.int64)
        known = np.where(afresh, 0, self._known)
        found = list(step)
        if known.any():
            turns = [[now - then for now, then in zip(step, past[1], strict=True)] for past in self._past]
            share = self._shares(step[0], [turn[0] for turn in turns], known)
            for k, (past, turn) in enumerate(zip(self._past, turns, strict=True)):
                rows = np.flatnonzero(share[:, k])
                for i, part in enumerate(point):
                    moved = (part[rows] - past[0][i][rows]) + turn[i][rows]
                    if found[i] is step[i]:
                        found[i] = step[i].copy()
                    found[i][rows] -= share[rows, k, None] * moved
        self._past = [([*point], [*step]), *self._past][: self._depth]
        self._known = np.minimum(known + 1, self._depth)
        if shortened is not None:
            self._known[shortened] = 0
        return found

    def _shares(self, step: Array, turns: list[Array], known: NDArray[np.int64]) -> Array:
        """By how much each of the last steps counts, `(rows, steps)`: least squares, row by row."""
        size = len(turns)
        weighted = [turn * self._weights for turn in turns]
        right = np.stack([np.einsum("ij,ij->i", turn, step) for turn in weighted], axis=1)
        gram = np.empty((len(step), size, size))
        for i in range(size):
            for j in range(i, size):
                gram[:, i, j] = gram[:, j, i] = np.einsum("ij,ij->i", weighted[i], turns[j])
        counts = np.arange(size) < known[:, None]
        own = np.einsum("ijj->ij", gram)
        scale = np.where(counts & (own > 0.0), 1.0 / np.sqrt(np.maximum(own, 1e-300)), 0.0)
        gram = gram * scale[:, :, None] * scale[:, None, :]
        gram += np.where(scale > 0.0, RIDGE, 1.0)[:, :, None] * np.eye(size)
        share = np.linalg.solve(gram, (right * scale)[..., None])[..., 0] * scale
        return np.where(np.isfinite(share), share, 0.0)

    def forget(self, rows: NDArray[np.int64]) -> None:
        """Other rows have taken the places of these."""
        if len(self._known):  # before the first step nothing is known of any
            self._known[rows] = 0

    def keep(self, rows: NDArray[np.int64]) -> None:
        """Only these are left."""
        self._known = self._known[rows] if len(self._known) else self._known
        self._past = [([p[rows] for p in point], [s[rows] for s in step]) for point, step in self._past]
