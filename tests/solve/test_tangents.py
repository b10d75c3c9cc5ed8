"""How solutions move, many rows at once: beside the whole system of each row, and beside solving again."""

import numpy as np
import pytest

from feasibly.problem.point import Point
from feasibly.problem.sampling import sample
from feasibly.solve.nlp import Solver
from tests.problems import make


def solved(name, count=11):
    problem = make(name)
    solver = Solver.build(problem)
    x = sample(problem, count, seed=4)
    found = solver.batch.solve(x, None, np.zeros(count, dtype=bool))
    return problem, solver, x[found.converged], found.point.take(found.converged)


def pressing(point, share=1e-6):
    """The point with its active set made plain: multipliers of what presses, on its bounds to the last bit."""
    duals = point.duals
    most = max(float(np.abs(part).max(initial=0.0)) for part in (duals.equality, duals.lower, duals.upper))
    parts = [
        np.where(part > share * most, part, 0.0) for part in (duals.inequality, duals.lower, duals.upper)
    ]
    return Point.of(point.y, duals.equality, *parts)


@pytest.mark.parametrize("name", ["toy", "grid3", "nonconvex"])
def test_they_are_those_of_the_whole_system(name):
    _, solver, x, point = solved(name)
    point = pressing(point)
    along = np.random.default_rng(1).normal(size=(x.shape[1], 3))
    moved, sound = solver.batch.tangents.solve(x, point, along)
    assert sound.any()
    for row in np.flatnonzero(sound):
        # Seventeen directions and more are asked of the whole system, which is factored with pivots.
        wide = np.concatenate([along, np.zeros((len(along), 17))], axis=1)
        whole = solver.sensitivity(x[row], point.take(row), wide, tight=True).y[:, :3]
        np.testing.assert_allclose(moved[row], whole, atol=1e-5 * np.abs(whole).max())


def test_they_are_differences_of_solved_rows():
    problem, solver, x, point = solved("grid3", 24)
    along = np.random.default_rng(2).normal(size=(x.shape[1], 1)) * np.abs(problem.nominal)[:, None]
    moved, sound = solver.batch.tangents.solve(x, pressing(point), along)
    step = 1e-4
    ahead, behind = (
        solver.batch.solve(x + sign * step * along[:, 0], None, np.zeros(len(x), dtype=bool))
        for sign in (1, -1)
    )
    known = sound & ahead.converged & behind.converged
    differences = (ahead.point.y - behind.point.y) / (2 * step)
    forward = (ahead.point.y - point.y) / step
    largest = np.abs(differences).max(axis=1)
    smooth = np.abs(forward - differences).max(axis=1) < 1e-3 * largest  # no active set changes in between
    rows = np.flatnonzero(known & smooth)
    assert len(rows) >= 8
    off = np.abs(moved[rows, :, 0] - differences[rows]).max(axis=1) / largest[rows]
    assert np.median(off) < 1e-5


def test_what_is_not_watched_and_presses_is_left_to_others():
    problem, solver, x, point = solved("grid6")
    kept = np.arange(1, problem.n_inequalities)
    batch = solver.lanes(solver.model.keeping(kept))
    duals = point.duals
    inequality = duals.inequality.copy()
    inequality[:, 0] = np.where(np.arange(len(x)) % 2, 1.0, 0.0)
    asked = Point.of(point.y, duals.equality, inequality, duals.lower, duals.upper)
    _, sound = batch.tangents.solve(x, asked, np.eye(x.shape[1])[:, :1])
    assert not sound[1::2].any()
    assert sound[::2].any()


def test_points_of_the_interior_are_taken_as_they_are():
    """A multiplier and its slack say together what presses: nobody has to say where a small one ends."""
    _, solver, x, point = solved("nonconvex")
    along = np.random.default_rng(5).normal(size=(x.shape[1], 2))
    moved, sound = solver.batch.tangents.solve(x, point, along, tight=False)
    assert sound.any()
    for row in np.flatnonzero(sound):
        whole = solver.sensitivity(x[row], point.take(row), along).y
        np.testing.assert_allclose(moved[row], whole, atol=1e-5 * np.abs(whole).max())
