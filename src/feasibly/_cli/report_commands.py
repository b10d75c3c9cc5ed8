"""Commands that show: `compare` and `reproduce`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from feasibly._cli import signals
from feasibly._cli.console import Meter, emit, say, show
from feasibly._cli.options import ANSWERS, METHODS, AsJson, Data
from feasibly._words import counted, duration
from feasibly.problem.errors import FeasiblyError

if TYPE_CHECKING:
    from feasibly.report.cells import Step
    from feasibly.report.reproduce import Reproduction

Methods = Annotated[
    str | None,
    typer.Option("--methods", metavar="A,B", help=f"Fewer methods than all of {METHODS}."),
]
Answers = Annotated[
    str | None,
    typer.Option("--answers", metavar="A,B", help=f"Fewer answers than {ANSWERS}."),
]
Tests = Annotated[
    int | None,
    typer.Option("--tests", min=1, metavar="N", help="Unseen instances to answer; all unless told."),
]


def compare(
    data: Data,
    methods: Methods = None,
    answers: Answers = None,
    budget: Annotated[
        float, typer.Option("--budget", metavar="SECONDS", help="Wall-clock time of each training.")
    ] = 600.0,
    labels: Annotated[
        int,
        typer.Option("--labels", min=2, metavar="N", help="Labels each method sees, validation included."),
    ] = 512,
    seeds: Annotated[
        int, typer.Option("--seeds", min=1, metavar="N", help="Train so often; the table has mean and range.")
    ] = 1,
    resample: Annotated[
        bool, typer.Option("--resample", help="Let each seed draw other labels from the data too.")
    ] = False,
    unlabelled: Annotated[
        int | None,
        typer.Option(
            "--unlabelled", min=0, metavar="N", help="Inputs without labels; four a label unless told."
        ),
    ] = None,
    trials: Annotated[
        int, typer.Option("--trials", min=1, metavar="N", help="Trials within a budget; the best is kept.")
    ] = 1,
    tests: Tests = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs", min=1, metavar="N", help="Trainings at a time, each a process with one core of its own."
        ),
    ] = None,
    store: Annotated[
        Path | None,
        typer.Option("--store", metavar="FOLDER", help="Keep what is done; the same command does the rest."),
    ] = None,
    report: Annotated[
        Path | None, typer.Option("--report", metavar="FILE", help="Also write an HTML report.")
    ] = None,
    prove: Annotated[
        bool,
        typer.Option("--prove", help="In the report, also prove how near its answers are to the optimum."),
    ] = False,
    latex: Annotated[bool, typer.Option("--latex", help="Print a LaTeX table and nothing else.")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print comma-separated rows and nothing else.")] = False,
    json: AsJson = False,
) -> None:
    """Train methods on the same labels, answer the same unseen instances, and print the paper's table.

    Trainings run in random order. With --store an interruption loses nothing that was finished: run the same
    command again. Ways of answering that do not apply to a method are left out; a method that fails keeps a row.
    """
    import feasibly as fb
    from feasibly.report import render, sheet
    from feasibly.report.compare import compare as run

    if prove and report is None:
        raise FeasiblyError("--prove is about the report; name its file with --report")
    if latex + csv + json > 1:
        raise FeasiblyError("choose one of --latex, --csv and --json")
    with Meter(f"opening {data}") as meter:
        rows = fb.Dataset.open(data)
        meter.turn_to("comparing")
        meter.tell(_usual_time(_names(methods), budget, seeds, jobs))

        def tell(step: Step) -> None:
            signals.check()
            meter.tell(*_step_line(meter, step))

        found = run(
            rows, _names(methods), _names(answers), budget=budget, labels=labels, seeds=seeds, unlabelled=unlabelled,
            trials=trials, tests=tests, resample=resample, jobs=jobs, store=store,
            progress=tell,
        )  # fmt: skip
        if report is not None:
            from feasibly.report.html import write_report

            meter.turn_to(f"writing {report}")
            with signals.writing():
                write_report(report, rows, comparison=found, prove=prove)
    if json:
        emit(list(found.rows))
    elif latex or csv:
        sys.stdout.write(sheet.to_latex(render.sheet_of(found.rows)) if latex else render.to_csv(found))
    else:
        show(sheet.to_rich(render.sheet_of(found.rows)), *render.describe(found))


COURTESY = 10.0
"""Seconds that a step of a training or an answer has to end after a signal, before it is left behind."""


def _usual_time(methods: list[str] | None, budget: float, seeds: int, jobs: int | None) -> str:
    from feasibly.train.registry import METHODS as KNOWN

    count = (len(KNOWN) if methods is None else len(methods)) * seeds
    most = duration(-(-count // (jobs or 1)) * budget)
    return f"{counted(count, 'training')}, at most {most} for all of them, and then the answers"


def _names(given: str | None) -> list[str] | None:
    return None if given is None else [name.strip() for name in given.split(",") if name.strip()]


def _step_line(meter: Meter, step: Step) -> tuple[str, float, float]:
    meter.turn_to("comparing")
    what = f"{step.method} (seed {step.seed}) {step.doing} {step.answer}".rstrip()
    note = f", {step.note}" if step.note else ""
    return f"{step.done} of {step.total} trainings done; {what}{note}", step.done, step.total


def reproduce(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="table-57, table-118, table-500, table-2000, table-nonconvex, robustness-118, figure-growth, "
            "figure-mpv, figure-bounds, figure-convergence, or all.",
        ),
    ],
    scale: Annotated[
        float, typer.Option("--scale", metavar="SHARE", help="Shrink budgets and trials, for a quick look.")
    ] = 1.0,
    out: Annotated[
        Path, typer.Option("--out", metavar="FOLDER", help="Labels, trainings, tables and figures go here.")
    ] = Path("feasibly-cache"),
    jobs: Annotated[
        int, typer.Option("--jobs", min=1, metavar="N", help="Trainings at a time, one core each.")
    ] = 1,
    labels: Annotated[
        int | None,
        typer.Option("--labels", min=2, metavar="N", help="Other than the paper's number of labels."),
    ] = None,
    tests: Annotated[
        int | None,
        typer.Option("--tests", min=2, metavar="N", help="Other than the paper's number of tests."),
    ] = None,
    methods: Methods = None,
    answers: Answers = None,
    json: AsJson = False,
) -> None:
    """Make a table or figure of the paper with its own settings, and print published beside measured.

    Labels and finished trainings stay in the folder: the same command after an interruption does the rest, and
    figures use what tables have trained. Figures are written as PDF, SVG and PNG with their numbers as CSV.
    """
    from feasibly.report.reproduce import reproduce as run

    with Meter(f"reproducing {name}") as meter:

        def tell(*words: Any) -> None:
            signals.check()
            meter.tell(*words)

        made = run(
            name, scale, out, jobs, labels=labels, tests=tests, methods=_names(methods), answers=_names(answers),
            progress=tell,
        )  # fmt: skip
    if json:
        emit(
            {
                "name": made.name, "scale": made.scale, "said": made.said, "files": made.files,
                "tables": [part.document(made.scale) for part in made.parts],
            }
        )  # fmt: skip
        return
    _show_made(made)
    say(f"{counted(len(made.files), 'file')} in {out}; everything took {duration(meter.seconds)}")


def _show_made(made: Reproduction) -> None:
    from feasibly.report.beside import beside_sheet, count_verdicts
    from feasibly.report.render import notes_of
    from feasibly.report.sheet import to_rich

    for part in made.parts:
        verdicts = count_verdicts(part.lines)
        show(
            to_rich(beside_sheet(part.lines, narrow=True), f"{part.table.case} ({part.table.slug})"),
            f"The paper's own rows: {verdicts['better']} cells better, {verdicts['equal']} equal, "
            f"{verdicts['worse']} worse.",
            *(f"{line.method}, {line.answer} failed: {line.failed}" for line in part.lines if line.failed),
            *notes_of(part.comparison.rows),
            "",
        )
    show(*made.said)
    for stem, drawing in made.drawings.items():
        show(f"{stem}: {drawing.caption}")
