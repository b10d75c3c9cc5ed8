"""The first-order response of the optimum around one sparse operator: its system, and how that moves with the input."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse

from feasibly.answer.candidates import in_order
from feasibly.answer.derivatives import lagrangian_pieces
from feasibly.answer.sparse import SparseOperator
from feasibly.model.sparse import Sparse, SparseLaw
from feasibly.precision import double
from feasibly.problem.core import Problem

_COLUMNS = 64


def sparse_response(problem: Problem, operator: SparseOperator) -> SparseLaw:
    """How the optimum moves with the input near the operator's centre, the usual constraints staying active."""
    candidates, free, centre, base = operator.candidates, operator.free, operator.centre, operator.base
    pieces = lagrangian_pieces(problem, candidates)
    at_lower, at_upper, among = candidates.split(base)
    pressing = np.flatnonzero(among)
    still = jnp.zeros(int(at_lower.sum())), jnp.zeros(int(at_upper.sum()))  # no input moves a bound

    def residuals(x: Any) -> Any:
        y, lam = jnp.asarray(centre.y), jnp.asarray(candidates.split(centre.lam)[2])
        slope = jax.grad(pieces.lagrangian, argnums=1)(x, y, jnp.asarray(centre.equality), lam)[free]
        watched = in_order(*still, pieces.inequality(x, y)[pressing])
        return jnp.concatenate([slope, pieces.equality(x, y), *watched])

    size = len(centre.x)
    parts = []
    with double():
        at = jnp.asarray(centre.x)
        along = jax.jit(jax.vmap(lambda v: jax.jvp(residuals, (at,), (v,))[1], in_axes=-1, out_axes=-1))
        for first in range(0, size, _COLUMNS):
            count = min(_COLUMNS, size - first)
            block = np.zeros((size, _COLUMNS))
            block[first + np.arange(count), np.arange(count)] = 1.0
            parts.append(scipy.sparse.csc_matrix(np.asarray(along(block))[:, :count]))
    moves = scipy.sparse.diags(operator.scale) @ scipy.sparse.hstack(parts, format="csc")
    return SparseLaw(
        x0=centre.x,
        y0=centre.y,
        free=free,
        matrix=Sparse.of(operator.matrix),
        inputs=Sparse.of(moves),
        scale=operator.scale[: len(free)],
    )
