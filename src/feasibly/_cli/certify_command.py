"""The command about promises: `certify`."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from feasibly._cli import signals
from feasibly._cli.console import Meter, emit, show
from feasibly._cli.model_commands import check_answer, how_long, open_data, open_proxy
from feasibly._cli.options import AsJson, Data, Model, Seed, Tolerance
from feasibly.problem.errors import FeasiblyError

if TYPE_CHECKING:
    pass


class Variant(StrEnum):
    """Whose labels a certificate rests on."""

    apart = "split"
    shared = "cross"


def certify(
    model: Model,
    data: Data,
    confidence: Annotated[
        float, typer.Option("--confidence", metavar="C", help="Of every promise, between 0 and 1.")
    ] = 0.95,
    answers: Annotated[
        str, typer.Option("--answers", metavar="A,B", help="The ways of answering to certify.")
    ] = "mean,conditioned,auto",
    variant: Annotated[
        Variant,
        typer.Option(
            "--variant",
            help="Use labels the model has not seen, or (cross) none beyond its own: closed-form methods.",
        ),
    ] = Variant.apart,
    simultaneous: Annotated[
        bool, typer.Option("--simultaneous", help="Promises hold for all outputs at once, not for each.")
    ] = False,
    ranges: Annotated[
        list[str] | None,
        typer.Option(
            "--range",
            metavar="NAME=R",
            help="The largest error possible where no bound says it; several times.",
        ),
    ] = None,
    alpha: Annotated[
        float,
        typer.Option("--alpha", metavar="X", help="The paper's hypothesis: variance at most alpha x MPV."),
    ] = 2.0,
    tolerance: Tolerance = 1e-4,
    seed: Seed = 0,
    save: Annotated[
        bool,
        typer.Option("--save/--no-save", help="Keep the certificate with the model, for predict to use."),
    ] = True,
    full: Annotated[
        bool, typer.Option("--full", help="Print every promise, what it rests on and when it is void.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Say what may be promised of a proxy's answers, and keep the promise with the model.

    On average, and for the next instance: cost, violations and every output. Rows that the model was trained
    on are left out. From then on predict adds intervals, and says when an input voids the promise.
    """
    import feasibly as fb
    from feasibly.certificate.sentences import SHELL, in_short, render

    chosen = [name.strip() for name in answers.split(",") if name.strip()]
    for name in chosen:
        check_answer(name)
    known = _parse_ranges(ranges or [])
    with Meter(f"opening {model}") as meter:
        proxy = open_proxy(model)
        rows = open_data(data, proxy.problem)
        meter.turn_to(
            f"certifying {', '.join(chosen)} at {confidence:g}{how_long(proxy, len(rows), *chosen)}"
        )
        made = fb.certify(
            proxy, rows, confidence, answers=chosen, alpha=alpha, ranges=known or None, simultaneous=simultaneous,
            variant=variant.value, tolerance=tolerance, seed=seed,
        )  # fmt: skip
        if save:
            meter.turn_to(f"writing {model}")
            with signals.writing():
                proxy.save(model, overwrite=True)
    lines = render(made.sentences(), SHELL)
    if json:
        emit(made.as_dict() | {"sentences": lines, "saved": save})
        return
    if full:
        show(*lines)
    else:
        show(*(f"  {each.answer}: {each.text}" if each.answer else each.text for each in in_short(made)))
    kept = f"Kept with {model}: predict now gives intervals that hold with this confidence." if save else ""
    more = "" if full else "Every promise, and when it is void: --full."
    show(f"{kept} {more}".strip())


def _parse_ranges(pairs: list[str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        try:
            found[name] = float(value)
        except ValueError:
            found[name] = math.nan
        if not sign or not name or not 0.0 < found[name] < math.inf:
            raise FeasiblyError(
                f"--range wants NAME=R with a positive number, as in --range va=1, and got {pair!r}"
            )
    return found
