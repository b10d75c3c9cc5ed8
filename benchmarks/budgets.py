"""Is a budget kept? `feasibly train` with every method on grids small and large, from no time at all to ten seconds.

    python benchmarks/budgets.py --out benchmarks/results/budgets.json [--grids case57_ieee,...] [--seconds 3600]

A budget counts from the moment the labels are open until there is a model to write; `over` is what that took beyond it,
and `wall` the whole command, which imports JAX before and writes the model after. Labels are kept in `--labels`: their
making is nobody's budget. Runs that `--out` has already from this very commit are not repeated.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import feasibly as fb
from feasibly.report.machine import describe_machine
from feasibly.train.registry import METHODS

GRIDS = (
    "case5_pjm", "case14_ieee", "case30_as", "case39_epri", "case57_ieee", "case89_pegase", "case118_ieee",
    "case162_ieee_dtc", "case179_goc", "case197_snem", "case300_ieee", "case500_goc", "case588_sdet",
)  # fmt: skip
BUDGETS = (1e-9, 0.5, 3.0, 10.0)
ALLOWED = 2.0


def labels_of(grid: str, count: int, folder: Path) -> Path:
    path = folder / f"{grid}-{count}.zarr"
    if not path.exists():
        fb.label(
            fb.load_problem(f"pglib:{grid}"), count=2 * count, seed=0, jobs=1, out=path
        )  # some are infeasible
    return path


def try_budget(store: Path, labels: int, method: str, budget: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="feasibly-budget-") as folder:
        words = [
            "train",
            str(store),
            "--labels",
            str(labels),
            "--method",
            method,
            "--budget",
            str(budget),
            "--out",
            f"{folder}/model",
            "--json",
        ]
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "feasibly", *words], capture_output=True, text=True, check=False
        )
        wall = time.monotonic() - began
        said: dict[str, Any] = {"method": method, "budget": budget, "wall": wall, "status": done.returncode}
        if done.returncode:
            return said | {"over": math.nan, "refused": done.stderr.strip().splitlines()[-1:]}
        told = json.loads(done.stdout)
        fb.Proxy.load(f"{folder}/model")
        return said | {
            "over": told["train_seconds"] - budget, "ended_with": told["method"], "note": told["note"],
        }  # fmt: skip


def finished(out: Path | None, labels: int) -> list[dict[str, Any]]:
    """What an earlier call has measured of the same commit."""
    if out is None or not out.exists():
        return []
    before = json.loads(out.read_text(encoding="utf-8"))
    same = before.get("commit") == describe_machine()["commit"] and before.get("labels") == labels
    return list(before["rows"]) if same else []


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--grids", default=",".join(GRIDS))
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--budgets", default=",".join(map(str, BUDGETS)))
    parser.add_argument("--count", type=int, default=64)
    parser.add_argument("--labels", type=Path, default=Path("benchmarks/cache/budgets"))
    parser.add_argument(
        "--seconds", type=float, default=math.inf, help="begin no further run after this long"
    )
    parser.add_argument("--note", default="", help="what else went on, for whoever reads the figures")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    rows = finished(given.out, given.count)
    done = {(row["grid"], row["method"], row["budget"]) for row in rows}
    given.labels.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + given.seconds
    # The smallest budget on every grid first: a campaign that is cut short has tried all of them.
    for budget, grid, method in itertools.product(
        map(float, given.budgets.split(",")), given.grids.split(","), given.methods.split(",")
    ):
        if (grid, method, budget) in done:
            continue
        if time.monotonic() > until:
            break
        store = labels_of(grid, given.count, given.labels)
        one = {"grid": grid} | try_budget(store, given.count, method, budget)
        rows.append(one)
        ended = one.get("ended_with") or one.get("refused")
        print(
            f"{grid} {method} {budget:g}: over {one['over']:.2f} s, wall {one['wall']:.1f} s, {ended}",
            flush=True,
        )
        if given.out:
            found = {
                "benchmark": "budgets", **describe_machine(), "note": given.note, "allowed_seconds": ALLOWED,
                "labels": given.count, "rows": rows,
            }  # fmt: skip
            given.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    late = [row for row in rows if not row["over"] <= ALLOWED]
    worst = max(row["over"] for row in rows)
    print(
        f"{len(rows)} runs, {len(late)} more than {ALLOWED:g} s over or failed; the worst {worst:.2f} s over"
    )


if __name__ == "__main__":
    main()
