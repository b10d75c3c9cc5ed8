"""How the interior-point method goes about problems of several sizes."""

from dataclasses import replace

import pytest

from feasibly.problem.sampling import sample
from feasibly.solve import solve
from feasibly.solve.settings import DEFAULT
from tests.problems import make


@pytest.mark.parametrize("name", ["grid6", "nonconvex", "toy"])
def test_large_problems_are_solved_with_their_own_attempts_to_the_same_optimum(name):
    problem = make(name)
    x = sample(problem, 6, seed=3)
    usual = solve(problem, x)
    large = solve(problem, x, settings=replace(DEFAULT, large_from=0))
    assert [one.outcome for one in large] == [one.outcome for one in usual]
    for one, other in zip(large, usual, strict=True):
        if one.outcome.ok:
            assert one.objective == pytest.approx(other.objective, rel=1e-7)
