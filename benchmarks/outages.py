"""Outages, costs and ratings as inputs: rows that hold, gap and time, beside the same grid with loads alone.

    python benchmarks/outages.py --case pglib:case118_ieee --labels 1024 --rows 1000 --out FILE.json

Loads within 20 % and one outage a row (with `--everything`, costs within 30 % and ratings within 20 % on top). A tenth
of the elements is never out in a label (`--held-out`); rows in which one of those is out are reported apart. Rows that
have no solution are left out, as the solver says which. Times are the median of a few rounds in processor seconds, the
answers to loads alone and to outages taking turns in one process; the solver's are those of the first hundred rows.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import feasibly as fb
from feasibly.measure.metrics import measure_rows
from feasibly.report.machine import describe_machine

HOLDS = 1e-4
ROUNDS = 3
SOLVED = 100
ANSWERS = ("conditioned", "auto")
OUTAGES = ("load", "branch", "generator")
EVERYTHING = (*OUTAGES, "cost", "rating")

Array = NDArray[np.float64]


def outage_of(problem: fb.Problem, x: Array) -> NDArray[np.int64]:
    """Where in the input each row has its outage; -1 without one."""
    first = problem.inputs["branch"].start
    out = x[:, first : problem.inputs["generator"].stop] == 0.0
    return np.where(out.any(axis=1), first + out.argmax(axis=1), -1)


def solved_rows(
    problem: fb.Problem, count: int, seed: int, jobs: int, store: Path, leave: set[int]
) -> fb.Dataset:
    """`count` rows with a solution and none of the outages in `leave`, solved at most once."""
    asked = count
    while True:
        x = fb.sample(problem, asked, seed=seed)
        if leave:
            x = x[~np.isin(outage_of(problem, x), list(leave))]
        data = fb.label(problem, x, jobs=jobs, out=store)
        if data.n_labels >= count:
            return data.labelled(count)
        asked += max(count - data.n_labels, 8) * 2


def held_out(problem: fb.Problem, share: float) -> set[int]:
    """Elements that are never out in a label, drawn by a seed."""
    able = np.arange(problem.inputs["branch"].start, problem.inputs["generator"].stop)
    random = np.random.default_rng(7)
    return set(random.choice(able, int(share * len(able)), replace=False).tolist())


def figures(problem: fb.Problem, test: fb.Dataset, y: Array, rows: NDArray[np.bool_]) -> dict[str, Any]:
    """Of some rows: how many hold, and the gap of those that do."""
    if not rows.any():
        return {"rows": 0}
    found = measure_rows(problem, test.x[rows], y[rows], test.objective[rows])
    holds = found.worst < HOLDS
    gap = found.gap_percent[holds]
    return {
        "rows": int(rows.sum()),
        "share_holding": float(holds.mean()),
        "gap_percent_mean": float(gap.mean()) if len(gap) else None,
        "gap_percent_worst": float(gap.max()) if len(gap) else None,
    }


def timed(proxy: fb.Proxy, x: Array, answer: str) -> tuple[fb.Answer, float]:
    """An answer and what it took, in processor seconds an instance."""
    began = time.process_time()
    found = proxy.predict(x, answer)
    return found, (time.process_time() - began) / len(x)


def solving(problem: fb.Problem, x: Array) -> float:
    """What the solver takes, in processor seconds an instance."""
    from feasibly.solve import Solver

    solver = Solver.build(problem)
    solver.solve(x[0])
    began = time.process_time()
    for row in x:
        solver.solve(row)
    return (time.process_time() - began) / len(x)


def measure(case: str, vary: tuple[str, ...], args: argparse.Namespace) -> list[dict[str, Any]]:
    """Every answer to one grid under outages, beside loads alone."""
    name = case.split(":")[-1]
    problem, plain = fb.load_problem(case, vary=vary), fb.load_problem(case)
    leave = held_out(problem, args.held_out)
    folder, kind = Path(args.data), "-".join(vary)
    labels = solved_rows(problem, args.labels, 0, args.jobs, folder / f"{name}-{kind}-labels.zarr", leave)
    test = solved_rows(problem, args.rows, 1, args.jobs, folder / f"{name}-{kind}-test.zarr", set())
    fixed = solved_rows(plain, args.labels + args.rows, 0, args.jobs, folder / f"{name}-load.zarr", set())
    proxies, seconds = {}, {}
    for key, (what, rows) in {"outages": (problem, labels), "loads": (plain, fixed)}.items():
        began = time.perf_counter()
        proxies[key] = fb.fit(what, rows, budget=args.budget, labels=args.labels)
        seconds[key] = time.perf_counter() - began
    inputs = {"outages": test.x, "loads": fixed.x[args.labels :][: args.rows]}
    unseen = np.isin(outage_of(problem, test.x), list(leave))
    solver = solving(problem, test.x[:SOLVED])
    lines = []
    for answer in args.answers.split(","):
        took: dict[str, list[float]] = {"outages": [], "loads": []}
        for _ in range(ROUNDS + 1):  # the first compiles
            for key, proxy in proxies.items():
                found, spent = timed(proxy, inputs[key], answer)
                took[key].append(spent)
                if key == "outages":
                    y, levels = found.y, found.level
        per = {key: statistics.median(times[1:]) for key, times in took.items()}
        lines.append({
            "case": name, "vary": list(vary), "answer": answer, "labels": args.labels,
            "fit_seconds": seconds["outages"], "seen": figures(problem, test, y, ~unseen),
            "unseen": figures(problem, test, y, unseen), "milliseconds": 1e3 * per["outages"],
            "milliseconds_loads_alone": 1e3 * per["loads"], "times_loads_alone": per["outages"] / per["loads"],
            "solver_milliseconds": 1e3 * solver, "times_solving": per["outages"] / solver,
            "levels": {level: levels.count(level) for level in sorted(set(levels))},
        })  # fmt: skip
        print(json.dumps(lines[-1]), flush=True)
    return lines


def main() -> None:
    """Read the command line, measure, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--case", action="append", help="a grid; 57, 118 and 500 unless told")
    parser.add_argument("--labels", type=int, default=1024)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--budget", type=float, default=120.0)
    parser.add_argument("--held-out", type=float, default=0.1)
    parser.add_argument("--answers", default=",".join(ANSWERS))
    parser.add_argument("--everything", action="store_true", help="costs and ratings vary too")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--data", default="data/outages", help="where solved rows are kept")
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    cases = args.case or ["pglib:case57_ieee", "pglib:case118_ieee", "pglib:case500_goc"]
    Path(args.data).mkdir(parents=True, exist_ok=True)
    lines = [
        line for case in cases for line in measure(case, EVERYTHING if args.everything else OUTAGES, args)
    ]
    result = {"machine": describe_machine(), "rows": lines}
    Path(args.out).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
