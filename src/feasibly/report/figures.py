"""Plots of answers and of learning. Each returns a `Drawing`: the figure and its numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from feasibly.problem.core import Problem
from feasibly.problem.families import grid_of
from feasibly.problem.grid import Grid
from feasibly.report.drawing import BLACK, BLUE, CYCLE, GREY, LIGHT, RED, Drawing, look, new_figure, style
from feasibly.report.layout import place_buses

Array = NDArray[np.float64]

FLOOR = 1e-12
"""Smaller values are drawn here on logarithmic axes: they differ by rounding alone."""

MEASURES: Mapping[str, str] = {
    "gap_percent": "distance from the optimal cost (%)",
    "max_eq": "largest equality violation{unit}",
    "max_ineq": "largest inequality violation{unit}",
    "max_bound": "largest violation of a bound{unit}",
}
BLOCKS: Mapping[str, tuple[str, str]] = {
    "pg": ("active generation", "p.u."),
    "qg": ("reactive generation", "p.u."),
    "vm": ("voltage magnitude", "p.u."),
    "va": ("voltage angle", "rad"),
}


def axis_name(measure: str, per_unit: bool) -> str:
    """What an axis of a measure says, unit included."""
    return MEASURES[measure].format(unit=" (p.u.)" if per_unit else "")


# ---- how errors spread -----------------------------------------------------------------------------------


def draw_spread(
    groups: Mapping[str, ArrayLike], measure: str = "gap_percent", *, per_unit: bool = True
) -> Drawing:
    """A box for every group over its instances, on a logarithmic axis: quartiles, and whiskers from 5 to 95 %.

    `groups` maps a label (`ridge, conditioned`) to one value an instance. Values below 1e-12 are drawn there.
    """
    labels = list(groups)
    values = [_finite(groups[label]) for label in labels]
    percents = (0, 5, 25, 50, 75, 95, 100)
    numbers: dict[str, list[Any]] = {"label": labels, "instances": [len(v) for v in values]}
    for percent in percents:
        numbers[f"p{percent}"] = [float(np.percentile(v, percent)) if len(v) else np.nan for v in values]
    with style():
        figure, (axis,) = new_figure(5.4, 0.9 + 0.27 * max(len(labels), 3))
        drawn = [np.maximum(v, FLOOR) if len(v) else np.array([np.nan]) for v in values]
        boxes = axis.boxplot(
            drawn, orientation="horizontal", whis=(5, 95), widths=0.62, patch_artist=True, showfliers=False,
            medianprops={"color": BLACK, "linewidth": 1.6}, whiskerprops={"color": GREY}, capprops={"color": GREY},
            boxprops={"linewidth": 0.6, "edgecolor": GREY},
        )  # fmt: skip
        for i, (box, label) in enumerate(zip(boxes["boxes"], labels, strict=True)):
            box.set_facecolor(look(label, i)[0])
            box.set_alpha(0.75)
        worst = [v.max() if len(v) else np.nan for v in drawn]
        axis.plot(worst, range(1, len(labels) + 1), "|", color=RED, markersize=8, label="worst instance")
        axis.set_xscale("log")
        axis.set_yticks(range(1, len(labels) + 1), labels)
        axis.invert_yaxis()
        axis.grid(axis="y", visible=False)
        axis.set_xlabel(axis_name(measure, per_unit))
        axis.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0))
    caption = (
        f"{axis_name(measure, per_unit).capitalize()} of {max(numbers['instances'], default=0)} unseen instances, for "
        "each way of answering: box from 25 to 75 %, whiskers from 5 to 95 %, a line at the median, an orange tick at "
        "the worst."
    )
    return Drawing(figure, numbers, axis_name(measure, per_unit), caption)


def _finite(values: ArrayLike) -> Array:
    found = np.array(
        [np.nan if v is None else v for v in np.asarray(values, dtype=object).ravel()], dtype=float
    )
    return found[np.isfinite(found)]


# ---- predicted against solved ----------------------------------------------------------------------------


def draw_agreement(
    problem: Problem, solved: ArrayLike, answered: ArrayLike, *, points: int = 1500
) -> Drawing:
    """Answered against solved, a panel for every block of outputs; at most `points` of each are drawn.

    The text in each panel, and the numbers, count all of them.
    """
    truth, found = np.asarray(solved, dtype=float), np.asarray(answered, dtype=float)
    blocks = dict(list(problem.blocks.items())[:6])
    named = grid_of(problem) is not None
    columns = 2 if len(blocks) > 1 else 1
    rows = -(-len(blocks) // columns)
    numbers: dict[str, list[Any]] = {
        k: [] for k in ("block", "values", "largest_error", "mean_error", "root_mean_square_error")
    }
    random = np.random.Generator(np.random.Philox(key=0))
    with style():
        figure, axes = new_figure(2.9 * columns, 2.75 * rows, rows, columns)
        for axis, (name, part) in zip(axes, blocks.items(), strict=False):
            x, y = truth[:, part].ravel(), found[:, part].ravel()
            fine = np.isfinite(x) & np.isfinite(y)
            x, y = x[fine], y[fine]
            error = np.abs(y - x)
            figures = (
                [float(error.max()), float(error.mean()), float(np.sqrt(np.mean(error**2)))]
                if len(x)
                else [np.nan] * 3
            )
            for key, value in zip(numbers, [name, len(x), *figures], strict=True):
                numbers[key].append(value)
            kept = random.permutation(len(x))[:points]
            axis.plot(x[kept], y[kept], ".", color=BLUE, markersize=2.5, alpha=0.4, rasterized=True)
            ends = [float(min(x.min(), y.min())), float(max(x.max(), y.max()))] if len(x) else [0.0, 1.0]
            axis.plot(ends, ends, color=BLACK, linewidth=0.8)
            words, unit = BLOCKS.get(name, (name, "")) if named else (name, "")
            unit = f" ({unit})" if unit else ""
            axis.set_title(words)
            axis.set_xlabel(f"solved{unit}")
            axis.set_ylabel(f"answered{unit}")
            axis.text(
                0.04,
                0.96,
                f"largest error {figures[0]:.1e}",
                transform=axis.transAxes,
                va="top",
                fontsize=8.5,
            )
        for axis in axes[len(blocks) :]:
            axis.set_visible(False)
    caption = f"Answered against solved for {len(truth)} unseen instances, by kind of output; on the line they agree."
    return Drawing(figure, numbers, "answered against solved", caption)


# ---- the grid --------------------------------------------------------------------------------------------


def draw_grid(
    grid: Grid, values: ArrayLike, what: str, unit: str = "p.u.", note: str = "", *, logarithmic: bool = True
) -> Drawing:
    """The grid with its buses coloured by `values`, one a bus; logarithmic ones may not be negative.

    On the map where every bus has coordinates, elsewhere laid out by hop distances. Generator buses are squares. The
    three largest are named.
    """
    from matplotlib.colors import LogNorm, Normalize

    size = np.nan_to_num(np.asarray(values, dtype=float), nan=0.0)
    size = np.maximum(size, FLOOR) if logarithmic else size
    place, mapped = place_buses(grid)
    top = float(size.max())
    low = max(float(np.percentile(size, 5)), top * 1e-4)
    norm = LogNorm(min(low, 0.5 * top), top) if logarithmic else Normalize(float(size.min()), top)
    dot = float(np.clip(3600.0 / grid.n_buses, 5.0, 60.0))
    makes = np.zeros(grid.n_buses, dtype=bool)
    makes[grid.gen_bus] = True
    with style():
        from matplotlib.collections import LineCollection

        figure, (axis,) = new_figure(5.4, 4.4)
        lines = np.stack([place[grid.branch_from], place[grid.branch_to]], axis=1)
        axis.add_collection(LineCollection(list(lines), colors=LIGHT, linewidths=0.9, zorder=1))
        for chosen, marker, label in ((~makes, "o", "bus"), (makes, "s", "bus with a generator")):
            shown = axis.scatter(
                place[chosen, 0], place[chosen, 1], c=size[chosen], norm=norm, cmap="cividis_r", s=dot, marker=marker,
                edgecolors=GREY, linewidths=0.4, zorder=2, label=label,
            )  # fmt: skip
        for bus in np.argsort(-size)[:3]:
            axis.annotate(
                str(grid.bus_id[bus]), place[bus], xytext=(5, 5), textcoords="offset points", fontsize=9,
                fontweight="bold", zorder=3,
            )  # fmt: skip
        axis.set_aspect("equal")
        axis.margins(0.05)
        axis.axis("off")
        axis.legend(loc="upper left", bbox_to_anchor=(0.0, 0.0), ncols=2, handletextpad=0.2)
        figure.colorbar(shown, ax=axis, shrink=0.85, label=f"{what} ({unit})" if unit else what)
    worst = int(size.argmax())
    caption = (
        f"The grid, {'on the map' if mapped else 'laid out by how many branches lie between buses'}, each bus coloured "
        f"by {what}. The largest, {top:.2g}{' ' + unit if unit else ''}, is at bus {grid.bus_id[worst]}; the three "
        "largest are named." + (f" {note}" if note else "")
    )
    numbers = {
        "bus": grid.bus_id.tolist(),
        "x": place[:, 0].tolist(),
        "y": place[:, 1].tolist(),
        what: size.tolist(),
    }
    return Drawing(figure, numbers, what, caption)


def bus_errors(problem: Problem, x: ArrayLike, answered: ArrayLike, solved: ArrayLike) -> dict[str, Array]:
    """For every bus, averaged over instances: `voltage error` and `power mismatch` (both per unit)."""
    found, truth = np.asarray(answered, dtype=float), np.asarray(solved, dtype=float)
    vm, va = problem.blocks["vm"], problem.blocks["va"]
    phasor = found[:, vm] * np.exp(1j * found[:, va]) - truth[:, vm] * np.exp(1j * truth[:, va])
    balance = problem.equalities(np.asarray(x, dtype=float), found)
    buses = vm.stop - vm.start
    mismatch = np.hypot(balance[:, :buses], balance[:, buses : 2 * buses])
    return {"voltage error": np.abs(phasor).mean(axis=0), "power mismatch": mismatch.mean(axis=0)}


# ---- promises --------------------------------------------------------------------------------------------


def draw_bounds(
    buses: Sequence[Any],
    error: ArrayLike,
    bounds: Mapping[str, ArrayLike],
    *,
    what: str = "voltage magnitude error",
    unit: str = "p.u.",
    place: str = "bus",
    note: str = "",
) -> Drawing:
    """For every bus (or any output) the mean error and how far the true mean may be from it, by several bounds."""
    mean = np.maximum(np.asarray(error, dtype=float), FLOOR)
    numbers: dict[str, Sequence[Any]] = {place: list(buses), "mean error": mean.tolist()}
    with style():
        figure, (axis,) = new_figure(5.4, 3.5)
        axis.plot(mean, ".", color=GREY, markersize=4, label="mean error of the sample")
        for i, (name, width) in enumerate(bounds.items()):
            values = np.maximum(np.broadcast_to(np.asarray(width, dtype=float), mean.shape), FLOOR)
            numbers[name] = values.tolist()
            axis.plot(
                values, color=CYCLE[i % len(CYCLE)], linestyle=("-", "--", "-.", ":")[i % 4], label=name
            )
        axis.set_yscale("log")
        top = max([float(mean.max()), *(max(numbers[name]) for name in bounds)])
        axis.set_ylim(bottom=max(0.5 * float(mean.min()), 1e-7 * top))
        axis.set_xlabel(f"{place}, in the order of the file" if place == "bus" else place)
        axis.set_ylabel(f"{what} ({unit})" if unit else what)
        axis.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    caption = (
        f"{what.capitalize()} by {place}: the mean over the sample, and how far the true mean may be from it, by each "
        "bound." + (f" {note}" if note else "")
    )
    return Drawing(figure, numbers, f"{what} by {place}", caption)


# ---- learning --------------------------------------------------------------------------------------------


def draw_learning(
    histories: Mapping[str, Sequence[Mapping[str, Any]]],
    measure: str = "max_eq",
    *,
    flat: Mapping[str, tuple[float, float]] | None = None,
    per_unit: bool = True,
) -> Drawing:
    """A measure on the validation labels against seconds of training, both logarithmic.

    `flat` has methods that learn in one go: when they were done, and how good they were.
    """
    numbers: dict[str, list[Any]] = {"label": [], "seconds": [], "stage": [], measure: []}
    with style():
        figure, (axis,) = new_figure(5.4, 3.6)
        for i, (label, history) in enumerate(histories.items()):
            kept = [
                entry for entry in history if entry.get(measure) is not None and entry.get("seconds", 0) > 0
            ]
            seconds = [float(entry["seconds"]) for entry in kept]
            values = [max(float(entry[measure]), FLOOR) for entry in kept]
            colour, _, line = look(label, i)
            axis.plot(seconds, values, color=colour, linestyle=line, label=label)
            for key, column in (("seconds", seconds), (measure, values)):
                numbers[key] += column
            numbers["label"] += [label] * len(kept)
            numbers["stage"] += [str(entry.get("stage", "")) for entry in kept]
        for i, (label, (second, value)) in enumerate((flat or {}).items()):
            colour, marker, _ = look(label, i)
            axis.plot([second], [max(value, FLOOR)], marker, color=colour, label=label)
            for key, item in zip(numbers, (label, second, "at once", value), strict=True):
                numbers[key].append(item)
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_xlabel("wall-clock time of training (s)")
        axis.set_ylabel(axis_name(measure, per_unit))
        axis.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
    caption = f"{axis_name(measure, per_unit).capitalize()} against seconds of training, both on logarithmic scales."
    return Drawing(figure, numbers, "learning curves", caption)


def draw_budget(spent: Mapping[str, Mapping[str, float]]) -> Drawing:
    """Where the time of each training went, as stacked bars."""
    labels = list(spent)
    parts = list(dict.fromkeys(key for times in spent.values() for key in times if key != "total"))
    # Slivers would only fill the legend; their sum is added to what nobody booked.
    seen = [p for p in parts if p != "other" and any(_share(t, p) >= 0.01 for t in spent.values())]
    rest = {label: sum(s for p, s in t.items() if p not in (*seen, "total")) for label, t in spent.items()}
    spent = {label: {p: t.get(p, 0.0) for p in seen} | {"other": rest[label]} for label, t in spent.items()}
    parts = seen + (["other"] if any(_share(t, "other") >= 0.01 for t in spent.values()) else [])
    numbers: dict[str, list[Any]] = {"label": labels}
    with style():
        figure, (axis,) = new_figure(5.4, 1.5 + 0.32 * len(labels))
        left = np.zeros(len(labels))
        for i, part in enumerate(parts):
            seconds = np.array([float(spent[label].get(part, 0.0)) for label in labels])
            numbers[part] = seconds.tolist()
            hatch = "" if i < len(CYCLE) else "//"
            axis.barh(
                labels, seconds, left=left, color=CYCLE[i % len(CYCLE)], hatch=hatch, height=0.6, label=part
            )
            left += seconds
        for place, total in enumerate(left):
            axis.text(total, place, f" {total:.3g} s", va="center", fontsize=8.5)
        axis.set_xlim(0.0, 1.16 * max(float(left.max(initial=0.0)), 1e-9))
        axis.invert_yaxis()
        axis.grid(axis="y", visible=False)
        axis.set_xlabel("wall-clock time (s)")
        axis.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3)
    caption = "Where the time went: " + "; ".join(
        f"{label}: "
        + ", ".join(f"{part} {spent[label].get(part, 0.0):.3g} s" for part in parts if spent[label].get(part))
        for label in labels
    )
    return Drawing(figure, numbers, "where the time went", caption + ".")


def _share(times: Mapping[str, float], part: str) -> float:
    total = sum(seconds for name, seconds in times.items() if name != "total")
    return times.get(part, 0.0) / total if total > 0 else 0.0
