"""Kill labelling at random moments, again and again, and see whether a row is ever lost or wrong.

    python benchmarks/kill.py                  until 40 kills have struck, about four minutes on two cores
    python benchmarks/kill.py --kills 200

A trial labels a grid into a fresh store with two workers. The main process (even trials) or one worker (odd
trials) is killed with signal 9 at a random moment: three times in four once a random share of the rows is
stored and some milliseconds more, otherwise at a random time since the start, the making of the store included.
The store is then opened as a reader would: every row it calls solved must equal the reference bit by bit, and
no row seen solved before may be missing. The same command runs again, may be killed once more, and then
finishes: all rows, bit by bit. Writes benchmarks/results/kill.json.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from feasibly.data.dataset import Dataset, block_rows
from feasibly.data.label import label
from feasibly.data.schema import StoreError
from feasibly.problem.families import load_problem
from pglib_baseline import RESULTS, machine

CASE, ROWS, KILLS = "pglib:case57_ieee", 1500, 2
COLUMNS = ("x", "y", "objective", "outcome", "iterations")
DUALS = ("equality", "inequality", "lower", "upper")


def labelling(path: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, __file__, "--child", str(path)], start_new_session=True)


def child(path: str) -> None:
    label(load_problem(CASE), count=ROWS, seed=3, jobs=2, out=path)


def differences(data: Dataset, reference: Dataset, rows: Any) -> list[str]:
    """The columns in which `rows` are not the reference's to the last bit."""
    pairs = {name: (getattr(data, name), getattr(reference, name)) for name in COLUMNS}
    assert data.duals is not None
    assert reference.duals is not None
    pairs |= {name: (getattr(data.duals, name), getattr(reference.duals, name)) for name in DUALS}
    return [name for name, (one, other) in pairs.items() if one[rows].tobytes() != other[rows].tobytes()]


def await_moment(process: subprocess.Popen[bytes], path: Path, length: float, pick: random.Random) -> None:
    if pick.random() < 0.25:
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=pick.uniform(0.0, length))
        return
    chunks, block = path / "outcome" / "c", block_rows(load_problem(CASE))
    wanted = pick.random() * ROWS / block
    while process.poll() is None and (not chunks.is_dir() or len(os.listdir(chunks)) <= wanted):
        time.sleep(0.002)
    time.sleep(pick.uniform(0.0, 0.05))


def kill_worker(process: subprocess.Popen[bytes], pick: random.Random) -> bool:
    try:
        workers = [
            p
            for p in psutil.Process(process.pid).children(recursive=True)
            if "LokyProcess" in " ".join(p.cmdline())
        ]
        if workers:
            pick.choice(workers).kill()
        return bool(workers)
    except psutil.Error:
        return False


def trial(
    number: int, folder: Path, reference: Dataset, length: float, pick: random.Random
) -> dict[str, Any]:
    path = folder / f"{number}.zarr"
    events: list[dict[str, Any]] = []
    seen = np.zeros(ROWS, dtype=bool)
    for _ in range(KILLS):
        process = labelling(path)
        began = time.perf_counter()
        await_moment(process, path, length, pick)
        moment = time.perf_counter() - began
        if number % 2:
            what = "worker" if kill_worker(process, pick) else "worker (none there)"
            process.wait(timeout=600)
        else:
            what = "main" if process.poll() is None else "main (had ended)"
            if process.poll() is None:
                os.kill(process.pid, signal.SIGKILL)
            process.wait()
        event: dict[str, Any] = {"killed": what, "after_seconds": round(moment, 3)}
        try:
            half = Dataset.open(path)
            done = half.outcome != -1
            event |= {
                "rows_there": int(done.sum()),
                "wrong": differences(half, reference, done),
                "lost": int((seen & ~done).sum()),
            }
            seen |= done
        except StoreError as error:
            fresh = "no dataset at" in str(error) or "interrupted while" in str(error)
            event |= {
                "rows_there": 0,
                "wrong": [] if fresh and not seen.any() else [str(error)],
                "lost": int(seen.sum()),
            }
        events.append(event)
        if seen.all():
            break
    process = labelling(path)
    code = process.wait(timeout=600)
    whole = Dataset.open(path)
    return {
        "events": events,
        "exit": code,
        "identical": code == 0 and len(whole) == ROWS and not differences(whole, reference, np.arange(ROWS)),
        "debris": sorted(p.name for p in path.rglob("*") if p.name.startswith(".") or p.suffix == ".partial"),
    }


def main() -> int:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--kills", type=int, default=40)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--child")
    chosen = options.parse_args()
    if chosen.child:
        child(chosen.child)
        return 0
    pick = random.Random(chosen.seed)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        assert labelling(folder / "warming.zarr").wait() == 0  # compiled files and disk caches
        began = time.perf_counter()
        assert labelling(folder / "reference.zarr").wait() == 0
        length = time.perf_counter() - began
        reference = Dataset.open(folder / "reference.zarr")
        for name in COLUMNS:
            getattr(reference, name)
        trials: list[dict[str, Any]] = []
        while sum("(" not in e["killed"] for t in trials for e in t["events"]) < chosen.kills:
            number = len(trials)
            trials.append(trial(number, folder, reference, length, pick))
            last = trials[-1]
            there = ", ".join(
                f"{e['killed']} at {e['after_seconds']:.2f} s: {e['rows_there']} rows" for e in last["events"]
            )
            print(f"trial {number + 1:3}: {there}; then identical: {last['identical']}", flush=True)
    good = [t["identical"] and not any(e["wrong"] or e["lost"] for e in t["events"]) for t in trials]
    killed = [e for t in trials for e in t["events"] if "(" not in e["killed"]]
    document = {
        "benchmark": "kill",
        **machine(),
        "cores_used": 2,
        "case": CASE,
        "rows": ROWS,
        "run_seconds": round(length, 2),
        "trials": len(trials),
        "kills": {kind: sum(e["killed"] == kind for e in killed) for kind in ("main", "worker")},
        "kills_with_some_rows_there": sum(0 < e["rows_there"] < ROWS for e in killed),
        "trials_without_loss": sum(good),
        "results": trials,
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "kill.json").write_text(json.dumps(document, indent=1) + "\n")
    print(f"{sum(good)} of {len(good)} trials lost nothing ({document['kills']})")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
