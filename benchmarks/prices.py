"""Multipliers, prices and derivatives of answers beside those of solved instances.

python benchmarks/prices.py CASE [CASE ...] --out benchmarks/results/prices.json [--instances 100]

The largest deviation of any multiplier in a row, relative to the row's largest one, where multipliers are unique
(constraints that bind do not depend on each other); how many rows are not, and how many of those deviate. Derivatives
along two random directions of the input beside central differences of solved instances.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import feasibly as fb
from answered import Case, quantiles, run, timed
from feasibly.problem.duals import unique
from feasibly.problem.families import grid_of
from feasibly.solve.nlp import Solver
from feasibly.solve.records import SolverOptions

SEED, STEP = 20261117, 1e-4
SMOOTH = 1e-2
"""Differences ahead and behind that are further apart than this share of themselves belong to two active sets: without
a change of it they differ by the step times the curvature, and by what labels leave."""
ABOUT = (
    "Multipliers, prices and derivatives of the default proxy's answers beside those of solved instances that it has "
    "not seen, with loads within 20 % of nominal. Made by benchmarks/prices.py."
)


def measure(case: Case, options: argparse.Namespace) -> list[dict[str, Any]]:
    solved, proxy = case.unseen, case.proxy
    alone = unique(proxy.problem, solved.x, solved.y)
    grid = grid_of(proxy.problem)
    theirs = -solved.duals.equality[:, : grid.n_buses] / grid.base_mva
    rows = []
    for answer in ("conditioned", "polished", "auto"):
        found, answering = timed(lambda answer=answer: proxy.predict(solved.x, answer))
        _, both = timed(lambda answer=answer: proxy.predict(solved.x, answer).duals)
        off = apart(found.duals, solved.duals)
        prices = np.abs(found.prices - theirs).max(axis=1) / np.abs(theirs).max(axis=1)
        fine = alone & found.ok
        row = {
            "case": case.name, "answer": answer, "labels": proxy.record.labels, "instances": len(solved),
            "ok": int(found.ok.sum()), "unique": int(fine.sum()),
            "multipliers": quantiles(off[fine]), "prices": quantiles(prices[fine]),
            "multipliers_within_1e-4": float(np.mean(off[fine] < 1e-4)),
            "prices_within_1e-4": float(np.mean(prices[fine] < 1e-4)),
            "not_unique_and_off": int((off[~alone & found.ok] >= 1e-4).sum()),
            "answer_ms": 1e3 * answering / len(solved), "with_multipliers_ms": 1e3 * both / len(solved),
        }  # fmt: skip
        if answer == "polished":
            row |= derivatives(proxy, solved, min(options.derivatives, len(solved)))
        rows.append(row)
    return rows


def apart(one: Any, other: Any) -> np.ndarray:
    """The largest deviation in each row, relative to the row's largest multiplier."""
    parts = ("equality", "inequality", "lower", "upper")
    largest = np.max([np.abs(getattr(other, part)).max(axis=1, initial=0.0) for part in parts], axis=0)
    off = [np.abs(getattr(one, part) - getattr(other, part)).max(axis=1, initial=0.0) for part in parts]
    return np.max(off, axis=0) / largest


def largest(problem: fb.Problem, moves: np.ndarray) -> np.ndarray:
    """The largest move in each row of what the optimum settles: voltages, and the power made at a bus, which like units
    there may share as they like."""
    grid, blocks = grid_of(problem), problem.blocks
    made = np.zeros((len(moves), grid.n_buses, moves.shape[2]))
    np.add.at(made, (slice(None), grid.gen_bus), moves[:, blocks["pg"]])
    parts = made, moves[:, blocks["vm"]], moves[:, blocks["va"]]
    return np.max([np.abs(part).max(axis=(1, 2)) for part in parts], axis=0)


def derivatives(proxy: fb.Proxy, solved: fb.Dataset, count: int) -> dict[str, Any]:
    problem = proxy.problem
    random = np.random.Generator(np.random.Philox(key=SEED))
    along = random.standard_normal((problem.n_inputs, 2)) * np.abs(problem.nominal)[:, None]
    x = solved.x[:count]
    _, answering = timed(lambda: proxy.predict(x, "polished").duals)
    found, seconds = timed(lambda: proxy.sensitivity(x, along))
    columns, solver = [], Solver.build(problem)
    alone = Solver.build(problem, SolverOptions(warm="none"))
    solving, ipopt = (1e3 * timed(lambda by=by: [by.solve(row) for row in x])[1] for by in (solver, alone))
    here, bends = fb.label(problem, x, jobs=1).y, []
    for direction in along.T:
        ahead, behind = (fb.label(problem, x + sign * STEP * direction, jobs=1) for sign in (1.0, -1.0))
        columns.append((ahead.y - behind.y) / (2.0 * STEP))
        bends.append((ahead.y - 2.0 * here + behind.y) / STEP)
    expected = np.stack(columns, axis=2)
    size = largest(problem, expected)
    off = largest(problem, found - expected) / size
    # Where the differences ahead and behind are not the same, what presses changes on the way.
    smooth = largest(problem, np.stack(bends, axis=2)) / size < SMOOTH
    return {
        "derivative_rows": count, "derivatives": quantiles(off),
        "derivative_rows_without_a_kink": int(smooth.sum()), "derivatives_without_a_kink": quantiles(off[smooth]),
        "derivatives_within_1e-5": float(np.mean(off < 1e-5)), "derivatives_within_1e-3": float(np.mean(off < 1e-3)),
        "derivative_ms": 1e3 * (seconds - answering) / count, "solve_ms": solving / count, "ipopt_ms": ipopt / count,
    }  # fmt: skip


if __name__ == "__main__":
    run(ABOUT, __doc__, measure, derivatives=20)
