from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from feasibly.data.dataset import Dataset, LabelError
from feasibly.data.engines import EngineError, open_engine
from feasibly.data.label import LabelInterrupt, Progress, label
from feasibly.data.schema import StoreError
from feasibly.problem.core import Problem
from feasibly.problem.sampling import sample
from feasibly.solve.outcome import Outcome
from feasibly.solve.records import SolverOptions
from tests.data.test_store import same
from tests.problems import CASES, make

ROWS = 100
"""Three blocks of 32 and a rest."""


@pytest.fixture(scope="module")
def reference() -> Dataset:
    return label(make("nonconvex"), count=ROWS, jobs=1)


def test_rows_are_solved(reference: Dataset, nonconvex20: Problem) -> None:
    assert reference.n_labels == ROWS
    assert np.abs(nonconvex20.equalities(reference.x, reference.y)).max() < 1e-6
    assert nonconvex20.inequalities(reference.x, reference.y).max() < 1e-6
    assert np.allclose(nonconvex20.objectives(reference.x, reference.y), reference.objective, rtol=1e-12)
    assert (reference.iterations > 0).all()
    assert (reference.seconds > 0).all()
    assert reference.provenance.seed == 0
    assert reference.provenance.design == "uniform"
    assert reference.provenance.solver["tolerance"] == SolverOptions().tolerance
    assert {"casadi", "numpy", "feasibly"} <= set(reference.provenance.versions)


def test_a_closed_form_agrees(toy: Problem) -> None:
    optimum = CASES["toy"].optimum
    assert optimum is not None
    data = label(toy, sample(toy, 20, 3), jobs=1)
    assert np.abs(data.y - optimum(data.x)).max() < 1e-5


def test_multipliers_close_the_lagrangian(grid3: Problem) -> None:
    import jax

    from feasibly.precision import double

    data = label(grid3, count=2, jobs=1)
    duals = data.duals
    assert duals is not None

    def lagrangian(y: Any, x: Any, equal: Any, unequal: Any) -> Any:
        assert grid3.equality is not None
        assert grid3.inequality is not None
        return grid3.objective(x, y) + equal @ grid3.equality(x, y) + unequal @ grid3.inequality(x, y)

    with double():
        for i in range(len(data)):
            slope = jax.jit(jax.grad(lagrangian))(
                data.y[i], data.x[i], duals.equality[i], duals.inequality[i]
            )
            left = np.asarray(slope) - duals.lower[i] + duals.upper[i]
            assert np.abs(left).max() < 1e-6 * np.abs(duals.equality[i]).max()


def test_failed_rows_stay_and_are_named() -> None:
    problem = make("half-infeasible")
    data = label(problem, count=40, jobs=1)
    feasible = data.x[:, 0] <= 2.0
    assert (data.solved == feasible).all()
    assert data.outcomes() == {"OK": int(feasible.sum()), "INFEASIBLE": int((~feasible).sum())}
    assert np.isnan(data.y[~feasible]).all()
    with pytest.raises(LabelError) as caught:
        data.raise_if_failed()
    assert ", ".join(map(str, np.flatnonzero(~feasible))) in str(caught.value)
    assert Outcome.INFEASIBLE.advice in str(caught.value)


def test_two_processes_give_the_same_bits(reference: Dataset, nonconvex20: Problem) -> None:
    told: list[Progress] = []
    data = label(nonconvex20, reference.x, jobs=2, progress=told.append)
    assert same(data, reference, but=("seconds",))
    assert [p.stage for p in told] == ["translating"] + 4 * ["solving"]
    assert told[-1].done == told[-1].total == ROWS
    assert told[-1].failed == 0
    assert told[-1].rate > 0
    assert told[-1].seconds_left == 0


def test_no_problem_without_constraints_or_bounds() -> None:
    data = label(make("unconstrained"), count=5, jobs=1)
    assert np.abs(data.y - CASES["unconstrained"].optimum(data.x)).max() < 1e-5  # type: ignore[misc]
    assert data.duals is not None
    assert data.duals.equality.shape == (5, 0)


def test_no_rows_at_all(nonconvex20: Problem) -> None:
    assert len(label(nonconvex20, np.zeros((0, 10)), jobs=1)) == 0


# ---- stores ------------------------------------------------------------------------------------------------


def test_a_store_resumes_and_extends(tmp_path: Path, reference: Dataset, nonconvex20: Problem) -> None:
    path = tmp_path / "rows.zarr"
    told: list[Progress] = []
    first = label(nonconvex20, count=40, jobs=1, out=path)
    assert same(first, reference.take(np.arange(40)), but=("seconds",))
    label(nonconvex20, count=ROWS, jobs=1, out=path, progress=told.append)
    assert same(Dataset.open(path), reference, but=("seconds",))
    assert told[0].resumed == 40
    told.clear()
    whole = label(nonconvex20, count=40, jobs=1, out=path, progress=told.append)
    assert len(whole) == ROWS
    assert not told  # nothing left to do


def test_a_crashed_row_is_tried_again(tmp_path: Path, reference: Dataset, nonconvex20: Problem) -> None:
    path = tmp_path / "rows.zarr"
    columns = {name: np.array(getattr(reference, name)) for name in ("x", "y", "objective", "outcome")}
    for name in ("equality", "inequality", "lower", "upper"):
        columns[f"dual_{name}"] = getattr(reference.duals, name)
    columns["outcome"][50] = Outcome.CRASHED.value
    Dataset.from_columns(nonconvex20, columns, reference.provenance).save(path)
    again = label(nonconvex20, count=ROWS, jobs=1, out=path)
    assert again.n_labels == ROWS
    assert same(again, reference, but=("seconds", "iterations"))


def test_rows_of_another_version_are_noted(
    tmp_path: Path, reference: Dataset, nonconvex20: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rows.zarr"
    label(nonconvex20, count=3, jobs=1, out=path)
    assert "later_versions" not in label(nonconvex20, count=4, jobs=1, out=path).provenance.notes
    later = {**reference.provenance.versions, "casadi": "99.0"}
    monkeypatch.setattr("feasibly.data.label.versions_now", lambda: later)
    for _ in range(2):
        data = label(nonconvex20, count=5, jobs=1, out=path)
    assert data.provenance.versions == reference.provenance.versions
    assert data.provenance.notes["later_versions"] == [later]
    assert same(data, reference.take(np.arange(5)), but=("seconds",))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"seed": 1}, "holds other inputs .seed 0, now 1."),
        ({"design": "sobol"}, "design uniform, now sobol"),
        ({"options": SolverOptions(tolerance=1e-6)}, "tolerance 1e-08, now 1e-06"),
    ],
)
def test_a_store_of_other_settings_is_refused(
    tmp_path: Path, nonconvex20: Problem, change: dict[str, object], sentence: str
) -> None:
    label(nonconvex20, count=3, jobs=1, out=tmp_path / "rows.zarr")
    with pytest.raises(StoreError, match=sentence):
        label(nonconvex20, count=3, jobs=1, out=tmp_path / "rows.zarr", **change)  # type: ignore[arg-type]


def test_correlated_rows_are_known_by_how_they_were_drawn(tmp_path: Path, grid3: Problem) -> None:
    path = tmp_path / "rows.zarr"
    label(grid3, count=2, jobs=1, design="correlated", factor=(0.9, 1.0), out=path)
    data = Dataset.open(path)
    assert (data.provenance.design, data.provenance.factor, data.provenance.noise) == (
        "correlated",
        (0.9, 1.0),
        0.1,
    )
    again = sample(grid3, 4, 0, **data.provenance.drawing(grid3))
    assert len(label(grid3, count=4, jobs=1, design="correlated", factor=(0.9, 1.0), out=path)) == 4
    np.testing.assert_array_equal(Dataset.open(path).x, again)
    with pytest.raises(StoreError, match=r"factor \(0.9, 1.0\), now \(0.75, 1.1\)"):
        label(grid3, count=4, jobs=1, design="correlated", out=path)


def test_a_store_of_another_problem_or_source_is_refused(
    tmp_path: Path, toy: Problem, grid3: Problem
) -> None:
    Dataset.from_arrays(toy, np.zeros((2, 2)), np.zeros((2, 2))).save(tmp_path / "rows.zarr")
    with pytest.raises(StoreError, match=r"another problem \('toy', not '.*'\)"):
        label(grid3, count=2, jobs=1, out=tmp_path / "rows.zarr")
    with pytest.raises(StoreError, match=r"rows from elsewhere \(arrays\)"):
        label(toy, np.zeros((2, 2)), jobs=1, out=tmp_path / "rows.zarr")


# ---- bad input ---------------------------------------------------------------------------------------------


def test_inputs_that_are_not_finite_are_refused_before_solving(tmp_path: Path, toy: Problem) -> None:
    x = np.zeros((30, 2))
    x[[4, 17], 0] = np.nan, np.inf
    with pytest.raises(LabelError, match="rows 4, 17"):
        label(toy, x, out=tmp_path / "rows.zarr")
    assert not (tmp_path / "rows.zarr").exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({}, "give the inputs x, or count"),
        ({"x": np.zeros((1, 2)), "count": 3}, "not both"),
        ({"count": 3, "engine": "slurm"}, "choose one of local, dask, ray"),
        ({"count": 3, "jobs": 0}, "jobs must be"),
        ({"count": 3, "address": "tcp://here:8786"}, "the local engine has no address"),
    ],
)
def test_arguments_that_make_no_sense(toy: Problem, arguments: dict[str, object], sentence: str) -> None:
    with pytest.raises((LabelError, EngineError), match=sentence):
        label(toy, **arguments)  # type: ignore[arg-type]


# ---- Ctrl-C ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("jobs", [1, 2])
def test_ctrl_c_keeps_what_was_solved(
    tmp_path: Path, reference: Dataset, nonconvex20: Problem, jobs: int
) -> None:
    def press(progress: Progress) -> None:
        if progress.done:
            signal.raise_signal(signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(LabelInterrupt, match="32 of 100 rows") as caught:
        label(nonconvex20, count=ROWS, jobs=jobs, out=tmp_path / "rows.zarr", progress=press)
    assert signal.getsignal(signal.SIGINT) is before
    assert (caught.value.data.outcome == 0).sum() == 32
    rest = label(nonconvex20, count=ROWS, jobs=1, out=tmp_path / "rows.zarr")
    assert same(rest, reference, but=("seconds",))
    with pytest.raises(LabelInterrupt) as caught:
        label(nonconvex20, count=ROWS, jobs=1, progress=press)
    assert caught.value.data.n_labels == 32


def test_a_worker_that_cannot_read_the_solver_says_so() -> None:
    from feasibly.data.engines import RowBlock

    with open_engine("local", b"not a solver", jobs=1) as workers, pytest.raises(Exception, match=r"\S"):
        list(workers.run([RowBlock(0, np.zeros((1, 2)))]))
