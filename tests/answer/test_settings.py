"""The numbers of the method: saved with a model, in force where it is opened, and open to what was saved before."""

import ast
import inspect
import itertools
import json
from dataclasses import fields, replace

import pytest

import feasibly as fb
from feasibly._codec import digest, pack, unpack
from feasibly.answer.settings import Settings
from feasibly.model.settings import ComplementaritySettings
from feasibly.solve.settings import DEFAULT, SolverSettings
from tests.proxies import having, trained, unseen

EARLIER = """{"is": "settings", "equality_tolerance": 1e-07, "inequality_tolerance": 5e-07, "probe_steps": 4,
"few_rows": 9, "quick_rounds": [4, 2], "hopeless": [10000000.0, 2000000.0], "prices_of_belief": [1e10, 1e9, 1e7],
"unusual": 0.5, "trial_rows": 128}"""
"""Some of what a model had from before the row-wise solver's numbers were among its settings."""


def test_settings_saved_earlier_open_with_the_usual_numbers_for_the_rest():
    found = unpack(json.loads(EARLIER), {}, Settings)
    assert found == Settings(few_rows=9)
    assert found.solver == DEFAULT


def test_numbers_that_came_later_do_not_make_it_another_model():
    assert digest(Settings(solver=replace(DEFAULT, most_iterations=30))) == digest(Settings())
    assert digest(Settings(few_rows=4)) != digest(Settings())


def test_settings_are_one_value():
    other = Settings(solver=replace(DEFAULT, start_barriers=(0.3,)), few_rows=4)
    assert unpack(json.loads(json.dumps(pack(other).plain)), {}, Settings) == other
    assert hash(other) == hash(replace(other))  # compiled functions may be kept by it


def test_a_model_keeps_its_own_numbers_and_uses_them(tmp_path):
    proxy, data = trained("grid6")
    x, cost, _ = unseen(proxy, data, 6)
    changed = having(proxy, solver=replace(DEFAULT, most_free=0, most_iterations=1))
    changed.save(tmp_path / "other")
    opened = fb.Proxy.load(tmp_path / "other", problem=proxy.problem)
    other = changed.calibration.settings
    assert opened.calibration.settings == other
    assert opened.digest() == changed.digest()
    rowwise = opened.ladder.driver.rowwise
    assert rowwise.settings == rowwise.solver.settings == other.solver
    assert rowwise.batch is None
    assert proxy.ladder.driver.rowwise.batch is not None
    solved, usual = (each.predict(x, answer="solved") for each in (opened, proxy))
    assert not (solved.y == usual.y).all(), "IPOPT's digits, and not those of the interior-point method"
    assert abs(solved.objective / cost - 1.0).max() < 1e-6


def test_fewer_steps_leave_more_rows_to_the_solver():
    proxy, data = trained("grid6")
    x, cost, _ = unseen(proxy, data, 12)
    hasty = having(proxy, few_steps=1, last_steps=1)
    one, other = (each.predict(x, answer="conditioned") for each in (hasty, proxy))
    assert one.steps.max() <= 2 * len(proxy.calibration.centres) < other.steps.max()
    assert one.level.count("row") > other.level.count("row")
    assert one.ok.all()
    assert abs(one.objective / cost - 1.0).max() < 1e-5


def test_a_softer_problem_is_prepared_for_a_model_that_says_so():
    proxy, data = trained("grid6")
    changed = having(proxy, complementarity=ComplementaritySettings(soft=0.1))
    soft, hard = changed.ladder.driver.operator(0).inverse.pivoted
    assert (float(soft.regularisation), float(hard.regularisation)) == (0.1, 1e-10)
    assert changed.predict(data.x[:4], answer="conditioned").ok.all()


def test_another_solver_is_made_where_its_numbers_change():
    proxy, _ = trained("grid6")
    driver, c = proxy.ladder.driver, proxy.calibration
    same = driver.having(replace(c, settings=replace(c.settings, last_steps=8)))
    assert same.rowwise is driver.rowwise
    changed = driver.having(replace(c, settings=replace(c.settings, solver=replace(DEFAULT, penalty=30.0))))
    assert changed.rowwise.settings.penalty == 30.0


@pytest.mark.parametrize("record", [Settings, SolverSettings, ComplementaritySettings])
def test_every_setting_has_a_reason(record):
    body = ast.parse(inspect.getsource(record)).body[0].body
    said = {
        one.target.id
        for one, after in itertools.pairwise(body)
        if isinstance(one, ast.AnnAssign) and isinstance(getattr(after, "value", None), ast.Constant)
    }
    assert said == {each.name for each in fields(record)}
