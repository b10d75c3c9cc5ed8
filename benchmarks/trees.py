"""A source tree of this project in a process of its own, asked through its public API alone.

Benchmarks that compare two versions start one `Tree` for each and ask them in turn, so that a slow moment of the
machine falls on both. This file is also the program at the other end: it reads one JSON object a line and answers
each with one.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ONE_CORE = {
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
"""What keeps NumPy and JAX on one core."""


class Tree:
    """One source tree at work. `ask` sends a request and waits for its answer; arrays travel as files."""

    def __init__(self, source: Path) -> None:
        self.source = source.resolve()
        package = self.source / "src" if (self.source / "src" / "feasibly").is_dir() else self.source
        if not (package / "feasibly").is_dir():
            raise SystemExit(f"there is no package feasibly in {source}")
        self.commit = git_commit(self.source)
        self._scratch = tempfile.TemporaryDirectory()
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **ONE_CORE, "PYTHONPATH": str(package)},
        )
        where = Path(self.ask("where")["package"]).resolve()
        if not where.is_relative_to(package):
            raise SystemExit(f"{package} was asked for and {where} was imported")

    def ask(self, verb: str, **arguments: Any) -> dict[str, Any]:
        """The answer to one request; a `SystemExit` with the other side's traceback if it broke."""
        import numpy as np

        folder = Path(self._scratch.name)
        for name, value in arguments.items():
            if isinstance(value, np.ndarray):
                np.save(folder / f"{name}.npy", value)
                arguments[name] = {"array": str(folder / f"{name}.npy")}
            elif isinstance(value, Path):
                arguments[name] = str(value.resolve())
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        request = json.dumps({"verb": verb, "out": str(folder / "out.npz"), **arguments})
        self._process.stdin.write(request + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        answer = json.loads(line) if line else {"error": "the process ended"}
        if "error" in answer:
            raise SystemExit(f"{self.source}, {verb}: {answer['error']}")
        if answer.pop("arrays", False):
            with np.load(folder / "out.npz", allow_pickle=False) as stored:
                answer.update(stored)
        return dict(answer)

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        self._scratch.cleanup()


@contextlib.contextmanager
def opened(sources: list[Path]) -> Iterator[list[Tree]]:
    """Trees that are closed again, whatever happens."""
    trees: list[Tree] = []
    try:
        for source in sources:
            trees.append(Tree(source))
        yield trees
    finally:
        for tree in trees:
            tree.close()


def git_commit(folder: Path) -> str:
    """The commit a tree was checked out from, marked where its code was changed since."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else ""

    changed = git("status", "--porcelain", "--untracked-files=no", "--", "src")
    return git("rev-parse", "HEAD") + ("+changes" if changed else "")


# ---- the other end ---------------------------------------------------------------------------------------


class Worker:
    """What a tree is asked to do. It holds one dataset and one proxy at a time."""

    def __init__(self) -> None:
        import feasibly

        self.fb: Any = feasibly
        self.data: Any = None
        self.proxy: Any = None
        self.turn = 0

    def where(self) -> dict[str, Any]:
        """Which package this is."""
        return {"package": self.fb.__file__}

    def open(self, store: str) -> dict[str, Any]:
        """Open a store of labels."""
        self.data = self.fb.Dataset.open(store)
        return {"rows": len(self.data)}

    def store(self, case: str, count: int, store: str) -> dict[str, Any]:
        """Label so many rows of a case in a store, with what is there already."""
        self.data = self.fb.label(self.fb.load_problem(case), count=count, seed=0, out=store, jobs=1)
        return {"labels": self.data.n_labels}

    def fit(self, method: str | None, labels: int, budget: float) -> dict[str, Any]:
        """Fit a proxy; the wall clock is that of the whole call."""
        began, used = time.perf_counter(), time.process_time()
        self.proxy = self.fb.fit(
            self.data.problem, self.data, method or self.fb.DEFAULT_METHOD, labels=labels, budget=budget
        )
        return {
            "fit_seconds": time.perf_counter() - began,
            "fit_cpu_seconds": time.process_time() - used,
            "method": self.proxy.method,
        }

    def predict(self, x: Any, answer: str, out: str) -> dict[str, Any]:
        """Answer rows once, timed; in another order each time, so that nothing is remembered from the last."""
        import numpy as np

        self.turn += 1
        x = np.roll(x, self.turn, axis=0)
        began, used = time.perf_counter(), time.process_time()
        found = self.proxy.predict(x, answer)
        seconds, cpu = time.perf_counter() - began, time.process_time() - used
        arrays = {"y": found.y, "ok": found.ok, "outcome": np.array([o.name for o in found.outcome])}
        arrays["rung"] = np.array(found.rung)
        for name in ("steps", "factorisations", "level"):  # the first version counted none of these
            if getattr(found, name, None) is not None:
                arrays[name] = np.asarray(getattr(found, name))
        np.savez(out, **{name: np.roll(values, -self.turn, axis=0) for name, values in arrays.items()})
        return {"seconds": seconds, "cpu_seconds": cpu, "arrays": True}

    def label(self, x: Any, out: str) -> dict[str, Any]:
        """Solve rows in this process: the solver's own seconds, and processor seconds a row.

        Those are counted between blocks, so that making the solver is left out; where all rows are one block, they are
        the wall clock's seconds times the share of it that was ours.
        """
        import numpy as np

        marks: list[tuple[int, float]] = []

        def mark(progress: Any) -> None:
            if progress.stage == "solving":
                marks.append((progress.done, time.process_time()))

        began, used = time.perf_counter(), time.process_time()
        found = self.fb.label(self.data.problem, x, jobs=1, progress=mark)
        share = min((time.process_time() - used) / (time.perf_counter() - began), 1.0)
        cpu = float(found.seconds.mean()) * share
        counted = marks[-1][0] - marks[0][0]
        if counted >= max(len(x) // 2, 1):
            cpu = (marks[-1][1] - marks[0][1]) / counted
        np.savez(out, seconds=found.seconds, objective=found.objective, solved=found.solved, y=found.y)
        return {"cpu_seconds_a_row": cpu, "outcomes": found.outcomes(), "arrays": True}


def serve() -> None:
    """Answer requests until there are no more."""
    import traceback

    import numpy as np

    # Whatever a library prints must not get between the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    worker = Worker()
    for line in sys.stdin:
        request = json.loads(line)
        verb, out = request.pop("verb"), request.pop("out")
        if verb in ("predict", "label"):
            request["out"] = out
        for name, value in request.items():
            if isinstance(value, dict):
                request[name] = np.load(value["array"], allow_pickle=False)
        try:
            answer = getattr(worker, verb)(**request)
        except Exception:
            answer = {"error": traceback.format_exc()}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    serve()
