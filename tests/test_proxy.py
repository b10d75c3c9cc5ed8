"""Fitting, saving, loading and evaluating, as a user does it."""

import dataclasses
import json

import numpy as np
import pytest

import feasibly as fb
from feasibly._storage import ARRAYS, TEXT
from tests.problems import make
from tests.sealed import edit


@pytest.fixture(scope="module")
def toy():
    problem = make("toy")
    data = fb.label(problem, fb.sample(problem, 80, seed=1), jobs=1)
    return problem, data, fb.fit(problem, data, labels=40, budget=900.0)


@pytest.fixture(scope="module")
def grid():
    problem = make("grid3")
    data = fb.label(problem, fb.sample(problem, 60, seed=1), jobs=1)
    return problem, data, fb.fit(problem, data, "ridge", labels=40, budget=900.0)


def test_a_proxy_of_a_built_in_family_reopens_by_itself(grid, tmp_path):
    _, data, proxy = grid
    proxy.save(tmp_path / "model")
    again = fb.Proxy.load(tmp_path / "model")
    for rung in ("mean", "conditioned", "polished"):
        assert np.allclose(again.predict(data.x, rung).y, proxy.predict(data.x, rung).y, atol=1e-7)
    assert again.record == proxy.record
    assert np.array_equal(again.keys, proxy.keys)


def test_a_users_own_problem_is_passed_in_and_checked(toy, tmp_path):
    problem, data, proxy = toy
    proxy.save(tmp_path / "model")
    with pytest.raises(fb.FeasiblyError, match="problem of your own"):
        fb.Proxy.load(tmp_path / "model")
    with pytest.raises(fb.FeasiblyError, match="another problem"):
        fb.Proxy.load(tmp_path / "model", problem=make("degenerate"))
    again = fb.Proxy.load(tmp_path / "model", problem=problem)
    assert np.allclose(again.predict(data.x).y, proxy.predict(data.x).y, atol=1e-7)


def test_training_rows_are_left_out_of_the_evaluation(toy):
    _, data, proxy = toy
    found = fb.evaluate_proxy(proxy, data, "mean")
    assert found.metrics.count == data.n_labels - 40
    with pytest.raises(fb.FeasiblyError, match="every labelled row was used"):
        fb.evaluate_proxy(proxy, data.labelled(40), "mean")
    assert {"method", "answer", "labels", "unlabelled", "budget_seconds", "train_seconds", "seed"} <= set(
        found.as_dict()
    )
    json.dumps(found.as_dict())


def test_evaluate_takes_answers_to_all_rows_or_to_the_labels(toy):
    problem, data, proxy = toy
    y = proxy.predict(data.x, "polished").y
    assert fb.evaluate(problem, data, y).gap_percent < 1e-2
    with pytest.raises(fb.FeasiblyError, match="do not match"):
        fb.evaluate(problem, data, y[:7])


def test_nothing_is_overwritten_unasked(grid, tmp_path):
    _, _, proxy = grid
    proxy.save(tmp_path / "model")
    with pytest.raises(fb.FeasiblyError, match="overwrite=True"):
        proxy.save(tmp_path / "model")
    proxy.save(tmp_path / "model", overwrite=True)
    (tmp_path / "other").mkdir()
    with pytest.raises(fb.FeasiblyError, match="is no proxy"):
        proxy.save(tmp_path / "other", overwrite=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model", "other"]


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda m: (m / ARRAYS).write_bytes((m / ARRAYS).read_bytes()[:500]), "truncated"),
        (lambda m: (m / ARRAYS).unlink(), "missing or truncated"),
        (lambda m: (m / TEXT).write_text("{"), "damaged"),
        (lambda m: (m / TEXT).unlink(), "not a saved proxy"),
        (lambda m: edit(m, lambda t: t.update(format=99)), "newer version"),
        (lambda m: edit(m, lambda t: t.update(format=1)), "earlier version.*train it again"),
        (lambda m: edit(m, lambda t: t["model"].update({"is": "crystal ball"})), "does not know"),
        (lambda m: edit(m, lambda t: t.update(record={"is": "training", "method": "ridge"})), "incomplete"),
        (lambda m: edit(m, lambda t: t["model"].update(rows="many")), "rows is not what"),
        (lambda m: edit(m, lambda t: t["model"].update(offset=t["model"]["root"])), "offset is"),
        (
            lambda m: edit(m, lambda t: t["calibration"]["candidates"].update(lower=t["model"]["offset"])),
            "lower is not what",
        ),
        (lambda m: edit(m, lambda t: t.pop("model")), "damaged"),
        (lambda m: (m / TEXT).write_text("[" * 200_000), "nested too deeply"),
        (lambda m: (m / TEXT).write_text("[]"), "not a proxy's description"),
        (lambda m: _enlarge(m / TEXT), "larger than any"),
    ],
)
def test_a_spoilt_model_gets_a_clear_sentence(grid, tmp_path, spoil, sentence):
    _, _, proxy = grid
    proxy.save(tmp_path / "model")
    spoil(tmp_path / "model")
    with pytest.raises(fb.FeasiblyError, match=sentence):
        fb.Proxy.load(tmp_path / "model")


def _enlarge(path):
    with path.open("ab") as file:
        file.truncate(1 << 30)  # sparse: it costs nothing until somebody reads it


def test_a_flipped_bit_anywhere_is_refused(grid, tmp_path):
    _, _, proxy = grid
    proxy.save(tmp_path / "model")
    random = np.random.default_rng(3)
    for name in (TEXT, ARRAYS):
        file = tmp_path / "model" / name
        sound = file.read_bytes()
        places = {0, 7, 8, 9, len(sound) - 1, len(sound) - 3, len(sound) - 20}
        places |= set(random.integers(0, len(sound), 150).tolist())
        for place in sorted(places):
            spoilt = bytearray(sound)
            spoilt[place] ^= 1 << int(random.integers(8))
            file.write_bytes(spoilt)
            with pytest.raises(fb.FeasiblyError) as caught:
                fb.Proxy.load(tmp_path / "model")
            assert "\n" not in str(caught.value)
        file.write_bytes(sound)
    assert np.array_equal(fb.Proxy.load(tmp_path / "model").keys, proxy.keys)


def test_missing_model_and_foreign_data(grid, toy, tmp_path):
    _, _, proxy = grid
    with pytest.raises(fb.FeasiblyError, match="there is no model"):
        fb.Proxy.load(tmp_path / "nowhere")
    with pytest.raises(fb.FeasiblyError, match="another problem"):
        fb.evaluate_proxy(proxy, toy[1])
    with pytest.raises(fb.FeasiblyError, match="another problem"):
        fb.fit(proxy.problem, toy[1])
    with pytest.raises(fb.FeasiblyError, match="no method 'magic'"):
        fb.fit(proxy.problem, grid[1], "magic")
    with pytest.raises(fb.FeasiblyError, match="no setting 'depth'"):
        fb.fit(proxy.problem, grid[1], "ridge", depth=3)


def test_labels_without_multipliers_serve_too():
    problem = make("grid3")
    data = fb.label(problem, fb.sample(problem, 60, seed=1), jobs=1)
    bare = fb.Dataset.from_arrays(problem, data.x, data.y)
    proxy = fb.fit(problem, bare, labels=40, budget=900.0)
    assert fb.evaluate_proxy(proxy, bare, "polished").metrics.share_feasible > 0.9


def test_the_same_seed_gives_the_same_proxy(toy):
    problem, data, proxy = toy
    again = fb.fit(problem, data, labels=40, budget=900.0)
    assert np.array_equal(again.predict(data.x, "mean").y, proxy.predict(data.x, "mean").y)


def test_importing_feasibly_pulls_in_nothing_heavy():
    import subprocess
    import sys

    code = (
        "import sys, feasibly; feasibly.Problem; "
        "print([m for m in ('casadi', 'matplotlib', 'dask', 'distributed', 'ray') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"


def test_a_budget_too_small_for_the_default_is_kept_and_gives_ridge() -> None:
    problem = fb.load_problem("pglib:case14_ieee")
    data = fb.label(problem, fb.sample(problem, 30, seed=0), jobs=1)
    proxy = fb.fit(problem, data, budget=0.5)
    assert (proxy.method, proxy.model.kind, proxy.record.asked) == ("ridge", "linear", "response")
    assert proxy.record.label == "ridge (instead of response)"
    with pytest.raises(fb.FeasiblyError, match="larger budget"):
        proxy.predict(data.x[:3])
    assert np.isfinite(proxy.predict(data.x[:3], "mean").y).all()
    assert "no time to prepare conditioning" in proxy.record.note
    assert "instead of response" in proxy.record.note


def test_what_a_stand_in_was_to_be_is_said_wherever_it_goes(toy) -> None:
    from types import SimpleNamespace

    from feasibly.runtimes.files import describe
    from feasibly.serve.plain import summary

    problem, data, learnt = toy
    fallen = fb.fit(problem, data, "mae", labels=40, budget=1e-9, trials=3)
    both = {"method": "ridge", "asked": "mae"}
    assert both.items() <= describe(fallen, "mean", "onnx", 0.0).items()
    assert (
        both.items() <= summary(SimpleNamespace(name="m", problem=problem, grid=None, proxy=fallen)).items()
    )
    assert both.items() <= fb.evaluate_proxy(fallen, data, "mean").as_dict().items()
    assert fallen.record.trials == 1
    assert "asked" not in describe(learnt, "mean", "onnx", 0.0)


@pytest.mark.parametrize("method", fb.METHODS)
def test_every_method_tells_how_it_stands_and_keeps_a_tiny_budget(toy, method):
    problem, data, _ = toy
    moments = []
    proxy = fb.fit(problem, data, method, labels=40, budget=1e-9, progress=moments.append)
    assert (proxy.method, proxy.calibration) == (method if method in ("ridge", "gp") else "ridge", None)
    assert "mean and svp only" in proxy.record.note
    assert {moment.method for moment in moments} == {method}
    assert np.isfinite(proxy.predict(data.x, "mean").y).all()


def test_what_is_registered_can_be_fitted_and_is_listed(toy):
    from feasibly.train import registry

    problem, data, _ = toy
    with registry.scope():
        ridge = registry.find("ridge")
        registry.register(dataclasses.replace(ridge, name="ridge-again", summary="once more"))
        proxy = fb.fit(problem, data, "ridge-again", labels=40, budget=1e-9)
        assert proxy.method == "ridge-again"
        assert "ridge-again" in fb.METHODS
        assert fb.METHODS[-1] == "ridge-again"
    assert "ridge-again" not in fb.METHODS


def test_what_a_method_cannot_honour_is_refused(toy):
    problem, data, _ = toy
    for wrong, sentence in (
        ({"trials": 3}, "leave trials out"),
        ({"steps": []}, "leave steps out"),
        ({"unlabelled": 7}, "leave unlabelled out"),
        ({"depth": 3}, "no setting 'depth'"),
        ({"budget": float("inf")}, "finite"),
        ({"budget": float("nan")}, "finite"),
        ({"budget": -1.0}, "positive"),
        ({"labels": 1}, "too few"),
    ):
        with pytest.raises(fb.FeasiblyError, match=sentence):
            fb.fit(problem, data, "ridge", **({"labels": 40} | wrong))


def test_an_interrupted_fit_gives_what_there_is(toy):
    problem, data, _ = toy

    def at(stage):
        reached = []

        def progress(moment):
            reached.append(moment.stage)
            if stage in reached:  # and whenever it is asked again, as for a signal that stays noted
                raise KeyboardInterrupt

        return progress

    early = fb.fit(problem, data, labels=40, budget=900.0, progress=at("constants of conditioning"))
    assert (early.method, early.record.asked, early.calibration) == ("ridge", "response", None)
    assert "interrupted" in early.record.note
    middle = fb.fit(problem, data, labels=40, budget=900.0, progress=at("response"))
    assert (middle.method, middle.calibration is None) == ("ridge", False)
    late = fb.fit(problem, data, labels=40, budget=900.0, progress=at("pseudo-labels"))
    assert late.method == "response"
    assert "interrupted" in late.record.note
    assert late.record.train_seconds >= sum(v for k, v in late.record.seconds.items() if k != "total") - 1e-6


def test_a_proxy_of_correlated_loads_knows_their_range():
    problem = make("grid3")
    data = fb.label(problem, count=24, seed=0, jobs=1, design="correlated")
    proxy = fb.fit(problem, data, method="ridge", budget=900)
    drawn = fb.sample(problem, 200, seed=9, design="correlated")
    odd = proxy.problem.nominal * [
        [1.15],
        [0.7],
        [1.25],
        [0.6],
    ]  # the first two no uniform draw needs to reach
    outcome = proxy.predict(np.concatenate([drawn, odd]), "mean", tolerance=np.inf).outcome
    flagged = [o is fb.AnswerOutcome.OUTSIDE for o in outcome]
    assert flagged == [False] * 202 + [True, True]
