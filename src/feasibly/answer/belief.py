"""What every model believes, as one pure JAX function of `(rows, n_inputs)` in float64.

Models themselves compute in NumPy and in batches of few sizes; these are their formulas for a runtime that knows
neither. Networks keep their float32 inside, as in training.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from feasibly.answer._complementarity import solve_plainly
from feasibly.model.belief import Model
from feasibly.model.complementarity import solve
from feasibly.model.deterministic import Network
from feasibly.model.kernel import Kernel, KernelModel
from feasibly.model.linear import LinearModel
from feasibly.model.posterior import BayesianNetwork
from feasibly.model.response import ResponseModel, SolutionMap
from feasibly.model.scale import Scale
from feasibly.model.scaling import OutputMap
from feasibly.problem.errors import FeasiblyError

Function = Callable[[Any], Any]

LARGEST = 1 << 29
"""Bytes of drawn weights that are put into a file without random numbers of its own."""


@functools.singledispatch
def mean_function(model: Model, *, frozen: bool = False) -> Function:
    """The mean of `model` in `jax.numpy`; trace it in double precision.

    `frozen` is for runtimes other than XLA: the draws of a Bayesian network are written out, and what they lack in
    double precision is done without.
    """
    raise FeasiblyError(f"a {model.kind} model cannot be exported yet")


@mean_function.register
def _linear(model: LinearModel, *, frozen: bool = False) -> Function:
    return lambda x: model.offset + _scaled(model.inputs, x) @ model.weights


@mean_function.register
def _kernel(model: KernelModel, *, frozen: bool = False) -> Function:
    width = np.sqrt(model.points.shape[1])
    arccos = _arccos if frozen else jnp.arccos

    def mean(x: Any) -> Any:
        cross = _between(model.kernel, _scaled(model.inputs, x) / width, model.points, arccos)
        return model.offset + cross @ model.weights

    return mean


@mean_function.register
def _network(model: Network, *, frozen: bool = False) -> Function:
    kind = _precision(frozen)
    weights = model.parameters.astype(kind)

    def mean(x: Any) -> Any:
        return _answers(
            model.outputs, model.architecture.forward(weights, _scaled(model.inputs, x).astype(kind))
        )

    return mean


@mean_function.register
def _bayesian(model: BayesianNetwork, *, frozen: bool = False) -> Function:
    size = model.count * model.architecture.size * 8
    if frozen and size > LARGEST:
        raise FeasiblyError(
            f"the {model.count} draws behind this network's mean would take {size / 1e6:.0f} MB; export StableHLO, "
            "which draws them itself"
        )
    kind = _precision(frozen)
    weights = np.stack([_draw(model, i) for i in range(model.count)]).astype(kind) if frozen else None

    def mean(x: Any) -> Any:
        scaled = _scaled(model.inputs, x).astype(kind)

        def add(total: Any, draw: Any) -> tuple[Any, None]:
            weight = draw if frozen else _draw(model, draw)
            return total + _answers(model.outputs, model.architecture.forward(weight, scaled)), None

        begin = jnp.zeros((x.shape[0], model.architecture.n_outputs))
        total, _ = jax.lax.scan(add, begin, jnp.arange(model.count) if weights is None else weights)
        return total / model.count

    return mean


@mean_function.register
def _response(model: ResponseModel, *, frozen: bool = False) -> Function:
    correction = mean_function(model.correction)
    varying = np.flatnonzero(model.varying)

    def mean(x: Any) -> Any:
        answer = _respond(model.solution_map, x, frozen)
        return answer + correction(jnp.concatenate([x, answer[:, varying]], axis=1))

    return mean


def _respond(solution_map: SolutionMap, x: Any, frozen: bool) -> Any:
    """The map's answer: first in a hurry, then with patience where that did not do, as `SolutionMap.respond` has it."""
    a = jax.tree.map(np.asarray, solution_map.arrays)
    dx = x - a.x0
    answer = a.y0 + a.drift + dx @ a.slope.T
    if not len(a.q0):
        return answer
    q = a.q0 + dx @ a.q_slope.T
    lam = jnp.zeros_like(q) + a.lam0
    previous, done = lam, jnp.zeros_like(q[:, 0]) > 0.0
    for rounds in solution_map.rounds:
        if frozen:
            found, settled = solve_plainly(
                a.pivoted, q, previous, solution_map.max_changes, rounds, solution_map.settings
            )
        else:
            active = jnp.broadcast_to(a.pivoted[0].base[:, None], q.T.shape)
            turned, _, settled = solve(
                a.pivoted,
                q.T,
                previous.T,
                active,
                solution_map.max_changes,
                rounds,
                settings=solution_map.settings,
            )
            found = turned.T
        lam, done = jnp.where((~done & settled)[:, None], found, lam), done | settled
    return answer + lam @ a.push.T


def _between(kernel: Kernel, a: Any, b: Any, arccos: Function) -> Any:
    inner = a @ b.T
    if kernel.shape == "rbf":
        distance = jnp.sum(a**2, axis=1)[:, None] + np.sum(b**2, axis=1) - 2.0 * inner
        curved = jnp.exp(-0.5 * jnp.maximum(distance, 0.0) / kernel.length**2)
    else:
        norms = jnp.sqrt((1.0 + jnp.sum(a**2, axis=1))[:, None] * (1.0 + np.sum(b**2, axis=1))[None])
        cosine = jnp.clip((1.0 + inner) / norms, -1.0, 1.0)
        curved = norms * (jnp.sqrt(1.0 - cosine**2) + (np.pi - arccos(cosine)) * cosine) / np.pi
    return inner + kernel.weight * curved


def _answers(outputs: OutputMap, z: Any) -> Any:
    """As `OutputMap.answer`, with `softplus` and `sigmoid` written out: few runtimes have them in double precision."""
    z = z.astype(jnp.float64)
    scaled = z * outputs.scale.std + outputs.scale.mean
    if outputs.repair == "none":
        return scaled
    if outputs.repair == "clip":
        return jnp.minimum(jnp.maximum(scaled, outputs.lower), outputs.upper)
    low, high = np.isfinite(outputs.lower), np.isfinite(outputs.upper)
    lower, upper = np.where(low, outputs.lower, 0.0), np.where(high, outputs.upper, 0.0)
    decayed = jnp.exp(-jnp.abs(z))
    soft = jnp.maximum(z, 0.0) + jnp.log(1.0 + decayed)
    share = jnp.where(z >= 0.0, 1.0, decayed) / (1.0 + decayed)
    between, above, below = lower + (upper - lower) * share, lower + soft, upper - soft
    return jnp.where(low & high, between, jnp.where(low, above, jnp.where(high, below, scaled)))


def _scaled(scale: Scale, x: Any) -> Any:
    return (x - scale.mean) / scale.std


def _draw(model: BayesianNetwork, index: Any) -> Any:
    key = jax.random.fold_in(jax.random.key(model.seed), index)
    mean = jnp.asarray(model.mean, dtype=jnp.float32)
    noise = jax.random.normal(key, mean.shape, jnp.float32)
    return mean + jnp.exp(jnp.asarray(model.log_std, dtype=jnp.float32)) * noise


def _precision(frozen: bool) -> Any:
    """Networks are float32; converters to other formats do not mix it with float64, which holds the same weights."""
    return np.float64 if frozen else np.float32


def _arccos(cosine: Any) -> Any:
    """For runtimes without one in double precision: a rough formula, sharpened by Newton's method for the cosine."""
    size = jnp.abs(cosine)
    rough = 1.5707288 + size * (
        -0.2121144 + size * (0.0742610 - 0.0187293 * size)
    )  # Abramowitz and Stegun 4.4.45
    angle = jnp.sqrt(1.0 - size) * rough
    for _ in range(3):
        sine = jnp.sin(angle)
        angle = angle + jnp.where(sine > 1e-6, (jnp.cos(angle) - size) / jnp.maximum(sine, 1e-6), 0.0)
    return jnp.where(cosine < 0.0, np.pi - angle, angle)
