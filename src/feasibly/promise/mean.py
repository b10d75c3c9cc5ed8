"""How large the error is on average: bounds on the mean of M independent errors in [0, R].

Every function takes errors of shape `(M,)` or `(M, outputs)` and returns a `MeanBound` with one interval for
each output. The errors must come from instances that took no part in training. `range` is R, the largest
error that *can* occur, not the largest that did: it follows from bounds on the outputs (for answers clipped
to them) or is stated by whoever knows; the maximum of a sample says nothing about the mean of what was not
sampled.

The bounds here are closed formulas; `betting` has the interval that needs a search. All are two-sided.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from feasibly.promise._check import Array, PromiseError, check_array, check_confidence, spread_over

INDEPENDENT = "the errors are independent draws from the distribution the proxy will meet"
BOUNDED = "every error lies between 0 and the stated range R"
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class MeanBound:
    """An interval for the mean error of each output.

    Attributes:
        lower, upper: the interval, cut to [0, R]; shape `(outputs,)`, or `()` for one-dimensional errors.
        epsilon: half-width before cutting, as the paper's tables have it; for `betting`, whose interval is
            not symmetric, the larger distance from the sample mean.
        mean: the sample mean.
        confidence: the asked confidence 1 - delta, for each output or for all at once (`simultaneous`).
        range: R for each output.
        count: M.
        method: the name of the bound.
        assumptions: what must be true for the promise to hold, one clause each.
        simultaneous: whether all intervals hold together with that confidence (union bound).
    """

    lower: Array
    upper: Array
    epsilon: Array
    mean: Array
    confidence: float
    range: Array
    count: int
    method: str
    assumptions: tuple[str, ...]
    simultaneous: bool = False

    @property
    def width(self) -> Array:
        """`upper - lower`."""
        return self.upper - self.lower

    def describe(self, what: str = "error", unit: str = "") -> str:
        """The promise in one sentence, for the output with the largest upper end."""
        worst = float(np.max(self.upper))
        unit = f" {unit}" if unit else ""
        each = "every output at once" if self.simultaneous else "each output"
        scope = f", for {each}," if self.upper.size > 1 else ""
        return (
            f"With confidence {self.confidence:g}{scope} the mean {what} is at most {worst:.4g}{unit} "
            f"({self.method}, {self.count} instances), provided that {'; '.join(self.assumptions)}."
        )


@dataclass(frozen=True, eq=False)
class Sample:
    """Checked errors, their range and the failure probability each output may use up."""

    errors: Array
    range: Array
    mean: Array
    confidence: float
    delta: float
    count: int
    simultaneous: bool


def take_sample(
    errors: ArrayLike, range: ArrayLike, confidence: float, simultaneous: bool, least: int
) -> Sample:
    """Check what all mean bounds need; `least` is the fewest errors the method can work with."""
    values = check_array(errors, "errors")
    confidence = check_confidence(confidence)
    if range is None:
        raise PromiseError(
            "State the range R of the errors: the largest that can occur, from bounds on the outputs or from "
            "knowledge of the system. The sample maximum would void the promise."
        )
    top = spread_over(range, values.shape[1:], "range")
    if values.shape[0] < least:
        raise PromiseError(f"This bound needs at least {least} errors, and there are {values.shape[0]}.")
    negative = int((values < 0).sum())
    if negative:
        raise PromiseError(f"{negative} of {values.size} errors are negative: pass absolute errors.")
    above = values > top * (1.0 + _ROUNDING)
    if above.any():
        where = f" in {int(above.any(axis=0).sum())} outputs" if values.ndim == 2 else ""
        raise PromiseError(
            f"{int(above.sum())} of {values.size} errors{where} exceed the stated range R, by up to "
            f"{float((values - top).max()):.4g}: R is the largest error that can occur; state a larger one "
            "or clip the answers to their bounds."
        )
    values = np.minimum(values, top)
    outputs = max(1, int(np.prod(values.shape[1:])))
    delta = (1.0 - confidence) / (outputs if simultaneous else 1)
    return Sample(values, top, values.mean(axis=0), confidence, delta, values.shape[0], simultaneous)


def _symmetric(sample: Sample, epsilon: Array, method: str, assumptions: tuple[str, ...]) -> MeanBound:
    return MeanBound(
        lower=np.maximum(sample.mean - epsilon, 0.0),
        upper=np.minimum(sample.mean + epsilon, sample.range),
        epsilon=np.asarray(epsilon),
        mean=sample.mean,
        confidence=sample.confidence,
        range=sample.range,
        count=sample.count,
        method=method,
        assumptions=assumptions,
        simultaneous=sample.simultaneous,
    )


def hoeffding(
    errors: ArrayLike, range: ArrayLike, confidence: float = 0.95, *, simultaneous: bool = False
) -> MeanBound:
    """Hoeffding 1963: epsilon = R sqrt(log(2/delta) / (2 M)). Needs no variance, and pays for it.

    Args:
        errors: `(M,)` or `(M, outputs)`, in [0, R].
        range: R, one number or one for each output.
        confidence: 1 - delta.
        simultaneous: whether the promise is for all outputs at once.

    Raises:
        PromiseError: for errors outside [0, R] (it says how many), NaN, no range, or a confidence outside (0,
            1).
    """
    sample = take_sample(errors, range, confidence, simultaneous, least=1)
    epsilon = sample.range * math.sqrt(math.log(2.0 / sample.delta) / (2.0 * sample.count))
    return _symmetric(sample, epsilon, "hoeffding", (INDEPENDENT, BOUNDED))


def empirical_bernstein(
    errors: ArrayLike, range: ArrayLike, confidence: float = 0.95, *, simultaneous: bool = False
) -> MeanBound:
    """Audibert, Munos and Szepesvari 2007: sqrt(2 V log(3/delta) / M) + 3 R log(3/delta) / M.

    V is the variance of the sample itself (divided by M). Arguments and errors as in `hoeffding`.
    """
    sample = take_sample(errors, range, confidence, simultaneous, least=1)
    log = math.log(3.0 / sample.delta)
    variance = sample.errors.var(axis=0)
    epsilon = np.sqrt(2.0 * variance * log / sample.count) + 3.0 * sample.range * log / sample.count
    return _symmetric(sample, epsilon, "empirical-bernstein", (INDEPENDENT, BOUNDED))


def maurer_pontil(
    errors: ArrayLike, range: ArrayLike, confidence: float = 0.95, *, simultaneous: bool = False
) -> MeanBound:
    """Maurer and Pontil 2009, theorem 4, with delta/2 for each side.

    epsilon = sqrt(2 V log(4/delta) / M) + 7 R log(4/delta) / (3 (M - 1)), V the unbiased sample variance.
    Arguments and errors as in `hoeffding`; M must be at least 2.
    """
    sample = take_sample(errors, range, confidence, simultaneous, least=2)
    log = math.log(4.0 / sample.delta)
    variance = sample.errors.var(axis=0, ddof=1)
    epsilon = np.sqrt(2.0 * variance * log / sample.count)
    epsilon = epsilon + 7.0 * sample.range * log / (3.0 * (sample.count - 1))
    return _symmetric(sample, epsilon, "maurer-pontil", (INDEPENDENT, BOUNDED))


def bernstein(
    errors: ArrayLike,
    range: ArrayLike,
    variance: ArrayLike,
    confidence: float = 0.95,
    *,
    simultaneous: bool = False,
) -> MeanBound:
    """Bernstein with a variance known from elsewhere: sqrt(2 V log(2/delta) / M) + 2 R log(2/delta) / (3 M).

    The paper writes log(1/delta), which is the one-sided bound; both sides together need log(2/delta).
    `variance` is an upper bound on the variance of the errors, one number or one for each output; it must not
    be computed from these errors (that is `empirical_bernstein`). Other arguments and errors as in
    `hoeffding`.
    """
    sample = take_sample(errors, range, confidence, simultaneous, least=1)
    known = spread_over(variance, sample.mean.shape, "variance")
    assumptions = (INDEPENDENT, BOUNDED, "the variance of the errors is at most the one stated")
    return _symmetric(sample, _bernstein_epsilon(sample, known), "bernstein", assumptions)


def mpv_bernstein(
    errors: ArrayLike,
    range: ArrayLike,
    mpv: ArrayLike,
    confidence: float = 0.95,
    *,
    alpha: float = 2.0,
    simultaneous: bool = False,
) -> MeanBound:
    """The paper's bound: `bernstein` with alpha times the mean predictive variance in place of the variance.

    **It rests on a hypothesis**: alpha x MPV is at least the variance of the errors. An overconfident
    posterior breaks it and the interval then fails to cover; `measure_alpha` says whether it holds on
    labelled instances, and its verdict belongs beside any figure from here.

    Args:
        errors: `(M,)` or `(M, outputs)`, in [0, R].
        range: R, one number or one for each output.
        mpv: mean predictive variance, one number or one for each output; unlabelled inputs are enough for it.
        confidence: 1 - delta.
        alpha: the multiplier of the hypothesis.
        simultaneous: whether the promise is for all outputs at once.
    """
    if not (math.isfinite(alpha) and alpha > 0):
        raise PromiseError(f"alpha must be a positive number, not {alpha}.")
    sample = take_sample(errors, range, confidence, simultaneous, least=1)
    variance = alpha * spread_over(mpv, sample.mean.shape, "mpv")
    hypothesis = f"the variance of the errors is at most {alpha:g} times the mean predictive variance"
    return _symmetric(
        sample, _bernstein_epsilon(sample, variance), "mpv-bernstein", (INDEPENDENT, BOUNDED, hypothesis)
    )


def _bernstein_epsilon(sample: Sample, variance: Array) -> Array:
    log = math.log(2.0 / sample.delta)
    return np.sqrt(2.0 * variance * log / sample.count) + 2.0 * sample.range * log / (3.0 * sample.count)
