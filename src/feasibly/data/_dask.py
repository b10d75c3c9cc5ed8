"""Workers of a Dask cluster: an existing one, or one started here."""

from __future__ import annotations

import signal
import uuid
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from feasibly.data import _worker
from feasibly.data.engines import Answered, Arrays, Engine, EngineError, RowBlock, handling_ctrl_c
from feasibly.problem.errors import MissingExtraError

try:
    import distributed
except ImportError:
    raise MissingExtraError("distributed", "dask", "the engine dask") from None

_PATIENCE = 30.0
"""Seconds to wait for a scheduler to answer and for a first worker."""


class _Carrier(distributed.WorkerPlugin):
    """Brings the solver to every worker, those that join or restart later included."""

    def __init__(self, digest: str, payload: bytes) -> None:
        self.name = f"feasibly-{digest}"
        self._digest, self._payload = digest, payload

    def setup(self, worker: Any) -> None:
        _worker.carry(self._digest, self._payload)


@contextmanager
def open_dask(digest: str, payload: bytes, jobs: int | None, address: str | None) -> Iterator[Engine]:
    """Connect to the scheduler at `address`, or start `jobs` worker processes here."""
    with ExitStack() as stack:
        if address is None:
            import loky

            jobs = jobs or loky.cpu_count()
            with handling_ctrl_c(signal.SIG_IGN):  # inherited: Ctrl-C is for us, who then end the workers
                cluster = distributed.LocalCluster(
                    n_workers=jobs,
                    threads_per_worker=1,
                    processes=True,
                    dashboard_address=None,
                    silence_logs=50,
                    env=_worker.ONE_THREAD,
                )
            stack.callback(cluster.close, timeout=10)
            target: Any = cluster
        else:
            target = address
        try:
            client = stack.enter_context(distributed.Client(target, timeout=_PATIENCE, set_as_default=False))
            client.wait_for_workers(1, timeout=_PATIENCE)
        except (OSError, TimeoutError, ValueError) as error:
            what = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise EngineError(f"no Dask cluster answers at {address or 'this machine'}: {what}") from None
        carrier = _Carrier(digest, payload)
        try:
            client.register_plugin(carrier)
        except Exception as error:
            raise EngineError(
                f"the Dask workers cannot take the solver ({type(error).__name__}: {error}); "
                "install the same feasibly on them as here"
            ) from None
        stack.callback(client.unregister_worker_plugin, carrier.name)
        yield _Workers(client, digest)


class _Workers:
    def __init__(self, client: Any, digest: str) -> None:
        self._client, self._digest = client, digest

    @property
    def jobs(self) -> int:
        return max(1, sum(self._client.nthreads().values()))

    def run(self, tasks: Iterable[RowBlock], window: int | None = None) -> Iterator[Answered]:
        window = window or 2 * self.jobs
        fresh = iter(tasks)
        name = f"feasibly-{uuid.uuid4().hex}"
        running: dict[Any, RowBlock] = {}
        results = distributed.as_completed(loop=self._client.loop)

        def submit() -> None:
            task = next(fresh, None)
            if task is None:
                return
            # The key is ours alone: another run's block of the same name must not answer for it.
            future = self._client.submit(
                _worker.solve_block, self._digest, task.x, key=f"{name}-{task.index}", pure=False
            )
            running[future.key] = task
            results.add(future)

        try:
            for _ in range(window):
                submit()
            while running:
                future = next(results)
                task = running.pop(future.key)
                submit()
                yield task, _result(future)
        finally:
            if running:
                self._client.cancel(list(running), force=True)


def _result(future: Any) -> Arrays | None:
    try:
        arrays: Arrays = future.result()
        return arrays
    except distributed.KilledWorker:  # the scheduler has already tried it elsewhere
        return None
