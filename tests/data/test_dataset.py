from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from feasibly.data.dataset import Dataset, LabelError, block_rows
from feasibly.data.schema import UNSOLVED
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
    assert marred.outcomes() == {"UNSOLVED": 2, "OK": 37, "NOT_FINITE_INPUT": 1}
    assert list(marred.outcome[[3, 7, 9]]) == [UNSOLVED, UNSOLVED, Outcome.NOT_FINITE_INPUT.value]
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


def test_the_frame_has_the_names_of_inputs_and_outputs(grid3: Problem) -> None:
    x = sample(grid3, 3, 0)
    frame = Dataset.from_arrays(grid3, x, np.tile(grid3.start, (3, 1))).frame
    assert list(frame["input"].values) == list(grid3.input_names)
    assert frame["y"].sel(output="vm_2").shape == (3,)
