"""A certificate in sentences that can be read out in a control room.

A sentence is a record: it says which answer it speaks of and what kind of statement it is, and whoever shows it (the
command line, a report, a page) decides how. Advice on what to do about it is named, not written out, because the
same thing is an argument in Python and an option in a shell.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from feasibly._words import counted, percent

if TYPE_CHECKING:
    from feasibly.certificate.record import AnswerPromise, Certificate

NO_RANGE = "no range R is known for it, and the largest error of a sample is none"
"""Why a mean has no bound, where stating a range would help."""

PYTHON: Mapping[str, str] = {
    "range": "state one: ranges={name: R}",
    "prove": "ask for it: predict(x, prove=True)",
}
"""What to do, for a reader who calls `certify`."""

SHELL: Mapping[str, str] = {"range": "state one: --range NAME=R", "prove": "ask for it: predict --prove"}
"""The same for a reader of the command line."""

_MEAN_OF = {
    "gap_percent": ("gap", " %"),
    "max_eq": ("largest equality violation", ""),
    "max_ineq": ("largest limit violation", ""),
}


@dataclass(frozen=True)
class Sentence:
    """One statement of a certificate.

    Attributes:
        kind: `origin` (what it was made from), `note`, `next` (the next instance), `mean` (mean errors),
            `hypothesis` (what the paper's bound rests on), `absent` (what is not promised), `void` (when it ends),
            `proven` (what is not statistical).
        text: the statement.
        answer: the way of answering it speaks of; empty where it speaks of all of them.
        remedy: a name in `PYTHON` and `SHELL` where something can be done about it.
    """

    kind: str
    text: str
    answer: str = ""
    remedy: str = ""

    def say(self, remedies: Mapping[str, str] = PYTHON) -> str:
        """The statement with its advice, ending in a full stop."""
        return f"{self.text.removesuffix('.')}; {remedies[self.remedy]}." if self.remedy else self.text


def render(sentences: Iterable[Sentence], remedies: Mapping[str, str] = PYTHON) -> list[str]:
    """Lines of plain text: a paragraph for what concerns all answers, a list for each answer."""
    lines: list[str] = []
    before = ""
    for sentence in sentences:
        if sentence.answer != before:
            lines += ["", f"Answers by {sentence.answer!r}:"] if sentence.answer else [""]
            before = sentence.answer
        lines.append(f"- {sentence.say(remedies)}" if sentence.answer else sentence.say(remedies))
    return lines


def find_sentences(c: Certificate) -> Iterator[Sentence]:
    """Everything a certificate says, in the order in which it is told."""
    spent = (
        f"{c.labels} labels that the proxy was not trained on"
        if c.variant == "split"
        else "no label beyond those the proxy was trained on (CV+, models refitted without each fold)"
    )
    yield Sentence(
        "origin",
        f"Certificate of the {c.method} proxy for {c.problem}, confidence {percent(c.confidence)}.",
    )
    yield Sentence("origin", f"It used {spent}, and {c.unlabelled} unlabelled inputs ({c.inputs_from}).")
    if c.simultaneous:
        yield Sentence(
            "origin",
            "Bounds on mean errors hold for all outputs at once; limits on gap and violations hold together.",
        )
    yield from (Sentence("note", note) for note in c.notes)
    for made in c.answers.values():
        yield from (Sentence("next", text, made.answer) for text in _next(c, made))
        yield from (Sentence("mean", text, made.answer) for text in _means(c, made))
        for why in dict.fromkeys(made.absent.values()):
            names = ", ".join(name for name, reason in made.absent.items() if reason == why)
            remedy = "range" if why == NO_RANGE else ""
            yield Sentence("absent", f"No bound on the mean of {names}: {why}.", made.answer, remedy)
        yield from (Sentence("hypothesis", text, made.answer) for text in _hypothesis(made))
    yield Sentence(
        "void",
        "All of this holds for instances drawn like these. It is void when an input leaves the declared range or a "
        "batch of inputs looks different (predict says so and gives no interval), when the system itself changes (a "
        "line out of service cannot be seen in the inputs), and when one answer is picked among several afterwards.",
    )
    yield Sentence(
        "proven",
        "All of this is statistical. For a grid or a convex problem a limit on the gap of a single instance can be "
        "proven, whatever was learnt.",
        remedy="prove",
    )


def in_short(c: Certificate) -> Iterator[Sentence]:
    """One sentence about the whole, and one for each way of answering: what holds for the next instance."""
    whose = (
        f"{counted(c.labels, 'label')} that the model has not seen"
        if c.variant == "split"
        else "its own labels"
    )
    yield Sentence(
        "origin",
        f"{c.method} for {c.problem}: promises for the next instance drawn like those learnt from, each with "
        f"{percent(c.confidence)} confidence, from {whose}.",
    )
    for name, each in c.answers.items():
        gap, equal, unequal = (
            math.inf if limit is None else float(np.max(limit.upper()))
            for limit in (each.gap, each.max_eq, each.max_ineq)
        )
        cost = f"its cost is within {gap:.2g} % of the optimum" if gap < math.inf else "nothing of its cost"
        limits = (
            f"equalities hold to {equal:.1g} and limits to {unequal:.1g}"
            if max(equal, unequal) < math.inf
            else "nothing of its constraints"
        )
        yield Sentence("next", f"{cost}; {limits}.", name)


def _next(c: Certificate, made: AnswerPromise) -> Iterator[str]:
    sure = percent(c.confidence)
    limit = percent(made.max_eq.confidence)
    if made.gap is not None:
        size = float(made.gap.limit)
        yield (
            f"With probability {percent(made.gap.confidence)}, the cost of the next answer is within {size:.2g} % of "
            f"the optimum ({made.labels} labels)."
            if np.isfinite(size)
            else f"No limit on the gap: too many of {made.labels} labelled instances got no answer."
        )
    if made.price is not None and np.isfinite(made.price.limit):
        yield (
            f"With probability {percent(made.price.confidence)}, the price at every bus of the next instance is "
            f"within {float(made.price.limit):.2g} per MWh of the optimum's ({made.price.count} labels)."
        )
    yield (
        f"With probability {limit} each, the next answer misses no equality by more than "
        f"{float(made.max_eq.limit):.2g} and exceeds no limit by more than {float(made.max_ineq.limit):.2g} "
        f"({made.unlabelled} unlabelled inputs; violations need no labels)."
    )
    if made.widths is not None:
        yield (
            f"With probability {sure}, all {made.widths.size} outputs of the next instance's optimum lie together near "
            f"the answer, within {_by_block(c, made.widths)} (the widest of each kind, for a typical instance; predict "
            f"gives the intervals; {made.joint.count if made.joint else made.labels} labels)."
        )
    if made.cross is not None:
        yield (
            f"With probability at least {percent(made.cross.guarantee)} each (usually near {sure}), the outputs of "
            "the next instance's optimum lie in the intervals that predict gives, and the gap is at most the limit it "
            f"gives ({made.labels} training labels, none spent)."
        )
    if made.rungs:
        total = sum(made.rungs.values())
        shares = ", ".join(f"{percent(n / total)} {rung}" for rung, n in sorted(made.rungs.items()))
        yield f"Where it ended on {total} unlabelled inputs: {shares}."


def _means(c: Certificate, made: AnswerPromise) -> Iterator[str]:
    bounds = made.mean.get("outputs")
    if bounds is not None:
        best = bounds["betting"]
        ranged = np.array(made.ranged, dtype=np.int64)
        for name, (start, stop) in c.blocks.items():
            inside = (ranged >= start) & (ranged < stop)
            if not inside.any():
                continue
            if float(best.range[inside].max()) == 0.0:
                continue
            worst = {method: float(bound.upper[inside].max()) for method, bound in bounds.items()}
            others = ", ".join(
                f"{method} {value:.2g}" for method, value in worst.items() if method != best.method
            )
            yield (
                f"With confidence {percent(c.confidence)}, the mean error of {_each(c)} {name} is at most "
                f"{worst[best.method]:.2g} ({best.method}, {best.count} labels, R up to "
                f"{float(best.range[inside].max()):.3g}; also {others})."
            )
        moved, most = made.clipped
        if moved:
            yield (
                f"Mean errors are of answers clipped to their bounds; that moved {moved} of {best.count} answers, by "
                f"{most:.2g} at most."
            )
    for name, (what, unit) in _MEAN_OF.items():
        if name in made.mean:
            bound = made.mean[name]["betting"]
            others = ", ".join(
                f"{method} {float(other.upper):.2g}"
                for method, other in made.mean[name].items()
                if method != bound.method
            )
            yield (
                f"With confidence {percent(c.confidence)}, the mean {what} is at most {float(bound.upper):.2g}{unit} "
                f"({bound.method}, {bound.count} instances, R = {float(bound.range):.3g} as stated; also {others})."
            )


def _hypothesis(made: AnswerPromise) -> Iterator[str]:
    """What the paper's own bounds rest on, and whether it holds."""
    for name, report in made.metric_alpha.items():
        yield f"For the {_MEAN_OF[name][0]}, mpv-bernstein rests on a hypothesis. {report.describe()}"
    if made.alpha is not None:
        yield f"The paper's bound (mpv-bernstein) rests on a hypothesis. {made.alpha.describe()}"
        if made.alpha.alpha_paper is not None:
            yield (
                "By the paper's own formula alpha lies between 1 and 2 for any posterior and any labels (here it is "
                f"{float(made.alpha.alpha_paper.max()):.3g} at most), so that says nothing about the errors. MPV from "
                f"{made.mpv_source}."
            )
        else:
            yield f"MPV from {made.mpv_source}."


def _by_block(c: Certificate, widths: NDArray[np.float64]) -> str:
    parts = [
        f"{float(widths[start:stop].max()):.2g} for {name}"
        for name, (start, stop) in c.blocks.items()
        if stop > start
    ]
    return ", ".join(parts)


def _each(c: Certificate) -> str:
    return "every" if c.simultaneous else "each"
