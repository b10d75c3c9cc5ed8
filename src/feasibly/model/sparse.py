"""Models of large problems: the optimum's linear response through a sparse factorisation, corrected by regression.

It is the solution map of `response.py` where that would not fit: the matrix of the optimality conditions around one
solved point, with the constraints that usually press, is sparse, and factoring it takes less than reading its inverse
would.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
import scipy.sparse.linalg
from numpy.typing import NDArray

from feasibly._codec import record
from feasibly.model.belief import Belief, Covariance, Model
from feasibly.model.linear import LinearModel, fit_ridge

Array = NDArray[np.float64]

_CHUNK = 64
"""Rows solved for at a time."""


@record("sparse", shapes={"places": "entries 2", "values": "entries"})
@dataclass(frozen=True)
class Sparse:
    """A sparse matrix: its entries, and where they stand."""

    shape: tuple[int, int]
    places: NDArray[np.int32]
    """Row and column of each entry."""
    values: Array

    @staticmethod
    def of(matrix: Any) -> Sparse:
        """From any SciPy matrix."""
        entries = matrix.tocoo()
        places = np.stack([entries.row, entries.col], axis=1).astype(np.int32)
        return Sparse((int(matrix.shape[0]), int(matrix.shape[1])), places, np.asarray(entries.data))

    @property
    def matrix(self) -> Any:
        """By rows."""
        return scipy.sparse.csr_matrix((self.values, tuple(self.places.T)), shape=self.shape)


@record("sparse-law", shapes={"x0": "inputs", "y0": "outputs", "free": "*"}, indices={"free": "outputs"})
@dataclass(frozen=True, eq=False)
class SparseSolutionMap:
    """`y0 - K^-1 D (x - x0)`: how the optimum moves while the usual constraints stay as they are."""

    x0: Array
    y0: Array
    free: NDArray[np.int64]
    """The outputs that move: the first unknowns of `matrix`."""
    matrix: Sparse
    """`K`, the optimality conditions' own, scaled."""
    inputs: Sparse
    """`D`, how they move with the input, scaled alike."""
    scale: Array
    """From the scaled unknowns to the outputs."""

    @functools.cached_property
    def _factors(self) -> tuple[Any, Any]:
        return scipy.sparse.linalg.splu(self.matrix.matrix.tocsc()), self.inputs.matrix

    def respond(self, x: Array) -> Array:
        """The map's answer to each row."""
        factors, inputs = self._factors
        answer = np.tile(self.y0, (len(x), 1))
        for first in range(0, len(x), _CHUNK):
            rows = slice(first, first + _CHUNK)
            moved = factors.solve(np.asarray(inputs @ (x[rows] - self.x0).T))[: len(self.free)]
            answer[rows, self.free] -= (self.scale[:, None] * moved).T
        return answer


@record(
    "sparse-response",
    shapes={"solution_map.x0": "inputs", "solution_map.y0": "outputs", "correction.offset": "outputs"},
    stored={"solution_map": "law"},
)
@dataclass(frozen=True, eq=False)
class SparseResponseModel(Model):
    """A solution map and the Bayesian linear regression that corrects it."""

    solution_map: SparseSolutionMap
    correction: LinearModel

    @property
    def covariance(self) -> Covariance:  # type: ignore[override]
        """Of leave-one-out residuals."""
        return self.correction.covariance

    def predict(self, x: Array) -> Belief:
        """The corrected solution map."""
        belief = self.correction.predict(x)
        return Belief(self.solution_map.respond(x) + belief.mean, belief.std)

    def draws(self, x: Array, count: int, seed: int) -> Iterator[Array]:
        """Functions drawn from the posterior of the correction."""
        answer = self.solution_map.respond(x)
        for drawn in self.correction.draws(x, count, seed):
            yield answer + drawn


def fit_sparse_response(solution_map: SparseSolutionMap, x: Array, y: Array) -> SparseResponseModel:
    """Correct `solution_map` on labels."""
    return SparseResponseModel(solution_map, fit_ridge(x, y - solution_map.respond(x)))
