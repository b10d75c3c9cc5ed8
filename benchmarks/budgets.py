"""Is a budget kept? `feasibly train` with every method on grids small and large, from no time at all to ten seconds.

    python benchmarks/budgets.py --out benchmarks/results/budgets.json [--grids case57_ieee,...] [--seconds 3600]
    python benchmarks/budgets.py --out FILE --draw 128          every case of the suite, methods and budgets by lot

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
from random import Random
from typing import Any

import feasibly as fb
from feasibly.report.machine import describe_machine
from feasibly.solve import SolverOptions
from feasibly.train.registry import METHODS
from lots import FILE

GRIDS = (
    "case5_pjm", "case14_ieee", "case30_as", "case39_epri", "case57_ieee", "case89_pegase", "case118_ieee",
    "case162_ieee_dtc", "case179_goc", "case197_snem", "case300_ieee", "case500_goc", "case588_sdet",
)  # fmt: skip
BUDGETS = (1e-9, 0.5, 3.0, 10.0, 30.0)
SPREADS = (0.2, 0.05, 0.02)
"""How far loads are drawn from nominal: the widest at which half of the draws have a solution."""
ALLOWED = 2.0
PATIENCE = SolverOptions(max_seconds=5.0)


def labels_of(grid: str, count: int, folder: Path) -> Path:
    path = folder / f"{grid}-{count}.zarr"
    if path.exists():
        return path
    problem = fb.load_problem(f"pglib:{grid}")
    for spread in SPREADS:
        x = fb.sample(problem, 2 * count, seed=0, spread=spread)
        tried = fb.label(problem, x[:16], jobs=1, options=PATIENCE)
        if 2 * tried.n_labels >= len(tried) or spread == SPREADS[-1]:
            fb.label(problem, x, jobs=1, options=PATIENCE, out=path)
            break
    return path


def drawn(count: int, seed: int, methods: list[str], budgets: list[float]) -> list[tuple[float, str, str]]:
    """So many runs over all cases of the suite in turn, each with a method and a budget drawn from a seed."""
    lots, random = json.loads(FILE.read_text(encoding="utf-8")), Random(seed)
    grids = [*lots["choosing"], *lots["judging"]]
    random.shuffle(grids)
    return [(random.choice(budgets), grids[i % len(grids)], random.choice(methods)) for i in range(count)]


def try_budget(store: Path, asked: int, method: str, budget: float) -> dict[str, Any]:
    labels = min(asked, fb.Dataset.open(store).n_labels)
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
    parser.add_argument("--draw", type=int, help="so many runs by lot instead, over every case of the suite")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--note", default="", help="what else went on, for whoever reads the figures")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    rows = finished(given.out, given.count)
    done = {(row["grid"], row["method"], row["budget"]) for row in rows}
    given.labels.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + given.seconds
    budgets, methods = list(map(float, given.budgets.split(","))), given.methods.split(",")
    # The smallest budget on every grid first: a campaign that is cut short has tried all of them.
    runs = list(itertools.product(budgets, given.grids.split(","), methods))
    if given.draw:
        runs = drawn(given.draw, given.seed, methods, budgets)
    for budget, grid, method in runs:
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
