"""The mean predictive variance (MPV), the total variance of the error, and the alpha that links them.

`e = y - y_w(x)` is the error of one posterior draw w on one instance x. The law of total variance splits its
variance over draws *and* instances into

    V[e] = E_M[V_W e] + V_M[E_W e]        what the draws disagree on + what their mean gets wrong

The first term is the MPV, known without labels. The second is the variance of the posterior mean's own error,
and nothing ties it to the first: a posterior that is too sure of itself has a small MPV and any error at all.

The paper writes V_W[E_M e] for the second term. Since y does not depend on w, that is the variance over draws
of an *average* of predictions over instances, and the variance of an average is at most the average of the
variances (convexity): V_W[E_M e] <= E_M[V_W e] = MPV. So the paper's total never exceeds 2 MPV whatever the
labels are; they even cancel out of it. Both versions are reported; only the first can support a bound.

An exactly calibrated posterior has V_M[E_W e] = MPV where the error is centred, hence alpha = 2: the paper's
constant is what honesty gives, and overconfidence shows as alpha above it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from feasibly._words import counted
from feasibly.arrays import RunningMoments
from feasibly.promise._check import (
    Array,
    Flags,
    PromiseError,
    check_array,
    check_confidence,
    check_same_shape,
)


@dataclass(frozen=True, eq=False)
class Spread:
    """A posterior prediction matrix reduced to what variances need.

    Attributes:
        mean: E_W of each prediction, `(instances, outputs)`.
        variance: V_W of each prediction (divided by the number of draws), `(instances, outputs)`.
        draw_mean: E_M of each draw, `(draws, outputs)`; `None` for a closed-form posterior without draws.
    """

    mean: Array
    variance: Array
    draw_mean: Array | None = None

    @property
    def mpv(self) -> Array:
        """Mean predictive variance of each output, `(outputs,)`."""
        return self.variance.mean(axis=0)

    @property
    def paper_alpha(self) -> Array | None:
        """E_M[V_W e] + V_W[E_M e] over MPV, `(outputs,)`: 1 to 2 whatever the labels are; `None` without draws."""
        if self.draw_mean is None:
            return None
        # Convexity, at most MPV; rounding alone can break it, and would make a ratio without meaning of it where an
        # output has no spread.
        return _ratio(np.minimum(self.draw_mean.var(axis=0), self.mpv), self.mpv)


def measure_spread(draws: Iterable[ArrayLike]) -> Spread:
    """Reduce posterior draws of shape `(instances, outputs)`, one in memory at a time.

    `draws` may be an array `(draws, instances, outputs)`, or anything that gives one draw after another.
    """
    found, averages = RunningMoments(), []
    for draw in draws:
        values = check_array(draw, "a posterior draw", (2,))
        if found.count and values.shape != found.mean.shape:
            raise PromiseError(f"Draws must have one shape, not {found.mean.shape} and {values.shape}.")
        found.add(values)
        averages.append(values.mean(axis=0))
    if found.count < 2:
        raise PromiseError("A predictive variance needs at least two posterior draws.")
    return Spread(found.mean, found.variance, np.stack(averages))


@dataclass(frozen=True, eq=False)
class AlphaReport:
    """Whether alpha x MPV covers the variance of the error, for each output, from labelled instances.

    Attributes:
        mpv: E_M[V_W e].
        between: V_M[E_W e], the term that labels decide.
        total: their sum, the variance of the error over draws and instances.
        paper: E_M[V_W e] + V_W[E_M e] as the paper writes it, at most 2 MPV by construction; `None` without
            draws.
        alpha: `total / mpv`; infinite where the posterior has no spread and is wrong, 1 where it has none and
            is right by the same amount everywhere.
        alpha_lower, alpha_upper: bootstrap interval of `alpha` over instances.
        alpha_paper: `paper / mpv`, between 1 and 2, or `None`.
        needed: variance of the absolute error of the posterior mean over `mpv`: the smallest multiplier with
            which the bound's hypothesis is true of that answer (at most `alpha`).
        limit: the multiplier under test.
        confidence: of the bootstrap interval (its usual large-sample meaning, not a finite-sample promise).
        count: labelled instances used.
    """

    mpv: Array
    between: Array
    total: Array
    paper: Array | None
    alpha: Array
    alpha_lower: Array
    alpha_upper: Array
    alpha_paper: Array | None
    needed: Array
    limit: float
    confidence: float
    count: int

    @property
    def violated(self) -> Flags:
        """Outputs whose measured alpha exceeds the limit, as booleans."""
        return np.asarray(self.alpha > self.limit)

    @property
    def surely_violated(self) -> Flags:
        """Outputs whose whole interval for alpha lies above the limit."""
        return np.asarray(self.alpha_lower > self.limit)

    @property
    def holds(self) -> bool:
        """Whether the measured alpha is within the limit for every output."""
        return not bool(self.violated.any())

    def describe(self) -> str:
        """The verdict, in a few sentences."""
        bad, sure = int(self.violated.sum()), int(self.surely_violated.sum())
        near = int(((self.alpha_upper > self.limit) & ~self.violated).sum())
        verdict = "not contradicted"
        if bad:
            total = counted(self.alpha.size, "output")
            verdict = f"violated for {bad} of {total} (for {sure} the whole interval lies above it)"
        elif near:
            verdict += f", nor is it sure for {counted(near, 'output')}, whose interval reaches above it"
        said = [f"The hypothesis (alpha <= {self.limit:g}) is {verdict}."]
        silent = int(np.isinf(self.alpha).sum())
        if silent:
            said.append(
                f"For {counted(silent, 'output')} the posterior states no spread at all and the errors vary: "
                "no alpha is enough."
            )
        if silent < self.alpha.size:
            worst = int(np.argmax(np.where(np.isfinite(self.alpha), self.alpha, -np.inf)))
            said.append(
                f"The largest{' finite' if silent else ''} alpha measured is {self.alpha[worst]:.3g} "
                f"({self._between(worst)}), from {self.count} instances."
            )
        if bad:
            said.append("Bounds that rest on it are no promises.")
        return " ".join(said)

    def _between(self, output: int) -> str:
        """The interval of one output's alpha in words: without an upper end where the MPV may well be zero."""
        low, high = float(self.alpha_lower[output]), float(self.alpha_upper[output])
        sure = f"with confidence {self.confidence:g}"
        if np.isfinite(high):
            return f"{low:.3g} to {high:.3g} {sure}"
        return f"{low:.3g} or more {sure}, with no upper end: too few instances show any spread"


def measure_alpha(
    spread: Spread,
    labels: ArrayLike,
    *,
    limit: float = 2.0,
    confidence: float = 0.95,
    resamples: int = 500,
    seed: int = 0,
) -> AlphaReport:
    """Measure alpha = V[e] / MPV on labelled instances, with a bootstrap over instances for its uncertainty.

    Args:
        spread: of the posterior on those instances.
        labels: true outputs, `(instances, outputs)` or `(instances,)`; not used in training.
        limit: the multiplier that the bound uses.
        confidence: of the interval for alpha.
        resamples: bootstrap resamples.
        seed: of the bootstrap.
    """
    truth = check_array(labels, "labels")
    truth = truth[:, None] if truth.ndim == 1 else truth
    check_same_shape(truth, spread.mean, "labels and the spread's mean")
    confidence = check_confidence(confidence)
    count = len(truth)
    if count < 2:
        raise PromiseError("Measuring alpha needs at least two labelled instances.")
    error = truth - spread.mean
    mpv = spread.variance.mean(axis=0)
    between = _variance(error)
    paper = spread.paper_alpha

    picks = (
        np.random.default_rng(seed).multinomial(count, np.full(count, 1.0 / count), size=resamples) / count
    )
    centred = error - error.mean(axis=0)
    centred[:, between == 0.0] = 0.0
    again_between = np.maximum(picks @ centred**2 - (picks @ centred) ** 2, 0.0)
    again = _ratio(again_between, picks @ spread.variance)
    tail = 50.0 * (1.0 - confidence)
    # "nearest": interpolating between two infinite ratios would give NaN.
    low, high = np.percentile(again, [tail, 100.0 - tail], axis=0, method="nearest")
    return AlphaReport(
        mpv=mpv,
        between=between,
        total=mpv + between,
        paper=None if paper is None else paper * mpv,
        alpha=_ratio(between, mpv),
        alpha_lower=low,
        alpha_upper=high,
        alpha_paper=paper,
        needed=_ratio(_variance(np.abs(error)), mpv) - 1.0,
        limit=float(limit),
        confidence=confidence,
        count=count,
    )


def _variance(error: Array) -> Array:
    """Variance over instances; an error that is constant but for rounding has none."""
    variance = error.var(axis=0)
    return np.where(variance <= 1e-24 * (error**2).mean(axis=0), 0.0, variance)


def _ratio(between: Array, mpv: Array) -> Array:
    """(mpv + between) / mpv, with 0 / 0 read as nothing on top of nothing."""
    silent = mpv <= 0
    extra = np.where(silent, np.where(between > 0, np.inf, 0.0), between / np.where(silent, 1.0, mpv))
    return 1.0 + extra
