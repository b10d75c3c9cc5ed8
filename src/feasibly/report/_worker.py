"""One training of a comparison in a process of its own, on a core of its own: `python -m feasibly.report._worker`.

Progress goes to standard output, a JSON list a line. Ctrl-C is left to the process that started this one.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any


def main() -> None:
    """Read a job from standard input and do it."""
    job: dict[str, Any] = json.load(sys.stdin)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_leave_with, args=(os.getppid(),), daemon=True).start()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {int(job["core"])})  # before JAX counts the cores it may use

    from feasibly.data.dataset import Dataset
    from feasibly.report.cells import ComparisonPlan, Shelf, Training, run_training

    told: list[Any] = [0.0, ""]
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not look like progress

    def tell(doing: str, answer: str, note: str) -> None:
        if doing + answer != told[1] or time.monotonic() - told[0] > 1.0:
            told[:] = [time.monotonic(), doing + answer]
            out.write(json.dumps([doing, answer, note]) + "\n")
            out.flush()

    training = Training(job["method"], int(job["seed"]), tuple(job["answers"]))
    run_training(
        Dataset.open(job["data"]),
        ComparisonPlan(**job["plan"]),
        training,
        Shelf(Path(job["folder"])),
        keep_model=bool(job["keep_model"]),
        tell=tell,
    )


def _leave_with(parent: int) -> None:
    """End when the process that started this one is gone, however it went: nobody would read the rest."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


if __name__ == "__main__":
    main()
