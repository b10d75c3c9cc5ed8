"""Answers in the forms people work with: xarray, columns of a table, and the limits that bind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from feasibly.answer.record import Answer
from feasibly.problem.families import grid_of
from feasibly.problem.flows import Limit, equality_names, limits

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

Array = NDArray[np.float64]

ON_THE_LIMIT = 1e-5
"""Room, in natural units, below which a limit counts as binding."""


def _at_buses(answer: Answer) -> Iterator[tuple[str, Array]]:
    if answer.duals is not None:
        parts = answer.price_parts
        yield "price", answer.prices
        yield "price_energy", parts.energy
        yield "price_losses", parts.losses
        yield "price_congestion", parts.congestion
        yield "reactive_price", answer.reactive_prices


def _on_branches(answer: Answer) -> Iterator[tuple[str, Array]]:
    flows = answer.flows
    for name in ("p_from", "q_from", "p_to", "q_to", "loading"):
        yield name, getattr(flows, name)


def _scalars(answer: Answer) -> Iterator[tuple[str, NDArray[Any]]]:
    yield "objective", answer.objective
    yield "max_equality", answer.max_equality
    yield "max_inequality", answer.max_inequality
    yield "outcome", np.array([outcome.name for outcome in answer.outcome], dtype=np.str_)
    yield "rung", np.array([str(rung) for rung in answer.rung], dtype=np.str_)
    if answer.gap_limit is not None:
        yield "gap_limit_percent", np.asarray(answer.gap_limit)
    if answer.price_limit is not None:
        yield "price_limit", np.asarray(answer.price_limit)
    for name in ("lower_bound", "proven_gap_percent"):
        if getattr(answer, name) is not None:
            yield name, getattr(answer, name)


def _effort(answer: Answer) -> Iterator[tuple[str, NDArray[Any]]]:
    """What answered each row, and what that took."""
    if len(answer.level) == len(answer):
        yield "level", np.array([str(level) for level in answer.level], dtype=np.str_)
    for name in ("steps", "factorisations"):
        if getattr(answer, name) is not None:
            yield name, np.asarray(getattr(answer, name))


def columns(
    answer: Answer, *, std: bool, duals: bool, grid: bool, effort: bool = False
) -> Mapping[str, NDArray[Any]]:
    """Named columns of one length, in order."""
    problem = answer._known
    here = grid_of(problem)
    names = answer.output_names
    found: dict[str, NDArray[Any]] = {name: answer.y[:, i] for i, name in enumerate(names)}
    found |= dict(_scalars(answer)) | (dict(_effort(answer)) if effort else {})

    def write(prefix: str, labels: Any, values: Any) -> None:
        wide = np.broadcast_to(values, (len(answer), len(labels)))
        found.update({f"{prefix}_{label}": np.array(wide[:, i]) for i, label in enumerate(labels)})

    for kind, values in (
        ("std", answer.std if std else None),
        ("lower", answer.lower),
        ("upper", answer.upper),
    ):
        if values is not None:
            write(kind, names, values)
    if answer.duals is not None and (duals or (grid and here is not None)):
        found["unique_duals"] = answer.unique_duals
    if duals and answer.duals is not None:
        write("dual", equality_names(problem, here), answer.duals.equality)
        write("dual", [limit.name for limit in limits(problem, here)[1]], answer.duals.inequality)
        write("dual_lower", names, answer.duals.lower)
        write("dual_upper", names, answer.duals.upper)
    if grid and here is not None:
        for name, values in _at_buses(answer):
            write(name, here.bus_id, values)
        for name, values in _on_branches(answer):
            write(name, here.branch_id, values)
    return found


def to_xarray(answer: Answer) -> xr.Dataset:
    """Everything in one dataset: dimensions row, input, output; equality and inequality; bus and branch."""
    import xarray as xr

    problem = answer._known
    here = grid_of(problem)
    data: dict[str, Any] = {}
    coords: dict[str, Any] = {"row": np.arange(len(answer)), "output": list(answer.output_names)}
    if answer.x is not None:
        coords["input"] = list(answer.input_names)
        data["x"] = (("row", "input"), answer.x)
    for name in ("y", "std", "lower", "upper"):
        values = getattr(answer, name)
        if values is not None:
            data[name] = (("row", "output"), np.broadcast_to(values, answer.y.shape))
    data |= {name: (("row",), values) for each in (_scalars, _effort) for name, values in each(answer)}
    if answer.duals is not None:
        data["unique_duals"] = (("row",), answer.unique_duals)
        coords["equality"] = equality_names(problem, here)
        coords["inequality"] = [limit.name for limit in limits(problem, here)[1]]
        data["dual_equality"] = (("row", "equality"), answer.duals.equality)
        data["dual_inequality"] = (("row", "inequality"), answer.duals.inequality)
        data["dual_lower"] = (("row", "output"), answer.duals.lower)
        data["dual_upper"] = (("row", "output"), answer.duals.upper)
    if here is not None:
        coords |= {"bus": here.bus_id, "branch": here.branch_id}
        data |= {name: (("row", "bus"), values) for name, values in _at_buses(answer)}
        data |= {name: (("row", "branch"), values) for name, values in _on_branches(answer)}
    attributes = {"problem": problem.name, "seconds": answer.seconds, "warnings": list(answer.warnings)}
    return xr.Dataset(data, coords=coords, attrs=attributes)


class Binding(NamedTuple):
    """A limit that an answer lies on."""

    row: int
    limit: Limit
    slack: float
    multiplier: float
    """NaN where there is none."""


def find_binding(answer: Answer) -> list[Binding]:
    """The limits that answers lie on, by row; fixed outputs are no limits."""
    problem, duals = answer._known, answer.duals
    outputs, rows = limits(problem, grid_of(problem))
    lower, upper = problem.bounds(answer._inputs)
    moving = lower < upper
    room = [
        (np.where(moving, answer.y - lower, np.inf), outputs, {"end": "minimum"}, "lower"),
        (np.where(moving, upper - answer.y, np.inf), outputs, {"end": "maximum"}, "upper"),
        (-problem.violations(answer._inputs, answer.y), rows, {}, "inequality"),
    ]
    found = []
    for slack, what, end, part in room:
        prices = np.full(slack.shape, np.nan) if duals is None else getattr(duals, part)
        for row, i in np.argwhere(slack <= ON_THE_LIMIT):
            limit = replace(what[i], **end)
            found.append(Binding(int(row), limit, float(slack[row, i]), float(prices[row, i])))
    return sorted(found, key=lambda each: each.row)


def binding(answer: Answer) -> pd.DataFrame:
    """What `find_binding` finds, a line each."""
    import pandas as pd

    names = ["row", "component", "id", "limit", "slack", "multiplier"]
    found = [
        (row, limit.component, limit.id, limit.what, slack, multiplier)
        for row, limit, slack, multiplier in find_binding(answer)
    ]
    return pd.DataFrame(found, columns=names)
