"""IPOPT on a translated problem: built once, solved row by row, moved between processes as bytes."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import casadi
import numpy as np
from numpy.typing import ArrayLike

from feasibly.problem.errors import FeasiblyError
from feasibly.solve.outcome import Outcome
from feasibly.solve.records import Array, Solution, SolverOptions, Start

if TYPE_CHECKING:
    from feasibly.problem.core import Problem

_FORMAT = 1

_OUTCOMES: Mapping[str, Outcome] = {
    "Solve_Succeeded": Outcome.OK,
    "Solved_To_Acceptable_Level": Outcome.OK,
    "Feasible_Point_Found": Outcome.OK,
    "Search_Direction_Becomes_Too_Small": Outcome.NUMERICAL,
    "Infeasible_Problem_Detected": Outcome.INFEASIBLE,
    "Maximum_Iterations_Exceeded": Outcome.ITERATION_LIMIT,
    "Maximum_CpuTime_Exceeded": Outcome.TIME_LIMIT,
    "Maximum_WallTime_Exceeded": Outcome.TIME_LIMIT,
    "Diverging_Iterates": Outcome.UNBOUNDED,
    "Invalid_Number_Detected": Outcome.EVALUATION,
}

_QUIET = {
    "print_time": False,
    "show_eval_warnings": False,
    "error_on_fail": False,
    "calc_lam_p": False,
}


class Solver:
    """Solves one problem for many inputs.

    Made by `Solver.build(problem)`, or from bytes by `Solver.deserialise` where there is no `Problem` (and no JAX).
    The same bytes and the same row give the same answer to the last bit on one kind of machine: a row's start
    depends on the nominal solution and the row alone.
    """

    def __init__(
        self, functions: Mapping[str, Any], data: Mapping[str, Array], options: SolverOptions
    ) -> None:
        self._functions = dict(functions)
        self._data = {key: np.asarray(value, dtype=np.float64) for key, value in data.items()}
        self.options = options
        self._n_equalities, self._n_inequalities = (int(n) for n in self._data["sizes"])
        self._row_lower = np.concatenate(
            [np.zeros(self._n_equalities), np.full(self._n_inequalities, -np.inf)]
        )
        self._row_upper = np.zeros(self._n_equalities + self._n_inequalities)
        self._solvers: dict[str, Any] = {}
        self.nominal: Solution | None = None

    # ---- making ----------------------------------------------------------------------------------------

    @classmethod
    def build(cls, problem: Problem, options: SolverOptions | None = None) -> Solver:
        """Translate, differentiate, and solve the nominal input for the warm start.

        A problem whose nominal input has no solution is built all the same; its rows then start cold, and
        `solver.nominal.outcome` says why.

        Raises:
            TranslationError: the problem uses an operation that cannot be translated.
        """
        from feasibly.solve.translate import translate

        made = translate(problem)
        constraints = casadi.vertcat(made.equality, made.inequality)
        functions = _differentiate(made.x, made.y, made.objective, constraints)
        data = {
            "lower": problem.lower,
            "upper": problem.upper,
            "nominal": problem.nominal,
            "start": problem.start,
            "sizes": np.array([problem.n_equalities, problem.n_inequalities]),
        }
        solver = cls(functions, data, options or SolverOptions())
        solver.nominal = solver.solve(problem.nominal)
        return solver

    def serialise(self) -> bytes:
        """The solver as bytes for another process: functions, bounds, options and the nominal solution."""
        packed: dict[str, Any] = dict(self._data)
        names = sorted(self._functions)
        for name in names:
            packed[f"function_{name}"] = np.frombuffer(
                self._functions[name].serialize().encode("latin-1"), np.uint8
            )
        header = {"format": _FORMAT, "functions": names, "options": asdict(self.options)}
        if self.nominal is not None:
            header["nominal"] = {
                "objective": self.nominal.objective, "outcome": self.nominal.outcome.value,
                "iterations": self.nominal.iterations, "attempts": self.nominal.attempts,
            }  # fmt: skip
            for key in ("y", "equality_dual", "inequality_dual", "lower_dual", "upper_dual"):
                packed[f"nominal_{key}"] = getattr(self.nominal, key)
        packed["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **packed)
        return buffer.getvalue()

    @classmethod
    def deserialise(cls, packed: bytes) -> Solver:
        """The solver that `serialise` packed."""
        with np.load(io.BytesIO(packed), allow_pickle=False) as stored:
            arrays = dict(stored)
        header = json.loads(arrays.pop("header").tobytes())
        if header["format"] != _FORMAT:
            raise FeasiblyError("this solver was packed by another version of feasibly; build it again")
        functions = {}
        for name in header["functions"]:
            text = arrays.pop(f"function_{name}").tobytes().decode("latin-1")
            functions[name] = casadi.Function.deserialize(text)
        nominal = {
            key.removeprefix("nominal_"): arrays.pop(key)
            for key in list(arrays)
            if key.startswith("nominal_")
        }
        solver = cls(functions, arrays, SolverOptions(**header["options"]))
        if nominal:
            kept = header["nominal"]
            solver.nominal = Solution(
                **nominal, objective=kept["objective"], outcome=Outcome(kept["outcome"]),
                iterations=kept["iterations"], attempts=kept["attempts"], seconds=0.0,
            )  # fmt: skip
        return solver

    # ---- solving ---------------------------------------------------------------------------------------

    def solve(self, x: ArrayLike, start: Start | Solution | None = None) -> Solution:
        """Solve one row; never raises for a row that has no solution.

        Three attempts: warm (from `start`, or from the nominal solution), cold, and cold with other settings.

        Args:
            x: the input, `(n_inputs,)`.
            start: a primal-dual point to start the first attempt from instead of the nominal one.
        """
        x = np.asarray(x, dtype=np.float64)
        if x.shape != self._data["nominal"].shape:
            raise FeasiblyError(f"expected an input of shape {self._data['nominal'].shape}, got {x.shape}")
        began = time.perf_counter()
        if not np.isfinite(x).all():
            return self._failed(Outcome.NOT_FINITE_INPUT, 0, 0, began)
        outcomes: list[Outcome] = []
        iterations = 0
        for kind, point in self._attempts(start):
            solution, outcome, count = self._attempt(kind, x, point)
            iterations += count
            outcomes.append(outcome)
            if outcome.ok:
                return Solution(
                    **solution, outcome=outcome, iterations=iterations, attempts=len(outcomes),
                    seconds=time.perf_counter() - began,
                )  # fmt: skip
        # The restarts saw the problem from elsewhere; "infeasible" from any of them is the most useful answer.
        verdict = Outcome.INFEASIBLE if Outcome.INFEASIBLE in outcomes else outcomes[-1]
        return self._failed(verdict, iterations, len(outcomes), began)

    def _attempts(self, start: Start | Solution | None) -> Iterable[tuple[str, Start | None]]:
        if start is not None:
            yield "warm", start.as_start() if isinstance(start, Solution) else start
        elif self.options.warm and self.nominal is not None and self.nominal.outcome.ok:
            yield "warm", self.nominal.as_start()
        yield "cold", None
        yield "other", None

    def _attempt(self, kind: str, x: Array, point: Start | None) -> tuple[dict[str, Any], Outcome, int]:
        solver = self._solver(kind)
        lower, upper = self._data["lower"], self._data["upper"]
        arguments = {"p": x, "lbx": lower, "ubx": upper, "lbg": self._row_lower, "ubg": self._row_upper}
        if point is None:
            arguments["x0"] = self._data["start"]
        else:
            arguments["x0"] = np.clip(point.y, lower, upper)
            arguments["lam_g0"] = np.concatenate([point.equality_dual, point.inequality_dual])
            arguments["lam_x0"] = point.upper_dual - point.lower_dual
        raw = solver(**arguments)
        statistics = solver.stats()
        status = statistics["return_status"]
        if (
            status == "User_Requested_Stop"
        ):  # nothing but Ctrl-C asks for it, and CasADi swallows the exception
            raise KeyboardInterrupt
        outcome = _OUTCOMES.get(status, Outcome.NUMERICAL)
        solution = self._unpack(raw)
        if outcome.ok and not self._holds(solution["y"], np.asarray(raw["g"]).ravel()):
            outcome = Outcome.INACCURATE
        return solution, outcome, int(statistics["iter_count"])

    def _unpack(self, raw: Mapping[str, Any]) -> dict[str, Any]:
        rows = np.asarray(raw["lam_g"]).ravel()
        bounds = np.asarray(raw["lam_x"]).ravel()
        return {
            "y": np.asarray(raw["x"]).ravel(),
            "objective": float(raw["f"]),
            "equality_dual": rows[: self._n_equalities],
            "inequality_dual": np.maximum(rows[self._n_equalities :], 0.0),
            "lower_dual": np.maximum(-bounds, 0.0),
            "upper_dual": np.maximum(bounds, 0.0),
        }

    def _holds(self, y: Array, rows: Array) -> bool:
        most = self.options.feasibility
        below, above = self._data["lower"] - y, y - self._data["upper"]
        equal, less = np.abs(rows[: self._n_equalities]), rows[self._n_equalities :]
        return all(bool(np.all(part <= most)) for part in (equal, less, below, above))

    def _failed(self, outcome: Outcome, iterations: int, attempts: int, began: float) -> Solution:
        def nothing(size: int) -> Array:
            return np.full(size, np.nan)

        n = len(self._data["lower"])
        return Solution(
            nothing(n), float("nan"), nothing(self._n_equalities), nothing(self._n_inequalities), nothing(n), nothing(n),
            outcome, iterations, attempts, time.perf_counter() - began,
        )  # fmt: skip

    def _solver(self, kind: str) -> Any:
        if kind not in self._solvers:
            options: dict[str, Any] = {
                "print_level": 0,
                "sb": "yes",
                "tol": self.options.tolerance,
                "max_iter": self.options.max_iterations,
                "max_wall_time": self.options.max_seconds,
                "honor_original_bounds": "yes",
                **_SETTINGS[kind],
            }
            derivatives = {name: self._functions[name] for name in ("grad_f", "jac_g", "hess_lag")}
            self._solvers[kind] = casadi.nlpsol(
                kind, "ipopt", self._functions["nlp"], {**_QUIET, **derivatives, "ipopt": options}
            )
        return self._solvers[kind]


_SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "cold": {},
    "warm": {
        "warm_start_init_point": "yes",
        "mu_init": 1e-4,
        "warm_start_bound_push": 1e-6,
        "warm_start_bound_frac": 1e-6,
        "warm_start_slack_bound_push": 1e-6,
        "warm_start_slack_bound_frac": 1e-6,
        "warm_start_mult_bound_push": 1e-6,
    },
    "other": {"mu_strategy": "adaptive", "bound_relax_factor": 1e-7, "nlp_scaling_method": "none"},
}


def _differentiate(x: Any, y: Any, objective: Any, constraints: Any) -> dict[str, Any]:
    """The functions IPOPT calls, common subexpressions shared."""
    weight, multipliers = casadi.SX.sym("lam_f"), casadi.SX.sym("lam_g", constraints.shape[0])
    lagrangian = weight * objective + casadi.dot(multipliers, constraints)
    curvature, _ = casadi.hessian(lagrangian, y)
    shared = {"cse": True}
    return {
        "nlp": casadi.Function("nlp", [y, x], [objective, constraints], ["x", "p"], ["f", "g"], shared),
        "grad_f": casadi.Function(
            "grad_f", [y, x], [objective, casadi.gradient(objective, y)], ["x", "p"], ["f", "grad_f_x"], shared
        ),
        "jac_g": casadi.Function(
            "jac_g", [y, x], [constraints, casadi.jacobian(constraints, y)], ["x", "p"], ["g", "jac_g_x"], shared
        ),
        "hess_lag": casadi.Function(
            "hess_lag", [y, x, weight, multipliers], [casadi.triu(curvature)],
            ["x", "p", "lam_f", "lam_g"], ["triu_hess_gamma_x_x"], shared,
        ),
    }  # fmt: skip


def solve(problem: Problem, x: ArrayLike, options: SolverOptions | None = None) -> list[Solution]:
    """Solve every row of `x` in this process, one after the other.

    Raises:
        TranslationError: the problem uses an operation that cannot be translated.
        ProblemError: `x` does not have one row of `n_inputs` numbers an instance.
    """
    rows, _ = problem.check_rows(x)
    solver = Solver.build(problem, options)
    return [solver.solve(row) for row in rows]
