"""The paper's tables and figures by name, with its own settings, published beside measured."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from feasibly._files import write_whole
from feasibly.report.beside import HOW_TO_READ, beside_csv, beside_sheet, count_verdicts
from feasibly.report.drawing import Drawing
from feasibly.report.experiments import Part, Request, Watch, run_table, scale_words
from feasibly.report.files import ReportError, to_json
from feasibly.report.paperfigures import draw_robustness, robustness_entries
from feasibly.report.published import TABLES
from feasibly.report.render import notes_of, to_csv
from feasibly.report.sheet import to_latex, to_markdown
from feasibly.report.studies import (
    POSTERIORS,
    SIZES,
    Made,
    study_bounds,
    study_convergence,
    study_growth,
    study_mpv,
)
from feasibly.train.registry import METHODS

STUDIES: Mapping[str, Callable[[Request], Made]] = {
    "figure-mpv": study_mpv,
    "figure-bounds": study_bounds,
    "figure-convergence": study_convergence,
}
NAMES = (*TABLES, "figure-growth", *STUDIES, "all")
ANSWERS = ("mean", "svp", "conditioned", "polished")
FOLDER = "feasibly-cache"


@dataclass(frozen=True)
class Reproduction:
    """What was made under a name: tables, figures, the files they are in, and how it differs from the paper."""

    name: str
    scale: float
    parts: tuple[Part, ...] = ()
    drawings: Mapping[str, Drawing] = field(default_factory=dict)
    files: tuple[Path, ...] = ()
    said: tuple[str, ...] = ()


def reproduce(
    name: str,
    scale: float = 1.0,
    out: str | os.PathLike[str] = FOLDER,
    jobs: int = 1,
    *,
    labels: int | None = None,
    tests: int | None = None,
    methods: Sequence[str] | None = None,
    answers: Sequence[str] | None = None,
    draws: int = 500,
    progress: Watch | None = None,
) -> Reproduction:
    """Make a table or figure of the paper with its own settings, and hold it against what was published.

    Labels, finished trainings and proxies stay in `out` and are used again: the same call after an interruption
    finishes the rest, and a figure uses what a table has trained.

    Args:
        name: one of `NAMES`.
        scale: shrinks training budgets and the number of trials, for a quick look; the result says so.
        out: the folder for everything that is made.
        jobs: processes for labelling, and trainings at a time (each in a process of its own, on one core).
        labels, tests: other numbers of labels and test instances than the paper's; the result says so.
        methods, answers: fewer than all.
        draws: from the posterior, for the figures.
        progress: called with a sentence now and then.

    Raises:
        ReportError: the name is unknown, or the scale is not between 0 and 1.
    """
    if name not in NAMES:
        raise ReportError(f"there is nothing to reproduce under {name!r}; choose one of {', '.join(NAMES)}")
    if not 0.0 < scale <= 1.0:
        raise ReportError(f"the scale must be above 0 and at most 1, not {scale}")
    request = Request(
        float(scale), Path(out), int(jobs), labels, tests, None if methods is None else tuple(methods),
        None if answers is None else tuple(answers), int(draws), progress or (lambda sentence: None),
    )  # fmt: skip
    if name == "all":
        made = [_one(each, request) for each in NAMES[:-1]]
        return Reproduction(
            "all",
            request.scale,
            tuple(part for each in made for part in each.parts),
            {f"{each.name}/{stem}": drawing for each in made for stem, drawing in each.drawings.items()},
            tuple(path for each in made for path in each.files),
            tuple(dict.fromkeys(words for each in made for words in each.said)),
        )
    return _one(name, request)


def _one(name: str, request: Request) -> Reproduction:
    if name in TABLES:
        return _tables(name, request)
    if name == "figure-growth":
        drawings, said, numbers = study_growth([_tables(table, request).parts[0] for table in SIZES])
    else:
        drawings, said, numbers = STUDIES[name](request)
    folder = request.out / name
    files = [path for stem, drawing in drawings.items() for path in drawing.save(folder, stem)]
    if numbers is not None:
        write_whole(folder / f"{name}.json", to_json(numbers | {"scale": request.scale}))
        files.append(folder / f"{name}.json")
    said = [*scale_words(request), *said]
    write_whole(folder / "README.txt", "\n".join(said) + "\n")
    return Reproduction(name, request.scale, (), drawings, tuple(files), tuple(said))


# ---- tables ----------------------------------------------------------------------------------------------


def _tables(name: str, request: Request) -> Reproduction:
    robust = name == "robustness-118"
    methods = request.methods or (POSTERIORS if robust else tuple(METHODS))
    answers = request.answers or (("mean", "svp") if robust else ANSWERS)
    folder = request.out / name
    parts, files = [], []
    for table in TABLES[name]:
        part = run_table(table, request, methods, answers)
        parts.append(part)
        files += _write_part(part, request.scale, folder)
    drawings = {}
    if robust:
        entries = [e for part in parts for e in robustness_entries(part.table, part.comparison.rows)]
        drawings = {f"robustness-{answer}": draw_robustness(entries, answer) for answer in answers}
        files += [path for stem, drawing in drawings.items() for path in drawing.save(folder, stem)]
    said = tuple(
        dict.fromkeys([*scale_words(request), HOW_TO_READ, *(d for part in parts for d in part.departures)])
    )
    return Reproduction(name, request.scale, tuple(parts), drawings, tuple(files), said)


def _write_part(part: Part, scale: float, folder: Path) -> list[Path]:
    slug = part.table.slug
    verdicts = count_verdicts(part.lines)
    head = [
        f"# {part.table.case}, {part.table.source}",
        "",
        *part.departures,
        "",
        f"{verdicts['better']} cells of the paper's rows are better, {verdicts['equal']} equal, "
        f"{verdicts['worse']} worse. {HOW_TO_READ}",
        "",
    ]
    failures = [f"{line.method}, {line.answer} failed: {line.failed}" for line in part.lines if line.failed]
    failures += notes_of(part.comparison.rows)
    contents = {
        f"{slug}.md": "\n".join(head)
        + "\n"
        + to_markdown(beside_sheet(part.lines))
        + "\n".join(["", *failures, ""]),
        f"{slug}.tex": to_latex(beside_sheet(part.lines)),
        f"{slug}.csv": beside_csv(part.lines),
        f"{slug}-rows.csv": to_csv(part.comparison),
        f"compare-{slug}.json": to_json(part.document(scale)),
    }
    for file, content in contents.items():
        write_whole(folder / file, content)
    return [folder / file for file in contents]
