"""Complementarity of wide batches: what the usual way gives, whatever order rows are taken in."""

import jax
import numpy as np
import pytest

from feasibly.model.complementarity import pivot, solve
from feasibly.model.complementarity_wide import solve_wide
from feasibly.precision import double

wide, one_by_one = (jax.jit(method, static_argnums=(4, 5)) for method in (solve_wide, solve))


def problems(size, rows, seed=0):
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((size, size + 3))
    matrix = root @ root.T / size
    usual = rng.standard_normal(size)
    q = usual[:, None] + 0.7 * rng.standard_normal((size, rows))
    return matrix, usual > 0.3, q


@pytest.mark.parametrize(("size", "max_changes"), [(6, 6), (17, 16), (40, 40)])
def test_multipliers_are_those_of_the_usual_way_and_solve_the_problem(size, max_changes):
    matrix, base, q = problems(size, 200)
    with double():
        pivoted = pivot(matrix, base)
        nothing, active = np.zeros_like(q), np.repeat(base[:, None], q.shape[1], axis=1)
        lam, sets, settled = (
            np.asarray(part) for part in wide(pivoted, q, nothing, active, max_changes, (40, 40))
        )
        usual = np.asarray(one_by_one(pivoted, q, nothing, active, max_changes, (40, 40))[0])
    assert settled.mean() > 0.95
    assert np.allclose(lam[:, settled], usual[:, settled], atol=1e-8)
    slack = matrix @ lam - q
    assert slack[:, settled].min() > -1e-6
    assert np.abs(lam * slack)[:, settled].max() < 1e-6
    assert ((lam > 1e-9) <= sets)[:, settled].all()


def test_a_set_that_is_right_is_kept_without_a_round():
    matrix, base, q = problems(12, 100)
    with double():
        pivoted = pivot(matrix, base)
        guess = np.repeat(base[:, None], q.shape[1], axis=1)
        found = wide(pivoted, q, np.zeros_like(q), guess, 12, (40, 40))
        again = wide(pivoted, q, np.zeros_like(q), found[1], 12, (0, 0))
        blind = wide(pivoted, q, np.zeros_like(q), guess, 12, (0, 0))
    assert np.asarray(again[2])[np.asarray(found[2])].all()
    assert np.allclose(again[0], found[0], atol=1e-9)
    assert not np.asarray(blind[2]).all()


def test_rows_with_more_differences_than_there_is_room_for_are_not_said_to_have_settled():
    matrix, base, q = problems(12, 100)
    with double():
        pivoted = pivot(matrix, base)
        guess = np.repeat(base[:, None], q.shape[1], axis=1)
        _, sets, settled = wide(pivoted, q, np.zeros_like(q), guess, 2, (40, 40))
        most = np.sum(np.asarray(sets) != base[:, None], axis=0)[np.asarray(settled)]
    assert 0 < len(most) < 100
    assert most.max() <= 2


def test_rows_whose_signs_are_wrong_in_more_places_than_fit_settle_where_the_answer_fits():
    rng = np.random.default_rng(3)
    size, rows, max_changes = 40, 60, 8
    along = rng.uniform(0.8, 1.2, size)
    matrix = 20.0 * np.outer(along, along) + np.eye(size)  # one constraint met relieves most of the others
    q = rng.uniform(0.05, 1.0, (size, rows))
    q[rng.integers(0, size, rows), np.arange(rows)] = 3.0
    nothing = np.zeros((size, rows), dtype=bool)
    with double():
        pivoted = pivot(matrix, np.zeros(size, dtype=bool))
        run = jax.jit(solve_wide, static_argnums=4)
        lam, sets, settled = run(pivoted, q, np.zeros_like(q), nothing, max_changes, (20, 20))
    assert np.asarray(settled).mean() > 0.9
    assert np.asarray(sets).sum(axis=0).max() <= max_changes
    slack = (matrix @ np.asarray(lam) - q)[:, np.asarray(settled)]
    assert slack.min() > -1e-6
