"""The paper's figures, from measured numbers, with the published ones where it prints them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from feasibly.report.beside import put_beside
from feasibly.report.drawing import BLUE, CYCLE, GREEN, GREY, ORANGE, RED, Drawing, look, new_figure, style
from feasibly.report.figures import FLOOR, axis_name
from feasibly.report.published import PublishedTable
from feasibly.report.render import Summary

GROWTH = ("gap_percent", "max_eq", "max_ineq")


def draw_growth(
    measured: Mapping[int, Sequence[Summary]],
    published: Mapping[int, PublishedTable],
    lines: Sequence[tuple[str, str]],
) -> Drawing:
    """Metrics against the number of buses: solid as measured, dashed as published. The numbers hold every row."""
    names = ("source", "method", "answer", "buses", *GROWTH)
    numbers: dict[str, list[Any]] = {name: [] for name in names}
    for buses, summaries in measured.items():
        table = published.get(buses)
        for each in summaries:
            if each.seeds and not each.stands_in:
                values = [each.mean[m if table is None else table.ours(m)] for m in GROWTH]
                _append(numbers, ("measured", each.method, each.answer, buses, *values))
        for row in table.rows if table is not None else ():
            values = [row.values.get(m, float("nan")) for m in GROWTH]
            _append(numbers, ("published", row.method, row.answer, buses, *values))
    with style():
        figure, axes = new_figure(9.6, 3.9, 1, 3)
        for axis, metric in zip(axes, GROWTH, strict=True):
            for i, (method, answer) in enumerate(lines):
                colour, marker, _ = look(method, i)
                for source, dash in (("measured", "-"), ("published", ":")):
                    where = [
                        k
                        for k in range(len(numbers["buses"]))
                        if (numbers["source"][k], numbers["method"][k], numbers["answer"][k])
                        == (source, method, answer)
                    ]
                    points = sorted((numbers["buses"][k], max(numbers[metric][k], 1e-9)) for k in where)
                    if points:
                        x, y = zip(*points, strict=True)
                        label = f"{method}, {answer}" if source == "measured" else None
                        axis.plot(
                            x,
                            y,
                            dash,
                            color=colour,
                            marker=marker,
                            label=label,
                            alpha=1.0 if dash == "-" else 0.7,
                        )
            axis.set_xscale("log")
            axis.set_yscale("log")
            axis.set_xticks(list(measured), [str(n) for n in measured])
            axis.set_xticks([], minor=True)
            axis.set_xlabel("buses")
            axis.set_ylabel(axis_name("max_bound" if metric == "max_ineq" else metric, True))
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=3)
    caption = "Gap and violations against the size of the grid: solid as measured here, dotted as published."
    return Drawing(figure, numbers, "growth with system size", caption)


def robustness_entries(table: PublishedTable, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A point of the plots of robustness for every row of a comparison that was published too, and every metric."""
    found = []
    for line in put_beside(table, rows):
        published = table.find(line.method, line.answer)
        if not line.summary.seeds or line.summary.stands_in or published is None:
            continue
        for metric in GROWTH:
            key = table.ours(metric)
            found.append(
                {
                    "minutes": table.budget / 60.0, "labels": round(line.summary.mean["labels"]), "method": line.method,
                    "answer": line.answer, "metric": metric, "mean": line.summary.mean[key],
                    "least": line.summary.low[key], "largest": line.summary.high[key],
                    "published": published.values[metric],
                }
            )  # fmt: skip
    return found


def draw_robustness(entries: Sequence[Mapping[str, Any]], answer: str) -> Drawing:
    """Mean and range over trials against labels.

    `entries` are points with minutes, labels, method, answer, metric, mean, least, largest and published.
    """
    chosen = [entry for entry in entries if entry["answer"] == answer]
    names = ("minutes", "labels", "method", "answer", "metric", "mean", "least", "largest", "published")
    numbers = {name: [entry[name] for entry in chosen] for name in names}
    minutes = sorted({entry["minutes"] for entry in chosen})
    with style():
        figure, axes = new_figure(9.6, 2.9 * max(len(minutes), 1), max(len(minutes), 1), 3)
        for row, time in enumerate(minutes):
            for column, metric in enumerate(GROWTH):
                axis = axes[3 * row + column]
                for method, colour, marker in (("sandwich-bnn", GREEN, "D"), ("supervised-bnn", BLUE, "v")):
                    found = sorted(
                        (
                            e
                            for e in chosen
                            if (e["minutes"], e["metric"], e["method"]) == (time, metric, method)
                        ),
                        key=lambda e: e["labels"],
                    )
                    if not found:
                        continue
                    x = np.array([e["labels"] for e in found], dtype=float)
                    mean, least, most = (
                        np.array([e[k] for e in found]) for k in ("mean", "least", "largest")
                    )
                    shift = 0.97 if method == "sandwich-bnn" else 1.03
                    axis.errorbar(
                        x * shift,
                        mean,
                        [mean - least, most - mean],
                        color=colour,
                        marker=marker,
                        capsize=3,
                        label=method,
                    )
                    axis.plot(
                        x * shift,
                        [e["published"] for e in found],
                        ":",
                        color=colour,
                        marker=marker,
                        mfc="none",
                        alpha=0.7,
                        label=f"{method}, published",
                    )
                axis.set_xscale("log", base=2)
                axis.set_yscale("log")
                ticks = sorted({e["labels"] for e in chosen})
                axis.set_xticks(ticks, [str(n) for n in ticks])
                axis.set_ylabel(axis_name("max_bound" if metric == "max_ineq" else metric, True))
                axis.set_title(f"the paper's {time:g} min")
                axis.set_xlabel("labels")
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=4)
    caption = f"Mean and range over trials against labels, {answer} answers; dotted and hollow as published."
    return Drawing(figure, numbers, f"robustness, {answer}", caption)


def draw_mpv(entries: Mapping[tuple[str, str], Mapping[str, Mapping[str, float]]]) -> Drawing:
    """2 x MPV beside the total variance of the error, as the paper writes it and whole, by case, method and block."""
    shown = ("2 x MPV", "paper's V_e", "total variance")
    extra = ("outputs", "outputs where 2 x MPV is too small")
    numbers: dict[str, list[Any]] = {name: [] for name in ("case", "method", "block", *shown, *extra)}
    cases = list(dict.fromkeys(case for case, _ in entries))
    methods = list(dict.fromkeys(method for _, method in entries))
    with style():
        figure, axes = new_figure(3.1 * len(cases) + 0.6, 2.6 * len(methods) + 0.5, len(methods), len(cases))
        for place, axis in enumerate(axes):
            method, case = methods[place // len(cases)], cases[place % len(cases)]
            blocks = entries.get((case, method), {})
            for i, (name, colour, marker) in enumerate(
                zip(shown, (ORANGE, GREY, RED), ("s", "o", "D"), strict=True)
            ):
                values = [max(block[name], FLOOR) for block in blocks.values()]
                axis.plot(np.arange(len(values)) + 0.18 * (i - 1), values, marker, color=colour, label=name)
            for name, block in blocks.items():
                _append(numbers, (case, method, name, *(block[key] for key in (*shown, *extra))))
            axis.set_yscale("log")
            axis.set_xticks(range(len(blocks)), list(blocks))
            axis.set_xlim(-0.6, len(blocks) - 0.4)
            axis.set_title(f"{case}, {method}")
            if place % len(cases) == 0:
                axis.set_ylabel("variance (p.u.$^2$, rad$^2$)")
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=3)
    caption = (
        "2 x MPV against the variance of the error, averaged over the outputs of a block. The paper's V_e cannot "
        "exceed 2 x MPV whatever the labels are; the total variance can, and then the bound built on it is void."
    )
    return Drawing(figure, numbers, "mean predictive variance and variance of the error", caption)


def draw_convergence(
    tests: Mapping[str, Mapping[int, Mapping[str, float]]],
    draws: Mapping[str, Mapping[int, Mapping[str, float]]],
) -> Drawing:
    """Mean error, MPV and total variance by block, against test instances and against posterior draws."""
    names = ("against", "count", "block", "mean error", "MPV", "total variance")
    numbers: dict[str, list[Any]] = {name: [] for name in names}
    units = {"vm": "p.u.", "va": "rad"}
    blocks = list(tests)
    with style():
        figure, axes = new_figure(7.6, 2.8 * len(blocks) + 0.4, len(blocks), 2)
        for row, block in enumerate(blocks):
            for column, (what, found) in enumerate((("test instances", tests), ("posterior draws", draws))):
                axis = axes[2 * row + column]
                points = found[block]
                for i, name in enumerate(names[3:]):
                    values = [max(point[name], FLOOR) for point in points.values()]
                    axis.plot(
                        list(points), values, color=CYCLE[i], marker="osD"[i], markersize=3.5, label=name
                    )
                for count, point in points.items():
                    _append(numbers, (what, count, block, *(point[name] for name in names[3:])))
                axis.set_xscale("log")
                axis.set_yscale("log")
                axis.set_xlabel(what)
                unit = units.get(block, "")
                axis.set_ylabel(f"{block} ({unit}, {unit}$^2$)" if unit else block)
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=3)
    caption = "Mean absolute error, mean predictive variance and total variance, by number of test instances and draws."
    return Drawing(figure, numbers, "convergence", caption)


def _append(numbers: dict[str, list[Any]], values: Sequence[Any]) -> None:
    for column, value in zip(numbers.values(), values, strict=True):
        column.append(value)
