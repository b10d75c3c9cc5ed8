"""Trainings in processes of their own, one core each, so many at a time."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from feasibly._files import plain
from feasibly.data.dataset import Dataset
from feasibly.report.cells import ComparisonPlan, Shelf, Step, Training, fail

Watch = Callable[[Step], None]

HEARTBEAT = 1.0
"""Seconds after which whoever watches hears again, also where nothing has happened."""


def run_apart(
    data: Dataset,
    plan: ComparisonPlan,
    queued: list[Training],
    shelf: Shelf,
    keep: bool,
    progress: Watch | None,
    jobs: int,
) -> None:
    """Run every training of `queued`, each in a process with one core, `jobs` at a time.

    A process that dies leaves rows that say so. Leaving this function early, by Ctrl-C for one, ends the processes.
    """
    if not queued:
        return
    path = data.path
    if path is None:
        path = shelf.folder / "rows.zarr"
        if not path.exists():
            data.save(path)
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
    free = [cores[i % len(cores)] for i in range(jobs)]
    events: queue.Queue[tuple[Training, list[str] | int]] = queue.Queue()
    running: dict[str, tuple[subprocess.Popen[str], int]] = {}
    waiting = list(queued)
    done = 0
    last: Step | None = None
    try:
        while waiting or running:
            while waiting and free:
                training, core = waiting.pop(0), free.pop(0)
                job = {
                    "data": str(Path(path).absolute()), "folder": str(shelf.folder.absolute()),
                    "plan": plain(plan.as_dict()), "method": training.method, "seed": training.seed,
                    "answers": training.answers, "keep_model": keep, "core": core,
                }  # fmt: skip
                running[training.name] = (_start(job, training, events), core)
            try:
                training, event = events.get(timeout=HEARTBEAT)
            except queue.Empty:
                if progress is not None and last is not None:
                    progress(last)  # whoever listens may want to stop meanwhile
                continue
            if isinstance(event, int):
                process, core = running.pop(training.name)
                free.append(core)
                done += 1
                if event:
                    _blame(shelf, plan, training, event)
                step = Step("done", training.method, training.seed, "", done, len(queued))
            else:
                step = Step(event[0], training.method, training.seed, event[1], done, len(queued), event[2])
            last = step
            if progress is not None:
                progress(step)
    finally:
        for process, _ in running.values():
            process.kill()
            process.wait()


def _start(job: Mapping[str, Any], training: Training, events: queue.Queue[Any]) -> subprocess.Popen[str]:
    single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    process = subprocess.Popen(
        [sys.executable, "-m", "feasibly.report._worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | single,
    )
    assert process.stdin is not None
    # It may die before it has read its task; its exit status says so below.
    with contextlib.suppress(BrokenPipeError), process.stdin as task:
        task.write(json.dumps(job))

    def listen() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            events.put((training, json.loads(line)))
        events.put((training, process.wait()))

    threading.Thread(target=listen, daemon=True).start()
    return process


def _blame(shelf: Shelf, plan: ComparisonPlan, training: Training, status: int) -> None:
    how = (
        f"was killed by signal {-status}, perhaps for want of memory"
        if status < 0
        else f"ended with status {status}"
    )
    for answer in shelf.missing(training):
        fail(shelf, plan, training, answer, f"the process that trained and answered {how}")
