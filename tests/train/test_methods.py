"""Every method on a problem whose solution is known, by a fixed number of steps."""

import dataclasses
import time

import jax
import numpy as np
import pytest

from feasibly._codec import digest
from feasibly.answer.svp import select
from feasibly.measure.metrics import measure_rows, summarise
from feasibly.problem.errors import FeasiblyError
from feasibly.problem.sampling import sample
from feasibly.train.bayesian import PUBLIC_CODE, TEXT, BayesianLearner, BayesianSettings
from feasibly.train.registry import METHODS, Method, find, register
from feasibly.train.task import Task
from feasibly.train.training import train
from feasibly.train.turns import sandwich
from tests.problems import CASES, make

SMALL = {"width": 8.0}
BAYESIAN = SMALL | {"draws": 30}
QUICK = {
    "mae": {"learning_rate": 3e-3, "width": 8.0},
    "sandwich-dnn": SMALL,
    "supervised-bnn": BAYESIAN,
    "sandwich-bnn": BAYESIAN,
}
GRADIENT = [name for name in METHODS if not find(name).closed]


def _task(name: str = "toy", labels: int = 96, seed: int = 0) -> Task:
    problem = make(name)
    x = sample(problem, labels, seed=1)
    return Task.split(problem, x, CASES[name].optimum(x), seed=seed)


def _steps(name: str, chunks: list[int]) -> list[dict[str, object]]:
    settings = find(name).settings
    count = (
        len(sandwich(settings))
        if isinstance(settings, BayesianSettings)
        else 7
        if name == "sandwich-dnn"
        else 1
    )
    return [{"trial": 0, "place": place, "chunks": chunks} for place in range(count)]


def _metrics(task: Task, model, answer: str = "mean"):
    x = sample(task.problem, 200, seed=9)
    reference = task.problem.objectives(x, CASES["toy"].optimum(x))
    y = model.predict(x).mean if answer == "mean" else select(task.problem, model, x, draws=20)
    return summarise(measure_rows(task.problem, x, y, reference))


@pytest.mark.parametrize("name", GRADIENT)
def test_every_method_learns(name):
    task = _task()
    settings = QUICK.get(name, QUICK["mae"])
    many = train(task, name, 60.0, settings=settings, replay=_steps(name, [1, 100, 200]))
    before, after = many.history[0], _metrics(task, many.model)
    assert after.max_eq < 0.5 * before["max_eq"]
    assert after.max_eq < 0.15
    assert many.method == name
    assert many.labels == 96
    assert many.note == ""
    assert many.model.covariance.variance.shape == (2,)
    assert np.all(many.model.covariance.variance > 0.0)
    assert {"score", "gap_percent", "max_eq", "max_ineq"} <= set(many.history[-1])
    assert many.settings | dict(settings) == many.settings
    if name.endswith("-bnn"):
        assert _metrics(task, many.model, "svp").max_eq < after.max_eq


def test_same_steps_same_model():
    task, name = _task(), "lagrangian-dual"
    settings = QUICK.get(name, QUICK["mae"])
    first, second = (
        train(task, name, 60.0, settings=settings, replay=_steps(name, [3, 20])) for _ in range(2)
    )
    assert digest(first.model) == digest(second.model)


def test_chunks_do_not_change_what_is_learnt():
    task = _task()
    settings = BAYESIAN | {"keep": "last"}
    whole = train(task, "supervised-bnn", 60.0, settings=settings, replay=_steps("supervised-bnn", [40]))
    parts = train(
        task, "supervised-bnn", 60.0, settings=settings, replay=_steps("supervised-bnn", [7, 13, 20])
    )
    np.testing.assert_array_equal(whole.model.mean, parts.model.mean)


@pytest.mark.parametrize("name", ["ridge", "gp"])
def test_closed_forms_use_every_label(name):
    task = _task()
    done = train(task, name, 10.0)
    assert done.labels == 96
    assert set(done.seconds) == {"closed form", "other", "total"}
    assert _metrics(task, done.model).max_eq < 1e-3  # the equality is linear, and so are both


def test_a_tiny_budget_falls_back_on_ridge_and_says_so():
    task = _task()
    done = train(task, "sandwich-bnn", 0.05)
    assert (done.method, done.model.kind) == ("ridge", "linear")
    assert "too small to compile sandwich-bnn" in done.note


def test_a_real_clock_can_be_interrupted():
    moments, told = [], []
    began = time.perf_counter()

    def progress(moment):
        if moment.step:
            moments.append(moment)
            told.append(time.perf_counter() - began)
        if len(moments) == 3:
            raise KeyboardInterrupt

    done = train(_task(), "mae", 120.0, progress=progress)
    assert "interrupted" in done.note
    assert done.model.kind == "network"
    assert moments[0].step == 1
    # Its clock began after this one and was read before: true on a machine of any speed, and of no other count.
    for moment, now in zip(moments, told, strict=True):
        assert 0.0 < moment.seconds <= now
        assert 120.0 - now <= moment.seconds_left < 120.0
    assert moments[0].seconds < moments[1].seconds < moments[2].seconds
    assert moments[2].seconds < done.seconds["total"] <= time.perf_counter() - began
    parts = [taken for name, taken in done.seconds.items() if name != "total"]
    assert sum(parts) == pytest.approx(done.seconds["total"], rel=1e-9)


def test_repair_keeps_every_method_within_bounds():
    task = _task()
    for name, settings in (("supervised-bnn", BAYESIAN), ("sandwich-dnn", SMALL)):
        done = train(task, name, 60.0, settings=settings | {"repair": "sigmoid"}, replay=_steps(name, [30]))
        assert _metrics(task, done.model).max_bound == 0.0


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        (
            "sandwich-bnn",
            {
                "chained": False,
                "keep": "elbo",
                "patience_sup": 3,
                "sup_feasibility": 0.1,
                "free_biases": True,
            },
        ),
        ("supervised-bnn", {"estimator": "local", "batch": 16, "output_bias": True, "hidden_layers": 1}),
    ],
)
def test_settings_of_the_bayesian_learners_run(name, changes):
    task = _task()
    done = train(task, name, 60.0, settings=BAYESIAN | changes, replay=_steps(name, [20, 20]))
    assert np.isfinite(done.history[-1]["loss"])
    assert np.isfinite(_metrics(task, done.model).gap_percent)


def test_unsup_changes_weights_only():
    task = _task()
    learner = BayesianLearner("b", task, BayesianSettings(width=4.0))
    state = learner.init(0)
    stage = learner.stages[1]
    assert stage.program == "unsup"
    run = jax.jit(learner.advance("unsup"))
    carry, _ = run(learner.begin(state, stage, 0), 2, learner.data("unsup"))
    moved = np.asarray(carry.posterior.mean != state.mean)
    weights = learner.architecture.is_weight
    assert moved[weights].mean() > 0.5
    assert not moved[~weights].any()
    np.testing.assert_array_equal(carry.posterior.noise_mean, state.noise_mean)


def test_stages_follow_figure_1():
    stages = sandwich(BayesianSettings())
    assert [stage.program for stage in stages] == ["sup", "unsup"] * 3 + ["sup"]
    total = sum(stage.share for stage in stages)
    shares = [stage.share / total for stage in stages]
    np.testing.assert_allclose(shares[:4], [0.4 / 3, 0.6 / 3, 0.4 / 3, 0.6 / 3])
    assert shares[5] + shares[6] == pytest.approx(
        0.6 / 3
    )  # the closing Sup takes its time from the last UnSup
    assert [stage.program for stage in sandwich(BayesianSettings(rounds=0))] == ["sup"]
    assert [stage.program for stage in sandwich(PUBLIC_CODE)] == ["sup", "unsup"] * 3
    assert TEXT.unlabelled_batch == 0


def test_settings_and_names_are_checked():
    task = _task()
    with pytest.raises(FeasiblyError, match="no method 'magic'; choose one of ridge, gp"):
        train(task, "magic", 1.0)
    with pytest.raises(FeasiblyError, match="no setting 'depth'; it has loss"):
        train(task, "mae", 1.0, settings={"depth": 3})
    with pytest.raises(FeasiblyError, match="'keep' of 'mae' is one of loss, merit, not 'best'"):
        train(task, "mae", 1.0, settings={"keep": "best"})
    with pytest.raises(FeasiblyError, match="'width' of 'mae' is a number above 0, not 'wide'"):
        train(task, "mae", 1.0, settings={"width": "wide"})
    with pytest.raises(FeasiblyError, match="'width' of 'mae' is a number above 0, not nan"):
        train(task, "mae", 1.0, settings={"width": float("nan")})
    with pytest.raises(FeasiblyError, match="'batch' of 'mae' is a whole number"):
        train(task, "mae", 1.0, settings={"batch": 2.5})
    with pytest.raises(FeasiblyError, match="'normalised' of 'mae' is yes or no, not 1"):
        train(task, "mae", 1.0, settings={"normalised": 1})
    with pytest.raises(FeasiblyError, match="do not belong"):
        train(task, "mae", 1.0, settings=BayesianSettings())
    with pytest.raises(FeasiblyError, match="registered already"):
        register(Method("mae", "", find("mae").fit))
    with pytest.raises(FeasiblyError, match="at least one trial"):
        train(task, "mae", 1.0, trials=0)
    with pytest.raises(FeasiblyError, match="ridge gives the same model every time"):
        train(task, "ridge", 1.0, trials=2)
    with pytest.raises(FeasiblyError, match="gp takes no steps"):
        train(task, "gp", 1.0, replay=[])
    with pytest.raises(FeasiblyError, match="it has no settings"):
        train(task, "response", 1.0, settings={"depth": 3})
    assert all(dataclasses.is_dataclass(find(name).settings) for name in GRADIENT)


def test_task_splits_by_seed_and_counts_every_label():
    first, again, other = _task(seed=0), _task(seed=0), _task(seed=1)
    assert len(first.x) == 80
    assert len(first.x_valid) == 16
    assert first.labels == 96
    assert len(first.unlabelled) == 4 * 96
    np.testing.assert_array_equal(first.x, again.x)
    assert not np.array_equal(first.x, other.x)
    together = np.concatenate([first.x, first.x_valid])
    assert len(np.unique(together, axis=0)) == 96
    problem = make("toy")
    with pytest.raises(FeasiblyError, match="too few"):
        Task.split(problem, first.x[:1], first.y[:1])
    with pytest.raises(FeasiblyError, match="mae needs at least 4"):
        train(Task.split(problem, first.x[:3], first.y[:3]), "mae", 1.0)
    with pytest.raises(FeasiblyError, match="not finite"):
        Task.split(problem, first.x, np.full_like(first.y, np.nan))
