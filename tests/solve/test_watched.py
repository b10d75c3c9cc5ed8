"""Many rows at once that know of some inequalities alone."""

import jax.numpy as jnp
import numpy as np
import pytest

from feasibly.answer.rowwise import RowSolver
from feasibly.problem.core import Problem
from feasibly.problem.sampling import sample
from feasibly.solve.nlp import Solver
from tests.problems import CASES, make


@pytest.mark.parametrize("name", sorted(CASES))
def test_rows_solved_with_some_of_the_inequalities_end_where_they_do_with_all(name):
    """Whatever is watched: rows that break another inequality are solved again."""
    problem = make(name)
    whole = RowSolver(problem)
    if whole.batch is None:
        return
    x = sample(problem, 2 * whole.batch.iteration.width + 3, seed=4)
    usual = whole.solve(x, None, thorough=True, at_once=True)
    every = np.arange(problem.n_inequalities)
    for watched in (every[:0], every[::2], every):
        rows = whole.watching(watched)
        found = rows.solve(x, None, thorough=True, at_once=True)
        assert found.outcome == usual.outcome
        ok = found.ok
        np.testing.assert_allclose(
            problem.objectives(x[ok], found.point.y[ok]),
            problem.objectives(x[ok], usual.point.y[ok]),
            rtol=1e-6,
            atol=1e-9,
        )
        if ok.any():
            assert np.max(np.maximum(*problem.worst(x[ok], problem.pin(x[ok], found.point.y[ok]))[1:])) < 1e-6
        if CASES[name].unique:
            known, multipliers = (each.point.duals.inequality[ok] for each in (usual, found))
            scale = np.abs(known).max(initial=1.0)
            np.testing.assert_allclose(multipliers / scale, known / scale, atol=1e-4)


def test_a_row_that_breaks_what_is_not_watched_is_solved_with_everything():
    """Two of three rows press against the only inequality, which is not watched."""
    problem = Problem(
        lambda x, y: (y[0] - x[0]) ** 2 + (y[1] - 1.0) ** 2,
        np.full(2, -np.inf),
        np.full(2, np.inf),
        inequality=lambda x, y: jnp.array([y[0] + y[1] - 2.0]),
        box=([0.0], [2.0]),
    )
    rows = RowSolver(problem, watched=np.zeros(0, dtype=np.int64))
    x = np.array([[0.5], [1.5], [2.0]])
    found = rows.solve(x, None, thorough=True, at_once=True)
    assert found.outcome == ("OK",) * 3
    np.testing.assert_allclose(found.point.y, [[0.5, 1.0], [1.25, 0.75], [1.5, 0.5]], atol=1e-6)
    np.testing.assert_allclose(found.point.duals.inequality[:, 0], [0.0, 0.5, 1.0], atol=1e-5)
    left = rows.solve(x, None, thorough=True, at_once=True, rest=False)
    assert left.outcome == ("OK", "TIME_LIMIT", "TIME_LIMIT"), "nothing is solved that was not asked for"


def test_a_model_of_some_inequalities_has_the_values_and_derivatives_of_these():
    model = Solver.build(make("grid6")).model
    kept = np.array([5, 0, 3])
    some, random = model.keeping(kept), np.random.default_rng(2)
    y = model.start + 0.1 * random.standard_normal(len(model.start))
    nu, z = random.standard_normal(model.n_equalities), random.random(3)
    every = np.zeros(model.n_inequalities)
    every[kept] = z
    free = y[model.free]
    names = "objective", "equality", "inequality", "gradient", "J", "A", "H"
    for name, known, found in zip(
        names,
        model.second_order(free, model.nominal, nu, every),
        some.second_order(free, model.nominal, nu, z),
        strict=True,
    ):
        known = np.array(known)
        np.testing.assert_allclose(
            np.array(found), known[kept] if name in ("inequality", "A") else known, rtol=1e-12, atol=1e-12
        )
