"""How long an answer takes: one instance at a time, a thousand at once, and IPOPT on the same instances beside it.

taskset -c 0 python benchmarks/latency.py CASE [CASE ...] --out benchmarks/results/latency.json

The default proxy, 512 labels; everything is compiled before it is timed. IPOPT is warm-started from the nominal
solution and, for comparison, started cold.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

import feasibly as fb
from feasibly.report.machine import describe_machine
from feasibly.solve.nlp import Solver
from feasibly.solve.records import SolverOptions

LABELS, BATCH, SINGLES, SOLVED, REPEATS = 512, 1000, 500, 20, 5
ANSWERS = ("mean", "conditioned", "polished")


def measure(case: str, budget: float) -> dict[str, Any]:
    """Milliseconds an instance."""
    problem = fb.load_problem(case)
    data = fb.label(problem, count=LABELS + 16, seed=0, jobs=1)
    proxy = fb.fit(problem, data, labels=LABELS, budget=budget)
    x = fb.sample(problem, BATCH, seed=1)
    row: dict[str, Any] = {"case": case, "train_seconds": proxy.record.train_seconds}
    for answer in ANSWERS:
        proxy.predict(x, answer=answer)
        times = [_timed(proxy.predict, x, answer=answer) / BATCH for _ in range(REPEATS)]
        row[f"{answer}_batch_ms"] = 1e3 * min(times)
        proxy.predict(x[:1], answer=answer)
        alone = [_timed(proxy.predict, x[i : i + 1], answer=answer) for i in range(SINGLES)]
        row[f"{answer}_single_ms"] = dict(
            zip(("p50", "p95", "p99"), (1e3 * np.percentile(alone, (50, 95, 99))).tolist(), strict=True)
        )
        print(case, answer, row[f"{answer}_batch_ms"], row[f"{answer}_single_ms"], flush=True)
    for warm, called in (
        ("ipopt", "ipopt_warm_ms"),
        ("none", "ipopt_cold_ms"),
        ("interior", "own_solver_ms"),
    ):
        solver = Solver.build(problem, SolverOptions(warm=warm))
        solver.solve(x[0])
        row[called] = 1e3 * float(np.median([_timed(solver.solve, x[i]) for i in range(SOLVED)]))
    row["polished_times_faster_than_warm_ipopt"] = row["ipopt_warm_ms"] / row["polished_batch_ms"]
    print(json.dumps(row), flush=True)
    return row


def _timed(call: Callable[..., Any], *args: Any, **named: Any) -> float:
    began = time.perf_counter()
    call(*args, **named)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("cases", nargs="+")
    parser.add_argument("--budget", type=float, default=60.0)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    document = {
        "about": "Milliseconds an instance on one core: batches of 1000 (best of five), one at a time (500 instances), "
        "and IPOPT on 20 of the same instances (median). Made by benchmarks/latency.py.",
        **describe_machine(),
        "rows": [measure(case, options.budget) for case in options.cases],
    }
    options.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
