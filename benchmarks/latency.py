"""How long an answer takes: one instance at a time, a thousand at once, and IPOPT on the same instances beside it.

taskset -c 0 python benchmarks/latency.py CASE [CASE ...] --out benchmarks/results/latency.json
taskset -c 0 python benchmarks/latency.py --saved MODEL DATA --out FILE.json

The default proxy, 512 labels; everything is compiled before it is timed. Instances are ones that have a solution; a
batch of random draws, among them those that have none, is timed beside them. IPOPT is warm-started from the nominal
solution and, for comparison, started cold. With `--saved`, a proxy that was trained before answers the rows of DATA
that it has not seen. The first answer is timed from the start of a fresh process, imports and loading included: with an
empty compilation cache, and with what that left there. The same of training, from nothing kept.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
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
FIRST = """
import sys, numpy, feasibly
feasibly.Proxy.load(sys.argv[1]).predict(numpy.load(sys.argv[2]), "conditioned")
"""
LEARNING = """
import sys, time, feasibly
data = feasibly.Dataset.open(sys.argv[1])
began = time.perf_counter()
feasibly.fit(data.problem, data, labels=int(sys.argv[2]), budget=60.0)
print(time.perf_counter() - began)
"""


def fresh(case: str, budget: float) -> tuple[fb.Proxy, np.ndarray]:
    """A proxy trained now, and instances it has not seen."""
    problem = fb.load_problem(case)
    data = fb.label(problem, count=LABELS + 16, seed=0, jobs=1)
    proxy = fb.fit(problem, data, labels=LABELS, budget=budget)
    other = fb.label(problem, count=BATCH + 32, seed=1, jobs=1)
    return proxy, other.x[other.solved][:BATCH]


def saved(model: str, store: str) -> tuple[fb.Proxy, np.ndarray]:
    """A proxy trained before, and instances it has not seen."""
    data = fb.Dataset.open(store)
    proxy = fb.Proxy.load(model)
    return proxy, data.x[data.solved & data.unseen(proxy.keys)][:BATCH]


def first_answer(proxy: fb.Proxy, x: np.ndarray) -> dict[str, list[float]]:
    """Seconds from the start of a process to its first answer: cold, and three times warm."""
    with tempfile.TemporaryDirectory() as folder:
        model, row = f"{folder}/model", f"{folder}/row.npy"
        proxy.save(model)
        np.save(row, x[:1])
        kept = os.environ | {"FEASIBLY_CACHE": f"{folder}/cache"}
        words = [sys.executable, "-c", FIRST, model, row]
        taken = [_timed(subprocess.run, words, env=kept, check=True) for _ in range(4)]
    return {"first_answer_cold_seconds": taken[:1], "first_answer_seconds": taken[1:]}


def learning(case: str) -> float:
    """Seconds that `fit` takes in a fresh process that finds nothing compiled."""
    with tempfile.TemporaryDirectory() as folder:
        store = f"{folder}/data.zarr"
        fb.label(fb.load_problem(case), count=LABELS + 16, seed=0, jobs=1, out=store)
        kept = os.environ | {"FEASIBLY_CACHE": f"{folder}/cache"}
        words = [sys.executable, "-c", LEARNING, store, str(LABELS)]
        done = subprocess.run(words, env=kept, check=True, capture_output=True, text=True)
    return float(done.stdout.split()[-1])


def measure(proxy: fb.Proxy, x: np.ndarray) -> dict[str, Any]:
    """Milliseconds an instance."""
    problem, case = proxy.problem, proxy.problem.name
    drawn = fb.sample(problem, len(x), seed=2)
    row: dict[str, Any] = {
        "case": case, "instances": len(x), "train_seconds": proxy.record.train_seconds,
    } | first_answer(proxy, x)  # fmt: skip
    for answer in ANSWERS:
        row[f"{answer}_batch_ms"] = _batch(proxy, x, answer)
        if answer == "conditioned":
            row["conditioned_any_draws_batch_ms"] = _batch(proxy, drawn, answer)
        proxy.predict(x[:1], answer=answer)
        count = min(SINGLES, len(x))
        alone = [_timed(proxy.predict, x[i : i + 1], answer=answer) for i in range(count)]
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


def _batch(proxy: fb.Proxy, x: np.ndarray, answer: str) -> float:
    """The best of some passes over a whole batch, compiled."""
    proxy.predict(x, answer=answer)
    return 1e3 * min(_timed(proxy.predict, x, answer=answer) for _ in range(REPEATS)) / len(x)


def _timed(call: Callable[..., Any], *args: Any, **named: Any) -> float:
    began = time.perf_counter()
    call(*args, **named)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--saved", nargs=2, action="append", default=[], metavar=("MODEL", "DATA"))
    parser.add_argument("--budget", type=float, default=60.0)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    rows = [
        measure(*fresh(case, options.budget)) | {"fit_cold_seconds": learning(case)} for case in options.cases
    ]
    rows += [measure(*saved(*pair)) for pair in options.saved]
    document = {
        "about": "Milliseconds an instance on one core, the other idle: batches (best of five), one at a time, and "
        "IPOPT on 20 of the same instances (median). Instances have a solution, except in the batch of any draws. "
        "Made by benchmarks/latency.py.",
        **describe_machine(),
        "rows": rows,
    }
    options.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
