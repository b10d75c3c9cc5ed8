"""What is screened: the hours of a profile, and the outages each of them is crossed with."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from feasibly.problem.core import Problem
from feasibly.problem.errors import FeasiblyError
from feasibly.problem.families import grid_of
from feasibly.problem.grid import Grid

Array = NDArray[np.float64]

NONE = "none"
"""The name of the grid with everything in service, which every outage is compared with."""
_STATUSES = ("branch", "generator")
_CLOCKS = ("hour", "time")
_FACTOR = "factor"


@dataclass(frozen=True, eq=False)
class ScreeningPlan:
    """Hours times outages.

    Attributes:
        hours: inputs with everything in service, `(hours, n_inputs)`.
        names: of the outages; the first is `none`.
        places: where in the input each takes a status to 0; -1 for `none`.
    """

    problem: Problem
    grid: Grid
    hours: Array
    names: tuple[str, ...]
    places: NDArray[np.int64]

    def rows(self, first: int, last: int) -> Array:
        """The inputs of hours `first` to `last` (left out) under every outage, outage after outage."""
        block = self.hours[first:last]
        x = np.repeat(block[None], len(self.places), axis=0)
        for k, place in enumerate(self.places.tolist()):
            if place >= 0:
                x[k, :, place] = 0.0
        return x.reshape(-1, self.hours.shape[1])

    @property
    def digest(self) -> str:
        """What tells one plan from another."""
        found = hashlib.sha256(self.problem.fingerprint.encode())
        found.update(repr(self.names).encode())
        found.update(np.ascontiguousarray(self.hours).tobytes())
        return found.hexdigest()[:32]


def make_plan(problem: Problem, profile: Any, outages: str | Sequence[str] = "all") -> ScreeningPlan:
    """Cross a profile with outages; see `screen` for what both may be.

    Raises:
        FeasiblyError: the model knows no outages, an outage has no such name, or the profile lacks something.
    """
    grid = grid_of(problem)
    able = {
        problem.input_names[place]: place
        for block in _STATUSES
        if block in problem.inputs
        for place in range(problem.inputs[block].start, problem.inputs[block].stop)
    }
    if grid is None or not able:
        raise FeasiblyError(
            f"the model of {problem.name} has no statuses among its inputs, so outages cannot be screened; label "
            'and train one with vary=("load", "branch", "generator")'
        )
    names = _outages(able, outages)
    places = np.array([-1, *(able[name] for name in names)], dtype=np.int64)
    return ScreeningPlan(problem, grid, _hours(problem, profile), (NONE, *names), places)


def _outages(able: Mapping[str, int], asked: str | Sequence[str]) -> list[str]:
    if isinstance(asked, str):
        asked = list(able) if asked == "all" else [part.strip() for part in asked.split(",") if part.strip()]
    kinds = {"branches": "branch_", "generators": "generator_"}
    found: list[str] = []
    for name in asked:
        chosen = [one for one in able if one.startswith(kinds[name])] if name in kinds else [name]
        unknown = [one for one in chosen if one not in able]
        if unknown:
            close = ", ".join(list(able)[:3])
            raise FeasiblyError(
                f"there is no outage {unknown[0]!r} in this model; say all, branches, generators, or names like {close}"
            )
        found += chosen
    if not found:
        raise FeasiblyError("no outage was asked for; say all, branches, generators, or names of elements")
    return list(dict.fromkeys(found))


def _hours(problem: Problem, profile: Any) -> Array:
    if isinstance(profile, Mapping) or hasattr(profile, "columns"):
        columns = {str(name): np.asarray(profile[name]) for name in profile}
        return _by_name(problem, columns)
    return _by_position(problem, profile)


def _by_position(problem: Problem, profile: ArrayLike) -> Array:
    try:
        table = np.asarray(profile, dtype=np.float64)
    except (TypeError, ValueError):
        raise FeasiblyError("the profile must be a table of numbers, an hour a row") from None
    loads = len(_loads(problem))
    if table.ndim != 2 or table.shape[1] not in (loads, problem.n_inputs) or not len(table):
        raise FeasiblyError(
            f"the profile should have an hour a row and {loads} columns (the loads) or {problem.n_inputs} (all "
            f"inputs), not shape {table.shape}"
        )
    hours = np.tile(problem.nominal, (len(table), 1))
    hours[:, : table.shape[1]] = table
    return _checked(problem, hours)


def _by_name(problem: Problem, columns: Mapping[str, NDArray[Any]]) -> Array:
    for clock in _CLOCKS:
        if clock in columns:
            _check_clock(clock, columns[clock])
    rows = len(next(iter(columns.values()))) if columns else 0
    if not rows:
        raise FeasiblyError("the profile has no hours")
    hours = np.tile(problem.nominal, (rows, 1))
    known = {name: place for place, name in enumerate(problem.input_names)}
    unknown = [name for name in columns if name not in known and name not in (*_CLOCKS, _FACTOR)]
    if unknown:
        raise FeasiblyError(
            f"the profile's column {unknown[0]!r} is no input of {problem.name}; its columns are hour or time, factor "
            f"(of all loads), and inputs like {', '.join(problem.input_names[:2])}"
        )
    loads = _loads(problem)
    if _FACTOR in columns:
        places = [known[name] for name in loads]
        hours[:, places] *= _numbers(_FACTOR, columns[_FACTOR])[:, None]
    else:
        missing = [name for name in loads if name not in columns]
        if missing:
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            raise FeasiblyError(
                f"the profile lacks {missing[0]}{more}; give every load a column, or all of them one called factor"
            )
    for name, place in known.items():
        if name in columns:
            hours[:, place] = _numbers(name, columns[name])
    return _checked(problem, hours)


def _loads(problem: Problem) -> list[str]:
    """The names of the loads among the inputs."""
    blocks = [problem.inputs[block] for block in ("pd", "qd") if block in problem.inputs]
    return [name for block in blocks for name in problem.input_names[block]]


def _numbers(name: str, values: NDArray[Any]) -> Array:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise FeasiblyError(f"the profile's column {name} holds something that is not a number") from None


def _check_clock(name: str, values: NDArray[Any]) -> None:
    """Hours follow one another: a whole number more each, or the same time apart."""
    if values.dtype.kind in "OUS":
        try:
            values = np.asarray(values, dtype="datetime64[s]")
        except (TypeError, ValueError):
            raise FeasiblyError(f"the profile's column {name} holds something that is no time") from None
    if values.dtype.kind == "M":
        values = values.astype("datetime64[s]").astype(np.int64)
    steps = np.diff(np.asarray(values, dtype=np.float64))
    if not len(steps):
        return
    usual = 1.0 if name == "hour" else float(np.median(steps))
    wrong = np.flatnonzero(np.abs(steps - usual) > 1e-6)
    if len(wrong):
        raise FeasiblyError(
            f"the profile's hours do not follow one another: between row {wrong[0] + 1} and row {wrong[0] + 2} "
            f"{name} moves by {steps[wrong[0]]:g} instead of {usual:g}; put in what is missing, in order"
        )


def _checked(problem: Problem, hours: Array) -> Array:
    bad = np.flatnonzero(~np.isfinite(hours).all(axis=1))
    if len(bad):
        place = int(np.flatnonzero(~np.isfinite(hours[bad[0]]))[0])
        raise FeasiblyError(
            f"the profile has no value for {problem.input_names[place]} in row {bad[0] + 1} (of {len(bad)} such rows); "
            "fill in or drop those hours"
        )
    problem.check_rows(hours)
    for block in _STATUSES:
        if block in problem.inputs and (hours[:, problem.inputs[block]] != 1.0).any():
            raise FeasiblyError("the profile has elements out of service; leave statuses to the screening")
    return hours
