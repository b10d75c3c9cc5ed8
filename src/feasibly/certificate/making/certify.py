"""`certify`: what may be promised of a proxy, from instances it has not seen."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from feasibly import promise
from feasibly.answer.ladder import ANSWERS, DRAWS, TOLERANCE
from feasibly.answer.record import Answer
from feasibly.answer.settings import METHOD_VERSION
from feasibly.certificate.making import cross, split
from feasibly.certificate.making.alphas import Variance, find_variance
from feasibly.certificate.making.means import DRAWN, METRICS, Ranges, bound_means, clipped_errors, find_ranges
from feasibly.certificate.record import AnswerPromise, Certificate, CertificateError, Rule
from feasibly.data.dataset import Dataset
from feasibly.data.split import first_of_each
from feasibly.problem.sampling import sample
from feasibly.promise import PromiseError, Spread
from feasibly.proxy import Proxy

Array = NDArray[np.float64]

VARIANTS = ("split", "cross")
CERTIFIED = ("mean", "conditioned", "auto")
UNLABELLED = 1000
FOLDS = 8
LIMITS = 3
"""On the next instance: gap, max eq, max ineq."""

_SEED = 1 << 41
"""Keeps these draws apart from labels and from the unlabelled inputs of training."""


AS_DRAWN = (
    "It holds for outages, costs and limits as they are drawn, taken together: it promises nothing about each single "
    "outage."
)


@dataclass(frozen=True)
class _Asked:
    """What the user asked for."""

    confidence: float
    alpha: float
    simultaneous: bool
    tolerance: float
    draws: int
    seed: int

    @property
    def limit_confidence(self) -> float:
        """Of each of the limits on gap, max eq and max ineq: stricter when they are to hold together."""
        # Rounded down in the last digit: a third rounded up would ask for one label more than the union bound does.
        together = math.floor(1e15 * (1.0 - (1.0 - self.confidence) / LIMITS)) / 1e15
        return together if self.simultaneous else self.confidence

    @property
    def answering(self) -> dict[str, Any]:
        """What `predict` is called with."""
        return {"tolerance": self.tolerance, "seed": self.seed, "draws": self.draws}

    @property
    def testing(self) -> dict[str, Any]:
        """What the hypothesis is tested with."""
        return {"limit": self.alpha, "confidence": self.confidence, "seed": self.seed}


@dataclass(frozen=True, eq=False)
class _Work:
    """The proxy at hand, what is known of its problem, and what was asked."""

    proxy: Proxy
    data: Dataset
    x: Array
    source: str
    known: Ranges
    asked: _Asked

    def answer(self, x: Array, which: str, rule: Rule | None) -> Answer:
        """The proxy's bare answers: no certificate is attached while one is being made."""
        trust = None if rule is None else rule.trusts
        return self.proxy.ladder.answer(x, which, **self.asked.answering, trust=trust)

    def certificate(
        self,
        variant: str,
        labels: int,
        answers: Mapping[str, AnswerPromise],
        rule: Rule | None,
        notes: Sequence[str],
    ) -> Certificate:
        """The record."""
        proxy, asked = self.proxy, self.asked
        outputs = proxy.problem.n_outputs
        low, high = (None, None) if proxy.box is None else widened(*proxy.box)
        return Certificate(
            problem=proxy.problem.name,
            method=proxy.record.label,
            model=proxy.digest(),
            version=METHOD_VERSION,
            fingerprint=proxy.problem.fingerprint,
            confidence=asked.confidence,
            variant=variant,
            labels=labels,
            unlabelled=len(self.x),
            inputs_from=self.source,
            **asked.answering,
            simultaneous=asked.simultaneous,
            alpha=asked.alpha,
            blocks={name: block.indices(outputs)[:2] for name, block in proxy.problem.blocks.items()},
            answers=answers,
            reference=promise.learn_reference(self.x, low, high, seed=asked.seed),
            rule=rule,
            notes=(*notes, *([] if proxy.problem.drawing is None else [AS_DRAWN])),
        )


def widened(low: Array, high: Array) -> tuple[Array, Array]:
    """A box that rounding does not leave."""
    slack = 1e-9 * (high - low) + 1e-12
    return low - slack, high + slack


def certify(
    proxy: Proxy,
    data: Dataset,
    confidence: float = 0.95,
    *,
    answers: Sequence[str] = CERTIFIED,
    alpha: float = 2.0,
    ranges: Mapping[str, float] | None = None,
    simultaneous: bool = False,
    variant: str = "split",
    unlabelled: int = UNLABELLED,
    inputs: ArrayLike | None = None,
    tolerance: float = TOLERANCE,
    draws: int = DRAWS,
    folds: int = FOLDS,
    seed: int = 0,
    attach: bool = True,
) -> Certificate:
    """Find out what may be promised of `proxy` and attach it, so that `predict` gives intervals and `save` keeps them.

    Args:
        proxy: trained; it must not be changed or chosen afterwards by looking at `data`.
        data: rows drawn like those to come. `split` uses its labels that the proxy was not trained on (all of them,
            and says how many); `cross` the very labels it was trained on.
        confidence: of each promise.
        answers: which ways of answering. `auto` is calibrated as one predictor, by running it.
        alpha: the multiplier of the paper's hypothesis, that the variance of an error is at most alpha x MPV.
        ranges: R, the largest error that can occur, for blocks or outputs without bounds (`{"va": 1.0}`) and for
            `gap_percent`, `max_eq` and `max_ineq`. Where none is known there is no bound on the mean.
        simultaneous: bounds on mean errors hold for all outputs at once, and the three limits on the next
            instance's gap and violations hold together (union bounds).
        variant: `split`, or `cross` for CV+ without further labels: closed-form methods only, with the guarantee
            1 - 2 (1 - confidence) or a little less.
        unlabelled: inputs to draw for what needs no labels: violations, the MPV, and what inputs look like.
        inputs: those inputs, if they are not to be drawn from the declared range.
        tolerance, draws, seed: as in `predict`; `auto` climbs where its certified relative gap exceeds `tolerance`.
        folds: models that `cross` trains.
        attach: whether to set `proxy.certificate`.

    Raises:
        CertificateError: too few labels (it says how many are needed), no such answer, a range that errors exceed, or
            data of another problem.

    Examples:
        With the proxy and the labels of `fit`'s example, 60 of which it has not seen:

        >>> made = fb.certify(proxy, data, 0.9, answers=["mean"], unlabelled=200)
        >>> made.labels, made.unlabelled
        (60, 200)
        >>> answer = proxy.predict(data.x[:2], "mean")
        >>> bool((answer.lower <= answer.y).all())
        True
    """
    asked = _Asked(float(confidence), float(alpha), simultaneous, float(tolerance), int(draws), int(seed))
    _check(proxy, data, answers, variant)
    known = find_ranges(proxy.problem, ranges)
    try:
        promise.labels_needed(confidence)  # a confidence outside (0, 1) is refused before any work
        x, source = _inputs(proxy, data, int(unlabelled), asked.seed, inputs)
        work = _Work(proxy, data, x, source, known, asked)
        made = _split(work, answers) if variant == "split" else _cross(work, answers, int(folds))
    except PromiseError as error:
        raise CertificateError(str(error)) from error
    if attach:
        proxy.certificate = made
    return made


def _check(proxy: Proxy, data: Dataset, answers: Sequence[str], variant: str) -> None:
    if data.problem.fingerprint != proxy.problem.fingerprint:
        raise CertificateError(f"the data belong to another problem ({data.problem.name}) than the proxy")
    if variant not in VARIANTS:
        raise CertificateError(f"there is no variant {variant!r}; choose one of {', '.join(VARIANTS)}")
    if isinstance(answers, str) or not answers:
        raise CertificateError(
            "answers must be a list of at least one answer, such as ('conditioned', 'auto')"
        )
    for answer in answers:
        if answer not in ANSWERS:
            raise CertificateError(f"there is no answer {answer!r}; choose among {', '.join(ANSWERS)}")


# ---- inputs ---------------------------------------------------------------------------------------------


def _inputs(proxy: Proxy, data: Dataset, count: int, seed: int, given: ArrayLike | None) -> tuple[Array, str]:
    """Unlabelled inputs drawn like the data, and how that is known."""
    problem, made = proxy.problem, data.provenance
    if given is not None:
        x, _ = problem.check_rows(given)
        return x, "given by the caller"
    drawn = sample(problem, count, seed=_SEED + seed, **made.drawing(problem))
    if made.design in ("uniform", "correlated"):
        return drawn, "drawn anew, just as the rows of the data were"
    own = data.x[data.unseen(proxy.keys) & np.isfinite(data.x).all(axis=1)]
    own = own if len(own) >= 8 else data.x[np.isfinite(data.x).all(axis=1)]
    check = promise.check_batch(promise.learn_reference(drawn, seed=seed), own, 0.01, seed=seed)
    if not check.alarm:
        return (
            drawn,
            f"drawn anew from the declared range, as the rows of the data seem to be (p = {check.batch_p:.2g})",
        )
    return own, (
        f"the data's own {len(own)} inputs, since they are not drawn from the declared range (p = {check.batch_p:.2g})"
    )


# ---- labels kept apart ----------------------------------------------------------------------------------


def _split(work: _Work, answers: Sequence[str]) -> Certificate:
    proxy, data, asked = work.proxy, work.data, work.asked
    usable = np.flatnonzero(data.solved & data.unseen(proxy.keys) & first_of_each(data.keys))
    needed = promise.labels_needed(asked.limit_confidence)
    if not len(usable):
        raise CertificateError(
            "every labelled row of the data was used in training, and a promise needs labels kept apart: label at "
            f"least {needed} more rows, or use the variant 'cross'"
        )
    if len(usable) < needed:
        parts = LIMITS if asked.simultaneous else 1
        raise promise.TooFewLabelsError(len(usable), needed, asked.confidence, parts=parts)
    usable = np.random.default_rng(asked.seed).permutation(usable)
    # Some labels are set apart for what must be fixed before calibration: the shape of joint regions, auto's rule.
    aside = max(needed, len(usable) // 4)
    aside = aside if len(usable) - aside >= needed else 0
    kept, rule, notes = usable[aside:], None, []
    if aside:
        notes.append(
            f"{aside} of the labels fixed the shape of the joint regions and calibrated nothing else."
        )
    if "auto" in answers and aside:
        rows = usable[:aside]
        rule = split.find_rule(proxy, data.x[rows], data.objective[rows], asked.confidence)
        notes.append(
            f"auto climbs where a rung's certified relative gap exceeds {asked.tolerance:g}, too; the same {aside} "
            "labels fixed that rule and did not calibrate auto."
        )
    elif "auto" in answers:
        notes.append(
            f"auto climbs on violations alone: {len(usable)} labels are too few to certify the gap of each rung as "
            f"well ({2 * needed} are enough)."
        )
    # The same labels for the variance of every answer: those that auto is calibrated on, too.
    variance = find_variance(
        proxy.problem, proxy.model, data.x, kept[-DRAWN:], work.x[:DRAWN], asked.draws, asked.seed,
        metrics=bool(work.known.metrics),
    )  # fmt: skip
    made = {answer: _promise(work, answer, usable, aside, rule, variance) for answer in answers}
    return work.certificate("split", len(usable), made, rule, notes)


def _promise(
    work: _Work, answer: str, usable: NDArray[np.int64], aside: int, rule: Rule | None, variance: Variance
) -> AnswerPromise:
    proxy, known, asked, data = work.proxy, work.known, work.asked, work.data
    floor = split.floor_of(proxy)
    answers = work.answer(data.x[usable], answer, rule)
    everything, prices = (
        split.score(answers, data.objective[usable]),
        split.price_errors(answers, data, usable),
    )
    before, after = everything.take(np.arange(aside)), everything.take(np.arange(aside, len(usable)))
    shape = split.find_shape(before, data.y[usable[:aside]], floor, asked.confidence)
    each, joint = split.next_outputs(after, data.y[usable[aside:]], floor, asked.confidence, shape)
    scored, rows = after, usable[aside:]
    if answer != "auto":  # nothing else depends on the labels set apart
        scored, rows = everything, usable
        each, _ = split.next_outputs(scored, data.y[rows], floor, asked.confidence)
    truth = data.y[rows]
    fresh = split.score(work.answer(work.x, answer, rule))
    eq, ineq = split.next_violations(fresh, asked.limit_confidence)
    errors, clipped = clipped_errors(proxy.problem, scored.y, truth, known)
    metrics = {"gap_percent": scored.gap_percent, "max_eq": fresh.max_eq, "max_ineq": fresh.max_ineq}
    mean, absent = _metric_means(metrics, known, asked, variance.fresh)
    if len(known.known):
        mean["outputs"] = bound_means(
            errors, known.outputs[known.known], asked.confidence, simultaneous=asked.simultaneous,
            seed=asked.seed, mpv=variance.mpv[known.known], alpha=asked.alpha,
        )  # fmt: skip
    return AnswerPromise(
        answer=answer,
        labels=len(rows),
        unlabelled=int(fresh.answered.sum()),
        max_eq=eq,
        max_ineq=ineq,
        each=each,
        joint=joint,
        gap=split.next_gap(scored, asked.limit_confidence),
        price=None if prices is None else promise.calibrate_scores(prices[-len(rows) :], asked.confidence),
        mean=mean,
        ranged=tuple(known.known.tolist()),
        absent=absent,
        alpha=variance.alpha(scored, truth, rows, **asked.testing),
        metric_alpha=variance.metric_alpha(mean, scored, fresh, rows, **asked.testing),
        mpv_source=variance.source,
        clipped=clipped,
        rungs=fresh.rungs if answer == "auto" else {},
        widths=np.median(joint.half_width(np.nan_to_num(scored.std)), axis=0),
    )


def _metric_means(
    metrics: Mapping[str, Array], known: Ranges, asked: _Asked, spread: Spread | None = None
) -> tuple[dict[str, dict[str, promise.MeanBound]], dict[str, str]]:
    """Bounds on the metrics with a stated range, and what has none and why.

    One range is stated for all answers; where an answer exceeds it, that answer has no bound.
    """
    made, absent = {}, dict(known.absent)
    for column, name in enumerate(METRICS):
        if name in known.metrics and name in metrics:
            size = known.metrics[name]
            values = np.where(np.isfinite(metrics[name]), metrics[name], size)
            try:
                mpv = None if spread is None else spread.mpv[column]
                made[name] = bound_means(
                    values, size, asked.confidence, seed=asked.seed, mpv=mpv, alpha=asked.alpha
                )
            except CertificateError as error:
                absent[name] = str(error).rstrip(".")
    return made, absent


# ---- no further labels ----------------------------------------------------------------------------------


def _cross(work: _Work, answers: Sequence[str], count: int) -> Certificate:
    proxy, asked = work.proxy, work.asked
    folds = cross.refit(proxy, work.data, answers, asked.confidence, count, asked.seed)
    why = "a bound on a mean error needs labels that were kept apart from training; use the variant 'split'"
    made = {}
    for answer in answers:
        fresh = split.score(work.answer(work.x, answer, None))
        eq, ineq = split.next_violations(fresh, asked.limit_confidence)
        mean, absent = _metric_means({"max_eq": fresh.max_eq, "max_ineq": fresh.max_ineq}, work.known, asked)
        made[answer] = AnswerPromise(
            answer=answer,
            labels=len(folds.rows),
            unlabelled=int(fresh.answered.sum()),
            max_eq=eq,
            max_ineq=ineq,
            mean=mean,
            absent={**absent, "outputs": why, "gap_percent": why},
            rungs=fresh.rungs if answer == "auto" else {},
            cross=cross.cross_promise(proxy, work.data, folds, answer, asked.confidence, **asked.answering),
        )
    dropped = len(proxy.keys) - len(folds.rows)
    notes = [f"{dropped} training labels were left out of the folds to make them equal."] if dropped else []
    return replace(work.certificate("cross", 0, made, None, notes), folds=folds.proxies)
