"""Where to build storage: gradient descent through a proxy, and the same with a solver in the loop.

python benchmarks/planning.py pglib:case118_ieee --out benchmarks/results/planning.json [--megawatts 100 --hours 2190]

Storage at a load bus takes up a part of the load in the hours of high demand and adds as much, with losses, in the
others.
Built where? The mean cost over the hours is convex enough for projected gradient descent, and its gradient needs no
differentiation: one more MW at a bus costs the price there.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import feasibly as fb
from feasibly.problem.families import grid_of
from feasibly.report.machine import describe_machine

EFFICIENCY, YEAR = 0.9, 8760.0
SHARE = 0.15
"""Storage at a bus is at most this share of its nominal load, so that hours stay in the range that was learnt."""
STEPS = 12

Costs = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
"""From inputs to costs `(rows,)` and prices of active load `(rows, loads)`, both per unit."""


@dataclass
class Plan:
    """What was found: storage by load (per unit), the mean cost after each step, and how long it took."""

    storage: np.ndarray
    costs: list[float]
    seconds: float


def hours_of(
    problem: fb.Problem, count: int, seed: int, daily: float = 0.15, seasonal: float = 0.07
) -> tuple[np.ndarray, np.ndarray]:
    """Loads of so many hours of a year, evenly spaced, and what a unit of storage does to them: it takes off 1 in the
    half of the day that has the higher loads, and adds 1 / efficiency in the other."""
    random = np.random.Generator(np.random.Philox(key=seed))
    hour = np.arange(count) * (YEAR / count)
    of_day = np.sin(2.0 * np.pi * (hour - 9.0) / 24.0)
    system = 0.95 + daily * of_day + seasonal * np.cos(2.0 * np.pi * hour / YEAR)
    own = 1.0 + 0.03 * random.uniform(-1.0, 1.0, (count, problem.n_inputs))
    return problem.nominal * system[:, None] * own, np.where(of_day > 0.0, 1.0, -1.0 / EFFICIENCY)


def plan(
    problem: fb.Problem, costs: Costs, hours: np.ndarray, sign: np.ndarray, total: float, steps: int = STEPS
) -> Plan:
    """Projected gradient descent on the mean cost of the hours over storage that adds up to `total` (per unit)."""
    grid = grid_of(problem)
    cap = SHARE * np.maximum(problem.nominal[: grid.n_loads], 0.0)
    storage = project(np.full(grid.n_loads, total / grid.n_loads), cap, total)
    began, seen, width = time.perf_counter(), [], 0.0
    best = storage
    for _ in range(steps):
        x = hours.copy()
        x[:, : grid.n_loads] -= sign[:, None] * storage
        cost, price = costs(x)
        seen.append(float(cost.mean()))
        if seen[-1] <= min(seen):
            best = storage
        slope = -(sign[:, None] * price).mean(axis=0)
        slope -= slope.mean()
        width = width or total / max(float(np.abs(slope).sum()), 1e-300)
        storage = project(best - width / len(seen) ** 0.5 * slope, cap, total)
    return Plan(best, seen, time.perf_counter() - began)


def project(storage: np.ndarray, cap: np.ndarray, total: float) -> np.ndarray:
    """The nearest storage that keeps the caps and adds up to `total`: shifted by one number, which bisection finds."""
    low, high = float((-storage).min() - total), float((cap - storage).max() + total)
    for _ in range(100):
        shift = (low + high) / 2.0
        low, high = (shift, high) if np.clip(storage + shift, 0.0, cap).sum() < total else (low, shift)
    return np.clip(storage + high, 0.0, cap)


def by_proxy(proxy: fb.Proxy) -> Costs:
    """Costs and prices of polished answers."""
    grid = grid_of(proxy.problem)

    def costs(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        found = proxy.predict(x, "polished")
        return found.objective, found.prices[:, grid.load_bus] * grid.base_mva

    return costs


def by_solver(problem: fb.Problem) -> Costs:
    """Costs and multipliers of solved instances."""
    grid = grid_of(problem)

    def costs(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        solved = fb.label(problem, x, jobs=1)
        solved.raise_if_failed()
        return solved.objective, -solved.duals.equality[:, grid.load_bus]

    return costs


def measure(case: str, megawatts: float, hours: int) -> dict[str, Any]:
    problem = fb.load_problem(case, spread=0.3)
    grid = grid_of(problem)
    began = time.perf_counter()
    data = fb.label(problem, count=128, seed=0, jobs=1)
    labelling = time.perf_counter() - began
    proxy = fb.fit(problem, data, budget=60.0)
    x, sign = hours_of(problem, hours, seed=1)
    total = megawatts / grid.base_mva
    proxy.predict(x, "polished")  # compiles
    ours = plan(problem, by_proxy(proxy), x, sign, total)
    theirs = plan(problem, by_solver(problem), x, sign, total)
    even = project(
        np.full(grid.n_loads, total / grid.n_loads), SHARE * problem.nominal[: grid.n_loads], total
    )
    check = by_solver(problem)
    exact = {
        name: float(
            check(np.hstack([x[:, : grid.n_loads] - sign[:, None] * s, x[:, grid.n_loads :]]))[0].mean()
        )
        for name, s in (
            ("none", 0.0 * even),
            ("even", even),
            ("proxy", ours.storage),
            ("solver", theirs.storage),
        )
    }
    top = np.argsort(-ours.storage)[:5]
    return {
        "case": case, "megawatts": megawatts, "hours": hours, "steps": STEPS, "labelling_seconds": labelling,
        "training_seconds": proxy.record.train_seconds, "proxy_seconds": ours.seconds, "solver_seconds": theirs.seconds,
        "mean_cost_by_solver": exact,
        "storage_apart_mw": float(np.abs(ours.storage - theirs.storage).sum() * grid.base_mva),
        "largest": {str(int(grid.bus_id[grid.load_bus[i]])): float(ours.storage[i] * grid.base_mva) for i in top},
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("case")
    parser.add_argument("--megawatts", type=float, default=100.0)
    parser.add_argument("--hours", type=int, default=2190)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    row = measure(options.case, options.megawatts, options.hours)
    print(json.dumps(row, indent=1))
    document = {
        "about": "Storage placed by gradient descent. Made by benchmarks/planning.py.",
        **describe_machine(),
        "rows": [row],
    }
    options.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
