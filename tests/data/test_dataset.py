from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

from feasibly.data.dataset import Dataset, LabelError, block_rows
from feasibly.data.schema import PENDING
from feasibly.data.split import first_of_each, row_keys, split_rows
from feasibly.problem.core import Problem
from feasibly.problem.errors import FeasiblyError, ProblemError
from feasibly.problem.sampling import sample
from feasibly.solve.outcome import Outcome
from tests.problems import CASES, make


def _toy(rows: int = 40, seed: int = 0) -> Dataset:
    toy = make("toy")
    x = sample(toy, rows, seed)
    optimum = CASES["toy"].optimum
    assert optimum is not None
    return Dataset.from_arrays(toy, x, optimum(x))


def test_arrays_from_elsewhere_get_their_objective(toy: Problem) -> None:
    data = _toy()
    assert np.allclose(data.objective, ((data.y - data.x) ** 2).sum(axis=1), rtol=1e-14)
    assert data.n_labels == len(data) == 40
    assert data.duals is None
    assert data.provenance.source == "arrays"
    data.raise_if_failed()


def test_rows_without_a_finite_answer_are_not_labels(toy: Problem) -> None:
    data = _toy()
    x, y = data.x.copy(), data.y.copy()
    y[3, 1] = np.nan
    y[7] = np.inf
    x[9, 0] = np.nan
    marred = Dataset.from_arrays(toy, x, y)
    assert marred.outcomes() == {"PENDING": 2, "OK": 37, "NOT_FINITE_INPUT": 1}
    assert list(marred.outcome[[3, 7, 9]]) == [PENDING, PENDING, Outcome.NOT_FINITE_INPUT.value]
    assert np.isnan(marred.y[~marred.solved]).all()
    with pytest.raises(LabelError, match=r"3 of 40 rows are not labels") as caught:
        marred.raise_if_failed()
    assert "(3, 7)" in str(caught.value)
    assert Outcome.NOT_FINITE_INPUT.advice in str(caught.value)


def test_shapes_that_do_not_fit_are_refused(toy: Problem) -> None:
    with pytest.raises(ProblemError, match="expected shape"):
        Dataset.from_arrays(toy, np.zeros((3, 5)), np.zeros((3, 2)))


@given(
    usable=st.lists(st.booleans(), min_size=1, max_size=60),
    labels=st.integers(1, 60),
    validation=st.sampled_from([0.0, 0.1, 0.2, 0.25, 1 / 3, 0.5, 0.9]),
)
def test_splits_never_overlap_and_count_honestly(usable: list[bool], labels: int, validation: float) -> None:
    mask = np.array(usable)
    if labels > mask.sum():
        with pytest.raises(FeasiblyError, match="labels were asked for"):
            split_rows(mask, labels, validation)
        return
    split = split_rows(mask, labels, validation)
    parts = [set(part.tolist()) for part in (split.train, split.validation, split.test)]
    assert sum(map(len, parts)) == len(set.union(*parts)) == mask.sum()
    assert len(split.train) + len(split.validation) == labels == len(split.labels)
    assert len(split.validation) == int(np.floor(labels * validation + 1e-9))
    assert mask[sorted(set.union(*parts))].all()
    # More labels and more rows leave every earlier row's part alone.
    longer = split_rows(np.concatenate([mask, [True]]), labels + 1, validation)
    assert set(split.train) <= set(longer.train)
    assert set(split.validation) <= set(longer.validation)


def test_512_labels_are_410_to_learn_from_and_102_to_choose_by() -> None:
    split = split_rows(np.ones(1512, dtype=bool), 512, 0.2)
    assert (len(split.train), len(split.validation), len(split.test)) == (410, 102, 1000)


@pytest.mark.parametrize(("labels", "validation"), [(0, 0.2), (-3, 0.2), (2.5, 0.2), (3, 1.0), (3, -0.1)])
def test_a_split_that_makes_no_sense_is_refused(labels: int, validation: float) -> None:
    with pytest.raises(FeasiblyError):
        _toy().split(labels, validation=validation)


def test_an_input_that_stands_twice_is_one_label(toy: Problem) -> None:
    once = _toy(20)
    twice = Dataset.from_arrays(toy, np.tile(once.x, (2, 1)), np.tile(once.y, (2, 1)))
    assert twice.n_labels == 40
    split = twice.split(15)
    assert len(split.test) == 5
    assert split.test.max() < 20
    with pytest.raises(FeasiblyError, match="has 20"):
        twice.split(21)


def test_keys_tell_rows_apart_and_know_them_again(toy: Problem) -> None:
    data, other = _toy(30), _toy(30, seed=1)
    seen = data.keys[data.split(10).labels]
    assert data.unseen(seen).sum() == 20
    assert other.unseen(seen).all()
    shuffled = data.take(np.arange(30)[::-1])
    assert (shuffled.unseen(seen) == data.unseen(seen)[::-1]).all()
    assert (row_keys("a", data.x) != row_keys("b", data.x)).all()
    assert (row_keys("a", np.array([[0.0]])) == row_keys("a", np.array([[-0.0]]))).all()
    assert first_of_each(np.array([b"b", b"a", b"b"], dtype="S32")).tolist() == [True, True, False]


def test_taking_rows_keeps_their_numbers() -> None:
    data = _toy(10)
    part = data.take(data.objective > np.median(data.objective))
    assert len(part) == 5
    assert (part.x == data.x[part.rows]).all()
    assert (part.take([1, 3]).rows == part.rows[[1, 3]]).all()
    assert len(data.labelled(4)) == 4


def test_blocks_shrink_as_problems_grow() -> None:
    assert block_rows(make("toy")) == 32

    class Large:
        n_outputs = 4476

    assert block_rows(Large()) == 2  # type: ignore[arg-type]


def test_forms_have_the_names_of_inputs_outputs_and_outcomes(grid3: Problem) -> None:
    x, y = sample(grid3, 3, 0), np.tile(grid3.start, (3, 1))
    y[1, 0] = np.nan
    data = Dataset.from_arrays(grid3, x, y)
    assert data.outcome_names == ("OK", "PENDING", "OK")
    cube = data.to_xarray()
    assert list(cube["input"].values) == list(grid3.input_names)
    assert cube["y"].sel(output="vm_2").shape == (3,)
    assert tuple(cube["outcome"].values) == data.outcome_names
    table = data.take([1, 2]).to_pandas()
    assert list(table.index) == [1, 2]
    assert list(table.columns) == [
        *grid3.input_names, *grid3.output_names, "objective", "outcome", "iterations", "seconds",
    ]  # fmt: skip
    assert list(table["outcome"]) == ["PENDING", "OK"]
    assert table["pd_2"].to_numpy() == pytest.approx(x[1:, 0])
    assert np.isnan(table["vm_2"].iloc[0])


def test_a_store_keeps_the_codes_of_outcomes(grid3: Problem, tmp_path: Path) -> None:
    y = np.tile(grid3.start, (3, 1))
    y[1] = np.nan
    Dataset.from_arrays(grid3, sample(grid3, 3, 0), y).save(tmp_path / "rows")
    assert xr.open_zarr(tmp_path / "rows")["outcome"].values.tolist() == [0, -1, 0]
    assert Dataset.open(tmp_path / "rows").to_xarray()["outcome"].values.tolist() == ["OK", "PENDING", "OK"]
