"""Many rows of an answer as pandapower's time series tables: one table a variable, one line a time step.

What is asked for most (voltages, prices, powers, currents, loadings) is computed for all rows at once; every other
variable comes row by row from pandapower's own code, right and slow (some 30 ms a row).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from feasibly.interop._pandapower_write import ResultTables
from feasibly.problem.errors import FeasiblyError
from feasibly.problem.flows import compute_flows

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]

LOG = (("res_bus", "vm_pu"), ("res_line", "loading_percent"))
"""What pandapower's output writer keeps unless told."""


def tabulate(
    answer: Any, net: Any, log: Iterable[tuple[str, str]] = LOG, index: Sequence[Any] | None = None
) -> dict[str, pd.DataFrame]:
    """`{"res_bus.vm_pu": table, ...}` with a line a row of `answer`; rows without an answer are NaN.

    Args:
        answer: answers to rows of a problem made of `net`.
        net: the net; it is not changed.
        log: pairs of result table and column, as pandapower's output writer takes them; `("res_cost", "")` is the
            cost.
        index: the time steps, in place of 0, 1, 2...
    """
    import pandas as pd

    if answer.problem is None or answer.x is None:
        raise FeasiblyError("this answer was put together without its problem and inputs, which a net needs")
    rows = len(answer.y)
    steps = list(range(rows)) if index is None else list(index)
    if len(steps) != rows:
        raise FeasiblyError(f"{rows} rows were answered and {len(steps)} time steps were given")
    one = ResultTables(net, answer.problem)
    answered = np.flatnonzero(np.isfinite(answer.y).all(axis=1))
    if not len(answered):
        raise FeasiblyError("no row has an answer, so there is nothing to tabulate")
    first = _one_row(one, answer, int(answered[0]))
    wanted = list(dict.fromkeys((str(table), str(column)) for table, column in log))
    for table, column in wanted:
        if table != "res_cost" and (table not in first or column not in first[table]):
            known = ", ".join(sorted(key for key in first if key != "res_cost"))
            raise FeasiblyError(
                f"there is no {table}.{column}; this net has {known}, with pandapower's columns"
            )
    at_once = _Columns(one, answer, answered)
    found: dict[str, Any] = {}
    slow: dict[tuple[str, str], Floats] = {}
    for table, column in wanted:
        if table == "res_cost":
            found["res_cost"] = pd.Series(np.asarray(answer.objective, dtype=float), index=steps)
            continue
        template = first[table][column]
        values = np.full((rows, len(template)), np.nan)
        quick = at_once.get(table, column)
        if quick is None:
            slow[table, column] = values
        else:
            where, block = quick
            values[answered] = template.to_numpy(dtype=float)  # what is out of service stands still
            values[np.ix_(answered, where)] = block
        found[f"{table}.{column}"] = pd.DataFrame(values, index=steps, columns=template.index, copy=False)
    if slow:
        for row in answered:
            tables = _one_row(one, answer, int(row))
            for (table, column), values in slow.items():
                values[row] = tables[table][column].to_numpy(dtype=float)
        for (table, column), values in slow.items():
            columns = first[table].index
            found[f"{table}.{column}"] = pd.DataFrame(values, index=steps, columns=columns)
    return found


def _one_row(one: ResultTables, answer: Any, row: int) -> dict[str, Any]:
    priced = answer.duals is not None
    return one.compute(
        answer.x[row],
        answer.y[row],
        float(answer.objective[row]),
        answer.prices[row] if priced else None,
        answer.reactive_prices[row] if priced else None,
    )


class _Columns:
    """Columns of result tables for all answered rows at once: which elements, and their values."""

    def __init__(self, one: ResultTables, answer: Any, rows: NDArray[np.int64]) -> None:
        self.case, self.grid = one.case, one.grid
        blocks = one.problem.blocks
        y = answer.y[rows]
        self.pg, self.qg, self.vm = (y[:, blocks[key]] for key in ("pg", "qg", "vm"))
        self.degrees = np.rad2deg(y[:, blocks["va"]]) + one.angle
        self.inputs = np.asarray(answer.x)[rows]
        self.answer, self.rows = answer, rows
        self.flows = compute_flows(one.problem, one.grid, self.inputs, y)
        self._branch: dict[str, tuple[NDArray[np.int64], dict[str, Floats]]] = {}

    def get(self, table: str, column: str) -> tuple[NDArray[np.int64], Floats] | None:
        """Positions in the table and `(rows, positions)`, or `None` where only pandapower knows."""
        if table == "res_bus":
            return self._bus(column)
        if table in ("res_line", "res_trafo"):
            return self._branches(table.removeprefix("res_"), column)
        if table in ("res_ext_grid", "res_gen", "res_sgen", "res_load", "res_storage"):
            return self._powers(table.removeprefix("res_"), column)
        return None

    def _bus(self, column: str) -> tuple[NDArray[np.int64], Floats] | None:
        known: dict[str, Callable[[], Floats]] = {
            "vm_pu": lambda: self.vm,
            "va_degree": lambda: self.degrees,
            "lam_p": lambda: self.answer.prices[self.rows],
            "lam_q": lambda: self.answer.reactive_prices[self.rows],
        }
        if column not in known or (column.startswith("lam") and self.answer.duals is None):
            return None
        net = self.case.net
        places = np.asarray(net._pd2ppc_lookups["bus"])[net.bus.index.values]
        where = np.flatnonzero(
            (places >= 0) & (places < self.grid.n_buses) & net.bus["in_service"].to_numpy(dtype=bool)
        )
        return where, known[column]()[:, places[where]]

    def _powers(self, table: str, column: str) -> tuple[NDArray[np.int64], Floats] | None:
        """Of generators, and of elements whose power is given."""
        net, base = self.case.net, self.grid.base_mva
        position = {index: i for i, index in enumerate(net[table].index)}
        mine = [(i, index) for i, (name, index) in enumerate(self.case.generators) if name == table]
        where = [position[index] for _, index in mine]
        units = [i for i, _ in mine]
        if table == "gen" and column in ("vm_pu", "va_degree"):
            values = self.vm if column == "vm_pu" else self.degrees
            return np.array(where, dtype=np.int64), values[:, self.grid.gen_bus[units]]
        if column not in ("p_mw", "q_mvar"):
            return None
        made = (self.pg if column == "p_mw" else self.qg)[:, units] * base
        made = -made if table in ("load", "storage") else made
        count = self.grid.n_loads
        given = self.inputs[:, :count] if column == "p_mw" else self.inputs[:, count : 2 * count]
        drawn = [i for i, name in enumerate(self.case.draws.table) if name == table]
        where += [position[int(self.case.draws.index[i])] for i in drawn]
        taken = given[:, drawn] * (-base if table == "sgen" else base)
        return np.array(where, dtype=np.int64), np.concatenate([made, taken], axis=1)

    def _branches(self, table: str, column: str) -> tuple[NDArray[np.int64], Floats] | None:
        if table not in self._branch:
            self._branch[table] = self._flows(table)
        where, columns = self._branch[table]
        return (where, columns[column]) if column in columns else None

    def _flows(self, table: str) -> tuple[NDArray[np.int64], dict[str, Floats]]:
        from pandapower.pypower.idx_bus import BASE_KV

        grid, net, base = self.grid, self.case.net, self.grid.base_mva
        span = net._pd2ppc_lookups["branch"].get(table)
        if span is None:
            return np.zeros(0, dtype=np.int64), {}
        row_of = np.flatnonzero(self.case.ppci["internal"]["branch_is"])
        mine = np.flatnonzero((row_of >= span[0]) & (row_of < span[1]))
        where = row_of[mine] - span[0]
        flows = self.flows
        at_from = (flows.p_from[:, mine] + 1j * flows.q_from[:, mine]) * base
        at_to = (flows.p_to[:, mine] + 1j * flows.q_to[:, mine]) * base
        f, t = grid.branch_from[mine], grid.branch_to[mine]
        kilovolt = self.case.ppci["bus"][:, BASE_KV].real
        i_from, i_to = (
            np.abs(power) / (self.vm[:, end] * kilovolt[end]) / np.sqrt(3.0)
            for power, end in ((at_from, f), (at_to, t))
        )
        a, b = ("from", "to") if table == "line" else ("hv", "lv")
        found = {
            f"p_{a}_mw": at_from.real, f"q_{a}_mvar": at_from.imag, f"p_{b}_mw": at_to.real,
            f"q_{b}_mvar": at_to.imag, "pl_mw": (at_from + at_to).real, "ql_mvar": (at_from + at_to).imag,
            f"i_{a}_ka": i_from, f"i_{b}_ka": i_to, f"vm_{a}_pu": self.vm[:, f], f"vm_{b}_pu": self.vm[:, t],
            f"va_{a}_degree": self.degrees[:, f], f"va_{b}_degree": self.degrees[:, t],
        }  # fmt: skip
        rows = net[table].iloc[where]
        if table == "line":
            found["i_ka"] = np.maximum(i_from, i_to)
            most = (rows["max_i_ka"] * rows["df"] * rows["parallel"]).to_numpy(dtype=float)
            found["loading_percent"] = 100.0 * found["i_ka"] / np.where(most == 0.0, np.nan, most)
            found["loading_percent"] = np.where(most == 0.0, np.inf, found["loading_percent"])
        else:
            rated = (rows["sn_mva"] * rows["parallel"] * rows["df"]).to_numpy(dtype=float)
            carried = np.maximum(i_from * rows["vn_hv_kv"].to_numpy(), i_to * rows["vn_lv_kv"].to_numpy())
            found["loading_percent"] = 100.0 * carried * np.sqrt(3.0) / rated
        return where, found
