"""How sure a posterior is, and how wrong: what the paper's figures on variances and bounds are drawn from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from feasibly import promise
from feasibly.arrays import RunningMoments
from feasibly.certificate.making.means import bound_means
from feasibly.data.dataset import Dataset
from feasibly.promise import AlphaReport, Spread
from feasibly.proxy import Proxy

Array = NDArray[np.float64]

ANGLE_RANGE = float(np.pi)
"""The stated R for voltage angles in rad: answers and truth both lie within a quarter turn of the reference."""

BOUNDS: Mapping[str, str] = {
    "hoeffding": "Hoeffding",
    "empirical-bernstein": "empirical Bernstein",
    "mpv-bernstein": "Bernstein with 2 x MPV",
    "betting": "betting",
}


@dataclass(frozen=True, eq=False)
class Examination:
    """A proxy's posterior on labelled instances that it has not seen."""

    proxy: Proxy
    x: Array
    truth: Array
    spread: Spread
    draws: int
    alpha: AlphaReport
    checkpoints: Sequence[tuple[int, Spread]] = ()
    """The spread after so many draws."""


def examine(
    proxy: Proxy,
    data: Dataset,
    *,
    tests: int = 1000,
    draws: int = 500,
    seed: int = 0,
    checkpoints: Sequence[int] = (),
) -> Examination:
    """Draw from the posterior on unseen labelled rows, one draw in memory at a time."""
    rows = np.flatnonzero(data.solved & data.unseen(proxy.keys))[:tests]
    x, truth = data.x[rows], data.y[rows]
    found, averages, kept = RunningMoments(), [], []
    for answer in proxy.model.draws(x, draws, seed):
        found.add(answer)
        averages.append(answer.mean(axis=0))
        if found.count in checkpoints and found.count > 1:
            kept.append((found.count, Spread(found.mean.copy(), found.variance, np.stack(averages))))
    spread = Spread(found.mean, found.variance, np.stack(averages))
    alpha = promise.measure_alpha(spread, truth, resamples=200)
    return Examination(proxy, x, truth, spread, found.count, alpha, tuple(kept))


def block_variances(found: Examination) -> dict[str, dict[str, float]]:
    """For every block of outputs, averaged over it: 2 x MPV, the paper's total variance, and the whole one."""
    alpha, blocks = found.alpha, found.proxy.problem.blocks
    assert alpha.paper is not None
    return {
        name: {
            "2 x MPV": 2.0 * float(alpha.mpv[part].mean()),
            "paper's V_e": float(alpha.paper[part].mean()),
            "total variance": float(alpha.total[part].mean()),
            "outputs": float(part.stop - part.start),
            "outputs where 2 x MPV is too small": float(alpha.violated[part].sum()),
        }
        for name, part in blocks.items()
    }


def bus_bounds(
    found: Examination, block: str, confidence: float = 0.95
) -> tuple[Array, dict[str, Array], Array]:
    """Mean error of every bus, the half-widths of each bound on it, and the R that was used.

    Voltage magnitudes are clipped to their bounds, whose width is R; angles that are answered to a quarter turn either
    way, with the stated R of `ANGLE_RANGE`. True angles are left as they are, and refused where they prove R wrong.
    """
    problem = found.proxy.problem
    part = problem.blocks[block]
    low, high = problem.lower[part], problem.upper[part]
    if block == "va":
        low, high = np.full(len(low), -ANGLE_RANGE / 2), np.full(len(high), ANGLE_RANGE / 2)
    answered, truth = np.clip(found.spread.mean[:, part], low, high), found.truth[:, part]
    if block != "va":  # labels keep their bounds to the solver's tolerance
        truth = np.clip(truth, low, high)
    error, span = np.abs(answered - truth), high - low
    made = bound_means(error, span, confidence, mpv=found.spread.mpv[part])
    return error.mean(axis=0), {name: made[name].epsilon for name in BOUNDS}, span


def by_tests(found: Examination, block: str, counts: Sequence[int]) -> dict[int, dict[str, float]]:
    """Mean error, MPV and total variance of a block from the first instances alone."""
    part = found.proxy.problem.blocks[block]
    return {
        n: _three(found.truth[:n, part], found.spread.mean[:n, part], found.spread.variance[:n, part])
        for n in counts
        if 2 <= n <= len(found.truth)
    }


def by_draws(found: Examination, block: str) -> dict[int, dict[str, float]]:
    """The same from the first draws alone, at the checkpoints."""
    part = found.proxy.problem.blocks[block]
    return {
        n: _three(found.truth[:, part], spread.mean[:, part], spread.variance[:, part])
        for n, spread in found.checkpoints
    }


def _three(truth: Array, mean: Array, variance: Array) -> dict[str, float]:
    error = truth - mean
    mpv = variance.mean(axis=0)
    return {
        "mean error": float(np.abs(error).mean()),
        "MPV": float(mpv.mean()),
        "total variance": float((mpv + error.var(axis=0)).mean()),
    }
