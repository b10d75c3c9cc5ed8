"""Sparse derivatives at a centre as records, small enough to be saved: loading a model differentiates nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from feasibly._codec import record
from feasibly.model.sparse import Sparse

Array = NDArray[np.float64]

if TYPE_CHECKING:
    from feasibly.answer.calibration import Centre
    from feasibly.answer.candidates import Candidates
    from feasibly.answer.rowwise import RowSolver


@record("system")
@dataclass(frozen=True)
class System:
    """The derivatives at one centre, over all outputs."""

    hessian: Sparse
    """Of the Lagrangian."""
    jacobian: Sparse
    """Of the equalities."""
    normals: Sparse
    """Of the candidate inequalities (bounds need none)."""

    @staticmethod
    def of(jacobian: Array, normals: Array, hessian: Array) -> System:
        """From dense matrices."""
        return System(*(Sparse.of(scipy.sparse.coo_matrix(part)) for part in (hessian, jacobian, normals)))


@dataclass(frozen=True)
class Saved:
    """Derivatives that were saved, where others would be computed."""

    system: System

    def at(self, *_: Array) -> tuple[Array, Array, Array]:
        """Jacobians of equalities and candidate inequalities, and the Hessian, as `Derivatives.at` gives them."""
        parts = self.system.jacobian, self.system.normals, self.system.hessian
        jacobian, normals, hessian = (np.asarray(part.matrix.toarray()) for part in parts)
        return jacobian, normals, hessian


def find_system(rowwise: RowSolver, candidates: Candidates, centre: Centre) -> System:
    """Differentiate at `centre`, with the sparsity that the solver's model knows."""
    from feasibly.solve.system import sparse_derivatives

    model = rowwise.search_model
    inequality = np.zeros(model.n_inequalities)
    inequality[candidates.inequality] = candidates.split(centre.lam)[2]
    hessian, jacobian, normals = sparse_derivatives(model, centre.x, centre.y, centre.equality, inequality)
    return System(Sparse.of(hessian), Sparse.of(jacobian), Sparse.of(normals[candidates.inequality]))


def linear_outputs(
    rowwise: RowSolver, candidates: Candidates, one: Centre, other: Centre, tolerance: float
) -> NDArray[np.bool_]:
    """Outputs whose second derivatives are the same at two points with other multipliers.

    They enter the constraints linearly and the cost quadratically at most: what is frozen of them stays true however
    far they move.
    """
    doubled = other._replace(equality=2.0 * other.equality + 1.0, lam=2.0 * other.lam + 1.0)
    first, second = (find_system(rowwise, candidates, centre).hessian.matrix for centre in (one, doubled))
    size = np.asarray(abs(first).max(axis=1).todense()).ravel()
    change = np.asarray(abs(first - second).max(axis=1).todense()).ravel()
    return np.asarray(change <= tolerance * (1.0 + size))
