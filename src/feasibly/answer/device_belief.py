"""Models' means as functions that an accelerator computes for a whole batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from feasibly.answer.device_operator import dense_there
from feasibly.model.belief import Model
from feasibly.model.complementarity_wide import solve_wide
from feasibly.model.linear import LinearModel
from feasibly.model.response import ResponseModel, SolutionMap, SolutionMapArrays
from feasibly.model.sparse import SparseResponseModel, SparseSolutionMap
from feasibly.precision import called_back, double

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
        solution_map, varying = model.solution_map, np.flatnonzero(model.varying)

        def mean(arrays: Any, x: Any) -> tuple[Any, Any]:
            answer, active = _respond(arrays[0], solution_map, x, solver)
            return answer + _linear(arrays[1], jnp.concatenate([x, answer[:, varying]], axis=1)), active

        return Mean(mean, (solution_map.arrays, _line(model.correction)))
    if isinstance(model, SparseResponseModel):
        return Mean(
            _sparsely,
            (
                model.solution_map.x0,
                model.solution_map.y0,
                _slope(model.solution_map),
                _line(model.correction),
            ),
        )

    def elsewhere(_: Any, x: Any) -> tuple[Any, Any]:
        shape = jax.ShapeDtypeStruct((x.shape[0], len(model.covariance.diagonal)), jnp.float64)
        predict = called_back(lambda rows: model.predict(np.asarray(rows)).mean)
        return jax.pure_callback(predict, shape, x), None

    return Mean(elsewhere, ())


def _line(model: LinearModel) -> tuple[Array, Array | None, Array]:
    """A linear model as one matrix or, where that is less to multiply with, two of them, and an offset."""
    root = np.asarray(model.root) / np.asarray(model.inputs.std)[:, None]
    loads, (inputs, rank) = np.asarray(model.loads), root.shape
    offset = np.asarray(model.offset) - (np.asarray(model.inputs.mean) @ root) @ loads
    few = 2 * rank * (inputs + loads.shape[1]) < inputs * loads.shape[1]
    return (root, loads, offset) if few else (root @ loads, None, offset)


def _linear(line: tuple[Any, Any, Any], x: Any) -> Any:
    first, second, offset = line
    return (x @ first if second is None else (x @ first) @ second) + offset


def _slope(solution_map: SparseSolutionMap) -> Any:
    """How the answer of a solution map moves with the input, `(outputs, inputs)`: solved for in the device's memory."""
    with double():
        moved = jnp.linalg.solve(dense_there(solution_map.matrix), dense_there(solution_map.inputs))[
            : len(solution_map.free)
        ]
        return (
            jnp.zeros((len(solution_map.y0), len(solution_map.x0)))
            .at[solution_map.free]
            .set(-solution_map.scale[:, None] * moved)
        )


def _sparsely(arrays: Any, x: Any) -> tuple[Any, Any]:
    """A solution map without kinks, corrected."""
    x0, y0, slope, line = arrays
    return y0 + (x - x0) @ slope.T + _linear(line, x), None


def _respond(a: SolutionMapArrays, solution_map: SolutionMap, x: Any, solver: Any) -> tuple[Any, Any]:
    """`SolutionMap.respond` for rows on the device, in as many rounds as all of them together may need at first."""
    dx = (x - a.x0).T
    answer = (a.y0 + a.drift)[:, None] + a.slope @ dx
    if not a.q0.shape[0]:
        return answer.T, None
    q = a.q0[:, None] + a.q_slope @ dx
    previous = jnp.broadcast_to(a.lam0[:, None], q.shape)
    usual = jnp.broadcast_to(a.pivoted[0].base[:, None], q.shape)
    lam, active, settled = solver(
        a.pivoted,
        q,
        previous,
        usual,
        solution_map.max_changes,
        solution_map.rounds[0],
        settings=solution_map.settings,
    )
    return (answer + a.push @ jnp.where(settled, lam, previous)).T, jnp.where(settled, active, usual)
