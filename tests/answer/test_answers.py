"""Every rung of the ladder on every small problem, against the solver."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

import feasibly as fb
from feasibly._codec import pack, unpack
from feasibly.answer.calibration import Calibration
from feasibly.answer.ladder import ANSWERS, Leverage
from feasibly.answer.record import AnswerOutcome
from feasibly.measure.metrics import measure_rows
from feasibly.precision import double
from tests.problems import CASES, FEASIBLE
from tests.proxies import trained, unseen


@pytest.mark.parametrize("rung", ["conditioned", "polished"])
@pytest.mark.parametrize("name", FEASIBLE)
def test_constraints_hold_and_the_cost_is_the_solvers(name, rung):
    proxy, data = trained(name)
    x, best, _ = unseen(proxy, data)
    answer = proxy.predict(x, rung)
    rows = measure_rows(proxy.problem, x, answer.y, best)
    good = answer.ok
    assert good.mean() >= 0.9, answer.outcomes()
    # The flag is the ladder's own word; the violation beside it is found one row at a time, by NumPy.
    worst = np.array([_worst(proxy.problem, *pair) for pair in zip(x, answer.y, strict=True)])
    assert np.array_equal(worst <= 1e-4, good)
    assert np.quantile(worst, 0.9) < 1e-6
    scale = np.maximum(np.abs(best), 1e-2)
    gap = np.abs(rows.objective - best) / scale
    assert np.median(gap[good]) < (1e-4 if rung == "conditioned" else 1e-5)


def _worst(problem, x, y):
    """The largest violation of one answer, without `Problem`'s own batches and reductions."""
    with double():
        given = jnp.asarray(x), jnp.asarray(y)
        equal = [] if problem.equality is None else np.abs(np.asarray(problem.equality(*given)))
        unequal = [] if problem.inequality is None else np.asarray(problem.inequality(*given))
    return float(np.max(np.concatenate([equal, unequal, problem.lower - y, y - problem.upper, [0.0]])))


@pytest.mark.parametrize("name", FEASIBLE)
def test_a_rung_never_makes_an_instance_worse_than_the_clipped_mean(name):
    proxy, data = trained(name)
    x, _, _ = unseen(proxy, data)
    clipped = np.clip(proxy.predict(x, "mean").y, proxy.problem.lower, proxy.problem.upper)
    before = measure_rows(proxy.problem, x, clipped).worst
    after = measure_rows(proxy.problem, x, proxy.predict(x, "conditioned").y).worst
    assert np.all(after <= np.maximum(before, 1e-5))


@pytest.mark.parametrize("name", ["toy", "unconstrained"])
def test_polished_answers_are_the_closed_form_optimum(name):
    proxy, data = trained(name)
    x, _, _ = unseen(proxy, data)
    assert np.allclose(proxy.predict(x, "polished").y, CASES[name].optimum(x), atol=1e-4)


@pytest.mark.parametrize("name", ["grid6", "nonconvex", "toy"])
def test_the_default_is_ahead_of_ridge_before_any_repair(name):
    ridge, data = trained(name)
    ours, _ = trained(name, fb.DEFAULT_METHOD)
    one = fb.evaluate_proxy(ridge, data, "mean").metrics
    other = fb.evaluate_proxy(ours, data, "mean").metrics
    assert other.gap_percent <= one.gap_percent
    assert other.max_eq <= one.max_eq + 1e-9
    assert other.max_ineq <= one.max_ineq + 1e-9


def test_auto_reports_infeasible_inputs_and_answers_the_others():
    proxy, _ = trained("half-infeasible")
    x = np.array([[1.2], [1.9], [2.5], [2.9]])
    answer = proxy.predict(x, "auto")
    assert [outcome.name for outcome in answer.outcome] == ["OK", "OK", "INFEASIBLE", "INFEASIBLE"]
    assert np.isfinite(answer.y[:2]).all()
    assert np.isnan(answer.y[2:]).all()
    assert answer.max_equality[:2].max() < 1e-4


def test_conditioned_never_passes_off_an_infeasible_input_as_answered():
    proxy, _ = trained("half-infeasible")
    """Whatever was tried first: the row-wise solver knows that there is no solution, and the row says so."""
    x = np.array([[2.6], [2.9]])
    for passes in (Calibration.worthwhile_passes, 0):
        calibration = replace(proxy.calibration, worthwhile_passes=passes)
        driver = proxy.ladder.driver.having(calibration)
        same = fb.Proxy(
            proxy.problem, proxy.model, proxy.record, keys=proxy.keys, calibration=calibration, driver=driver,
            box=proxy.box,
        )  # fmt: skip
        answer = same.predict(x, "conditioned")
        assert answer.outcomes() == {"INFEASIBLE": 2}
        assert np.isnan(answer.y).all()
        assert np.isnan(answer.duals.equality).all()
        assert np.isnan(same.sensitivity(x)).all()


def test_inputs_outside_the_range_are_named_and_auto_solves_them():
    proxy, _ = trained("toy")
    far = np.array([[1.5, 0.0]])
    assert proxy.predict(far, "conditioned").outcome[0] is AnswerOutcome.OUTSIDE
    answer = proxy.predict(far, "auto")
    assert answer.rung == ("solved",)
    assert answer.outcome[0] is AnswerOutcome.OK
    assert np.allclose(answer.y, CASES["toy"].optimum(far), atol=1e-6)


def test_rows_that_are_not_finite_are_named_and_spoil_no_others():
    proxy, data = trained("toy")
    x, _, _ = unseen(proxy, data, 3)
    spoilt = x.copy()
    spoilt[1, 0] = np.nan
    for rung in ANSWERS:
        answer = proxy.predict(spoilt, rung, draws=20)
        assert answer.outcome[1] is AnswerOutcome.NOT_FINITE_INPUT
        assert np.isnan(answer.y[1]).all()
        assert np.isfinite(answer.y[[0, 2]]).all()


def test_mean_is_flagged_where_it_breaks_constraints():
    proxy, data = trained("grid6")
    x, _, _ = unseen(proxy, data)
    answer = proxy.predict(x, "mean", tolerance=1e-9)
    assert set(answer.outcomes()) == {"VIOLATED"}
    assert "conditioned" in AnswerOutcome.VIOLATED.advice


def test_one_input_is_one_row_and_nonsense_gets_a_sentence():
    proxy, data = trained("toy")
    assert len(proxy.predict(data.x[0])) == 1
    with pytest.raises(fb.FeasiblyError, match="no answer 'guess'"):
        proxy.predict(data.x, "guess")
    with pytest.raises(fb.FeasiblyError, match="expected shape"):
        proxy.predict(np.zeros((2, 3)))


def test_single_answers_equal_batched_ones():
    proxy, data = trained("grid6")
    x, _, _ = unseen(proxy, data, 8)
    together = proxy.predict(x, "polished").y
    alone = np.concatenate([proxy.predict(row, "polished").y for row in x])
    # Two generators at one bus may share what they give in any way at the same cost, so not to the last digit.
    assert np.allclose(together, alone, atol=1e-4)
    costs = proxy.problem.objectives(x, together), proxy.problem.objectives(x, alone)
    assert np.allclose(*costs, rtol=1e-9)


def test_leverage_passes_honest_draws_and_stops_strange_ones():
    random = np.random.default_rng(0)
    root = random.standard_normal((6, 6))
    test = Leverage.of(random.standard_normal((200, 6)) @ root)
    assert test.unlike(random.standard_normal((1000, 6)) @ root).mean() < 0.05
    assert test.unlike(8.0 * random.standard_normal((50, 6)) @ root).all()
    assert unpack(*pack(test), Leverage).limit == test.limit


def test_conditioned_goes_on_until_its_cost_has_settled():
    """Linear constraints hold after one step, long before the cost has settled where the limit is nearly kinked."""
    rng = np.random.default_rng(0)
    assets, held = 12, rng.dirichlet(np.ones(12))
    loading, usual = 0.1 * rng.normal(size=(12, 3)), rng.normal(0.05, 0.03, 12)
    risk = loading @ loading.T + np.diag(rng.uniform(0.01, 0.05, assets))
    problem = fb.Problem(
        lambda x, w: 2.0 * w @ jnp.asarray(risk) @ w - x @ w, np.zeros(assets), np.ones(assets),
        equality=lambda x, w: jnp.sum(w)[None] - 1.0,
        inequality=lambda x, w: (jnp.sum(jnp.sqrt((w - held) ** 2 + 1e-6)) - 0.3)[None],
        box=(usual - 0.02, usual + 0.02), start=held, name="turnover",
    )  # fmt: skip
    data = fb.label(problem, count=90, seed=0, jobs=1)
    proxy = fb.fit(problem, data, "ridge", labels=60, budget=60)
    x, best, _ = unseen(proxy, data, 30)
    answer = proxy.predict(x)
    above = (answer.objective - best) / np.abs(best)
    assert answer.ok.all()
    assert above.max() < 1e-5
