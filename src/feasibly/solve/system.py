"""The exact sparse derivatives of a model at one point, in the problem's own units, for whoever factors them."""

from __future__ import annotations

from typing import Any

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
) -> tuple[Any, Any, Any]:
    """How the Lagrangian's gradient (over the free outputs), equalities and inequalities move with the input.

    The arguments are those of `sparse_derivatives`.
    """
    unit = model.objective_scale
    parts = model.moves(
        y[model.free], x, equality * unit / model.equality_scale, inequality * unit / model.inequality_scale
    )
    slope, *rows = (part.sparse().tocsr() for part in parts)
    scales = model.equality_scale, model.inequality_scale
    return slope / unit, *(_divided(part, scale) for part, scale in zip(rows, scales, strict=True))


def _divided(matrix: Any, scale: Array) -> Any:
    """A sparse matrix with its rows divided."""
    return scipy.sparse.diags(1.0 / scale) @ matrix if len(scale) else matrix
