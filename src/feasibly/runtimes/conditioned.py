"""`conditioned` for other runtimes: the program of `answer.program`, with the answers measured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from feasibly.answer.program import conditioned_program
from feasibly.precision import twin
from feasibly.problem.core import Problem
from feasibly.proxy import Proxy


def conditioned_function(proxy: Proxy) -> Callable[[Any], dict[str, Any]]:
    """From `(rows, n_inputs)` to `y`, `objective`, `max_equality`, `max_inequality`; trace it in double precision."""
    rest = conditioned_program(proxy.ladder.driver, proxy.model)
    measured = measure_function(proxy.problem)

    def answer(x: Any) -> dict[str, Any]:
        held = jax.vmap(proxy.problem.limits.hold)(x, rest(x).state.y.T)
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
