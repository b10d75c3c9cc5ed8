"""How solutions move, many rows at once: beside the whole system of each row, and beside solving again."""

from dataclasses import replace

import numpy as np
import pytest

from exact import Exact, differences
from feasibly.problem.point import Point
from feasibly.problem.sampling import sample
from feasibly.solve.interior import InteriorPoint
from feasibly.solve.lanes.batch import BatchSolver
from feasibly.solve.nlp import Solver
from feasibly.solve.settings import DEFAULT
from tests.problems import make


def solved(name, count=11):
    problem = make(name)
    solver = Solver.build(problem)
    x = sample(problem, count, seed=4)
    found = solver.batch.solve(x, None, np.zeros(count, dtype=bool))
    return problem, solver, x[found.converged], found.point.take(found.converged)


@pytest.mark.parametrize("name", ["toy", "grid3", "nonconvex"])
def test_they_are_those_of_the_whole_system(name):
    """Which is factored with pivots, one row at a time."""
    _, solver, x, point = solved(name)
    along = np.random.default_rng(1).normal(size=(x.shape[1], 3))
    moved, sound, _ = solver.batch.tangents.solve(x, point, along)
    assert sound.any()
    for row in np.flatnonzero(sound):
        whole = solver.sensitivity(x[row], point.take(row), along).y
        np.testing.assert_allclose(moved[row], whole, atol=1e-6 * np.abs(whole).max())


@pytest.mark.parametrize("name", ["toy", "grid3", "grid6"])
def test_they_are_differences_of_optima(name):
    """Optima to rounding, by Newton's method on IPOPT's active set."""
    problem, solver, x, point = solved(name, 24)
    exact = Exact(solver.model)
    along = np.random.default_rng(2).normal(size=(x.shape[1], 1)) * np.abs(problem.nominal)[:, None]
    moved, sound, _ = solver.batch.tangents.solve(x, point, along)
    # Reactive power may be split in any way between generators at one bus.
    settled = np.delete(np.arange(problem.n_outputs), problem.blocks.get("qg", slice(0)))

    def size(moves):
        return np.abs(moves[settled]).max()

    count = 0
    for row in np.flatnonzero(sound):
        expected = differences(exact, x[row], solver.nominal.y, along, size)
        if expected.moves is not None and expected.determined:
            count += 1
            assert size(moved[row] - expected.moves) <= 1e-5 * size(expected.moves), row
    assert count >= 8


def test_rows_that_are_not_sound_go_on_from_the_optimum_that_was_found():
    problem, solver, x, point = solved("grid6", 24)
    along = np.random.default_rng(2).normal(size=(x.shape[1], 1))
    expected, sound, none = solver.batch.tangents.solve(x, point, along)
    assert not set(none) & set(np.flatnonzero(sound))
    strict = Solver.build(problem, settings=replace(DEFAULT, refinement_correction=-1.0))
    _, left, crossed = strict.batch.tangents.solve(x, point, along)
    assert not left.any()
    assert len(crossed) >= 20
    settled = np.delete(
        np.arange(problem.n_outputs), problem.blocks["qg"]
    )  # which units may split in any way
    for row, optimum in crossed.items():
        found = solver.sensitivity(x[row], optimum, along, exact=True).y[settled]
        if sound[row]:
            np.testing.assert_allclose(found, expected[row][settled], atol=1e-5 * np.abs(found).max())


def test_a_point_that_is_a_barrier_away_is_taken_to_its_optimum():
    """What hardly presses moves with the barrier: taken as it is, the derivative would be off by 1e-4 and more."""
    _, solver, x, point = solved("grid6", 24)
    along = np.random.default_rng(2).normal(size=(x.shape[1], 1))
    tangents = solver.batch.tangents
    expected, *_ = tangents.solve(x, point, along)
    loose = BatchSolver(blunt(solver), solver.nominal.point)
    far = loose.solve(x, None, np.zeros(len(x), dtype=bool))
    assert far.converged.all()
    assert np.abs(far.point.y - point.y).max() > 1e-6
    moved, *_ = tangents.solve(x, far.point, along)
    same = np.abs(moved - expected).max(axis=(1, 2)) < 1e-6 * np.abs(expected).max()
    assert same.sum() >= 20  # of 24; six digits do not always tell what is active


def blunt(solver):
    """The same method, to six digits."""
    settings = replace(solver.settings, final_barrier=1e-6, smallest_barrier=1e-6, relative_gap=1.0)
    interior = InteriorPoint(solver.model, 1e-5, settings)
    assert interior.find_central_points(solver.nominal.point)
    return interior


def test_what_is_not_watched_and_presses_is_left_to_others():
    problem, solver, x, point = solved("grid6")
    kept = np.arange(1, problem.n_inequalities)
    batch = solver.lanes(solver.model.keeping(kept))
    duals = point.duals
    inequality = duals.inequality.copy()
    inequality[:, 0] = np.where(np.arange(len(x)) % 2, 1.0, 0.0)
    asked = Point.of(point.y, duals.equality, inequality, duals.lower, duals.upper)
    _, sound, _ = batch.tangents.solve(x, asked, np.eye(x.shape[1])[:, :1])
    assert not sound[1::2].any()
    assert sound[::2].any()


def test_where_no_active_set_is_that_of_an_optimum_points_count_as_they_are():
    """A multiplier over its slack then says how firmly a constraint holds."""
    problem = make("nonconvex")
    settings = replace(DEFAULT, crossover_rounds=1, crossover_residual=0.0)
    solver = Solver.build(problem, settings=settings)
    x = sample(problem, 11, seed=4)
    found = solver.batch.solve(x, None, np.zeros(len(x), dtype=bool))
    assert found.converged.all()
    along = np.random.default_rng(5).normal(size=(x.shape[1], 2))
    moved, sound, _ = solver.batch.tangents.solve(x, found.point, along)
    sure = Solver.build(problem)
    usual, *_ = sure.batch.tangents.solve(x, found.point, along)
    assert sound.any()
    assert not np.array_equal(moved, usual)
    for row in np.flatnonzero(sound):
        whole = solver.sensitivity(x[row], found.point.take(row), along).y
        np.testing.assert_allclose(moved[row], whole, atol=1e-5 * np.abs(whole).max())
        np.testing.assert_allclose(moved[row], usual[row], atol=1e-2 * np.abs(whole).max())
