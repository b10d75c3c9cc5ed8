"""Proven lower bounds: do they hold, and how near are they to the relaxation's own value?

python benchmarks/proofs.py CASE [CASE ...] --out benchmarks/results/proofs.json [--instances 1000 --conic 100]

A proxy of each case is trained and its prover with it (64 relaxations). Instances that it has not seen are answered and
bounded; for the first of them the relaxation is solved by Clarabel, which shares no code with us. A bound above a
solved cost would be wrong, and is counted.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from answered import Case, quantiles, run, timed
from feasibly.problem.families import grid_of

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.conic import relax

SOLVED_TO = 1e-7
"""Labels satisfy constraints to about 1e-8 per unit; their cost may be below the exact optimum by as small a share."""
ABOUT = (
    "Lower bounds proven for instances with loads within 20 % of nominal, beside solved costs and the relaxation "
    "solved by Clarabel. Made by benchmarks/proofs.py."
)


def measure(case: Case, options: argparse.Namespace) -> list[dict[str, Any]]:
    proxy, solved = case.proxy, case.unseen
    grid, x, cost = grid_of(proxy.problem), solved.x, solved.objective
    proxy.learn_proofs(budget=4.0 * options.budget)
    _, plain = timed(lambda: proxy.predict(x, "conditioned"))
    found, proven = timed(lambda: proxy.predict(x, "conditioned", prove=True))
    gap = found.proven_gap_percent
    counts, edges = np.histogram(gap[np.isfinite(gap)], bins=20)
    row: dict[str, Any] = {
        "case": case.name, "instances": len(solved), "labels": proxy.record.labels,
        "loose_pairs": len(proxy.prover.loose),
        "above_the_solved_cost": int((found.lower_bound > cost * (1.0 + SOLVED_TO)).sum()),
        "proven_infeasible_but_solved": int(np.isposinf(found.lower_bound).sum()),
        "proven_gap_percent": quantiles(gap),
        "gap_histogram": {"counts": counts.tolist(), "edges": edges.tolist()},
        "conditioned_ms": 1e3 * plain / len(solved), "with_proof_ms": 1e3 * proven / len(solved),
        "nominal_gap_percent": float(
            proxy.predict(proxy.problem.nominal, "polished", prove=True).proven_gap_percent[0]
        ),
    }  # fmt: skip
    chosen = np.arange(min(options.conic, len(solved)))
    relaxed = [relax(grid, x[i, : grid.n_loads], x[i, grid.n_loads :]) for i in chosen]
    value = np.array([r.value for r in relaxed])
    own = 100.0 * (cost[chosen] - value) / cost[chosen]
    lost = 100.0 * (value - found.lower_bound[chosen]) / cost[chosen]
    row |= {
        "conic": len(chosen), "conic_status": dict(Counter(r.status for r in relaxed)),
        "relaxation_gap_percent": quantiles(own), "lost_percent": quantiles(lost),
        "lost_share_of_relaxation_gap": float(np.median(lost) / np.median(own)) if len(chosen) else None,
    }  # fmt: skip
    return [row]


if __name__ == "__main__":
    run(ABOUT, __doc__, measure, conic=100)
