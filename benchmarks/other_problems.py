"""Problems that are no grids (benchmarks/families.py): does a proxy hold there, and is it faster than solving?

    python benchmarks/other_problems.py                  every family
    python benchmarks/other_problems.py pendulum flat    these, the others as they were stored

128 labels, 200 unseen rows in one batch, one core. Solving is the mean of `label(problem, rows, jobs=1).seconds` on the
same rows in the same process; other times are processor seconds. Gaps are against IPOPT at tolerance 1e-10 with bounds
as they are (for 40 rows; the others against their labels), counted where an answer costs more, in per cent of the cost.
Writes benchmarks/results/other-problems.json and .md.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from trees import ONE_CORE

os.environ |= ONE_CORE

import numpy as np

import feasibly as fb
from families import FAMILIES
from feasibly.measure.metrics import measure_rows
from feasibly.report.machine import describe_machine
from grids import Reference

LABELS, ROWS, BUDGET, PASSES = 128, 200, 60.0, 3
CLOSE = 1e-3
"""An answer called OK may cost so many per cent more than IPOPT's."""
REFERENCES = 40
"""Rows that IPOPT solves once more, tightly."""
ANSWERS = ("conditioned", "auto", "solved")
OUT = Path(__file__).parent / "results" / "other-problems.json"
PUBLISHED = {"nonconvex-qp": {"who": "FSNet", "gap_percent": 2.45, "us_an_instance": 279.0}}
"""What a peer's repository stores of its own draws: a mean gap, and a batch of 256 in 0.0714 s on a graphics card."""


def measure(name: str) -> dict[str, Any]:
    """Everything that the table says of one family."""
    problem = FAMILIES[name]()
    count = LABELS + ROWS
    data = fb.label(problem, count=count, seed=0, jobs=1)
    while data.n_labels < LABELS + ROWS:
        count += LABELS + ROWS - data.n_labels + 8
        data = fb.label(problem, count=count, seed=0, jobs=1)
    test = np.flatnonzero(data.solved)[LABELS:][:ROWS]
    x, own = data.x[test], data.objective[test]
    best = np.array(own)
    ipopt = Reference(problem)
    some = np.array([ipopt.cost(row) for row in x[:REFERENCES]])
    known = np.isfinite(some)
    best[:REFERENCES][known] = some[known]
    off = (own[:REFERENCES] - some)[known] / np.abs(some[known])
    solving = float(fb.label(problem, x, jobs=1).seconds.mean())
    began = time.process_time()
    proxy = fb.fit(problem, data, labels=LABELS, budget=BUDGET)
    found: dict[str, Any] = {
        "family": name, "inputs": problem.n_inputs, "outputs": problem.n_outputs,
        "equalities": problem.n_equalities, "inequalities": problem.n_inequalities, "labels": LABELS, "rows": len(x),
        "drawn": count, "solving_ms": 1e3 * solving, "label_over_ipopt": float(off.max()) if len(off) else None,
        "references": int(known.sum()), "fit_seconds": time.process_time() - began, "outlook": proxy.outlook,
    }  # fmt: skip
    for which in ANSWERS:
        answer, taken = proxy.predict(x, which), []
        for _ in range(PASSES):
            began = time.process_time()
            answer = proxy.predict(x, which)
            taken.append((time.process_time() - began) / len(x))
        rows = measure_rows(problem, x, answer.y)
        above = 100.0 * np.maximum(rows.objective - best, 0.0) / np.abs(best)
        found[which] = {
            "hold_1e-6": float((rows.worst < 1e-6).mean()),
            "gap_mean": float(above.mean()), "gap_max": float(above.max()),
            "ok_but_above": int((answer.ok & (above > CLOSE)).sum()), "ms": 1e3 * min(taken),
            "over_solving": min(taken) / solving,
            "levels": {level: answer.level.count(level) for level in sorted(set(answer.level))},
        }  # fmt: skip
    return found


def page(document: dict[str, Any]) -> str:
    """One table, a row a family."""
    text = [
        "# Other problems",
        "",
        "[All results](../results.md)",
        "",
        " ".join(__doc__.split("\n\n")[2].split()).removesuffix(
            " Writes benchmarks/results/other-problems.json and .md."
        ),
        "FSNet's families are made from its description; its repository stores 2.45 % and about 280 us an instance for "
        "its nonconvex QP, on a graphics card.",
        "",
        "| family | outputs | solving, ms | label above IPOPT | fit, s | " + " | ".join(_heads()) + " |",
        "|---" * (5 + 3 * len(ANSWERS)) + "|",
    ]
    for row in document["families"]:
        cells = [
            row["family"],
            str(row["outputs"]),
            f"{row['solving_ms']:.3g}",
            _small(row["label_over_ipopt"]),
        ]
        cells.append(f"{row['fit_seconds']:.0f}")
        for which in ANSWERS:
            told = row[which]
            cells.append(f"{told['ms']:.3g} ({told['over_solving']:.2f})")
            cells.append(f"{100 * told['hold_1e-6']:.4g} %")
            cells.append(f"{told['gap_mean']:.0e} / {told['gap_max']:.0e}")
        text.append("| " + " | ".join(cells) + " |")
    return "\n".join([*text, ""])


def _heads() -> list[str]:
    return [
        f"`{which}`, {what}"
        for which in ANSWERS
        for what in ("ms (of solving)", "hold", "gap % mean / worst")
    ]


def _small(value: float | None) -> str:
    return "" if value is None else f"{value:.0e}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("families", nargs="*", choices=[*FAMILIES, []])
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one)))
        return
    stored = json.loads(options.out.read_text(encoding="utf-8"))["families"] if options.out.exists() else []
    rows = {row["family"]: row for row in stored}
    for name in options.families or FAMILIES:
        done = subprocess.run(
            [sys.executable, __file__, "--one", name], stdout=subprocess.PIPE, text=True, check=False
        )
        if done.returncode:
            print(f"{name}: failed", file=sys.stderr)
            continue
        machine = describe_machine(cores_used=1)
        rows[name] = json.loads(done.stdout.splitlines()[-1]) | {"commit": machine["commit"]}
        print(json.dumps(rows[name]), flush=True)
        ordered = [rows[each] for each in FAMILIES if each in rows]
        document = {
            "benchmark": "other-problems", "published": PUBLISHED, "families": ordered,
            **{key: value for key, value in machine.items() if key != "commit"},
        }  # fmt: skip
        options.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        options.out.with_suffix(".md").write_text(page(document), encoding="utf-8")


if __name__ == "__main__":
    main()
