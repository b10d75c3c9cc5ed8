"""Conditioning a belief on the constraints, tilted by the cost: made once a model, then applied to batches."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feasibly.answer.frame import Derivatives, Frame, Rows, build_frame, invert, swap_bounds
from feasibly.answer.iterate import HELD, Iteration, Residuals, State
from feasibly.model.belief import Covariance
from feasibly.model.linear import LinearModel
from feasibly.problem.core import Problem

Array = NDArray[np.float64]

EQUALITY_TOLERANCE, INEQUALITY_TOLERANCE = HELD
POLISHED_CHANGE = 1e-9
"""An answer counts as polished when the last move changed its cost by less than this share."""

QUICK, THOROUGH, PATIENT = (4, 2), (8, 4), (40, 40)
PASSES = ((4, QUICK), (1, THOROUGH), (1, THOROUGH), (2, THOROUGH), (4, PATIENT), (16, PATIENT))
"""Moves, and rounds of the complementarity problem in each; rows that have come to rest sit out the later passes."""
FEW_ROWS = 8
FEW_PASSES = ((12, THOROUGH), (16, PATIENT))
"""For so few rows calling costs more than moving; each call stops by itself when they rest."""
POLISH_PASSES = ((4, QUICK), *((2, THOROUGH),) * 4, (4, THOROUGH), (8, PATIENT), (16, PATIENT))

OWN_FRAMES, OWN_SIZE = 16, 1000
"""At most so many rows of a call get frames of their own, and none where frames are large."""
SACRIFICE = 1e-6
"""An answer for whose belief more than this share of its cost may have been given up is polished: a belief that is as
wrong as usual is worth a hundredth of that, and one that is so far off should not be followed."""
OWN_TRIES = 14
OWN_PASS = (4, PATIENT)
OWN_SHARED = (12, PATIENT)
OWN_HOPE = (4, 1e-3)
"""After so many frames the equalities must be better than this, or it is given up."""
OWN_SPAN = 5.0
"""Its own derivatives may be trusted so much further than shared ones."""
OWN_WEIGHT = 1e-3
"""What is left of the belief's stiffness for such a row: its belief is far off, and more of it slows Newton down."""


@dataclass(frozen=True)
class Labels:
    """Solved instances; multipliers are `None` where the labels came without any."""

    x: Array
    y: Array
    objective: Array
    equality: Array | None = None
    inequality: Array | None = None
    lower: Array | None = None
    upper: Array | None = None


@dataclass(frozen=True)
class Conditioned:
    """Answers with their multipliers. `converged` rows satisfy all constraints and, when polished, are at rest."""

    y: Array
    converged: NDArray[np.bool_]
    std: Array
    nu: Array
    lam: Array
    moves: NDArray[np.int64]


@dataclass(frozen=True)
class Recipe:
    """Everything a conditioner is rebuilt from: small, plain, and saved with a model."""

    rows: Rows
    base: NDArray[np.bool_]
    weight: float
    tau: float
    span: Array
    flips: int
    threshold: Array
    centres: tuple[tuple[Array, Array, Array, Array], ...]
    """`x, y, nu, lam` of each frame."""
    duals: LinearModel
    covariance: Covariance | None = None
    """The belief's, where it is not the model's own: frames must be the same after a model was saved and loaded."""

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Plain settings and arrays."""
        plain, arrays = self.duals.state()
        named: dict[str, NDArray[Any]] = {f"duals.{key}": value for key, value in arrays.items()}
        named |= {
            "lower": self.rows.lower,
            "upper": self.rows.upper,
            "inequality": self.rows.inequality,
            "base": self.base,
            "span": self.span,
            "threshold": self.threshold,
        }
        if self.covariance is not None:
            named |= {
                "covariance.factor": self.covariance.factor,
                "covariance.diagonal": self.covariance.diagonal,
            }
        for i, centre in enumerate(self.centres):
            named |= {
                f"centre{i}.{key}": value for key, value in zip(("x", "y", "nu", "lam"), centre, strict=True)
            }
        settings = {
            "weight": self.weight,
            "tau": self.tau,
            "flips": self.flips,
            "frames": len(self.centres),
            "duals": plain,
        }
        return settings, named

    @staticmethod
    def restore(settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Recipe:
        """The recipe that `state` described."""
        duals = {
            key.removeprefix("duals."): value for key, value in arrays.items() if key.startswith("duals.")
        }
        centres = tuple(
            (
                arrays[f"centre{i}.x"],
                arrays[f"centre{i}.y"],
                arrays[f"centre{i}.nu"],
                arrays[f"centre{i}.lam"],
            )
            for i in range(int(settings["frames"]))
        )
        return Recipe(
            rows=Rows(arrays["lower"], arrays["upper"], arrays["inequality"]),
            base=arrays["base"].astype(bool),
            weight=float(settings["weight"]),
            tau=float(settings["tau"]),
            span=arrays["span"],
            flips=int(settings["flips"]),
            threshold=arrays["threshold"],
            centres=centres,
            duals=LinearModel.restore(settings["duals"], duals),
            covariance=Covariance(arrays["covariance.factor"], arrays["covariance.diagonal"])
            if "covariance.factor" in arrays
            else None,
        )


class Conditioner:
    """Turns beliefs about one problem into answers that satisfy its constraints."""

    def __init__(self, problem: Problem, recipe: Recipe, covariance: Covariance) -> None:
        self.problem = problem
        self.recipe = recipe
        self._covariance = covariance if recipe.covariance is None else recipe.covariance
        self._derivatives = Derivatives(problem, recipe.rows)
        self._iteration = Iteration(problem, recipe.rows, recipe.flips)
        self._frames: dict[int, Frame] = {}
        self._precision: Array | None = None

    def frame(self, index: int) -> Frame:
        """Frame `index`, factored on first use."""
        if index not in self._frames:
            self._frames[index] = self._build(self.recipe.centres[index])
        return self._frames[index]

    def _build(
        self, centre: tuple[Array, Array, Array, Array], share: float = 1.0, rows: Rows | None = None
    ) -> Frame:
        r, span = self.recipe, self.recipe.span
        if rows is not None:
            # A bound that labels never came near: how much its variable moves among them says nothing here.
            new = np.union1d(np.setdiff1d(rows.lower, r.rows.lower), np.setdiff1d(rows.upper, r.rows.upper))
            width = self.problem.upper[new] - self.problem.lower[new]
            span = OWN_SPAN * span
            span[new] = np.where(np.isfinite(width), np.maximum(span[new], width), span[new])
        if self._precision is None:
            free = np.flatnonzero(self.problem.lower < self.problem.upper)
            self._precision = invert(self._covariance, free)
        return build_frame(
            self.problem,
            self._derivatives,
            *centre,
            r.rows if rows is None else rows,
            r.base,
            self._precision,
            share * r.weight,
            span,
        )

    def start(self, x: Array, mean: Array) -> State:
        """The belief's mean with predicted multipliers."""
        predicted = self.recipe.duals.mean(x)
        nu, lam = np.split(predicted, [self.problem.n_equalities], axis=1)
        lam = np.maximum(lam, 0.0)
        y = np.where(self.problem.lower < self.problem.upper, mean, self.problem.lower)
        return State(y, nu, lam, np.tile(self.recipe.base, (len(x), 1)))

    def answer(self, x: Array, mean: Array, *, polish: bool = False, until: float = np.inf) -> Conditioned:
        """Condition (or polish) every row, frame after frame until it converges; the rest are flagged.

        No further pass is begun once `time.monotonic()` is past `until`; the first frame is made in any case.
        """
        return self._answer(x, mean, polish, until, single=len(x) == 1)

    def _answer(
        self, x: Array, mean: Array, polish: bool, until: float, single: bool, last: bool = False
    ) -> Conditioned:
        state = self.start(x, mean)
        best = self._clipped(mean)
        y, nu, lam = best.copy(), state.nu.copy(), state.lam.copy()
        converged = np.zeros(len(x), dtype=bool)
        moves = np.zeros(len(x), dtype=np.int64)
        left = np.arange(len(x))
        belief = mean
        own = self.frame(0).free.size <= OWN_SIZE
        # Every frame from the belief; what is left then once more from the first frame's own point and with that as
        # its belief, since it may be the belief that is far off.
        for attempt in range(len(self.recipe.centres) + 1):
            index = attempt % len(self.recipe.centres)
            if attempt == len(self.recipe.centres) and own and len(left) <= OWN_FRAMES:
                break  # frames of their own serve them better
            if attempt == len(self.recipe.centres) and len(left):
                belief = np.broadcast_to(self.frame(0).y, mean.shape)
            if attempt and len(left):
                state = self.start(x[left], belief[left])
            for steps, rounds in _passes(len(x), polish):
                if not len(left) or time.monotonic() > until:
                    break
                state, residuals = self._iteration.run(
                    self.frame(index), x[left], belief[left], state, steps, centred=not polish,
                    rest=POLISHED_CHANGE / 10, rounds=rounds, single=single,
                )  # fmt: skip
                moves[left] += steps
                done = self._rests(x[left], state, residuals, polish)
                y[left[done]], nu[left[done]], lam[left[done]] = (
                    state.y[done],
                    state.nu[done],
                    state.lam[done],
                )
                converged[left[done]] = True
                state, left = _rows(state, ~done), left[~done]
            self._keep_better(x, y, left, state.y)
        if own:
            self._answer_hard(x, mean, polish, until, single, left, (y, nu, lam, converged, moves))
        if own and not polish:
            far = np.flatnonzero(converged)
            far = far[self._sacrifice(mean[far], y[far]) > SACRIFICE]
            if len(far):
                nearer = self._answer(x[far], mean[far], True, until, single, last=True)
                better, kept = far[nearer.converged], nearer.converged
                y[better], nu[better], lam[better] = nearer.y[kept], nearer.nu[kept], nearer.lam[kept]
                moves[far] += nearer.moves
        rest = np.flatnonzero(~converged)
        rest = rest[~self._holds(x[rest], y[rest])]
        if len(rest) and not last:
            # What cannot be polished can often still be conditioned, and the other way round: better near the optimum
            # than off the constraints.
            stand_in = self._answer(x[rest], mean[rest], not polish, until, single, last=True)
            self._keep_better(x, y, rest, stand_in.y)
        std = np.broadcast_to(self.frame(0).std, y.shape)
        return Conditioned(y, converged, std, nu, lam, moves)

    def _answer_hard(
        self,
        x: Array,
        mean: Array,
        polish: bool,
        until: float,
        single: bool,
        left: NDArray[np.int64],
        into: tuple[Array, Array, Array, NDArray[np.bool_], NDArray[np.int64]],
    ) -> None:
        """Rows that rest on no shared frame, on frames of their own; what is found is written `into` the answer."""
        y, nu, lam, converged, moves = into

        def keep(rows: NDArray[np.int64], state: State) -> None:
            y[rows], nu[rows], lam[rows], converged[rows] = state.y, state.nu, state.lam, True

        for _ in range(OWN_FRAMES):
            if not len(left) or time.monotonic() > until:
                return
            row, left = left[:1], left[1:]
            found, moved, frame = self._alone(x[row], mean[row], polish, until, single=single)
            moves[row] += moved
            if found is None:
                continue
            keep(row, found)
            if len(left) and frame is not None:
                # Hard rows are often hard in the same way: all that are left try the frame that served this one.
                state, residuals = self._iteration.run(
                    frame, x[left], mean[left], self.start(x[left], mean[left]), OWN_SHARED[0], centred=not polish,
                    rest=POLISHED_CHANGE / 10, rounds=OWN_SHARED[1], single=single,
                )  # fmt: skip
                moves[left] += OWN_SHARED[0]
                done = self._rests(x[left], state, residuals, polish)
                keep(left[done], _rows(state, done))
                left = left[~done]

    def _alone(
        self, x: Array, mean: Array, polish: bool, until: float, *, single: bool
    ) -> tuple[State | None, int, Frame | None]:
        """One row by Newton's method, a few moves to each matrix: where it rests, and the last frame.

        Where it would rest with a bound violated that was no candidate, that becomes one instead of an idle one.
        """
        state, rows = self.start(x, mean), self.recipe.rows
        moves, since = 0, 0
        steps, rounds = OWN_PASS
        for _ in range(OWN_TRIES):
            if time.monotonic() > until:
                break
            frame = self._build((x[0], *(part[0] for part in state[:3])), OWN_WEIGHT, rows)
            state, residuals = self._iteration.run(
                frame, x, mean, state, steps, centred=not polish, rest=POLISHED_CHANGE / 10, rounds=rounds,
                single=single,
            )  # fmt: skip
            moves += steps
            if not all(np.isfinite(part).all() for part in state[:3]):
                break
            if self._rests(x, state, residuals, polish)[0]:
                return self._in_order(state, rows), moves, frame if rows is self.recipe.rows else None
            if moves - since >= OWN_HOPE[0] * steps and residuals.equality[0] > OWN_HOPE[1]:
                break  # there may be no answer to find
            if max(residuals.equality[0], residuals.inequality[0]) < INEQUALITY_TOLERANCE:
                swapped = swap_bounds(self.problem, rows, state.lam[0], state.y[0])
                if swapped is not None:
                    rows, since = swapped, moves
        return None, moves, None

    def _in_order(self, state: State, rows: Rows) -> State:
        """Multipliers in the places of the usual candidates; those of others are left out."""
        usual, count = self.recipe.rows, len(rows.lower) + len(rows.upper)
        same = np.concatenate([rows.lower == usual.lower, rows.upper == usual.upper])
        lam = state.lam.copy()
        lam[:, :count] = np.where(same, lam[:, :count], 0.0)
        return state._replace(lam=lam)

    def _rests(self, x: Array, state: State, residuals: Residuals, polish: bool) -> NDArray[np.bool_]:
        """Rows that satisfy every constraint and, when polished, no longer move."""
        done = np.isfinite(state.y).all(axis=1) & (residuals.equality < EQUALITY_TOLERANCE)
        done &= residuals.inequality < INEQUALITY_TOLERANCE
        if polish:
            done &= residuals.change < POLISHED_CHANGE
        done[done] = self._holds(x[done], state.y[done])
        return done

    def _sacrifice(self, mean: Array, y: Array) -> Array:
        """How much cost the belief may have been worth to each answer, as a share of the labels' mean cost."""
        frame = self.frame(0)
        apart = (y - mean)[:, frame.free].astype(np.float32)
        pull = 0.5 * np.sum(apart * (apart @ np.asarray(frame.matrices.precision)), axis=1, dtype=np.float64)
        return np.asarray(pull / max(self.recipe.weight * self.recipe.tau, 1e-300))

    def _clipped(self, mean: Array) -> Array:
        return np.clip(np.nan_to_num(mean, posinf=0.0, neginf=0.0), self.problem.lower, self.problem.upper)

    def _holds(self, x: Array, y: Array) -> NDArray[np.bool_]:
        """Whether every constraint holds, those that were not candidates included."""
        return self.violation(x, y) < 10 * INEQUALITY_TOLERANCE

    def violation(self, x: Array, y: Array) -> Array:
        """The largest violation of any constraint, by row."""
        if not len(x):
            return np.zeros(0)
        rows = (
            np.abs(self.problem.equalities(x, y)),
            self.problem.violations(x, y),
            self.problem.bound_violations(y),
        )
        return np.max(np.concatenate([*rows, np.zeros((len(x), 1))], axis=1), axis=1)

    def _keep_better(self, x: Array, y: Array, rows: NDArray[np.int64], tried: Array) -> None:
        """Of an instance that has not converged, keep the iterate with the smaller violation."""
        sound = np.isfinite(tried).all(axis=1)
        rows, tried = rows[sound], tried[sound]
        better = self.violation(x[rows], tried) < self.violation(x[rows], y[rows])
        y[rows[better]] = tried[better]


def _passes(rows: int, polish: bool) -> tuple[tuple[int, tuple[int, int]], ...]:
    if rows <= FEW_ROWS:
        return FEW_PASSES
    return POLISH_PASSES if polish else PASSES


def _rows(state: State, keep: Any) -> State:
    return State(*(part[keep] for part in state))
