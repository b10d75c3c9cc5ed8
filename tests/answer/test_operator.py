"""The equations of docs/method.md, each checked by something that shares no code with what implements it."""

import re
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

import feasibly
from feasibly.answer.driver import Driver
from feasibly.answer.operator import (
    build_operator,
    convexify,
    free_variables,
    invert_belief,
    split_spaces,
    split_sparse,
)
from feasibly.answer.response import first_order_response
from feasibly.answer.settings import Settings
from feasibly.answer.step import Residuals, has_converged
from feasibly.model.belief import Covariance
from feasibly.model.response import SolutionMap
from feasibly.precision import double
from feasibly.problem.duals import stationarity
from tests.answer.test_sparse import sparse_driver
from tests.proxies import trained, unseen

SETTINGS = Settings()


def blocks(operator):
    """`G`, `R` and `C` of an operator."""
    made, n = np.asarray(operator.inverse.blocks, dtype=np.float64), len(operator.free)
    return -made[:n, :n], -made[:n, n:], made[n:, n:]


def derivatives_at(problem, centre, candidates, free):
    """Jacobian, normals and Hessian by plain JAX."""
    lam = centre.lam[candidates.bounds :]

    def lagrangian(y):
        cost = problem.objective(centre.x, y) + centre.equality @ problem.equality(centre.x, y)
        return cost + lam @ problem.inequality(centre.x, y)[candidates.inequality]

    with double():
        jacobian = jax.jacfwd(lambda y: problem.equality(centre.x, y))(centre.y)
        normals = jax.jacfwd(lambda y: problem.inequality(centre.x, y)[candidates.inequality])(centre.y)
        hessian = jax.jacfwd(jax.grad(lagrangian))(centre.y)
    jacobian, normals, hessian = (np.asarray(part) for part in (jacobian, normals, hessian))
    return jacobian[:, free], normals[:, free], hessian[np.ix_(free, free)]


def test_the_blocks_invert_the_optimality_system():
    proxy, _ = trained("grid6")
    driver = proxy.ladder.driver
    operator, c = driver.operator(0), driver.calibration
    jacobian, normals, hessian = derivatives_at(proxy.problem, operator.centre, c.candidates, operator.free)
    dense = driver.covariance.factor @ driver.covariance.factor.T + np.diag(driver.covariance.diagonal)
    floor = SETTINGS.belief_floor**2 * np.eye(len(operator.free))
    belief = np.linalg.inv(dense[np.ix_(operator.free, operator.free)] + floor)
    metric = hessian + c.weight * belief
    _, _, across = np.linalg.svd(jacobian)
    null = across[len(jacobian) :].T
    reduced = null.T @ metric @ null
    values, vectors = np.linalg.eigh((reduced + reduced.T) / 2.0)
    raised = np.maximum(np.abs(values), SETTINGS.curvature_floor * values[-1])  # no direction may be concave
    metric = metric + null @ ((vectors * (raised - values)) @ vectors.T) @ null.T
    exact = np.linalg.inv(np.block([[metric, jacobian.T], [jacobian, np.zeros((len(jacobian),) * 2)]]))
    n = len(operator.free)
    wanted = exact[:n, :n], exact[:n, n:], -exact[n:, n:]
    for part, right in zip(blocks(operator), wanted, strict=True):
        assert np.allclose(part, right, atol=1e-5 * np.abs(right).max())
    unit = np.eye(n)
    a = np.concatenate([-unit[operator.inverse.low], unit[operator.inverse.high], normals])
    gram = a @ exact[:n, :n] @ a.T
    assert np.allclose(operator.inverse.gram, gram, atol=1e-7 * np.abs(gram).max())
    response = -np.concatenate([exact[:n, :n] @ a.T, exact[:n, n:].T @ a.T])
    assert np.allclose(operator.inverse.response, response, atol=1e-5 * np.abs(response).max())


@pytest.mark.parametrize(("share", "digits"), [(1.0, 1e-3), (100.0, 1e-2)])
def test_large_problems_take_the_sparse_way_to_the_same_operator(share, digits):
    proxy, _ = trained("grid6")
    driver = proxy.ladder.driver
    c = replace(driver.calibration, weight=share * driver.calibration.weight)
    dense = Driver(proxy.problem, c, driver.covariance, reuse=driver).operator(0)
    large = replace(c, settings=replace(c.settings, large=0, sparse_share=1.1))
    sparse = Driver(proxy.problem, large, driver.covariance, reuse=driver).operator(0)
    assert not np.array_equal(dense.inverse.blocks, sparse.inverse.blocks)
    for exact, single in zip(blocks(dense), blocks(sparse), strict=True):
        assert np.allclose(single, exact, atol=digits * np.abs(exact).max())
    gram = np.asarray(dense.inverse.gram)
    assert np.allclose(sparse.inverse.gram, gram, atol=1e-7 * np.abs(gram).max())


def test_a_sparse_factorisation_splits_the_spaces_as_a_dense_one_does():
    random = np.random.default_rng(0)
    rows, columns = 60, 80
    jacobian = np.where(random.random((rows, columns)) < 0.1, random.standard_normal((rows, columns)), 0.0)
    jacobian[:, :rows] += np.eye(rows)
    null, right = split_sparse(jacobian, 1e-7)
    dense_null, dense_right = split_spaces(jacobian, SETTINGS)
    assert np.allclose(right, dense_right, atol=1e-9)
    assert np.allclose(null @ null.T, dense_null @ dense_null.T, atol=1e-9)
    assert np.allclose(null.T @ null, np.eye(columns - rows), atol=1e-12)


def test_equalities_that_repeat_one_another_are_left_to_the_dense_factorisation():
    random = np.random.default_rng(1)
    jacobian = random.standard_normal((5, 9))
    jacobian[4] = jacobian[3]
    assert split_sparse(jacobian, 1e-7) is None
    null, right = split_spaces(jacobian, SETTINGS)
    assert null.shape == (9, 5)
    assert np.allclose(jacobian @ right @ jacobian, jacobian)


def test_a_metric_is_convex_and_a_convex_matrix_is_left_alone():
    random = np.random.default_rng(2)
    root = random.standard_normal((6, 6))
    positive = root @ root.T + np.eye(6)
    assert np.array_equal(convexify(positive, 1e-8, 1e-8), (positive + positive.T) / 2.0)
    made = convexify(positive - 20.0 * np.eye(6), 1e-8, 1e-8)
    assert np.linalg.eigvalsh(made)[0] > 0.0
    assert convexify(np.zeros((0, 0)), 1e-8, 1e-8).shape == (0, 0)


def test_the_belief_is_inverted_with_its_floor():
    random = np.random.default_rng(3)
    covariance = Covariance(random.standard_normal((5, 3)), random.random(5))
    free = np.array([0, 2, 3])
    dense = (covariance.factor @ covariance.factor.T + np.diag(covariance.diagonal))[np.ix_(free, free)]
    wanted = np.linalg.inv(dense + 0.1**2 * np.eye(3))
    assert np.allclose(invert_belief(covariance, free, 0.1), wanted)


def test_where_the_step_rests_the_rows_own_optimality_conditions_hold():
    proxy, data = trained("grid6")
    x, _, y = unseen(proxy, data, 8)
    rows = np.flatnonzero(data.solved & data.unseen(proxy.keys))[:8]
    driver = proxy.ladder.driver
    c = driver.calibration
    duals = data.duals.take(rows)
    lam = c.candidates.compress(duals)
    start = driver.start(x, y)._replace(equality=duals.equality, lam=lam, active=lam > 1e-6)
    operator = driver.operator(0)
    moved, _ = driver.iteration.run(
        operator, x, y, start, 1, proximal=False, cost_tolerance=0.0, rounds=(40, 40)
    )
    away = np.abs(moved.y - y) / c.radius
    assert np.median(away.max(axis=1)) < 1e-5


def test_a_row_whose_multipliers_do_not_balance_its_cost_has_not_converged():
    proxy, data = trained("grid6")
    rows = np.flatnonzero(data.solved & data.unseen(proxy.keys))[:4]
    x, y, duals = data.x[rows], data.y[rows], data.duals.take(rows)
    driver = proxy.ladder.driver
    c = driver.calibration
    lam = c.candidates.compress(duals)
    for share in (1.0, 1.1):
        start = driver.start(x, y)._replace(equality=share * duals.equality, lam=lam, active=lam > 1e-6)
        moved, seen = driver.iteration.run(
            driver.operator(0), x, y, start, 1, proximal=False, cost_tolerance=0.0, rounds=(40, 40)
        )
        # (4): where multipliers alone are off, one step puts them right, whatever the matrix.
        away = np.abs(moved.equality - duals.equality).max(axis=1) / np.abs(duals.equality).max(axis=1)
        assert np.median(away) < 1e-3
        off = stationarity(proxy.problem, x, y, replace(duals, equality=share * duals.equality))
        largest = np.maximum(np.abs(share * duals.equality).max(axis=1), lam.max(axis=1, initial=0.0))
        expected = np.abs(off).max(axis=1) / largest
        assert seen.stationarity == pytest.approx(expected, rel=1e-2, abs=1e-5)
        settled = seen._replace(
            **dict.fromkeys(("equality", "inequality", "change", "remaining"), np.zeros(4))
        )
        assert (has_converged(Settings(), y, settled, proximal=False) == (share == 1.0)).all()


def test_a_row_that_creeps_has_not_converged():
    """Its last step changes its cost by little, and so will very many after it."""
    nothing, y = np.zeros(3), np.zeros((3, 2))
    steps, settled = np.ones(3, dtype=int), np.ones(3, dtype=bool)
    remaining = np.array([1e-7, 9e-5, np.inf])  # of the last row nothing is known of what follows
    seen = Residuals(nothing, nothing, np.full(3, 9e-7), remaining, steps, nothing, settled, np.zeros((3, 2)))
    assert has_converged(Settings(), y, seen, proximal=True).tolist() == [True, False, True]


@pytest.mark.parametrize("sparse", [False, True])
def test_what_further_steps_bring_is_known_after_a_single_step_that_goes_on_from_others(sparse):
    proxy, data = trained("grid6")
    rows = np.flatnonzero(data.solved & data.unseen(proxy.keys))[:40]
    driver = sparse_driver("grid6")[0] if sparse else proxy.ladder.driver
    x, start = data.x[rows], driver.start(data.x[rows], data.y[rows] + 1e-3)

    def run(state, steps, costs=None):
        return driver.iteration.run(
            driver.operator(0),
            x,
            start.y,
            state,
            steps,
            proximal=True,
            cost_tolerance=0.0,
            rounds=(40, 40),
            costs=costs,
        )

    (at, before), (whole, together) = run(start, 2), run(start, 3)
    (alone, afresh), (further, after) = run(at, 1), run(at, 1, before.costs)
    left = (before.steps == 2) & (together.steps == 3) & (after.steps == 1)
    assert left.sum() >= 4
    assert np.isinf(afresh.remaining[left]).all()
    assert np.isfinite(after.remaining[left]).all()
    np.testing.assert_array_equal(alone.y[left], further.y[left])
    if not sparse:  # whose steps are extrapolated from those of the same run
        np.testing.assert_allclose(whole.y[left], further.y[left], atol=1e-9)
        np.testing.assert_allclose(together.remaining[left], after.remaining[left], rtol=1e-2, atol=1e-12)


@pytest.mark.parametrize("name", ["grid6", "nonconvex"])
def test_the_first_order_response_is_one_step_from_the_centre(name):
    proxy, data = trained(name)
    x, _, _ = unseen(proxy, data, 10)
    driver = proxy.ladder.driver
    operator, c = driver.operator(0), driver.calibration
    solution_map = SolutionMap(first_order_response(proxy.problem, operator), c.max_changes)
    answer, settled = solution_map.respond(x)
    centre = operator.centre
    start = driver.start(x, np.tile(centre.y, (len(x), 1)))
    start = start._replace(
        equality=np.tile(centre.equality, (len(x), 1)), lam=np.tile(centre.lam, (len(x), 1))
    )
    free_to_move = replace(c, radius=np.full_like(c.radius, 1e9))
    far = Driver(proxy.problem, free_to_move, driver.covariance)
    stepped, _ = far.iteration.run(
        far.operator(0), x, start.y, start, 1, proximal=False, cost_tolerance=0.0, rounds=(40, 40)
    )
    assert settled.mean() > 0.5
    scale = np.abs(stepped.y[settled] - centre.y).max()
    assert np.allclose(answer[settled], stepped.y[settled], atol=1e-4 * scale)


def test_the_first_order_response_is_the_derivative_of_solved_instances():
    from feasibly.solve.nlp import Solver

    proxy, _ = trained("grid6")
    driver = proxy.ladder.driver
    problem, centre = proxy.problem, driver.operator(0).centre
    weightless = replace(driver.calibration, weight=1e-6 * driver.calibration.weight)
    operator = build_operator(
        problem, driver._derivatives, centre, weightless.candidates, weightless.base,
        invert_belief(driver.covariance, free_variables(problem), SETTINGS.belief_floor), weightless.weight,
        weightless.radius, SETTINGS,
    )  # fmt: skip
    solution_map = SolutionMap(first_order_response(problem, operator), driver.calibration.max_changes)
    solver = Solver.build(problem)
    checked = 0
    for i in range(problem.n_inputs):
        h = 1e-4
        ends = [centre.x.copy(), centre.x.copy()]
        ends[0][i] -= h
        ends[1][i] += h
        solved = [solver.solve(end) for end in ends]
        answers, settled = solution_map.respond(np.array(ends))
        if not (settled.all() and all(one.outcome.ok for one in solved)):
            continue
        costs = problem.objectives(np.array(ends), answers)
        slope = float(costs[1] - costs[0]) / (2 * h)
        true = (solved[1].objective - solved[0].objective) / (2 * h)
        assert slope == pytest.approx(true, rel=1e-2, abs=1e-2 * abs(true) + 1e-3)
        checked += 1
    assert checked >= problem.n_inputs // 2


@pytest.mark.parametrize("page", ["method", "walkthrough", "notation"])
def test_everything_that_a_page_of_the_method_names_is_defined_somewhere(page):
    text = (Path(__file__).parents[2] / "docs" / f"{page}.md").read_text(encoding="utf-8")
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    source = "\n".join(
        path.read_text(encoding="utf-8") for path in Path(feasibly.__file__).parent.rglob("*.py")
    )
    source = re.sub(r'""".*?"""', "", source, flags=re.DOTALL)
    named = {name.split(".")[-1] for name in re.findall(r"`(_?[A-Za-z]\w*(?:\.\w+)*)(?:\(\))?`", text)}
    functions = {"method": {"take_step", "build_operator", "split_spaces"}, "walkthrough": {"run_level"}}
    assert functions.get(page, set()) <= named
    kinds = r"(?:def|class) {0}\b|\b{0}(?:: [^=\n]+)?(?: = |=|: )|[\"']{0}[\"']|(?:, |= ){0}, |, {0} = "
    assert {name for name in named - {"py"} if not re.search(kinds.format(name), source)} == set()
