"""Finding the constants of conditioning on the labels themselves.

Which constraints matter, which are usually active, how strongly the cost tilts the belief, and how many frozen
frames it takes for the labels to be reached from starts that are as wrong as the model usually is.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.optimize
from numpy.typing import NDArray

from feasibly.answer.conditioner import Conditioner
from feasibly.answer.derivatives import Derivatives
from feasibly.answer.frame import split_spaces
from feasibly.answer.recipe import Labels, Recipe
from feasibly.answer.rows import Rows, candidates
from feasibly.model.belief import Covariance
from feasibly.model.linear import fit_ridge
from feasibly.problem.core import Problem

Array = NDArray[np.float64]

TILTS = (1e10, 1e9, 1e7)
"""Candidates for tau, the likeliest first: how much a unit of relative cost outweighs the belief."""

FRAMES = 6
"""At most this many frames."""


def fit_conditioner(
    problem: Problem, labels: Labels, covariance: Covariance, *, seed: int = 0, seconds: float = np.inf
) -> Conditioner:
    """Find the constants on the labels and make the frames.

    Args:
        problem: what is solved.
        labels: at least two solved instances; their multipliers are used where they have any.
        covariance: how wrong the model's mean usually is; starts are drawn with it.
        seed: of those starts.
        seconds: no further pass is begun after this long; rows that were not reached by then count as out of reach.
    """
    began = time.monotonic()
    rows = candidates(problem, labels.y, problem.inequalities(labels.x, labels.y))
    middle = labels.x.mean(axis=0)
    spread = np.maximum(labels.x.std(axis=0), 1e-9)
    central = int(np.argmin(np.sum(((labels.x - middle) / spread) ** 2, axis=1)))
    nu, lam = _multipliers(problem, labels, rows, central)
    first = _recipe(labels, rows, nu, lam, central)
    made = _centred(problem, first, covariance, middle, labels, began + 0.5 * seconds)
    if labels.lower is None:
        nu, lam = _found_multipliers(made, labels, nu, lam, began + 0.5 * seconds)
        centres = made.recipe.centres
        made = Conditioner(
            problem, replace(_recipe(labels, rows, nu, lam, central), centres=centres), covariance
        )
    starts = labels.y + _errors(covariance, len(labels.x), seed)
    made = _choose_tilt(made, problem, covariance, labels, starts, began, seconds)
    return _add_frames(made, problem, covariance, labels, nu, lam, starts, began, seconds)


def _recipe(labels: Labels, rows: Rows, nu: Array, lam: Array, central: int) -> Recipe:
    """What multipliers tell: the usual active set, how far instances stray from it, and how to predict them."""
    typical = np.abs(lam).max() if lam.size else 0.0
    threshold = np.maximum(0.1 * lam.std(axis=0), 1e-5 * typical)
    active = lam > threshold
    base = active.mean(axis=0) > 0.5
    differing = int(np.max(np.sum(active != base, axis=1), initial=0))
    flips = min(len(rows), 8 * int(np.ceil((max(differing, len(rows) // 8) + 8) / 8)))
    return Recipe(
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


def _found_multipliers(
    made: Conditioner, labels: Labels, nu: Array, lam: Array, until: float
) -> tuple[Array, Array]:
    """Labels that came without multipliers: polishing a label leaves it where it is and finds them."""
    found = made.answer(labels.x, labels.y, polish=True, until=until)
    kept = found.converged
    if kept.sum() < 2:
        return nu, lam
    usual_nu, usual_lam = found.nu[kept].mean(axis=0), found.lam[kept].mean(axis=0)
    return np.where(kept[:, None], found.nu, usual_nu), np.where(kept[:, None], found.lam, usual_lam)


def _errors(covariance: Covariance, rows: int, seed: int) -> Array:
    random = np.random.default_rng(seed)
    common = random.standard_normal((rows, covariance.factor.shape[1])) @ covariance.factor.T
    return np.asarray(
        common + random.standard_normal((rows, len(covariance.diagonal))) * np.sqrt(covariance.diagonal)
    )


def _centred(
    problem: Problem, recipe: Recipe, covariance: Covariance, middle: Array, labels: Labels, until: float
) -> Conditioner:
    """Move the first frame from the most central label to the middle of the inputs, where it serves best."""
    first = Conditioner(problem, recipe, covariance)
    mean = labels.y.mean(axis=0)[None]
    # Two rows, so that no batch of one has to be compiled before anyone asks for a single answer.
    twice = np.stack([middle, middle])
    reached = first.answer(twice, np.repeat(mean, 2, axis=0), polish=True, until=until)
    if not reached.converged[0] or _touches_others(problem, recipe.rows, reached.y[0]):
        return first
    centre = (middle, reached.y[0], reached.nu[0], reached.lam[0])
    return _with(first, problem, covariance, centres=(centre,))


def _touches_others(problem: Problem, rows: Rows, y: Array) -> bool:
    """Whether a bound presses that is no candidate: a frame there would not know of it."""
    moving = np.flatnonzero(problem.lower < problem.upper)
    low, high = np.setdiff1d(moving, rows.lower), np.setdiff1d(moving, rows.upper)
    return bool((y[low] - problem.lower[low] < 1e-7).any() or (problem.upper[high] - y[high] < 1e-7).any())


def _with(made: Conditioner, problem: Problem, covariance: Covariance, **changes: Any) -> Conditioner:
    """The same conditioner with another recipe, keeping what was compiled and factored."""
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
        found = tried.answer(labels.x[some], starts[some], until=began + 0.5 * seconds)
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

    def reached(tried: Conditioner, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        until = began + seconds
        found = tried.answer(labels.x[rows], starts[rows], until=until).converged
        again = rows[found]
        found[found] = tried.answer(labels.x[again], starts[again], polish=True, until=until).converged
        return found

    everything = np.arange(len(labels.x))
    missing = everything[~reached(made, everything)]
    while len(missing) and len(made.recipe.centres) < FRAMES and time.monotonic() - began < 0.5 * seconds:
        scaled = labels.y[missing] / made.recipe.span
        chosen = missing[int(np.argmin(np.sum((scaled - np.median(scaled, axis=0)) ** 2, axis=1)))]
        centre = (labels.x[chosen], labels.y[chosen], nu[chosen], lam[chosen])
        tried = _with(made, problem, covariance, centres=(*made.recipe.centres, centre))
        now = reached(tried, missing)
        if not now.any():
            break
        made, missing = tried, missing[~now]
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
