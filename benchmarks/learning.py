"""Learning curves: gap and violations of unseen instances against seconds of training, for every method.

    taskset -c 0 python benchmarks/learning.py case118.zarr --budget 200 --methods mae,sandwich-bnn
    taskset -c 0 python benchmarks/learning.py labels.npz --case pglib:case118_ieee

Reads a stored dataset, or an .npz with x, y and objective. The first `--labels` rows are the labels, the last `--tests`
rows are the unseen instances; states are chosen on validation labels alone, and the tests are measured after training.
One process, one core; every curve is one run. Writes benchmarks/results/learning-CASE.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")

import numpy as np

from feasibly.answer.svp import selection
from feasibly.measure.metrics import measure_rows, summarise
from feasibly.problem.core import Problem
from feasibly.problem.families import load_problem
from feasibly.train.registry import METHODS, train
from feasibly.train.task import Moment, Task

HERE = Path(__file__).parent

KEPT = ("seconds", "trial", "round", "stage", "step", "loss", "score", "gap_percent", "max_eq", "max_ineq")


def read(path: Path, case: str | None) -> tuple[Problem, np.ndarray, np.ndarray, np.ndarray]:
    if path.suffix == ".npz":
        if case is None:
            raise SystemExit("an .npz file says nothing of its problem; give it with --case")
        with np.load(path) as arrays:
            return load_problem(case), arrays["x"], arrays["y"], arrays["objective"]
    from feasibly.data.dataset import Dataset

    data = Dataset.open(path)
    rows = np.isfinite(data.objective)
    return data.problem, data.x[rows], data.y[rows], data.objective[rows]


def measured(
    problem: Problem, x: np.ndarray, objective: np.ndarray, model: Any, draws: int
) -> dict[str, Any]:
    """The paper's columns for every answer that the model itself gives."""
    answers = {}
    if hasattr(model, "moments"):
        chosen = selection(problem, model, x, draws=draws)
        answers = {"mean": chosen.moments.mean, "svp": chosen.y}
    else:
        answers = {"mean": model.predict(x).mean}
    table = {}
    for name, y in answers.items():
        metrics = summarise(measure_rows(problem, x, y, objective)).as_dict()
        metrics.pop("percentiles")
        table[name] = metrics
        columns = ("gap_percent", "max_eq", "mean_eq", "max_ineq", "max_bound")
        print("   ", name, *(f"{column} {metrics[column]:.5f}" for column in columns), flush=True)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--case")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--budget", type=float, default=60.0)
    parser.add_argument("--labels", type=int, default=512)
    parser.add_argument("--unlabelled", type=int, default=2048)
    parser.add_argument("--tests", type=int, default=1000)
    parser.add_argument("--draws", type=int, default=500)
    parser.add_argument("--trials", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of the methods"
    )
    parser.add_argument("--name", help="of the result; learning-CASE unless told")
    arguments = parser.parse_args()
    problem, x, y, objective = read(arguments.data, arguments.case)
    tests = slice(len(x) - arguments.tests, len(x))
    if arguments.labels + arguments.tests > len(x):
        raise SystemExit(
            f"{len(x)} rows are too few for {arguments.labels} labels and {arguments.tests} tests"
        )
    labels = slice(0, arguments.labels)
    task = Task.split(problem, x[labels], y[labels], unlabelled=arguments.unlabelled, seed=arguments.seed)
    changes = {key: _value(value) for key, value in (pair.split("=", 1) for pair in arguments.set)}
    curves = []

    def show(moment: Moment) -> None:
        print(
            f"\r    round {moment.round} {moment.stage:6} {moment.seconds_left:6.1f} s left",
            end="",
            flush=True,
        )

    for method in arguments.methods.split(","):
        done = train(
            task, method, arguments.budget, settings=changes or None, trials=arguments.trials, progress=show
        )
        steps = [{"round": s["round"], "stage": s["stage"], "steps": sum(s["chunks"])} for s in done.steps]
        print(f"\r{method}: {done.seconds['total']:.1f} s {done.note}", flush=True)
        print("   ", ", ".join(f"{s['stage']} {s['round']}: {s['steps']} steps" for s in steps))
        table = measured(problem, x[tests], objective[tests], done.model, arguments.draws)
        curves.append(
            {
                "method": method, "budget_seconds": arguments.budget, "train_seconds": done.seconds["total"],
                "seconds": dict(done.seconds), "steps": steps, "note": done.note, "labels": done.labels,
                "unlabelled": len(task.unlabelled), "seed": arguments.seed, "trials": arguments.trials,
                "settings": dict(done.settings), "tests": arguments.tests, "answers": table,
                "curve": [{key: entry[key] for key in KEPT if key in entry} for entry in done.history],
            }
        )  # fmt: skip
        # After every method, so that an interruption keeps what was measured.
        save(
            arguments.name or f"learning-{problem.name}",
            describe() | {"case": problem.name, "methods": curves},
        )


def describe() -> dict[str, Any]:
    """Where and when a figure was measured."""
    listed = Path("/proc/cpuinfo")
    names = [
        line.split(":", 1)[1].strip() for line in listed.read_text().splitlines() if "model name" in line
    ]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    asked = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=HERE, capture_output=True, text=True, check=False
    )
    return {
        "machine": names[0] if names else platform.processor(), "cores": cores, "commit": asked.stdout.strip(),
        "load": os.getloadavg()[0], "python": platform.python_version(), "date": time.strftime("%Y-%m-%d"),
    }  # fmt: skip


def save(name: str, result: dict[str, Any]) -> None:
    """As JSON under benchmarks/results."""
    (HERE / "results").mkdir(exist_ok=True)
    path = HERE / "results" / f"{name}.json"
    path.write_text(json.dumps(result, indent=1) + "\n")


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return {"True": True, "False": False}.get(text, text)


if __name__ == "__main__":
    main()
