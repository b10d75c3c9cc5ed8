"""From 512 labels to one: rows that hold, gap and time of `conditioned` and `auto`, beside solving the same rows.

    python benchmarks/few_labels.py --data FOLDER --out benchmarks/results/few-labels.json

Loads within 20 %. `fit` is told how many of the solved rows it may use, and draws further inputs by itself, without
labels. Gaps are against the rows' own optima, counted where an answer costs more. Times are processor seconds of one
core, the least of three calls on the same rows.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

os.environ |= {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false", "OMP_NUM_THREADS": "1"}

import numpy as np

import feasibly as fb
from feasibly.measure.metrics import measure_rows
from feasibly.report.machine import describe_machine

CASES = ("case57_ieee", "case118_ieee", "case500_goc")
LABELS = (512, 64, 8, 1)
ROWS = 200
BUDGET = 60.0
CALLS = 3


def solved(case: str, folder: Path) -> fb.Dataset:
    """Enough solved rows of a grid, kept."""
    problem, wanted = fb.load_problem(f"pglib:{case}"), max(LABELS) + ROWS
    count = wanted
    while True:
        data = fb.label(problem, count=count, seed=5, jobs=1, out=folder / f"{case}.zarr")
        if data.n_labels >= wanted:
            return data
        count += wanted - data.n_labels + 4


def answered(proxy: fb.Proxy, data: fb.Dataset, rows: Any, which: str, solving: float) -> dict[str, Any]:
    """How good an answer is, and what it takes."""
    x, taken = data.x[rows], []
    found = proxy.predict(x, which)
    for _ in range(CALLS):
        began = time.process_time()
        found = proxy.predict(x, which)
        taken.append((time.process_time() - began) / len(x))
    measured = measure_rows(proxy.problem, x, found.y, data.objective[rows])
    gap = np.maximum(measured.gap_percent, 0.0)
    return {
        "hold_1e-6": float((measured.worst < 1e-6).mean()), "gap_percent_mean": float(gap.mean()),
        "gap_percent_worst": float(gap.max()), "milliseconds": 1e3 * min(taken), "over_solving": min(taken) / solving,
        "levels": {level: found.level.count(level) for level in sorted(set(found.level))},
    }  # fmt: skip


def main() -> None:
    """Read the command line, measure, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="where solved rows are kept")
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    args.data.mkdir(parents=True, exist_ok=True)
    lines = []
    for case in args.cases.split(","):
        data = solved(case, args.data)
        rows = np.flatnonzero(data.solved)[max(LABELS) :][:ROWS]
        solving = float(fb.label(data.problem, data.x[rows], jobs=1).seconds.mean())
        for labels in LABELS:
            began = time.perf_counter()
            proxy = fb.fit(data.problem, data, budget=BUDGET, labels=labels)
            line = {
                "case": case, "labels": labels, "rows": len(rows), "fit_seconds": time.perf_counter() - began,
                "method": proxy.record.method, "solving_milliseconds": 1e3 * solving,
            }  # fmt: skip
            for which in ("conditioned", "auto"):
                line[which] = answered(proxy, data, rows, which, solving)
            lines.append(line)
            print(json.dumps(line), flush=True)
    result = {"benchmark": "few_labels", **describe_machine(cores_used=1), "budget": BUDGET, "rows": lines}
    args.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
