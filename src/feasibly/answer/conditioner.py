"""Conditioning a belief on the constraints, tilted by the cost: made once a model, then applied to batches.

The constants are found on the labels themselves: which constraints matter, which are usually active, how strongly
the cost tilts the belief, and how many frozen frames it takes for the labels to be reached from starts that are
as wrong as the model usually is.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.optimize
from numpy.typing import NDArray

from feasibly.answer.frame import Derivatives, Frame, Rows, build_frame, candidates, split_spaces
from feasibly.answer.iterate import Iteration, State
from feasibly.model.belief import Covariance
from feasibly.model.linear import LinearModel, fit_ridge
from feasibly.problem.core import Problem

Array = NDArray[np.float64]

TILTS = (1e9, 1e7)
"""Candidates for tau, the likeliest first: how much a unit of relative cost outweighs the belief."""

EQUALITY_TOLERANCE = 1e-7
INEQUALITY_TOLERANCE = 1e-6
POLISHED_CHANGE = 1e-9
"""An answer counts as polished when the last move changed its cost by less than this share."""

FRESH_STEPS = 24
FRESH_SHARE = 0.01
FRESH_SIZE = 1500
"""Rows that no frame reaches are linearised anew at every step: at most this share of a batch (and always the first
few), on problems up to this many outputs. They lie near the edge of feasibility and cost a thousand times the others."""

FRAMES = 6
FIRST_STEPS = 4
LATER_STEPS = 8
POLISH_STEPS = 12


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
        )


class Conditioner:
    """Turns beliefs about one problem into answers that satisfy its constraints."""

    def __init__(self, problem: Problem, recipe: Recipe, covariance: Covariance) -> None:
        self.problem = problem
        self.recipe = recipe
        self._covariance = covariance
        self._derivatives = Derivatives(problem, recipe.rows)
        self._iteration = Iteration(problem, recipe.rows, recipe.flips)
        self._frames: dict[int, Frame] = {}

    def frame(self, index: int) -> Frame:
        """Frame `index`, factored on first use."""
        if index not in self._frames:
            self._frames[index] = self._build(self.recipe.centres[index])
        return self._frames[index]

    def _build(self, centre: tuple[Array, Array, Array, Array]) -> Frame:
        r = self.recipe
        return build_frame(
            self.problem, self._derivatives, *centre, r.rows, r.base, self._covariance, r.weight, r.span
        )

    def start(self, x: Array, mean: Array) -> State:
        """The belief's mean with predicted multipliers."""
        predicted = self.recipe.duals.predict(x).mean
        nu, lam = np.split(predicted, [self.problem.n_equalities], axis=1)
        lam = np.maximum(lam, 0.0)
        y = np.where(self.problem.lower < self.problem.upper, mean, self.problem.lower)
        return State(y, nu, lam, np.tile(self.recipe.base, (len(x), 1)))

    def answer(self, x: Array, mean: Array, *, polish: bool = False, fresh: bool = True) -> Conditioned:
        """Condition (or polish) every row, frame after frame until it converges; the rest are flagged."""
        state = self.start(x, mean)
        best = self._clipped(mean)
        y, nu, lam = best.copy(), state.nu.copy(), state.lam.copy()
        converged = np.zeros(len(x), dtype=bool)
        moves = np.zeros(len(x), dtype=np.int64)
        left = np.arange(len(x))
        for index in range(len(self.recipe.centres)):
            for steps in (
                (FIRST_STEPS, LATER_STEPS) if not polish else (FIRST_STEPS, POLISH_STEPS, 2 * POLISH_STEPS)
            ):
                if not len(left):
                    break
                if index and steps == FIRST_STEPS:
                    state = _rows(self.start(x[left], mean[left]), slice(None))
                frame = self.frame(index)
                state, residuals = self._iteration.run(
                    frame, x[left], mean[left], state, steps, centred=not polish, rest=POLISHED_CHANGE / 10
                )
                moves[left] += steps
                done = np.isfinite(state.y).all(axis=1) & (residuals.equality < EQUALITY_TOLERANCE)
                done &= residuals.inequality < INEQUALITY_TOLERANCE
                if polish:
                    done &= residuals.change < POLISHED_CHANGE
                done[done] = self._holds(x[left[done]], state.y[done])
                y[left[done]], nu[left[done]], lam[left[done]] = (
                    state.y[done],
                    state.nu[done],
                    state.lam[done],
                )
                converged[left[done]] = True
                self._keep_better(x, y, left[~done], state.y[~done])
                state, left = _rows(state, ~done), left[~done]
        if fresh and self.problem.n_outputs <= FRESH_SIZE:
            for row in left[: max(4, int(FRESH_SHARE * len(x)))]:
                reached, moves[row] = self._fresh(x[row], mean[row])
                if reached is not None:
                    y[row], nu[row], lam[row] = reached
                    converged[row] = True
        std = np.broadcast_to(self.frame(0).std, y.shape)
        return Conditioned(y, converged, std, nu, lam, moves)

    def _fresh(self, x: Array, mean: Array) -> tuple[tuple[Array, Array, Array] | None, int]:
        """Newton steps with derivatives of the row's own: slow and sure, for the few that need it."""
        state = self.start(x[None], mean[None])
        for step in range(1, FRESH_STEPS + 1):
            frame = self._build((x, state.y[0], state.nu[0], state.lam[0]))
            state, residuals = self._iteration.run(frame, x[None], mean[None], state, 1, centred=False)
            if not np.isfinite(state.y).all():
                return None, step
            small = (
                residuals.equality[0] < EQUALITY_TOLERANCE and residuals.inequality[0] < INEQUALITY_TOLERANCE
            )
            if small and residuals.change[0] < 1e-7 and self._holds(x[None], state.y)[0]:
                return (state.y[0], state.nu[0], state.lam[0]), step
        return None, FRESH_STEPS

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


def _rows(state: State, keep: Any) -> State:
    return State(*(part[keep] for part in state))


def fit_conditioner(
    problem: Problem, labels: Labels, covariance: Covariance, *, seed: int = 0, seconds: float = np.inf
) -> Conditioner:
    """Find the constants on the labels and make the frames.

    Args:
        problem: what is solved.
        labels: at least two solved instances; their multipliers are used where they have any.
        covariance: how wrong the model's mean usually is; starts are drawn with it.
        seed: of those starts.
        seconds: no further frame is begun after this long.
    """
    began = time.monotonic()
    h = problem.inequalities(labels.x, labels.y)
    rows = candidates(problem, labels.y, h)
    middle = labels.x.mean(axis=0)
    spread = np.maximum(labels.x.std(axis=0), 1e-9)
    central = int(np.argmin(np.sum(((labels.x - middle) / spread) ** 2, axis=1)))
    nu, lam = _multipliers(problem, labels, rows, central)
    typical = np.abs(lam).max() if lam.size else 0.0
    threshold = np.maximum(0.1 * lam.std(axis=0), 1e-5 * typical)
    active = lam > threshold
    base = active.mean(axis=0) > 0.5
    differing = int(np.max(np.sum(active != base, axis=1), initial=0))
    flips = min(len(rows), 8 * int(np.ceil((differing + 8) / 8)))
    recipe = Recipe(
        rows=rows,
        base=base,
        weight=float(np.mean(np.abs(labels.objective))) / TILTS[0],
        tau=TILTS[0],
        span=3.0 * labels.y.std(axis=0) + 1e-2,
        flips=max(flips, 1),
        threshold=threshold,
        centres=((labels.x[central], labels.y[central], nu[central], lam[central]),),
        duals=fit_ridge(labels.x, np.concatenate([nu, lam], axis=1)),
    )
    starts = labels.y + _errors(covariance, len(labels.x), seed)
    made = _centred(problem, recipe, covariance, middle, labels)
    made = _choose_tilt(made, problem, covariance, labels, starts, began, seconds)
    return _add_frames(made, problem, covariance, labels, nu, lam, starts, began, seconds)


def _errors(covariance: Covariance, rows: int, seed: int) -> Array:
    random = np.random.default_rng(seed)
    common = random.standard_normal((rows, covariance.factor.shape[1])) @ covariance.factor.T
    return np.asarray(
        common + random.standard_normal((rows, len(covariance.diagonal))) * np.sqrt(covariance.diagonal)
    )


def _centred(
    problem: Problem, recipe: Recipe, covariance: Covariance, middle: Array, labels: Labels
) -> Conditioner:
    """Move the first frame from the most central label to the middle of the inputs, where it serves best."""
    first = Conditioner(problem, recipe, covariance)
    mean = labels.y.mean(axis=0)[None]
    # Two rows, so that no batch of one has to be compiled before anyone asks for a single answer.
    reached = first.answer(np.stack([middle, middle]), np.repeat(mean, 2, axis=0), polish=True, fresh=False)
    if not reached.converged[0]:
        return first
    centre = (middle, reached.y[0], reached.nu[0], reached.lam[0])
    return _with(first, problem, covariance, centres=(centre,))


def _with(made: Conditioner, problem: Problem, covariance: Covariance, **changes: Any) -> Conditioner:
    """The same conditioner with another recipe, keeping what was compiled and factored."""
    from dataclasses import replace

    new = Conditioner.__new__(Conditioner)
    new.__dict__.update(made.__dict__)
    new.recipe = replace(made.recipe, **changes)
    kept = 0 if "weight" in changes else len(made.recipe.centres)
    new._frames = {
        i: frame
        for i, frame in made._frames.items()
        if i < kept and i < len(new.recipe.centres) and new.recipe.centres[i] is made.recipe.centres[i]
    }
    return new


def _choose_tilt(
    made: Conditioner,
    problem: Problem,
    covariance: Covariance,
    labels: Labels,
    starts: Array,
    began: float,
    seconds: float,
) -> Conditioner:
    """The tau whose answers to labels are least wrong: mean largest violation plus mean relative gap."""
    cost = float(np.mean(np.abs(labels.objective)))
    some = np.arange(min(len(labels.x), 128))
    best, best_score = made, np.inf
    for tau in TILTS:
        if tau != TILTS[0] and time.monotonic() - began > 0.25 * seconds:
            break
        tried = (
            made if tau == made.recipe.tau else _with(made, problem, covariance, tau=tau, weight=cost / tau)
        )
        found = tried.answer(labels.x[some], starts[some], fresh=False)
        objective = problem.objectives(labels.x[some], found.y)
        gap = np.abs(objective - labels.objective[some]) / cost
        score = float(np.mean(np.minimum(tried.violation(labels.x[some], found.y), 1.0)) + np.mean(gap))
        if score < best_score:
            best, best_score = tried, score
        if score < 1e-6:
            break
    return best


def _add_frames(
    made: Conditioner,
    problem: Problem,
    covariance: Covariance,
    labels: Labels,
    nu: Array,
    lam: Array,
    starts: Array,
    began: float,
    seconds: float,
) -> Conditioner:
    """Where labels are not reached, the most central of those becomes another frame."""
    missing = np.flatnonzero(~made.answer(labels.x, starts, polish=True, fresh=False).converged)
    while len(missing) and len(made.recipe.centres) < FRAMES and time.monotonic() - began < 0.5 * seconds:
        scaled = labels.y[missing] / made.recipe.span
        chosen = missing[int(np.argmin(np.sum((scaled - np.median(scaled, axis=0)) ** 2, axis=1)))]
        centre = (labels.x[chosen], labels.y[chosen], nu[chosen], lam[chosen])
        tried = _with(made, problem, covariance, centres=(*made.recipe.centres, centre))
        still = tried.answer(labels.x[missing], starts[missing], polish=True, fresh=False).converged
        if not still.any():
            break
        made, missing = tried, missing[~still]
    return made


def _multipliers(problem: Problem, labels: Labels, rows: Rows, central: int) -> tuple[Array, Array]:
    """Multipliers of equalities and candidates: the labels' own, or those of the central label for all."""
    if labels.lower is not None and labels.upper is not None:
        count = len(labels.x)
        equality = labels.equality if labels.equality is not None else np.zeros((count, 0))
        inequality = labels.inequality if labels.inequality is not None else np.zeros((count, 0))
        parts = (labels.lower[:, rows.lower], labels.upper[:, rows.upper], inequality[:, rows.inequality])
        return equality, np.maximum(np.concatenate(parts, axis=1), 0.0)
    nu, lam = _estimated(problem, labels.x[central], labels.y[central], rows)
    return np.tile(nu, (len(labels.x), 1)), np.tile(lam, (len(labels.x), 1))


def _estimated(problem: Problem, x: Array, y: Array, rows: Rows) -> tuple[Array, Array]:
    """Multipliers that explain an optimal `y`: least squares with signs, on the constraints that touch."""
    derivatives = Derivatives(problem, rows)
    none, nothing = np.zeros(problem.n_equalities), np.zeros(len(rows.inequality))
    jacobian, normals, _ = derivatives.at(x, y, none, nothing)
    slope = derivatives.slope(x, y, none, nothing)
    unit = np.eye(problem.n_outputs)
    all_normals = np.concatenate([-unit[rows.lower], unit[rows.upper], normals])
    h = problem.inequalities(x[None], y[None])[0][rows.inequality]
    slack = np.concatenate(
        [y[rows.lower] - problem.lower[rows.lower], problem.upper[rows.upper] - y[rows.upper], -h]
    )
    touching = np.flatnonzero(slack < 1e-5)
    free = problem.lower < problem.upper
    null, right = split_spaces(jacobian[:, free])
    lam = np.zeros(len(rows))
    if len(touching):
        lam[touching] = scipy.optimize.nnls(null.T @ all_normals[touching][:, free].T, -null.T @ slope[free])[
            0
        ]
    nu = -right.T @ (slope + lam @ all_normals)[free]
    return nu, lam
