"""Do the bounds on a mean hold as often as they say? Simulated, so that nobody need take it on trust."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from feasibly.promise import (
    MeanBound,
    bernstein,
    betting,
    empirical_bernstein,
    hoeffding,
    maurer_pontil,
    mpv_bernstein,
)

Array = NDArray[np.float64]

TABLE = np.dtype(
    [
        ("method", "U32"),
        ("distribution", "U32"),
        ("count", "i8"),
        ("confidence", "f8"),
        ("repetitions", "i8"),
        ("coverage", "f8"),
        ("short", "?"),
        ("width", "f8"),
        ("epsilon", "f8"),
    ]
)
"""Columns of `simulate_coverage`: `short` marks coverage below nominal by more than sampling error; `width`
and `epsilon` are means over repetitions, in units of R."""


@dataclass(frozen=True, eq=False)
class Draw:
    """Simulated errors.

    Attributes:
        errors: in [0, 1], `(count, repetitions)`.
        variance: the true one of a single error.
        mpv: what a posterior stated in each repetition; `None` where none is simulated.
    """

    errors: Array
    variance: float
    mpv: Array | None = None


@dataclass(frozen=True)
class Distribution:
    """Errors with a known mean.

    Attributes:
        name: for the table.
        draw: `draw(generator, count, repetitions)`.
        mean: of one error.
    """

    name: str
    draw: Callable[[np.random.Generator, int, int], Draw]
    mean: float


BoundFunction = Callable[[Draw, float], MeanBound]
"""A bound on `draw.errors` with range 1 at a confidence."""

Sampler = Callable[[np.random.Generator, tuple[int, int]], NDArray[np.floating]]


def simple_distributions() -> tuple[Distribution, ...]:
    """Skewed, nearly constant, heavy on the edge, rarely large, spread over everything; all with R = 1."""

    def plain(name: str, sample: Sampler, mean: float, variance: float) -> Distribution:
        return Distribution(
            name,
            lambda g, count, reps: Draw(np.asarray(sample(g, (count, reps)), np.float64), variance),
            mean,
        )

    return (
        plain("skewed", lambda g, shape: g.beta(1.0, 20.0, shape), 1.0 / 21.0, 20.0 / (21.0**2 * 22.0)),
        plain("nearly constant", lambda g, shape: g.uniform(0.298, 0.302, shape), 0.3, 0.002**2 / 3.0),
        plain("on the edge", lambda g, shape: 1.0 * (g.random(shape) < 0.05), 0.05, 0.05 * 0.95),
        plain("rarely large", lambda g, shape: 1.0 * (g.random(shape) < 0.005), 0.005, 0.005 * 0.995),
        plain("arcsine", lambda g, shape: g.beta(0.5, 0.5, shape), 0.5, 0.125),
    )


def posterior_distribution(name: str, overconfidence: float, *, spread: float = 0.25) -> Distribution:
    """Absolute errors of a posterior mean whose stated variance is `1 / overconfidence` of the true one.

    An instance has a true standard deviation s = `spread` x U(0.2, 1.8); its error is normal, folded and cut
    at 1; the posterior states the variance s^2 / overconfidence. With overconfidence 1 it is exactly
    calibrated and the total variance of the error is 2 MPV (before cutting); in general alpha is
    1 + overconfidence.
    """
    if overconfidence <= 0:
        raise ValueError("overconfidence must be positive.")
    mean, square = _folded_moments(spread)

    def draw(rng: np.random.Generator, count: int, reps: int) -> Draw:
        deviation = spread * rng.uniform(0.2, 1.8, (count, reps))
        errors = np.minimum(np.abs(deviation * rng.standard_normal((count, reps))), 1.0)
        return Draw(errors, square - mean**2, (deviation**2).mean(axis=0) / overconfidence)

    return Distribution(name, draw, mean)


def standard_bounds(*, alpha: float = 2.0) -> dict[str, BoundFunction]:
    """Every mean bound by name: `bernstein` is given the true variance, `mpv-bernstein` the posterior's."""

    def hypothetical(draw: Draw, confidence: float) -> MeanBound:
        if draw.mpv is None:
            raise ValueError("mpv-bernstein needs errors of a posterior: use `posterior_distribution`.")
        return mpv_bernstein(draw.errors, 1.0, draw.mpv, confidence, alpha=alpha)

    return {
        "hoeffding": lambda draw, confidence: hoeffding(draw.errors, 1.0, confidence),
        "empirical-bernstein": lambda draw, confidence: empirical_bernstein(draw.errors, 1.0, confidence),
        "maurer-pontil": lambda draw, confidence: maurer_pontil(draw.errors, 1.0, confidence),
        "betting": lambda draw, confidence: betting(draw.errors, 1.0, confidence),
        "bernstein": lambda draw, confidence: bernstein(draw.errors, 1.0, draw.variance, confidence),
        "mpv-bernstein": hypothetical,
    }


def simulate_coverage(
    bounds: Mapping[str, BoundFunction],
    distributions: Sequence[Distribution],
    counts: Sequence[int] = (50, 200, 1000),
    confidences: Sequence[float] = (0.9, 0.95),
    *,
    repetitions: int = 1000,
    seed: int = 0,
) -> NDArray[np.void]:
    """How often each bound contains the true mean, and how wide it is.

    Args:
        bounds: by name; each is called with a `Draw` whose columns are repetitions.
        distributions: with known means.
        counts: sample sizes M.
        confidences: asked of the bounds.
        repetitions: independent samples for each cell; all methods see the same ones.
        seed: of the samples.

    Returns:
        A structured array (dtype `TABLE`), one row for each cell. `short` is true when so few repetitions
        covered that a bound with the asked confidence would do so less than once in a thousand tries.
    """
    from scipy.stats import binom

    if repetitions < 1:
        raise ValueError("At least one repetition is needed.")
    rows = []
    for index, distribution in enumerate(distributions):
        for count in counts:
            rng = np.random.default_rng([seed, index, count])
            draw = distribution.draw(rng, count, repetitions)
            for confidence in confidences:
                for name, bound in bounds.items():
                    result = bound(draw, confidence)
                    inside = (result.lower <= distribution.mean) & (distribution.mean <= result.upper)
                    covered = int(inside.sum())
                    short = bool(binom.cdf(covered, repetitions, confidence) < 1e-3)
                    wide = (float(result.width.mean()), float(result.epsilon.mean()))
                    share = covered / repetitions
                    rows.append(
                        (name, distribution.name, count, confidence, repetitions, share, short, *wide)
                    )
    return np.array(rows, dtype=TABLE)


def _folded_moments(spread: float, points: int = 400) -> tuple[float, float]:
    """E[min(|s Z|, 1)] and E[min(|s Z|, 1)^2] over s = spread x U(0.2, 1.8), by Gauss-Legendre in s."""
    from scipy.special import ndtr

    nodes, weights = np.polynomial.legendre.leggauss(points)
    s = spread * (1.0 + 0.8 * nodes)
    edge = 1.0 / s
    density = np.exp(-0.5 * edge**2) / np.sqrt(2.0 * np.pi)
    beyond = 2.0 * ndtr(-edge)
    first = 2.0 * s * (1.0 / np.sqrt(2.0 * np.pi) - density) + beyond
    second = s**2 * (1.0 - beyond - 2.0 * edge * density) + beyond
    return float(weights @ first / 2.0), float(weights @ second / 2.0)
