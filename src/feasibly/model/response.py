"""The model of our own: regression on the optimum's first-order response.

How the optimum of a smooth problem moves with its data is known: near one solved point it is the solution of a
quadratic program whose right-hand side is linear in the data. That solution map is piecewise linear, with its kinks
where constraints become active, which is just what a regression on the raw inputs cannot bend around. One solved point
gives the whole solution map (labels carry sensitivities); labels and pseudo-labels then correct it by an exact Bayesian
linear regression on the inputs and on the map's own answer.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from feasibly._codec import record
from feasibly.arrays import padded
from feasibly.model.belief import Belief, Covariance, Model
from feasibly.model.complementarity import Pivoted, solve
from feasibly.model.linear import LinearModel, fit_ridge
from feasibly.model.settings import DEFAULT, ComplementaritySettings
from feasibly.precision import double

Array = NDArray[np.float64]

_CHUNK, _SMALL, _LARGE = 256, 16, 300
"""Batch sizes that are compiled, beside one: for many rows and, where there are so many outputs that a batch that is
mostly filling costs more than compiling another size, for the few that are left over."""


@record(
    "law-arrays",
    shapes={
        "x0": "inputs", "y0": "outputs", "drift": "outputs", "slope": "outputs inputs", "push": "outputs candidates",
        "q0": "candidates", "q_slope": "candidates inputs", "lam0": "candidates", "pivoted.*.base": "candidates",
    },
)  # fmt: skip
class SolutionMapArrays(NamedTuple):
    """The arrays of a solution map; `dx = x - x0`."""

    x0: Any
    y0: Any
    drift: Any
    """The step at `x0` itself (zero at a solved point up to rounding)."""
    slope: Any
    """How the step grows with `dx` while the usual constraints stay as they are."""
    push: Any
    """What a unit of each candidate's multiplier adds to the step."""
    q0: Any
    q_slope: Any
    """Right-hand side of the complementarity problem."""
    lam0: Any
    pivoted: tuple[Pivoted, Pivoted]


@record("law", added=("settings",), stored={"max_changes": "flips"})
@dataclass(frozen=True, eq=False)
class SolutionMap:
    """`y0 + drift + slope dx + push lam(dx)`, where `lam` solves a small complementarity problem."""

    arrays: SolutionMapArrays
    max_changes: int
    rounds: tuple[tuple[int, int], ...] = DEFAULT.response_rounds
    """Of the complementarity problem, soft and hard: for all rows, then for those that did not settle."""
    settings: ComplementaritySettings = DEFAULT
    """Its other numbers."""

    @classmethod
    def of(
        cls, arrays: SolutionMapArrays, max_changes: int, settings: ComplementaritySettings
    ) -> SolutionMap:
        """A solution map with as many rounds as the settings say."""
        return cls(arrays, max_changes, settings.response_rounds, settings)

    def suited(self, x: Array) -> SolutionMap:
        """The same solution map with as many rounds as pay on inputs like these."""
        s = self.settings
        share = float(np.mean(self._run(x, s.response_rounds[0], single=False)[1]))
        if share >= s.response_patient:
            return self
        return replace(self, rounds=s.response_rounds[:1] if share >= s.response_settles else ((0, 0),))

    def __post_init__(self) -> None:
        object.__setattr__(self, "arrays", on_device(self.arrays))

    def respond(self, x: Array) -> tuple[Array, NDArray[np.bool_]]:
        """The map's answer to each row, and whether its complementarity problem was solved on the way."""
        single = len(x) == 1
        answer, settled = self._run(x, self.rounds[0], single)
        for rounds in self.rounds[1:]:
            rest = np.flatnonzero(~settled)
            if len(rest):
                answer[rest], settled[rest] = self._run(x[rest], rounds, single)
        return answer, settled

    def _run(self, x: Array, rounds: tuple[int, int], single: bool) -> tuple[Array, NDArray[np.bool_]]:
        """Answers, and whether each row's complementarity problem was solved within `rounds`.

        A program for one row is compiled only for those who ask for a `single` one.
        """
        answers, settled = [np.zeros((0, len(self.arrays.y0)))], [np.zeros(0, dtype=bool)]
        run = _respond(self.max_changes, self.settings)
        with double():
            few = len(x) <= _CHUNK // 4 and len(self.arrays.y0) > _LARGE
            chunk = _SMALL if few else _CHUNK
            for first in range(0, len(x), chunk):
                rows = x[first : first + chunk]
                width = 1 if single else chunk
                answer, done = run(self.arrays, padded(rows, width).T, rounds)
                answers.append(np.asarray(answer).T[: len(rows)])
                settled.append(np.asarray(done)[: len(rows)])
        return np.concatenate(answers), np.concatenate(settled)


@functools.cache
def _respond(max_changes: int, settings: ComplementaritySettings) -> Any:
    """The compiled solution map for one `max_changes`; shapes and arrays are arguments."""

    def run(a: SolutionMapArrays, x: Any, rounds: Any) -> Any:
        dx = x - a.x0[:, None]
        answer = (a.y0 + a.drift)[:, None] + a.slope @ dx
        if a.q0.shape[0] == 0:
            return answer, jnp.ones(x.shape[1], dtype=bool)
        q = a.q0[:, None] + a.q_slope @ dx
        previous = jnp.broadcast_to(a.lam0[:, None], q.shape)
        active = jnp.broadcast_to(a.pivoted[0].base[:, None], q.shape)
        lam, _, settled = solve(a.pivoted, q, previous, active, max_changes, rounds, settings=settings)
        # Multipliers that did not settle can be anything; the plain linear response is then the better guess.
        return answer + a.push @ jnp.where(settled, lam, previous), settled

    return jax.jit(run)


@record(
    "response",
    shapes={
        "solution_map.arrays.x0": "inputs",
        "solution_map.arrays.y0": "outputs",
        "varying": "outputs",
        "correction.offset": "outputs",
    },
    stored={"solution_map": "law"},
)
@dataclass(frozen=True, eq=False)
class ResponseModel(Model):
    """A solution map and the Bayesian linear regression that corrects it."""

    solution_map: SolutionMap
    varying: NDArray[np.bool_]
    """Which entries of the map's answer move at all, and so are features."""
    correction: LinearModel

    @property
    def covariance(self) -> Covariance:  # type: ignore[override]
        """Of leave-one-out residuals."""
        return self.correction.covariance

    def predict(self, x: Array) -> Belief:
        """The corrected solution map."""
        answer, _ = self.solution_map.respond(x)
        belief = self.correction.predict(_features(x, answer, self.varying))
        return Belief(answer + belief.mean, belief.std)

    def draws(self, x: Array, count: int, seed: int) -> Iterator[Array]:
        """Functions drawn from the posterior of the correction."""
        answer, _ = self.solution_map.respond(x)
        for drawn in self.correction.draws(_features(x, answer, self.varying), count, seed):
            yield answer + drawn


def on_device(arrays: SolutionMapArrays) -> SolutionMapArrays:
    """Moved once, in double precision."""
    with double():
        moved: SolutionMapArrays = jax.tree.map(jnp.asarray, arrays)
    return moved


def fit_response(solution_map: SolutionMap, x: Array, y: Array) -> ResponseModel:
    """Correct `solution_map` on the rows given, labels and pseudo-labels alike."""
    answer, settled = solution_map.respond(x)
    if settled.mean() > 0.5:  # where the solution map was not found, what it says teaches nothing
        x, y, answer = x[settled], y[settled], answer[settled]
    varying = np.std(answer, axis=0) > 1e-7
    return ResponseModel(solution_map, varying, fit_ridge(_features(x, answer, varying), y - answer))


def _features(x: Array, answer: Array, varying: NDArray[np.bool_]) -> Array:
    return np.concatenate([x, answer[:, varying]], axis=1)
