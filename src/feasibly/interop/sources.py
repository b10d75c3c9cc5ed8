"""Where a problem comes from: files of pandapower and PyPSA through their own packages, all else by `problem/`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from feasibly.interop._pandapower_file import is_pandapower, read_net
from feasibly.problem import families
from feasibly.problem._costs import Costs
from feasibly.problem.acopf import SPREAD, acopf
from feasibly.problem.core import Problem
from feasibly.problem.drawing import Draws
from feasibly.problem.errors import FeasiblyError, argument
from feasibly.problem.grid import Grid


def load_problem(
    source: str | os.PathLike[str],
    *,
    costs: Costs | None = None,
    ignore: str | Sequence[str] = (),
    dc_lines: str = "free",
    slack_voltage: str | None = None,
    flow_limit: str | None = None,
    spread: float = SPREAD,
    seed: int = 17,
    vary: str | Sequence[str] = ("load",),
    draws: Draws | None = None,
) -> Problem:
    """A problem by name or path.

    Args:
        source: `pglib:case57_ieee`, `nonconvex:70,20,50`, or the path of a grid: MATPOWER `.m`, PSS/E `.raw`, JSON of
            PowerModels, Egret or pandapower, a folder of PyPSA's CSV files or its `.nc`, a folder of GridFM's parquet
            files.
        costs: generation costs, in place of the file's own or where it has none: a table with a row `c2, c1, c0`
            ($/MW^2h, $/MWh, $/h) for each generator in service, in file order; or the path of a CSV file with the
            columns `generator, c2, c1, c0`, where `generator` is the row in the file, from 1; or one number, the $/MWh
            of every generator.
        ignore: tables of a MATPOWER, PSS/E or pandapower file to leave out although they may change the optimum
            (`"bus3p,buslink"`); without it such a file is refused.
        dc_lines: `"free"`, dispatched within their limits, or `"fixed"` at the set points of the file.
        slack_voltage: for pandapower's nets, `"fixed"` (their own reading, and what is taken unless told) or `"free"`;
            see `from_pandapower`.
        flow_limit: for pandapower's nets, `"current"` (unless told) or `"power"`; see `from_pandapower`.
        spread: for grids, how far loads vary around nominal.
        seed: for `nonconvex`, which member of the family.
        vary: for grids, what the input is made of: any of `load`, `branch`, `generator` (statuses), `cost`, `rating`.
        draws: how what varies beside the loads is drawn: single outages, costs within 30 % and ratings within 20 %
            unless told.

    Examples:
        >>> problem = fb.load_problem("nonconvex:10,4,6")
        >>> problem.n_inputs, problem.n_outputs, problem.n_equalities, problem.n_inequalities
        (4, 10, 4, 6)
    """
    path = Path(os.fspath(source))
    theirs = is_pandapower(path)
    if not theirs:
        for name, value in (("slack_voltage", slack_voltage), ("flow_limit", flow_limit)):
            if value is not None:
                raise FeasiblyError(f"{argument(name)} is for pandapower's nets, and {source} is none")
    if theirs:
        grid = _pandapower(path, costs, ignore, dc_lines, slack_voltage or "fixed", flow_limit or "current")
    elif is_pypsa(path):
        for name, other in (("ignore", bool(ignore)), ("dc_lines", dc_lines != "free")):
            if other:
                raise FeasiblyError(f"{argument(name)} is not for PyPSA's networks, and {path.name} is one")
        grid = _pypsa(path, costs)
    else:
        return families.load_problem(
            source, costs=costs, ignore=ignore, dc_lines=dc_lines, spread=spread, seed=seed, vary=vary, draws=draws
        )  # fmt: skip
    grid.tell()
    return acopf(grid, spread=spread, vary=vary, draws=draws)


def is_pypsa(path: Path) -> bool:
    """Whether a path is a network that PyPSA wrote: a folder of CSV files, or NetCDF."""
    return path.suffix.lower() == ".nc" or (path.is_dir() and (path / "buses.csv").is_file())


def _pandapower(
    path: Path,
    costs: Costs | None,
    ignore: str | Sequence[str],
    dc_lines: str,
    slack_voltage: str,
    flow_limit: str,
) -> Grid:
    from feasibly.interop.pandapower import read_pandapower

    net, notes = read_net(path)
    return read_pandapower(
        net, slack_voltage=slack_voltage, flow_limit=flow_limit, name=path.stem, costs=costs, ignore=ignore,
        dc_lines=dc_lines, notes=notes,
    )  # fmt: skip


def _pypsa(path: Path, costs: Costs | None) -> Grid:
    from feasibly.interop.pypsa import read_network, read_pypsa

    if costs is not None:
        raise FeasiblyError(
            f"{path.name} is a PyPSA network, whose costs are its marginal_cost; set them there"
        )
    return read_pypsa(read_network(path), name=path.stem)
