from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from feasibly.data.dataset import Dataset
from feasibly.data.label import label
from feasibly.data.schema import FORMAT_VERSION, StoreError
from feasibly.data.store import Builder, Writer
from feasibly.problem.core import Problem
from feasibly.problem.sampling import sample
from tests.problems import make

COLUMNS = ("x", "y", "objective", "outcome", "iterations", "seconds")


@pytest.fixture(scope="module")
def solved() -> Dataset:
    return label(make("nonconvex"), count=70, jobs=1)


@pytest.fixture
def store(tmp_path: Path, solved: Dataset) -> Path:
    path = tmp_path / "rows.zarr"
    solved.save(path)
    return path


def same(one: Dataset, other: Dataset, but: tuple[str, ...] = ()) -> bool:
    columns = [name for name in COLUMNS if name not in but]
    equal = all(getattr(one, name).tobytes() == getattr(other, name).tobytes() for name in columns)
    if (one.duals is None) != (other.duals is None):
        return False
    if one.duals is None or other.duals is None:
        return equal
    pairs = [
        (getattr(one.duals, k), getattr(other.duals, k)) for k in ("equality", "inequality", "lower", "upper")
    ]
    return equal and all(a.tobytes() == b.tobytes() for a, b in pairs)


def test_a_store_reopens_by_itself(store: Path, solved: Dataset) -> None:
    back = Dataset.open(store)
    assert back.problem is not solved.problem
    assert back.problem.fingerprint == solved.problem.fingerprint
    assert back.provenance == solved.provenance
    assert same(back, solved)
    assert {entry.name for entry in store.iterdir()}.isdisjoint({".lock", ".new"})


def test_a_grid_reopens_without_its_file(tmp_path: Path, grid6: Problem) -> None:
    data = label(grid6, count=5, jobs=1)
    data.save(tmp_path / "grid.zarr")
    back = Dataset.open(tmp_path / "grid.zarr")
    assert same(back, data)
    assert np.array_equal(back.problem.equalities(back.x, back.y), grid6.equalities(data.x, data.y))
    assert back.problem.spread == grid6.spread


def test_xarray_alone_can_read_it(store: Path, solved: Dataset) -> None:
    plain = xr.open_zarr(store, chunks=None)
    assert plain["y"].dims == ("row", "output")
    assert np.array_equal(plain["y"].values, solved.y)
    assert plain.attrs["problem"]["fingerprint"] == solved.problem.fingerprint


@settings(max_examples=15)
@given(
    rows=st.integers(0, 600),
    seed=st.integers(0, 2**32 - 1),
    special=st.lists(st.sampled_from([np.nan, np.inf, -np.inf, -0.0, 5e-324, 1.7e308]), max_size=6),
)
def test_arrays_survive_the_disk_bit_by_bit(rows: int, seed: int, special: list[float]) -> None:
    problem = make("degenerate")
    random = np.random.Generator(np.random.Philox(key=seed))
    x = random.standard_normal((rows, problem.n_inputs))
    y = random.standard_normal((rows, problem.n_outputs))
    for value in special[:rows]:
        y[random.integers(rows), random.integers(problem.n_outputs)] = value
    data = Dataset.from_arrays(problem, x, y)
    with tempfile.TemporaryDirectory() as folder:
        data.save(Path(folder) / "rows.zarr")
        back = Dataset.open(Path(folder) / "rows.zarr", problem)
        assert same(back, data)
        assert back.n_labels == data.n_labels


def test_a_problem_of_ones_own_is_passed_in_and_checked(tmp_path: Path, toy: Problem) -> None:
    x = sample(toy, 4, 0)
    Dataset.from_arrays(toy, x, np.full((4, 2), 0.5)).save(tmp_path / "own.zarr")
    assert len(Dataset.open(tmp_path / "own.zarr", problem=toy)) == 4
    with pytest.raises(StoreError, match="a problem of your own, 'toy'; pass it"):
        Dataset.open(tmp_path / "own.zarr")
    other = Problem(lambda x, y: jnp.sum(y**2), [0, 0], [1, 1], box=([-1, -1], [1, 1]), name="other")
    with pytest.raises(StoreError, match="another problem"):
        Dataset.open(tmp_path / "own.zarr", problem=other)


# ---- refusing ----------------------------------------------------------------------------------------------


def test_what_is_not_a_store_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no dataset"):
        Dataset.open(tmp_path / "nothing.zarr")
    with pytest.raises(StoreError, match="is not a dataset"):
        Dataset.open(tmp_path)
    (tmp_path / "zarr.json").write_text('{"attributes": {}, "zarr_format": 3, "node_type": "group"}')
    with pytest.raises(StoreError, match="a Zarr store, but not a dataset"):
        Dataset.open(tmp_path)
    (tmp_path / "zarr.json").write_text('{"attr')
    with pytest.raises(StoreError, match="damaged"):
        Dataset.open(tmp_path)


@pytest.mark.parametrize(
    ("name", "value"),
    [("factor", 1e308), ("seed", "x"), ("solver", []), ("fingerprint", None), ("design", 3)],
)
def test_a_damaged_provenance_is_named(store: Path, name: str, value: object) -> None:
    """Found by fuzzing: JSON that is still JSON, with another value in it."""
    root = store / "zarr.json"
    document = json.loads(root.read_text())
    document["attributes"]["provenance"][name] = value
    root.write_text(json.dumps(document))
    with pytest.raises(StoreError, match=rf"provenance is damaged \({name} is not what"):
        Dataset.open(store)


@pytest.mark.parametrize(
    ("where", "name", "value"),
    [
        ("problem", "family", None),
        ("problem", "family", []),
        ("problem", "name", 3),
        ("problem", "fingerprint", None),
        ("", "problem", None),
        ("", "provenance", None),
        ("", "block", None),
        ("", "block", 0),
        ("", "block", "64"),
    ],
)
def test_a_damaged_header_is_named(store: Path, where: str, name: str, value: object) -> None:
    """Found by fuzzing: a name of an entry with another letter, which is an entry less; `None` takes it away."""
    root = store / "zarr.json"
    document = json.loads(root.read_text())
    entries = document["attributes"][where] if where else document["attributes"]
    entries.pop(name)
    if value is not None:
        entries[name] = value
    root.write_text(json.dumps(document))
    with pytest.raises(StoreError, match=f"is damaged: its zarr.json has no sound {name}"):
        Dataset.open(store)


def test_a_header_nested_too_deep_is_damaged(store: Path) -> None:
    (store / "zarr.json").write_text('{"attributes": ' + "[" * 100_000)
    with pytest.raises(StoreError, match=r"damaged: its zarr\.json cannot be read"):
        Dataset.open(store)


def test_a_newer_format_says_so(store: Path) -> None:
    root = store / "zarr.json"
    document = json.loads(root.read_text())
    document["attributes"]["format_version"] = FORMAT_VERSION + 1
    root.write_text(json.dumps(document))
    with pytest.raises(StoreError, match="newer feasibly"):
        Dataset.open(store)
    with pytest.raises(StoreError, match="newer feasibly"):
        label(make("nonconvex"), count=70, jobs=1, out=store)


@pytest.mark.parametrize("name", ["x", "y", "objective", "dual_equality", "outcome"])
def test_a_missing_chunk_is_noticed(store: Path, name: str) -> None:
    victim = sorted((store / name / "c").rglob("*"))[-1]
    while victim.is_dir():
        victim = next(victim.iterdir())
    shutil.rmtree(victim.parent) if victim.parent.name != "c" else victim.unlink()
    if name == "outcome":  # its rows are simply unsolved again
        assert Dataset.open(store).outcomes()["PENDING"] == 6
    else:
        with pytest.raises(StoreError, match=r"truncated: rows 64 to 69"):
            Dataset.open(store)


@pytest.mark.parametrize(("harm", "name"), [("cut", "y"), ("flip", "y"), ("flip", "x"), ("cut", "outcome")])
def test_a_damaged_chunk_is_noticed_and_mended(store: Path, solved: Dataset, harm: str, name: str) -> None:
    victim = store / name / "c" / "1" / ("" if name == "outcome" else "0")
    packed = bytearray(victim.read_bytes())
    if harm == "cut":
        del packed[len(packed) // 2 :]
    else:
        packed[len(packed) // 2] ^= 1
    victim.write_bytes(packed)
    damaged = rf"damaged: {name} cannot be read .* run the command that made it again"
    with pytest.raises(StoreError, match=damaged):
        getattr(Dataset.open(store), name)
    again: list[int] = []
    mended = label(
        make("nonconvex"), count=70, jobs=1, out=store, progress=lambda p: again.append(p.done - p.resumed)
    )
    assert same(mended, solved, but=("seconds",))
    assert again[-1] == 32  # that block and no other


def test_a_path_that_is_taken_is_left_alone(store: Path, tmp_path: Path, solved: Dataset) -> None:
    with pytest.raises(StoreError, match="exists already"):
        solved.save(store)
    half = solved.take(np.arange(10))
    half.save(store, overwrite=True)
    assert len(Dataset.open(store)) == 10
    foreign = tmp_path / "mine"
    foreign.mkdir()
    (foreign / "thesis.tex").write_text("years of work")
    for overwrite in (False, True):
        with pytest.raises(StoreError, match=r"not a dataset of feasibly \(thesis.tex is in it\)"):
            solved.save(foreign, overwrite=overwrite)
    assert [entry.name for entry in foreign.iterdir()] == ["thesis.tex"]


def test_a_store_does_not_overwrite_itself(store: Path) -> None:
    with pytest.raises(StoreError, match="are read from"):
        Dataset.open(store).save(store, overwrite=True)


# ---- dying half-way ----------------------------------------------------------------------------------------


def test_a_store_that_was_never_finished_is_begun_anew(tmp_path: Path, solved: Dataset) -> None:
    path = tmp_path / "rows.zarr"
    builder = Builder(
        path, {"input": 10, "output": 20, "equality": 10, "inequality": 20}, duals=True, block=32
    )
    builder.append({"x": solved.x})
    with pytest.raises(StoreError, match="interrupted while it was being made"):
        Dataset.open(path)
    builder._lock.release()  # what the system does for a process that dies
    shutil.copytree(path / ".new" / "x", path / "x")  # and this is how far it may have come
    solved.save(path)
    assert same(Dataset.open(path), solved)
    assert not (path / ".new").exists()


def test_an_unpublished_store_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "rows.zarr"
    with Builder(path, {"input": 1, "output": 1, "equality": 0, "inequality": 0}, duals=False, block=8):
        assert path.exists()
    assert not path.exists()


@contextmanager
def _small_files(most: int) -> Iterator[None]:
    """No file may grow beyond `most` bytes: the write fails as it does on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_loses_nothing(tmp_path: Path, solved: Dataset) -> None:
    path, problem = tmp_path / "rows.zarr", make("nonconvex")
    label(problem, solved.x[:32], jobs=1, out=path)
    with (
        pytest.raises(StoreError, match=r"the disk is full\. What was stored before is safe"),
        _small_files(400),
    ):
        label(problem, solved.x, jobs=1, out=path)
    kept = Dataset.open(path)
    assert (kept.outcome[:32] == 0).all()
    assert same(label(problem, solved.x, jobs=1, out=path), solved, but=("seconds",))


def test_a_second_writer_is_refused_and_a_dead_one_is_not(store: Path) -> None:
    hold = (
        "import sys, time; from pathlib import Path; from feasibly.data._lock import WriterLock\n"
        "lock = WriterLock(Path(sys.argv[1])); print('held', flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", hold, str(store)], stdout=subprocess.PIPE, env=_environment()
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(StoreError, match="another process is writing"):
            label(make("nonconvex"), count=70, jobs=1, out=store)
        with pytest.raises(StoreError, match="another process is writing"):
            Dataset.open(store).take([0]).save(store, overwrite=True)
        assert len(Dataset.open(store)) == 70  # reading is free
        other.kill()
    Writer(store).close()
    assert not (store / ".lock").exists()


def _environment() -> dict[str, str]:
    import feasibly.data

    source = str(Path(feasibly.data.__path__[0]).parents[1])
    return {**os.environ, "PYTHONPATH": os.pathsep.join([source, os.environ.get("PYTHONPATH", "")])}
