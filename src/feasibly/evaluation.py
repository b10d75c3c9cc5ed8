"""Answers measured: how good they are on labelled rows that nothing was learnt from, and what they took."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from feasibly.answer.ladder import DRAWS, TOLERANCE
from feasibly.answer.record import Answer
from feasibly.data.dataset import Dataset
from feasibly.measure.metrics import Metrics, Rows, measure_rows, summarise
from feasibly.problem.core import Problem
from feasibly.problem.errors import FeasiblyError
from feasibly.proxy import Proxy

LONG = 120.0
"""Seconds: answers that took longer are not asked for again to have their time without compiling."""


@dataclass(frozen=True, eq=False)
class Evaluation:
    """How well a proxy answers rows it has not seen."""

    proxy: Proxy
    answer: Answer
    """Its answers to those rows."""
    rows: Rows
    """What was measured of each."""
    metrics: Metrics
    """The same over all rows."""
    which: str
    """The answer that was asked for, one of `ANSWERS`."""
    predict_seconds_per_instance: float
    """Wall clock, without compiling."""

    def as_dict(self) -> dict[str, Any]:
        """One flat object, as `--json` prints it."""
        record = self.proxy.record
        return {
            **record.named,
            "answer": self.which,
            "labels": record.labels,
            "unlabelled": record.unlabelled,
            "trials": record.trials,
            "budget_seconds": record.budget_seconds,
            "train_seconds": record.train_seconds,
            "predict_seconds_per_instance": self.predict_seconds_per_instance,
            "seed": record.seed,
            **self.metrics.as_dict(),
            "outcomes": self.answer.outcomes(),
        }


def evaluate(
    problem: Problem, data: Dataset, y: ArrayLike | Answer, *, proxy: Proxy | None = None
) -> Metrics:
    """The metrics of the answers `y` to the rows of `data`, or to its labels if `y` has as many rows as those.

    Rows that are not labels have no reference and are left out. So are, with `proxy`, the labels it was trained on;
    answers alone do not say who made them, so without it every label counts. `evaluate_proxy` answers and measures in
    one go.

    Examples:
        Of the 100 labels of `fit`'s example, 40 were learnt from:

        >>> y = proxy.predict(data.x, "mean").y
        >>> fb.evaluate(problem, data, y).count, fb.evaluate(problem, data, y, proxy=proxy).count
        (100, 60)
    """
    answers = np.asarray(y.y if isinstance(y, Answer) else y, dtype=np.float64)
    counted = data.solved if proxy is None else data.solved & data.unseen(proxy.keys)
    if not counted.any():
        raise FeasiblyError(
            "no label is left to measure answers with; label rows that were not used in training"
        )
    if len(answers) == len(data):
        answers = answers[counted]
    elif len(answers) == int(data.solved.sum()):
        answers = answers[counted[data.solved]]
    else:
        raise FeasiblyError(f"{len(answers)} answers do not match {len(data)} rows or {data.n_labels} labels")
    return summarise(measure_rows(problem, data.x[counted], answers, data.objective[counted]))


def evaluate_proxy(
    proxy: Proxy,
    data: Dataset,
    answer: str = "conditioned",
    *,
    limit: int | None = None,
    tolerance: float = TOLERANCE,
    repeat: bool = True,
    seed: int = 0,
    draws: int = DRAWS,
) -> Evaluation:
    """Answer the labelled rows of `data` that the proxy was not trained on, and measure.

    The time per instance is that of a second pass (`repeat`), so that compilation, paid once, is not in it; unless
    the first took minutes, of which compiling is a small part, or the answer is `solved`, whose rows are solved once.

    Examples:
        With the proxy and the labels of `fit`'s example:

        >>> measured = fb.evaluate_proxy(proxy, data, "mean")
        >>> measured.metrics.count, measured.as_dict()["method"]
        (60, 'ridge')
    """
    if data.problem.fingerprint != proxy.problem.fingerprint:
        raise FeasiblyError(f"the data belong to another problem ({data.problem.name}) than the proxy")
    chosen = np.flatnonzero(data.solved & data.unseen(proxy.keys))[:limit]
    if not len(chosen):
        raise FeasiblyError("every labelled row was used in training; label more rows to evaluate on")
    x = data.x[chosen]
    found = proxy.predict(x, answer, tolerance=tolerance, seed=seed, draws=draws)
    if repeat and answer != "solved" and found.seconds < LONG:
        proxy.ladder.forget()  # what it took had compiling in it
        found = proxy.predict(x, answer, tolerance=tolerance, seed=seed, draws=draws)
    rows = measure_rows(proxy.problem, x, found.y, data.objective[chosen])
    return Evaluation(proxy, found, rows, summarise(rows), answer, found.seconds / len(chosen))
