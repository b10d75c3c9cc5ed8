"""Sparse operators: what large problems are answered with, seen on small ones against dense algebra and the labels."""

import functools
import itertools
from dataclasses import replace

import jax
import numpy as np
import pytest

import feasibly as fb
from feasibly.answer.calibrate import calibrate
from feasibly.answer.calibration import Labels
from feasibly.answer.schedule import CONDITIONED, SHARED_ONLY, SHARED_OPTIMAL
from feasibly.answer.settings import Settings
from feasibly.answer.sparse import SparseOperator
from feasibly.answer.sparse_response import sparse_response
from feasibly.answer.sparse_step import solve_changes
from feasibly.model.linear import fit_ridge
from feasibly.model.sparse import Sparse, fit_sparse_response
from feasibly.precision import double
from tests.grids import GRID6
from tests.proxies import trained, unseen

ALWAYS = Settings(sparse_from=0)


@functools.cache
def sparse_driver(name):
    proxy, data = trained(name)
    rows = np.flatnonzero(data.solved)[:60]
    labels = Labels(data.x[rows], data.y[rows], data.objective[rows], data.duals.take(rows))
    return calibrate(proxy.problem, labels, proxy.model.covariance, settings=ALWAYS), labels


def dense_system(problem, operator):
    """The optimality system by plain JAX, with the usual candidates as equalities."""
    c, centre, free = operator.candidates, operator.centre, operator.free
    lam = centre.lam[c.bounds :]

    def lagrangian(y):
        cost = problem.objective(centre.x, y) + centre.equality @ problem.equality(centre.x, y)
        return cost + lam @ problem.inequality(centre.x, y)[c.inequality]

    with double():
        jacobian = np.asarray(jax.jacfwd(lambda y: problem.equality(centre.x, y))(centre.y))
        normals = np.asarray(jax.jacfwd(lambda y: problem.inequality(centre.x, y)[c.inequality])(centre.y))
        hessian = np.asarray(jax.jacfwd(jax.grad(lagrangian))(centre.y))
    unit = np.eye(problem.n_outputs)
    normals = np.concatenate([-unit[c.lower], unit[c.upper], normals])[:, free]
    usual, jacobian = normals[operator.base], jacobian[:, free]
    metric = hessian[np.ix_(free, free)] + np.diag(operator.precision)
    corner = np.zeros((len(jacobian) + len(usual),) * 2)
    corner[len(jacobian) :, len(jacobian) :] = -np.diag(operator.changes.sigma[operator.base])
    across = np.concatenate([jacobian, usual])
    return np.block([[metric, across.T], [across, corner]]), normals


@pytest.mark.parametrize("name", ["grid6", "nonconvex"])
def test_the_factorisation_is_that_of_the_optimality_system(name):
    driver, _ = sparse_driver(name)
    operator = driver.operator(0)
    assert isinstance(operator, SparseOperator)
    whole, normals = dense_system(driver.problem, operator)
    right = np.random.default_rng(0).standard_normal((len(whole), 3))
    np.testing.assert_allclose(operator.solve(right), np.linalg.solve(whole, right), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(operator.normals.toarray(), normals, atol=1e-10)


@pytest.mark.parametrize("name", ["grid6", "nonconvex"])
def test_rows_reach_the_optimum_whatever_their_active_set(name):
    driver, labels = sparse_driver(name)
    proxy, data = trained(name)
    x, best, _ = unseen(proxy, data, 40)
    mean = np.repeat(labels.y.mean(axis=0)[None], len(x), axis=0)
    for schedule, closest in ((SHARED_ONLY, 1e-4), (SHARED_OPTIMAL, 1e-7)):
        found = driver.run(x, mean, schedule)
        assert found.converged.mean() >= 0.85
        cost, equality, inequality = driver.measure(x, found.y)
        assert np.maximum(equality, inequality)[found.converged].max() < 1e-6
        assert np.median((np.abs(cost - best) / np.abs(best))[found.converged]) < closest
    assert (found.iterate.active != driver.calibration.base).any()


@pytest.mark.parametrize("never", [{"settled_step": 0.0}, {"sparse_sound": -1.0}])
@pytest.mark.parametrize("schedule", [SHARED_ONLY, SHARED_OPTIMAL])
def test_a_row_that_has_not_settled_has_not_converged_however_many_steps_it_took(never, schedule):
    driver, labels = sparse_driver("grid6")
    assert driver.run(labels.x, labels.y, schedule).converged.any()
    strict = driver.having(replace(driver.calibration, settings=replace(driver.settings, **never)))
    assert not strict.run(labels.x, labels.y, schedule).converged.any()


def test_a_row_gets_the_same_answer_alone_and_among_others():
    driver, labels = sparse_driver("grid6")
    mean = np.repeat(labels.y.mean(axis=0)[None], 12, axis=0)
    together = driver.run(labels.x[:12], mean, SHARED_ONLY)
    alone = driver.run(labels.x[3:4], mean[:1], SHARED_ONLY)
    assert together.converged[3]
    assert alone.converged[0]
    np.testing.assert_allclose(alone.y[0], together.y[3], atol=1e-5)


def test_steps_are_counted_to_the_last(monkeypatch):
    driver, _ = sparse_driver("grid6")
    taken = []
    solve = driver.iteration._solve
    monkeypatch.setattr(driver.iteration, "_solve", lambda *args: taken.append(1) or solve(*args))
    found = driver.run(fb.sample(driver.problem, 1, seed=3), driver.operator(0).centre.y[None], SHARED_ONLY)
    assert found.converged.all()
    assert found.steps[0] == len(taken)


def test_rows_that_nobody_begins_in_time_stay_where_they_are():
    """More than are at work at a time, none of which has taken a step when the time is up."""
    driver, labels = sparse_driver("grid6")
    x = np.repeat(labels.x[:1], 40, axis=0)
    start = driver.start(x, np.repeat(labels.y[:1], 40, axis=0))
    ended, seen = driver.iteration.run(
        driver.operator(0),
        x,
        start.y,
        start,
        8,
        proximal=True,
        cost_tolerance=0.0,
        rounds=(40, 40),
        until=0.0,
    )
    np.testing.assert_array_equal(ended.y, start.y)
    assert not seen.steps.any()


def test_the_response_is_the_derivative_of_the_optimum_and_survives_saving(tmp_path):
    driver, labels = sparse_driver("grid6")
    solution_map = sparse_response(driver.rowwise, driver.operator(0))
    proxy, _ = trained("grid6")
    kind = fit_sparse_response(solution_map, labels.x, labels.y)
    made = fb.Proxy(
        proxy.problem, kind, proxy.record, keys=proxy.keys, calibration=driver.calibration, box=proxy.box
    )
    before = made.predict(labels.x[:8])
    assert (
        np.abs(kind.predict(labels.x).mean - labels.y).mean() < np.abs(labels.y - labels.y.mean(0)).mean() / 3
    )
    made.save(tmp_path / "model")
    again = fb.Proxy.load(tmp_path / "model")
    after = again.predict(labels.x[:8])
    assert made.digest() == again.digest()
    assert set(before.level) == set(after.level) == {"shared"}
    np.testing.assert_allclose(before.y, after.y, atol=1e-9)
    drawn = next(iter(again.model.draws(labels.x[:2], 1, 0)))
    assert drawn.shape == before.y[:2].shape
    assert np.isfinite(drawn).all()


def test_sparse_matrices_come_back_as_they_were():
    whole = np.array([[0.0, 2.0, 0.0], [0.0, 0.0, -1.0]])
    import scipy.sparse

    np.testing.assert_array_equal(Sparse.of(scipy.sparse.csc_matrix(whole)).matrix.toarray(), whole)


def test_complementarity_by_flips_is_the_one_that_enumeration_finds():
    random = np.random.default_rng(3)
    root = random.standard_normal((4, 4))
    matrix = root @ root.T + 0.1 * np.eye(4)
    first = random.standard_normal((30, 4))
    amounts, flipped = solve_changes(matrix, first, np.zeros((30, 4), dtype=bool), 60, ALWAYS)
    for row in range(30):
        found = None
        for chosen in itertools.product([False, True], repeat=4):
            z, inside = np.zeros(4), np.flatnonzero(chosen)
            z[inside] = np.linalg.solve(matrix[np.ix_(inside, inside)], -first[row, inside])
            if (z >= -1e-12).all() and (first[row] + matrix @ z >= -1e-9).all():
                found = z
        np.testing.assert_allclose(amounts[row], found, atol=1e-7)
        assert ((amounts[row] > 1e-9) <= flipped[row]).all()


def test_steps_are_limited_only_where_derivatives_change():
    driver, _ = sparse_driver("grid6")
    straight = np.isinf(driver.calibration.radius)
    blocks = driver.problem.blocks
    for name in ("pg", "qg"):
        assert straight[blocks[name]].all()
    angles = straight[blocks["va"]] & (driver.problem.lower < driver.problem.upper)[blocks["va"]]
    assert not straight[blocks["vm"]].any()
    assert not angles.any()


def test_the_usual_active_set_is_that_of_most_answers():
    driver, labels = sparse_driver("grid6")
    found = driver.run(labels.x[:16], labels.y[:16], SHARED_ONLY)
    apart = (found.iterate.active != driver.calibration.base).mean(axis=0)
    assert found.converged.all()
    assert apart.max() <= 0.6


def test_bounds_that_move_with_the_input_and_elements_that_are_out(tmp_path):
    """The system is that of the problem with fixed bounds; what is out nobody shares, so that every row is solved."""
    problem = fb.load_problem(GRID6.write(tmp_path / "grid.json"), vary=("load", "branch", "generator"))
    data = fb.label(problem, fb.sample(problem, 60, seed=3), jobs=1)
    rows = np.flatnonzero(data.solved)
    labels = Labels(data.x[rows], data.y[rows], data.objective[rows], data.duals.take(rows))
    covariance = fit_ridge(labels.x, labels.y).covariance
    driver = calibrate(problem, labels, covariance, settings=ALWAYS)
    operator = driver.operator(0)
    assert isinstance(operator, SparseOperator)
    system, _ = dense_system(driver.search, operator)
    found = np.diag(1.0 / operator.scale) @ operator.matrix.toarray() @ np.diag(1.0 / operator.scale)
    assert np.abs(found - system).max() < 1e-6 * np.abs(system).max()
    assert driver.calibration.reached == 0.0
    answered = driver.run(labels.x, labels.y, CONDITIONED)
    assert set(answered.level) == {"row"}
    np.testing.assert_allclose(problem.objectives(labels.x, answered.y), labels.objective, rtol=1e-6)
