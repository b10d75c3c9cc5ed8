"""The exact sparse derivatives of a model at one point, in the problem's own units, for whoever factors them."""

from __future__ import annotations

from typing import Any

import casadi
import numpy as np
import scipy.sparse

from feasibly.solve.model import Model
from feasibly.solve.records import Array


def sparse_derivatives(
    model: Model, x: Array, y: Array, equality: Array, inequality: Array
) -> tuple[Any, Any, Any]:
    """The Hessian of the Lagrangian and the Jacobians of equalities and inequalities, over all outputs.

    Rows and columns of outputs that cannot vary are empty.

    Args:
        model: whose.
        x: the input.
        y: the decisions.
        equality: multipliers of the equalities.
        inequality: of the inequalities.
    """
    unit, size = model.objective_scale, len(model.lower)
    parts = model.full(
        y[model.free], x, equality * unit / model.equality_scale, inequality * unit / model.inequality_scale
    )
    wide = scipy.sparse.csr_matrix(
        (np.ones(len(model.free)), (np.arange(len(model.free)), model.free)), shape=(len(model.free), size)
    )
    jacobians = [
        scipy.sparse.diags(1.0 / scale) @ part.sparse().tocsr() @ wide
        if len(scale)
        else scipy.sparse.csr_matrix((0, size))
        for scale, part in zip((model.equality_scale, model.inequality_scale), parts[4:6], strict=True)
    ]
    hessian = wide.T @ (parts[6].sparse().tocsr() / unit) @ wide
    return hessian, *jacobians


def input_derivatives(
    model: Model, x: Array, y: Array, equality: Array, inequality: Array
) -> tuple[Any, Any]:
    """How the Lagrangian's gradient (over all outputs) and the rows (equalities first) move with the input.

    The arguments are those of `sparse_derivatives`.
    """
    sizes = len(y), len(x), model.n_equalities, model.n_inequalities
    symbols = [casadi.SX.sym(name, size) for name, size in zip(("y", "x", "nu", "z"), sizes, strict=True)]
    at_y, at_x, nu, z = symbols
    _, rows, slope = model.thin(at_y, model.copies(at_y), at_x, 1.0, nu, z)
    moves = casadi.Function("moves", symbols, [casadi.jacobian(part, at_x) for part in (slope, rows)])
    found = moves(y, x, equality, inequality)
    return found[0].sparse().tocsr(), found[1].sparse().tocsr()
