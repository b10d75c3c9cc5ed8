"""`feasibly screen`: a profile crossed with every single outage."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from feasibly._cli import signals
from feasibly._cli.console import Meter, emit, show
from feasibly._cli.options import AsJson, Model, Tolerance
from feasibly._words import counted, duration

if TYPE_CHECKING:
    from feasibly.screening.run import ScreenProgress


def screen(
    model: Model,
    profile: Annotated[
        Path,
        typer.Argument(metavar="PROFILE", help="A .csv, .parquet or .npz file with an hour a row."),
    ],
    out: Annotated[Path, typer.Option("--out", metavar="RESULT", help="The result to write, a folder.")],
    outages: Annotated[
        str,
        typer.Option(
            "--outages", metavar="WHICH", help="all, branches, generators, or names like branch_1_2."
        ),
    ] = "all",
    answer: Annotated[str, typer.Option("--answer", metavar="A", help="How to answer.")] = "auto",
    tolerance: Tolerance = 1e-4,
    batch: Annotated[
        int, typer.Option("--batch", metavar="N", min=1, help="Instances to answer at a time.")
    ] = 4096,
    jobs: Annotated[int, typer.Option("--jobs", metavar="N", min=1, help="Processes to answer in.")] = 1,
    full: Annotated[bool, typer.Option("--full", help="Keep every answer, not only its summary.")] = False,
    page: Annotated[
        Path | None,
        typer.Option("--page", metavar="FILE", help="The summary, an HTML file; RESULT.html unless told."),
    ] = None,
    json: AsJson = False,
) -> None:
    """Answer every hour of a profile under every single outage, and show what comes of it.

    The profile has a column a load (pd_12 and qd_12, per unit), or one called factor for all loads, and may have costs
    and ratings; hour or time is checked for gaps. The result keeps cost, outcome, violation and the worst
    elements of every hour and outage. Interrupt it whenever you like: the same command goes on where it stopped.
    """
    import feasibly as fb
    from feasibly._cli.columns import read_table
    from feasibly._cli.model_commands import check_answer, open_proxy, outcome_lines

    check_answer(answer)

    def tell(progress: ScreenProgress) -> None:
        signals.check()
        left = progress.seconds_left
        words = [f"{progress.done} of {progress.total} hours"]
        words += [f"{duration(max(round(left), 1))} left"] if left else []
        meter.tell(", ".join(words), progress.done, progress.total)

    with Meter(f"reading {profile}") as meter:
        table = read_table(profile)
        columns = dict(zip(table.names, table.values, strict=True))
        meter.turn_to(f"opening {model}")
        proxy = open_proxy(model)
        meter.turn_to("screening")
        given = columns["x"] if list(columns) == ["x"] and columns["x"].ndim == 2 else columns
        found = fb.screen(
            proxy, given, outages, out, answer=answer, tolerance=tolerance, batch=batch, full=full, jobs=jobs,
            progress=tell,
        )  # fmt: skip
        where = out.with_suffix(".html") if page is None else page
        meter.turn_to(f"writing {where}")
        with signals.writing():
            found.write_page(where)
        seconds = meter.seconds
    outcomes = found.outcomes()
    if json:
        emit({
            "path": out, "page": where, "hours": found.hours, "outages": len(found.outages) - 1, "outcomes": outcomes,
            "seconds": seconds,
        })  # fmt: skip
        return
    cells = found.hours * len(found.outages)
    show(
        f"{counted(found.hours, 'hour')} under {counted(len(found.outages) - 1, 'outage')} and none, {cells:,} "
        f"instances in {duration(seconds)}: {out}, and {where} to look at."
    )
    show(*outcome_lines(outcomes))
