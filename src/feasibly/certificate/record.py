"""What a proxy promises: a record that travels with it, says itself in words, and is attached to answers.

`feasibly.certify` makes it. It holds arrays and plain values only, so it is saved as JSON and safetensors.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feasibly import promise
from feasibly._codec import record
from feasibly.answer.record import Answer, AnswerOutcome
from feasibly.certificate.sentences import Sentence, find_sentences, render
from feasibly.problem.errors import FeasiblyError
from feasibly.promise import AlphaReport, BatchCheck, MeanBound, Reference, Region, ScoreLimit

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

REGIONS = ("joint", "each")
LEVEL = 0.01
"""Probability of a false alarm when a batch of inputs is compared with those calibrated on."""

SMALL = 8
"""Batches with fewer rows are checked row by row only: they cannot say much about how they were drawn."""

PERMUTATIONS = 399
"""The fewest that can raise an alarm at that level: the check must not cost more than the answers."""
NO_ANSWER = 1e150
"""Stands for the error of an instance that got no answer; larger than any other and still finite."""


class CertificateError(FeasiblyError):
    """A promise that cannot be made, or one that belongs to another model."""


@record("rule")
@dataclass(frozen=True, eq=False)
class Rule:
    """When `auto` trusts the cost of a rung: `relative gap <= limit x difficulty` at the certificate's confidence.

    The difficulty of an instance is the largest violation of the belief's own (clipped) mean. Limits are of
    instances that came to rest, and for those alone; they are fixed before `auto` itself is calibrated, on labels
    that take no part in that. `None` where too few came to rest.
    """

    conditioned: ScoreLimit | None
    polished: ScoreLimit | None
    labels: int

    def trusts(self, rung: str, converged: Mask, difficulty: Array, tolerance: float) -> Mask:
        """Rows that may stay on `rung`: at rest, and with a certified relative gap of at most `tolerance`."""
        limit = self.conditioned if rung == "conditioned" else self.polished
        if limit is None or not len(converged):
            return np.zeros(len(converged), dtype=bool)
        return np.asarray(converged & (limit.upper(difficulty) <= tolerance))


@record("cross")
@dataclass(frozen=True, eq=False)
class Cross:
    """What CV+ needs of each training label, from the model that did not see it.

    `residual` and `scale` are `(labels, outputs)`, `cost` the optimal cost less that of the left-out answer, `floor`
    the smallest scale of each fold's model, `(folds, outputs)`: that of the whole proxy would have seen every label.
    """

    residual: Array
    scale: Array
    cost: Array
    fold: Array
    floor: Array
    guarantee: float

    def interval(self, centre: Array, scale: Array, confidence: float, joint: bool) -> promise.CrossIntervals:
        """Intervals from the fold models' answers `(folds, rows, outputs)`."""
        return promise.cv_plus(
            self.residual, centre, self.fold.astype(np.int64), confidence, residual_scale=self.scale,
            scale=np.maximum(scale, self.floor[:, None, :]), joint=joint,
        )  # fmt: skip

    def gap_limit(self, objective: Array, costs: Array, confidence: float) -> Array:
        """Per cent: how far the cost can be from the CV+ interval of the optimal one, `costs` being `(folds, rows)`."""
        ends = promise.cv_plus(self.cost, costs, self.fold.astype(np.int64), confidence)
        low, high = ends.lower[:, 0], ends.upper[:, 0]
        least = np.where(low * high > 0, np.minimum(np.abs(low), np.abs(high)), 0.0)
        most = np.maximum(np.abs(objective - low), np.abs(objective - high))
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(100.0 * most / least)


@record("answer-promise")
@dataclass(frozen=True, eq=False)
class AnswerPromise:
    """The promises about one way of answering.

    Attributes:
        labels, unlabelled: instances behind it; violations need no labels and come from the unlabelled ones.
        each, joint: where the next instance's outputs lie, one by one and all together (`None` for `cross`).
        gap, max_eq, max_ineq: limits for the next instance; the gap in per cent (`None` for `cross`, whose limit
            is found for each instance when it is answered).
        price: for grids, the limit on how far the next instance's price at any bus is off, currency per MWh; `None`
            where answers or labels have no multipliers, and for `cross`.
        mean: bounds on mean errors: `outputs` (those in `ranged`), `gap_percent`, `max_eq`, `max_ineq`, each by
            the bound's name.
        ranged: outputs with a known range R.
        absent: what has no bound on its mean, and why.
        alpha: whether alpha x MPV covers the variance of the errors.
        metric_alpha: the same for each metric with a bound that rests on it.
        mpv_source: what the MPV was taken from.
        clipped: labelled answers that had to be clipped to their bounds for the mean errors, and by how much at most.
        rungs: how often `auto` ended where.
        widths: half-width of each output's joint interval for the median calibration instance.
    """

    answer: str
    labels: int
    unlabelled: int
    max_eq: ScoreLimit
    max_ineq: ScoreLimit
    each: Region | None = None
    joint: Region | None = None
    gap: ScoreLimit | None = None
    price: ScoreLimit | None = None
    mean: Mapping[str, Mapping[str, MeanBound]] = field(default_factory=dict)
    ranged: tuple[int, ...] = ()
    absent: Mapping[str, str] = field(default_factory=dict)
    alpha: AlphaReport | None = None
    metric_alpha: Mapping[str, AlphaReport] = field(default_factory=dict)
    mpv_source: str = ""
    clipped: tuple[int, float] = (0, 0.0)
    rungs: Mapping[str, int] = field(default_factory=dict)
    widths: Array | None = None
    cross: Cross | None = None


@record("certificate", added=("version",))
@dataclass(frozen=True, eq=False)
class Certificate:
    """What may be promised of one proxy, with everything needed to attach it to answers.

    Attributes:
        problem, method: what it is about.
        model, fingerprint: of the model and the problem it was made for; it fits no others.
        confidence: of every promise, each on its own unless `simultaneous`.
        variant: `split` (labels kept apart) or `cross` (the training labels, refitted without each fold).
        labels: labels used beyond the training labels: 0 for `cross`.
        unlabelled: inputs used without their labels.
        inputs_from: where those came from.
        tolerance, seed, draws: `auto` and `svp` were calibrated with these; with others they are other predictors.
        answers: the promises, by answer.
        reference: what calibration inputs look like.
        rule: when `auto` climbs because of the gap.
        notes: what else a reader should know.
        folds: for `cross`, the proxies that left each fold out.
        version: of the method that answered (`METHOD_VERSION`).
    """

    problem: str
    method: str
    model: str
    confidence: float
    variant: str
    labels: int
    unlabelled: int
    inputs_from: str
    tolerance: float
    seed: int
    draws: int
    simultaneous: bool
    alpha: float
    blocks: Mapping[str, tuple[int, int]]
    answers: Mapping[str, AnswerPromise]
    reference: Reference
    rule: Rule | None = None
    notes: tuple[str, ...] = ()
    folds: tuple[Any, ...] = ()
    fingerprint: str = ""
    version: int = 1

    # ---- at answer time ---------------------------------------------------------------------------------

    def attach(
        self,
        found: Answer,
        x: Array,
        which: str,
        *,
        names: Sequence[str] | None = None,
        tolerance: float,
        seed: int,
        draws: int,
        region: str = "joint",
    ) -> Answer:
        """The answers to `x` with their intervals; rows for which the promise is void have NaN and a warning."""
        if region not in REGIONS:
            raise FeasiblyError(f"there is no region {region!r}; choose one of {', '.join(REGIONS)}")
        began = time.perf_counter()
        made = self.answers.get(which)
        if made is None:
            said = f"The certificate promises nothing of {which!r}, only of {', '.join(self.answers)}."
        else:
            said = self._differs(which, tolerance, seed, draws)
        if made is None or said:
            return replace(found, warnings=(*found.warnings, said))
        sound = np.asarray(np.isfinite(x).all(axis=1) & np.isfinite(found.y).all(axis=1))
        void = np.asarray(~sound)
        outcome, warnings = list(found.outcome), list(found.warnings)
        if sound.any():
            check = self._check(x[sound], names)
            # Rows are named as the caller counts them, those that could not be checked included.
            at = np.flatnonzero(sound)
            check = replace(
                check, outside=tuple(replace(item, row=int(at[item.row])) for item in check.outside)
            )
            void[sound] = check.void
            if check.void.any():
                lost = int(check.void.sum())
                warnings.append(f"No promise for {lost} of {len(x)} answers. {check.describe()}")
            for i in at[check.odd | check.outside_rows]:
                if outcome[i] is AnswerOutcome.OK and found.rung[i] != "solved":
                    outcome[i] = AnswerOutcome.OUTSIDE
        lower, upper = np.full(found.y.shape, np.nan), np.full(found.y.shape, np.nan)
        gap, price = np.full(len(x), np.nan), np.full(len(x), np.nan)
        kept = np.asarray(~void)
        if made.price is not None:
            price[kept] = float(made.price.upper())
        if kept.any():
            lower[kept], upper[kept], gap[kept] = self._ends(
                made, found, x, kept, region, tolerance, seed, draws
            )
        return replace(
            found,
            lower=lower,
            upper=upper,
            gap_limit=gap,
            price_limit=None if made.price is None else price,
            outcome=tuple(outcome),
            warnings=tuple(warnings),
            seconds=found.seconds + time.perf_counter() - began,
        )

    def _differs(self, which: str, tolerance: float, seed: int, draws: int) -> str:
        if which == "auto" and tolerance != self.tolerance:
            return (
                f"No promise for these answers: auto was certified at tolerance {self.tolerance:g}, and at "
                f"{tolerance:g} it answers differently; certify it at that tolerance."
            )
        if which == "svp" and (seed, draws) != (self.seed, self.draws):
            return (
                f"No promise for these answers: svp was certified with seed {self.seed} and {self.draws} draws; "
                "with others it answers differently."
            )
        return ""

    def _check(self, x: Array, names: Sequence[str] | None) -> BatchCheck:
        permutations = PERMUTATIONS if len(x) >= SMALL else 0
        return promise.check_batch(self.reference, x, LEVEL, names=names, permutations=permutations)

    def _ends(
        self, made: AnswerPromise, found: Answer, x: Array, kept: Mask, region: str, tolerance: float, seed: int,
        draws: int,
    ) -> tuple[Array, Array, Array]:  # fmt: skip
        y = found.y[kept]
        if made.cross is not None:
            others = [
                fold.predict(x[kept], made.answer, tolerance=tolerance, seed=seed, draws=draws)
                for fold in self.folds
            ]
            centre = np.stack([np.where(np.isfinite(each.y), each.y, y) for each in others])
            scale = np.stack([np.nan_to_num(each.std) for each in others])
            both = made.cross.interval(centre, scale, self.confidence, region == "joint")
            costs = np.stack([each.objective for each in others])
            costs = np.where(np.isfinite(costs), costs, found.objective[kept])
            gap = made.cross.gap_limit(found.objective[kept], costs, self.confidence)
            # A fold's model that finds no answer leaves the promise true and empty.
            mute = np.any([~np.isfinite(each.y).all(axis=1) for each in others], axis=0)
            both.lower[mute], both.upper[mute], gap[mute] = -np.inf, np.inf, np.inf
            return both.lower, both.upper, gap
        chosen = made.joint if region == "joint" else made.each
        assert chosen is not None
        assert made.gap is not None
        lower, upper = chosen.interval(y, np.nan_to_num(found.std[kept]))
        return lower, upper, np.broadcast_to(made.gap.upper(), (len(y),))

    # ---- in words ---------------------------------------------------------------------------------------

    def describe(self) -> str:
        """The promises in sentences an operator can read, one a line."""
        return "\n".join(render(self.sentences()))

    def sentences(self) -> tuple[Sentence, ...]:
        """The promises as records, for whoever shows them in another form."""
        return tuple(find_sentences(self))

    # ---- as plain data ----------------------------------------------------------------------------------

    def as_dict(self, *, full: bool = False) -> dict[str, Any]:
        """Plain values, ready for JSON; `full` adds the inputs that batches are compared with."""
        hidden = ("folds",) if full else ("folds", "reference")
        return {f.name: promise.to_plain(getattr(self, f.name)) for f in fields(self) if f.name not in hidden}

    def with_folds(self, folds: Sequence[Any]) -> Certificate:
        """The same with other proxies as its folds; they are stored apart from it."""
        return replace(self, folds=tuple(folds))
