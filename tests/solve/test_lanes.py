"""Many rows at once, against the same method for one row at a time and against IPOPT."""

import sys
from dataclasses import replace

import casadi
import jax.numpy as jnp
import numpy as np
import pytest

from feasibly.answer.rowwise import RowSolver
from feasibly.bound.lagrange import proves_infeasible
from feasibly.problem.core import Problem
from feasibly.problem.families import load_problem
from feasibly.problem.sampling import sample
from feasibly.solve.lanes.attempts import (
    ELASTIC,
    FOLLOWED,
    FOLLOWED_PENALISED,
    FOLLOWING,
    LARGE_FOLLOWING,
    PENALISED,
    PLAN,
)
from feasibly.solve.lanes.formulas import INFO
from feasibly.solve.lanes.iteration import LaneIteration, LanePrograms
from feasibly.solve.nlp import Solver
from feasibly.solve.optimality import OptimalityTest
from feasibly.solve.settings import DEFAULT
from feasibly.solve.status import AttemptStatus
from tests.grids import GRID6
from tests.problems import CASES, make


@pytest.mark.parametrize("step", [DEFAULT.fast, DEFAULT.safeguarded])
@pytest.mark.parametrize("name", ["grid6", "toy", "nonconvex", "unconstrained", "degenerate"])
def test_an_iteration_is_that_of_one_row_at_a_time(name, step):
    solver = Solver.build(make(name), settings=replace(DEFAULT, start_barriers=(3e-3, 0.3)))
    alone, lanes = solver.interior.iteration, LaneIteration(LanePrograms(solver.model, solver.settings))
    x = sample(make(name), lanes.width, seed=1)
    central = solver.interior.wide_points[0]
    plain = np.concatenate([central.y, central.nu, central.s, central.z])
    lanes.iterate[:] = 0.0
    lanes.iterate[: len(plain)] = plain[:, None]
    lanes.x[:] = x.T
    lanes.parameters[:] = np.array([*step.parameters(1e-9), 0.0, 1.0, 0.0])[:, None]
    iterates = [central] * lanes.width
    for _ in range(3):
        lanes()
        for lane, iterate in enumerate(iterates):
            one = alone.step(iterate, x[lane], 1e-9, step)
            following = np.concatenate([one.following.y, one.following.nu, one.following.s, one.following.z])
            np.testing.assert_allclose(lanes.info[: len(one.info), lane], one.info, rtol=1e-4, atol=1e-7)
            np.testing.assert_allclose(lanes.following[: len(plain), lane], following, rtol=1e-5, atol=1e-6)
            assert lanes.inertia_is_right()[lane] == alone.inertia_is_right(one.matrix)
            iterates[lane] = one.following
        lanes.iterate[:] = lanes.following


@pytest.mark.parametrize("name", sorted(CASES))
def test_rows_end_where_they_do_one_by_one(name):
    problem = make(name)
    rows = RowSolver(problem)
    if rows.batch is None:
        assert not rows.solver.nominal.outcome.ok, "lanes are for every problem that has a nominal solution"
        return
    x = sample(problem, 2 * rows.batch.iteration.width + 3, seed=4)
    found = rows.solve(x, None, thorough=True, at_once=True)
    alone = rows.solve(x, None, thorough=True, at_once=False)
    assert found.outcome == alone.outcome
    ok = found.ok
    assert (found.seconds > 0.0).all()
    cost, other = (problem.objectives(x[ok], part.point.y[ok]) for part in (found, alone))
    np.testing.assert_allclose(cost, other, rtol=1e-8, atol=1e-9)
    if CASES[name].unique:
        np.testing.assert_allclose(found.point.y[ok], alone.point.y[ok], atol=1e-5)
        for part, one in zip(found.point.parts[1:], alone.point.parts[1:], strict=True):
            scale = np.abs(one[ok]).max(initial=1.0)
            np.testing.assert_allclose(part[ok] / scale, one[ok] / scale, atol=1e-4)


@pytest.mark.parametrize("name", ["grid6", "toy", "nonconvex", "half-infeasible"])
def test_a_row_alone_goes_the_way_it_goes_among_others(name):
    problem = make(name)
    batch = Solver.build(problem).batch
    assert batch is not None
    x = sample(problem, 5, seed=4)
    among = batch.solve(x, None, np.zeros(len(x), dtype=bool))
    for row in range(len(x)):
        alone = batch.solve(x[[row]], None, np.zeros(1, dtype=bool))
        assert (alone.status[0], alone.iterations[0]) == (among.status[row], among.iterations[row])
        np.testing.assert_allclose(alone.point.y[0], among.point.y[row], rtol=1e-9, atol=1e-9)


def test_rows_without_a_solution_are_told_from_those_with_one():
    problem = make("half-infeasible")
    batch = Solver.build(problem).batch
    assert batch is not None
    x = np.linspace(1.0, 3.0, 41)[:, None]
    found = batch.solve(x, None, np.zeros(len(x), dtype=bool))
    np.testing.assert_array_equal(found.converged, x[:, 0] <= 2.0)
    np.testing.assert_array_equal(found.infeasible, x[:, 0] > 2.0)


@pytest.mark.parametrize("name", ["grid6", "nonconvex", "half-infeasible", "degenerate"])
def test_elastic_lanes_end_where_ipopt_ends_on_the_same_problem(name):
    problem = make(name)
    solver = Solver.build(problem)
    batch, model = solver.batch, solver.model
    iteration = batch.iteration
    rows = sample(problem, iteration.width, seed=8)
    if name == "half-infeasible":
        rows[0] = 2.75
    for lane, x in enumerate(rows):
        iteration.iterate[:, lane] = batch.start(ELASTIC, x, None)
        iteration.x[:, lane] = x
        own = DEFAULT.elastic.parameters(1e-9), [1.0, batch.weight(ELASTIC), 0.0]
        iteration.parameters[:, lane] = np.concatenate(own)
    for _ in range(80):
        iteration()
        iteration.iterate[:] = iteration.following
    assert iteration.info[:3].max() < 1e-6
    for lane in (0, 1, 2):
        cost, broken = _elastic_optimum(model, rows[lane], batch.weight(ELASTIC))
        y = np.zeros(len(model.lower))
        y[:] = model.lower
        y[model.free] = iteration.iterate[iteration.parts["y"], lane]
        amounts = iteration.info[INFO.index("elastic sum"), lane]
        found = batch.weight(ELASTIC) * model.objective_scale * float(model.nlp(y, rows[lane])[0])
        assert amounts == pytest.approx(broken, abs=1e-5)
        assert found + amounts == pytest.approx(cost, rel=1e-5, abs=1e-5)


def _elastic_optimum(model, x, weight):
    """The elastic problem written out with all its variables and solved by IPOPT: cost, and what is broken."""
    n, ne, ni = len(model.lower), model.n_equalities, model.n_inequalities
    y, a, b, t = (casadi.SX.sym(name, size) for name, size in zip("yabt", (n, ne, ne, ni), strict=True))
    cost, rows = model.nlp(y, x)
    rows = casadi.DM(model.scale[1:]) * rows
    total = casadi.sum1(casadi.vertcat(a, b, t))
    every = casadi.vertcat(y, a, b, t)
    held = casadi.vertcat(rows[:ne, 0] - a + b, rows[ne:, 0] - t)
    objective = weight * model.objective_scale * cost + total
    quiet = {
        "print_time": False,
        "ipopt": {"print_level": 0, "sb": "yes", "tol": 1e-9, "bound_relax_factor": 0.0},
    }
    solver = casadi.nlpsol("elastic", "ipopt", {"x": every, "f": objective, "g": held}, quiet)
    found = solver(
        x0=np.concatenate([model.start, np.ones(2 * ne + ni)]),
        lbx=np.concatenate([model.lower, np.zeros(2 * ne + ni)]),
        ubx=np.concatenate([model.upper, np.full(2 * ne + ni, np.inf)]),
        lbg=np.concatenate([np.zeros(ne), np.full(ni, -np.inf)]),
        ubg=0.0,
    )
    return float(found["f"]), float(np.asarray(found["x"])[n:].sum())


@pytest.mark.parametrize("name", ["half-infeasible", "grid6", "nonconvex"])
def test_a_row_ends_at_the_same_digits_whoever_is_beside_it(name):
    problem = make(name)
    batch = Solver.build(problem).batch
    x = sample(problem, 40, seed=9)
    if name == "grid6":
        x[::3, :3] *= 6.0  # far more than the grid can serve
    together = batch.solve(x, None, np.zeros(len(x), dtype=bool))
    assert name == "nonconvex" or together.infeasible.any()
    for row in (0, 1, 2, 17, 39):
        alone = batch.solve(x[row : row + 1], None, np.zeros(1, dtype=bool))
        assert alone.infeasible[0] == together.infeasible[row]
        for part, other in zip(alone.point.parts, together.point.parts, strict=True):
            np.testing.assert_array_equal(part[0], other[row])


def test_a_second_call_ends_at_the_same_digits():
    batch = Solver.build(make("half-infeasible")).batch
    x = np.linspace(1.0, 3.0, 41)[:, None]
    first, second = (batch.solve(x, None, np.zeros(len(x), dtype=bool)) for _ in range(2))
    np.testing.assert_array_equal(first.iterations, second.iterations)
    for part, other in zip(first.point.parts, second.point.parts, strict=True):
        np.testing.assert_array_equal(part, other)


def test_many_rows_are_taken_a_part_at_a_time():
    problem = make("toy")
    batch = Solver.build(problem).batch
    x = sample(problem, 100, seed=1)
    whole = batch.solve(x, None, np.zeros(len(x), dtype=bool))
    batch.most_bytes = 1
    parts = batch.solve(x, None, np.zeros(len(x), dtype=bool))
    assert parts.converged.all()
    np.testing.assert_array_equal(parts.point.y, whole.point.y)


def test_a_saddle_of_what_is_broken_is_no_proof():
    """y0 squared is to be at least x: from y0 = 0 nothing says which way to go, and both ways lead to a solution."""
    problem = Problem(
        lambda x, y: jnp.sum(y * y),
        [-2.0, -2.0],
        [2.0, 2.0],
        inequality=lambda x, y: jnp.array([x[0] - y[0] ** 2]),
        box=([-1.0], [1.0]),
        name="saddle",
    )
    batch = Solver.build(problem).batch
    found = batch.solve(np.array([[-0.5], [0.3], [0.6]]), None, np.zeros(3, dtype=bool))
    assert not found.infeasible.any()


@pytest.mark.parametrize("table", [FOLLOWING, LARGE_FOLLOWING])
def test_what_follows_what_comes_to_an_end(table):
    for attempt in {attempt for attempt, _ in table}:
        seen, edge = {attempt}, {attempt}
        while edge:
            edge = {later for (one, _), later in table.items() if one in edge}
            assert attempt not in edge
            seen |= edge


def test_starts_near_the_answer_take_fewer_iterations():
    problem = make("grid6")
    rows = RowSolver(problem)
    x = sample(problem, 16, seed=2)
    cold = rows.solve(x, None, thorough=False, at_once=True)
    warm = rows.solve(x, cold.point, thorough=False, at_once=True)
    assert warm.ok.all()
    assert warm.iterations.mean() < cold.iterations.mean()
    np.testing.assert_allclose(
        problem.objectives(x, warm.point.y), problem.objectives(x, cold.point.y), rtol=1e-8
    )


def test_elements_out_of_service_and_bounds_that_move_with_the_input(tmp_path):
    problem = load_problem(
        GRID6.write(tmp_path / "grid.json"), vary=("load", "branch", "generator", "rating")
    )
    rows = RowSolver(problem)
    assert rows.batch is not None
    x = sample(problem, 24, seed=6)
    x = x[[not problem.refused(row[None]) for row in x]]
    found = rows.solve(x, None, thorough=True, at_once=True)
    alone = rows.solve(x, None, thorough=True, at_once=False)
    assert found.outcome == alone.outcome
    ok = found.ok
    assert ok.sum() > 5
    np.testing.assert_allclose(
        problem.objectives(x[ok], found.point.y[ok]), problem.objectives(x[ok], alone.point.y[ok]), rtol=1e-7
    )
    out = x[:, problem.inputs["generator"]] == 0.0
    assert (found.point.y[:, problem.blocks["pg"]][out & ok[:, None]] == 0.0).all()


def test_rows_that_are_not_begun_in_time_say_so():
    problem = make("grid6")
    rows = RowSolver(problem)
    x = sample(problem, 30, seed=2)
    asked = iter([True] * 5)
    found = rows.solve(x, None, thorough=False, go_on=lambda: next(asked, False), at_once=True)
    assert found.outcome.count("OK") == 5
    assert found.outcome.count("TIME_LIMIT") == 25
    assert np.isnan(found.point.y[5:]).all()


def test_no_rows_are_no_work():
    rows = RowSolver(make("toy"))
    assert rows.solve(np.zeros((0, 2)), None, thorough=True).outcome == ()


def test_few_rows_do_not_make_ready_for_many_where_that_takes_long():
    problem = make("grid6")
    rows = RowSolver(problem, replace(DEFAULT, soon_seconds=0.0, ready_seconds=1.0))
    rows.solve(sample(problem, 2, seed=0), None, thorough=False)
    assert rows.ready_seconds > 0.0
    rows = RowSolver(problem, replace(DEFAULT, soon_seconds=0.0, ready_seconds=1e-9))
    rows.solve(sample(problem, 400, seed=0), None, thorough=False)
    assert rows.ready_seconds == 0.0
    assert rows.batch is not None


def test_without_what_compiles_them_rows_are_solved_one_by_one(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("feasibly.solve.lanes")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "llvmlite", None)
    problem = make("toy")
    rows = RowSolver(problem)
    assert rows.batch is None
    assert rows.solve(sample(problem, 5, seed=0), None, thorough=False, at_once=True).ok.all()


def test_operations_without_a_vector_form_leave_the_others_be():
    problem = Problem(
        lambda x, y: jnp.sum((y - x) ** 2) + jnp.sum(jnp.arctan2(y, 2.0 + x)),
        [-1.0, -1.0],
        [1.0, 1.0],
        box=([-1.0, -1.0], [1.0, 1.0]),
        name="bent",
    )
    rows = RowSolver(problem)
    x = sample(problem, 9, seed=0)
    found, alone = (rows.solve(x, None, thorough=True, at_once=way) for way in (True, False))
    np.testing.assert_allclose(found.point.y, alone.point.y, atol=1e-6)


def _with_a_steep_edge():
    """`min -60 y0` where `y0^2 <= x0`: the multiplier is `30 / sqrt(x0)`, ten at the nominal input."""
    return Problem(
        lambda x, y: -60.0 * y[0] + 0.5 * y[1] ** 2,
        [0.0, -1.0],
        [5.0, 1.0],
        inequality=lambda x, y: jnp.array([y[0] ** 2 - x[0]]),
        box=([0.0], [18.0]),
        name="edge",
    )


def _plan(*, without=(), **changes):
    """All else has stalled: rows begin elastic, and some attempts are never made."""
    table = {**FOLLOWING, **changes.pop("following", {})}
    return replace(
        PLAN, near=ELASTIC, following={key: later for key, later in table.items() if later not in without}
    )


def test_rows_that_violate_constraints_for_their_cost_end_where_the_penalty_is_higher():
    batch = Solver.build(_with_a_steep_edge()).batch
    assert batch is not None
    x, nothing = np.array([[1e-6], [1e-5]]), np.zeros(2, dtype=bool)
    batch.plan = _plan(without={PENALISED})
    assert not batch.solve(x, None, nothing).converged.any()
    batch.plan = _plan()
    found = batch.solve(x, None, nothing)
    assert found.converged.all()
    assert not found.infeasible.any()
    np.testing.assert_allclose(found.point.y[:, 0], np.sqrt(x[:, 0]), rtol=1e-4)


def test_a_row_that_is_close_has_more_iterations():
    problem = make("grid6")
    x, nothing = sample(problem, 6, seed=3), np.zeros(6, dtype=bool)
    usual = Solver.build(problem).batch.solve(x, None, nothing)
    assert usual.converged.all()
    few = int(usual.iterations.max()) - 1
    assert few < usual.iterations.max() <= 2 * few
    for close, same in ((np.inf, True), (0.0, False)):
        other = replace(DEFAULT, most_iterations=few, extend_below=close)
        found = Solver.build(problem, settings=other).batch.solve(x, None, nothing)
        assert (found.iterations == usual.iterations).all() == same


def test_what_an_elastic_iteration_left_in_a_lane_is_gone_with_its_row():
    problem = make("grid6")
    batch = Solver.build(problem).batch
    x, nothing = sample(problem, 3, seed=3), np.zeros(3, dtype=bool)
    usual = batch.solve(x, None, nothing)
    elastic = slice(batch.iteration.parts["a"].start, batch.iteration.parts["t"].stop)
    for part in (batch.iteration.iterate, batch.iteration.following):
        part[elastic] = np.nan
    again = batch.solve(x, None, nothing)
    np.testing.assert_array_equal(usual.point.y, again.point.y)
    assert not np.isnan(batch.iteration.iterate[elastic, :3]).any()


ELASTIC_TO_THE_END = _plan(
    following={(ELASTIC, AttemptStatus.CONVERGED): FOLLOWED},
    without={FOLLOWING[FOLLOWED, end] for end in (AttemptStatus.INFEASIBLE_POINT, AttemptStatus.STALLED)},
)
"""Rows begin elastic and are followed to their optimum like that, and nothing is tried after it."""


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.feasible and case.unique])
def test_an_elastic_row_that_is_followed_ends_where_others_do(name):
    problem = make(name)
    solver = Solver.build(problem)
    solver.batch.plan = ELASTIC_TO_THE_END
    x = sample(problem, 11, seed=4)
    found = solver.batch.solve(x, None, np.zeros(len(x), dtype=bool))
    ok = found.converged
    assert ok.sum() > len(x) // 2
    alone = np.array([solver.solve(row).objective for row in x])
    np.testing.assert_allclose(problem.objectives(x[ok], found.point.y[ok]), alone[ok], rtol=1e-7, atol=1e-8)
    assert np.max(np.maximum(*problem.worst(x[ok], problem.pin(x[ok], found.point.y[ok]))[1:])) < 1e-6


@pytest.mark.parametrize("attempt", [FOLLOWED, FOLLOWED_PENALISED], ids=["usual", "penalised"])
def test_what_rounding_may_leave_of_a_followed_row_is_measured_in_the_objectives_units(attempt):
    """An elastic problem's errors are those of the problem itself times the weight of its objective."""
    solver = Solver.build(make("grid6"))
    batch, least = solver.batch, solver.interior.tolerance
    limits, weight = batch.rules(attempt).limits, batch.weight(attempt)
    assert weight < 0.1
    assert limits.rounded <= max(1.01 * solver.settings.rounding_error * weight, limits.stationarity)
    batch.plan = _plan(
        following={(ELASTIC, AttemptStatus.CONVERGED): attempt},
        without={later for (before, _), later in FOLLOWING.items() if before is attempt},
    )
    x = sample(make("grid6"), 9, seed=4)
    found = batch.solve(x, None, np.zeros(len(x), dtype=bool))
    test = OptimalityTest(solver.model, solver.settings)
    for row in np.flatnonzero(found.converged):
        stationarity, feasibility, complementarity = test.errors(x[row], found.point.take(row))
        assert max(feasibility, complementarity) < 100 * least
        assert stationarity < 2 * solver.settings.rounding_error


def test_an_elastic_row_that_is_followed_to_a_saddle_has_not_converged():
    """y0 = 0 is where the nominal row is least, and where this one is largest between its two minima."""
    problem = Problem(
        lambda x, y: (y[0] ** 2 - x[0]) ** 2 + (y[1] - 1.0) ** 2,
        [-2.0, -2.0],
        [2.0, 2.0],
        inequality=lambda x, y: jnp.array([y[1] - 0.5]),
        box=([-1.0], [0.6]),
    )
    batch = Solver.build(problem).batch
    batch.plan = ELASTIC_TO_THE_END
    found = batch.solve(np.array([[0.5]]), None, np.zeros(1, dtype=bool))
    assert not found.converged[0] or abs(abs(found.point.y[0, 0]) - np.sqrt(0.5)) < 1e-3


def test_rows_with_a_solution_are_not_called_infeasible_where_searches_from_both_sides_are():
    """Of these three the violation has local minima near the nominal solution and near the first guess."""
    problem = load_problem("pglib:case179_goc__api")
    x = sample(problem, 388, seed=2026, spread=0.2)[[186, 211, 387]]
    solver = Solver.build(problem)
    found = solver.batch.solve(x, None, np.zeros(len(x), dtype=bool))
    assert found.converged.all()
    assert np.max(np.maximum(*problem.worst(x, found.point.y)[1:])) < 1e-6
    alone = solver.solve(x[1], thorough=True)  # IPOPT finds nothing
    assert alone.outcome.ok
    cost = problem.worst(x, found.point.y)[0]
    assert abs(alone.objective - cost[1]) < 1e-7 * cost[1]


def test_where_constraints_are_violated_least_multipliers_prove_that_nothing_is_feasible():
    problem = make("half-infeasible")
    low, high = (float(end[0]) for end in problem.box())
    x = np.linspace(low, high, 24)[:, None]
    solver = Solver.build(problem)
    found = solver.batch.solve(x, None, np.zeros(len(x), dtype=bool))
    rows, least = solver.batch.least_violating(x, found)
    assert 0 < len(rows) < len(x)
    assert np.isin(np.flatnonzero(found.infeasible), rows).all()
    assert proves_infeasible(problem, x[rows], least)[found.infeasible[rows]].all()
    few = solver.batch.solve(x[found.converged], None, np.zeros(found.converged.sum(), dtype=bool))
    assert not len(solver.batch.least_violating(x[found.converged], few)[0])


def test_an_infeasible_point_from_one_side_is_no_proof():
    """y^3 - 3 y = x: from the nominal solution it stays where the curve turns, from the guess it does not."""
    problem = Problem(
        lambda x, y: jnp.sum(y * y),
        [-4.0, -4.0],
        [4.0, 4.0],
        equality=lambda x, y: jnp.array([y[0] ** 3 - 3.0 * y[0] - x[0], y[1] - 0.1 * x[0]]),
        box=([-4.0], [4.0]),
        nominal=np.array([-3.0]),
        start=np.array([1.5, 0.3]),
        name="turning",
    )
    solver = Solver.build(problem, settings=replace(DEFAULT, large_from=1))
    x = np.array([[-3.0], [2.1], [2.2]])
    found = solver.batch.solve(x, None, np.zeros(3, dtype=bool))
    assert not found.infeasible.any()
    assert all(solver.solve(row).outcome.ok for row in x)
