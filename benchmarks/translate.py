"""What a label costs: translated against hand-written, warm against cold, ours against IPOPT and PYPOWER.

    python benchmarks/translate.py                              57, 118 and 500 buses, one core, about two minutes
    python benchmarks/translate.py --cases case57_ieee --rows 10

Every row is solved by every method before the next row begins, so that a slow moment of the machine falls on all of
them; times are processor time. Writes benchmarks/results/labels.json.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from feasibly.problem.families import grid_of, load_problem
from feasibly.problem.sampling import sample
from feasibly.solve import Solver, SolverOptions
from feasibly.solve.model import build_model
from handwritten import Handwritten, Pypower
from pglib_baseline import RESULTS, machine

CASES = ("case57_ieee", "case118_ieee", "case500_goc")
SEED = 7
Method = Callable[[np.ndarray], tuple[bool, float, int]]


def ours(solver: Solver) -> Method:
    def method(x: np.ndarray) -> tuple[bool, float, int]:
        solution = solver.solve(x)
        return solution.outcome.ok, solution.objective, solution.iterations

    return method


def measure(case: str, rows: int, pypower_rows: int) -> dict[str, Any]:
    problem = load_problem(f"pglib:{case}")
    grid = grid_of(problem)
    assert grid is not None
    began = time.process_time()
    model = build_model(problem)
    building = time.process_time() - began
    yardstick = Handwritten(grid)
    yardstick.remember(problem.nominal)
    solvers = {warm: Solver(model, SolverOptions(warm=warm)) for warm in ("interior", "ipopt", "none")}
    methods: dict[str, Method] = {
        "hand-written, IPOPT cold": lambda x: yardstick.solve("cold", x),
        "translated, IPOPT cold": ours(solvers["none"]),
        "hand-written, IPOPT warm": lambda x: yardstick.solve("warm", x),
        "translated, IPOPT warm": ours(solvers["ipopt"]),
        "translated, interior (default)": ours(solvers["interior"]),
    }
    if pypower_rows:
        reference = Pypower(grid)
        methods["PYPOWER"] = lambda x: (*reference.solve(x), 0)
    seconds: dict[str, list[float]] = {name: [] for name in methods}
    iterations: dict[str, list[int]] = {name: [] for name in methods}
    worst = 0.0
    inputs = sample(problem, rows + 1, seed=SEED)
    for number, x in enumerate(inputs):
        objectives = []
        for name, method in methods.items():
            if name == "PYPOWER" and number > pypower_rows:
                continue
            began = time.process_time()
            solved, objective, count = method(x)
            elapsed = time.process_time() - began
            if number and solved:  # the first row warms everything up
                seconds[name].append(elapsed)
                iterations[name].append(count)
            if solved:
                objectives.append(objective)
        if objectives:
            worst = max(worst, max(objectives) / min(objectives) - 1.0)
    table = {
        name: {
            "milliseconds": 1e3 * float(np.mean(seconds[name])),
            "iterations": float(np.mean(iterations[name])),
            "rows": len(seconds[name]),
        }
        for name in methods
        if seconds[name]
    }
    return {
        "case": case,
        "build_seconds": building,
        "methods": table,
        "largest_relative_difference_of_objectives": worst,
        "ratios": ratios({name: entry["milliseconds"] for name, entry in table.items()}),
    }


def ratios(milliseconds: dict[str, float]) -> dict[str, float]:
    def over(slow: str, fast: str) -> float:
        return milliseconds.get(slow, float("nan")) / milliseconds[fast]

    default = "translated, interior (default)"
    found = {
        "translated / hand-written, cold": over("translated, IPOPT cold", "hand-written, IPOPT cold"),
        "translated / hand-written, warm": over("translated, IPOPT warm", "hand-written, IPOPT warm"),
        "cold / default": over("translated, IPOPT cold", default),
        "hand-written cold / default": over("hand-written, IPOPT cold", default),
        "hand-written warm / default": over("hand-written, IPOPT warm", default),
        "PYPOWER / translated cold": over("PYPOWER", "translated, IPOPT cold"),
        "PYPOWER / default": over("PYPOWER", default),
    }
    return {name: value for name, value in found.items() if np.isfinite(value)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", nargs="+", default=list(CASES))
    parser.add_argument("--rows", type=int, default=40)
    parser.add_argument("--pypower-rows", type=int, default=5, help="0 leaves PYPOWER out")
    parser.add_argument("--out", type=Path, default=RESULTS / "labels.json")
    arguments = parser.parse_args()
    pypower_rows = arguments.pypower_rows if importlib.util.find_spec("pypower") else 0
    reports = []
    for case in arguments.cases:
        report = measure(case, arguments.rows, pypower_rows)
        reports.append(report)
        print(f"\n{case}: {report['build_seconds']:.2f} s to translate and differentiate")
        for name, entry in report["methods"].items():
            print(f"  {name:32s} {entry['milliseconds']:9.2f} ms  {entry['iterations']:6.1f} iterations")
        for name, value in report["ratios"].items():
            print(f"  {name:32s} {value:9.2f} x")
        print(
            f"  objectives agree to              {report['largest_relative_difference_of_objectives']:.1e}",
            flush=True,
        )
    document = {"benchmark": "labels", **machine(), "seed": SEED, "time": "processor", "cases": reports}
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
