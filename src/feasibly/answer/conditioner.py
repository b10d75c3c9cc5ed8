"""Conditioning a belief on the constraints, tilted by the cost: made once a model, then applied to batches."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feasibly.answer.derivatives import Derivatives
from feasibly.answer.frame import Frame, build_frame, invert
from feasibly.answer.iterate import HELD, Iteration, Residuals, State
from feasibly.answer.recipe import Recipe
from feasibly.answer.rows import Rows, swap_bounds
from feasibly.model.belief import Covariance
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
FAR = 100.0
"""A belief that is off by ten standard deviations is not followed: such an answer is polished."""
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
class Conditioned:
    """Answers with their multipliers. `converged` rows satisfy all constraints and, when polished, are at rest."""

    y: Array
    converged: NDArray[np.bool_]
    std: Array
    nu: Array
    lam: Array
    moves: NDArray[np.int64]


@dataclass(frozen=True)
class Task:
    """A call in progress: what was asked, and what has been found so far."""

    x: Array
    mean: Array
    polish: bool
    until: float
    single: bool
    y: Array
    nu: Array
    lam: Array
    converged: NDArray[np.bool_]
    moves: NDArray[np.int64]

    @property
    def left(self) -> NDArray[np.int64]:
        """Rows that have not come to rest."""
        return np.flatnonzero(~self.converged)

    @property
    def late(self) -> bool:
        """Whether no further pass may begin."""
        return time.monotonic() > self.until

    def keep(self, rows: NDArray[np.int64], found: State) -> None:
        """These rows have come to rest."""
        self.y[rows], self.nu[rows], self.lam[rows] = found.y, found.nu, found.lam
        self.converged[rows] = True

    def take(self, rows: NDArray[np.int64], found: Conditioned, wanted: NDArray[np.bool_]) -> None:
        """Those of another answer to `rows` that are wanted."""
        self.keep(rows[wanted], State(found.y[wanted], found.nu[wanted], found.lam[wanted], None))


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
        centre = self.frame(0)
        known = np.isfinite(mean).all(axis=1, keepdims=True)
        task = self._begin(x, np.where(known, mean, centre.y), polish, until, single)
        for index in range(len(self.recipe.centres)):
            self._sweep(task, index, task.mean)
        shared = np.flatnonzero(task.converged)
        own = centre.free.size <= OWN_SIZE
        few = own and len(task.left) <= OWN_FRAMES
        if few:
            self._answer_hard(task)
        # It may be the belief that is far off: once more from the first frame's own point, with that as belief.
        self._sweep(task, 0, np.broadcast_to(centre.y, task.mean.shape))
        if own and not few:
            self._answer_hard(task)
        if not last:
            if own and not polish:
                self._overrule(task, shared)
            self._stand_in(task)
        std = np.broadcast_to(centre.std, task.y.shape)
        return Conditioned(task.y, task.converged, std, task.nu, task.lam, task.moves)

    def _begin(self, x: Array, mean: Array, polish: bool, until: float, single: bool) -> Task:
        """Nothing found yet: the clipped belief, with predicted multipliers."""
        start = self.start(x, mean)
        return Task(
            x, mean, polish, until, single, self._clipped(mean), start.nu, start.lam,
            np.zeros(len(x), dtype=bool), np.zeros(len(x), dtype=np.int64),
        )  # fmt: skip

    def _sweep(self, task: Task, index: int, belief: Array) -> None:
        """All passes over what is left, on one shared frame."""
        left = task.left
        if not len(left):
            return
        state = self.start(task.x[left], belief[left])
        for steps, rounds in _passes(len(task.x), task.polish):
            if not len(left) or task.late:
                break
            state, done = self._move(task, self.frame(index), left, belief, state, steps, rounds)
            state, left = _rows(state, ~done), left[~done]
        self._keep_better(task.x, task.y, left, state.y)

    def _move(
        self,
        task: Task,
        frame: Frame,
        rows: NDArray[np.int64],
        belief: Array,
        state: State,
        steps: int,
        rounds: tuple[int, int],
    ) -> tuple[State, NDArray[np.bool_]]:
        """One pass over some rows; those that rest are kept."""
        x = task.x[rows]
        state, residuals = self._iteration.run(
            frame, x, belief[rows], state, steps, centred=not task.polish, rest=POLISHED_CHANGE / 10, rounds=rounds,
            single=task.single,
        )  # fmt: skip
        task.moves[rows] += steps
        done = self._rests(x, state, residuals, task.polish)
        task.keep(rows[done], _rows(state, done))
        return state, done

    def _answer_hard(self, task: Task) -> None:
        """Rows that rest on no shared frame, on frames of their own."""
        left = task.left
        for _ in range(OWN_FRAMES):
            if not len(left) or task.late:
                return
            row, left = left[:1], left[1:]
            found, moved, frame = self._alone(
                task.x[row], task.mean[row], task.polish, task.until, single=task.single
            )
            task.moves[row] += moved
            if found is not None:
                task.keep(row, found)
            if len(left) and frame is not None:
                # Hard rows are often hard in the same way: all that are left try the frame that served this one.
                start = self.start(task.x[left], task.mean[left])
                _, done = self._move(task, frame, left, task.mean, start, *OWN_SHARED)
                left = left[~done]

    def _overrule(self, task: Task, shared: NDArray[np.int64]) -> None:
        """Polish answers whose belief was far off, among those that it had its full weight in, and keep the cheaper."""
        far = shared[self._distance(task.mean[shared], task.y[shared]) > FAR]
        if not len(far):
            return
        x = task.x[far]
        found = self._answer(x, task.mean[far], True, task.until, task.single, last=True)
        cheaper = self.problem.objectives(x, found.y) <= self.problem.objectives(x, task.y[far])
        task.moves[far] += found.moves
        task.take(far, found, found.converged & cheaper)

    def _stand_in(self, task: Task) -> None:
        """What cannot be polished can often be conditioned, and the other way round: better near the optimum than off
        the constraints."""
        rest = task.left
        rest = rest[~self._holds(task.x[rest], task.y[rest])]
        if not len(rest):
            return
        x = task.x[rest]
        found = self._answer(x, task.mean[rest], not task.polish, task.until, task.single, last=True)
        task.moves[rest] += found.moves
        if not task.polish:  # a polished answer is all that a conditioned one has to be
            task.take(rest, found, found.converged)
        self._keep_better(task.x, task.y, rest, found.y)

    def _distance(self, mean: Array, y: Array) -> Array:
        """How far off each belief was: the mean over outputs of squared deviations, in standard units."""
        frame = self.frame(0)
        apart = (y - mean)[:, frame.free].astype(np.float32)
        squares = np.sum(apart * (apart @ np.asarray(frame.matrices.precision)), axis=1, dtype=np.float64)
        return np.asarray(squares / max(self.recipe.weight * len(frame.free), 1e-300))

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
        usual, first = self.recipe.rows, len(rows.lower)
        lam = state.lam.copy()
        for start, own, wanted in ((0, rows.lower, usual.lower), (first, rows.upper, usual.upper)):
            same = own[None] == wanted[:, None]  # (wanted, own): at most one a row
            lam[:, start : start + len(own)] = state.lam[:, start : start + len(own)] @ same.T
        return state._replace(lam=lam)

    def _rests(self, x: Array, state: State, residuals: Residuals, polish: bool) -> NDArray[np.bool_]:
        """Rows that satisfy every constraint and, when polished, no longer move."""
        done = np.isfinite(state.y).all(axis=1) & (residuals.equality < EQUALITY_TOLERANCE)
        done &= residuals.inequality < INEQUALITY_TOLERANCE
        if polish:
            done &= residuals.change < POLISHED_CHANGE
        done[done] = self._holds(x[done], state.y[done])
        return done

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
