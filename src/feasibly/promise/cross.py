"""Promises about the next instance from the training labels themselves: jackknife+ and CV+.

After Barber, Candes, Ramdas and Tibshirani (2021). Each label is predicted by a model that did not see it,
fitted anew by the whole procedure (hyper-parameters included); the interval for a new instance collects
`prediction without i +- residual of i` over all i. No label is spent on calibration, and the price is in the
guarantee: **1 - 2 alpha** for a nominal 1 - alpha (less a small term for CV+), although coverage near 1 -
alpha is what is usually seen. Results carry both numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from feasibly.promise._check import (
    Array,
    PromiseError,
    check_array,
    conformal_rank,
    exact_level,
    spread_over,
)
from feasibly.promise.conformal import normalise


@dataclass(frozen=True, eq=False)
class CrossIntervals:
    """Intervals for new instances, with the guarantee they really have.

    Attributes:
        lower, upper: `(instances, outputs)`.
        nominal: the asked confidence 1 - alpha, near which the coverage usually is.
        guarantee: the probability that is promised, 1 - 2 alpha or a little less; 0 where nothing is.
        joint: whether the guarantee is for all outputs of an instance together.
        method: `jackknife+` or `cv+`.
        count: labels used, all of which also trained the models.
        folds: models fitted.
        assumptions: what must be true, one clause each.
    """

    lower: Array
    upper: Array
    nominal: float
    guarantee: float
    joint: bool
    method: str
    count: int
    folds: int
    assumptions: tuple[str, ...] = (
        "the instance is drawn like the training instances",
        "each label was left out of everything that chose its model, hyper-parameters included",
        "the fitting procedure treats labels alike, whatever their order",
    )

    def describe(self) -> str:
        """The promise in one sentence."""
        who = "all outputs together lie" if self.joint else "each output lies"
        return (
            f"For the next instance {who} within the stated interval with probability at least "
            f"{self.guarantee:.4g} (usually near {self.nominal:g}; {self.method} on {self.count} training "
            f"labels, none spent on calibration), provided that {'; '.join(self.assumptions)}."
        )


def jackknife_plus(
    residuals: ArrayLike,
    predictions: ArrayLike,
    confidence: float = 0.95,
    *,
    residual_scale: ArrayLike | None = None,
    scale: ArrayLike | None = None,
    floor: ArrayLike = 0.0,
    joint: bool = False,
) -> CrossIntervals:
    """Jackknife+ from leave-one-out residuals and the leave-one-out models' predictions.

    Args:
        residuals: label i minus its prediction by the model without i, `(n, outputs)` or `(n,)`.
        predictions: of the new instances by each of those n models, `(n, instances, outputs)`; for one output
            `(n, instances)` will do.
        confidence: nominal 1 - alpha; the guarantee is 1 - 2 alpha. To be *guaranteed* c, ask for (1 + c) /
            2.
        residual_scale, scale: the left-out models' own standard deviations, for label i and for the new
            instances, shaped like `residuals` and `predictions`; hard instances then get wider intervals.
        floor: smallest scale, one number or one for each output, fixed beforehand.
        joint: one guarantee for all outputs of an instance together, by the largest normalised residual.

    Raises:
        TooFewLabelsError: it says how many labels the confidence needs.
        PromiseError: for NaN, wrong shapes, or a scale on one side only.
    """
    left = check_array(residuals, "residuals")
    fold = np.arange(len(left))
    return _intervals(left, predictions, fold, confidence, residual_scale, scale, floor, joint, "jackknife+")


def cv_plus(
    residuals: ArrayLike,
    predictions: ArrayLike,
    fold: ArrayLike,
    confidence: float = 0.95,
    *,
    residual_scale: ArrayLike | None = None,
    scale: ArrayLike | None = None,
    floor: ArrayLike = 0.0,
    joint: bool = False,
) -> CrossIntervals:
    """CV+ from K-fold residuals: K models instead of n, and a guarantee that is a little smaller.

    Guarantee: 1 - 2 alpha - min(2 (1 - 1/K) / (n/K + 1), (1 - K/n) / (K + 1)), for folds of equal size, drawn
    without looking at the labels.

    Args:
        residuals: label i minus its prediction by the model without i's fold, `(n, outputs)` or `(n,)`.
        predictions: of the new instances by each model, `(K, instances, outputs)` or `(K, instances)`.
        fold: which of the K models left out label i, integers `(n,)`.
        confidence: nominal 1 - alpha.
        residual_scale, scale, floor, joint: as in `jackknife_plus`.

    Raises:
        TooFewLabelsError, PromiseError: as `jackknife_plus`; also for folds of unequal size.
    """
    left = check_array(residuals, "residuals")
    member = np.asarray(fold)
    if member.shape != (len(left),) or not np.issubdtype(member.dtype, np.integer):
        raise PromiseError(f"fold must hold one integer for each of {len(left)} residuals.")
    sizes = np.bincount(member) if (member >= 0).all() else np.zeros(1)
    if sizes.min() == 0 or sizes.min() != sizes.max():
        raise PromiseError(
            f"The CV+ guarantee is for folds 0 to K - 1 of equal size; these have {sizes.min():g} to "
            f"{sizes.max():g} labels. Leave a few labels out so that the folds are equal."
        )
    return _intervals(left, predictions, member, confidence, residual_scale, scale, floor, joint, "cv+")


def _intervals(
    residuals: Array,
    predictions: ArrayLike,
    fold: NDArray[np.integer],
    confidence: float,
    residual_scale: ArrayLike | None,
    scale: ArrayLike | None,
    floor: ArrayLike,
    joint: bool,
    method: str,
) -> CrossIntervals:
    residuals = np.abs(residuals[:, None] if residuals.ndim == 1 else residuals)
    count, outputs = residuals.shape
    folds = int(fold.max()) + 1
    rank = conformal_rank(count, confidence, what="labels")
    centre = _shaped(predictions, "predictions", folds, outputs)
    least = spread_over(floor, (outputs,), "floor")
    if (residual_scale is None) != (scale is None):
        raise PromiseError("Give both residual_scale and scale, or neither.")
    size = None
    if residual_scale is not None and scale is not None:
        residuals = normalise(residuals, residual_scale, least)
        size = np.maximum(_shaped(scale, "scale", folds, outputs), least)
        if size.shape != centre.shape or (size < 0).any():
            raise PromiseError(f"scale must be non-negative and shaped like predictions, {centre.shape}.")
    if joint:
        residuals = np.broadcast_to(residuals.max(axis=1, keepdims=True), residuals.shape)

    instances = centre.shape[1]
    lower, upper = np.empty((instances, outputs)), np.empty((instances, outputs))
    # One output at a time: the full (n, instances, outputs) array of ends need never exist.
    for j in range(outputs):
        half = residuals[:, j, None] * (1.0 if size is None else size[fold, :, j])
        middle = centre[fold, :, j]
        upper[:, j] = np.partition(middle + half, rank - 1, axis=0)[rank - 1]
        # floor(alpha (n + 1)) = n + 1 - ceil((1 - alpha)(n + 1)), as a rank from below.
        lower[:, j] = np.partition(middle - half, count - rank, axis=0)[count - rank]
    return CrossIntervals(
        lower, upper, float(confidence), _guarantee(count, folds, confidence), joint, method, count, folds
    )


def _guarantee(count: int, folds: int, confidence: float) -> float:
    """1 - 2 alpha, less the CV+ term; never below 0."""
    alpha = 1 - exact_level(confidence)
    size = Fraction(count, folds)
    loss = min(2 * (1 - Fraction(1, folds)) / (size + 1), (1 - Fraction(folds, count)) / (folds + 1))
    return float(max(Fraction(0), 1 - 2 * alpha - loss))


def _shaped(values: ArrayLike, what: str, folds: int, outputs: int) -> Array:
    array = check_array(values, what, (2, 3))
    if array.ndim == 2:
        if outputs != 1:
            raise PromiseError(f"{what} must have shape (models, instances, {outputs}), not {array.shape}.")
        array = array[:, :, None]
    if array.shape[0] != folds or array.shape[2] != outputs:
        raise PromiseError(f"{what} must have shape ({folds}, instances, {outputs}), not {array.shape}.")
    return array
