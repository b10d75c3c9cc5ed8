"""One solved instance: everything else is found from it."""

import numpy as np
import pytest

import feasibly as fb
from feasibly.answer.settings import Settings
from feasibly.measure.metrics import measure_rows
from tests.problems import make


@pytest.mark.parametrize("name", ["grid6", "nonconvex"])
def test_one_label_is_enough(name):
    problem = make(name)
    data = fb.label(problem, count=30, seed=4, jobs=1)
    proxy = fb.fit(problem, data, labels=1, budget=600)
    assert proxy.method == "response"
    assert proxy.record.labels == 1
    rows = np.flatnonzero(data.solved)[1:]
    answer = proxy.predict(data.x[rows], "conditioned")
    found = measure_rows(problem, data.x[rows], answer.y, data.objective[rows])
    assert np.mean(found.worst < 1e-6) >= 0.95
    gap = np.abs(found.objective - data.objective[rows]) / np.maximum(np.abs(data.objective[rows]), 1e-2)
    assert np.median(gap[found.worst < 1e-6]) < 1e-6


@pytest.fixture(scope="module")
def six():
    problem = make("grid6")
    return problem, fb.label(problem, count=8, seed=4, jobs=1)


def test_whoever_watches_hears_of_few_labels_too(six):
    moments = []
    fb.fit(*six, labels=1, budget=600, progress=moments.append)
    stages = [moment.stage for moment in moments]
    assert stages.index("answers from few labels") < stages.index("constants of conditioning")


@pytest.mark.parametrize("stage", ["operator of the first label", "answers from few labels"])
def test_ctrl_c_while_few_labels_become_more(six, stage):
    def progress(moment):
        if moment.stage == stage:
            raise KeyboardInterrupt

    proxy = fb.fit(*six, labels=3, budget=600, progress=progress)
    assert (proxy.method, proxy.record.asked, proxy.record.labels) == ("ridge", "response", 3)
    assert "interrupted" in proxy.record.note
    with pytest.raises(KeyboardInterrupt):  # of one label there is nothing to keep
        fb.fit(*six, labels=1, budget=600, progress=progress)


def test_a_label_that_teaches_nothing_is_said():
    # With each input the answer jumps to another corner: nothing near the one label is an answer elsewhere.
    problem = fb.Problem(
        lambda x, y: (1e4 * x * y).sum() + 1.0,
        [-1.0],
        [1.0],
        equality=lambda x, y: y**2 - 1.0,
        box=([-1.0], [1.0]),
    )
    data = fb.Dataset.from_arrays(problem, np.array([[0.5]]), np.array([[-1.0]]))
    with pytest.raises(fb.FeasiblyError, match="nothing could be learnt from one label"):
        fb.fit(problem, data, labels=1, budget=600)
    assert Settings.enough_labels > 1
