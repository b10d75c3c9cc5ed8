"""How often each bound on a mean error covers the true mean, and how wide it is.

    python benchmarks/bound_coverage.py               simulate, print, write benchmarks/results/coverage.json
    python benchmarks/bound_coverage.py --docs        also write the tables into docs/guarantees.md

One core, well under a minute.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from feasibly.promise import MeanBound, hoeffding
from simulated import (
    Draw,
    posterior_distribution,
    simple_distributions,
    simulate_coverage,
    standard_bounds,
)

HERE = Path(__file__).parent
RESULT = HERE / "results" / "coverage.json"
DOCS = HERE.parent / "docs" / "guarantees.md"
BEGIN, END = "<!-- coverage: begin -->", "<!-- coverage: end -->"
COUNTS, CONFIDENCES = (50, 200, 1000), (0.9, 0.95)
POSTERIORS = {"calibrated": 1.0, "10 x overconfident": 10.0, "100 x overconfident": 100.0}
NO_PROMISE = "normal theory"


def normal_theory(draw: Draw, confidence: float) -> MeanBound:
    """mean +- z s / sqrt(M), for contrast: it promises nothing at finite M."""
    from scipy.stats import norm

    bound = hoeffding(draw.errors, 1.0, confidence)
    half = norm.ppf(0.5 + 0.5 * confidence) * draw.errors.std(axis=0, ddof=1) / math.sqrt(bound.count)
    changed = {"lower": bound.mean - half, "upper": bound.mean + half, "epsilon": half, "method": NO_PROMISE}
    return MeanBound(**(vars(bound) | changed))


def run(repetitions: int, seed: int) -> dict[str, Any]:
    start = time.perf_counter()
    bounds = standard_bounds()
    unconditional = {name: bound for name, bound in bounds.items() if name != "mpv-bernstein"}
    simple = simulate_coverage(
        unconditional | {NO_PROMISE: normal_theory},
        simple_distributions(),
        COUNTS,
        CONFIDENCES,
        repetitions=repetitions,
        seed=seed,
    )
    posterior = simulate_coverage(
        bounds,
        [posterior_distribution(name, factor) for name, factor in POSTERIORS.items()],
        COUNTS,
        CONFIDENCES,
        repetitions=repetitions,
        seed=seed + 1,
    )
    return {
        "benchmark": "coverage",
        "machine": platform.machine(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "cores_used": 1,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "commit": _commit(),
        "repetitions": repetitions,
        "seed": seed,
        "seconds": round(time.perf_counter() - start, 1),
        "alpha": 2.0,
        "true_alpha": {name: 1.0 + factor for name, factor in POSTERIORS.items()},
        "simple": _rows(simple),
        "posterior": _rows(posterior),
    }


def _processor() -> str:
    listed = Path("/proc/cpuinfo")
    if listed.exists():
        for line in listed.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or "not stated"


def _commit() -> str:
    asked = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=HERE, capture_output=True, text=True, check=False
    )
    return asked.stdout.strip() or "unknown"


def _rows(table: np.ndarray) -> list[dict[str, Any]]:
    names = table.dtype.names or ()
    rows = [dict(zip(names, row.tolist(), strict=True)) for row in table]
    return [row | {"width": round(row["width"], 6), "epsilon": round(row["epsilon"], 6)} for row in rows]


def render(result: dict[str, Any]) -> str:
    """The tables in Markdown: coverage in per cent and mean width in units of R."""
    said = [
        f"{result['repetitions']} repetitions a cell, R = 1; each cell: coverage in per cent / mean width. "
        "**Bold**: below the asked confidence by more than sampling error (probability less than 1 in 1000 "
        f"for a valid bound). Measured on {result['machine']}, one core, commit `{result['commit'][:10]}`."
    ]
    for confidence in CONFIDENCES:
        said.append(f"Confidence {confidence:g}, no hypothesis needed (`bernstein` knows the true variance):")
        said.append(_table(result["simple"], confidence))
    said.append(
        "Errors of a simulated posterior, alpha = 2 assumed. The true alpha is "
        + ", ".join(f"{alpha:g} ({name})" for name, alpha in result["true_alpha"].items())
        + ":"
    )
    for confidence in CONFIDENCES:
        said.append(f"Confidence {confidence:g}:")
        said.append(_table(result["posterior"], confidence))
    return "\n\n".join(said)


def _table(rows: list[dict[str, Any]], confidence: float) -> str:
    chosen = [row for row in rows if row["confidence"] == confidence]
    methods = list(dict.fromkeys(row["method"] for row in chosen))
    lines = ["| errors | M | " + " | ".join(methods) + " |", "|---|---|" + "---|" * len(methods)]
    cells = {(row["distribution"], row["count"], row["method"]): row for row in chosen}
    for name, count in dict.fromkeys((row["distribution"], row["count"]) for row in chosen):
        shown = [_cell(cells[name, count, method]) for method in methods]
        lines.append(f"| {name} | {count} | " + " | ".join(shown) + " |")
    return "\n".join(lines)


def _cell(row: dict[str, Any]) -> str:
    share = f"{100 * row['coverage']:.1f}"
    return f"{f'**{share}**' if row['short'] else share} / {row['width']:.4f}"


def insert(page: str, tables: str) -> str:
    """The page with the tables between its markers."""
    head, rest = page.split(BEGIN)
    return f"{head}{BEGIN}\n\n{tables}\n\n{END}{rest.split(END)[1]}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--docs", action="store_true", help="write the tables into docs/guarantees.md")
    options = parser.parse_args()
    result = run(options.repetitions, options.seed)
    print(render(result))
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    if options.docs:
        DOCS.write_text(insert(DOCS.read_text(), render(result)))
    rows = result["simple"] + result["posterior"]
    broken = [row for row in rows if row["short"] and row["method"] not in (NO_PROMISE, "mpv-bernstein")]
    for row in broken:
        print(f"BROKEN PROMISE: {row}", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
