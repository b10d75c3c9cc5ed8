"""The members of the suite of grids: their inputs, their labels and their reference optima, each made once and kept.

A member is a case in one regime of inputs. `uniform`: each load's P and Q within 20 % of nominal. `correlated`: one
system-wide factor in [0.75, 1.1] times local noise within 10 %. Where fewer than a third of the first draws have a
solution, the widest of 10, 5 and 2 % instead of 20 (both ranges of the correlated regime shrink in proportion); a
member that stays below at 2 % leaves the suite.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import casadi
import numpy as np
from numpy.typing import NDArray

import feasibly as fb
from feasibly.solve import Outcome, SolverOptions
from feasibly.solve.model import build_model

REGIMES = ("uniform", "correlated")
LEVELS = (0.2, 0.1, 0.05, 0.02)
ENOUGH = 1.0 / 3.0
FIRST = 30
"""So many draws tell whether enough of them have a solution."""
MOST_SECONDS = 5.0
"""Of solver, for each attempt at a draw."""
FACTOR, NOISE = (0.75, 1.1), 0.1
SEED = 2026

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Rows:
    """What a proxy of a member learns from and is asked."""

    store: Path
    labels: int
    x: Array
    """Unseen inputs that have a solution."""
    best: Array
    """IPOPT's cost for each of them; NaN where it found none."""
    label_cost: Array
    """The label's cost."""
    infeasible: Array
    """Inputs drawn among those, without a solution."""
    level: float
    drawn: int
    solved: int


class Member:
    """One case in one regime. `prepare` solves whatever is not there yet."""

    def __init__(self, case: str, regime: str, folder: Path) -> None:
        self.name = f"{case} {regime}"
        self.case, self.regime = case, regime
        self._folder = folder / f"{case}-{regime}"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._problem: fb.Problem | None = None

    @property
    def problem(self) -> fb.Problem:
        """Read on first use."""
        if self._problem is None:
            self._problem = fb.load_problem(f"pglib:{self.case}")
        return self._problem

    def prepare(self, labels: int, rows: int) -> Rows | None:
        """Labels, unseen rows and their references; `None` for a member that left the suite."""
        level = self._level()
        if level is None:
            return None
        data = self._draw(level, labels + rows)
        solved = np.flatnonzero(data.solved)
        test = solved[labels : labels + rows]
        between = np.arange(solved[labels - 1] + 1, test[-1] + 1)
        lost = between[data.outcome[between] == Outcome.INFEASIBLE.value]  # out of time is neither
        return Rows(
            store=Path(str(data.path)), labels=labels, x=data.x[test], best=self._references(data, test),
            label_cost=data.objective[test], infeasible=data.x[lost], level=level,
            drawn=int(test[-1]) + 1, solved=labels + rows,
        )  # fmt: skip

    # ---- labels ----------------------------------------------------------------------------------------

    def _level(self) -> float | None:
        note = self._folder / "level.json"
        if not note.exists():
            shares = {}
            for level in LEVELS:
                data = self._label(level, FIRST)
                shares[str(level)] = float(data.solved[:FIRST].mean())
                if shares[str(level)] >= ENOUGH:
                    break
            enough = [float(level) for level, share in shares.items() if share >= ENOUGH]
            note.write_text(json.dumps({"level": enough[0] if enough else None, "shares": shares}))
        found = json.loads(note.read_text())["level"]
        return None if found is None else float(found)

    def _draw(self, level: float, wanted: int) -> fb.Dataset:
        count = wanted
        while True:
            data = self._label(level, count)
            if data.n_labels >= wanted:
                return data
            share = max(data.n_labels / len(data), 0.1)
            count = len(data) + int((wanted - data.n_labels) / share) + 4

    def _label(self, level: float, count: int) -> fb.Dataset:
        store = self._folder / f"{level}.zarr"
        have = len(fb.Dataset.open(store)) if (store / "zarr.json").exists() else 0
        drawing: dict[str, Any] = {"spread": level}
        if self.regime == "correlated":
            part = level / LEVELS[0]
            low, high = (1.0 + part * (end - 1.0) for end in FACTOR)
            drawing = {"design": "correlated", "factor": (low, high), "noise": part * NOISE}
        return fb.label(
            self.problem, count=max(count, have), seed=SEED, jobs=1, out=store,
            options=SolverOptions(max_seconds=MOST_SECONDS), **drawing,
        )  # fmt: skip

    # ---- references ------------------------------------------------------------------------------------

    def _references(self, data: fb.Dataset, rows: NDArray[np.int64]) -> Array:
        file = Path(str(data.path)).with_suffix(".references.npz")
        known: dict[int, float] = {}
        if file.exists():
            with np.load(file) as stored:
                known = dict(zip(stored["row"].tolist(), stored["cost"].tolist(), strict=True))
        missing = [int(row) for row in rows if int(row) not in known]
        if missing:
            ipopt, began = Reference(self.problem), time.perf_counter()
            for i, row in enumerate(missing):
                known[row] = ipopt.cost(data.x[row])
                if i == len(missing) - 1 or time.perf_counter() - began > 30.0:
                    np.savez(file, row=np.array(list(known)), cost=np.array(list(known.values())))
                    began = time.perf_counter()
        return np.array([known[int(row)] for row in rows])


class Reference:
    """IPOPT at tolerance 1e-10 that widens no bound and stops at no acceptable level.

    Each row starts from the outputs of the nominal optimum and, where that fails, from the problem's first guess; from
    a label never.
    """

    def __init__(self, problem: fb.Problem) -> None:
        self.model = build_model(problem)
        settings = {
            "print_level": 0, "sb": "yes", "tol": 1e-10, "bound_relax_factor": 0.0, "max_iter": 1000,
            "acceptable_iter": 0, "max_wall_time": 60.0,
        }  # fmt: skip
        quiet = {"print_time": False, "show_eval_warnings": False, "error_on_fail": False}
        model = self.model
        self._upper = np.zeros(model.n_equalities + model.n_inequalities)
        self._lower = np.concatenate([np.zeros(model.n_equalities), np.full(model.n_inequalities, -np.inf)])
        # CasADi differentiates by itself here: a reference shares as little as it can with what it judges.
        self._solver = casadi.nlpsol("reference", "ipopt", model.nlp, {**quiet, "ipopt": settings})
        self._nominal = self._solve(model.nominal, model.start)

    def _solve(self, x: Array, start: Array) -> tuple[Array, float] | None:
        model = self.model
        lower, upper = model.bounds_at(x)
        found = self._solver(x0=start, p=x, lbx=lower, ubx=upper, lbg=self._lower, ubg=self._upper)
        if self._solver.stats()["return_status"] != "Solve_Succeeded":
            return None
        return np.asarray(found["x"]).ravel(), float(found["f"])

    def cost(self, x: Array) -> float:
        """The optimum's cost, or NaN."""
        starts = [] if self._nominal is None else [self._nominal[0]]
        for start in (*starts, self.model.start):
            found = self._solve(x, start)
            if found is not None:
                return found[1]
        return float("nan")
