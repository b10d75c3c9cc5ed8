"""Commands about proxies: `train`, `predict`, `evaluate`."""

from __future__ import annotations

import json as text
import math
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from feasibly._cli import signals
from feasibly._cli.console import Meter, counted, emit, in_words, noticing_interrupt, say, show
from feasibly._cli.files import FileError, check_target
from feasibly._cli.options import ANSWERS, METHODS, AsJson, Data, Force, Model, Region, Seed, Tolerance
from feasibly._cli.options import Answer as HowToAnswer
from feasibly.problem.errors import FeasiblyError

if TYPE_CHECKING:
    from feasibly.answer.record import Answer
    from feasibly.data.dataset import Dataset
    from feasibly.problem.core import Problem
    from feasibly.proxy import Proxy
    from feasibly.train.task import Moment


def train(
    data: Data,
    out: Annotated[Path, typer.Option("--out", metavar="MODEL", help="The folder to write the proxy to.")],
    method: Annotated[str, typer.Option("--method", metavar="M", help=f"One of {METHODS}.")] = "response",
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

    The budget counts compilation, validation and every trial. Ctrl-C ends training early: what was learnt
    best until then is saved.
    """
    import feasibly as fb

    chosen = parse_settings(settings or [])
    check_target(out, force=force)
    if out.exists() and not (out / "proxy.json").is_file():
        raise FileError(f"{out} is not a saved proxy and will not be replaced; choose another path")
    with noticing_interrupt() as pressed, Meter(f"opening {data}") as meter:
        rows = fb.Dataset.open(data)
        meter.turn_to(f"training {method}")
        meter.tell(f"at most {in_words(budget)}")
        after = threading.Timer(budget, meter.turn_to, ["finding the constants that answers need"])
        after.daemon = True
        after.start()
        try:
            proxy = fb.fit(
                rows.problem, rows, method, budget=budget, seed=seed, labels=labels, unlabelled=unlabelled,
                trials=trials, progress=lambda moment: meter.tell(*_training_line(moment)), **chosen,
            )  # fmt: skip
        finally:
            after.cancel()
        meter.turn_to(f"writing {out}")
        proxy.save(out, overwrite=force)
    record = proxy.record
    if json:
        emit({"path": out, "problem": proxy.problem.name, "interrupted": pressed.is_set(), **record.__dict__})
    else:
        free = f" and {record.unlabelled:,} inputs without" if record.unlabelled else ""
        show(
            f"{record.method} for {proxy.problem.name}, from {counted(record.labels, 'label')}{free}, in "
            f"{in_words(record.train_seconds)}; saved in {out}."
        )
        spent = sorted(((k, v) for k, v in record.seconds.items() if k != "total"), key=lambda item: -item[1])
        show(
            "  Where the time went: "
            + ", ".join(f"{name} {in_words(s)}" for name, s in spent if s >= 5e-4)
            + "."
        )
    if record.note:
        say(f"note: {record.note}")
    if pressed.is_set():
        say(f"interrupted: the best proxy until then is saved in {out}")
        raise typer.Exit(signals.status())


def _training_line(moment: Moment) -> tuple[str, float, float]:
    """What can be said of a moment of training, the most wanted first, and how much of the budget has gone."""
    left = max(moment.seconds_left, 0.0)
    words = [f"{in_words(round(left))} left" if left >= 0.5 else "nearly done"]
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


def predict(
    model: Model,
    inputs: Annotated[
        Path, typer.Argument(metavar="INPUT", help="A .csv, .parquet or .npz file with a column an input.")
    ],
    out: Annotated[
        Path, typer.Option("--out", metavar="OUTPUT", help="A .csv, .parquet or .npz file to write.")
    ],
    answer: HowToAnswer = "conditioned",
    tolerance: Tolerance = 1e-4,
    seed: Seed = 0,
    region: Annotated[
        Region,
        typer.Option("--region", help="Intervals of a certified model: for all outputs together, or each."),
    ] = Region.joint,
    std: Annotated[
        bool, typer.Option("--std", help="Also write the standard deviation of every output.")
    ] = False,
    prices: Annotated[
        bool,
        typer.Option("--prices", help="Also write a grid's prices by bus, and flows and loadings by branch."),
    ] = False,
    duals: Annotated[
        bool, typer.Option("--duals", help="Also write the multiplier of every constraint.")
    ] = False,
    prove: Annotated[
        bool,
        typer.Option("--prove", help="Also write a proven lower bound on the cost, and the gap it leaves."),
    ] = False,
    ignore_extra: Annotated[
        bool, typer.Option("--ignore-extra", help="Pass over columns that are no inputs of the model.")
    ] = False,
    force: Force = False,
    json: AsJson = False,
) -> None:
    """Answer every row of a file and write the answers to another.

    Columns are matched by name (pd_12 and qd_12 are the load at bus 12, per unit); a row of the output has the
    model's outputs by name, the objective, the largest violation of any equality and any inequality, the outcome,
    and the rung of the ladder that answered. A certified model adds the interval of every output.
    """
    from feasibly._cli.columns import check_ending, match_inputs, read_table, write_table
    from feasibly.answer.forms import columns

    check_ending(inputs)
    check_ending(out)
    check_target(out, force=force)
    check_answer(answer)
    _check_tolerance(tolerance)
    with Meter(f"reading {inputs}") as meter:
        table = read_table(inputs)
        meter.turn_to(f"opening {model}")
        proxy = open_proxy(model)
        x = match_inputs(proxy.problem, table, ignore_extra=ignore_extra)
        meter.turn_to(f"answering {counted(len(x), 'instance')} ({answer})")
        found = proxy.predict(x, answer, tolerance=tolerance, seed=seed, region=region.value, prove=prove)
        meter.turn_to(f"writing {out}")
        write_table(out, columns(found, std=std, duals=duals, grid=prices))
    summary = {
        "model": model, "input": inputs, "output": out, "problem": proxy.problem.name, "method": proxy.method,
        "answer": answer, "rows": len(found), "outcomes": found.outcomes(), "rungs": _rungs(found),
        "seconds": found.seconds, "largest_equality": _largest(found.max_equality),
        "largest_inequality": _largest(found.max_inequality), "warnings": found.warnings,
    }  # fmt: skip
    if json:
        emit(summary)
    else:
        show(
            f"{counted(len(found), 'instance')} of {proxy.problem.name} answered in {in_words(found.seconds)}, "
            f"start-up included: {out}."
        )
        show(*outcome_lines(found, answer))
    for warning in found.warnings:
        say(f"note: {warning}")


def open_proxy(path: Path) -> Proxy:
    """The proxy in a folder, or a sentence."""
    import feasibly as fb

    if (path / "zarr.json").is_file():
        raise FileError(f"{path} is a dataset, not a model; give the folder that train wrote")
    return fb.Proxy.load(path)


def check_answer(answer: str) -> None:
    """Refuse an unknown answer before anything is loaded for it."""
    if answer not in ANSWERS.split(", "):
        raise FeasiblyError(f"there is no answer {answer!r}; choose one of {ANSWERS}")


def _check_tolerance(tolerance: float) -> None:
    if not 0.0 <= tolerance < math.inf:
        raise FeasiblyError(f"the tolerance must be zero or more, not {tolerance}")


def outcome_lines(found: Answer, answer: str) -> list[str]:
    """How many rows may be used, what to do about the others, and which rungs answered."""
    from feasibly.answer.record import AnswerOutcome

    lines = []
    for name, number in found.outcomes().items():
        advice = AnswerOutcome[name].advice
        lines.append(
            f"  {number:,} {name}: {advice}" if advice else f"  {number:,} OK: every constraint holds."
        )
    if answer == "auto":
        lines.append(
            "  Answered by: " + ", ".join(f"{rung} {n:,}" for rung, n in _rungs(found).items()) + "."
        )
    return lines


def _rungs(found: Answer) -> dict[str, int]:
    from collections import Counter

    return dict(Counter(str(rung) for rung in found.rung))


def _largest(values: Any) -> float:
    import numpy as np

    finite = values[np.isfinite(values)]
    return float(finite.max()) if len(finite) else math.nan


def evaluate(
    model: Model,
    data: Data,
    answer: HowToAnswer = "conditioned",
    tolerance: Tolerance = 1e-4,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, metavar="N", help="Use the first N rows only.")
    ] = None,
    seed: Seed = 0,
    json: AsJson = False,
) -> None:
    """Measure a proxy's answers against solved instances that it has not seen.

    Rows that the model was trained on are left out. Violations are measured over all constraints, in float64.
    """
    import feasibly as fb
    from feasibly._cli.tables import metrics_table

    check_answer(answer)
    _check_tolerance(tolerance)
    with Meter(f"opening {model}") as meter:
        proxy = open_proxy(model)
        rows = open_data(data, proxy.problem)
        meter.turn_to(f"answering and measuring ({answer})")
        found = fb.evaluate_proxy(proxy, rows, answer, limit=limit, tolerance=tolerance, seed=seed)
    if json:
        emit(found.as_dict() | {"problem": proxy.problem.name, "model": model, "data": data})
        return
    metrics = found.metrics
    show(
        f"{proxy.method}, {counted(proxy.record.labels, 'label')}, answer {answer}: "
        f"{counted(metrics.count, 'instance')} of {proxy.problem.name} that it has not seen.",
        "",
        metrics_table(proxy.problem, metrics),
        "",
        f"{100.0 * metrics.share_feasible:.1f} % of the answers keep every constraint to within 1e-4; "
        f"{in_words(found.predict_seconds_per_instance)} an instance, in one batch.",
    )


def open_data(path: Path, problem: Problem) -> Dataset:
    """A dataset of `problem`, or a sentence."""
    import feasibly as fb

    if (path / "proxy.json").is_file():
        raise FileError(f"{path} is a model, not a dataset; give the folder that label wrote")
    return fb.Dataset.open(path, problem if problem.spec is None else None)
