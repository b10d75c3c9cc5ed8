"""The model of our own: regression on the optimum's first-order response.

How the optimum of a smooth problem moves with its data is known: near one solved point it is the solution of a
quadratic program whose right-hand side is linear in the data. That law is piecewise linear, with its kinks where
constraints become active, which is just what a regression on the raw inputs cannot bend around. One solved point
gives the whole law (labels carry sensitivities); labels and pseudo-labels then correct it by an exact Bayesian
linear regression on the inputs and on the law's own answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from feasibly.model.belief import Belief, Covariance, Model
from feasibly.model.complementarity import Pivoted, solve
from feasibly.model.linear import LinearModel, fit_ridge
from feasibly.precision import double

Array = NDArray[np.float64]

_CHUNK, _SMALL, _LARGE = 256, 32, 300
"""Batch sizes that are compiled, beside one: for many rows and, where there are so many outputs that a batch that is
mostly filling costs more than compiling another size, for the few that are left over."""

QUICK, PATIENT = (8, 4), (40, 40)
"""Rounds of the complementarity problem: for all rows, and for those that did not settle then."""


class LawArrays(NamedTuple):
    """The arrays of a law; `dx = x - x0`."""

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


@dataclass(frozen=True, eq=False)
class Law:
    """`y0 + drift + slope dx + push lam(dx)`, where `lam` solves a small complementarity problem."""

    arrays: LawArrays
    flips: int

    def respond(self, x: Array) -> tuple[Array, NDArray[np.bool_]]:
        """The law's answer to each row, and whether its complementarity problem was solved on the way."""
        single = len(x) == 1
        answer, settled = self._run(x, QUICK, single)
        rest = np.flatnonzero(~settled)
        if len(rest):
            answer[rest], settled[rest] = self._run(x[rest], PATIENT, single)
        return answer, settled

    def _run(self, x: Array, rounds: tuple[int, int], single: bool) -> tuple[Array, NDArray[np.bool_]]:
        """Answers, and whether each row's complementarity problem was solved within `rounds`.

        A program for one row is compiled only for those who ask for a `single` one.
        """
        answers, settled = [np.zeros((0, len(self.arrays.y0)))], [np.zeros(0, dtype=bool)]
        run = _respond(self.flips)
        with double():
            few = len(x) <= _CHUNK // 4 and len(self.arrays.y0) > _LARGE
            chunk = _SMALL if few else _CHUNK
            for first in range(0, len(x), chunk):
                rows = x[first : first + chunk]
                width = 1 if single else chunk
                filled = np.concatenate([rows, np.repeat(rows[-1:], width - len(rows), axis=0)])
                answer, done = run(self.arrays, filled.T, rounds)
                answers.append(np.asarray(answer).T[: len(rows)])
                settled.append(np.asarray(done)[: len(rows)])
        return np.concatenate(answers), np.concatenate(settled)


_RESPOND: dict[int, Any] = {}


def _respond(flips: int) -> Any:
    """The compiled law for one number of flips; shapes and arrays are arguments."""
    if flips not in _RESPOND:

        def run(a: LawArrays, x: Any, rounds: Any) -> Any:
            dx = x - a.x0[:, None]
            answer = (a.y0 + a.drift)[:, None] + a.slope @ dx
            if a.q0.shape[0] == 0:
                return answer, jnp.ones(x.shape[1], dtype=bool)
            q = a.q0[:, None] + a.q_slope @ dx
            previous = jnp.broadcast_to(a.lam0[:, None], q.shape)
            active = jnp.broadcast_to(a.pivoted[0].base[:, None], q.shape)
            lam, _, settled = solve(a.pivoted, q, previous, active, flips, rounds)
            # Multipliers that did not settle can be anything; the plain linear response is then the better guess.
            return answer + a.push @ jnp.where(settled, lam, previous), settled

        _RESPOND[flips] = jax.jit(run)
    return _RESPOND[flips]


@dataclass(frozen=True, eq=False)
class ResponseModel(Model):
    """A law and the Bayesian linear regression that corrects it."""

    law: Law
    varying: NDArray[np.bool_]
    """Which entries of the law's answer move at all, and so are features."""
    correction: LinearModel
    kind: ClassVar[str] = "response"

    @property
    def covariance(self) -> Covariance:  # type: ignore[override]
        """Of leave-one-out residuals."""
        return self.correction.covariance

    def predict(self, x: Array) -> Belief:
        """The corrected law."""
        answer, _ = self.law.respond(x)
        belief = self.correction.predict(_features(x, answer, self.varying))
        return Belief(answer + belief.mean, belief.std)

    def draws(self, x: Array, count: int, seed: int) -> Iterator[Array]:
        """Functions drawn from the posterior of the correction."""
        answer, _ = self.law.respond(x)
        for drawn in self.correction.draws(_features(x, answer, self.varying), count, seed):
            yield answer + drawn

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Settings and arrays."""
        plain, arrays = self.correction.state()
        a = self.law.arrays
        named: dict[str, NDArray[Any]] = {f"correction.{key}": value for key, value in arrays.items()}
        named["varying"] = self.varying
        for key in ("x0", "y0", "drift", "slope", "push", "q0", "q_slope", "lam0"):
            named[f"law.{key}"] = np.asarray(getattr(a, key))
        for which, pivoted in zip(("soft", "hard"), a.pivoted, strict=True):
            for key in Pivoted._fields:
                named[f"law.{which}.{key}"] = np.asarray(getattr(pivoted, key))
        return {"flips": self.law.flips, "correction": plain}, named

    @classmethod
    def restore(cls, settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> ResponseModel:
        """The model that `state` described."""
        soft, hard = (
            Pivoted(*(arrays[f"law.{which}.{key}"] for key in Pivoted._fields)) for which in ("soft", "hard")
        )
        keys = ("x0", "y0", "drift", "slope", "push", "q0", "q_slope", "lam0")
        parts: dict[str, Any] = {key: arrays[f"law.{key}"] for key in keys}
        law = LawArrays(**parts, pivoted=(soft, hard))
        correction = {
            k.removeprefix("correction."): v for k, v in arrays.items() if k.startswith("correction.")
        }
        return cls(
            law=Law(on_device(law), int(settings["flips"])),
            varying=arrays["varying"].astype(bool),
            correction=LinearModel.restore(settings["correction"], correction),
        )


def on_device(arrays: LawArrays) -> LawArrays:
    """Moved once, in double precision."""
    with double():
        moved: LawArrays = jax.tree.map(jnp.asarray, arrays)
    return moved


def fit_response(law: Law, x: Array, y: Array) -> ResponseModel:
    """Correct `law` on the rows given, labels and pseudo-labels alike."""
    answer, settled = law.respond(x)
    if settled.mean() > 0.5:  # where the law was not found, what it says teaches nothing
        x, y, answer = x[settled], y[settled], answer[settled]
    varying = np.std(answer, axis=0) > 1e-7
    return ResponseModel(law, varying, fit_ridge(_features(x, answer, varying), y - answer))


def _features(x: Array, answer: Array, varying: NDArray[np.bool_]) -> Array:
    return np.concatenate([x, answer[:, varying]], axis=1)
