"""Sparse derivatives at a centre as records, small enough to be saved: loading a model differentiates nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from feasibly._codec import record
from feasibly.model.sparse import Sparse

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


def find_system(rowwise: RowSolver, candidates: Candidates, centre: Centre) -> System:
    """Differentiate at `centre`, with the sparsity that the solver's model knows."""
    from feasibly.solve.system import sparse_derivatives

    model = rowwise.model
    inequality = np.zeros(model.n_inequalities)
    inequality[candidates.inequality] = centre.lam[candidates.bounds :]
    hessian, jacobian, normals = sparse_derivatives(model, centre.x, centre.y, centre.equality, inequality)
    return System(Sparse.of(hessian), Sparse.of(jacobian), Sparse.of(normals[candidates.inequality]))
