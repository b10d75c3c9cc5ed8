"""Workers of a Ray cluster: an existing one, or one started here."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from feasibly.data import _worker
from feasibly.data.engines import RETRIES, Answered, Arrays, Engine, EngineError, RowBlock
from feasibly.problem.errors import MissingExtraError

try:
    import ray
except ImportError:
    raise MissingExtraError("ray", "ray", "the engine ray") from None


@contextmanager
def open_ray(digest: str, payload: bytes, jobs: int | None, address: str | None) -> Iterator[Engine]:
    """Join the cluster at `address`, use the one already joined, or start one with `jobs` workers."""
    ours = not ray.is_initialized()
    if ours:
        _join(jobs, address)
    try:
        yield _Workers(digest, payload)
    finally:
        if ours:
            ray.shutdown()


def _join(jobs: int | None, address: str | None) -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    quiet: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}
    try:
        with warnings.catch_warnings():
            # JAX warns of any fork; Ray's are followed at once by an exec, which is safe.
            warnings.filterwarnings("ignore", message=r"os\.fork\(\) was called")
            if address is None:
                import loky

                ray.init(num_cpus=jobs or loky.cpu_count(), include_dashboard=False, **quiet)
            else:
                ray.init(address=address, **quiet)
    except (ConnectionError, ValueError, RuntimeError) as error:
        what = (str(error).splitlines() or [type(error).__name__])[0]
        raise EngineError(f"no Ray cluster answers at {address or 'this machine'}: {what}") from None


class _Workers:
    def __init__(self, digest: str, payload: bytes) -> None:
        self._digest = digest
        self._payload = ray.put(np.frombuffer(payload, np.uint8))
        self._solve = ray.remote(num_cpus=1, max_retries=RETRIES)(_worker.solve_carried)

    @property
    def jobs(self) -> int:
        return max(1, int(ray.cluster_resources().get("CPU", 1)))

    def run(self, tasks: Iterable[RowBlock], window: int | None = None) -> Iterator[Answered]:
        window = window or 2 * self.jobs
        fresh = iter(tasks)
        running: dict[Any, RowBlock] = {}
        try:
            while True:
                while len(running) < window and (task := next(fresh, None)) is not None:
                    running[self._solve.remote(self._payload, self._digest, task.x)] = task
                if not running:
                    return
                (done, *_), _ = ray.wait(list(running), num_returns=1)
                yield running.pop(done), _result(done)
        finally:
            for reference in running:
                ray.cancel(reference, force=True)


def _result(reference: Any) -> Arrays | None:
    try:
        # Ray hands out read-only views of shared memory that it wants back.
        return {name: np.array(array) for name, array in ray.get(reference).items()}
    except (ray.exceptions.WorkerCrashedError, ray.exceptions.NodeDiedError, ray.exceptions.OutOfMemoryError):
        return None
    except ray.exceptions.RayTaskError as error:
        raise error.cause if isinstance(error.cause, Exception) else error from None
