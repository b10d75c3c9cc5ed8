"""Every grid, every regime: does a proxy answer each instance, how far from the optimum, and is it faster than solving?

    python benchmarks/everygrid.py --tag now                  512 labels, 200 unseen rows, every case, one core: hours
    python benchmarks/everygrid.py --quick --tag now          64 labels, 40 rows, a quarter of the cases by lot
    python benchmarks/everygrid.py --quick --half choosing    ideas are chosen on one half and judged on the other
    python benchmarks/everygrid.py --source TREE --tag old    another source tree, the same labels
    python benchmarks/everygrid.py --labels-only              solve what is missing, measure nothing
    python benchmarks/everygrid.py --tag now --go-on          what results/everygrid-TAG.json has is not measured again

All PGLib cases of up to 800 buses in three variants, under two regimes of inputs (benchmarks/grids.py says which, and
benchmarks/lots.json who chooses and who judges). Labels, references and what was measured are kept in `--keep`: a run
that was interrupted goes on where it stopped. Writes benchmarks/results/everygrid-TAG.json and a page beside it.

Solving is `label(problem, rows, jobs=1)` on the same rows by the same tree in the same run. Gaps are against IPOPT at
tolerance 1e-10 with bounds as they are, counted where an answer is above it. Times are processor seconds.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from everygrid_page import page
from feasibly.measure.metrics import measure_rows
from feasibly.problem.errors import FeasiblyError
from feasibly.report.machine import describe_machine
from grids import REGIMES, Member, Rows
from lots import FILE
from trees import Tree, opened

FULL = {"labels": 512, "rows": 200}
QUICK = {"labels": 64, "rows": 40}
PASSES, ENOUGH_SECONDS = 3, 20.0
"""A batch is timed so many times, fewer once that takes too long."""
QUICKLY, MANY = 0.02, 256
"""Rows that are solved in fewer seconds than that are timed in so many."""
CLOSE = 1e-3
"""An answer called OK may cost so many per cent more than IPOPT's."""
RESULTS = Path(__file__).parent / "results"


def measure(tree: Tree, member: Member, rows: Rows, budget: float) -> dict[str, Any]:
    """Everything that the suite says of one member."""
    tree.ask("open", store=rows.store)
    found: dict[str, Any] = {
        "level": rows.level, "drawn": rows.drawn, "feasible": rows.solved,
        "buses": int(member.case[4:].split("_")[0]), "labels": rows.labels, "rows": len(rows.x),
        "label_over_ipopt": relative(rows.label_cost, rows.best), "references": int(np.isfinite(rows.best).sum()),
    }  # fmt: skip
    solved = tree.ask("label", x=rows.x)
    solving = solver_seconds(tree, rows.x, solved)
    found["solving_ms"] = 1e3 * solving
    found["solving_outcomes"] = solved["outcomes"]
    found["solved_over_ipopt"] = relative(solved["objective"], rows.best)
    found |= tree.ask("fit", method=None, labels=rows.labels, budget=budget)
    found["budget"] = budget
    for which in ("conditioned", "auto"):
        timed = ask(tree, rows.x, which)
        found[which] = judge(member, rows, timed) | {
            "ms": 1e3 * timed["best"] / len(rows.x),
            "over_solving": timed["best"] / len(rows.x) / solving,
        }
    if len(rows.infeasible):
        found["infeasible"] = without_solution(tree, rows, found["auto"]["ms"] / 1e3)
    return found


def solver_seconds(tree: Tree, x: Any, solved: dict[str, Any]) -> float:
    """Processor seconds that solving a row takes; quick rows are solved again and again, to count them well."""
    if solved["seconds"].mean() < QUICKLY:
        solved = tree.ask("label", x=np.tile(x, (-(-MANY // len(x)), 1)))
    return float(solved["cpu_seconds_a_row"])


def ask(tree: Tree, x: Any, which: str) -> dict[str, Any]:
    """Answer a batch until it is compiled and timed; the last answer, with the least processor seconds of any pass."""
    answered = tree.ask("predict", x=x, answer=which)
    taken: list[float] = []
    while len(taken) < PASSES and sum(taken) < ENOUGH_SECONDS:
        answered = tree.ask("predict", x=x, answer=which)
        taken.append(answered["cpu_seconds"])
    return answered | {"best": min(taken)}


def judge(member: Member, rows: Rows, answered: dict[str, Any]) -> dict[str, Any]:
    """How many rows hold, and how far they are above IPOPT."""
    y, ok = answered["y"], answered["ok"]
    given = np.isfinite(y).all(axis=1)
    worst, cost = np.full(len(y), np.inf), np.full(len(y), np.nan)
    if given.any():
        measured = measure_rows(member.problem, rows.x[given], y[given])
        worst[given], cost[given] = measured.worst, measured.objective
    above = 100.0 * np.maximum(cost - rows.best, 0.0) / np.abs(rows.best)
    counted = np.isfinite(above) & (worst < 1e-4)
    kinds, counts = np.unique(answered["outcome"], return_counts=True)
    rungs, climbed = np.unique(answered["rung"], return_counts=True)
    return {
        "hold_1e-6": float((worst < 1e-6).mean()),
        "hold_1e-4": float((worst < 1e-4).mean()),
        "answered_1e-6": float((ok & (worst < 1e-6)).mean()),
        "outcomes": dict(zip(kinds.tolist(), counts.tolist(), strict=True)),
        "rungs": dict(zip(rungs.tolist(), climbed.tolist(), strict=True)),
        "gap_mean": float(above[counted].mean()) if counted.any() else None,
        "gap_max": float(above[counted].max()) if counted.any() else None,
        "ok_but_above": int((ok & counted & (above > CLOSE)).sum()),
        "worst_violation": float(worst.max()) if given.all() else None,
    }


def without_solution(tree: Tree, rows: Rows, a_row: float) -> dict[str, Any]:
    """What rows without a solution add to a batch, against what the solver takes for them, and what is said of them."""
    few = rows.infeasible[: len(rows.x)]
    solved = tree.ask("label", x=few)
    solving = len(few) * solver_seconds(tree, few, solved)
    together = ask(tree, np.concatenate([rows.x, few]), "auto")
    kinds, counts = np.unique(together["outcome"][len(rows.x) :], return_counts=True)
    return {
        "rows": len(few),
        "added_over_solving": (together["best"] - a_row * len(rows.x)) / solving,
        "solving_ms": 1e3 * solving / len(few),
        "outcomes": dict(zip(kinds.tolist(), counts.tolist(), strict=True)),
        "solver_outcomes": solved["outcomes"],
    }


def relative(cost: Any, best: Any) -> dict[str, float] | None:
    """How far costs lie above (and below) IPOPT's, relative."""
    known = np.isfinite(best) & np.isfinite(cost)
    if not known.any():
        return None
    off = (cost[known] - best[known]) / np.abs(best[known])
    return {"highest": float(off.max()), "lowest": float(off.min()), "median": float(np.median(np.abs(off)))}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--source", type=Path, default=Path(__file__).parents[1], help="the tree to measure")
    parser.add_argument("--tag", default="now", help="what to call the results")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--half", choices=("choosing", "judging"))
    parser.add_argument("--cases", nargs="*", help="these alone")
    parser.add_argument("--keep", type=Path, default=Path("build/everygrid"))
    parser.add_argument("--budget", type=float, default=60.0, help="of each fit, in seconds")
    parser.add_argument("--labels-only", action="store_true")
    parser.add_argument(
        "--go-on", action="store_true", help="from the stored results: each member has its commit"
    )
    options = parser.parse_args()
    lots = json.loads(FILE.read_text(encoding="utf-8"))
    size = QUICK if options.quick else FULL
    names = lots["quick"] if options.quick else lots["choosing"] + lots["judging"]
    names = [name for name in names if options.half is None or name in lots[options.half]]
    every, names = names, options.cases or names
    tag = f"{'quick' if options.quick else 'full'}-{options.tag}"
    measured = options.keep / tag
    measured.mkdir(parents=True, exist_ok=True)
    if options.go_on:
        restore(tag, measured)
    for case in names:
        for regime in REGIMES:
            file = measured / f"{case}-{regime}.json"
            if file.exists():
                continue
            member = Member(case, regime, options.keep)
            rows = member.prepare(**size)
            if options.labels_only:
                left = " leaves the suite" if rows is None else f", {rows.level:.0%}: {rows.drawn} draws"
                print(f"{member.name}{left}", flush=True)
                continue
            row: dict[str, Any] = {"case": case, "regime": regime}
            row["half"] = "choosing" if case in lots["choosing"] else "judging"
            if rows is not None:
                with opened([options.source]) as (tree,):
                    row |= {"commit": tree.commit} | measure(tree, member, rows, options.budget)
            file.write_text(json.dumps(row, indent=1) + "\n", encoding="utf-8")
            print(json.dumps(row), flush=True)
    if not options.labels_only:
        write(tag, measured, every if options.go_on else names, size)


def restore(tag: str, measured: Path) -> None:
    """Put what was stored where a run that goes on looks for it."""
    stored = RESULTS / f"everygrid-{tag}.json"
    if stored.exists():
        for row in json.loads(stored.read_text(encoding="utf-8"))["members"]:
            file = measured / f"{row['case']}-{row['regime']}.json"
            if not file.exists():
                file.write_text(json.dumps(row, indent=1) + "\n", encoding="utf-8")


def write(tag: str, measured: Path, names: list[str], size: dict[str, int]) -> None:
    """One document and one page of what was measured."""
    files = [measured / f"{case}-{regime}.json" for case in names for regime in REGIMES]
    rows = [json.loads(file.read_text(encoding="utf-8")) for file in files if file.exists()]
    document = {
        "benchmark": "everygrid",
        "tag": tag,
        **size,
        **describe_machine(cores_used=1),
        "members": rows,
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"everygrid-{tag}.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    (RESULTS / f"everygrid-{tag}.md").write_text(page(document), encoding="utf-8")


if __name__ == "__main__":
    try:
        main()
    except FeasiblyError as error:
        raise SystemExit(str(error)) from None
