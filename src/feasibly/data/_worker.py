"""What runs in a worker: rebuild the solver once, solve blocks of rows. Needs neither JAX nor Zarr."""

from __future__ import annotations

import functools
import hashlib
import os
import pickle
import signal
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from feasibly.solve.nlp import Solver

Work = Callable[[NDArray[np.float64]], dict[str, NDArray[Any]]]
"""What is done to a block of inputs."""

ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "BLIS_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1",
}
"""Set in a worker before numerical libraries load: there is a worker a core, so more threads only collide."""

_packed: dict[str, bytes] = {}
_solvers: dict[str, Solver] = {}
_turn = threading.Lock()  # a Dask worker may run tasks in several threads; MUMPS may not


def digest_of(payload: bytes) -> str:
    """The name under which workers keep a serialised solver."""
    return hashlib.sha256(payload).hexdigest()[:32]


def carry(digest: str, payload: bytes) -> None:
    """Give this process a serialised solver, unpacked at its first block, where an error can be told."""
    os.environ.update(ONE_THREAD)
    _packed[digest] = payload


def serve(connection: Connection, prepare: Callable[..., Work], arguments: tuple[Any, ...]) -> None:
    """Be a worker process: do `prepare(*arguments)` to every block that comes through `connection` until it closes."""
    # Ctrl-C in a terminal reaches every process; it is for the main one, which then ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    work: Work | None = None
    try:
        while True:
            x = connection.recv()
            try:
                work = work or prepare(*arguments)
                answer: Any = work(x)
            except Exception as error:  # the main process must hear of it
                answer = _that_travels(error)
            connection.send(answer)
    except (EOFError, OSError):  # the main process is gone
        return


def _that_travels(error: Exception) -> Exception:
    """The same error, or one with its name and words where it would not arrive."""
    from feasibly.problem.errors import FeasiblyError

    try:
        pickle.loads(pickle.dumps(error))  # what a pipe between our own processes does to it
    except Exception:
        told = str(error) if isinstance(error, FeasiblyError) else f"{type(error).__name__}: {error}"
        return FeasiblyError(told)
    return error


def solving(digest: str, payload: bytes) -> Work:
    """What a worker does that solves; an error of one row is that row's outcome."""
    carry(digest, payload)
    return functools.partial(solve_block, digest)


def solve_block(
    digest: str, x: NDArray[np.float64], stopping: Callable[[], bool] | None = None
) -> dict[str, NDArray[Any]]:
    """Solve the rows `x` one after the other: the answer's arrays, named as in a dataset.

    `stopping` is asked between rows; when it says so, `KeyboardInterrupt` is raised.
    """
    with _turn:
        solver = _solver(digest)
        solutions = []
        for row in x:
            if stopping is not None and stopping():
                raise KeyboardInterrupt
            solutions.append(_solve_row(solver, row))
    return {
        "y": np.array([s.y for s in solutions]),
        "objective": np.array([s.objective for s in solutions], dtype=np.float64),
        "iterations": np.array([s.iterations for s in solutions], dtype=np.int32),
        "seconds": np.array([s.seconds for s in solutions], dtype=np.float64),
        "dual_equality": np.array([s.duals.equality for s in solutions]),
        "dual_inequality": np.array([s.duals.inequality for s in solutions]),
        "dual_lower": np.array([s.duals.lower for s in solutions]),
        "dual_upper": np.array([s.duals.upper for s in solutions]),
        "outcome": np.array([s.outcome.value for s in solutions], dtype=np.int8),
    }


def solve_carried(payload: NDArray[np.uint8], digest: str, x: NDArray[np.float64]) -> dict[str, NDArray[Any]]:
    """`solve_block` where the solver comes with the block (Ray shares it among processes of a machine)."""
    if digest not in _packed:
        carry(digest, payload.tobytes())
    return solve_block(digest, x)


def _solver(digest: str) -> Solver:
    if digest not in _solvers:
        from feasibly.solve.nlp import Solver

        _solvers.clear()  # one problem at a time: a long-lived worker must not pile them up
        _solvers[digest] = Solver.deserialise(_packed[digest])
    return _solvers[digest]


def _solve_row(solver: Solver, row: NDArray[np.float64]) -> Any:
    from feasibly.problem.errors import FeasiblyError

    try:
        return solver.solve(row)
    except FeasiblyError:
        raise
    except Exception:  # a failed row never stops a run, whatever the solver thought of it
        return _broken(solver, row)


def _broken(solver: Solver, row: NDArray[np.float64]) -> Any:
    """What the solver itself returns for a row that cannot be solved, under another name."""
    from dataclasses import replace

    from feasibly.solve.outcome import Outcome

    return replace(solver.solve(np.full_like(row, np.nan)), outcome=Outcome.NUMERICAL)
