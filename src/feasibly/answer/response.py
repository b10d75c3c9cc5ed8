"""The first-order response of the optimum around one operator, as arrays linear in the input.

It is one step of the iteration from the operator's centre, with the residuals there linear in the input: equal to that
step wherever cost and constraints are affine in the input for a fixed decision, as in AC optimal power flow.
"""

from __future__ import annotations

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from feasibly.answer.candidates import in_order
from feasibly.answer.derivatives import lagrangian_pieces
from feasibly.answer.driver import Driver
from feasibly.answer.operator import Operator
from feasibly.answer.schedule import SHARED_ONLY
from feasibly.model.response import SolutionMapArrays
from feasibly.precision import double
from feasibly.problem.core import Problem

Array = NDArray[np.float64]

_AT_A_TIME = 256
"""Switches between two looks at the clock."""


def first_order_response(problem: Problem, operator: Operator) -> SolutionMapArrays:
    """How the optimum moves with the input near the operator's centre, as a small complementarity problem."""
    candidates, free, centre = operator.candidates, operator.free, operator.centre
    pieces = lagrangian_pieces(problem, candidates)
    at_lower, at_upper, at_inequality = candidates.split(centre.lam)

    def residuals(x: Any, y: Any, nu: Any, lam: Any) -> Any:
        slope = jax.grad(pieces.lagrangian, argnums=1)(x, y, nu, lam)[free]
        return jnp.concatenate([slope, pieces.equality(x, y)]), pieces.inequality(x, y)

    with double():
        at = tuple(jnp.asarray(part) for part in (*centre[:3], at_inequality))
        (here, h) = jax.jit(residuals)(*at)
        (here_slope, h_slope) = jax.jit(jax.jacfwd(residuals))(*at)
    inverse = operator.inverse
    blocks, response, normals, gram = (
        np.asarray(part, dtype=np.float64)
        for part in (inverse.blocks, inverse.response, inverse.normals, inverse.gram)
    )
    n = len(free)
    low, high = np.asarray(inverse.low), np.asarray(inverse.high)
    residual = np.array(here)  # the bounds' multipliers come on top: all of it vanishes at a solved point
    residual[low] -= at_lower
    residual[high] += at_upper

    def along(moved: Array) -> Array:
        return np.concatenate(in_order(-moved[low], moved[high], normals @ moved))

    step = blocks[:n] @ residual
    step_slope = blocks[:n] @ np.asarray(here_slope)
    below = problem.lower[candidates.lower] - centre.y[candidates.lower]
    above = centre.y[candidates.upper] - problem.upper[candidates.upper]
    limits = np.concatenate(in_order(below, above, np.asarray(h)))
    still_low, still_high = (
        np.zeros((len(part), len(centre.x))) for part in (low, high)
    )  # no input moves a bound
    limits_slope = np.concatenate(in_order(still_low, still_high, np.asarray(h_slope)))
    return SolutionMapArrays(
        x0=centre.x,
        y0=centre.y,
        drift=_among_all(step - response[:n] @ centre.lam, free, problem.n_outputs),
        slope=_among_all(step_slope, free, problem.n_outputs),
        push=_among_all(response[:n], free, problem.n_outputs),
        q0=along(step) + limits + gram @ centre.lam,
        q_slope=along(step_slope) + limits_slope,
        lam0=centre.lam,
        pivoted=inverse.pivoted,
    )


def through_switches(
    solution_map: SolutionMapArrays, driver: Driver, until: float = np.inf
) -> SolutionMapArrays:
    """The map through the answer with each switch off, where it would follow its slope there, which tells nothing.

    Those answers come from the driver's corrected operator. Where there is none, the map is level in that input.
    """
    if not driver.calibration.switches:
        return solution_map
    centre, inputs = driver.calibration.centres[0], driver.calibration.switches[0].inputs
    x = np.tile(centre.x, (len(inputs), 1))
    x[np.arange(len(inputs)), inputs] = 0.0
    kept = np.zeros(len(x), dtype=bool)
    y, lam = np.tile(centre.y, (len(x), 1)), np.tile(centre.lam, (len(x), 1))
    for first in range(0, len(x), _AT_A_TIME):
        if time.monotonic() > until:
            break
        some = np.arange(first, min(first + _AT_A_TIME, len(x)))
        found = driver.run(x[some], y[some], SHARED_ONLY, until=until)
        done = some[found.converged]
        kept[done] = True
        y[done], lam[done] = found.y[found.converged], found.iterate.lam[found.converged]
    y[kept] = driver.problem.pin(x[kept], y[kept])
    candidates, search = driver.calibration.candidates, driver.search
    slack = np.where(lam > 0.0, 0.0, np.maximum(candidates.slack(search, y, search.inequalities(x, y)), 0.0))
    gram = np.asarray(driver.operator(0).inverse.gram)
    q = np.where(kept[:, None], lam @ gram - slack, solution_map.q0)
    slope, q_slope = np.array(solution_map.slope), np.array(solution_map.q_slope)
    moved = y - solution_map.y0 - solution_map.drift - lam @ np.asarray(solution_map.push).T
    slope[:, inputs] = np.where(kept, -moved.T, 0.0)
    q_slope[:, inputs] = (solution_map.q0 - q).T
    return solution_map._replace(slope=slope, q_slope=q_slope)


def _among_all(part: Array, free: NDArray[np.int64], size: int) -> Array:
    """`part` of the free outputs among all of them, zero elsewhere."""
    whole = np.zeros((size, *part.shape[1:]))
    whole[free] = part
    return whole
