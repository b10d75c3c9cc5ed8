"""Profiles of a pandapower net, element by element and time step by time step, as inputs of its problem."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from feasibly.interop._pandapower_case import check_net, convert
from feasibly.problem.core import Problem
from feasibly.problem.errors import Fault, FeasiblyError, ProblemError
from feasibly.problem.families import grid_of

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]

_COLUMNS = {
    "load": ("p_mw", "q_mvar", "scaling"),
    "sgen": ("p_mw", "q_mvar", "scaling"),
    "storage": ("p_mw", "q_mvar", "scaling"),
    "ward": ("ps_mw", "qs_mvar"),
    "xward": ("ps_mw", "qs_mvar"),
}


def read_profiles(net: Any) -> dict[tuple[str, str], pd.DataFrame]:
    """The profiles of the net's own `ConstControl` controllers, by table and column.

    Raises:
        ProblemError: listing every controller in service that is something else.
    """
    import pandas as pd
    from pandapower.control import ConstControl

    faults: list[Fault] = []
    parts: dict[tuple[str, str], list[pd.DataFrame]] = {}
    for number, row in net.controller.iterrows():
        control = row["object"]
        if not row["in_service"]:
            continue
        frame = getattr(getattr(control, "data_source", None), "df", None)
        if not isinstance(control, ConstControl) or frame is None:
            kind = type(control).__name__
            what = f"is a {kind}; profiles are read from ConstControl with a DFData source alone"
            faults.append(Fault(f"controller {number}", what))
            continue
        names, elements = np.atleast_1d(control.profile_name), np.atleast_1d(control.element_index)
        values = frame.loc[:, list(names)].astype(float) * control.scale_factor
        parts.setdefault((control.element, control.variable), []).append(
            values.set_axis(elements, axis="columns")
        )
    if faults:
        raise ProblemError("the net's controllers", faults)
    return {key: pd.concat(frames, axis="columns") for key, frames in parts.items()}


def profile_inputs(
    net: Any,
    problem: Problem,
    profiles: Mapping[tuple[str, str], pd.DataFrame],
    time_steps: Sequence[Any] | None = None,
) -> tuple[Floats, list[Any]]:
    """Inputs of `problem`, one row a time step, and the time steps.

    Args:
        net: the pandapower net that `problem` was made of.
        problem: made by `from_pandapower`.
        profiles: `{("load", "p_mw"): table, ("sgen", "p_mw"): table, ...}`; a table has a line a time step and a column
            an element, named by its index. What has no profile keeps its value in the net.
        time_steps: which lines, in order; all that every table has unless told.

    Raises:
        ProblemError: listing every profile of something that is no input, and values that are missing.
    """
    check_net(net)
    if grid_of(problem) is None:
        raise FeasiblyError(f"{problem.name} is not a grid, so profiles of a net do not fit it")
    if not profiles:
        raise FeasiblyError("there are no profiles; pass tables, or add ConstControl controllers to the net")
    case = convert(net)
    draws, work = case.draws, case.net
    steps = list(next(iter(profiles.values())).index) if time_steps is None else list(time_steps)
    place = {(table, int(i)): k for k, (table, i) in enumerate(zip(draws.table, draws.index, strict=True))}
    own = [(table, int(i)) for table, i in zip(draws.table, draws.index, strict=True)]

    def given(column: str) -> Floats:
        """The net's own values; what pandapower adds up itself is as it is."""
        found = []
        for k, (table, index) in enumerate(own):
            if table == "rest":
                found.append({"p": draws.p, "q": draws.q}.get(column[0], np.ones(len(own)))[k])
            elif column == "scaling":
                found.append(work[table]["scaling"].get(index, 1.0) if "scaling" in work[table] else 1.0)
            else:
                name = ("ps_mw", "qs_mvar") if table.endswith("ward") else ("p_mw", "q_mvar")
                found.append(work[table].at[index, name[column != "p"]])
        return np.tile(np.asarray(found, dtype=np.float64), (len(steps), 1))

    values = {column: given(column) for column in ("p", "q", "scaling")}
    faults: list[Fault] = []
    for (table, column), frame in profiles.items():
        where = f"{table}.{column}"
        if column not in _COLUMNS.get(table, ()):
            faults.append(Fault(where, "is no input; profiles give the power or scaling of loads and sgens"))
            continue
        missing = [step for step in steps if step not in frame.index]
        if missing:
            faults.append(
                Fault(where, f"has no line for {len(missing)} time steps, the first of them {missing[0]!r}")
            )
            continue
        lines = frame.loc[steps]
        for name in lines.columns:
            series = lines[name].to_numpy(dtype=np.float64, na_value=np.nan)
            if not np.isfinite(series).all():
                faults.append(Fault(f"{where} {name}", "has values that are missing or infinite"))
            elif (table, int(name)) in place:
                short = "scaling" if column == "scaling" else column[0]
                values[short][:, place[table, int(name)]] = series
            elif int(name) not in net[table].index:
                faults.append(Fault(f"{where} {name}", f"there is no {table} {name} in the net"))
            elif _is_controllable(net[table], int(name)):
                what = "is controllable, so its power is decided, not given"
                faults.append(Fault(f"{where} {name}", what))
    if faults:
        raise ProblemError("the profiles", faults)
    sign = np.array([-1.0 if table == "sgen" else 1.0 for table in draws.table])
    blocks = []
    for column, name in (("p", "p_mw"), ("q", "q_mvar")):
        limited = _within_limits(values[column], own, work, name)
        blocks.append(limited * values["scaling"] * sign / case.base)
    x = np.concatenate(blocks, axis=1)
    rest = np.tile(problem.nominal[x.shape[1] :], (len(steps), 1))
    return np.concatenate([x, rest], axis=1), steps


def _is_controllable(table: Any, index: int) -> bool:
    return "controllable" in table and bool(np.nan_to_num(table.at[index, "controllable"], nan=0.0))


def _within_limits(values: Floats, own: Sequence[tuple[str, int]], net: Any, column: str) -> Floats:
    """Static generators stay within their limits, as pandapower has it."""
    for k, (table, index) in enumerate(own):
        if table == "sgen":
            low, high = (
                net.sgen.at[index, f"{end}_{column}"] if f"{end}_{column}" in net.sgen else np.nan
                for end in ("min", "max")
            )
            # A limit that is missing (NaN) limits nothing.
            values[:, k] = np.fmin(np.fmax(values[:, k], low), high)
    return values
