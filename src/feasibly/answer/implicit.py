"""Derivatives of answers by the implicit function theorem: answers as a function that JAX can differentiate.

At an optimum the conditions

    gradient of the Lagrangian = 0,  equalities = 0,  active inequalities = 0,  outputs on an active bound stay

are equations in outputs and multipliers with the input as a parameter. Differentiating them gives a linear system for
how the outputs move; nothing of how the answer was found is differentiated. A constraint is active here if its
multiplier is positive (strictly complementary); one that is only touched counts as slack, so that where the active set
changes the derivative is that of one side.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from feasibly.answer.driver import Driver
from feasibly.answer.program import conditioned_program
from feasibly.answer.record import Answer
from feasibly.answer.rowwise import RowSolver
from feasibly.answer.settings import Settings
from feasibly.model.belief import Model
from feasibly.precision import called_back
from feasibly.problem._fixed import moving_bounds
from feasibly.problem.core import Problem
from feasibly.problem.errors import FeasiblyError
from feasibly.problem.point import Point
from feasibly.quick import quick

Array = NDArray[np.float64]


def answer_function(
    problem: Problem,
    answer: Callable[[Array], Point],
    programs: Programs | None = None,
    *,
    settings: Settings,
    solve: bool = True,
) -> Callable[[Any], Any]:
    """From one input `(n_inputs,)` to its answer `(n_outputs,)`, for use inside programs in JAX and float64.

    Args:
        problem: what is answered.
        answer: for whole batches, outside the traced program; NaN where there is none. It is called back from a thread
            of XLA's own and must run nothing of JAX: on a machine with one core that would wait for itself for ever.
        programs: the same inside it. Without them every answer is found outside.
        settings: numbers of the method.
        solve: what becomes of rows that the program does not reach: whether `answer` finds them, or they are NaN.
    """
    n, ni = problem.n_outputs, problem.n_inequalities
    most = min(ni, 64 + n // 8)
    sizes = (n, problem.n_equalities, most, most, n, n)

    def outside(bits: Any, reached: Any) -> Any:
        """All parts of `inside` in one row, for rows that are not reached; anything for the others."""
        rows = np.ascontiguousarray(bits).view(np.float64)[..., 0]
        leading = rows.shape[:-1]
        flat = rows.reshape(-1, rows.shape[-1])
        left = np.flatnonzero(~np.broadcast_to(reached, leading).ravel())
        found = np.zeros((len(flat), sum(sizes)))
        if len(left):
            answers = answer(flat[left])
            duals = answers.duals
            order = np.argsort(-duals.inequality, axis=1, kind="stable")[:, :most]
            pressing = np.take_along_axis(duals.inequality, order, axis=1)
            parts = (answers.y, duals.equality, order, pressing, duals.lower, duals.upper)
            found[left] = np.concatenate(parts, axis=1)
        return found.view(np.uint32).reshape(*leading, found.shape[1], 2)

    def ask(x: Any, reached: Any) -> tuple[Any, ...]:
        # As bits: whoever runs the callback may have no float64 switched on, and would round without a word.
        shape = jax.ShapeDtypeStruct((sum(sizes), 2), jnp.uint32)
        bits = jax.lax.bitcast_convert_type(x, jnp.uint32)
        found = jax.pure_callback(called_back(outside), shape, bits, reached, vmap_method="expand_dims")
        return tuple(jnp.split(jax.lax.bitcast_convert_type(found, jnp.float64), np.cumsum(sizes)[:-1]))

    def inside(x: Any, program: Callable[[Any], Reached] | None) -> tuple[Any, ...]:
        """Outputs, multipliers of equalities, the largest of inequalities (which, and they), those of bounds."""
        reached, parts = jnp.asarray(False), tuple(jnp.full(size, jnp.nan) for size in sizes)
        if program is not None:
            found = program(x)
            pressing, order = jax.lax.top_k(found.inequality, most)
            reached = found.reached
            parts = (found.y, found.equality, order.astype(jnp.float64), pressing, found.lower, found.upper)
        if not solve:
            return tuple(jnp.where(reached, part, jnp.nan) for part in parts)
        return tuple(
            jax.lax.cond(
                reached,
                lambda: parts,
                lambda: ask(x, reached),
            )
        )

    resting, settled = (None, None) if programs is None else programs

    @jax.custom_jvp
    def outputs(x: Any) -> Any:
        return inside(x, resting)[0]

    @outputs.defjvp
    def moved(primals: tuple[Any], tangents: tuple[Any]) -> tuple[Any, Any]:
        (x,), (along,) = primals, tangents
        found = inside(x, settled)
        return found[0] if resting is settled else outputs(x), move(problem, x, found, along, settings)

    def function(x: Any) -> Any:
        if jax.dtypes.canonicalize_dtype(np.float64) != np.dtype(np.float64):
            raise FeasiblyError(
                'answers are float64 and this program is not: call jax.config.update("jax_enable_x64", True) before '
                "anything else, or use proxy.sensitivity"
            )
        at = jnp.asarray(x)
        if at.shape != (problem.n_inputs,):
            raise FeasiblyError(
                f"this function takes one input of shape ({problem.n_inputs},), not {at.shape}; for rows, jax.vmap it"
            )
        return outputs(at.astype(jnp.float64))

    return function


class Reached(NamedTuple):
    """One row of a program: decisions, multipliers of all constraints, and whether it came to rest."""

    y: Any
    equality: Any
    inequality: Any
    lower: Any
    upper: Any
    reached: Any


class Programs(NamedTuple):
    """From one input to where it rests: as it is answered, and at the optimum, for derivatives."""

    resting: Callable[[Any], Reached]
    settled: Callable[[Any], Reached]


def programs(driver: Driver, model: Model, which: str) -> Programs | None:
    """Answers as programs in JAX; `None` where shared operators serve too few rows, or the model has no such form."""
    problem, candidates = driver.problem, driver.calibration.candidates
    moving = (
        any(part.any() for part in moving_bounds(problem)) if problem.limits.functions is not None else False
    )
    if which == "solved" or moving or not driver.calibration.shares or driver.calibration.sparse:
        return None
    try:
        rest = {optimal: conditioned_program(driver, model, optimal=optimal) for optimal in (False, True)}
    except FeasiblyError:
        return None

    def one(optimal: bool) -> Callable[[Any], Reached]:
        def program(x: Any) -> Reached:
            state, off = rest[optimal](x[None])
            y = problem.limits.hold(x, state.y[:, 0])
            low, high, pressing = candidates.split(state.lam[:, 0])
            zero = jnp.zeros(problem.n_outputs)
            inequality = jnp.zeros(problem.n_inequalities).at[candidates.inequality].set(pressing)
            lower, upper = zero.at[candidates.lower].set(low), zero.at[candidates.upper].set(high)
            return Reached(y, state.equality[:, 0], inequality, lower, upper, off[0] < 1.0)

        return program

    settled = one(True)
    return Programs(settled if which == "polished" else one(False), settled)


def move(problem: Problem, x: Any, found: tuple[Any, ...], along: Any, settings: Settings) -> Any:
    """How the outputs move when the input moves along `along`: linear in it, so that it can be transposed."""
    y, nu, order, mu, at_lower, at_upper = found
    rows = order.astype(jnp.int32)
    n, ne, ni = len(y), len(nu), len(mu)

    def constraints(x: Any, y: Any) -> tuple[Any, Any]:
        equality = y[:0] if problem.equality is None else problem.equality(x, y)
        inequality = y[:0] if problem.inequality is None else problem.inequality(x, y)[rows]
        return equality, inequality

    def lagrangian(x: Any, y: Any) -> Any:
        equality, inequality = constraints(x, y)
        return problem.objective(x, y) + nu @ equality + mu @ inequality

    slope = quick(jax.grad(lagrangian, argnums=1))
    both = quick(lambda x, y: jnp.concatenate(constraints(x, y)))
    largest = jnp.max(jnp.abs(jnp.concatenate([nu, mu, at_lower, at_upper])), initial=1e-300)
    least, damping = settings.active_multiplier * largest, settings.derivative_damping
    active = mu > least
    low, high = problem.limits.at(x)
    held = (at_lower > least) | (at_upper > least) | (low >= high)
    kept = jnp.concatenate([jnp.ones(ne, dtype=bool), active])

    # Outputs on a bound go where it goes; this moves the rest of the system.
    ends = jax.jvp(lambda x: jnp.stack(problem.limits.at(x)), (x,), (along,))[1]
    ends = jnp.where(held, jnp.where((at_upper > at_lower) & (low < high), ends[1], ends[0]), 0.0)
    hessian = jax.jacfwd(slope, argnums=1)(x, y)
    normals = jax.jacfwd(both, argnums=1)(x, y)
    gradient_change = jax.jvp(slope, (x, y), (along, ends))[1]
    shift = jax.jvp(both, (x, y), (along, ends))[1]

    free = (~held).astype(y.dtype)
    hessian = hessian * free[:, None] * free[None] + jnp.diag(1.0 - free)
    normals = normals * free[None] * kept[:, None]
    corner = jnp.diag(jnp.where(kept, 0.0, -1.0))
    system = jnp.block([[hessian, normals.T], [normals, corner]])
    stiff = damping * jnp.maximum(jnp.max(jnp.abs(hessian), initial=0.0), 1.0)
    damped = system + jnp.diag(jnp.concatenate([jnp.full(n, stiff), jnp.full(ne + ni, -damping)]))
    right = -jnp.concatenate([gradient_change * free, shift * kept])
    factors = jax.scipy.linalg.lu_factor(jax.lax.stop_gradient(damped))
    step = jax.scipy.linalg.lu_solve(factors, right)
    step = step + jax.scipy.linalg.lu_solve(factors, right - system @ step)
    return step[:n] * free + ends


def sensitivity(problem: Problem, rowwise: RowSolver, answer: Answer, directions: Any) -> Array:
    """How each answer moves along the columns of `directions`: `(rows, n_outputs, k)`; NaN for rows without an answer.

    One sparse factorisation a row, many rows at once.
    """
    from feasibly.solve.sensitivity import check_directions

    along = check_directions(directions, problem.n_inputs)
    width = problem.n_inputs if along is None else along.shape[1]
    moved = np.full((len(answer), problem.n_outputs, width), np.nan)
    duals = answer.duals
    assert duals is not None
    rows = np.flatnonzero(duals.known & np.isfinite(answer.y).all(axis=1))
    point = Point(answer.y[rows], duals.take(rows))
    moved[rows] = rowwise.sensitivity(answer._inputs[rows], point, along)
    return moved
