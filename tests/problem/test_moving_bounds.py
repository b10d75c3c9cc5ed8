"""Bounds that are functions of the input: what every check, the solver and the answers make of them."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import feasibly as fb
from feasibly.problem._fixed import fix_bounds
from feasibly.solve import Outcome, Solver, SolverOptions, solve


def moving(**more: Any) -> fb.Problem:
    """The point nearest to (x1, x1, x1) with y0 + y1 + y2 = x1, y0 <= x0, and y2 pinned at zero where x2 is 0.

    y0 = min(x0, x1 / k) where k outputs share, the rest equally.
    """
    return fb.Problem(
        lambda x, y: jnp.sum((y - x[1]) ** 2),
        lambda x: jnp.stack([-x[0], -5.0, jnp.where(x[2] > 0.5, -4.0, 0.0)]),
        lambda x: jnp.stack([x[0], 5.0, jnp.where(x[2] > 0.5, 4.0, 0.0)]),
        equality=lambda x, y: jnp.stack([y[0] + y[1] + y[2] - x[1]]),
        box=([0.2, 1.0, 0.0], [0.8, 3.0, 1.0]),
        nominal=[0.5, 2.0, 1.0],
        inputs={"cap": slice(0, 1), "level": slice(1, 2), "status": slice(2, 3)},
        name="moving",
        **more,
    )


def rows(count: int) -> np.ndarray:
    x = fb.sample(moving(), count, seed=1)
    x[:, 2] = np.round(x[:, 2])
    return x


def optimum(x: np.ndarray) -> np.ndarray:
    first = np.minimum(x[:, 0], x[:, 1] / (2.0 + x[:, 2]))
    rest = (x[:, 1] - first) / (1.0 + x[:, 2])
    return np.stack([first, rest, rest * x[:, 2]], axis=1)


def test_lower_and_upper_are_the_widest_and_rows_have_their_own() -> None:
    problem = moving()
    np.testing.assert_allclose(problem.lower, [-0.8, -5.0, -4.0])
    np.testing.assert_allclose(problem.upper, [0.8, 5.0, 4.0])
    assert list(problem.inputs) == ["cap", "level", "status"]
    lower, upper = problem.bounds([[0.3, 1.0, 1.0], [0.6, 2.0, 0.0]])
    np.testing.assert_allclose(lower, [[-0.3, -5.0, -4.0], [-0.6, -5.0, 0.0]])
    np.testing.assert_allclose(upper, [[0.3, 5.0, 4.0], [0.6, 5.0, 0.0]])
    given = moving(widest=([-9.0, -9.0, -9.0], [9.0, 9.0, 9.0]))
    np.testing.assert_allclose(given.upper, 9.0)


def test_violations_are_of_the_rows_own_bounds() -> None:
    problem = moving()
    x, y = np.array([[0.3, 1.0, 1.0], [0.3, 1.0, 0.0]]), np.array([[0.5, 0.0, 0.5], [0.2, 0.3, 0.5]])
    np.testing.assert_allclose(problem.bound_violations(y, x).max(axis=1), [0.2, 0.5])
    data = fb.Dataset.from_arrays(problem, x, y)
    assert fb.evaluate(problem, data, y).max_bound == pytest.approx(0.35)
    with pytest.raises(ValueError, match="pass the inputs"):
        problem.bound_violations(y)
    np.testing.assert_allclose(problem.pin(x, y)[:, 2], [0.5, 0.0])


def test_identity_knows_the_bounds_and_the_names() -> None:
    other = fb.Problem(
        lambda x, y: jnp.sum((y - x[1]) ** 2),
        lambda x: jnp.stack([-x[0], -5.0, jnp.where(x[2] > 0.5, -4.0, 0.0)]),
        lambda x: jnp.stack([0.5 * x[0] + 0.4, 5.0, jnp.where(x[2] > 0.5, 4.0, 0.0)]),
        equality=lambda x, y: jnp.stack([y[0] + y[1] + y[2] - x[1]]),
        box=([0.2, 1.0, 0.0], [0.8, 3.0, 1.0]),
        nominal=[0.5, 2.0, 1.0],
        inputs={"cap": slice(0, 1), "level": slice(1, 2), "status": slice(2, 3)},
        name="moving",
    )
    np.testing.assert_allclose(other.upper, moving().upper)
    assert len({other.fingerprint, moving().fingerprint}) == 2
    assert moving().fingerprint == moving().fingerprint


@pytest.mark.parametrize("warm", ["interior", "ipopt", "none"])
def test_the_solver_keeps_to_the_rows_own_bounds(warm: Any) -> None:
    problem, x = moving(), rows(12)
    solver = Solver.deserialise(Solver.build(problem, SolverOptions(warm=warm)).serialise())
    found = [solver.solve(row) for row in x]
    assert all(one.outcome is Outcome.OK for one in found)
    np.testing.assert_allclose([one.y for one in found], optimum(x), atol=1e-6)
    if warm == "interior":
        assert all(one.attempts == 1 for one in found)
    for row, one in zip(x, found, strict=True):
        # Stationarity with the multipliers of the row's own bounds, those of the pinned output included.
        slope = 2.0 * (one.y - row[1]) + one.duals.equality[0] - one.duals.lower + one.duals.upper
        np.testing.assert_allclose(slope, 0.0, atol=1e-5)
        if row[2] == 0.0:
            assert one.y[2] == 0.0


def test_a_row_without_a_feasible_point_is_known() -> None:
    problem = fb.Problem(
        lambda x, y: jnp.sum(y * y),
        [0.0, 0.0],
        lambda x: x[:1] * jnp.ones(2),
        equality=lambda x, y: jnp.stack([y[0] + y[1] - 1.0]),
        box=([0.2], [0.9]),
        nominal=[0.8],
    )
    found = fb.label(problem, [[0.3], [0.45], [0.6]], jobs=1)
    assert found.outcomes() == {"OK": 1, "INFEASIBLE": 2}


def test_solutions_move_with_their_bounds() -> None:
    """One by one and many at once."""
    problem, step = moving(), 1e-5
    solver = Solver.build(problem)
    x = np.array([[0.3, 2.0, 1.0], [0.3, 2.0, 0.0], [0.79, 1.2, 1.0]])
    wanted = np.stack(
        [(optimum(x + step * np.eye(3)[k]) - optimum(x - step * np.eye(3)[k])) / (2 * step) for k in (0, 1)],
        axis=2,
    )
    for row, at in enumerate(x):
        slopes = solver.sensitivity(at, solver.solve(at).point).y[:, :2]
        np.testing.assert_allclose(slopes, wanted[row], atol=1e-8)
    assert solver.batch is not None
    found = solver.batch.solve(x, None, np.zeros(len(x), dtype=bool))
    moved, sound, _ = solver.batch.tangents.solve(x, found.point, np.eye(3)[:, :2])
    assert sound.all()
    np.testing.assert_allclose(moved, wanted, atol=1e-8)


def test_an_output_that_the_nominal_input_pins_is_free_elsewhere() -> None:
    """A solar plant, whose nominal hour is at night."""

    def problem(**how: Any) -> fb.Problem:
        return fb.Problem(
            lambda x, y: (y[0] - 2.0) ** 2 + (y[1] - 0.3) ** 2,
            [0.0, -1.0],
            lambda x: jnp.stack([x[0], jnp.ones(())]),
            nominal=[0.0],
            **how,
        )

    x = np.array([[0.0], [0.5], [1.0]])
    wanted = np.column_stack([x[:, 0], np.full(3, 0.3)])
    declared = problem(box=([0.0], [1.0]))
    drawn = problem(sampler=lambda generator: generator.uniform(0.0, 1.0, 1))
    for each in (declared, drawn, problem(box=([0.0], [0.0]), widest=([0.0, -1.0], [1.0, 1.0]))):
        np.testing.assert_allclose(fb.label(each, x, jobs=1).y, wanted, atol=1e-6)
    data = fb.label(declared, count=40, seed=0, jobs=1)
    proxy = fb.fit(declared, data, budget=300)
    for answer in ("conditioned", "solved", "auto"):
        np.testing.assert_allclose(proxy.predict(x, answer).y, wanted, atol=1e-6)
    np.testing.assert_allclose(proxy.sensitivity(x[1:2])[0, :, 0], [1.0, 0.0], atol=1e-6)
    # Nobody could know: the row says so instead of being wrong.
    hidden = problem(box=([0.0], [0.0]))
    assert fb.label(hidden, x, jobs=1).outcomes() == {"OK": 1, "OPENED": 2}
    solver = Solver.build(hidden)
    assert solver.batch is not None
    assert solver.batch.solve(x, None, np.zeros(3, dtype=bool)).converged.tolist() == [True, False, False]


def test_bounds_that_cross_have_no_feasible_point() -> None:
    problem = fb.Problem(
        lambda x, y: jnp.sum((y - 2.0) ** 2),
        [0.2, -1.0],
        lambda x: jnp.stack([x[0], jnp.ones(())]),
        box=([0.3], [1.0]),
        nominal=[0.5],
    )
    x = np.array([[0.1], [0.5], [1.0]])
    assert fb.label(problem, x, jobs=1).outcomes() == {"OK": 2, "INFEASIBLE": 1}
    proxy = fb.fit(problem, fb.label(problem, count=40, seed=0, jobs=1), "ridge", budget=300)
    for answer in ("conditioned", "solved", "auto"):
        found = proxy.predict(x, answer)
        assert found.outcomes() == {"OK": 2, "INFEASIBLE": 1}
        assert np.isnan(found.y[0]).all()


def test_a_problem_in_which_nothing_can_vary_is_refused() -> None:
    problem = fb.Problem(lambda x, y: jnp.sum(y * x), [1.0], [1.0], box=([0.0], [1.0]))
    with pytest.raises(fb.FeasiblyError, match="nothing to decide"):
        fb.label(problem, count=2, jobs=1)


def test_the_twin_with_fixed_bounds_has_the_same_answers() -> None:
    problem, x = moving(), rows(8)
    fixed = fix_bounds(problem)
    assert fixed.limits.functions is None
    assert fixed.fingerprint == problem.fingerprint
    assert fixed.n_inequalities == 2  # both bounds of y0, which move; y2 is held inside the functions
    found = np.array([one.y for one in solve(fixed, x)])
    np.testing.assert_allclose(problem.pin(x, found), optimum(x), atol=1e-6)
    plain = fb.nonconvex(20, 10, 20)
    assert plain.with_fixed_bounds is plain


def test_answers_keep_to_the_rows_own_bounds() -> None:
    problem, x = moving(), rows(60)
    data = fb.label(problem, x, jobs=1)
    proxy = fb.fit(problem, data, "ridge", labels=40, budget=900)
    found = proxy.predict(x[40:], "auto")
    assert found.ok.all()
    np.testing.assert_allclose(found.y, optimum(x[40:]), atol=1e-4)
    assert (proxy.predict(x[40:], "mean").y[x[40:, 2] == 0.0, 2] == 0.0).all()


@pytest.mark.parametrize(
    ("upper", "said"),
    [
        (lambda x: x[0], "upper: must be a vector"),
        (lambda x: jnp.zeros(5), "lower has 2 entries and upper has 5"),
        (lambda x: undefined, "upper: fails when called: NameError"),  # type: ignore[name-defined]  # noqa: F821
    ],
)
def test_bounds_that_cannot_be(upper: Any, said: str) -> None:
    with pytest.raises(fb.FeasiblyError, match=said):
        fb.Problem(lambda x, y: jnp.sum(y * y), [0.0, 0.0], upper, box=([0.0], [1.0]))


def test_inputs_must_cover_x() -> None:
    with pytest.raises(fb.FeasiblyError, match="inputs: they cover 1 of 2 inputs"):
        fb.Problem(
            lambda x, y: jnp.sum(y * y), [0.0], [1.0], box=([0.0, 0.0], [1.0, 1.0]), inputs={"a": slice(0, 1)}
        )
