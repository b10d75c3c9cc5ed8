"""Ten thousand instances of the usual spread and two thousand of twice that: is an answer ever wrong in silence?

python benchmarks/stability.py CASE [CASE ...] --out benchmarks/results/stability.json

The default proxy is trained on 512 labels of each case (loads within 20 % of nominal) and answers inputs drawn within
20 % and within 40 %. Whatever is not flagged must be finite and satisfy every constraint to the tolerance.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

import feasibly as fb
from feasibly.report.machine import describe_machine

LABELS, BUDGET, TOLERANCE = 512, 60.0, 1e-4
DRAWS = ((0.2, 10_000), (0.4, 2_000))
ANSWERS = ("conditioned", "polished", "auto")


def measure(case: str) -> list[dict[str, Any]]:
    """A row for every spread and answer."""
    problem = fb.load_problem(case)
    data = fb.label(problem, count=LABELS + 16, seed=0, jobs=1)
    proxy = fb.fit(problem, data, labels=LABELS, budget=BUDGET)
    rows = []
    for spread, count in DRAWS:
        x = fb.sample(problem, count, seed=20261115, spread=spread)
        for answer in ANSWERS:
            began = time.perf_counter()
            found = proxy.predict(x, answer=answer, tolerance=TOLERANCE)
            worst = np.maximum(found.max_equality, found.max_inequality)
            fine = np.array([outcome.name == "OK" for outcome in found.outcome])
            rows.append(
                {
                    "case": case, "spread": spread, "answer": answer, "instances": count,
                    "outcomes": dict(Counter(outcome.name for outcome in found.outcome)),
                    "rungs": dict(Counter(found.rung)),
                    "unflagged_not_finite": int((~np.isfinite(found.y).all(axis=1) & fine).sum()),
                    "unflagged_above_tolerance": int((~(worst <= TOLERANCE) & fine).sum()),
                    "worst_unflagged": float(worst[fine].max()) if fine.any() else None,
                    "share_below_1e-6": float(np.mean(worst < 1e-6)),
                    "not_finite": int((~np.isfinite(found.y).all(axis=1)).sum()),
                    "microseconds": 1e6 * (time.perf_counter() - began) / count,
                }
            )  # fmt: skip
            print(json.dumps(rows[-1]), flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("cases", nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    rows = [row for case in options.cases for row in measure(case)]
    document = {
        "about": "The default proxy (512 labels within 20 % of nominal) on inputs within 20 % and 40 %: what is not "
        "flagged is finite and holds every constraint to 1e-4 p.u. Made by benchmarks/stability.py.",
        "tolerance": TOLERANCE,
        **describe_machine(),
        "rows": rows,
    }
    options.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
