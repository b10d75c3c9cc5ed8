"""Changes of low rank to the matrix of the complementarity problem, against the changed matrix itself."""

import jax
import numpy as np
import pytest

from feasibly.model.complementarity import border, pivot, solve
from feasibly.precision import double

compiled = jax.jit(solve, static_argnums=(4, 5))


@pytest.mark.parametrize("seed", range(4))
def test_a_bordered_problem_is_that_of_the_changed_matrix(seed):
    random = np.random.default_rng(seed)
    size, rank, entries = 9, 2, 5
    root = random.standard_normal((size, 14))
    matrix = root @ root.T / 14.0
    base = random.random(size) < 0.4
    along = random.standard_normal((entries, size, rank)) / 4.0
    # Less than the matrix has, so that what is left still curves upwards.
    middle = np.stack([np.diag(random.uniform(0.0, 0.2, rank)) for _ in range(entries)])
    usual = pivot(matrix, base)
    made = tuple(border(part, along, middle) for part in usual)
    q = random.standard_normal((size, entries + 1))
    nothing, active = np.zeros_like(q), np.tile(base[:, None], (1, entries + 1))
    with double():
        lam, _, settled = compiled(usual, q, nothing, active, size, (40, 40), made)
        for entry in range(entries + 1):
            low = 0.0 if not entry else along[entry - 1] @ middle[entry - 1] @ along[entry - 1].T
            one, _, ok = compiled(
                pivot(matrix - low, base), q[:, [entry]], nothing[:, :1], active[:, :1], size, (40, 40)
            )
            assert settled[entry]
            assert ok[0]
            assert np.allclose(lam[:, [entry]], one, rtol=1e-6, atol=1e-7)
