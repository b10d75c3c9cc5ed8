"""What fanning out and storing cost: two worker processes against one, and both against the solver alone.

    python benchmarks/fanout.py                       case118, 2000 rows, three rounds, a minute on two cores
    python benchmarks/fanout.py --rows 500 --rounds 1

Each round runs every way once, so that a slow moment of the machine falls on all of them; the figures are
medians over rounds. `solver` is the sum of what the solver itself took for the rows; `wall` counts from the
moment the workers are started to the last block stored. `main_cpu` and `workers_cpu` are processor seconds, which a
busy machine disturbs less. Writes benchmarks/results/fanout.json.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from feasibly.data._local import open_local
from feasibly.data._worker import digest_of
from feasibly.data.dataset import block_rows, store_header
from feasibly.data.engines import Task
from feasibly.data.schema import Provenance, sizes_of
from feasibly.data.store import Builder, Writer
from feasibly.problem.families import load_problem
from feasibly.problem.sampling import sample
from feasibly.solve import Solver
from pglib_baseline import RESULTS, machine

SEED = 11


def children_cpu() -> float:
    """Processor seconds of the worker processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(problem: Any, payload: bytes, x: Any, jobs: int, folder: Path | None) -> dict[str, float]:
    """Solve `x` with `jobs` worker processes, into a store if a folder is given."""
    block = block_rows(problem)
    tasks = [Task(i, x[i * block : (i + 1) * block]) for i in range(-(-len(x) // block))]
    began = time.perf_counter()
    writer = None
    if folder is not None:
        path = folder / f"{time.monotonic_ns()}.zarr"
        with Builder(path, sizes_of(problem), duals=True, block=block) as builder:
            builder.append({"x": x})
            builder.publish(*store_header(problem, Provenance("label", problem.fingerprint)))
        writer = Writer(path)
    opened = time.perf_counter()
    solver = storing = 0.0
    first = None
    main_began, workers_began = time.process_time(), children_cpu()
    with open_local(digest_of(payload), payload, jobs) as workers:
        for task, arrays in workers.run(tasks):
            first = first or time.perf_counter()
            assert arrays is not None
            solver += float(arrays["seconds"].sum())
            if writer is not None:
                wrote = time.perf_counter()
                writer.write(task.index, arrays)
                storing += time.perf_counter() - wrote
        wall = time.perf_counter() - opened
        main_cpu = time.process_time() - main_began
    if writer is not None:
        writer.close()
    return {
        "main_cpu": main_cpu,
        "workers_cpu": children_cpu() - workers_began,
        "wall": wall,
        "solver": solver,
        "storing": storing,
        "creating": opened - began,
        "first": (first or 0.0) - opened,
    }


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--case", default="case118_ieee")
    options.add_argument("--rows", type=int, default=2000)
    options.add_argument("--rounds", type=int, default=3)
    chosen = options.parse_args()
    problem = load_problem(f"pglib:{chosen.case}")
    x = sample(problem, chosen.rows, SEED)
    payload = Solver.build(problem).serialise()
    ways = {
        "one worker": (1, False),
        "one worker, stored": (1, True),
        "two workers": (2, False),
        "two workers, stored": (2, True),
    }
    rounds: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
    with tempfile.TemporaryDirectory() as scratch:
        for _ in range(chosen.rounds):
            for way, (jobs, stored) in ways.items():
                rounds[way].append(run(problem, payload, x, jobs, Path(scratch) if stored else None))
    found = {
        way: {key: round(statistics.median(one[key] for one in runs), 4) for key in runs[0]}
        for way, runs in rounds.items()
    }
    for way, (jobs, _) in ways.items():
        figures = found[way]
        figures["overhead_percent"] = round(100.0 * (figures["wall"] * jobs / figures["solver"] - 1.0), 2)
        figures["main_cpu_percent"] = round(100.0 * figures["main_cpu"] / figures["workers_cpu"], 2)
    one, two = found["one worker, stored"], found["two workers, stored"]
    document = {
        "benchmark": "fanout",
        **machine(),
        "cores_used": 2,
        "load_before": round(os.getloadavg()[1], 2),
        "case": chosen.case,
        "rows": chosen.rows,
        "rounds": chosen.rounds,
        "block": block_rows(problem),
        "speedup_two_workers": round(one["wall"] / two["wall"], 3),
        "solver_slowdown_two_workers": round(two["solver"] / one["solver"], 3),
        "milliseconds_a_row": round(1e3 * one["solver"] / chosen.rows, 3),
        "ways": found,
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "fanout.json").write_text(json.dumps(document, indent=1) + "\n")
    print(f"{chosen.case}, {chosen.rows} rows, blocks of {document['block']}")
    for way, figures in found.items():
        times = f"wall {figures['wall']:7.3f} s   solver {figures['solver']:7.3f} s"
        print(
            f"{way:22} {times}   overhead {figures['overhead_percent']:6.2f} %"
            f"   main process {figures['main_cpu_percent']:5.2f} % of the workers' processor time"
        )
    print(f"two workers against one: {document['speedup_two_workers']:.2f} x")


if __name__ == "__main__":
    main()
