"""What users see, pinned: quality and time of the answers on a few problems, for one source tree or several in turn.

    python benchmarks/regress.py --source . --out benchmarks/results/regress.json
    python benchmarks/regress.py --source ../old --source . --out FILE.json       old and new, interleaved

Labels are made once, by the first tree (the oldest cannot read a later format), and kept in `--labels`. Each tree fits
in a process of its own, through the public API; then every answer is asked for five times, the trees taking turns, and
the median is kept. Times are processor seconds, which a busy machine disturbs less, with the wall clock beside them.
The answers of all trees are measured by the code beside this file, not by their own.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import numpy as np

import feasibly as fb
from feasibly.measure.metrics import measure_rows, summarise
from feasibly.report.machine import describe_machine
from trees import Tree, opened

ROUNDS = 5
ANSWERS = ("mean", "conditioned", "polished", "auto")
METHODS = ("ridge", "default")
CASES: dict[str, dict[str, Any]] = {
    "pglib:case30_as": {"labels": 512, "rows": 500},
    "pglib:case57_ieee": {"labels": 512, "rows": 500},
    "pglib:case118_ieee": {"labels": 512, "rows": 500},
    "pglib:case500_goc": {"labels": 512, "rows": 200},
    "nonconvex:70,20,50": {"labels": 512, "rows": 500},
    "pglib:case2000_goc": {
        "labels": 64, "rows": 32, "answers": ("conditioned",), "methods": ("default",), "budget": 300.0,
    },
}  # fmt: skip
BUDGET = 60.0


def labels_of(case: str, folder: Path, tree: Tree) -> fb.Dataset:
    """The labels and the test rows of a case, solved at most once."""
    wanted = CASES[case]["labels"] + CASES[case]["rows"]
    store = folder / f"{case.split(':')[1].replace(',', '-')}.zarr"
    count = wanted
    while (found := tree.ask("store", case=case, count=count, store=store)["labels"]) < wanted:
        count += wanted - found + 8
    return fb.Dataset.open(store)


def measure(case: str, data: fb.Dataset, trees: list[Tree]) -> list[dict[str, Any]]:
    """Every method and answer of a case, one row for each tree."""
    settings = CASES[case]
    test = np.flatnonzero(data.solved)[settings["labels"] :][: settings["rows"]]
    x, best = data.x[test], data.objective[test]
    found = []
    for method in settings.get("methods", METHODS):
        fits = []
        for tree in trees:
            tree.ask("open", store=Path(str(data.path)))
            budget = settings.get("budget", BUDGET)
            named = None if method == "default" else method
            fits.append(tree.ask("fit", method=named, labels=settings["labels"], budget=budget))
        for answer in settings.get("answers", ANSWERS):
            for tree in trees:
                tree.ask("predict", x=x, answer=answer)  # compiles
            runs: list[list[dict[str, Any]]] = [[] for _ in trees]
            for _ in range(ROUNDS):
                for tree, run in zip(trees, runs, strict=True):
                    run.append(tree.ask("predict", x=x, answer=answer))
            for tree, fit, run in zip(trees, fits, runs, strict=True):
                row = {"case": case, "method": method, "answer": answer, "commit": tree.commit}
                found.append(row | quality(data.problem, x, best, run[-1]) | timing(run, len(x)) | fit)
                print(json.dumps(found[-1]), flush=True)
    return found


def quality(problem: fb.Problem, x: Any, best: Any, answered: dict[str, Any]) -> dict[str, Any]:
    """How good the answers are."""
    y = answered["y"]
    given = np.isfinite(y).all(axis=1)
    rows = measure_rows(problem, x[given], y[given], best[given])
    figures = summarise(rows)
    moves = answered.get("steps")
    return {
        "rows": len(x),
        "answered": int(given.sum()),
        "flagged_ok": int(answered["ok"].sum()),
        "gap_percent": figures.gap_percent,
        "worst_gap_percent": float(rows.gap_percent.max(initial=0.0)),
        "max_eq": figures.max_eq,
        "worst_eq": float(rows.max_eq.max(initial=0.0)),
        "max_ineq": figures.max_ineq,
        "worst_ineq": float(rows.max_ineq.max(initial=0.0)),
        "hold_1e-4": float((rows.worst < 1e-4).sum() / len(x)),
        "hold_1e-6": float((rows.worst < 1e-6).sum() / len(x)),
        "moves": None if moves is None else float(np.mean(moves)),
    }


def timing(run: list[dict[str, Any]], rows: int) -> dict[str, float]:
    """Medians, in milliseconds an instance."""
    return {
        "cpu_ms": 1e3 * statistics.median(one["cpu_seconds"] for one in run) / rows,
        "wall_ms": 1e3 * statistics.median(one["seconds"] for one in run) / rows,
    }


def compare(rows: list[dict[str, Any]], trees: list[Tree]) -> list[str]:
    """Where the last tree is worse than the first: a figure, or a time by more than a tenth."""
    if len(trees) < 2:
        return []
    said = []
    first, last = (
        {(r["case"], r["method"], r["answer"]): r for r in rows[k :: len(trees)]} for k in (0, len(trees) - 1)
    )
    for key, old in first.items():
        new = last[key]
        floors = {"gap_percent": 1e-6, "worst_gap_percent": 1e-5, "max_eq": 1e-7, "max_ineq": 1e-7}
        worse = [k for k, floor in floors.items() if not new[k] <= 1.05 * old[k] + floor]
        worse += [k for k in ("hold_1e-4", "hold_1e-6", "answered") if new[k] < old[k]]
        worse += ["cpu_ms"] if new["cpu_ms"] > 1.1 * old["cpu_ms"] else []
        said += [f"{' '.join(key)}: {name} {old[name]:.3g} -> {new[name]:.3g}" for name in worse]
    return said


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--source", type=Path, action="append", help="a source tree; may be given again")
    parser.add_argument("--labels", type=Path, default=Path("build/regress"), help="where labels are kept")
    parser.add_argument("--cases", nargs="*", default=list(CASES), choices=list(CASES))
    parser.add_argument("--labels-only", action="store_true")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    options.labels.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    sources = options.source or [Path(__file__).parents[1]]
    if not options.labels_only and options.out is None:
        parser.error("--out is needed")
    for case in options.cases:
        with opened(sources[:1]) as (first,):
            data = labels_of(case, options.labels, first)
        print(f"{case}: {data.n_labels} labels", flush=True)
        if options.labels_only:
            continue
        with opened(sources) as trees:  # fresh processes: what one case left in memory slows no other
            rows += measure(case, data, trees)
            worse = compare(rows, trees)
            document = {
                "benchmark": "regress",
                **describe_machine(cores_used=1),
                "trees": [tree.commit for tree in trees],
                "rounds": ROUNDS,
                "budget": BUDGET,
                "worse": worse,
                "rows": rows,
            }
        options.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        print("\n".join(worse), flush=True)


if __name__ == "__main__":
    main()
