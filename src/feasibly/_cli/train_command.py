"""The command that learns: `train`."""

from __future__ import annotations

import json as text
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from feasibly._cli import signals
from feasibly._cli.console import Meter, emit, say, show
from feasibly._cli.files import FileError, check_target
from feasibly._cli.options import METHODS, AsJson, Data, Force, Seed
from feasibly._words import counted, duration
from feasibly.problem.errors import FeasiblyError
from feasibly.train.registry import DEFAULT_METHOD

if TYPE_CHECKING:
    from feasibly.fitting import Fitting
    from feasibly.proxy import Proxy
    from feasibly.train.task import Moment


def train(
    data: Data,
    out: Annotated[Path, typer.Option("--out", metavar="MODEL", help="The folder to write the proxy to.")],
    method: Annotated[str, typer.Option("--method", metavar="M", help=f"One of {METHODS}.")] = DEFAULT_METHOD,
    budget: Annotated[
        float,
        typer.Option(
            "--budget", metavar="SECONDS", help="Wall-clock time for everything, all trials together."
        ),
    ] = 600.0,
    labels: Annotated[
        int | None,
        typer.Option(
            "--labels", min=1, metavar="N", help="Labels to use, validation included; all unless told."
        ),
    ] = None,
    unlabelled: Annotated[
        int | None,
        typer.Option(
            "--unlabelled",
            min=0,
            metavar="N",
            help="Inputs to draw without solving; four a label unless told.",
        ),
    ] = None,
    trials: Annotated[
        int, typer.Option("--trials", min=1, metavar="N", help="Train this often and keep the best.")
    ] = 1,
    seed: Seed = 0,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="A setting of the method; may be given several times."
        ),
    ] = None,
    force: Force = False,
    json: AsJson = False,
) -> None:
    """Learn a proxy from solved instances, within a budget of wall-clock time.

    The budget counts compilation, validation and every trial. Ctrl-C (or SIGTERM) ends training early: what was
    learnt best until then is saved, which is ridge regression before anything else was; training cannot be
    resumed, only repeated.
    """
    with signals.noted() as pressed:
        _train(
            data, out, method, budget, labels, unlabelled, trials, seed, settings or [], force=force, json=json,
            pressed=pressed,
        )  # fmt: skip


def _train(
    data: Path,
    out: Path,
    method: str,
    budget: float,
    labels: int | None,
    unlabelled: int | None,
    trials: int,
    seed: int,
    settings: list[str],
    *,
    force: bool,
    json: bool,
    pressed: Callable[[], int],
) -> None:
    chosen = parse_settings(settings)
    check_target(out, force=force)
    if out.exists() and not (out / "proxy.json").is_file():
        raise FileError(f"{out} is not a saved proxy and will not be replaced; choose another path")
    _check_request(method, budget)
    begun: list[Fitting] = []
    latest: list[Moment] = []
    with Meter(f"opening {data}") as meter:

        def tell(moment: Moment) -> None:
            if pressed():
                raise KeyboardInterrupt
            latest[:] = [moment]
            meter.tell(*_training_line(moment))

        def go_on() -> None:
            """Training may be long at one thing; the time that is left goes on all the same."""
            if latest and math.isfinite(budget):
                left = begun[0].seconds_left
                meter.tell(*_training_line(replace(latest[0], seconds=budget - left, seconds_left=left)))

        def work() -> Proxy:
            import feasibly as fb
            from feasibly.fitting import Fitting

            rows = fb.Dataset.open(data)
            meter.turn_to(f"training {method}")
            meter.tell(f"at most {duration(budget)}")
            made = Fitting(
                rows.problem, rows, method, budget=budget, seed=seed, labels=labels, unlabelled=unlabelled,
                trials=trials, progress=tell, settings=chosen,
            )  # fmt: skip
            begun.append(made)
            return made.run()

        proxy = _trained(signals.Apart(work), begun, pressed, go_on)
        meter.turn_to(f"writing {out}")
        proxy.save(out, overwrite=force)
    record = proxy.record
    if json:
        emit(
            {
                "path": out,
                "problem": proxy.problem.name,
                "interrupted": bool(pressed()),
                "outlook": proxy.outlook,
                **record.__dict__,
            }
        )
    else:
        free = f" and {record.unlabelled:,} inputs without" if record.unlabelled else ""
        show(
            f"{record.label} for {proxy.problem.name}, from {counted(record.labels, 'label')}{free}, in "
            f"{duration(record.train_seconds)}; saved in {out}."
        )
        spent = sorted(((k, v) for k, v in record.seconds.items() if k != "total"), key=lambda item: -item[1])
        show(
            "  Where the time went: "
            + ", ".join(f"{name} {duration(s)}" for name, s in spent if s >= 5e-4)
            + "."
        )
        if proxy.outlook:
            show(f"  {proxy.outlook}")
    if record.note:
        say(f"note: {record.note}")
    if pressed():
        say(
            f"interrupted: the best proxy until then is saved in {out}; training cannot be resumed, only repeated"
        )
        raise typer.Exit(signals.status())


LATE = 0.5
"""Seconds after the end of the budget at which training that cannot hear is left behind."""

COURTESY = 3.0
"""Seconds that training is given to end by itself after a signal: a step, not a compilation."""


def _check_request(method: str, budget: float) -> None:
    """Refuse what can be refused before anything is opened."""
    from feasibly.train.clock import Clock
    from feasibly.train.registry import find

    find(method)
    Clock(budget)


def _trained(
    job: signals.Apart[Proxy], begun: list[Fitting], pressed: Callable[[], int], go_on: Callable[[], None]
) -> Proxy:
    """The proxy that training ends with; where it cannot end in time, compiling, what there is until then."""
    while not job.wait(0.1):
        go_on()
        if pressed() or (begun and begun[0].seconds_left < -LATE):
            break
    if job.wait(COURTESY if pressed() else 0.0):
        return job.result()
    why = "Training was interrupted" if pressed() else f"The budget of {begun[0].budget:g} s was spent"
    while not (begun and begun[0].has_something):  # opening the labels, fitting ridge
        if pressed() > 1:
            raise KeyboardInterrupt
        if job.wait(0.1):
            return job.result()
    return begun[0].so_far(why)


def _training_line(moment: Moment) -> tuple[str, float, float]:
    """What can be said of a moment of training, the most wanted first, and how much of the budget has gone."""
    left = max(moment.seconds_left, 0.0)
    words = [f"{duration(round(left))} left" if left >= 0.5 else "nearly done"]
    if not moment.step:
        return ", ".join([moment.stage, *words]), moment.seconds, moment.seconds + left
    words += [f"trial {moment.trial + 1}"] if moment.trial else []
    words += [f"round {moment.round} {moment.stage}", f"step {moment.step}", f"loss {moment.loss:.2g}"]
    judged = {name.removeprefix("mean_"): value for name, value in moment.validation.items()}
    words += [f"{short} {judged[name]:.2g}{unit}" for name, short, unit in _SHOWN if name in judged]
    return ", ".join(words), moment.seconds, moment.seconds + left


_SHOWN = (("gap_percent", "gap", " %"), ("max_eq", "max eq", ""))
"""What is told of the validation rows while training runs."""


def parse_settings(pairs: list[str]) -> dict[str, Any]:
    """`key=value` pairs: a value is a JSON number, `true`, `false`, `null` or string; other words are strings."""
    found: dict[str, Any] = {}
    for pair in pairs:
        key, sign, value = pair.partition("=")
        if not sign or not key.isidentifier():
            raise FeasiblyError(f"--set wants key=value, as in --set width=2, and got {pair!r}")
        if key in found:
            raise FeasiblyError(f"--set gives {key} twice")
        if key in _OPTIONS:
            raise FeasiblyError(f"{key} is an option of its own: --{key}")
        try:
            found[key] = text.loads(value, parse_constant=_no_constant)
        except ValueError:
            found[key] = value
        if isinstance(found[key], list | dict):
            raise FeasiblyError(f"--set {key} must be one number, word, true, false or null, not {value!r}")
    return found


_OPTIONS = (
    "method",
    "budget",
    "labels",
    "unlabelled",
    "trials",
    "seed",
    "progress",
    "steps",
    "problem",
    "data",
)


def _no_constant(name: str) -> float:
    raise FeasiblyError(f"a setting must be a finite number, not {name}")
