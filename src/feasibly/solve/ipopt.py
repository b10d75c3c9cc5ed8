"""IPOPT through CasADi: the reference solver, and the last resort of rows that are hard."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import casadi
import numpy as np

from feasibly.problem.point import Point
from feasibly.solve.model import NlpModel
from feasibly.solve.optimality import OptimalityTest
from feasibly.solve.outcome import Outcome
from feasibly.solve.ranges import Ranges
from feasibly.solve.records import Array, AttemptResult, SolverOptions
from feasibly.solve.settings import SolverSettings

_OUTCOMES: Mapping[str, Outcome] = {
    "Solve_Succeeded": Outcome.OK,
    "Infeasible_Problem_Detected": Outcome.INFEASIBLE,
    "Maximum_Iterations_Exceeded": Outcome.ITERATION_LIMIT,
    "Maximum_CpuTime_Exceeded": Outcome.TIME_LIMIT,
    "Maximum_WallTime_Exceeded": Outcome.TIME_LIMIT,
    "Diverging_Iterates": Outcome.UNBOUNDED,
    "Invalid_Number_Detected": Outcome.EVALUATION,
}
"""What IPOPT says; anything else is a numerical breakdown."""

_PERHAPS = frozenset({"Solved_To_Acceptable_Level", "Feasible_Point_Found"})
"""It stopped short of its tolerance (a hundred times that is acceptable to it), or asks for no more than a feasible
point where equalities leave no freedom: such a point is a label if it passes the test that all labels pass."""

_INTERRUPTED = frozenset({"User_Requested_Stop", "NonIpopt_Exception_Thrown"})
"""CasADi swallows Ctrl-C and these come back; it turns every other exception into a failed evaluation."""

_QUIET = {"print_time": False, "show_eval_warnings": False, "error_on_fail": False, "calc_lam_p": False}


class Ipopt:
    """IPOPT on one model, one instance of it for each kind of start, made when first used."""

    def __init__(self, model: NlpModel, options: SolverOptions, settings: SolverSettings) -> None:
        self.model = model
        self.options = options
        self.settings = settings
        self._solvers: dict[str, Any] = {}
        self._derivatives: dict[str, Any] = {}
        self._tighter: dict[str, float] = {}

    def for_costs_like(self, cost: float) -> Ipopt:
        """The same where answers cost about that: if it is little, the duality gap may be less."""
        s = self.settings
        limits = self.model.n_inequalities + 2 * len(self.model.free)
        least = max(s.relative_gap * abs(cost) / max(limits, 1), s.ipopt_complementarity)
        if not 0.0 < least < self.options.tolerance:
            return self
        other = Ipopt(self.model, self.options, self.settings)
        other._derivatives, other._tighter = self._derivatives, {"compl_inf_tol": least}
        return other

    @functools.cached_property
    def _ranges(self) -> Ranges:
        return Ranges(self.model)

    @functools.cached_property
    def _optimality(self) -> OptimalityTest:
        return OptimalityTest(self.model, self.settings)

    def attempt(self, kind: str, x: Array, start: Point | None = None) -> AttemptResult:
        """Solve one row: `kind` is `cold`, `raised`, `other`, or `warm` with a start.

        Raises:
            KeyboardInterrupt: Ctrl-C was pressed meanwhile.
        """
        solver, model = self._solver(kind), self.model
        row_lower, row_upper = self._ranges.bounds(x)
        lower, upper = model.bounds_at(x)
        arguments = {
            "p": x, "lbx": lower, "ubx": upper, "lbg": row_lower, "ubg": row_upper, "x0": model.start,
        }  # fmt: skip
        if kind == "raised":
            room = np.where(np.isfinite(lower) & np.isfinite(upper), upper - model.start, 0.0)
            arguments["x0"] = model.start + self.settings.raised_start * np.maximum(room, 0.0)
        if start is not None:
            arguments["x0"] = np.clip(start.y, lower, upper)
            arguments["lam_g0"] = self._ranges.join(start.duals.equality, start.duals.inequality)
            arguments["lam_x0"] = start.duals.upper - start.duals.lower
        raw = solver(**arguments)
        statistics = solver.stats()
        if statistics["return_status"] in _INTERRUPTED:
            raise KeyboardInterrupt
        y, rows, bounds = (np.asarray(raw[name]).ravel() for name in ("x", "lam_g", "lam_x"))
        point = Point.of(y, *self._ranges.split(x, rows), np.maximum(-bounds, 0.0), np.maximum(bounds, 0.0))
        outcome = _OUTCOMES.get(statistics["return_status"], Outcome.NUMERICAL)
        if statistics["return_status"] in _PERHAPS:
            optimal = self._optimality.holds(x, point, self.options.tolerance)
            outcome = Outcome.OK if optimal else Outcome.INACCURATE
        return AttemptResult(point, outcome, int(statistics["iter_count"]))

    def _solver(self, kind: str) -> Any:
        if kind not in self._solvers:
            settings: dict[str, Any] = {
                "print_level": 0,
                "sb": "yes",
                "tol": self.options.tolerance,
                "max_iter": self.options.max_iterations,
                "max_wall_time": self.options.max_seconds,
                "constr_viol_tol": self.settings.ipopt_margin * self.options.feasibility,
                # IPOPT widens bounds by 1e-8 unless told not to; clipping a solution back then disturbs
                # equalities by that much times the largest admittance.
                "bound_relax_factor": 0.0,
                **self._tighter,
                **_options_of(kind, self.settings),
            }
            if not self._derivatives:
                self._derivatives = self._ranges.derivatives()
            plugin_options = {**_QUIET, **self._derivatives, "ipopt": settings}
            self._solvers[kind] = casadi.nlpsol(kind, "ipopt", self._ranges.nlp, plugin_options)
        return self._solvers[kind]


def _options_of(kind: str, settings: SolverSettings) -> dict[str, Any]:
    """IPOPT's options for one kind of start.

    From the problem's first guess (`cold`); from above it (`raised`); from it with another barrier strategy and no
    scaling (`other`); from a given point (`warm`).
    """
    if kind == "warm":
        pushed = ("bound_push", "bound_frac", "slack_bound_push", "slack_bound_frac", "mult_bound_push")
        return {
            "warm_start_init_point": "yes",
            "max_iter": settings.ipopt_iterations,
            "mu_init": settings.ipopt_barrier,
            **{f"warm_start_{name}": settings.ipopt_push for name in pushed},
        }
    if kind == "other":
        push = settings.ipopt_other_push
        return {
            "mu_strategy": "adaptive",
            "nlp_scaling_method": "none",
            "bound_push": push,
            "bound_frac": push,
        }
    return {}
