"""One self-contained page: what was asked, where the budget went, how good the answers are, what may be promised."""

from __future__ import annotations

import base64
import os
import platform
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from feasibly._files import write_whole
from feasibly._version import __version__
from feasibly.certificate import Certificate
from feasibly.data.dataset import Dataset
from feasibly.evaluation import Evaluation
from feasibly.report.compare import Comparison
from feasibly.report.drawing import Drawing
from feasibly.report.files import ReportError
from feasibly.report.machine import describe_machine
from feasibly.report.sheet import Sheet
from feasibly.report.story import Story, tell

TEMPLATE = "report.html.j2"


@dataclass(frozen=True)
class Plot:
    """An image in the page itself, and words for it."""

    source: str
    caption: str


@dataclass(frozen=True)
class Section:
    """A part of the page; what is empty is left out."""

    id: str
    name: str
    text: Sequence[str] = ()
    facts: Sequence[tuple[str, str]] = ()
    table: Sheet | None = None
    notes: Sequence[str] = ()
    plots: Sequence[Plot] = ()
    parts: Sequence[Mapping[str, Any]] = ()


def write_report(
    path: str | os.PathLike[str],
    data: Dataset,
    evaluations: Iterable[Evaluation] = (),
    *,
    comparison: Comparison | None = None,
    main: str = "conditioned",
    title: str | None = None,
    command: str | None = None,
    seconds: Mapping[str, float] | None = None,
    solver_seconds: float | None = None,
    solver_name: str = "IPOPT from a cold start",
    certificate: Certificate | None = None,
    notes: Sequence[str] = (),
    prove: bool = False,
) -> Path:
    """Write a report that opens anywhere: one HTML file with its pictures inside, no network, printable.

    Args:
        path: the file to write; it appears whole or not at all.
        data: the labelled rows that proxies were trained and tested on.
        evaluations: measured answers, as `evaluate_proxy` gives them: one a method and rung.
        comparison: rows of a comparison, instead of evaluations or beside them. Where its proxies were kept, the
            default method's (or the best one's) answers are drawn.
        main: the rung that the plots of single answers show.
        title: of the page.
        command: what made it; the command line of this process unless told.
        seconds: what took time apart from training, by name: `{"labels": 12.0}`.
        solver_seconds: what a solver takes for one instance; the labels' own mean time unless told.
        solver_name: which solver `solver_seconds` is of.
        certificate: what is promised; that of the proxy unless told.
        notes: sentences for the reader.
        prove: learn what proofs need, if the proxy whose answers are drawn has not, and show by how much each of these
            answers can be above the least cost at most.

    Raises:
        ReportError: there is nothing to report on, or matplotlib or Jinja2 is not installed.
        FeasiblyError: `prove` is asked for and nothing can be proven of this problem.
    """
    found = list(evaluations)
    if not found and (comparison is None or not comparison.rows):
        raise ReportError("a report needs evaluations or a comparison with rows")
    story = tell(
        data, found, comparison, main=main, seconds=seconds or {}, solver_seconds=solver_seconds,
        solver_name=solver_name,
        certificate=certificate, notes=notes, prove=prove,
    )  # fmt: skip
    sections = _sections(story, command or _command())
    page = _environment().render(
        title=title or f"A stand-in for the solver of {data.problem.name}",
        lead=story.lead,
        cards=story.cards,
        sections=sections,
        version=__version__,
    )
    target = Path(path)
    write_whole(target, page)
    return target


def _sections(story: Story, command: str) -> list[Section]:
    machine = describe_machine()
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    made = [
        ("Command", command),
        (
            "Machine",
            f"{machine['processor'] or machine['machine']}, {machine['cores_used']} of {machine['cores']} cores",
        ),
        ("System", f"{platform.system()} {platform.machine()}"),
        ("Versions", versions),
    ]
    if machine["commit"]:
        made.append(("Commit", machine["commit"]))
    parts = [
        Section("asked", "What was asked", facts=story.asked, notes=story.notes),
        Section("time", "Where the time went", text=story.time_words, plots=_plots(story.time)),
        Section("answers", "How good the answers are", text=story.table_words, table=story.table),
        Section("spread", "Instance by instance", text=story.spread_words, plots=_plots(story.spread)),
        Section("outputs", "Answered against solved", plots=_plots(story.agreement)),
        Section("grid", "Where on the grid", plots=_plots(story.grid)),
        Section("bounds", "Mean error and its bounds", text=story.bound_words, plots=_plots(story.bounds)),
        Section("learning", "How it learnt", text=story.learning_words, plots=_plots(story.learning)),
        Section("promise", "What is promised", text=story.promise_words, parts=story.promise),
        Section("words", "What the words mean", facts=story.words),
        Section("made", "How this page was made", facts=made),
    ]  # fmt: skip
    return [p for p in parts if p.text or p.facts or p.table or p.plots or p.parts]


def _plots(drawings: Iterable[Drawing]) -> list[Plot]:
    found = []
    for drawing in drawings:
        image = drawing.image("svg")
        kind = "svg+xml"
        if len(image) > 400_000:  # thousands of buses: a picture of dots is smaller than a list of them
            image, kind = drawing.image("png"), "png"
        found.append(Plot(f"data:image/{kind};base64,{base64.b64encode(image).decode()}", drawing.caption))
    return found


def _environment() -> Any:
    try:
        from jinja2 import Environment, PackageLoader
    except ImportError:
        raise ReportError("a report needs Jinja2; install it with: pip install 'feasibly[report]'") from None
    loader = PackageLoader("feasibly.report", package_path="")
    return Environment(loader=loader, autoescape=True, trim_blocks=False).get_template(TEMPLATE)


def _command() -> str:
    name = Path(sys.argv[0]).name if sys.argv and sys.argv[0] else "python"
    return shlex.join([name, *sys.argv[1:]])
