from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from feasibly.data.dataset import Dataset
from feasibly.data.engines import EngineError, RowBlock, open_engine
from feasibly.data.label import Progress, _row_by_row, label
from feasibly.data.schema import sizes_of
from feasibly.problem.core import Problem
from feasibly.problem.errors import FeasiblyError, MissingExtraError
from feasibly.solve.outcome import Outcome
from tests.data.test_store import same
from tests.problems import make

ROWS = 200


@pytest.fixture(scope="module")
def reference() -> Dataset:
    return label(make("nonconvex"), count=ROWS, jobs=1)


@pytest.fixture(scope="module")
def payload() -> bytes:
    from feasibly.solve.nlp import Solver

    return Solver.build(make("nonconvex")).serialise()


class _Killer:
    """Kills one worker, the hard way, once the first block is back."""

    def __init__(self, words: str) -> None:
        self.words, self.killed = words, 0

    def __call__(self, progress: Progress) -> None:
        if not progress.done or self.killed:
            return
        for child in psutil.Process().children(recursive=True):
            try:
                if self.words in " ".join(child.cmdline()):
                    child.kill()
                    self.killed += 1
                    return
            except psutil.Error:
                continue


# Two real worker processes each, one of them killed with signal 9 at work, and every bit must be right.


def test_local_survives_the_death_of_a_worker(
    reference: Dataset, nonconvex20: Problem, tmp_path: Path
) -> None:
    killer = _Killer("LokyProcess")
    data = label(nonconvex20, reference.x, jobs=2, out=tmp_path / "rows.zarr", progress=killer)
    assert killer.killed == 1
    assert same(data, reference, but=("seconds",))


def test_dask_gives_the_same_bits_and_survives(reference: Dataset, nonconvex20: Problem) -> None:
    pytest.importorskip("distributed")
    killer = _Killer("multiprocessing.spawn")
    data = label(nonconvex20, reference.x, jobs=2, engine="dask", progress=killer)
    assert killer.killed == 1
    assert same(data, reference, but=("seconds",))


def test_dask_takes_an_existing_cluster(reference: Dataset, nonconvex20: Problem) -> None:
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=2, processes=True, dashboard_address=None, silence_logs=50
    ) as cluster:
        address = cluster.scheduler_address
        data = label(nonconvex20, reference.x, engine="dask", address=address)
        assert same(data, reference, but=("seconds",))


def test_ray_gives_the_same_bits_and_survives(reference: Dataset, nonconvex20: Problem) -> None:
    ray = pytest.importorskip("ray")
    killer = _Killer("ray::solve_carried")
    try:
        data = label(nonconvex20, reference.x, jobs=2, engine="ray", progress=killer)
        assert not ray.is_initialized()  # what we started, we end
    finally:
        ray.shutdown()
    assert killer.killed == 1
    assert same(data, reference, but=("seconds",))


def test_a_cluster_that_is_not_there(nonconvex20: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    from feasibly.data import _dask

    monkeypatch.setattr(_dask, "_PATIENCE", 0.5)
    with pytest.raises(EngineError, match=r"no Dask cluster answers at tcp://127\.0\.0\.1:1"):
        label(nonconvex20, count=2, engine="dask", address="tcp://127.0.0.1:1")


@pytest.mark.parametrize(("engine", "package"), [("dask", "distributed"), ("ray", "ray")])
def test_a_missing_extra_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, engine: str, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, f"feasibly.data._{engine}", raising=False)
    with pytest.raises(MissingExtraError, match=rf"pip install 'feasibly\[{engine}\]'"):
        open_engine(engine, b"", jobs=1)


class _Bomb:
    """Ends the process that unpickles it."""

    def __reduce__(self) -> Any:
        return os._exit, (9,)


class _Rows:
    """Rows of which one ends the process that takes it."""

    def __init__(self, x: Any, bad: int) -> None:
        self.x, self.bad = x, bad

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, rows: slice) -> Any:
        return _Bomb() if rows.start == self.bad else self.x[rows]


def test_a_block_that_kills_its_worker_loses_one_row(payload: bytes, reference: Dataset) -> None:
    with open_engine("local", payload, jobs=2) as workers:
        tasks = [RowBlock(0, reference.x[:4]), RowBlock(1, _Bomb()), RowBlock(2, reference.x[4:8])]  # type: ignore[arg-type]
        found = {task.index: arrays for task, arrays in workers.run(tasks)}
        assert found[1] is None
        for index in (0, 2):
            arrays = found[index] or {}
            assert (arrays["y"] == reference.y[2 * index : 2 * index + 4]).all()
        rows: Any = _Rows(reference.x[:3], bad=1)
        block = _row_by_row(workers, RowBlock(0, rows), sizes_of(reference.problem))
    assert block["outcome"].tolist() == [0, Outcome.CRASHED.value, 0]
    assert (block["y"][[0, 2]] == reference.y[[0, 2]]).all()
    assert np.isnan(block["y"][1]).all()


@pytest.mark.skipif(not hasattr(psutil.Process, "memory_maps"), reason="the system does not tell")
def test_workers_start_light_and_use_one_thread(payload: bytes, reference: Dataset) -> None:
    with open_engine("local", payload, jobs=2) as workers:
        assert len(list(workers.run([RowBlock(0, reference.x[:2]), RowBlock(1, reference.x[2:4])]))) == 2
        for worker in workers._workers:  # type: ignore[attr-defined]
            process = psutil.Process(worker.process.pid)
            loaded = " ".join(region.path for region in process.memory_maps())
            assert "casadi" in loaded
            assert "jaxlib" not in loaded
            assert process.environ()["OMP_NUM_THREADS"] == "1"


def test_workers_go_when_their_main_process_goes(payload: bytes) -> None:
    with open_engine("local", payload, jobs=2) as workers:
        processes = [worker.process for worker in workers._workers]  # type: ignore[attr-defined]
        workers._workers[0].connection.close()  # type: ignore[attr-defined]
        processes[0].join(timeout=20)
        assert processes[0].exitcode == 0
    assert processes[1].exitcode is not None


def test_a_row_that_breaks_the_solver_is_a_failed_row(
    payload: bytes, monkeypatch: pytest.MonkeyPatch, reference: Dataset
) -> None:
    from feasibly.solve.nlp import Solver

    solve = Solver.solve

    def sometimes(self: Solver, x: Any, start: Any = None) -> Any:
        if x[0] == reference.x[1, 0]:
            raise RuntimeError("the linear solver gave up")
        return solve(self, x, start)

    monkeypatch.setattr(Solver, "solve", sometimes)
    with open_engine("local", payload, jobs=1) as workers:
        ((_, arrays),) = workers.run([RowBlock(0, reference.x[:3])])
    assert arrays is not None
    assert arrays["outcome"].tolist() == [0, Outcome.NUMERICAL.value, 0]
    assert (arrays["y"][2] == reference.y[2]).all()


def _refusing(kind: str) -> Any:
    def refuse(x: Any) -> Any:
        if kind == "ours":
            raise MissingExtraError("pyarrow", "parquet", "reading parquet")
        raise type("Odd", (ValueError,), {"__reduce__": lambda self: 1 / 0})("nine lives")

    return refuse


@pytest.mark.parametrize(("kind", "words"), [("ours", "pyarrow"), ("odd", "Odd: nine lives")])
def test_what_went_wrong_in_a_worker_arrives_whatever_it_is(kind: str, words: str) -> None:
    from feasibly.data._local import open_local

    with open_local(_refusing, (kind,), 2) as engine, pytest.raises(FeasiblyError, match=words):
        list(engine.run([RowBlock(0, np.zeros((1, 2)))]))
