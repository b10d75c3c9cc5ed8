"""A year under every single outage, as a planner would: `feasibly screen` on 8,760 hours, its cells judged by IPOPT.

    python benchmarks/year.py --labels STORE --folder FOLDER --out benchmarks/results/year-118.json [--jobs 1,2]

The profile is made up (benchmarks/profiles.py). The model comes
from solved rows with outages (benchmarks/outages.py keeps such a store), by `feasibly train`. The year is screened
whole with the last number of processes in `--jobs` and, from `--stretch` hours of it, with the others; a run that was
interrupted goes on. A hundred cells drawn by lot are solved again by IPOPT at tolerance 1e-10, a thousand by the
solver that makes labels, whose time is scaled up to all cells.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import feasibly as fb
from feasibly.answer.record import AnswerOutcome
from feasibly.report.machine import describe_machine
from feasibly.screening.plan import ScreeningPlan, make_plan
from grids import Reference
from profiles import HOURS, loads_of_a_year

CLOSE = 1e-3
"""Per cent above IPOPT's cost that a cell may be."""

Array = NDArray[np.float64]


def write_profile(problem: fb.Problem, path: Path, hours: int) -> None:
    """A column for each load, an hour a row."""
    names, values = loads_of_a_year(problem, hours)
    rows = (f"{hour}," + ",".join(f"{value:.9g}" for value in row) for hour, row in enumerate(values))
    path.write_text("\n".join([",".join(["hour", *names]), *rows]) + "\n", encoding="utf-8")


def command(*words: object, cores: int | None = None) -> tuple[dict[str, Any], float, float]:
    """What a command of ours printed as JSON, with its seconds by the clock and of all its processors."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    line = [sys.executable, "-m", "feasibly", *(str(word) for word in words), "--json"]
    if cores is not None:
        line = ["taskset", "-c", ",".join(str(core) for core in range(cores)), *line]
    done = subprocess.run(line, stdout=subprocess.PIPE, check=True, text=True)
    wall = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return json.loads(done.stdout), wall, cpu


def drawn(plan: ScreeningPlan, count: int, seed: int) -> tuple[Array, NDArray[np.int64], NDArray[np.int64]]:
    """Inputs of cells drawn by lot, with the hour and the outage of each."""
    cells = len(plan.hours) * len(plan.names)
    hour, outage = np.divmod(np.random.default_rng(seed).choice(cells, count, replace=False), len(plan.names))
    rows = [plan.rows(int(h), int(h) + 1)[o] for h, o in zip(hour, outage, strict=True)]
    return np.array(rows), hour, outage


def judged(plan: ScreeningPlan, found: fb.Screening, count: int, seed: int) -> dict[str, Any]:
    """Cells drawn by lot, solved again by IPOPT: outcomes that agree, and how far costs are apart."""
    x, hour, outage = drawn(plan, count, seed)
    cost, ipopt = found.cost, Reference(plan.problem)
    best = np.array([ipopt.cost(row) for row in x])
    ok = found.outcome[hour, outage] == AnswerOutcome.OK.value
    both = ok & np.isfinite(best)
    gap = 100.0 * (cost[hour, outage][both] - best[both]) / best[both]
    return {
        "cells": count, "ok": int(ok.sum()), "solved_by_ipopt": int(np.isfinite(best).sum()), "both": int(both.sum()),
        "ok_but_not_solved_by_ipopt": int((ok & ~np.isfinite(best)).sum()),
        "solved_by_ipopt_but_not_ok": int((~ok & np.isfinite(best)).sum()),
        "gap_percent_mean": float(gap.mean()), "gap_percent_worst": float(gap.max()),
        "gap_percent_lowest": float(gap.min()), "above": int((gap > CLOSE).sum()),
    }  # fmt: skip


def solving(plan: ScreeningPlan, count: int, seed: int) -> dict[str, Any]:
    """What the solver takes for cells drawn by lot, and for all of them at that rate."""
    mean = float(fb.label(plan.problem, drawn(plan, count, seed)[0], jobs=1).seconds.mean())
    cells = len(plan.hours) * len(plan.names)
    return {"cells": count, "seconds_a_cell": mean, "hours_for_all": mean * cells / 3600.0}


def main() -> None:
    """Read the command line, screen, judge, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--labels", required=True, help="a store of solved rows with outages")
    parser.add_argument(
        "--folder", type=Path, required=True, help="where profile, model and results are kept"
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--case", default="pglib:case118_ieee")
    parser.add_argument("--jobs", default="1,2")
    parser.add_argument("--stretch", type=int, default=400)
    parser.add_argument("--budget", type=float, default=120.0)
    parser.add_argument("--judged", type=int, default=100)
    parser.add_argument("--solved", type=int, default=1000)
    args = parser.parse_args()
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    args.folder.mkdir(parents=True, exist_ok=True)
    problem = fb.load_problem(args.case, vary=("load", "branch", "generator"))
    model, times = args.folder / "model", []
    if not model.exists():
        command("train", args.labels, "--budget", args.budget, "--out", model)
    jobs = [int(number) for number in args.jobs.split(",")]
    for number in jobs:
        hours = HOURS if number == jobs[-1] else args.stretch
        profile, out = args.folder / f"profile-{hours}.csv", args.folder / f"jobs-{number}.zarr"
        if not profile.exists():
            write_profile(problem, profile, hours)
        there = fb.Screening(out) if out.exists() else None
        before = 0 if there is None else int((there.outcome >= 0).sum())
        said, wall, cpu = command(
            "screen", model, profile, "--outages", "all", "--out", out, "--jobs", number, cores=number
        )
        cells = said["hours"] * (said["outages"] + 1)
        times.append({
            "jobs": number, "hours": said["hours"], "cells": cells, "cells_in_this_run": cells - before,
            "wall_seconds": wall, "cpu_seconds": cpu, "outcomes": said["outcomes"],
            "milliseconds_a_cell": 1e3 * wall / (cells - before) if before < cells else None,
            "minutes_for_the_year": (
                wall / (cells - before) * cells / said["hours"] * HOURS / 60.0 if before < cells else None
            ),
        })  # fmt: skip
        print(json.dumps(times[-1]), flush=True)
    found = fb.Screening(args.folder / f"jobs-{jobs[-1]}.zarr")
    columns = np.genfromtxt(args.folder / f"profile-{HOURS}.csv", delimiter=",", names=True)
    plan = make_plan(problem, {name: columns[name] for name in columns.dtype.names or ()})
    result = {
        "benchmark": "year", **describe_machine(), "case": args.case, "hours": HOURS, "outages": len(plan.names) - 1,
        "times": times, "solving": solving(plan, args.solved, 2),
        "judged": judged(plan, found, args.judged, 3),
    }  # fmt: skip
    args.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({key: result[key] for key in ("solving", "judged")}))


if __name__ == "__main__":
    main()
