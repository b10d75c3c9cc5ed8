"""The figures of the documentation, from what other runs have left behind.

python benchmarks/figures.py posterior CACHE        2 x MPV, bounds per bus, convergence (CACHE: `reproduce --out`)
python benchmarks/figures.py learning NAME STORE ...  learning curves of trainings (STORE: `compare --store`)
python benchmarks/figures.py labels NAME JSON ...   gap and max ineq against labels, from several comparisons
python benchmarks/figures.py robustness JSON ...    mean and range over trials, from comparisons with the paper's

Each writes docs/figures/*.svg and the numbers in them as .csv.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from feasibly.report.drawing import Drawing, look, new_figure, style
from feasibly.report.experiments import Request
from feasibly.report.figures import FLOOR, axis_name, draw_learning
from feasibly.report.paperfigures import draw_robustness, robustness_entries
from feasibly.report.published import TABLE_57, TABLE_118
from feasibly.report.studies import study_bounds, study_convergence, study_mpv
from results_details import find_table

INTO = Path(__file__).parents[1] / "docs" / "figures"


def keep(stem: str, drawing: Drawing) -> None:
    """Write a figure and its numbers."""
    INTO.mkdir(exist_ok=True)
    (INTO / f"{stem}.svg").write_bytes(drawing.image("svg"))
    (INTO / f"{stem}.csv").write_text(drawing.to_csv(), encoding="utf-8")
    print(INTO / f"{stem}.svg")


def draw_labels(
    series: Mapping[str, Sequence[Mapping[str, Any]]],
    measures: Sequence[str] = ("gap_percent", "max_ineq"),
    *,
    per_unit: bool = True,
) -> Drawing:
    """Measures against the number of labels, both logarithmic; rows of a comparison, grouped by label of the line.

    Where several rows have the same number of labels (seeds), the line is their mean and the band their range.
    """
    names = ("line", "labels", "measure", "mean", "least", "largest")
    numbers: dict[str, list[Any]] = {key: [] for key in names}
    with style():
        figure, axes = new_figure(5.4, 2.9 * len(measures), len(measures), 1, sharex=True)
        for axis, measure in zip(axes, measures, strict=True):
            for i, (line, rows) in enumerate(series.items()):
                colour, marker, dash = look(line, i)
                counts = sorted({int(row["labels"]) for row in rows})
                groups = [[max(float(r[measure]), FLOOR) for r in rows if r["labels"] == n] for n in counts]
                means, least, most = ([f(g) for g in groups] for f in (lambda g: sum(g) / len(g), min, max))
                axis.plot(counts, means, color=colour, marker=marker, linestyle=dash, label=line)
                axis.fill_between(counts, least, most, color=colour, alpha=0.15, linewidth=0)
                for n, values in zip(counts, zip(means, least, most, strict=True), strict=True):
                    for key, item in zip(names, (line, n, measure, *values), strict=True):
                        numbers[key].append(item)
            axis.set_xscale("log", base=2)
            axis.set_yscale("log")
            axis.set_ylabel(axis_name(measure, per_unit))
            ticks = sorted({int(row["labels"]) for rows in series.values() for row in rows})
            axis.set_xticks(ticks, [str(n) for n in ticks])
        axes[-1].set_xlabel("labels (solved instances, validation included)")
        axes[0].legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    caption = (
        f"{' and '.join(axis_name(m, per_unit) for m in measures).capitalize()} against the number of labels."
    )
    return Drawing(figure, numbers, "what labels buy", caption)


def posterior(cache: str) -> None:
    """What the paper draws of a posterior, for the proxies that `reproduce table-57` and `table-118` have trained."""
    request = Request(1.0, Path(cache), 1, None, None, None, None, 500, True, print)
    grids = (TABLE_57, TABLE_118)
    said: list[str] = []
    numbers: dict[str, Any] = {}
    for name, study in (
        ("mpv", lambda: study_mpv(request, grids)),
        ("bounds", lambda: study_bounds(request, grids)),
        ("convergence", lambda: study_convergence(request)),
    ):
        drawings, words, found = study()
        for stem, drawing in drawings.items():
            keep(stem, drawing)
        said += words
        numbers[name] = found
    (INTO / "posterior.json").write_text(
        json.dumps({"said": list(dict.fromkeys(said)), "numbers": numbers}, indent=1) + "\n", encoding="utf-8"
    )


def learning(name: str, *stores: str) -> None:
    """Max eq and gap on the validation labels against seconds; a later store takes precedence."""
    histories: dict[str, Any] = {}
    flat: dict[str, dict[str, tuple[float, float]]] = {"max_eq": {}, "gap_percent": {}}
    for store in map(Path, stores):
        for path in sorted((store / "trainings").glob("*.0.json")):
            method = path.name.partition(".")[0]
            history = json.loads(path.read_text(encoding="utf-8"))["history"]
            cell = store / "cells" / f"{method}.mean.0.json"
            if not cell.exists():  # it was not finished
                continue
            row = json.loads(cell.read_text(encoding="utf-8"))["row"]
            if history:
                histories[method] = history
            else:
                for measure, found in flat.items():
                    found[method] = (float(row["train_seconds"]), float(row[measure]))
    for measure, found in flat.items():
        keep(f"learning-{name}-{measure.partition('_')[0]}", draw_learning(histories, measure, flat=found))


def labels(name: str, *paths: str) -> None:
    """Gap and max ineq against the number of labels."""
    entries: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for path in paths:
        for row in json.loads(Path(path).read_text(encoding="utf-8"))["rows"]:
            if "failed" not in row:
                entries[f"{row['method']}, {row['answer']}"].append(row)
    for rows in entries.values():
        rows.sort(key=lambda row: row["labels"])
    keep(f"labels-{name}", draw_labels(entries))


def robustness(*paths: str) -> None:
    """Mean and range over trials against labels, beside what was published."""
    entries = []
    for path in paths:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
        table = find_table(document["published"])
        if table is None:
            sys.exit(f"{path} is not held against a published table")
        entries += robustness_entries(table, document["rows"])
    for answer in ("mean", "svp"):
        keep(f"robustness-118-{answer}", draw_robustness(entries, answer))


if __name__ == "__main__":
    {"posterior": posterior, "learning": learning, "labels": labels, "robustness": robustness}[sys.argv[1]](
        *sys.argv[2:]
    )
