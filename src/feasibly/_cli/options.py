"""Arguments and options that several commands share, with their help."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from feasibly.train import registry

METHODS = "{methods}"
"""In the help of an option: the names of the methods there are when it is printed."""


class ListsMethods(TyperCommand):
    """A command whose help names the methods: those registered when it is shown, not when it was imported."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help."""
        params: list[Any] = list(self.params)
        written = [(each, each.help) for each in params if METHODS in (getattr(each, "help", None) or "")]
        names = ", ".join(registry.METHODS)
        try:
            for each, help_ in written:
                each.help = help_.replace(METHODS, names)
            super().format_help(ctx, formatter)
        finally:
            for each, help_ in written:
                each.help = help_


ANSWERS = "mean, svp, conditioned, polished, solved, auto"
"""As in `feasibly.ANSWERS`."""


class Design(StrEnum):
    """How inputs are drawn."""

    uniform = "uniform"
    sobol = "sobol"
    correlated = "correlated"


class EngineName(StrEnum):
    """Who solves rows."""

    local = "local"
    dask = "dask"
    ray = "ray"


class DcLines(StrEnum):
    """What becomes of DC lines."""

    free = "free"
    fixed = "fixed"


class SlackVoltage(StrEnum):
    """What holds the voltage of a pandapower net's external grids."""

    fixed = "fixed"
    free = "free"


class FlowLimit(StrEnum):
    """What the ratings of a pandapower net limit."""

    current = "current"
    power = "power"


class Region(StrEnum):
    """What an interval holds for."""

    joint = "joint"
    each = "each"


Case = Annotated[
    str,
    typer.Argument(
        metavar="CASE",
        help="pglib:case57_ieee, nonconvex:70,20,50, or a grid: MATPOWER .m, PSS/E .raw, JSON of PowerModels, Egret or "
        "pandapower, a folder of PyPSA or GridFM.",
    ),
]
Costs = Annotated[
    Path | None,
    typer.Option(
        "--costs",
        metavar="FILE",
        help="CSV with generator,c2,c1,c0, for the costs that the grid file has or lacks.",
    ),
]
Ignore = Annotated[
    str | None,
    typer.Option(
        "--ignore",
        metavar="TABLES",
        help="Tables of a MATPOWER, PSS/E or pandapower file to leave out although they may change the optimum, "
        "as in bus3p,buslink.",
    ),
]
Lines = Annotated[
    DcLines | None,
    typer.Option(
        "--dc-lines", help="DC lines are dispatched within their limits (unless told), or stay at set point."
    ),
]
Slack = Annotated[
    SlackVoltage | None,
    typer.Option(
        "--slack-voltage",
        help="Of a pandapower net's external grids: held, as pandapower does (unless told), or free, as MATPOWER does.",
    ),
]
Flow = Annotated[
    FlowLimit | None,
    typer.Option(
        "--flow-limit",
        help="Ratings of a pandapower net limit current, as pandapower has it (unless told), or apparent power.",
    ),
]
Spread = Annotated[
    float | None,
    typer.Option(
        "--spread", metavar="SHARE", min=0.0, help="How far loads vary around nominal; 0.2 unless told."
    ),
]
Model = Annotated[Path, typer.Argument(metavar="MODEL", help="A folder that train wrote.")]
Data = Annotated[Path, typer.Argument(metavar="DATA", help="A dataset that label or import wrote.")]
Source = Annotated[Path, typer.Argument(metavar="PATH", help="What to import.")]
Store = Annotated[Path, typer.Option("--out", metavar="DATA", help="The dataset to write, a folder.")]
Answer = Annotated[
    str, typer.Option("--answer", metavar="A", help=f"How to answer, from quick to exact: {ANSWERS}.")
]
Tolerance = Annotated[
    float,
    typer.Option("--tolerance", metavar="T", help="An answer that breaks a constraint by more is flagged."),
]
Seed = Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Of everything random.")]
Jobs = Annotated[
    int | None, typer.Option("--jobs", metavar="N", min=1, help="Worker processes; all cores unless told.")
]
Force = Annotated[bool, typer.Option("--force", help="Replace what is there.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
