"""Proven lower bounds: do they hold, and how near are they to the relaxation's own value?

python benchmarks/proofs.py CASE [CASE ...] --out benchmarks/results/proofs.json [--instances 1000 --conic 100]

A proxy of each case is trained (256 labels, 60 s) and its prover with it (64 relaxations). Fresh instances are then
solved, answered and bounded; for the first of them the relaxation is solved by Clarabel, which shares no code with us.
A bound above a solved cost would be wrong, and is counted.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

import feasibly as fb
from feasibly.problem.families import grid_of
from feasibly.report.machine import describe_machine

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.conic import relax

LABELS, BUDGET, SEED = 256, 60.0, 20261116
SOLVED_TO = 1e-7
"""Labels satisfy constraints to about 1e-8 per unit; their cost may be below the exact optimum by as small a share."""


def measure(case: str, instances: int, conic: int, labels: int, budget: float) -> dict[str, Any]:
    problem = fb.load_problem(case)
    grid = grid_of(problem)
    data = fb.label(problem, count=labels, seed=0, jobs=1)
    proxy = fb.fit(problem, data, budget=budget)
    began = time.perf_counter()
    proxy.learn_proofs(budget=4.0 * budget)
    training = time.perf_counter() - began
    x = fb.sample(problem, instances, seed=SEED)
    proxy.predict(x, prove=True)  # compiles
    plain = proxy.predict(x, "conditioned")
    found = proxy.predict(x, "conditioned", prove=True)
    solved = fb.label(problem, x, jobs=1)
    fine = solved.solved
    cost = solved.objective
    row: dict[str, Any] = {
        "case": case, "instances": instances, "solved": int(fine.sum()), "labels": labels,
        "loose_pairs": len(proxy._prover.loose), "prover_training_seconds": training,
        "above_the_solved_cost": int((found.lower_bound[fine] > cost[fine] * (1.0 + SOLVED_TO)).sum()),
        "proven_infeasible": int(np.isposinf(found.lower_bound).sum()),
        "proven_infeasible_but_solved": int((np.isposinf(found.lower_bound) & fine).sum()),
        "proven_gap_percent": _quantiles(found.proven_gap_percent[fine & np.isfinite(found.proven_gap_percent)]),
        "gap_histogram": _histogram(found.proven_gap_percent[fine & np.isfinite(found.proven_gap_percent)]),
        "conditioned_ms": 1e3 * plain.seconds / instances, "with_proof_ms": 1e3 * found.seconds / instances,
        "nominal_gap_percent": _nominal(proxy),
    }  # fmt: skip
    chosen = np.flatnonzero(fine)[:conic]
    relaxed = [relax(grid, x[i, : grid.n_loads], x[i, grid.n_loads :]) for i in chosen]
    value = np.array([r.value for r in relaxed])
    own = 100.0 * (cost[chosen] - value) / cost[chosen]
    lost = 100.0 * (value - found.lower_bound[chosen]) / cost[chosen]
    row |= {
        "conic": len(chosen), "conic_status": dict(Counter(r.status for r in relaxed)),
        "relaxation_gap_percent": _quantiles(own), "lost_percent": _quantiles(lost),
        "lost_share_of_relaxation_gap": float(np.median(lost) / np.median(own)),
    }  # fmt: skip
    return row


def _nominal(proxy: fb.Proxy) -> float:
    found = proxy.predict(proxy.problem.nominal, "polished", prove=True)
    return float(found.proven_gap_percent[0])


def _quantiles(values: np.ndarray) -> dict[str, float]:
    return {f"{q}": float(np.percentile(values, q)) for q in (0, 50, 95, 100)} if len(values) else {}


def _histogram(values: np.ndarray) -> dict[str, list[float]]:
    counts, edges = np.histogram(values, bins=20)
    return {"counts": counts.tolist(), "edges": edges.tolist()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("cases", nargs="+")
    parser.add_argument("--instances", type=int, default=1000)
    parser.add_argument("--conic", type=int, default=100)
    parser.add_argument("--labels", type=int, default=LABELS)
    parser.add_argument("--budget", type=float, default=BUDGET)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    rows = json.loads(options.out.read_text())["rows"] if options.out.exists() else []
    for case in options.cases:
        row = measure(case, options.instances, options.conic, options.labels, options.budget)
        print(json.dumps(row), flush=True)
        rows = [kept for kept in rows if kept["case"] != case] + [row]
        document = {
            "about": "Lower bounds proven for instances with loads within 20 % of nominal, beside solved costs and the "
            "relaxation solved by Clarabel. Made by benchmarks/proofs.py.",
            **describe_machine(),
            "rows": rows,
        }
        options.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
