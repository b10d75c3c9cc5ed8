"""Answers into pandapower's result tables, by pandapower's own code: the tables are those `runopp` leaves behind."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from feasibly.interop._pandapower_case import Case, check_net, convert, quiet
from feasibly.interop.pandapower import build_grid
from feasibly.problem.core import Problem
from feasibly.problem.errors import Fault, FeasiblyError, ProblemError
from feasibly.problem.families import grid_of
from feasibly.problem.flows import compute_flows
from feasibly.problem.grid import Grid

Floats = NDArray[np.float64]

_SAME = (
    "bus_id", "gen_bus", "load_bus", "branch_from", "branch_to", "r", "x", "g_from", "b_from", "g_to", "b_to", "tap",
    "shift", "shunt_bus", "gs", "bs",
)  # fmt: skip
"""What an answer's problem and the net it is written to must agree on; limits, costs and loads may have changed."""


class ResultTables:
    """A net made ready once, to have the tables of many rows computed."""

    def __init__(self, net: Any, problem: Problem) -> None:
        """Convert `net` and check that `problem` is its optimal power flow.

        Raises:
            FeasiblyError: where `problem` is not a grid, or another one than this net.
        """
        check_net(net)
        grid = grid_of(problem)
        if grid is None:
            raise FeasiblyError(f"{problem.name} is not a grid, so there is nothing to write into a net")
        self.case = convert(net)
        self.problem = problem
        self.grid: Grid = grid
        here = build_grid(self.case, net, grid.name, "current")
        faults = [
            Fault(key, "differs between the net and the problem that was answered")
            for key in _SAME
            if getattr(here, key).shape != getattr(grid, key).shape
            or not np.allclose(getattr(here, key), getattr(grid, key), rtol=1e-9, atol=1e-12)
        ]
        if faults or here.base_mva != grid.base_mva:
            raise ProblemError("this net", faults or [Fault("sn_mva", "differs from the problem's base")])
        self.angle = _reference_angles(self.case, grid)
        self._hold_inputs()

    def compute(
        self, x: Floats, y: Floats, cost: float, prices: Floats | None, reactive_prices: Floats | None
    ) -> dict[str, Any]:
        """Every result table of one row, and `res_cost`; prices in currency per MWh a bus, NaN where not given."""
        from pandapower.results import _copy_results_ppci_to_ppc, _extract_results

        self._set_inputs(x)
        net, ppc = self.case.net, self.case.ppc
        result = self._solved_case(x, y, cost, prices, reactive_prices)
        with quiet(), np.errstate(all="ignore"):
            _extract_results(net, _copy_results_ppci_to_ppc(result, ppc, mode="opf"))
        tables = {key: net[key] for key in net if key.startswith("res_") and not key.startswith("res_cost")}
        keep = {key: table.copy() for key, table in tables.items() if len(table)}
        return keep | {"res_cost": float(cost)}

    def _solved_case(
        self, x: Floats, y: Floats, cost: float, prices: Floats | None, reactive_prices: Floats | None
    ) -> dict[str, Any]:
        from pandapower.pypower import idx_brch, idx_bus, idx_gen

        base, blocks = self.grid.base_mva, self.problem.blocks
        pg, qg, vm, va = (y[blocks[key]] for key in ("pg", "qg", "vm", "va"))
        result = {key: copy.copy(value) for key, value in self.case.ppci.items()}
        bus, gen, branch = result["bus"], result["gen"], result["branch"]
        if bus.shape[1] <= idx_bus.LAM_Q:
            bus = result["bus"] = np.hstack([bus, np.zeros((len(bus), idx_bus.MU_VMIN + 1 - bus.shape[1]))])
        bus[:, idx_bus.VM], bus[:, idx_bus.VA] = vm, np.rad2deg(va) + self.angle
        for place, value in ((idx_bus.LAM_P, prices), (idx_bus.LAM_Q, reactive_prices)):
            bus[:, place] = np.nan if value is None else value
        gen[:, idx_gen.PG], gen[:, idx_gen.QG] = pg * base, qg * base
        gen[:, idx_gen.VG] = vm[self.grid.gen_bus]
        flows = compute_flows(self.problem, self.grid, x[None], y[None])
        for key in ("p_from", "q_from", "p_to", "q_to"):
            branch[:, getattr(idx_brch, f"{key[0]}{key[2]}".upper())] = getattr(flows, key)[0] * base
        return result | {"f": float(cost), "success": True, "et": 0.0}

    def _hold_inputs(self) -> None:
        """The copy's tables take powers as they are given: no scaling, no limits of static generators."""
        draws, net = self.case.draws, self.case.net
        for table in {name for name in draws.table if name != "rest"}:
            rows = draws.index[np.array(draws.table) == table]
            if "scaling" in net[table]:
                net[table]["scaling"] = net[table]["scaling"].astype(float)
                net[table].loc[rows, "scaling"] = 1.0
            if table == "sgen":
                for column in ("min_p_mw", "max_p_mw", "min_q_mvar", "max_q_mvar"):
                    if column in net.sgen:
                        net.sgen[column] = net.sgen[column].astype(float)
                        net.sgen.loc[rows, column] = np.nan

    def _set_inputs(self, x: Floats) -> None:
        draws, base, count = self.case.draws, self.grid.base_mva, self.grid.n_loads
        names = np.array(draws.table)
        for table in set(draws.table) - {"rest"}:
            which = np.flatnonzero(names == table)
            sign = -1.0 if table == "sgen" else 1.0
            letters = ("ps_mw", "qs_mvar") if table.endswith("ward") else ("p_mw", "q_mvar")
            for column, values in zip(letters, (x[:count], x[count : 2 * count]), strict=True):
                self.case.net[table][column] = self.case.net[table][column].astype(float)
                self.case.net[table].loc[draws.index[which], column] = sign * base * values[which]


def write_pandapower(answer: Any, net: Any, row: int = 0) -> None:
    """Fill the result tables of `net` with one row of `answer`, as `runopp` would; see `Answer.write_pandapower`."""
    rows = len(answer.y)
    if not -rows <= row < rows:
        raise FeasiblyError(f"there is no row {row}; the answer has {rows}, counted from 0")
    if not np.isfinite(answer.y[row]).all():
        raise FeasiblyError(f"row {row} has no answer: {answer.outcome[row].advice}")
    if answer.problem is None or answer.x is None:
        raise FeasiblyError("this answer was put together without its problem and inputs, which a net needs")
    priced = answer.duals is not None
    tables = ResultTables(net, answer.problem).compute(
        answer.x[row],
        answer.y[row],
        float(answer.objective[row]),
        answer.prices[row] if priced else None,
        answer.reactive_prices[row] if priced else None,
    )
    for key, table in tables.items():
        net[key] = table
    net["OPF_converged"], net["converged"] = True, False


def _reference_angles(case: Case, grid: Grid) -> Floats:
    """Degrees to add at every bus: a problem's references are at zero, a net's where its external grids say."""
    from pandapower.pypower.idx_bus import VA

    n = grid.n_buses
    ends = coo_array((np.ones(grid.n_branches), (grid.branch_from, grid.branch_to)), shape=(n, n))
    _, island = connected_components(ends, directed=False)
    angle = np.zeros(n)
    for reference in grid.reference:
        angle[island == island[reference]] = case.ppci["bus"][reference, VA]
    return angle
