"""The exact sparse derivatives of a model at one point, in the problem's own units, for whoever factors them."""

from __future__ import annotations

import itertools
from typing import Any

import casadi
import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from feasibly.solve.compiled import Compiled
from feasibly.solve.model import NlpModel
from feasibly.solve.records import Array

Triplets = tuple[NDArray[np.int64], NDArray[np.int64], Array]
"""Rows, columns and values of a sparse matrix."""


def sparse_derivatives(
    model: NlpModel, x: Array, y: Array, equality: Array, inequality: Array
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
    parts = model.second_order(
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


def switched_derivatives(
    model: NlpModel,
    x: Array,
    y: Array,
    equality: Array,
    inequality: Array,
    inputs: NDArray[np.int64],
    least: float,
) -> list[tuple[Triplets, Triplets]]:
    """What becoming zero of each of `inputs` changes in the Hessian of the Lagrangian and in the equalities' Jacobian.

    Inputs that no entry has in common become zero together: a grid of thousands of branches takes a few dozen
    evaluations.

    Args:
        model, x, y, equality, inequality: as for `sparse_derivatives`.
        inputs: positions in `x`.
        least: smaller changes are none.

    Returns:
        Rows, columns (over all outputs) and amounts, for each of `inputs`.
    """
    unit, symbol = model.objective_scale, casadi.SX.sym("x", len(x))
    parts = model.second_order(
        y[model.free], symbol, equality * unit / model.equality_scale, inequality * unit / model.inequality_scale
    )  # fmt: skip
    matrices = parts[6], parts[4]
    at = Compiled(casadi.Function("switched", [symbol], list(matrices)))
    hessian, jacobian = (np.array(part.sparsity().get_triplet(), dtype=np.int64) for part in matrices)
    rows = np.concatenate([model.free[hessian[0]], jacobian[0]])
    columns = model.free[np.concatenate([hessian[1], jacobian[1]])]
    scale = np.concatenate([np.full(hessian.shape[1], unit), model.equality_scale[jacobian[0]]])
    usual, split = np.concatenate(at(x)), hessian.shape[1]
    touched = scipy.sparse.vstack([_pattern(at.function, k) for k in range(2)]).tocsc()[:, inputs]
    found: list[Any] = [None] * len(inputs)
    for group in _apart(touched):
        off = x.copy()
        off[inputs[group]] = 0.0
        change = (np.concatenate(at(off)) - usual) / scale
        for one in group:
            places = touched.indices[touched.indptr[one] : touched.indptr[one + 1]]
            places = np.sort(places[np.abs(change[places]) > least])
            first = np.searchsorted(places, split)
            found[one] = tuple(
                (rows[some], columns[some], change[some]) for some in (places[:first], places[first:])
            )
    return found


def _pattern(function: Any, output: int) -> Any:
    """Which entries of an output depend on which inputs."""
    pattern = function.jac_sparsity(output, 0, True)
    row, column = np.array(pattern.get_triplet(), dtype=np.int64).reshape(2, -1)
    return scipy.sparse.csc_matrix((np.ones(len(row)), (row, column)), shape=pattern.shape)


def _apart(touched: Any) -> list[list[int]]:
    """The columns of a pattern in groups of which no two have a row in common: each in the first that it may join."""
    meets = (touched.T @ touched).tocsr()
    groups: list[list[int]] = []
    member = np.full(touched.shape[1], -1)
    for one in range(touched.shape[1]):
        taken = set(member[meets.indices[meets.indptr[one] : meets.indptr[one + 1]]].tolist())
        member[one] = next(k for k in itertools.count() if k not in taken)
        if member[one] == len(groups):
            groups.append([])
        groups[member[one]].append(one)
    return groups


def input_derivatives(
    model: NlpModel, x: Array, y: Array, equality: Array, inequality: Array
) -> tuple[Any, Any, Any]:
    """How the Lagrangian's gradient (over the free outputs), equalities and inequalities move with the input.

    The arguments are those of `sparse_derivatives`.
    """
    unit = model.objective_scale
    parts = model.input_jacobians(
        y[model.free], x, equality * unit / model.equality_scale, inequality * unit / model.inequality_scale
    )
    slope, *rows = (part.sparse().tocsr() for part in parts)
    scales = model.equality_scale, model.inequality_scale
    return slope / unit, *(_divided(part, scale) for part, scale in zip(rows, scales, strict=True))


def _divided(matrix: Any, scale: Array) -> Any:
    """A sparse matrix with its rows divided."""
    return scipy.sparse.diags(1.0 / scale) @ matrix if len(scale) else matrix
