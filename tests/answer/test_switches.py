"""Elements out of service on shared operators: corrections of low rank against systems of their own."""

import functools
from dataclasses import replace

import numpy as np
import pytest

import feasibly as fb
from feasibly.answer.driver import Driver
from feasibly.answer.rowwise import RowSolver
from feasibly.answer.schedule import SHARED_ONLY
from feasibly.answer.switches import find_switches, switch_inputs
from feasibly.measure.metrics import measure_rows
from feasibly.precision import double
from feasibly.solve.system import sparse_derivatives, switched_derivatives
from tests.problems import make
from tests.proxies import patient


@functools.cache
def trained():
    problem = fb.load_problem("pglib:case14_ieee", vary=("load", "branch", "generator"))
    data = fb.label(problem, count=140, seed=4, jobs=1)
    return patient(fb.fit(problem, data, labels=90, budget=900.0)), data


def test_what_is_on_or_off_is_found_by_name():
    proxy, _ = trained()
    inputs = proxy.problem.inputs
    found = switch_inputs(proxy.problem)
    assert list(found) == list(range(inputs["branch"].start, inputs["generator"].stop))
    assert not len(switch_inputs(make("grid6")))
    assert not len(switch_inputs(make("toy")))


def test_elements_that_go_out_together_change_what_each_changes_alone():
    problem = fb.load_problem("pglib:case30_ieee", vary=("load", "branch", "generator"))
    rowwise, inputs = RowSolver(problem), switch_inputs(problem)
    model, nominal = rowwise.model, rowwise.solver.nominal.point
    at = nominal.y, nominal.duals.equality, nominal.duals.inequality
    usual = sparse_derivatives(model, model.nominal, *at)
    found = switched_derivatives(model, model.nominal, *at, inputs, 0.0)
    assert len(found) == len(inputs)
    for one, parts in zip(inputs, found, strict=True):
        x = model.nominal.copy()
        x[one] = 0.0
        alone = sparse_derivatives(model, x, *at)
        for k, (rows, columns, amounts) in enumerate(parts):
            wanted = (alone[k] - usual[k]).toarray()
            change = np.zeros_like(wanted)
            change[rows, columns] = amounts
            np.testing.assert_allclose(change, wanted, rtol=1e-9, atol=1e-9 * np.abs(usual[k]).max())


def test_a_correction_is_the_inverse_with_the_element_out():
    """Of the matrix that the operator stands for, changed as the derivatives are: by inverting it."""
    proxy, _ = trained()
    driver: Driver = proxy.ladder.driver
    operator, (switches,) = driver.operator(0), driver.calibration.switches
    blocks = np.asarray(operator.inverse.blocks, dtype=np.float64)
    system, free = np.linalg.inv(-blocks), operator.free
    n, outputs = len(free), proxy.problem.n_outputs
    place = np.full(outputs + proxy.problem.n_equalities, -1)
    place[free], place[outputs:] = np.arange(n), n + np.arange(proxy.problem.n_equalities)
    random = np.random.default_rng(0)
    residuals = random.standard_normal(len(system))
    correction = operator.inverse.correction
    for k in (0, 7, 19, len(switches.inputs) - 1):
        changed = system.copy()
        at = place[switches.index[k]]
        kept = at >= 0
        np.add.at(changed, np.ix_(at[kept], at[kept]), switches.change[k][np.ix_(kept, kept)])
        x = driver.calibration.centres[0].x.copy()
        x[switches.inputs[k]] = 0.0
        with double():
            own = correction.of(correction.which(x[:, None]), operator.inverse.blocks)
            found = np.asarray(own((blocks @ residuals)[:, None]))[:, 0]
        assert np.allclose(
            found, -np.linalg.solve(changed, residuals), rtol=2e-3, atol=2e-3 * np.abs(found).max()
        )


def test_places_that_change_are_those_of_the_derivatives_themselves():
    proxy, _ = trained()
    driver: Driver = proxy.ladder.driver
    c = driver.calibration
    centre = c.centres[0]
    branch = proxy.problem.inputs["branch"].start
    (switches,) = c.switches
    x = centre.x.copy()
    x[branch + 2] = 0.0
    pressing = c.candidates.split(centre.lam)[2]
    outputs = proxy.problem.n_outputs
    parts = [driver._derivatives.at(at, centre.y, centre.equality, pressing) for at in (x, centre.x)]
    jacobian, hessian = parts[0][0] - parts[1][0], parts[0][2] - parts[1][2]
    whole = np.zeros((outputs + len(jacobian),) * 2)
    whole[:outputs, :outputs], whole[outputs:, :outputs], whole[:outputs, outputs:] = (
        hessian,
        jacobian,
        jacobian.T,
    )
    found = np.zeros_like(whole)
    found[np.ix_(switches.index[2], switches.index[2])] += switches.change[2]
    assert np.abs(whole).max() > 1.0
    assert np.allclose(found, whole, atol=1e-8 * np.abs(whole).max())
    few, least = switches.inputs[:3], c.settings.unchanged
    again = find_switches(proxy.problem, driver.rowwise, c.candidates, centre, few, least)
    assert again.change.shape[0] == 3


def test_outages_are_answered_on_shared_operators_and_exactly():
    proxy, data = trained()
    rows = np.flatnonzero(data.solved & data.unseen(proxy.keys))
    x, best = data.x[rows], data.objective[rows]
    driver = proxy.ladder.driver
    mean = proxy.predict(x, "mean").y
    found = driver.run(x, mean, SHARED_ONLY)
    assert found.converged.mean() > 0.6
    without = Driver(driver.problem, replace(driver.calibration, switches=()), driver.covariance)
    assert without.run(x, mean, SHARED_ONLY).converged.mean() < found.converged.mean() - 0.2
    kept = found.converged
    y = proxy.problem.pin(x[kept], found.y[kept])
    measured = measure_rows(proxy.problem, x[kept], y, best[kept])
    assert measured.worst.max() < 1e-6
    assert np.abs(measured.gap_percent).max() < 1e-2
    answer = proxy.predict(x, "auto")
    assert answer.ok.all()
    assert np.abs(answer.objective / best - 1.0).max() < 1e-5


def test_two_elements_out_are_left_to_the_solver():
    proxy, data = trained()
    rows = np.flatnonzero(data.solved)[:6]
    x = data.x[rows].copy()
    on = [np.flatnonzero(row[switch_inputs(proxy.problem)] == 1.0) for row in x]
    correction = proxy.ladder.driver.operator(0).inverse.correction
    assert (np.asarray(correction.which(x.T)) > 0).all()
    for row, free in zip(x, on, strict=True):
        row[switch_inputs(proxy.problem)[free[3]]] = 0.0
    assert (np.asarray(correction.which(x.T)) == 0).all()
    x[:, switch_inputs(proxy.problem)] = 1.0
    assert (np.asarray(correction.which(x.T)) == 0).all()


@pytest.mark.parametrize("answer", ["conditioned", "auto"])
def test_a_model_with_switches_is_the_same_after_it_was_saved(tmp_path, answer):
    proxy, data = trained()
    proxy.save(tmp_path / "model")
    again = fb.Proxy.load(tmp_path / "model")
    x = data.x[data.solved][:8]
    assert np.allclose(again.predict(x, answer).y, proxy.predict(x, answer).y, atol=1e-9)
