"""Generation costs: from the file, from a table, or from a CSV file."""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from feasibly.problem.errors import Fault, argument

Costs = ArrayLike | str | os.PathLike[str]
Numbered = Sequence[tuple[int, Mapping[str, Any]]]
"""Elements in service, each with its row in the file."""

Prices = NDArray[np.float64]


def prices(
    generators: Numbered,
    costs: Costs | None,
    faults: list[Fault],
    corners: list[int] | None = None,
    *,
    count: int,
) -> Prices:
    """`c2, c1, c0` in $/MW^2h, $/MWh and $/h for each generator in service; what is wrong joins `faults`.

    Positions of generators whose cost in the file is piecewise linear join `corners`; their row is zero. `count` is
    how many generators the grid has, in service or not: a cost of any other is somebody's mistake.
    """
    if costs is None:
        return _from_file(generators, faults, [] if corners is None else corners)
    if isinstance(costs, (int, float)) and not isinstance(costs, bool):
        if np.isfinite(costs):
            return np.tile([0.0, float(costs), 0.0], (len(generators), 1))
        faults.append(Fault("costs", "must be a finite number"))
        return np.zeros((len(generators), 3))
    if isinstance(costs, (str, os.PathLike)):
        return _from_csv(generators, Path(costs), faults, count)
    return _from_table(generators, costs, faults)


def _from_file(generators: Numbered, faults: list[Fault], corners: list[int]) -> Prices:
    found = np.zeros((len(generators), 3))
    missing = []
    for i, (row, generator) in enumerate(generators):
        where = f"generator {row} (bus {generator['bus']})"
        cost = generator["cost"]
        if cost is None:
            missing.append(where)
            continue
        if cost["model"] != 2:
            corners.append(i)
            continue
        terms = [float(c) for c in cost["coeffs"]][: int(cost["ncost"])]
        if not all(np.isfinite(terms)):
            faults.append(Fault(where, "has a cost that is not a finite number"))
        elif any(terms[:-3]):
            degree = len(terms) - 1 - next(i for i, c in enumerate(terms) if c)
            what = f"has a cost of degree {degree}; only polynomials up to degree 2 are modelled"
            faults.append(Fault(where, what))
        else:
            last = terms[-3:]
            found[i, 3 - len(last) :] = last
    if len(missing) == len(generators) and missing:
        advice = f"this file carries none; {_pass_costs()} (a row a generator in service)"
        faults.append(Fault("generation costs", advice))
    else:
        faults += [Fault(where, f"has no cost; {_pass_costs()}") for where in missing]
    return found


def _from_table(generators: Numbered, costs: ArrayLike, faults: list[Fault]) -> Prices:
    wanted = f"expected {len(generators)} rows of c2, c1, c0 (one a generator in service)"
    try:
        table = np.asarray(costs, dtype=np.float64)
    except (TypeError, ValueError):
        faults.append(Fault("costs", f"{wanted}, all numbers"))
        return np.zeros((len(generators), 3))
    if table.shape != (len(generators), 3):
        faults.append(Fault("costs", f"{wanted}, got shape {table.shape}"))
    elif not np.isfinite(table).all():
        faults.append(Fault("costs", "every entry must be a finite number"))
    else:
        return table
    return np.zeros((len(generators), 3))


def _from_csv(generators: Numbered, path: Path, faults: list[Fault], count: int) -> Prices:
    found = np.zeros((len(generators), 3))
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            lines = list(csv.DictReader(file))
    except OSError as error:
        faults.append(Fault("costs", f"{path} cannot be read: {error.strerror}"))
        return found
    except (UnicodeDecodeError, csv.Error):
        faults.append(Fault("costs", f"{path} is not a CSV file in UTF-8"))
        return found
    given: dict[int, list[float]] = {}
    for number, line in enumerate(lines, start=2):
        try:
            row, terms = int(line["generator"]), [float(line[key]) for key in ("c2", "c1", "c0")]
        except (KeyError, TypeError, ValueError):
            what = "needs the columns generator, c2, c1, c0, all numbers"
            faults.append(Fault(f"costs, line {number}", what))
            return found
        if not all(np.isfinite(terms)):
            faults.append(Fault(f"costs, line {number}", "every cost must be a finite number"))
        if row in given:
            faults.append(Fault(f"costs, line {number}", f"generator {row} stands twice"))
        elif not 1 <= row <= count:
            what = f"there is no generator {row}; they are numbered from 1 to {count}"
            faults.append(Fault(f"costs, line {number}", what))
        given[row] = terms
    for i, (row, generator) in enumerate(generators):
        if row in given:
            found[i] = given[row]
        else:
            faults.append(Fault(f"generator {row} (bus {generator['bus']})", f"has no line in {path.name}"))
    return found


def _pass_costs() -> str:
    return f"pass {argument('costs', 'FILE')}, a table of c2, c1, c0"
