"""Whether the paper's hypothesis holds: the posterior's variance beside that of the errors."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feasibly import promise
from feasibly.certificate.making.means import (
    DRAWN,
    METRICS,
    beyond_tolerance,
    metric_spread,
    predictive_spread,
)
from feasibly.certificate.making.split import Scored
from feasibly.model.belief import Model
from feasibly.problem.core import Problem
from feasibly.promise import AlphaReport, Spread

Array = NDArray[np.float64]
Places = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Variance:
    """The posterior's spread, on some labelled rows and on unlabelled inputs.

    Attributes:
        rows: the labelled rows, as positions in the data.
        spread: of the outputs on those rows.
        mpv: of the outputs, from unlabelled inputs.
        source: what it was taken from.
        gap: spread of the metrics on those rows (the gap needs labels); `None` unless a metric has a range.
        fresh: the same on the unlabelled inputs.
    """

    rows: Places
    spread: Spread
    mpv: Array
    source: str
    gap: Spread | None = None
    fresh: Spread | None = None

    def _among(self, rows: Places) -> Places:
        """Where its rows stand in `rows`."""
        return np.flatnonzero(np.isin(rows, self.rows))[-len(self.rows) :]

    def alpha(self, scored: Scored, truth: Array, rows: Places, **testing: Any) -> AlphaReport | None:
        """Whether alpha x MPV covers the variance of an answer's errors; `None` where most rows got no answer.

        `scored` and `truth` are of `rows`; `testing` is handed to `measure_alpha`.
        """
        at = self._among(rows)
        answered = scored.answered[at]
        if answered.sum() < 2:
            return None
        y, labels = scored.y[at][answered], truth[at][answered]
        part = Spread(y, self.spread.variance[answered])
        report = promise.measure_alpha(part, beyond_tolerance(labels, y), **testing)
        # The draws' means are over all rows, answered or not, and so is the paper's version: it knows no answers.
        paper = self.spread.paper_alpha
        return replace(report, alpha_paper=paper, paper=None if paper is None else paper * report.mpv)

    def metric_alpha(
        self, made: Container[str], scored: Scored, fresh: Scored, rows: Places, **testing: Any
    ) -> dict[str, AlphaReport]:
        """The same for each metric in `made`: a metric is its own error, and its label is zero."""
        found = {}
        for column, name in enumerate(METRICS):
            needs_labels = name == "gap_percent"
            spread = self.gap if needs_labels else self.fresh
            if spread is None or name not in made:
                continue
            values = scored.gap_percent[self._among(rows)] if needs_labels else getattr(fresh, name)[:DRAWN]
            use = np.isfinite(values)
            if use.sum() >= 2:
                part = Spread(values[use, None], spread.variance[use, column, None])
                found[name] = promise.measure_alpha(part, np.zeros_like(part.mean), **testing)
        return found


def find_variance(
    problem: Problem,
    model: Model,
    x: Array,
    rows: Places,
    inputs: Array,
    draws: int,
    seed: int,
    *,
    metrics: bool,
) -> Variance:
    """Draw from the posterior on the labelled `rows` of `x` and on unlabelled `inputs`; `metrics`: measure, too."""
    spread, source = predictive_spread(model, x[rows], draws, seed)
    mpv = predictive_spread(model, inputs, draws, seed)[0].mpv
    gap = metric_spread(problem, model, x[rows], draws, seed) if metrics else None
    fresh = metric_spread(problem, model, inputs, draws, seed) if metrics else None
    return Variance(rows, spread, mpv, source, gap, fresh)
