"""One learner, one data set, one seed, one core: its rows of the table and its learning curve, as JSON.

    taskset -c 3 python benchmarks/learners.py DATA --method sandwich-bnn --budget 600 --seed 0 --out FILE.json

DATA is a store made by `feasibly label`, or an `.npz` file made from one by `--pack`, which needs nothing but NumPy to
open on a machine that has no solver. The first 512 labels train, the last 1000 of the others test. XLA is told to use
one thread; with JAX_PLATFORMS=cuda in the environment it runs on a graphics card instead.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import jax  # noqa: E402
import numpy as np  # noqa: E402 - the settings above are read at import

import feasibly as fb  # noqa: E402
from feasibly.problem.families import describe, rebuild  # noqa: E402

TEST = 1000


def pack(data: fb.Dataset, path: Path, labels: int) -> None:
    """The training and test rows of a store, with the problem, in one file."""
    plain, arrays = describe(data.problem)
    rows = np.flatnonzero(data.solved)
    chosen = np.concatenate([rows[:labels], rows[labels:][-TEST:]])
    np.savez_compressed(
        path,
        x=data.x[chosen],
        y=data.y[chosen],
        about=np.frombuffer(json.dumps(plain).encode(), dtype=np.uint8),
        **{f"problem.{key}": value for key, value in arrays.items()},
    )


def unpack(path: Path) -> fb.Dataset:
    if path.suffix != ".npz":
        return fb.Dataset.open(path)
    with np.load(path) as file:
        parts = {key.removeprefix("problem."): file[key] for key in file.files if key.startswith("problem.")}
        problem = rebuild(json.loads(file["about"].tobytes()), parts)
        return fb.Dataset.from_arrays(problem, file["x"], file["y"])


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def commit() -> str:
    found = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    return found.stdout.strip() or os.environ.get("FEASIBLY_COMMIT", "unknown")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--pack", type=Path)
    parser.add_argument("--method", default="sandwich-bnn")
    parser.add_argument("--budget", type=float, default=600.0)
    parser.add_argument("--labels", type=int, default=512)
    parser.add_argument("--unlabelled", type=int, default=2048)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--answers", default="mean,svp")
    parser.add_argument(
        "--set", action="append", default=[], help="a setting of the method, key=value in JSON"
    )
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    data = unpack(args.data)
    if args.pack is not None:
        pack(data, args.pack, args.labels)
        return
    settings = {key: json.loads(value) for key, value in (pair.split("=", 1) for pair in args.set)}
    began = time.perf_counter()
    proxy = fb.fit(
        data.problem, data, args.method, budget=args.budget, seed=args.seed, labels=args.labels,
        unlabelled=args.unlabelled, **settings,
    )  # fmt: skip
    wall = time.perf_counter() - began
    test = data.take(np.flatnonzero(data.solved)[args.labels :][-TEST:])
    rows = []
    for answer in args.answers.split(","):
        try:
            rows.append(fb.evaluate_proxy(proxy, test, answer, repeat=False).as_dict())
        except ValueError as error:
            print(f"{args.method} {answer}: {error}", file=sys.stderr)
    result = {
        "problem": data.problem.name,
        "rows": rows,
        "history": [dict(entry) for entry in proxy.record.history],
        "seconds": dict(proxy.record.seconds),
        "settings": dict(proxy.record.settings),
        "note": proxy.record.note,
        "wall_seconds": wall,
        "machine": {
            "processor": processor(),
            "cores": 1,
            "python": platform.python_version(),
            "device": jax.devices()[0].device_kind,
        },
        "versions": dict(proxy.record.versions),
        "commit": commit(),
    }
    text = json.dumps(result, default=float)
    if args.out is None:
        print(text)
    else:
        args.out.write_text(text + "\n")
    for row in rows:
        columns = "gap {gap_percent:.4f} % max eq {max_eq:.5f} mean eq {mean_eq:.6f} max ineq {max_ineq:.5f}"
        print(
            args.method,
            row["answer"],
            columns.format(**row),
            "max bound",
            round(row["max_bound"], 5),
            file=sys.stderr,
        )


if __name__ == "__main__":
    main()
