"""Commands about proxies: `predict`, `evaluate`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from feasibly._cli.console import Meter, emit, say, show
from feasibly._cli.files import FileError, check_target
from feasibly._cli.options import ANSWERS, AsJson, Data, Force, Model, Region, Seed, Tolerance
from feasibly._cli.options import Answer as HowToAnswer
from feasibly._words import counted, duration, percent
from feasibly.problem.errors import FeasiblyError

if TYPE_CHECKING:
    from feasibly.answer.record import Answer
    from feasibly.data.dataset import Dataset
    from feasibly.problem.core import Problem
    from feasibly.proxy import Proxy


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
    per_unit: Annotated[
        bool,
        typer.Option(
            "--per-unit", help="Write a grid's outputs per unit and in radians, not MW, Mvar, degrees."
        ),
    ] = False,
    tables: Annotated[
        Path | None,
        typer.Option(
            "--tables", metavar="FOLDER", help="Also write a grid's generators, buses and branches there."
        ),
    ] = None,
    ignore_extra: Annotated[
        bool, typer.Option("--ignore-extra", help="Pass over columns that are no inputs of the model.")
    ] = False,
    force: Force = False,
    json: AsJson = False,
) -> None:
    """Answer every row of a file and write the answers to another.

    Columns are matched by name (pd_12_mw and qd_12_mvar are the load at bus 12; pd_12 and qd_12 the same per unit);
    a row of the output has the model's outputs by name and unit (pg_1_mw, va_3_degree), the objective, the largest
    violation of any equality and any inequality, the outcome, and the rung of the ladder that answered. Columns called
    id, row, name, scenario, time, timestamp, date or datetime come back with the answers, and so does the index of a
    table that pandas wrote. A certified model adds the interval of every output. `feasibly inputs MODEL --out FILE`
    writes a file to start from.
    """
    from feasibly._cli.columns import check_ending, kept_columns, match_inputs, read_table, write_table
    from feasibly._cli.gridtables import TABLES, write_grid_tables
    from feasibly._cli.units import with_units
    from feasibly.answer.forms import columns

    check_ending(inputs)
    check_ending(out)
    for written in [out] if tables is None else [out, *(tables / f"{name}.csv" for name in TABLES)]:
        if written.exists() and inputs.exists() and written.samefile(inputs):
            raise FileError(
                f"{written} is the input itself, which predict never replaces; choose another path"
            )
    check_target(out, force=force)
    if tables is not None:
        check_target(tables, force=force)
    check_answer(answer)
    _check_tolerance(tolerance)
    with Meter(f"reading {inputs}") as meter:
        table = read_table(inputs)
        meter.turn_to(f"opening {model}")
        proxy = open_proxy(model)
        x = match_inputs(proxy.problem, table, ignore_extra=ignore_extra)
        meter.turn_to(f"answering {counted(len(x), 'instance')} ({answer}{how_long(proxy, len(x), answer)})")
        found = proxy.predict(x, answer, tolerance=tolerance, seed=seed, region=region.value, prove=prove)
        meter.turn_to(f"writing {out}")
        ids = kept_columns(proxy.problem, table)
        if tables is not None:
            priced = None if found.duals is None else (found.prices, found.reactive_prices)
            write_grid_tables(tables, proxy.problem, x, found.y, ids, priced)
        answers = columns(found, std=std, duals=duals, grid=prices)
        write_table(out, ids | (dict(answers) if per_unit else with_units(proxy.problem, answers)))
    summary = {
        "model": model, "input": inputs, "output": out, "problem": proxy.problem.name, **proxy.record.named,
        "answer": answer, "rows": len(found), "outcomes": found.outcomes(), "rungs": _rungs(found),
        "seconds": found.seconds, "largest_equality": _largest(found.max_equality),
        "largest_inequality": _largest(found.max_inequality), "warnings": found.warnings,
    }  # fmt: skip
    if json:
        emit(summary)
    else:
        show(
            f"{counted(len(found), 'instance')} of {proxy.problem.name} answered by {proxy.record.label} in "
            f"{duration(found.seconds)}, start-up included: {out}."
        )
        show(*answer_lines(found, answer))
    for warning in found.warnings:
        say(f"note: {warning}")


def inputs(
    model: Model,
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="A .csv, .parquet or .npz file to write.")
    ],
    count: Annotated[
        int, typer.Option("--count", metavar="N", min=1, help="Rows: the usual input, then drawn ones.")
    ] = 3,
    seed: Seed = 0,
    per_unit: Annotated[
        bool, typer.Option("--per-unit", help="A grid's inputs per unit, not in MW and Mvar.")
    ] = False,
    force: Force = False,
) -> None:
    """Write a file of inputs that predict can answer, to start from.

    The first row is the usual input, the others are drawn as the model's own were. A column id numbers them.
    """
    import numpy as np

    import feasibly as fb
    from feasibly._cli.columns import check_ending, write_table
    from feasibly._cli.units import input_columns

    check_ending(out)
    check_target(out, force=force)
    problem = open_proxy(model).problem
    rows = problem.nominal[None]
    if count > 1:
        rows = np.concatenate([rows, fb.sample(problem, count - 1, seed=seed)])
    write_table(out, {"id": np.arange(1, count + 1)} | input_columns(problem, rows, per_unit=per_unit))
    show(f"{counted(count, 'row')} for {problem.name}: {out}.")


def open_proxy(path: Path) -> Proxy:
    """The proxy in a folder, or a sentence."""
    import feasibly as fb

    if (path / "zarr.json").is_file():
        raise FileError(f"{path} is a dataset, not a model; give the folder that train wrote")
    return fb.Proxy.load(path)


def how_long(proxy: Proxy, rows: int, *answers: str) -> str:
    """What a wait is for and how long it usually takes, as training has measured it, for whoever watches it."""
    if set(answers) <= {"mean", "svp"}:
        return ""
    said = ""
    before = proxy.record.seconds.get("conditioning", 0.0)
    if before >= 1.0:
        said += f"; preparing took {duration(before)} in training"
    if proxy.calibration is not None:
        each = {"mean": 0.0, "svp": 0.0, "solved": proxy.calibration.solving_seconds}
        usual = rows * sum(each.get(answer, proxy.calibration.row_seconds) for answer in answers)
        if usual >= 1.0:  # NaN, where nobody has measured it, is not
            said += f"; {counted(rows, 'row')} usually take {duration(usual)}"
    return said


def check_answer(answer: str) -> None:
    """Refuse an unknown answer before anything is loaded for it."""
    if answer not in ANSWERS.split(", "):
        raise FeasiblyError(f"there is no answer {answer!r}; choose one of {ANSWERS}")


def _check_tolerance(tolerance: float) -> None:
    if not 0.0 <= tolerance < math.inf:
        raise FeasiblyError(f"the tolerance must be zero or more, not {tolerance}")


def outcome_lines(outcomes: Mapping[str, int]) -> list[str]:
    """How many rows may be used, and what to do about the others."""
    from feasibly.answer.record import AnswerOutcome

    advice = {kind.name: kind.advice for kind in AnswerOutcome} | {"OK": "every constraint holds."}
    return [f"  {count:,} {name}: {advice.get(name) or '-'}" for name, count in outcomes.items()]


def answer_lines(found: Answer, answer: str) -> list[str]:
    """The same of answers, and which rungs gave them."""
    lines = outcome_lines(found.outcomes())
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
        count = min(limit or len(rows), len(rows))
        meter.turn_to(f"answering and measuring ({answer}{how_long(proxy, count, answer)})")
        found = fb.evaluate_proxy(proxy, rows, answer, limit=limit, tolerance=tolerance, seed=seed)
    if json:
        emit(found.as_dict() | {"problem": proxy.problem.name, "model": model, "data": data})
        return
    metrics = found.metrics
    show(
        f"{proxy.record.label}, {counted(proxy.record.labels, 'label')}, answer {answer}: "
        f"{counted(metrics.count, 'instance')} of {proxy.problem.name} that it has not seen.",
        "",
        metrics_table(proxy.problem, metrics),
        "",
        f"{percent(metrics.share_feasible, '.1f')} of the answers keep every constraint to within 1e-4; "
        f"{duration(found.predict_seconds_per_instance)} an instance, in one batch.",
    )


def open_data(path: Path, problem: Problem) -> Dataset:
    """A dataset of `problem`, or a sentence."""
    import feasibly as fb

    if (path / "proxy.json").is_file():
        raise FileError(f"{path} is a model, not a dataset; give the folder that label wrote")
    return fb.Dataset.open(path, problem if problem.spec is None else None)
