"""Cost against size, from 30 to 10,000 buses: what a label, a fit and an answer take, in time and memory.

    python benchmarks/scale.py --labels FOLDER --out benchmarks/results/scale.json [--cases case500_goc ...]
    python benchmarks/scale.py --figure benchmarks/results/scale.json --out docs/figures/scale.svg

Each case is labelled once (the store in `--labels` is kept and resumed) and then measured in a process of its own, so
that its peak of memory is its own. Times are processor seconds, which a busy machine disturbs less. The solver and
IPOPT solve the same unseen rows in the same run that the proxy answers them in. A row that nobody solves is left out of
what is judged and counted.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import feasibly as fb
from feasibly.measure.metrics import measure_rows
from feasibly.report.machine import describe_machine
from feasibly.solve.records import SolverOptions
from trees import ONE_CORE

HOLDS = 1e-4
"""A row holds if no constraint is off by more than this."""


@dataclass(frozen=True)
class Case:
    """What is measured of one grid."""

    name: str
    spread: float
    labels: int
    rows: int
    solved: int = 16
    """Unseen rows that our own solver solves again in the same run: all of them where few are hard, and those tell."""
    cold: int = 2
    """Unseen rows that IPOPT solves cold in the same run."""
    budget: float = 600.0
    patience: float = 3600.0
    """Seconds after which IPOPT gives a row up."""


CASES = [
    Case("case30_ieee", 0.2, 128, 64, 32, 8, 120.0),
    Case("case118_ieee", 0.2, 128, 64, 32, 8, 120.0),
    Case("case500_goc", 0.2, 512, 64, 16, 4, 120.0),
    Case("case1354_pegase", 0.2, 64, 32),
    Case("case2000_goc", 0.2, 64, 32),
    Case("case2869_pegase", 0.1, 32, 16, patience=60.0),
    Case("case4661_sdet", 0.1, 32, 16, patience=60.0),
    Case("case6468_rte", 0.05, 32, 16, patience=60.0),
    Case("case9241_pegase", 0.05, 64, 16, patience=60.0),
    Case("case10000_goc", 0.1, 64, 16, patience=60.0),
]

FIGURED = {
    "build_seconds": "build the solver",
    "solver_seconds": "label",
    "fit_seconds": "fit",
    "conditioned_seconds": "answer",
    "peak_gib": "memory, GiB",
}


def main() -> None:
    """Measure, or draw what was measured."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--labels", type=Path)
    words.add_argument(
        "--cases", nargs="*", help="some of these, or any of PGLib, as NAME or NAME:SPREAD:LABELS:ROWS"
    )
    words.add_argument("--figure", type=Path)
    words.add_argument("--one", help=argparse.SUPPRESS)
    words.add_argument("--out", type=Path, required=True)
    given = words.parse_args()
    if given.figure:
        draw(json.loads(given.figure.read_text()), given.out)
    elif given.one:
        given.out.write_text(json.dumps(measure(Case(**json.loads(given.one)), given.labels)))
    else:
        measure_all(chosen(given.cases), given.labels, given.out)


def chosen(names: list[str] | None) -> list[Case]:
    """The cases asked for."""
    known = {case.name: case for case in CASES}
    if not names:
        return CASES
    found = []
    for name in names:
        first, *rest = name.split(":")
        case = known.get(first) or Case(first, 0.1, 32, 16, patience=60.0)
        if rest:
            spread, labels, rows = float(rest[0]), int(rest[1]), int(rest[2])
            case = replace(case, spread=spread, labels=labels, rows=rows)
        found.append(case)
    return found


def measure_all(cases: list[Case], labels: Path, out: Path) -> None:
    """One case after the other, each in a process of its own; what was measured before stays."""
    before = json.loads(out.read_text())["rows"] if out.exists() else []
    rows = {row["case"]: row for row in before}
    for case in cases:
        with tempfile.TemporaryDirectory() as folder:
            target = Path(folder) / "row.json"
            words = ["--one", json.dumps(asdict(case)), "--labels", str(labels), "--out", str(target)]
            done = subprocess.run([sys.executable, __file__, *words], env=os.environ | ONE_CORE, check=False)
            if done.returncode:
                print(f"{case.name}: failed", file=sys.stderr)
                continue
            rows[case.name] = json.loads(target.read_text()) | {"commit": describe_machine()["commit"]}
        print(json.dumps(rows[case.name], indent=1), flush=True)
        ordered = sorted(rows.values(), key=lambda row: row["buses"])
        machine = {name: value for name, value in describe_machine().items() if name != "commit"}
        document = {"exponents": exponents(ordered), "rows": ordered, **machine}
        out.write_text(json.dumps(document, indent=1) + "\n")


def measure(case: Case, folder: Path) -> dict[str, Any]:
    """Everything about one grid."""
    from feasibly.solve.model import build_model
    from feasibly.solve.nlp import Solver

    folder.mkdir(parents=True, exist_ok=True)
    problem = fb.load_problem(f"pglib:{case.name}")
    store = folder / f"{case.name}-{case.spread:g}.zarr"
    data = fb.label(
        problem, count=case.labels + case.rows, seed=0, spread=case.spread, jobs=1, out=store,
        options=SolverOptions(max_seconds=case.patience),
    )  # fmt: skip
    solved = np.flatnonzero(data.solved)
    labels = min(case.labels, len(solved) - min(case.rows, len(solved) // 4))
    test = solved[labels:]
    fit_seconds, proxy = clock(lambda: fb.fit(problem, data, labels=labels, budget=case.budget))
    row: dict[str, Any] = {
        "case": case.name, "buses": buses(problem),
        "outputs": problem.n_outputs, "spread": case.spread, "labels": labels, "rows": len(test),
        "unsolved": int(len(data) - len(solved)), "method": proxy.method, "note": proxy.record.note,
        "fit_seconds": fit_seconds, "sparse": bool(proxy.calibration and proxy.calibration.sparse),
    }  # fmt: skip
    x, best = data.x[test], data.objective[test]
    proxy.predict(x)
    taken = []
    for _ in range(3):
        seconds, answer = clock(lambda: proxy.predict(x))
        taken.append(seconds / len(test))
    found = measure_rows(problem, x, answer.y, best)
    row |= {
        "conditioned_seconds": float(np.median(taken)),
        "conditioned_levels": {name: answer.level.count(name) for name in sorted(set(answer.level))},
        "holds": float(np.mean(found.worst <= HOLDS)),
        "gap_percent": float(np.mean(np.abs(answer.objective - best) / np.abs(best))) * 100.0,
        "largest_gap_percent": float(np.max(np.abs(answer.objective - best) / np.abs(best))) * 100.0,
        "peak_gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }
    with tempfile.TemporaryDirectory() as scratch:
        proxy.save(Path(scratch) / "model")
        files = [path.stat().st_size for path in (Path(scratch) / "model").rglob("*") if path.is_file()]
        row["folder_mb"] = sum(files) / 1e6
    row["build_seconds"], model = clock(lambda: build_model(problem))
    row["nominal_seconds"], solver = clock(lambda: Solver(model, SolverOptions()))
    some = x[: case.solved]
    row["solver_seconds"] = float(np.mean([clock(lambda r=r: solver.solve(r))[0] for r in some]))
    cold = Solver(model, SolverOptions(warm="none"), solver.nominal)
    row["ipopt_seconds"] = float(np.mean([clock(lambda r=r: cold.solve(r))[0] for r in x[: case.cold]]))
    row["solver_over_conditioned"] = row["solver_seconds"] / row["conditioned_seconds"]
    row["ipopt_over_conditioned"] = row["ipopt_seconds"] / row["conditioned_seconds"]
    return row


def buses(problem: fb.Problem) -> int:
    """How many the grid has: one voltage each."""
    place = problem.blocks["vm"]
    return int(place.stop - place.start)


def clock(call: Any) -> tuple[float, Any]:
    """Processor seconds, and what came back."""
    began = time.process_time()
    value = call()
    return time.process_time() - began, value


def exponents(rows: list[dict[str, Any]]) -> dict[str, float]:
    """The slope of each cost against buses on logarithmic axes."""
    if len(rows) < 2:
        return {}
    size = np.log([row["buses"] for row in rows])
    return {name: float(np.polyfit(size, np.log([row[name] for row in rows]), 1)[0]) for name in FIGURED}


def draw(document: dict[str, Any], out: Path) -> None:
    """One figure of every cost against size."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = document["rows"]
    figure, axes = pyplot.subplots(figsize=(8.4, 4.2), layout="constrained")
    for name, words in FIGURED.items():
        points = [(row["buses"], row[name]) for row in rows]
        power = document["exponents"].get(name, float("nan"))
        axes.loglog(*zip(*points, strict=True), marker="o", label=f"{words}: buses^{power:.2f}")
    axes.set_xlabel("buses")
    axes.set_ylabel("processor seconds (memory: GiB)")
    axes.grid(alpha=0.3, which="both")
    figure.legend(frameon=False, loc="outside right upper")
    figure.savefig(out)


if __name__ == "__main__":
    main()
