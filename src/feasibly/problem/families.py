"""Built-in families: a name or a stored description in, a ready `Problem` out."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from feasibly._codec import Packed, pack, unpack
from feasibly.problem._costs import Costs
from feasibly.problem.acopf import SPREAD, acopf
from feasibly.problem.core import Problem
from feasibly.problem.drawing import Draws, check_vary
from feasibly.problem.errors import FeasiblyError
from feasibly.problem.grid import Grid
from feasibly.problem.nonconvex import nonconvex
from feasibly.problem.read import read_grid


def load_problem(
    source: str | os.PathLike[str],
    *,
    costs: Costs | None = None,
    ignore: str | Sequence[str] = (),
    dc_lines: str = "free",
    spread: float = SPREAD,
    seed: int = 17,
    vary: str | Sequence[str] = ("load",),
    draws: Draws | None = None,
) -> Problem:
    """What `feasibly.load_problem` does with everything but files of pandapower and PyPSA; see there."""
    text = os.fspath(source)
    if not text.startswith("nonconvex:"):
        grid = read_grid(text, costs=costs, ignore=ignore, dc_lines=dc_lines)
        grid.tell()
        return acopf(grid, spread=spread, vary=vary, draws=draws)
    if check_vary(vary) != ("load",) or draws is not None:
        raise FeasiblyError(f"vary and draws are for grids; {text} has inputs of one kind")
    sizes = text.removeprefix("nonconvex:").split(",")
    if len(sizes) != 3 or not all(part.strip().isdigit() for part in sizes):
        raise FeasiblyError(
            f"{text!r} should read nonconvex:VARIABLES,EQUALITIES,INEQUALITIES, as in nonconvex:70,20,50"
        )
    variables, equalities, inequalities = (int(part) for part in sizes)
    return nonconvex(variables, equalities, inequalities, seed)


def describe(problem: Problem) -> Packed | None:
    """Plain values and arrays from which `rebuild` makes the same problem; `None` for a user's own."""
    return None if problem.spec is None else pack(problem.spec)


def rebuild(plain: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Problem:
    """The problem that `describe` described, now or before the codec had grids."""
    spec: dict[str, Any] = unpack(plain, arrays, dict)
    family = spec.get("family")
    try:
        if family == "acopf":
            grid = spec.get("grid") or Grid.from_arrays(str(spec["name"]), float(spec["base_mva"]), arrays)
            drawn = spec.get("draws")
            return acopf(
                grid,
                spread=float(spec["spread"]),
                vary=tuple(spec.get("vary", ("load",))),
                draws=Draws(**drawn) if isinstance(drawn, dict) else drawn,
            )
        if family == "nonconvex":
            sizes = (int(spec[key]) for key in ("variables", "equalities", "inequalities", "seed"))
            return nonconvex(*sizes)
    except KeyError as error:
        raise FeasiblyError(f"the stored description of a {family} problem lacks {error.args[0]!r}") from None
    raise FeasiblyError(f"problems of the family {family!r} are not known to this version of feasibly")


def grid_of(problem: Problem) -> Grid | None:
    """The grid behind an AC-OPF problem, or `None`."""
    return None if problem.spec is None else problem.spec.get("grid")
