"""Rows in chunks of few sizes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from feasibly.arrays import over_chunks, padded

SIZES = (1, 32, 256, 1024)


@pytest.mark.parametrize(
    ("rows", "widths"),
    [
        (1, [1]),
        (2, [32]),
        (32, [32]),
        (33, [32, 32]),
        (64, [32, 32]),
        (128, [32] * 4),
        (129, [256]),
        (300, [256, 256]),
        (600, [1024]),
        (1025, [1024, 32]),
    ],
)
def test_every_row_once_in_sizes_that_are_compiled_anyway(rows, widths):
    seen = []

    def evaluate(a, b):
        seen.append(len(a))
        return a.sum(axis=1) * b

    a, b = np.arange(2.0 * rows).reshape(rows, 2), np.arange(rows)
    np.testing.assert_array_equal(over_chunks(evaluate, SIZES, a, b), a.sum(axis=1) * b)
    assert seen == widths


def test_filling_repeats_the_last_row_where_the_rows_are():
    rows = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    expected = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [5.0, 6.0]]
    np.testing.assert_array_equal(padded(rows), expected)
    there = padded(jnp.asarray(rows), 4, jnp)
    assert isinstance(there, jax.Array)
    np.testing.assert_array_equal(there, expected)
    assert padded(rows, 3) is rows
