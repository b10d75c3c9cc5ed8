"""Yardsticks for labelling: AC-OPF written by hand in CasADi, and PYPOWER.

The CasADi model is what an experienced user would write: vector expressions, one row with two bounds for an angle
difference, IPOPT with exact derivatives, and IPOPT's own warm start from the nominal solution.
"""

from __future__ import annotations

from typing import Any

import casadi
import numpy as np

from feasibly.problem.grid import Grid

WARM = {
    "warm_start_init_point": "yes",
    "mu_init": 1e-4,
    "warm_start_bound_push": 1e-6,
    "warm_start_bound_frac": 1e-6,
    "warm_start_slack_bound_push": 1e-6,
    "warm_start_slack_bound_frac": 1e-6,
    "warm_start_mult_bound_push": 1e-6,
}


class Handwritten:
    """AC-OPF of a grid in CasADi; `solve(x)` with `x = [pd, qd]` over the loads, per unit."""

    def __init__(self, grid: Grid) -> None:
        n, g = grid.n_buses, grid.n_generators
        pg, qg = casadi.SX.sym("pg", g), casadi.SX.sym("qg", g)
        vm, va = casadi.SX.sym("vm", n), casadi.SX.sym("va", n)
        load = casadi.SX.sym("load", 2 * grid.n_loads)
        f, t = grid.branch_from.tolist(), grid.branch_to.tolist()
        y_ff, y_ft, y_tf, y_tt = grid.admittances()
        angle, product = va[f] - va[t], vm[f] * vm[t]
        cos, sin = product * casadi.cos(angle), product * casadi.sin(angle)
        p_from = y_ff.real * vm[f] ** 2 + y_ft.real * cos + y_ft.imag * sin
        q_from = -y_ff.imag * vm[f] ** 2 + y_ft.real * sin - y_ft.imag * cos
        p_to = y_tt.real * vm[t] ** 2 + y_tf.real * cos - y_tf.imag * sin
        q_to = -y_tt.imag * vm[t] ** 2 - y_tf.real * sin - y_tf.imag * cos

        def gather(places: np.ndarray, values: Any) -> Any:
            pattern = casadi.Sparsity.triplet(n, len(places), places.tolist(), list(range(len(places))))
            return casadi.mtimes(casadi.DM(pattern, 1.0), values)

        def balance(made: Any, drawn: Any, at_from: Any, at_to: Any, shunt: np.ndarray) -> Any:
            flows = gather(grid.branch_from, at_from) + gather(grid.branch_to, at_to)
            shunts = gather(grid.shunt_bus, casadi.DM(shunt)) * vm**2
            return gather(grid.gen_bus, made) - gather(grid.load_bus, drawn) - shunts - flows

        active = balance(pg, load[: grid.n_loads], p_from, p_to, grid.gs)
        reactive = balance(qg, load[grid.n_loads :], q_from, q_to, -grid.bs)
        rated = np.flatnonzero(np.isfinite(grid.rate)).tolist()
        square = grid.rate[rated] ** 2
        at_from = p_from[rated] ** 2 + q_from[rated] ** 2
        at_to = p_to[rated] ** 2 + q_to[rated] ** 2
        rows = casadi.vertcat(active, reactive, at_from, at_to, angle)
        self.row_lower = np.concatenate([np.zeros(2 * n), np.full(2 * len(rated), -np.inf), grid.angmin])
        self.row_upper = np.concatenate([np.zeros(2 * n), square, square, grid.angmax])
        low, high = np.full(n, -np.inf), np.full(n, np.inf)
        low[grid.reference] = high[grid.reference] = 0.0
        self.lower = np.concatenate([grid.pmin, grid.qmin, grid.vmin, low])
        self.upper = np.concatenate([grid.pmax, grid.qmax, grid.vmax, high])
        middle = (grid.pmin + grid.pmax) / 2, (grid.qmin + grid.qmax) / 2
        self.start = np.concatenate([*middle, np.ones(n), np.zeros(n)])
        c2, c1, c0 = (casadi.DM(column) for column in grid.cost.T)
        cost = casadi.sum1(c2 * pg**2 + c1 * pg + c0)
        self._nlp = {"x": casadi.vertcat(pg, qg, vm, va), "p": load, "f": cost, "g": rows}
        self._solvers = {"cold": self._make({}), "warm": self._make(WARM)}
        self._nominal: dict[str, Any] | None = None

    def _make(self, settings: dict[str, Any]) -> Any:
        quiet = {"print_time": False, "show_eval_warnings": False, "error_on_fail": False}
        return casadi.nlpsol(
            "s", "ipopt", self._nlp, {**quiet, "ipopt": {"print_level": 0, "sb": "yes", **settings}}
        )

    def remember(self, nominal: np.ndarray) -> None:
        """Solve the nominal input, from which `warm` starts."""
        self._nominal = self._run("cold", nominal, {"x0": self.start})

    def solve(self, kind: str, x: np.ndarray) -> tuple[bool, float, int]:
        """Whether it was solved, the objective in $/h, and the iterations."""
        if kind == "cold":
            raw = self._run(kind, x, {"x0": self.start})
        else:
            assert self._nominal is not None
            at = self._nominal
            raw = self._run(kind, x, {"x0": at["x"], "lam_x0": at["lam_x"], "lam_g0": at["lam_g"]})
        statistics = self._solvers[kind].stats()
        return bool(statistics["success"]), float(raw["f"]), int(statistics["iter_count"])

    def _run(self, kind: str, x: np.ndarray, start: dict[str, Any]) -> dict[str, Any]:
        bounds = {"lbx": self.lower, "ubx": self.upper, "lbg": self.row_lower, "ubg": self.row_upper}
        return dict(self._solvers[kind](p=x, **bounds, **start))


class Pypower:
    """The same grid in PYPOWER's interior-point solver, from its own start."""

    def __init__(self, grid: Grid) -> None:
        from pypower.api import ppoption

        n, g, b, base = grid.n_buses, grid.n_generators, grid.n_branches, grid.base_mva
        bus = np.zeros((n, 13))
        bus[:, 0], bus[:, 1], bus[:, 6], bus[:, 7], bus[:, 9], bus[:, 10] = np.arange(n) + 1, 1, 1, 1, 1, 1
        bus[np.unique(grid.gen_bus), 1] = 2
        bus[grid.reference, 1] = 3
        bus[:, 11], bus[:, 12] = grid.vmax, grid.vmin
        np.add.at(bus[:, 4], grid.shunt_bus, grid.gs * base)
        np.add.at(bus[:, 5], grid.shunt_bus, grid.bs * base)
        gen = np.zeros((g, 21))
        gen[:, 0], gen[:, 5], gen[:, 6], gen[:, 7] = grid.gen_bus + 1, 1, base, 1
        gen[:, 3], gen[:, 4], gen[:, 8], gen[:, 9] = (
            base * limit for limit in (grid.qmax, grid.qmin, grid.pmax, grid.pmin)
        )
        branch = np.zeros((b, 13))
        branch[:, 0], branch[:, 1] = grid.branch_from + 1, grid.branch_to + 1
        branch[:, 2], branch[:, 3], branch[:, 4] = grid.r, grid.x, grid.b_from + grid.b_to
        branch[:, 5] = np.where(np.isfinite(grid.rate), grid.rate * base, 0.0)
        branch[:, 8], branch[:, 9], branch[:, 10] = grid.tap, np.degrees(grid.shift), 1
        branch[:, 11], branch[:, 12] = np.degrees(grid.angmin), np.degrees(grid.angmax)
        cost = np.zeros((g, 7))
        cost[:, 0], cost[:, 3] = 2, 3
        cost[:, 4:] = grid.cost / np.array([base**2, base, 1.0])
        self._grid = grid
        self._case = {
            "version": "2", "baseMVA": base, "bus": bus, "gen": gen, "branch": branch, "gencost": cost,
        }  # fmt: skip
        self._options = ppoption(VERBOSE=0, OUT_ALL=0)

    def solve(self, x: np.ndarray) -> tuple[bool, float]:
        """Whether it was solved, and the objective in $/h."""
        from pypower.api import runopf

        grid, case = self._grid, {**self._case, "bus": self._case["bus"].copy()}
        np.add.at(case["bus"][:, 2], grid.load_bus, x[: grid.n_loads] * grid.base_mva)
        np.add.at(case["bus"][:, 3], grid.load_bus, x[grid.n_loads :] * grid.base_mva)
        answer = runopf(case, self._options)
        return bool(answer["success"]), float(answer["f"])
