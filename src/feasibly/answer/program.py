"""`conditioned` as one program in JAX: the belief, predicted multipliers, and steps on the shared operators.

What `predict` does beyond that needs a solver at hand, which factors the systems of rows that no shared operator
reaches. A program has none: it says for every row how far its answer is from the constraints instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from feasibly.answer.belief import mean_function
from feasibly.answer.driver import Driver
from feasibly.answer.operator import DenseInverse
from feasibly.answer.step import Carry, Iterate, make_pieces, relative_change, take_step
from feasibly.model.belief import Model
from feasibly.problem.errors import FeasiblyError


class Rested(NamedTuple):
    """Where rows came to rest, rows last."""

    state: Iterate
    off: Any
    """The largest violation of each row over its tolerance: below one it has converged."""


def conditioned_program(driver: Driver, model: Model, *, optimal: bool = False) -> Callable[[Any], Rested]:
    """From inputs `(rows, n_inputs)` to where they rest; trace it in double precision.

    Args:
        driver: whose operators are built in.
        model: whose belief is conditioned.
        optimal: go on without the proximal term, to the optimum itself and its multipliers.

    Raises:
        FeasiblyError: the model is answered with sparse factorisations, or its belief cannot be written in JAX.
    """
    calibration, settings, search = driver.calibration, driver.settings, driver.search
    if calibration.sparse:
        raise FeasiblyError(
            "answers of a model this large are found with sparse factorisations, which no other runtime has; "
            "export the mean of a ridge model instead"
        )
    belief, multipliers = mean_function(model), mean_function(calibration.duals)
    inverses = [driver.operator(i).inverse for i in range(len(calibration.centres))]
    shared = jax.tree.map(lambda *parts: np.stack([np.asarray(part) for part in parts]), *inverses)
    pieces = make_pieces(search, calibration.candidates)
    fixed = search.lower >= search.upper

    def broken(inverse: DenseInverse, x: Any, y: Any) -> Any:
        """The largest violation of every row over its tolerance."""
        _, g, h = pieces.values(x, y)
        over = jnp.maximum(pieces.violations(inverse, x, y, h), 0.0)
        worst = jnp.maximum(
            jnp.max(jnp.abs(g), axis=0, initial=0.0) / settings.equality_tolerance,
            jnp.max(over, axis=0, initial=0.0) / settings.inequality_tolerance,
        )
        return jnp.where(jnp.isfinite(worst), worst, jnp.inf)

    def sweep(
        inverse: DenseInverse, x: Any, mean: Any, begin: Iterate, done: Any, proximal: bool, most: int
    ) -> Rested:
        """Rows that are not done, taken to where one operator brings them."""
        corrected = inverse.corrected(x)

        def step(at: tuple[Carry, Any]) -> tuple[Carry, Any]:
            carry, still = at
            moved = take_step(
                pieces, inverse, x, mean, carry, proximal, settings.patient_rounds, calibration.max_changes, settings,
                corrected=corrected,
            )  # fmt: skip
            # A row that has converged takes one more step and stands still: its answer is then its own, whatever else
            # is in the batch.
            state = Iterate(
                *(jnp.where(still, old, new) for old, new in zip(carry.state, moved.state, strict=True))
            )
            if proximal:
                settled = relative_change(*moved.costs) < settings.proximal_change_tolerance
                rests = (broken(inverse, x, carry.state.y) < 1.0) & settled
            else:
                rests = _shift(carry.state, state) < settings.program_settled
            return moved._replace(state=state), still | rests

        def unfinished(at: tuple[Carry, Any]) -> Any:
            return (at[0].count < most) & ~jnp.all(at[1])

        last, settled = jax.lax.while_loop(unfinished, step, (Carry.first(begin), done))
        off = broken(inverse, x, last.state.y)
        return Rested(last.state, jnp.where(settled, off, jnp.maximum(off, 1.0)))

    def rest(x: Any) -> Rested:
        predicted = multipliers(x)
        equality, lam = predicted[:, : search.n_equalities], predicted[:, search.n_equalities :]
        mean = jnp.where(fixed, search.lower, belief(x)).T
        active = jnp.broadcast_to(calibration.base[:, None], lam.T.shape)
        begin = Iterate(mean, equality.T, jnp.maximum(lam, 0.0).T, active)

        def on(found: Rested, inverse: DenseInverse) -> tuple[Rested, None]:
            tried = sweep(inverse, x.T, mean, begin, found.off < 1.0, True, settings.program_steps)
            if optimal:
                most = settings.program_settling
                tried = sweep(inverse, x.T, mean, tried.state, tried.off >= 1.0, False, most)
            better = ~(found.off < 1.0) & (tried.off < found.off)
            return _choose(better, tried, found), None

        nothing = Rested(begin, jnp.full_like(mean[0], jnp.inf))
        found, _ = jax.lax.scan(on, nothing, shared)
        return found

    return rest


def _choose(rows: Any, one: Rested, other: Rested) -> Rested:
    parts = (jnp.where(rows, a, b) for a, b in zip(one.state, other.state, strict=True))
    return Rested(Iterate(*parts), jnp.where(rows, one.off, other.off))


def _shift(before: Iterate, after: Iterate) -> Any:
    """How far a step moved each row, relative to its largest decision and multiplier."""

    def part(a: Any, b: Any) -> Any:
        size = jnp.max(jnp.abs(b), axis=0, initial=1e-12)
        return jnp.max(jnp.abs(a - b), axis=0, initial=0.0) / size

    pairs = ((getattr(before, name), getattr(after, name)) for name in ("y", "equality", "lam"))
    moved = jnp.stack([part(a, b) for a, b in pairs if a.shape[0]])
    return jnp.max(moved, axis=0)
