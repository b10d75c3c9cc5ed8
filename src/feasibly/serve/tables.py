"""Files of inputs: CSV in, answers and their figures out."""

from __future__ import annotations

import csv
import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feasibly.answer.record import Answer
from feasibly.serve.limits import Limits
from feasibly.serve.refusal import Refused
from feasibly.serve.shelf import Served

Array = NDArray[np.float64]


def read_csv(body: bytes, served: Served, limits: Limits) -> Array:
    """Rows of inputs, columns by name in any order; an input without a column stays as usual.

    Raises:
        Refused: 422 naming what is wrong and where, 413 for too many rows.
    """
    try:
        text = body.decode("utf-8-sig")
        lines = [line for line in csv.reader(io.StringIO(text, newline="")) if line]
    except (UnicodeDecodeError, csv.Error) as error:
        raise Refused(422, f"this is not a CSV file in UTF-8: {error}") from None
    if len(lines) < 2:
        raise Refused(422, "the file needs a line of names and at least one of numbers")
    names = [name.strip() for name in lines[0]]
    if len(names) == 1 and ";" in names[0]:
        raise Refused(
            422, "the file separates its columns by semicolons; write it with commas and decimal points"
        )
    at = _columns(names, served)
    if len(lines) - 1 > limits.rows:
        raise Refused(
            413, f"a file may have {limits.rows} rows here, not {len(lines) - 1}; use feasibly predict"
        )
    x = np.tile(served.problem.nominal, (len(lines) - 1, 1))
    for i, line in enumerate(lines[1:]):
        if len(line) != len(names):
            raise Refused(422, f"row {i + 1} has {len(line)} cells and the first line {len(names)} names")
        try:
            x[i, at] = [float(cell) for cell in line]
        except ValueError:
            wrong = next(cell for cell in line if not _is_number(cell))
            raise Refused(422, f"row {i + 1} holds {wrong[:40]!r}, which is not a number") from None
    _check_units(x, served)
    return x


def _columns(names: list[str], served: Served) -> list[int]:
    unknown = [name for name in names if name not in served.position]
    twice = sorted({name for name in names if names.count(name) > 1}) if len(names) != len(set(names)) else []
    if unknown:
        known = ", ".join(served.problem.input_names[:3])
        raise Refused(
            422,
            f"{len(unknown)} of {len(names)} columns are no inputs of {served.name}, as {unknown[0][:40]!r}; "
            f"inputs are called {known}, ...",
        )
    if twice:
        raise Refused(422, f"the column {twice[0]} stands more than once")
    return [served.position[name] for name in names]


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _check_units(x: Array, served: Served) -> None:
    """Loads in MW where per unit is meant would all be answered, and all wrong."""
    grid = served.grid
    usual = float(np.abs(served.problem.nominal).sum())
    if grid is None or grid.base_mva < 10.0 or usual == 0.0:
        return
    times = float(np.median(np.nansum(np.abs(x), axis=1))) / usual
    if 0.3 <= times / grid.base_mva <= 3.0:
        raise Refused(
            422,
            f"the loads are about {times:.0f} times the usual ones, as if they were in MW; they are wanted per unit, "
            f"so divide them by the base of {grid.base_mva:g} MVA",
        )


def write_csv(served: Served, found: Answer) -> str:
    """One line a row: what became of it, its figures, and every output by name."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        ["outcome", "rung", "objective", "max_equality", "max_inequality", *served.problem.output_names]
    )
    for i in range(len(found)):
        figures = [found.objective[i], found.max_equality[i], found.max_inequality[i], *found.y[i]]
        writer.writerow([found.outcome[i].name, found.rung[i], *(_cell(value) for value in figures)])
    return out.getvalue()


def _cell(value: float) -> str:
    return repr(float(value)) if np.isfinite(value) else ""


def figures(served: Served, found: Answer) -> dict[str, Any]:
    """What the page plots, one number a row."""
    series: dict[str, Any] = {
        "objective": found.objective,
        "max_equality": found.max_equality,
        "max_inequality": found.max_inequality,
    }
    if served.grid is not None:
        with np.errstate(invalid="ignore"):
            loading = np.nan_to_num(found.loading, nan=-np.inf).max(axis=1)
        vm = found.y[:, served.problem.blocks["vm"]]
        series |= {"max_loading": loading, "vm_min": vm.min(axis=1), "vm_max": vm.max(axis=1)}
    return {
        "outcome": [outcome.name for outcome in found.outcome],
        "rung": list(found.rung),
        "series": {name: np.ascontiguousarray(values, dtype=np.float64) for name, values in series.items()},
    }
