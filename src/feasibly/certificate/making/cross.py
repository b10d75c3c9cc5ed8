"""Promises from the training labels themselves: refit without each fold, and let CV+ collect the residuals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from feasibly import promise
from feasibly.certificate.making.split import floor_of
from feasibly.certificate.record import NO_ANSWER, CertificateError, Cross
from feasibly.data.dataset import Dataset
from feasibly.fitting import fit
from feasibly.model.kernel import fit_gp
from feasibly.model.linear import fit_ridge
from feasibly.promise import PromiseError
from feasibly.proxy import Proxy
from feasibly.train.registry import closed_form

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Folds:
    """Training rows of `data`, the fold of each, and the proxies that did not see it."""

    rows: NDArray[np.int64]
    fold: NDArray[np.int64]
    proxies: tuple[Proxy, ...]


def refit(
    proxy: Proxy, data: Dataset, answers: Sequence[str], confidence: float, count: int, seed: int
) -> Folds:
    """Train `count` proxies, each without one fold of the training labels, by the whole procedure.

    The order of the labels is drawn anew for all of them, since the guarantee asks for a procedure that treats
    labels alike whatever their order.
    """
    if proxy.method not in closed_form():
        raise CertificateError(
            f"the variant 'cross' trains {count} more models, which only {', '.join(closed_form())} do in little time, "
            f"not {proxy.method}; use the variant 'split' with labels kept apart"
        )
    trained = np.flatnonzero(data.solved & ~data.unseen(proxy.keys))
    if len(np.unique(data.keys[trained])) < len(np.unique(proxy.keys)):
        raise CertificateError(
            f"only {len(trained)} of the {len(proxy.keys)} rows the proxy was trained on are in the data; the variant "
            "'cross' needs them all"
        )
    _, first = np.unique(data.keys[trained], return_index=True)
    order = np.random.default_rng(seed).permutation(trained[np.sort(first)])
    size = len(order) // count
    if size < 1 or size * (count - 1) < 2:
        raise CertificateError(f"{len(order)} training labels are too few for {count} folds")
    if size * count < promise.labels_needed(confidence):
        needed = promise.labels_needed(confidence)
        raise CertificateError(
            f"confidence {confidence:g} needs {needed} training labels in equal folds, not {size * count}"
        )
    rows, fold = order[: size * count], np.repeat(np.arange(count), size)
    plain = proxy.method in ("ridge", "gp") and set(answers) <= {"mean", "svp"}
    one = _refit_belief if plain else _refit_all
    return Folds(rows, fold, tuple(one(proxy, data.take(rows[fold != k])) for k in range(count)))


def _refit_all(proxy: Proxy, data: Dataset) -> Proxy:
    old = proxy.record
    return fit(
        proxy.problem, data, proxy.method, budget=old.budget_seconds, seed=old.seed, unlabelled=old.unlabelled
    )


def _refit_belief(proxy: Proxy, data: Dataset) -> Proxy:
    """The model alone, for answers that need no conditioning: milliseconds instead of seconds."""
    learn = fit_ridge if proxy.method == "ridge" else fit_gp
    model = learn(data.x, data.y)
    return Proxy(
        proxy.problem,
        model,
        proxy.record,
        keys=data.keys,
        calibration=None,
        box=proxy.box,
        leverage=proxy.leverage,
    )


def cross_promise(
    proxy: Proxy,
    data: Dataset,
    folds: Folds,
    answer: str,
    confidence: float,
    *,
    tolerance: float,
    seed: int,
    draws: int,
) -> Cross:
    """Residuals of every training label, from the proxy that did not see it."""
    n, outputs = len(folds.rows), proxy.problem.n_outputs
    residual, scale, cost = np.empty((n, outputs)), np.empty((n, outputs)), np.empty(n)
    floor = np.stack([floor_of(other) for other in folds.proxies])
    for k, other in enumerate(folds.proxies):
        mine = folds.fold == k
        rows = folds.rows[mine]
        found = other.predict(data.x[rows], answer, tolerance=tolerance, seed=seed, draws=draws)
        answered = np.asarray(np.isfinite(found.y).all(axis=1))
        residual[mine] = np.where(answered[:, None], data.y[rows] - found.y, NO_ANSWER)
        scale[mine] = np.maximum(np.nan_to_num(found.std), floor[k])
        cost[mine] = np.where(answered, data.objective[rows] - found.objective, NO_ANSWER)
    try:
        probe = promise.cv_plus(cost, np.zeros((len(folds.proxies), 1)), folds.fold, confidence)
    except PromiseError as error:
        raise CertificateError(str(error)) from error
    return Cross(residual, scale, cost, folds.fold.astype(np.float64), floor, probe.guarantee)
