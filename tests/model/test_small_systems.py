"""Small systems cut out of one matrix: both ways against plain algebra, whatever is left over of each."""

import jax
import numpy as np
import pytest

from feasibly.model import small_systems
from feasibly.precision import double


def systems(size, rows, width=30, seed=0):
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((width, width))
    matrix = root @ root.T / width + 0.1 * np.eye(width)
    which = np.stack([rng.permutation(width)[:size] for _ in range(rows)], axis=1).astype(np.int32)
    total = rng.integers(0, size + 1, rows).astype(np.int32)
    total[:2] = 0, size
    return matrix, which, total, rng.standard_normal((size, rows))


def kernel(*args):
    return small_systems.in_registers(*args, interpret=True)


@pytest.mark.parametrize("way", [small_systems.by_pivots, kernel], ids=["pivots", "kernel"])
@pytest.mark.parametrize("size", [2, 6, 16])
def test_each_row_is_solved_for_the_places_that_count(way, size):
    matrix, which, total, right = systems(size, 12)
    with double():
        found = np.asarray(jax.jit(way)(matrix, which, total, right))
    for row, count in enumerate(total):
        at = which[:count, row]
        known = np.linalg.solve(matrix[np.ix_(at, at)], right[:count, row])
        np.testing.assert_allclose(found[:count, row], known, rtol=1e-9, atol=1e-9)
        assert not found[count:, row].any()


def test_what_is_pivoted_has_pivots_of_either_sign():
    matrix, which, total, right = systems(6, 8)
    inside = np.arange(15)
    inverse = np.linalg.inv(matrix[:15, :15])
    carried = matrix[15:, :15] @ inverse
    pivoted = np.block([[inverse, -carried.T], [carried, matrix[15:, 15:] - carried @ matrix[inside, 15:]]])
    with double():
        ways = [np.asarray(way(pivoted, which, total, right)) for way in (small_systems.by_pivots, kernel)]
    np.testing.assert_allclose(*ways, rtol=1e-9, atol=1e-9)
    at = which[: total[1], 1]
    np.testing.assert_allclose(
        pivoted[np.ix_(at, at)] @ ways[0][: total[1], 1], right[: total[1], 1], atol=1e-9
    )


def test_without_a_gpu_nothing_is_compiled_for_one(monkeypatch):
    assert small_systems.fastest.__wrapped__() is small_systems.by_pivots
    # A GPU by name that cannot compile the kernel: there is another way.
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert small_systems.fastest.__wrapped__() is small_systems.by_pivots
