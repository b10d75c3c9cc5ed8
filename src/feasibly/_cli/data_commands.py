"""Commands about rows: `label`, `import opfdata`, `import pglearn`, `import gridfm`."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from feasibly._cli import signals
from feasibly._cli.case_command import load
from feasibly._cli.console import Meter, emit, say, show
from feasibly._cli.files import check_target
from feasibly._cli.options import (
    AsJson,
    Case,
    Costs,
    Design,
    EngineName,
    Flow,
    Force,
    Ignore,
    Jobs,
    Lines,
    Slack,
    Source,
    Spread,
    Store,
)
from feasibly._cli.varying import (
    CostDrawn,
    CostSpread,
    Islands,
    Outages,
    RatingDrawn,
    RatingSpread,
    Vary,
    chosen_draws,
)
from feasibly._words import counted, duration
from feasibly.problem.errors import FeasiblyError

if TYPE_CHECKING:
    from feasibly.data.dataset import Dataset
    from feasibly.data.importing import ImportProgress, ImportReport
    from feasibly.data.label import Progress
    from feasibly.problem.core import Problem


COURTESY = 20.0
"""Seconds that a block of rows has to end after a signal, before it is left behind and solved again next time."""


def on_cluster(given: Mapping[str, Any]) -> bool:
    """Whether `label` was asked for a cluster: those want the main thread, and hear signals themselves."""
    return given.get("engine") is not EngineName.local


def label(
    case: Case,
    out: Store,
    count: Annotated[
        int, typer.Option("--count", metavar="N", min=1, help="How many instances to draw and solve.")
    ] = 640,
    spread: Spread = None,
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", min=0, help="The same seed draws the same instances.")
    ] = 0,
    design: Annotated[
        Design,
        typer.Option(
            "--design",
            help="Independent draws, a sequence that covers the range evenly, or loads that rise and fall together.",
        ),
    ] = Design.uniform,
    factor: Annotated[
        tuple[float, float] | None,
        typer.Option(
            "--factor", metavar="LOW HIGH", help="Of all loads together, correlated; 0.75 to 1.1 unless told."
        ),
    ] = None,
    noise: Annotated[
        float | None,
        typer.Option(
            "--noise", metavar="SHARE", min=0.0, help="Of each load by itself, correlated; 0.1 unless told."
        ),
    ] = None,
    jobs: Jobs = None,
    engine: Annotated[
        EngineName, typer.Option("--engine", help="This machine, or a Dask or Ray cluster.")
    ] = EngineName.local,
    address: Annotated[
        str | None,
        typer.Option("--address", metavar="A", help="An existing cluster; otherwise one is started."),
    ] = None,
    costs: Costs = None,
    ignore: Ignore = None,
    dc_lines: Lines = None,
    slack_voltage: Slack = None,
    flow_limit: Flow = None,
    vary: Vary = None,
    outages: Outages = None,
    islands: Islands = False,
    cost_draws: CostDrawn = None,
    cost_spread: CostSpread = None,
    rating_draws: RatingDrawn = None,
    rating_spread: RatingSpread = None,
    json: AsJson = False,
) -> None:
    """Draw instances of a problem, solve each to optimality, and store them.

    An instance without a solution keeps its outcome and is no label. Interrupt it whenever you like: the
    same command run again solves what is missing, and a larger --count adds rows.
    """
    import feasibly as fb

    began = time.perf_counter()
    resumed: int | None = None

    def tell(progress: Progress) -> None:
        nonlocal resumed
        signals.check()
        resumed = progress.resumed
        if progress.stage == "translating":
            meter.turn_to("preparing the solver")
            return
        left = progress.seconds_left
        words = [f"{progress.done} of {progress.total}", f"{progress.rate:.3g} rows a second"]
        words += [f"{duration(max(round(left), 1))} left"] if left else []
        words += [f"{progress.failed} without a solution"] if progress.failed else []
        meter.turn_to("solving")
        meter.tell(", ".join(words), progress.done, progress.total)

    with Meter(f"reading {case}") as meter:
        if design is Design.correlated and spread is not None:
            raise FeasiblyError("--spread does not apply to correlated draws; give --factor and --noise")
        varied, draws = chosen_draws(
            vary, outages=outages, islands=islands, cost_spread=cost_spread, rating_spread=rating_spread,
            costs=None if cost_draws is None else cost_draws.value,
            ratings=None if rating_draws is None else rating_draws.value,
        )  # fmt: skip
        problem = load(
            case, costs, spread, ignore, vary=varied, draws=draws,
            reading={"dc_lines": dc_lines, "slack_voltage": slack_voltage, "flow_limit": flow_limit},
        )  # fmt: skip
        data = fb.label(
            problem, count=count, seed=seed, design=design.value, factor=factor, noise=noise, jobs=jobs,
            engine=engine.value, address=address, out=out, progress=tell,
        )  # fmt: skip
    seconds = time.perf_counter() - began
    before = (
        len(data) if resumed is None else resumed
    )  # with nothing left to solve there is no progress to tell
    found = describe_rows(data) | {"seconds": seconds, "rows_found": before}
    if json:
        emit(found)
        return
    new = len(data) - before
    solver = found["solver_seconds_per_row"]
    how = f"; {duration(solver)} of solver time each" if new and solver else ""
    there = f" ({before:,} were there already)" if before else ""
    show(
        f"{counted(len(data), 'instance')} of {data.problem.name} in {out}{there}, {duration(seconds)}{how}."
    )
    show(*outcome_lines(data))


def describe_rows(data: Dataset) -> dict[str, Any]:
    """What a dataset holds, in plain values."""
    solved = data.solved
    return {
        "path": data.path,
        "problem": data.problem.name,
        "rows": len(data),
        "labels": data.n_labels,
        "outcomes": data.outcomes(),
        "solver_seconds_per_row": float(data.seconds[solved].mean()) if solved.any() else None,
        "mean_objective": float(data.objective[solved].mean()) if solved.any() else None,
    }


def outcome_lines(data: Dataset) -> list[str]:
    """How many rows ended how, with advice for those that are no labels."""
    from feasibly.solve.outcome import Outcome

    lines = [f"  {data.n_labels:,} solved to optimality: these are labels."]
    advice = {outcome.name: outcome.advice for outcome in Outcome}
    for name, number in data.outcomes().items():
        if name != Outcome.OK.name:
            lines.append(f"  {number:,} {name}: {advice.get(name, 'These rows have no answer yet.')}")
    return lines


Instances = Annotated[
    str | None,
    typer.Option("--case", metavar="CASE", help="The grid these are instances of, where it is at hand."),
]


def import_opfdata(
    path: Source, out: Store, case: Instances = None, force: Force = False, json: AsJson = False
) -> None:
    """Import OPFData: a JSON file, a .tar.gz archive, or a folder of either.

    Every instance is measured against the physics: power balance, limits and objective are computed anew, the
    worst of each is printed, and what does not fit is named and is no label.
    """
    import feasibly as fb

    _import(fb.import_opfdata, path, out, case, force, json)


def import_pglearn(
    path: Source, out: Store, case: Instances = None, force: Force = False, json: AsJson = False
) -> None:
    """Import the AC-OPF solutions of a PGLearn case folder (.h5 and .h5.gz).

    Every instance is measured against the physics: power balance, limits and objective are computed anew, the
    worst of each is printed, and what does not fit is named and is no label.
    """
    import feasibly as fb

    _import(fb.import_pglearn, path, out, case, force, json)


def import_gridfm(
    path: Source, out: Store, case: Instances = None, force: Force = False, json: AsJson = False
) -> None:
    """Import the optimal power flows of GridFM's datakit: the folder with bus_data.parquet.

    Every instance is measured against the physics: power balance and limits are computed anew, the
    worst of each is printed, and what does not fit is named and is no label.
    """
    import feasibly as fb

    _import(fb.import_gridfm, path, out, case, force, json)


def _import(
    importer: Callable[..., tuple[Dataset, ImportReport]],
    path: Path,
    out: Path,
    case: str | None,
    force: bool,
    json: bool,
) -> None:
    if not path.exists():
        raise FeasiblyError(f"there is nothing at {path}")
    check_target(out, force=force)

    def tell(progress: ImportProgress) -> None:
        of = "" if progress.total is None else f" of {progress.total}"
        flagged = f", {progress.flagged} flagged" if progress.flagged else ""
        meter.tell(f"{progress.done}{of} instances{flagged}", progress.done, progress.total)

    with Meter(f"importing {path}") as meter:
        problem = None if case is None else load(case, None, None)
        if out.exists():
            data, report = _replacing(importer, path, out, problem, tell)
        else:
            data, report = importer(path, out, problem=problem, progress=tell)
    if json:
        emit(report.as_dict() | {"path": out, "problem": data.problem.name})
        return
    show(f"{counted(report.rows, 'row')} of {data.problem.name} in {out}: {counted(report.labels, 'label')}.")
    show(
        f"  Worst power balance error {report.worst_equality:.2e} p.u., worst limit violation "
        f"{report.worst_inequality:.2e} p.u., worst objective difference {report.worst_objective:.2e} (relative)."
    )
    if report.n_flagged:
        show(f"  {counted(report.n_flagged, 'instance')} left out or no label; the first:")
        show(*(f"    {flag.where}: {flag.why}" for flag in report.flagged[:10]))
    for warning in report.warnings:
        # The reader of a file is told in terms of Python; here the same is an option.
        say(
            f"note: {warning.replace('pass the problem to use its own', 'name the grid with --case to use its own')}"
        )


def _replacing(
    importer: Callable[..., tuple[Dataset, ImportReport]],
    path: Path,
    out: Path,
    problem: Problem | None,
    tell: Callable[[ImportProgress], None],
) -> tuple[Dataset, ImportReport]:
    """Import beside the dataset that is there; it goes once its successor is whole."""
    from feasibly._cli.files import writing
    from feasibly.data.reading import read_attributes

    read_attributes(out)  # never remove what is no dataset of ours
    with writing(out) as partial:
        try:
            return importer(path, partial, problem=problem, progress=tell)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
