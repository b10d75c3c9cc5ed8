"""How large errors are on average: which range R is known, and every bound that follows from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from feasibly import promise
from feasibly.arrays import RunningMoments
from feasibly.certificate.record import CertificateError
from feasibly.certificate.sentences import NO_RANGE
from feasibly.measure.metrics import measure_rows
from feasibly.model.belief import Model, NoPosteriorError
from feasibly.problem.core import Problem
from feasibly.promise import MeanBound, PromiseError, Spread

Array = NDArray[np.float64]

METRICS = ("gap_percent", "max_eq", "max_ineq")
DRAWN = 512
"""Rows that posterior draws are made for; a variance averaged over more changes little and costs as much again."""

_ROUNDING = 1e-9
LABEL = 1e-7
"""Labels are solutions to the solver's tolerance: an error below this is the label's own."""


@dataclass(frozen=True)
class Ranges:
    """The largest error that can occur: of each output (NaN where nobody knows), and of each metric somebody stated."""

    outputs: Array
    metrics: Mapping[str, float]
    absent: Mapping[str, str]

    @property
    def known(self) -> NDArray[np.int64]:
        """Outputs with a range."""
        return np.flatnonzero(np.isfinite(self.outputs))


def find_ranges(problem: Problem, stated: Mapping[str, float] | None) -> Ranges:
    """Box widths for outputs with bounds (their answers are clipped), and what the user states for anything else.

    `stated` may name blocks (`va`), single outputs, and metrics.
    """
    outputs = np.where(
        np.isfinite(problem.lower) & np.isfinite(problem.upper), problem.upper - problem.lower, np.nan
    )
    place = {name: np.array([i]) for i, name in enumerate(problem.output_names)}
    place |= {name: np.arange(problem.n_outputs)[block] for name, block in problem.blocks.items()}
    metrics: dict[str, float] = {}
    for name, value in (stated or {}).items():
        size = float(value)
        if not (np.isfinite(size) and size >= 0.0):
            raise CertificateError(
                f"the range of {name} must be a finite number of zero or more, not {value}"
            )
        if name in METRICS:
            metrics[name] = size
        elif name in place:
            outputs[place[name]] = size
        else:
            known = ", ".join([*METRICS, *problem.blocks])
            raise CertificateError(
                f"there is nothing called {name!r} to state a range of; choose {known} or an output"
            )
    absent = {}
    for name, block in problem.blocks.items():
        open_ = np.flatnonzero(np.isnan(outputs[block]))
        if len(open_):
            absent[name] = NO_RANGE
    for name in METRICS:
        if name not in metrics:
            absent[name] = NO_RANGE
    return Ranges(outputs, metrics, absent)


def clipped_errors(
    problem: Problem, y: Array, truth: Array, ranges: Ranges
) -> tuple[Array, tuple[int, float]]:
    """Absolute errors of answers clipped to their bounds, `(rows, known outputs)`; a missing answer is off by R.

    Also how many answers clipping moved by more than rounding, and by how much at most.
    """
    inside = np.clip(y, problem.lower, problem.upper)
    known = ranges.known
    errors = np.abs(inside - np.clip(truth, problem.lower, problem.upper))[:, known]
    errors = np.where(np.isfinite(errors), errors, ranges.outputs[known])
    moved = np.nan_to_num(np.abs(inside - y)).max(axis=1, initial=0.0)
    return errors, (int((moved > 1e-6).sum()), float(moved.max(initial=0.0)))


def bound_means(
    errors: Array,
    size: Array | float,
    confidence: float,
    *,
    simultaneous: bool = False,
    seed: int = 0,
    mpv: Array | None = None,
    alpha: float = 2.0,
) -> dict[str, MeanBound]:
    """Every bound on a mean error, the default (`betting`) first; the paper's only where an MPV is given.

    Raises:
        CertificateError: errors exceed the range R.
    """
    try:
        made = {
            "betting": promise.betting(errors, size, confidence, seed=seed, simultaneous=simultaneous),
            "maurer-pontil": promise.maurer_pontil(errors, size, confidence, simultaneous=simultaneous),
            "hoeffding": promise.hoeffding(errors, size, confidence, simultaneous=simultaneous),
            "empirical-bernstein": promise.empirical_bernstein(
                errors, size, confidence, simultaneous=simultaneous
            ),
        }
        if mpv is not None:
            made["mpv-bernstein"] = promise.mpv_bernstein(
                errors, size, mpv, confidence, alpha=alpha, simultaneous=simultaneous
            )
    except PromiseError as error:
        raise CertificateError(str(error)) from error
    return made


def predictive_spread(model: Model, x: Array, draws: int, seed: int) -> tuple[Spread, str]:
    """V_W of every prediction over posterior draws, streamed, and where it came from.

    A model without a posterior gives the variance it states, which is that of its validation errors.
    """
    belief = model.predict(x)
    try:
        found = promise.measure_spread(model.draws(x, draws, seed))
    except NoPosteriorError:
        return Spread(belief.mean, belief.std**2), "the stated variance of a model without a posterior"
    assert found.draw_mean is not None
    # Rounding is no spread: an output that never moved in training has none.
    rounding = (_ROUNDING * np.maximum(1.0, np.abs(found.mean))) ** 2
    variance = np.where(found.variance < rounding, 0.0, found.variance)
    over = np.where(variance.max(axis=0, initial=0.0) == 0.0, 0.0, found.draw_mean)
    return Spread(belief.mean, variance, over), f"{draws} posterior draws"


def metric_spread(problem: Problem, model: Model, x: Array, draws: int, seed: int) -> Spread | None:
    """V_W of the metrics of posterior draws, `(rows, METRICS)`, streamed; `None` for a model without a posterior.

    That of the gap is the variance of the cost over the square of its mean: the optimal cost does not vary over draws,
    and where it is unknown the draws' mean stands for it.
    """
    found = RunningMoments()
    try:
        for drawn in model.draws(x, draws, seed):
            rows = measure_rows(problem, x, drawn)
            found.add(np.stack([rows.objective, rows.max_eq, rows.max_ineq], axis=1))
    except NoPosteriorError:
        return None
    variance = found.variance
    variance[:, 0] *= (100.0 / np.maximum(np.abs(found.mean[:, 0]), np.finfo(np.float64).tiny)) ** 2
    return Spread(found.mean, variance)


def beyond_tolerance(truth: Array, y: Array) -> Array:
    """The labels, where they differ from the answers by more than labels can be trusted; else the answers.

    An output that rests on a bound has neither error nor spread; without this, the ratio of two roundings would be
    reported as its alpha.
    """
    return np.where(np.abs(truth - y) <= LABEL * np.maximum(1.0, np.abs(y)), y, truth)
