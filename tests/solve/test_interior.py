"""How the interior-point method goes about problems of several sizes."""

from dataclasses import replace

import casadi
import jax.numpy as jnp
import numpy as np
import pytest

import feasibly as fb
from feasibly.problem.sampling import sample
from feasibly.solve import solve
from feasibly.solve.lanes.attempts import CORRECTED, AttemptPlan
from feasibly.solve.nlp import Solver
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


@pytest.mark.parametrize("at_once", [True, False])
def test_constraints_that_hold_nearly_do_not_change_the_cost_where_multipliers_are_large(at_once):
    weight = 1e-5  # its multiplier is 1e5: a residual of 1e-8 costs 1e-3
    problem = fb.Problem(
        lambda x, y: (y[0] - x[0]) ** 2 + y[1], np.array([-10.0, -100.0]), np.array([10.0, 100.0]),
        equality=lambda x, y: weight * (y[1:] - jnp.square(y[:1]) ** 2 - 1.0),
        box=(np.array([-3.0]), np.array([3.0])), name="steep",
    )  # fmt: skip
    x = np.linspace(-3.0, 3.0, 101)[:, None]
    found = (
        fb.label(problem, x, jobs=1).objective if at_once else [one.objective for one in solve(problem, x)]
    )
    # The minimum of (t - x)^2 + t^4 + 1: where 4 t^3 + 2 (t - x) = 0, a cubic with one real root.
    roots = np.array([np.roots([4.0, 0.0, 2.0, -2.0 * value[0]]) for value in x])
    t = roots.real[np.arange(len(x)), np.abs(roots.imag).argmin(axis=1)]
    assert np.asarray(found) == pytest.approx((t - x[:, 0]) ** 2 + t**4 + 1.0, rel=1e-8)


@pytest.mark.parametrize("name", ["grid6", "nonconvex"])
def test_an_iteration_is_mehrotras_on_the_whole_system(name):
    """(6) and its right-hand sides, against Newton's equations with nothing eliminated and no code in common."""
    problem = make(name)
    solver = Solver.build(problem, settings=replace(DEFAULT, start_barriers=(3e-3, 0.3)))
    model, interior, x = solver.model, solver.interior, sample(problem, 1, seed=5)[0]
    at, settings = interior.wide_points[0], replace(DEFAULT.fast, regularisation=0.0)
    y, nu, s, z = at.y, at.nu, at.s, at.z
    hessian, jacobian, normals, r, g, c = _derivatives(model, x, at)
    n, ne, m = len(y), len(nu), len(s)

    def direction(target):
        whole = np.block([
            [hessian, jacobian.T, normals.T, np.zeros((n, m))],
            [jacobian, np.zeros((ne, ne + 2 * m))],
            [normals, np.zeros((m, ne + m)), np.eye(m)],
            [np.zeros((m, n + ne)), np.diag(s), np.diag(z)],
        ])  # fmt: skip
        found = np.linalg.solve(whole, np.concatenate([-r, -g, -(c + s), target - s * z]))
        return np.split(found, [n, n + ne, n + ne + m])

    def step(value, change, fraction):
        return min(1.0, fraction / max((-change / value).max(), 1e-30))

    mu, barrier = s @ z / m, 1e-9
    _, _, dz, ds = direction(np.zeros(m))
    primal, dual = step(s, ds, 1.0), step(z, dz, 1.0)
    ahead = (s + primal * ds) @ (z + dual * dz) / m
    dy, dnu, dz, ds_ = direction(max(min(1.0, (ahead / mu) ** 3) * mu, barrier) - ds * dz)
    fraction = max(DEFAULT.boundary_fraction, 1.0 - mu)
    primal, dual = step(s, ds_, fraction), step(z, dz, fraction)
    found = interior.iteration.step(at, x, barrier, settings).following
    for mine, theirs in zip(
        (y + primal * dy, nu + dual * dnu, s + primal * ds_, z + dual * dz),
        (found.y, found.nu, found.s, found.z),
        strict=True,
    ):
        assert theirs == pytest.approx(mine, rel=1e-5, abs=1e-6)


def _derivatives(model, x, at):
    """By CasADi from the values alone, in scaled units: Hessian, Jacobians, gradient of the Lagrangian, `g` and `c`."""
    ne, free = model.n_equalities, model.free
    lower, upper = model.bounds_at(x)
    every = casadi.SX.sym("y", len(model.lower))
    cost, rows = model.nlp(every, x)
    scale = np.concatenate([model.equality_scale, model.inequality_scale])
    rows = casadi.DM(scale) * rows if len(scale) else rows
    below, above = np.flatnonzero(np.isfinite(lower[free])), np.flatnonzero(np.isfinite(upper[free]))
    limits = casadi.vertcat(
        rows[ne:], lower[free][below] - every[free.tolist()][below.tolist()],
        every[free.tolist()][above.tolist()] - upper[free][above],
    )  # fmt: skip
    lagrangian = model.objective_scale * cost + casadi.dot(at.nu, rows[:ne]) + casadi.dot(at.z, limits)
    hessian, gradient = casadi.hessian(lagrangian, every)
    parts = (
        hessian,
        casadi.jacobian(rows[:ne], every),
        casadi.jacobian(limits, every),
        gradient,
        rows[:ne],
        limits,
    )
    full = np.where(np.isfinite(model.lower), model.lower, 0.0)
    full[free] = at.y
    found = [np.array(part) for part in casadi.Function("derivatives", [every], parts)(full)]
    return (
        found[0][np.ix_(free, free)], found[1][:, free], found[2][:, free],
        found[3].ravel()[free], found[4].ravel(), found[5].ravel(),
    )  # fmt: skip


def test_a_row_that_shifts_have_led_to_a_minimum_is_solved_from_elsewhere_too():
    """Two wells; the nominal solution is in the left one, and where the input is negative the right one is deeper."""
    problem = fb.Problem(
        lambda x, y: jnp.sum((y**2 - 1.0) ** 2) + 2.0 * x[0] * y[0],
        [-2.0],
        [2.0],
        box=([-0.6], [1.0]),
        nominal=[1.0],
        start=[0.2],
    )
    # A wide point that is still in the nominal well, so that it leads there whatever the input.
    solver = Solver.build(problem, settings=replace(DEFAULT, start_barriers=(3e-3, 3e-2, 30.0)))
    x, interior = np.linspace(-0.6, -0.2, 9)[:, None], solver.interior
    alone = [interior._attempt(row, interior.wide_points[0], DEFAULT.safeguarded, True) for row in x]
    assert all(end.iterate.y[0] < -0.5 for end in alone)
    both = [interior.solve_inertia_corrected(row) for row in x]
    gain = [
        interior.cost(row, one.iterate) - interior.cost(row, two.iterate)
        for row, one, two in zip(x, alone, both, strict=True)
    ]
    assert min(gain) > -1e-8
    assert max(gain) > 0.1
    nothing = np.zeros(len(x), dtype=bool)
    lanes = solver.batch
    lanes.plan = AttemptPlan(near=CORRECTED, following={})
    assert (lanes.solve(x, None, nothing).point.y < -0.5).all()
    lanes.plan = AttemptPlan(near=CORRECTED)
    found = lanes.solve(x, None, nothing)
    assert found.converged.all()
    assert (found.point.y > 0.5).all()
