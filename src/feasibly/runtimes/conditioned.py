"""`conditioned` as one pure JAX function: the belief, predicted multipliers, and steps on the shared operators.

What `predict` does beyond that needs a solver at hand, which factors the systems of rows that no shared operator
reaches. A file has none, so it says for every row how far its answer is from the constraints instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from feasibly.answer.operator import DenseInverse
from feasibly.answer.step import Carry, State, make_pieces, take_step
from feasibly.precision import twin
from feasibly.problem.core import Problem
from feasibly.problem.errors import FeasiblyError
from feasibly.proxy import Proxy
from feasibly.runtimes.mean import mean_function

STEPS = 28
"""At most so many, as `predict` takes for a few rows; most batches come to rest in fewer than ten."""


def conditioned_function(proxy: Proxy) -> Callable[[Any], dict[str, Any]]:
    """From `(rows, n_inputs)` to `y`, `objective`, `max_equality`, `max_inequality`; trace it in double precision."""
    driver = proxy.ladder.driver
    calibration, settings = driver.calibration, driver.settings
    search = driver.search
    if calibration.sparse:
        raise FeasiblyError(
            "answers of a model this large are found with sparse factorisations, which no other runtime has; "
            "export the mean of a ridge model instead"
        )
    belief, multipliers = mean_function(proxy.model), mean_function(calibration.duals)
    inverses = [driver.operator(i).inverse for i in range(len(calibration.centres))]
    shared = jax.tree.map(lambda *parts: np.stack([np.asarray(part) for part in parts]), *inverses)
    pieces = make_pieces(search, calibration.candidates)
    fixed = search.lower >= search.upper
    measured = measure_function(proxy.problem)

    def broken(inverse: DenseInverse, x: Any, y: Any) -> Any:
        """The largest violation of every row over its tolerance."""
        _, g, h = pieces.values(x, y)
        over = jnp.maximum(pieces.violations(inverse, x, y, h), 0.0)
        worst = jnp.maximum(
            jnp.max(jnp.abs(g), axis=0, initial=0.0) / settings.equality_tolerance,
            jnp.max(over, axis=0, initial=0.0) / settings.inequality_tolerance,
        )
        return jnp.where(jnp.isfinite(worst), worst, jnp.inf)

    def sweep(inverse: DenseInverse, x: Any, mean: Any, begin: State, done: Any) -> tuple[Any, Any]:
        """Rows that are not done, taken to where one operator brings them; and how far each is off then."""

        def step(at: tuple[Carry, Any]) -> tuple[Carry, Any]:
            carry, still = at
            moved = take_step(
                pieces, inverse, x, mean, carry, True, settings.patient_rounds, calibration.flips, settings
            )  # fmt: skip
            # A row that has converged takes one more step and stands still: its answer is then its own, whatever else
            # is in the batch.
            state = State(
                *(jnp.where(still, old, new) for old, new in zip(carry.state, moved.state, strict=True))
            )
            return moved._replace(state=state), still | (broken(inverse, x, carry.state.y) < 1.0)

        def unfinished(at: tuple[Carry, Any]) -> Any:
            return (at[0].count < STEPS) & ~jnp.all(at[1])

        unknown = jnp.full_like(mean[0], jnp.inf)
        first = Carry(begin, (unknown, unknown, unknown), jnp.asarray(jnp.inf), jnp.asarray(0))
        last, _ = jax.lax.while_loop(unfinished, step, (first, done))
        return last.state.y, broken(inverse, x, last.state.y)

    def answer(x: Any) -> dict[str, Any]:
        predicted = multipliers(x)
        equality, lam = predicted[:, : search.n_equalities], predicted[:, search.n_equalities :]
        mean = jnp.where(fixed, search.lower, belief(x))
        active = jnp.broadcast_to(calibration.base[:, None], lam.T.shape)
        begin = State(mean.T, equality.T, jnp.maximum(lam, 0.0).T, active)

        def on(found: tuple[Any, Any], inverse: DenseInverse) -> tuple[tuple[Any, Any], None]:
            y, off = found
            tried, left = sweep(inverse, x.T, mean.T, begin, off < 1.0)
            better = ~(off < 1.0) & (left < off)
            return (jnp.where(better, tried, y), jnp.where(better, left, off)), None

        nothing = mean.T, jnp.full_like(mean[:, 0], jnp.inf)
        (y, _), _ = jax.lax.scan(on, nothing, shared)
        held = jax.vmap(proxy.problem.limits.hold)(x, y.T)
        return {"y": held, **measured(x, held)}

    return answer


def measure_function(problem: Problem) -> Callable[[Any, Any], dict[str, Any]]:
    """Cost and largest violations of every row, over all constraints and in natural units, as `predict` measures."""

    def one(x: Any, y: Any) -> dict[str, Any]:
        low, high = problem.limits.at(x)
        over = [jnp.maximum(low - y, y - high)]
        violation = problem.inequality if problem.violation is None else problem.violation
        if violation is not None:
            over.append(twin(violation)(x, y))
        equality = jnp.zeros(1) if problem.equality is None else jnp.abs(twin(problem.equality)(x, y))
        return {
            "objective": twin(problem.objective)(x, y),
            "max_equality": jnp.max(equality, initial=0.0),
            "max_inequality": jnp.max(jnp.concatenate(over), initial=0.0),
        }

    return jax.vmap(one)
