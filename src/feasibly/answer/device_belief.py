"""Models' means as functions that an accelerator computes for a whole batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from feasibly.model.belief import Model
from feasibly.model.complementarity_wide import solve_wide
from feasibly.model.linear import LinearModel
from feasibly.model.response import Law, LawArrays, ResponseModel
from feasibly.model.sparse import SparseResponseModel
from feasibly.precision import called_back

Array = NDArray[np.float64]


class Mean(NamedTuple):
    """The mean of a model as a function of its arrays and `(rows, n_inputs)`; beside it, rows last, the active set of
    the candidates where the model knows one. Arrays are arguments: as constants they would be compiled with it."""

    mean: Callable[[Any, Any], tuple[Any, Any]]
    arrays: Any


def mean_on_device(model: Model, solver: Any = solve_wide) -> Mean:
    """The mean of a model in closed form; others are computed on the host."""
    if isinstance(model, LinearModel):
        return Mean(lambda arrays, x: (_linear(arrays, x), None), _line(model))
    if isinstance(model, ResponseModel):
        law, varying = model.law, np.flatnonzero(model.varying)

        def mean(arrays: Any, x: Any) -> tuple[Any, Any]:
            answer, active = _respond(arrays[0], law, x, solver)
            return answer + _linear(arrays[1], jnp.concatenate([x, answer[:, varying]], axis=1)), active

        return Mean(mean, (law.arrays, _line(model.correction)))
    if isinstance(model, SparseResponseModel):
        slope, offset = (a + b for a, b in zip(model.law.line, _line(model.correction), strict=True))
        return Mean(lambda arrays, x: (_linear(arrays, x), None), (slope, offset))

    def elsewhere(_: Any, x: Any) -> tuple[Any, Any]:
        shape = jax.ShapeDtypeStruct((x.shape[0], len(model.covariance.diagonal)), jnp.float64)
        predict = called_back(lambda rows: model.predict(np.asarray(rows)).mean)
        return jax.pure_callback(predict, shape, x), None

    return Mean(elsewhere, ())


def _line(model: LinearModel) -> tuple[Array, Array]:
    """A linear model as one matrix and an offset."""
    weights = np.asarray(model.weights) / np.asarray(model.inputs.std)[:, None]
    return weights, np.asarray(model.offset) - np.asarray(model.inputs.mean) @ weights


def _linear(line: tuple[Any, Any], x: Any) -> Any:
    return x @ line[0] + line[1]


def _respond(a: LawArrays, law: Law, x: Any, solver: Any) -> tuple[Any, Any]:
    """`Law.respond` for rows on the device, in as many rounds as all of them together may need at first."""
    dx = (x - a.x0).T
    answer = (a.y0 + a.drift)[:, None] + a.slope @ dx
    if not a.q0.shape[0]:
        return answer.T, None
    q = a.q0[:, None] + a.q_slope @ dx
    previous = jnp.broadcast_to(a.lam0[:, None], q.shape)
    usual = jnp.broadcast_to(a.pivoted[0].base[:, None], q.shape)
    lam, active, settled = solver(a.pivoted, q, previous, usual, law.flips, law.rounds[0])
    return (answer + a.push @ jnp.where(settled, lam, previous)).T, jnp.where(settled, active, usual)
