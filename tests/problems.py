"""One table of small problems that every solver, learner and answer can be crossed with.

    from tests.problems import CASES, make

    @pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.feasible])
    def test_something(name):
        problem = make(name)

Problems are made once a process, so that what was compiled for one test serves the next.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from feasibly.problem.core import Problem
from feasibly.problem.families import load_problem
from feasibly.problem.nonconvex import nonconvex
from tests.grids import GRID3, GRID6, Tables

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Case:
    """A small problem and what is known of it without solving."""

    build: Callable[[], Problem]
    feasible: bool = True
    """Whether every input of the declared range has a solution."""
    optimum: Callable[[Array], Array] | None = None
    """The solution in closed form, `(rows, n_inputs) -> (rows, n_outputs)`, where there is one."""
    unique: bool = True
    """Whether the solution is the only one."""


def _toy() -> Problem:
    """The point of a segment nearest to x: y0 + y1 = 1, y0 - y1 <= 1/2, 0 <= y <= 1."""
    return Problem(
        lambda x, y: jnp.sum((y - x) ** 2),
        [0.0, 0.0],
        [1.0, 1.0],
        equality=lambda x, y: jnp.array([y[0] + y[1] - 1.0]),
        inequality=lambda x, y: jnp.array([y[0] - y[1] - 0.5]),
        box=([-1.0, -1.0], [1.0, 1.0]),
        name="toy",
    )


def _toy_optimum(x: Array) -> Array:
    first = np.clip((1.0 + x[:, 0] - x[:, 1]) / 2.0, 0.0, 0.75)
    return np.stack([first, 1.0 - first], axis=1)


_MIX = np.array([[1.0, 0.5], [-0.25, 2.0], [0.75, -1.0]])


def _unconstrained() -> Problem:
    """No constraint and no finite bound: y = A x, where cosh is least."""
    return Problem(
        lambda x, y: jnp.sum(jnp.cosh(y - jnp.dot(_MIX, x))),
        np.full(3, -np.inf),
        np.full(3, np.inf),
        box=([-1.0, -1.0], [1.0, 1.0]),
        name="unconstrained",
    )


def _infeasible() -> Problem:
    """y0 + y1 = 3 + x with both at most 1: nothing does."""
    return Problem(
        lambda x, y: jnp.sum(y * y),
        [0.0, 0.0],
        [1.0, 1.0],
        equality=lambda x, y: jnp.array([y[0] + y[1] - 3.0 - x[0]]),
        box=([0.0], [0.5]),
        name="infeasible",
    )


def _half_infeasible() -> Problem:
    """y0 + y1 = x with both in [0, 1] and x up to 3: solvable for x <= 2 alone."""
    return Problem(
        lambda x, y: jnp.sum(y * y),
        [0.0, 0.0],
        [1.0, 1.0],
        equality=lambda x, y: jnp.array([y[0] + y[1] - x[0]]),
        box=([1.0], [3.0]),
        name="half-infeasible",
    )


def _degenerate() -> Problem:
    """One equality twice, a bound that an inequality repeats, a fixed output, and one that costs nothing."""
    return Problem(
        lambda x, y: (y[0] - x[0]) ** 2,
        [0.0, 0.0, 0.5, -1.0],
        [1.0, 1.0, 0.5, 1.0],
        equality=lambda x, y: jnp.stack([y[0] + y[1] - 1.0, 2.0 * y[0] + 2.0 * y[1] - 2.0]),
        inequality=lambda x, y: jnp.stack([y[0] - 1.0, y[0] - y[2] - 0.5]),
        box=([0.2], [1.2]),
        blocks={"moving": slice(0, 2), "fixed": slice(2, 3), "free": slice(3, 4)},
        name="degenerate",
    )


def _grid(tables: Tables) -> Problem:
    with tempfile.TemporaryDirectory() as folder:
        return load_problem(tables.write(Path(folder) / "grid.json"))


CASES: dict[str, Case] = {
    "grid3": Case(lambda: _grid(GRID3)),
    "grid6": Case(lambda: _grid(GRID6)),
    "toy": Case(_toy, optimum=_toy_optimum),
    "unconstrained": Case(_unconstrained, optimum=lambda x: x @ _MIX.T),
    "infeasible": Case(_infeasible, feasible=False),
    "half-infeasible": Case(
        _half_infeasible, feasible=False, optimum=lambda x: np.repeat(x / 2.0, 2, axis=1)
    ),
    "degenerate": Case(_degenerate, unique=False),
    "nonconvex": Case(lambda: nonconvex(20, 10, 20)),
}

FEASIBLE = [name for name, case in CASES.items() if case.feasible]
"""The names of those that can be solved for every input."""


@functools.cache
def make(name: str) -> Problem:
    """The problem of `CASES` called `name`; the same object each time."""
    return CASES[name].build()


def near_start(problem: Problem, rows: int, seed: int, width: float = 0.05) -> tuple[Any, Any]:
    """Random inputs of the declared range, and decisions scattered around the starting point."""
    from feasibly.problem.sampling import sample

    random = np.random.Generator(np.random.Philox(key=seed))
    return sample(problem, rows, seed), problem.start + width * random.standard_normal(
        (rows, problem.n_outputs)
    )
