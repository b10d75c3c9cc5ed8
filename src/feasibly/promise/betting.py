"""The betting interval of Waudby-Smith and Ramdas (2023): the default bound on a mean error.

For each candidate mean m two gamblers bet, one that the errors lie above m and one that they lie below. At
the true mean neither can expect to gain, so a capital of 2/delta is reached with probability at most delta/2
each (Ville's inequality): every m at which somebody got that rich is struck out. Bets adapt to the variance
seen so far, which makes the interval narrower than the closed formulas without assuming more.

The capital of the first gambler falls with m and that of the second rises, so the interval's two ends are
found by bisection instead of on a grid; the end returned is the struck-out side of the last bracket, never
the inside.
"""

from __future__ import annotations

import math
from builtins import range as span

import numpy as np
from numpy.typing import ArrayLike

from feasibly.promise._check import Array
from feasibly.promise.mean import BOUNDED, INDEPENDENT, MeanBound, take_sample

_CAP = 0.75
"""Largest share of the capital at stake in one bet; below 1, so that nobody is ruined by one error."""

_HALVINGS = 34
_BLOCK = 16
"""Errors multiplied before a logarithm is taken. Looking at the capital less often loses next to nothing."""

_CHUNK = 4_000_000
_SLACK = 1e-9


def betting(
    errors: ArrayLike,
    range: ArrayLike,
    confidence: float = 0.95,
    *,
    seed: int = 0,
    simultaneous: bool = False,
) -> MeanBound:
    """Hedged-capital confidence interval for the mean of bounded errors.

    Args:
        errors: `(M,)` or `(M, outputs)`, in [0, R].
        range: R, one number or one for each output.
        confidence: 1 - delta.
        seed: the errors are bet on in the order of this seed's permutation, so that the order in which rows
            are stored does not matter. It must be fixed before the errors are seen: trying seeds voids the
            promise.
        simultaneous: whether the promise is for all outputs at once.

    Raises:
        PromiseError: as `hoeffding`.
    """
    sample = take_sample(errors, range, confidence, simultaneous, least=1)
    order = np.random.default_rng(seed).permutation(sample.count)
    top = np.atleast_1d(sample.range)
    unit = np.where(top > 0, top, 1.0)
    scaled = sample.errors.reshape(sample.count, -1)[order] / unit
    lower, upper = np.empty(unit.shape), np.empty(unit.shape)
    step = max(1, _CHUNK // sample.count)
    for start in span(0, len(unit), step):
        part = slice(start, start + step)
        lower[part], upper[part] = _interval(scaled[:, part], sample.delta)
    # An unlucky order can strike out even the sample mean. Widening to include it keeps the promise, and the
    # interval is never empty.
    shape = sample.mean.shape
    low = np.minimum((lower * unit).reshape(shape), sample.mean)
    high = np.minimum(np.maximum((upper * unit).reshape(shape), sample.mean), sample.range)
    return MeanBound(
        lower=low,
        upper=high,
        epsilon=np.maximum(sample.mean - low, high - sample.mean),
        mean=sample.mean,
        confidence=sample.confidence,
        range=sample.range,
        count=sample.count,
        method="betting",
        assumptions=(INDEPENDENT, BOUNDED),
        simultaneous=sample.simultaneous,
    )


def _interval(x: Array, delta: float) -> tuple[Array, Array]:
    """Both ends for each column of `x` in [0, 1], rounded outwards."""
    bets = _plan_bets(x, delta)
    goal = math.log(2.0 / delta) + _SLACK
    # The gambler on "below m" for x is the one on "above 1 - m" for 1 - x: one routine serves both ends.
    return _lower_end(x, bets, goal), 1.0 - _lower_end(1.0 - x, bets, goal)


def _plan_bets(x: Array, delta: float) -> Array:
    """Predictable plug-in bets for a known number of errors: each uses only what came before it."""
    count = len(x)
    turn = np.arange(1, count + 1)[:, None]
    mean = (0.5 + np.cumsum(x, axis=0)) / (turn + 1)
    variance = (0.25 + np.cumsum((x - mean) ** 2, axis=0)) / (turn + 1)
    before = np.vstack([np.full((1, x.shape[1]), 0.25), variance[:-1]])
    return np.sqrt(2.0 * math.log(2.0 / delta) / (count * before))


def _lower_end(x: Array, bets: Array, goal: float) -> Array:
    """The largest bracketed m at which betting on "above m" reaches the goal; 0 where it never does."""
    low, high = np.zeros(x.shape[1]), np.ones(x.shape[1])
    for _ in span(_HALVINGS):
        middle = 0.5 * (low + high)
        rich = _best_capital(x, bets, middle) >= goal
        low, high = np.where(rich, middle, low), np.where(rich, high, middle)
    return low


def _best_capital(x: Array, bets: Array, m: Array) -> Array:
    """Largest log capital ever seen by the gambler on "above m"."""
    count, outputs = x.shape
    gain = np.minimum(bets, _CAP / m)
    gain *= x - m
    gain += 1.0
    blocks = -(-count // _BLOCK)
    padded = np.ones((blocks * _BLOCK, outputs))
    padded[:count] = gain
    product = np.multiply.reduce(padded.reshape(blocks, _BLOCK, outputs), axis=1)
    return np.cumsum(np.log(product), axis=0).max(axis=0)
