"""`feasibly case`, and how commands read the problem they are about."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from feasibly._cli.console import Meter, emit, say, show
from feasibly._cli.files import check_target
from feasibly._cli.options import AsJson, Case, Costs, Flow, Force, Ignore, Lines, Slack, Spread
from feasibly.problem.errors import FeasiblyError, ProblemError, in_shell

if TYPE_CHECKING:
    from feasibly.problem.core import Problem
    from feasibly.problem.drawing import Draws


def load(
    case: str,
    costs: Path | float | None,
    spread: float | None,
    ignore: str | None = None,
    *,
    tell: bool = True,
    vary: tuple[str, ...] = ("load",),
    draws: Draws | None = None,
    reading: Mapping[str, StrEnum | None] = MappingProxyType({}),
) -> Problem:
    """The problem called `case`, with options refused where they do not apply; warnings of the reader are told.

    `reading` are further arguments of `feasibly.load_problem`, passed on where they are given.
    """
    import feasibly as fb

    more = None if vary == ("load",) else vary
    given = [("--costs", costs), ("--spread", spread), ("--ignore", ignore), ("--vary", more)]
    given += [(f"--{key.replace('_', '-')}", value) for key, value in reading.items()]
    asked = [name for name, value in given if value is not None]
    if case.startswith("nonconvex:") and asked:
        raise FeasiblyError(f"{' and '.join(asked)} apply to grids; leave them out for {case}")
    chosen: dict[str, Any] = {"costs": costs, "ignore": ignore or (), "vary": vary, "draws": draws}
    chosen |= {} if spread is None else {"spread": spread}
    chosen |= {key: value.value for key, value in reading.items() if value is not None}
    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always")
        with in_shell():
            problem = fb.load_problem(case, **chosen)
    if tell:
        for note in dict.fromkeys(str(w.message) for w in noted):
            say(f"note: {note}")
    return problem


def case(
    case: Case,
    costs: Costs = None,
    spread: Spread = None,
    ignore: Ignore = None,
    dc_lines: Lines = None,
    slack_voltage: Slack = None,
    flow_limit: Flow = None,
    costs_template: Annotated[
        Path | None,
        typer.Option(
            "--costs-template", metavar="FILE", help="Write a CSV of the generators to fill in, for --costs."
        ),
    ] = None,
    force: Force = False,
    json: AsJson = False,
) -> None:
    """Show what a grid file or a named problem holds, and every warning of the reader.

    Buses, generators, branches, loads, limits and totals as they were read, and the size of the
    optimisation problem that they make. A file without costs is shown all the same.
    """
    from feasibly._cli.describe import describe_problem, problem_table

    reading = {"dc_lines": dc_lines, "slack_voltage": slack_voltage, "flow_limit": flow_limit}
    if costs_template is not None:
        check_target(costs_template, force=force)
    with Meter(f"reading {case}"):
        try:
            problem, without = load(case, costs, spread, ignore, tell=False, reading=reading), False
        except ProblemError as error:
            if [fault.where for fault in error.faults] != ["generation costs"]:
                raise
            problem, without = load(case, 0.0, spread, ignore, tell=False, reading=reading), True
        found = describe_problem(problem)
    if without:
        advice = (
            "none in this file; label needs --costs FILE, and --costs-template FILE writes one to fill in"
        )
        found["warnings"].insert(0, f"costs: {advice}")
        found["grid"]["costs"] = {}
    if costs_template is not None:
        write_costs_template(problem, costs_template, blank=without)
    if json:
        emit(found)
    else:
        show(problem_table(found))


def write_costs_template(problem: Problem, path: Path, *, blank: bool) -> None:
    """A line a generator in service: where it is, what it can do, and its costs, or room for them."""
    import csv

    from feasibly._cli.files import FileError, writing
    from feasibly.problem.extras import CORNERS
    from feasibly.problem.families import grid_of

    grid = grid_of(problem)
    if grid is None:
        raise FileError(f"--costs-template is for grids, and {problem.name} is none")
    base = grid.base_mva
    with writing(path) as partial, partial.open("w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file)
        lines.writerow(["generator", "bus", "min_p_mw", "max_p_mw", "c2", "c1", "c0"])
        bent = set() if grid.extras is None else set(grid.extras.number[grid.extras.kind == CORNERS].tolist())
        for i in range(grid.n_generators):
            # A cost with corners has no coefficients to show.
            empty = blank or int(grid.bus_id[grid.gen_bus[i]]) in bent
            costs = ["", "", ""] if empty else [float(c) for c in grid.cost[i] / [base**2, base, 1.0]]
            limits = [float(limit[i] * base) for limit in (grid.pmin, grid.pmax)]
            lines.writerow([int(grid.gen_id[i]), int(grid.bus_id[grid.gen_bus[i]]), *limits, *costs])
