"""Triangular factors for many right-hand sides, against SuperLU itself."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg

pytest.importorskip("llvmlite")

from feasibly.solve.lanes.triangular import Triangles


@pytest.mark.parametrize("columns", [1, 7, 8, 9, 32, 33, 70])
def test_right_hand_sides_are_solved_for(columns):
    random = np.random.default_rng(columns)
    matrix = scipy.sparse.random(60, 60, 0.1, random_state=3) + 2.0 * scipy.sparse.identity(60)
    matrix = matrix.tocsc()[random.permutation(60)]  # so that pivots are not on the diagonal
    factors = scipy.sparse.linalg.splu(matrix)
    right = random.standard_normal((60, columns))
    np.testing.assert_allclose(Triangles(factors).solve(right), factors.solve(right), rtol=1e-10, atol=1e-12)


def test_a_system_of_one():
    factors = scipy.sparse.linalg.splu(scipy.sparse.csc_matrix([[4.0]]))
    np.testing.assert_allclose(Triangles(factors).solve(np.array([[2.0, 8.0]])), [[0.5, 2.0]])


def test_threads_take_turns():
    size = 4000
    matrix = scipy.sparse.diags(
        [np.full(size, 4.0), np.full(size - 1, -1.0), np.full(size - 1, -1.0)], [0, 1, -1]
    )
    factors = scipy.sparse.linalg.splu(matrix.tocsc())
    triangles = Triangles(factors)
    rights = [np.random.default_rng(k).normal(size=(size, 8)) for k in range(40)]
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(triangles.solve, rights))
    for right, own in zip(rights, found, strict=True):
        np.testing.assert_allclose(own, factors.solve(right), atol=1e-12)
