"""Units in files: a grid's columns in MW, Mvar and degrees, said in their names; per unit and radians on request."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feasibly.problem.core import Problem
from feasibly.problem.families import grid_of

Columns = dict[str, NDArray[Any]]

KEPT = ("id", "row", "name", "scenario", "time", "timestamp", "date", "datetime")
"""Columns of an input file that say which row is which: they come back first in the file of answers."""

_POWERS = {"pd": "mw", "qd": "mvar", "pg": "mw", "qg": "mvar", "pdc_from": "mw", "pdc_to": "mw", "qdc_from": "mvar",
           "qdc_to": "mvar", "plink": "mw", "qlink": "mvar", "reserve": "mw", "rating": "mva"}  # fmt: skip
_PRICES = {"price": "per_mwh", "price_energy": "per_mwh", "price_losses": "per_mwh", "price_congestion": "per_mwh",
           "reactive_price": "per_mvarh"}  # fmt: skip
_FLOWS = {"p_from": "mw", "q_from": "mvar", "p_to": "mw", "q_to": "mvar"}


def input_units(problem: Problem) -> dict[str, tuple[str, float]]:
    """For every input that has a unit: its name with that unit, and what one of it per unit comes to."""
    grid = grid_of(problem)
    found: dict[str, tuple[str, float]] = {}
    if grid is not None:
        for block, where in problem.inputs.items():
            if block in _POWERS:
                for name in problem.input_names[where]:
                    found[name] = (f"{name}_{_POWERS[block]}", grid.base_mva)
    return found


def output_units(problem: Problem) -> dict[str, tuple[str, float]]:
    """For every output of a grid: its name with a unit, and what one of it in the problem's units comes to."""
    grid = grid_of(problem)
    found: dict[str, tuple[str, float]] = {}
    if grid is None:
        return found
    for block, where in problem.blocks.items():
        for name in problem.output_names[where]:
            if block in _POWERS:
                found[name] = (f"{name}_{_POWERS[block]}", grid.base_mva)
            elif block == "va":
                found[name] = (f"{name}_degree", math.degrees(1.0))
            elif block == "vm":
                found[name] = (f"{name}_pu", 1.0)
    return found


def with_units(problem: Problem, columns: Mapping[str, NDArray[Any]]) -> Columns:
    """Columns of answers in MW, Mvar, degrees and per unit of voltage, each with its unit in its name.

    Multipliers, the objective (currency per hour) and the largest violations (per unit) stay as they are.
    """
    grid = grid_of(problem)
    if grid is None:
        return dict(columns)
    known = output_units(problem)
    found: Columns = {}
    for name, values in columns.items():
        head, _, rest = name.partition("_")
        if name in known:
            named, factor = known[name]
            found[named] = values * factor
        elif head in ("std", "lower", "upper") and rest in known:
            named, factor = known[rest]
            found[f"{head}_{named}"] = values * factor
        elif (flow := name.rpartition("_")[0]) in _FLOWS:
            found[f"{name}_{_FLOWS[flow]}"] = values * grid.base_mva
        elif flow in _PRICES and name != "price_limit":
            found[f"{name}_{_PRICES[flow]}"] = values
        elif flow == "loading":
            found[f"{name}_percent"] = values
        else:
            found[name] = values
    return found


def input_columns(problem: Problem, x: NDArray[np.float64], *, per_unit: bool) -> Columns:
    """Inputs as the columns of a file that `predict` reads."""
    units = {} if per_unit else input_units(problem)
    found: Columns = {}
    for i, name in enumerate(problem.input_names):
        named, factor = units.get(name, (name, 1.0))
        found[named] = x[:, i] * factor
    return found
