"""`kill -9` of the main process at any moment, then the same command again."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from feasibly.data.dataset import Dataset
from feasibly.data.label import label
from tests.data.test_store import _environment, same
from tests.problems import make

ROWS = 300

SCRIPT = f"""
import sys
from feasibly.data.label import label
from feasibly.problem.nonconvex import nonconvex

if __name__ == "__main__":
    problem = nonconvex(20, 10, 20)
    print("begun", flush=True)
    label(problem, count={ROWS}, jobs=int(sys.argv[2]), out=sys.argv[1])
"""


@pytest.fixture(scope="module")
def reference() -> Dataset:
    return label(make("nonconvex"), count=ROWS, jobs=1)


@pytest.mark.parametrize("seed", range(2))
def test_nothing_is_lost_when_the_main_process_is_killed(
    tmp_path: Path, reference: Dataset, seed: int
) -> None:
    pick = random.Random(seed)
    path = tmp_path / "rows.zarr"
    wanted = pick.choice([0, 1, 3, 7])
    command = [sys.executable, "-c", SCRIPT, str(path), str(1 + seed % 2)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, env=_environment(), start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        deadline = time.monotonic() + 60.0
        chunks = path / "outcome" / "c"
        while time.monotonic() < deadline and process.poll() is None:
            if wanted == 0 and path.exists():
                break
            if wanted and chunks.is_dir() and len(list(chunks.iterdir())) >= wanted:
                break
            time.sleep(0.001)
        time.sleep(pick.uniform(0.0, 0.05))
        os.kill(process.pid, signal.SIGKILL)
    if (path / "zarr.json").exists():
        half = Dataset.open(path)
        assert (half.outcome[half.outcome != 0] == -1).all()
        assert half.y[half.solved].tobytes() == reference.y[half.solved].tobytes()
        assert half.solved.sum() % 32 == 0 or half.solved.all()
    whole = label(make("nonconvex"), count=ROWS, jobs=1, out=path)
    assert same(whole, reference, but=("seconds",))
