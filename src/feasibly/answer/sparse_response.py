"""The first-order response of the optimum around one sparse operator: its system, and how that moves with the input."""

from __future__ import annotations

import numpy as np
import scipy.sparse

from feasibly.answer.candidates import in_order
from feasibly.answer.rowwise import RowSolver
from feasibly.answer.sparse import SparseOperator
from feasibly.model.sparse import Sparse, SparseSolutionMap


def sparse_response(rowwise: RowSolver, operator: SparseOperator) -> SparseSolutionMap:
    """How the optimum moves with the input near the operator's centre, the usual constraints staying active."""
    from feasibly.solve.system import input_derivatives

    candidates, free, centre, model = (
        operator.candidates,
        operator.free,
        operator.centre,
        rowwise.search_model,
    )
    at_lower, at_upper, among = candidates.split(operator.base)
    inequality = np.zeros(model.n_inequalities)
    inequality[candidates.inequality] = candidates.split(centre.lam)[2]
    slope, balance, limits = input_derivatives(model, centre.x, centre.y, centre.equality, inequality)
    inputs = len(centre.x)
    # Of the problem whose bounds no input moves.
    low, high = (scipy.sparse.csr_matrix((int(at.sum()), inputs)) for at in (at_lower, at_upper))
    active = in_order(low, high, limits[candidates.inequality[among]])
    moves = scipy.sparse.vstack([slope, balance, *active], format="csc")
    return SparseSolutionMap(
        x0=centre.x,
        y0=centre.y,
        free=free,
        matrix=Sparse.of(operator.matrix),
        inputs=Sparse.of(scipy.sparse.diags(operator.scale) @ moves),
        scale=operator.scale[: len(free)],
    )
