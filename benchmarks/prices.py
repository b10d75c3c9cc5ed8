"""Multipliers, prices and derivatives of answers beside those of solved instances.

python benchmarks/prices.py CASE [CASE ...] --out benchmarks/results/prices.json [--instances 100]

The largest deviation of any multiplier in a row, relative to the row's largest one, where multipliers are unique
(constraints that bind do not depend on each other); how many rows are not, and how many of those deviate. Derivatives
along two random directions of the input beside central differences of solved instances.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

import feasibly as fb
from feasibly.report.machine import describe_machine

LABELS, BUDGET, SEED, STEP = 256, 60.0, 20261117, 1e-4
PARTS = ("equality", "inequality", "lower", "upper")


def measure(case: str, instances: int, labels: int, budget: float) -> list[dict[str, Any]]:
    problem = fb.load_problem(case)
    data = fb.label(problem, count=labels, seed=0, jobs=1)
    proxy = fb.fit(problem, data, budget=budget)
    fresh = fb.label(problem, fb.sample(problem, instances, seed=SEED), jobs=1)
    fresh = fresh.take(fresh.solved)
    rows = []
    for answer in ("conditioned", "polished"):
        found = proxy.predict(fresh.x, answer)
        largest = np.max(
            [np.abs(getattr(fresh.duals, part)).max(axis=1, initial=0.0) for part in PARTS], axis=0
        )
        apart = [
            np.abs(getattr(found.duals, part) - getattr(fresh.duals, part)).max(axis=1, initial=0.0)
            for part in PARTS
        ]
        off = np.max(apart, axis=0) / largest
        prices = np.abs(found.prices - problem_prices(fresh)).max(axis=1) / np.abs(problem_prices(fresh)).max(
            axis=1
        )
        unique = found.unique_duals & found.ok
        row = {
            "case": case, "answer": answer, "instances": len(fresh), "ok": int(found.ok.sum()),
            "unique": int(unique.sum()),
            "multipliers": quantiles(off[unique]), "prices": quantiles(prices[unique]),
            "unique_within_1e-4": float(np.mean(off[unique] < 1e-4)),
            "prices_within_1e-4": float(np.mean(prices[unique] < 1e-4)),
            "not_unique_and_off": int((off[~unique & found.ok] >= 1e-4).sum()),
        }  # fmt: skip
        if answer == "polished":
            row |= derivatives(problem, proxy, fresh, min(20, len(fresh)))
        rows.append(row)
        print(json.dumps(row), flush=True)
    return rows


def problem_prices(data: fb.Dataset) -> np.ndarray:
    grid = data.problem.spec["grid"]
    return -data.duals.equality[:, : grid.n_buses] / grid.base_mva


def derivatives(problem: fb.Problem, proxy: fb.Proxy, fresh: fb.Dataset, count: int) -> dict[str, Any]:
    random = np.random.Generator(np.random.Philox(key=SEED))
    along = random.standard_normal((problem.n_inputs, 2)) * np.abs(problem.nominal)[:, None]
    x = fresh.x[:count]
    proxy.sensitivity(x[:1], along)
    began = time.perf_counter()
    found = proxy.sensitivity(x, along)
    seconds = (time.perf_counter() - began) / count
    columns = []
    for direction in along.T:
        ahead, behind = (fb.label(problem, x + sign * STEP * direction, jobs=1) for sign in (1.0, -1.0))
        columns.append((ahead.y - behind.y) / (2.0 * STEP))
    expected = np.stack(columns, axis=2)
    loose = problem.blocks["qg"]  # may be split in any way between generators at one bus
    kept = np.setdiff1d(np.arange(problem.n_outputs), np.arange(loose.start, loose.stop))
    off = np.abs(found - expected)[:, kept].max(axis=(1, 2)) / np.abs(expected[:, kept]).max(axis=(1, 2))
    return {
        "derivative_rows": count, "derivatives": quantiles(off[np.isfinite(off)]),
        "derivatives_within_1e-5": float(np.mean(off < 1e-5)), "derivatives_within_1e-3": float(np.mean(off < 1e-3)),
        "derivative_ms": 1e3 * seconds, "solve_ms": 1e3 * float(np.mean(fresh.seconds)),
    }  # fmt: skip


def quantiles(values: np.ndarray) -> dict[str, float]:
    return {f"{q}": float(np.percentile(values, q)) for q in (50, 95, 100)} if len(values) else {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("cases", nargs="+")
    parser.add_argument("--instances", type=int, default=100)
    parser.add_argument("--labels", type=int, default=LABELS)
    parser.add_argument("--budget", type=float, default=BUDGET)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    rows = json.loads(options.out.read_text())["rows"] if options.out.exists() else []
    for case in options.cases:
        rows = [row for row in rows if row["case"] != case]
        rows += measure(case, options.instances, options.labels, options.budget)
        document = {
            "about": "Multipliers, prices and derivatives of the default proxy's answers beside those of solved "
            "instances with loads within 20 % of nominal. Made by benchmarks/prices.py.",
            **describe_machine(),
            "rows": rows,
        }
        options.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
