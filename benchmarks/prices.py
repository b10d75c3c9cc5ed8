"""Multipliers, prices and derivatives of answers beside those of solved instances.

python benchmarks/prices.py CASE [CASE ...] --out benchmarks/results/prices.json [--instances 100]

The largest deviation of any multiplier in a row, relative to the row's largest one, where multipliers are unique
(constraints that bind do not depend on each other); how many rows are not, and how many of those deviate. Derivatives
along two random directions of the input beside central differences of optima that are exact to rounding (exact.py),
where these are determined: where no constraint begins or ceases to press on the way, and where another step, or another
number on a diagonal, gives the same differences to five digits. Where optima are flat they are taken at the one next to
the answer, and moves along the flat directions, which nothing determines, do not count. Multipliers of balances are
held against those of the exact optimum, too, which IPOPT's active set leads to.
"""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np

import feasibly as fb
from answered import Case, quantiles, run, timed
from exact import Exact, across, differences
from feasibly.problem.duals import unique
from feasibly.problem.families import grid_of
from feasibly.solve.nlp import Solver
from feasibly.solve.records import SolverOptions

SEED = 20261117
SAME_OPTIMUM = 1e-3
"""Voltages and power made that are further apart, per unit, than this belong to another optimum, as where reactive
power costs nothing: both may be exact, each with derivatives of its own."""
SAME_POINT = 1e-6
"""Where an answer and IPOPT's optimum are further apart than this, differences are taken next to the answer, on IPOPT's
active set: 179_goc is so flat that optima to the last digit lie 1e-3 apart."""
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


def _apart(problem: fb.Problem, one: np.ndarray, other: np.ndarray) -> float:
    return float(largest(problem, (one - other)[None, :, None])[0])


def derivatives(proxy: fb.Proxy, solved: fb.Dataset, count: int) -> dict[str, Any]:
    problem = proxy.problem
    random = np.random.Generator(np.random.Philox(key=SEED))
    along = random.standard_normal((problem.n_inputs, 2)) * np.abs(problem.nominal)[:, None]
    every, x = solved.x, solved.x[:count]
    answering = min(timed(lambda: proxy.predict(every, "polished").duals)[1] for _ in range(3))
    seconds = min(timed(lambda: proxy.sensitivity(every, along[:, :1]))[1] for _ in range(3))
    found, solver = proxy.sensitivity(x, along), Solver.build(problem)
    cold = Solver.build(problem, SolverOptions(warm="none"))
    solving, ipopt = (1e3 * timed(lambda by=by: [by.solve(row) for row in x])[1] for by in (solver, cold))
    exact = Exact(solver.model)

    def size(moves: np.ndarray) -> float:
        return float(largest(problem, moves[None])[0])

    answers = proxy.predict(x, "polished")
    each, beside, own = [], [], 0
    alone = unique(problem, x, answers.y)
    for k, row in enumerate(x):
        one = differences(exact, row, solver.nominal.y, along, size)
        each.append(one)
        if one.moves is None:
            continue
        away = _apart(problem, answers.y[k], one.y)
        if away <= SAME_OPTIMUM and alone[k]:
            off = np.abs(answers.duals.equality[k] - one.equality).max() / np.abs(one.equality).max()
            beside.append(off)
        if away > SAME_POINT:
            one = differences(exact, row, solver.nominal.y, along, size, answers.y[k])
            if one.moves is not None and _apart(problem, answers.y[k], one.y) > SAME_OPTIMUM:
                one = replace(one, moves=None, why="two optima")
            each[k], own = one, own + (one.moves is not None)
    known = [k for k, one in enumerate(each) if one.moves is not None and one.determined]
    off = np.array(
        [size(across(each[k].flat, found[k] - each[k].moves)) / size(each[k].moves) for k in known]
    )
    why = Counter(one.why or "sharply bent" for k, one in enumerate(each) if k not in known)
    return {
        "derivative_rows": len(x), "derivative_rows_determined": len(known), "derivative_rows_others": dict(why),
        "derivative_rows_own_optimum": own, "derivatives": quantiles(off),
        "derivative_rows_flat": sum(each[k].flat.shape[1] > 0 for k in known),
        "derivatives_within_1e-5": float(np.mean(off < 1e-5)) if known else None,
        "prices_beside_ipopt": quantiles(np.array(beside)), "prices_beside_ipopt_rows": len(beside),
        "derivative_ms": 1e3 * (seconds - answering) / len(every), "solve_ms": solving / len(x),
        "ipopt_ms": ipopt / len(x),
    }  # fmt: skip


if __name__ == "__main__":
    run(ABOUT, __doc__, measure, derivatives=20)
