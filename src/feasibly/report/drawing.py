"""How every figure looks, and how it leaves: PDF, SVG and PNG beside its numbers as CSV."""

from __future__ import annotations

import contextlib
import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from feasibly._files import write_whole
from feasibly.report.files import ReportError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which people with colour-blindness can tell apart.
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
BLUE, RED, PURPLE = "#0072B2", "#D55E00", "#CC79A7"
GREY, LIGHT = "#6e6e6e", "#d9d9d9"
CYCLE = (BLUE, RED, GREEN, ORANGE, PURPLE, SKY, BLACK, GREY)

LOOKS: Mapping[str, tuple[str, str, str]] = {
    "response": (BLUE, "o", "-"),
    "ridge": (RED, "s", "-"),
    "gp": (ORANGE, "^", "-"),
    "sandwich-bnn": (GREEN, "D", "-"),
    "supervised-bnn": (SKY, "v", "-"),
    "sandwich-dnn": (PURPLE, "P", "-"),
    "mae": (BLACK, "x", "--"),
    "mse": (GREY, "+", "--"),
    "mae-penalty": (BLACK, "1", ":"),
    "mse-penalty": (GREY, "2", ":"),
    "lagrangian-dual": (BLACK, "*", "-."),
}
"""Colour, marker and line of the methods here, the same in every figure; others take the next of `CYCLE`."""

_STYLE: Mapping[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 10.0,
    "axes.titlesize": 10.5,
    "axes.labelsize": 10.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.6,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "xtick.labelsize": 9.0,
    "ytick.labelsize": 9.0,
    "lines.linewidth": 1.4,
    "lines.markersize": 5.0,
    "svg.fonttype": "path",  # the same on every machine, whatever fonts it has
    "svg.hashsalt": "feasibly",  # and the same on every run
    "pdf.fonttype": 42,
    "savefig.bbox": "tight",
    "savefig.pad_inches": 0.04,
}


@dataclass(frozen=True, eq=False)
class Drawing:
    """A figure, the numbers in it as columns of one length, and words for whoever cannot see it."""

    figure: Figure
    numbers: Mapping[str, Sequence[Any]]
    title: str
    caption: str

    def image(self, kind: str = "svg") -> bytes:
        """The figure as `svg`, `png` or `pdf`, the same bytes on every run."""
        with style():
            # Laid out once and for all: every format, and every call, then has the same proportions.
            self.figure.draw_without_rendering()
            self.figure.set_layout_engine("none")
            out = io.BytesIO()
            metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}[kind]
            self.figure.savefig(out, format=kind, dpi=200, metadata=metadata)
        return out.getvalue()

    def to_csv(self) -> str:
        """The numbers, one line each."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(self.numbers)
        writer.writerows(zip(*self.numbers.values(), strict=True))
        return out.getvalue()

    def save(self, folder: Path, stem: str) -> list[Path]:
        """Write `stem.pdf`, `.svg`, `.png` and `.csv`."""
        paths = []
        for kind in ("pdf", "svg", "png"):
            paths.append(folder / f"{stem}.{kind}")
            write_whole(paths[-1], self.image(kind))
        paths.append(folder / f"{stem}.csv")
        write_whole(paths[-1], self.to_csv())
        return paths


@contextlib.contextmanager
def style() -> Iterator[None]:
    """Draw in the house style, without touching the caller's own settings."""
    try:
        import matplotlib
    except ImportError:
        raise ReportError(
            "figures need matplotlib; install it with: pip install 'feasibly[report]'"
        ) from None
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)  # type: ignore[arg-type]
        yield


def new_figure(
    width: float, height: float, rows: int = 1, columns: int = 1, **share: Any
) -> tuple[Figure, list[Axes]]:
    """A figure of `rows x columns` axes, inches; inside `style()`. No window and no global state."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False, **share)
    return figure, [axis for line in axes for axis in line]


def look(label: str, place: int = 0) -> tuple[str, str, str]:
    """Colour, marker and line of a method, or of whatever is drawn in `place`."""
    name = label.replace(",", " ").split(" ")[0]  # of `ridge (instead of response), conditioned`: ridge
    if name in LOOKS:
        return LOOKS[name]
    return CYCLE[place % len(CYCLE)], "o", "-"
