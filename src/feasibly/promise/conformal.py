"""How large the error can be on the next instance: split conformal prediction.

The predictor, and every choice made in building it, is fixed first. Then n calibration instances that took no
part in it are scored, and the k-th smallest score with k = ceil((n + 1) confidence) bounds the score of one
further exchangeable instance with probability at least `confidence`: exactly, for every n, whatever the
errors look like. Ties only make it more cautious.

The probability counts the draw of the calibration set as well as the next instance. For one given calibration
set the coverage varies around it; `coverage_range` says by how much.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from feasibly.promise._check import (
    Array,
    Flags,
    PromiseError,
    check_array,
    check_confidence,
    check_same_shape,
    conformal_rank,
    spread_over,
)

_EXCHANGEABLE = "the instance is drawn like the calibration instances"
_FIXED = "the predictor and its scale were fixed before the calibration labels were used"


@dataclass(frozen=True, eq=False)
class Region:
    """Intervals `prediction +- quantile x scale` for the next instance.

    Attributes:
        quantile: `(outputs,)`, in units of the scale (of the output where `scaled` is false).
        joint: whether all outputs lie in their intervals together with probability `confidence`; otherwise
            each one does.
        scaled: whether residuals were divided by a scale, which `interval` then needs for new instances.
        floor: smallest scale used, `(outputs,)`.
        confidence: the promise.
        count: calibration labels used.
        rank: the score used is the rank-th smallest of `count`.
        assumptions: what must be true, one clause each.
    """

    quantile: Array
    joint: bool
    scaled: bool
    floor: Array
    confidence: float
    count: int
    rank: int
    assumptions: tuple[str, ...] = (_EXCHANGEABLE, _FIXED)

    def half_width(self, scale: ArrayLike | None = None) -> Array:
        """`quantile x max(scale, floor)`; shape of `scale`, or `(outputs,)` when the region is not scaled."""
        if not self.scaled:
            return self.quantile
        if scale is None:
            raise PromiseError(
                "This region was calibrated with a scale: give the scale of the new instances too."
            )
        size = np.maximum(_match(scale, "scale", self.quantile.size), self.floor)
        return np.asarray(self.quantile * size)

    def interval(self, prediction: ArrayLike, scale: ArrayLike | None = None) -> tuple[Array, Array]:
        """Lower and upper ends for new predictions of shape `(outputs,)` or `(instances, outputs)`."""
        centre = _match(prediction, "prediction", self.quantile.size)
        half = self.half_width(scale)
        return centre - half, centre + half

    def covers(self, truth: ArrayLike, prediction: ArrayLike, scale: ArrayLike | None = None) -> Flags:
        """Whether each truth lies in its interval; for a joint region, all outputs of an instance."""
        lower, upper = self.interval(prediction, scale)
        value = _match(truth, "truth", self.quantile.size)
        inside = (lower <= value) & (value <= upper)
        return np.asarray(inside.all(axis=-1)) if self.joint else inside

    def describe(self, what: str = "output") -> str:
        """The promise in one sentence."""
        who = f"all {self.quantile.size} {what}s together lie" if self.joint else f"each {what} lies"
        return (
            f"For the next instance {who} within the stated interval with probability at least "
            f"{self.confidence:g} ({self.count} calibration labels), provided that "
            f"{' and '.join(self.assumptions)}."
        )


@dataclass(frozen=True, eq=False)
class ScoreLimit:
    """One-sided limits on scores of the next instance (gap, largest violation): `score <= limit x scale`.

    `limit` has shape `(scores,)`, or `()` for one score. It is infinite where too many calibration scores
    were. Other attributes as in `Region`; `simultaneous` says whether the limits hold together.
    """

    limit: Array
    scaled: bool
    floor: float
    confidence: float
    count: int
    rank: int
    simultaneous: bool = False
    assumptions: tuple[str, ...] = (_EXCHANGEABLE, _FIXED)

    def upper(self, scale: ArrayLike | None = None) -> Array:
        """Limits for new instances: shaped like `limit`, after the shape of `scale` where there is one."""
        if not self.scaled:
            return self.limit
        if scale is None:
            raise PromiseError(
                "These limits were calibrated with a scale: give the scale of the new instances too."
            )
        size = np.maximum(check_array(scale, "scale", (0, 1)), self.floor)
        return np.multiply.outer(size, self.limit)

    def describe(self, what: str = "score") -> str:
        """The promise in one sentence."""
        size = "its scale times " if self.scaled else ""
        values = ", ".join(f"{value:.4g}" for value in np.atleast_1d(self.limit))
        return (
            f"For the next instance the {what} is at most {size}{values} with probability at least "
            f"{self.confidence:g} ({self.count} calibration instances), provided that "
            f"{' and '.join(self.assumptions)}."
        )


def calibrate(
    residuals: ArrayLike,
    confidence: float = 0.95,
    *,
    scale: ArrayLike | None = None,
    floor: ArrayLike = 0.0,
    joint: bool = False,
    simultaneous: bool = False,
) -> Region:
    """Split conformal intervals from calibration residuals.

    Args:
        residuals: `truth - prediction`, `(n, outputs)` or `(n,)`; signs do not matter.
        confidence: probability that the next instance is covered.
        scale: standard deviations the predictor itself gave for these instances, same shape; hard instances
            then get wider intervals. Without it every instance has the same width.
        floor: smallest scale, one number or one for each output, **fixed before calibration** (a fraction of
            the training labels' standard deviation, say). It keeps an output whose spread is almost zero from
            deciding the whole joint region.
        joint: one region for all outputs together, by the largest normalised residual.
        simultaneous: intervals for each output that hold together by the union bound; needs many labels.

    An output with no spread at all (a reference angle) and no error gets an interval of width zero. One with
    no spread and some error is refused unless `floor` gives it a scale.

    Raises:
        TooFewLabelsError: it says how many labels the confidence needs.
        PromiseError: for NaN, wrong shapes, negative scales, or zero scale with an error.
    """
    values = np.abs(check_array(residuals, "residuals"))
    values = values[:, None] if values.ndim == 1 else values
    count, outputs = values.shape
    confidence = check_confidence(confidence)
    if joint and simultaneous:
        raise PromiseError(
            "A joint region already holds for all outputs: choose joint or simultaneous, not both."
        )
    rank = conformal_rank(count, confidence, outputs if simultaneous else 1)
    least = spread_over(floor, (outputs,), "floor")
    scores = values if scale is None else normalise(values, scale, least)
    if joint:
        scores = np.broadcast_to(scores.max(axis=1, keepdims=True), scores.shape)
    quantile = np.partition(scores, rank - 1, axis=0)[rank - 1].copy()
    return Region(quantile, joint or simultaneous, scale is not None, least, confidence, count, rank)


def calibrate_scores(
    scores: ArrayLike,
    confidence: float = 0.95,
    *,
    scale: ArrayLike | None = None,
    floor: float = 0.0,
    simultaneous: bool = False,
) -> ScoreLimit:
    """One-sided conformal limits for scalar scores such as the gap or the largest violation.

    Scores that need no label (violations of equalities and inequalities) can be calibrated on unlabelled
    inputs.

    Args:
        scores: `(n,)` or `(n, scores)`, larger is worse; infinite for an instance that got no answer.
        confidence: probability that the next instance stays below.
        scale: how hard the predictor itself finds each instance, `(n,)`, positive.
        floor: smallest scale, fixed before calibration.
        simultaneous: whether limits on several scores hold together (union bound).

    Raises:
        TooFewLabelsError: it says how many instances the confidence needs.
        PromiseError: for NaN, wrong shapes, or a scale that is not positive.
    """
    values = check_array(scores, "scores", infinite=True)
    count = len(values)
    confidence = check_confidence(confidence)
    kinds = values.shape[1] if values.ndim == 2 else 1
    rank = conformal_rank(count, confidence, kinds if simultaneous else 1, "calibration instances")
    if scale is not None:
        size = np.maximum(check_array(scale, "scale", (1,)), floor)
        if size.shape != (count,):
            raise PromiseError(
                f"scale must have one value for each of {count} instances, not shape {size.shape}."
            )
        if (size <= 0).any():
            raise PromiseError(
                "Every scale must be positive: give a floor that was fixed before calibration."
            )
        values = values / (size if values.ndim == 1 else size[:, None])
    limit = np.partition(values, rank - 1, axis=0)[rank - 1]
    return ScoreLimit(
        np.asarray(limit), scale is not None, float(floor), confidence, count, rank, simultaneous
    )


def coverage_range(count: int, confidence: float, share: float = 0.9) -> tuple[float, float]:
    """Between which values the coverage of one given calibration set lies, for a `share` of calibration sets.

    Exact for continuous scores: the coverage is Beta(k, n + 1 - k) distributed.
    """
    from scipy.stats import beta

    rank = conformal_rank(count, confidence)
    tail = 0.5 * (1.0 - check_confidence(share))
    low, high = beta.ppf([tail, 1.0 - tail], rank, count + 1 - rank)
    return float(low), float(high)


def normalise(residuals: Array, scale: ArrayLike, floor: Array) -> Array:
    """|residual| / max(scale, floor), with 0 / 0 = 0; an error without any scale is refused."""
    size = check_array(scale, "scale")
    size = size[:, None] if size.ndim == 1 else size
    check_same_shape(residuals, size, "residuals and scale")
    if (size < 0).any():
        raise PromiseError("Scales are standard deviations and must not be negative.")
    size = np.maximum(size, floor)
    silent = size == 0
    stuck = silent & (residuals > 0)
    if stuck.any():
        columns = np.flatnonzero(stuck.any(axis=0))
        listed = ", ".join(str(column) for column in columns[:5]) + (", ..." if len(columns) > 5 else "")
        raise PromiseError(
            f"{len(columns)} outputs ({listed}) have scale 0 and an error: give `floor` a smallest scale for "
            "them that was fixed before calibration."
        )
    return np.asarray(np.abs(residuals) / np.where(silent, 1.0, size))


def _match(values: ArrayLike, what: str, outputs: int) -> Array:
    array = check_array(values, what, (0, 1, 2))
    if outputs == 1 and (array.ndim == 0 or array.shape[-1] != 1):
        array = array[..., None]
    if array.shape[-1] != outputs:
        raise PromiseError(
            f"{what} must have {outputs} outputs in its last dimension, not shape {array.shape}."
        )
    return array
