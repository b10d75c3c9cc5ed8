"""The solver on the table of small problems: optimal, honest about failure, the same everywhere."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import get_args, get_type_hints

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import feasibly.solve
from feasibly._codec import to_bytes
from feasibly.precision import double, twin
from feasibly.problem.core import Problem
from feasibly.problem.errors import FeasiblyError
from feasibly.problem.families import load_problem
from feasibly.problem.point import Point
from feasibly.problem.sampling import sample
from feasibly.solve import Outcome, Solution, Solver, SolverOptions, solve
from feasibly.solve.ipopt import Ipopt
from feasibly.solve.model import build_model
from feasibly.solve.optimality import OptimalityTest
from feasibly.solve.ranges import Ranges
from feasibly.solve.settings import DEFAULT
from tests.problems import CASES, FEASIBLE, make

WAYS = get_args(get_type_hints(SolverOptions)["warm"])
_SOLVERS: dict[tuple[str, str], Solver] = {}


def solver_for(name: str, warm: str = "interior") -> Solver:
    key = name, warm
    if key not in _SOLVERS:
        _SOLVERS[key] = Solver.build(make(name), SolverOptions(warm=warm))  # type: ignore[arg-type]
    return _SOLVERS[key]


@functools.cache
def lagrangian_slope(name: str) -> Callable[..., jax.Array]:
    """The gradient in `y` of the Lagrangian that `Duals` documents, by JAX."""
    problem = make(name)
    low, high = np.isfinite(problem.lower), np.isfinite(problem.upper)

    def lagrangian(y, x, equality, inequality, lower, upper):  # type: ignore[no-untyped-def]
        total = twin(problem.objective)(x, y)
        if problem.equality is not None:
            total += jnp.dot(equality, twin(problem.equality)(x, y))
        if problem.inequality is not None:
            total += jnp.dot(inequality, twin(problem.inequality)(x, y))
        total += jnp.sum((lower * (problem.lower - y))[low])
        return total + jnp.sum((upper * (y - problem.upper))[high])

    return jax.jit(jax.grad(lagrangian))


def stationarity(name: str, x: np.ndarray, solution: Solution) -> float:
    with double():
        y, *duals = solution.point.parts
        return float(jnp.abs(lagrangian_slope(name)(y, x, *duals)).max())


@pytest.mark.parametrize("warm", WAYS)
@pytest.mark.parametrize("name", FEASIBLE)
def test_solutions_satisfy_the_optimality_conditions(name: str, warm: str) -> None:
    problem, solver = make(name), solver_for(name, warm)
    for x in sample(problem, 6, seed=1):
        solution = solver.solve(x)
        assert solution.outcome is Outcome.OK
        rows, at = x[None], solution.y[None]
        assert np.abs(problem.equalities(rows, at)).max(initial=0.0) <= 1e-6
        assert problem.inequalities(rows, at).max(initial=0.0) <= 1e-6
        assert problem.bound_violations(at).max(initial=0.0) == 0.0
        assert solution.objective == pytest.approx(problem.objectives(rows, at)[0], rel=1e-12, abs=1e-12)
        unit = max(1.0, *(np.abs(part).max(initial=0.0) for part in solution.point.parts[1:]))
        assert stationarity(name, x, solution) <= 1e-6 * unit
        assert min(part.min(initial=0.0) for part in solution.point.parts[2:]) >= 0.0
        gap = solution.duals.inequality @ problem.inequalities(rows, at)[0]
        assert abs(gap) <= 1e-5 * unit


@pytest.mark.parametrize("warm", WAYS)
@pytest.mark.parametrize("name", [n for n in FEASIBLE if CASES[n].optimum is not None])
def test_closed_forms(name: str, warm: str) -> None:
    x = sample(make(name), 8, seed=2)
    optimum = CASES[name].optimum
    assert optimum is not None
    found = np.stack([solver_for(name, warm).solve(row).y for row in x])
    np.testing.assert_allclose(found, optimum(x), atol=1e-6)


@pytest.mark.parametrize("name", FEASIBLE)
def test_interior_method_agrees_with_cold_ipopt(name: str) -> None:
    for x in sample(make(name), 6, seed=3):
        warm, cold = (solver_for(name, way).solve(x) for way in ("interior", "none"))
        assert warm.objective == pytest.approx(cold.objective, rel=1e-6, abs=1e-6)
        if CASES[name].unique:
            np.testing.assert_allclose(warm.y, cold.y, atol=2e-4)


@pytest.mark.parametrize("case", ["case14_ieee", "case30_ieee", "case57_ieee", "case118_ieee"])
def test_published_optima(case: str) -> None:
    published = {
        "case14_ieee": 2.1781e3, "case30_ieee": 8.2085e3, "case57_ieee": 3.7589e4, "case118_ieee": 9.7214e4,
    }  # fmt: skip
    problem = load_problem(f"pglib:{case}")
    solver = Solver.build(problem)
    assert solver.nominal.objective == pytest.approx(published[case], rel=1e-4)
    again = solver.solve(problem.nominal)
    assert again.attempts == 1, "the interior method itself should solve it"
    assert again.objective == pytest.approx(published[case], rel=1e-4)


def test_congested_rows_are_solved_without_ipopt() -> None:
    """Loads near the most this grid can carry: prices in the hundreds, and starts that lie close to many limits."""
    problem = load_problem("pglib:case60_c__api")
    solver = Solver.build(problem)
    solved = [(x, row) for x in sample(problem, 20, seed=5) if (row := solver.solve(x)).outcome.ok]
    assert len(solved) >= 5
    assert [row.attempts for _, row in solved] == [1] * len(solved)
    cold = Solver.build(problem, SolverOptions(warm="none", tolerance=1e-10))
    for x, row in solved[:3]:
        assert row.objective == pytest.approx(cold.solve(x).objective, rel=1e-8)


@pytest.mark.parametrize("name", ["nonconvex", "grid6", "toy"])
def test_the_inertia_corrected_method_finds_the_same_optimum(name: str) -> None:
    solver = solver_for(name)
    for x in sample(make(name), 3, seed=3):
        end = solver.interior.solve_inertia_corrected(x)
        assert end.converged
        found = make(name).objectives(x[None], solver.interior.point(x, end.iterate).y[None])[0]
        assert found == pytest.approx(solver.solve(x).objective, rel=1e-7)


@pytest.mark.parametrize("warm", ["interior", "none"])
@pytest.mark.parametrize("name", FEASIBLE)
def test_the_test_of_optimality_passes_solutions_and_nothing_beside_them(name: str, warm: str) -> None:
    problem, solver = make(name), solver_for(name, warm)
    optimality = OptimalityTest(solver.model, DEFAULT)
    for x in sample(problem, 4, seed=4):
        solution = solver.solve(x)
        assert optimality.holds(x, solution.point, 1e-7)
        beside = solution.y + 1e-3 * (problem.start - solution.y + 0.1)
        assert not optimality.holds(x, Point(beside, solution.duals), 1e-7)


@pytest.mark.filterwarnings("ignore:equality of problem")
def test_what_is_merely_acceptable_to_ipopt_is_no_label() -> None:
    """An equality that jumps over zero is off by 9e-8 at best, nine times the tolerance: acceptable to IPOPT."""

    def equality(x: jax.Array, y: jax.Array) -> jax.Array:
        off = y[0] + y[1] ** 2 - x[0]
        return jnp.array([off + 9e-8 * jnp.sign(off)])

    problem = Problem(
        lambda x, y: jnp.sum((y - 0.1) ** 2), -np.ones(2), np.ones(2), equality=equality, box=([0.0], [1.0])
    )
    assert [one.outcome for one in solve(problem, [[0.1], [0.3], [0.77]])] == [Outcome.INACCURATE] * 3


def test_what_ipopt_ends_at_for_rounding_is_a_label() -> None:
    """At a tolerance of 1e-14 it says that its last point is acceptable; all but stationarity is as good as that."""
    strict = Ipopt(build_model(make("grid6")), SolverOptions(tolerance=1e-14), DEFAULT)
    assert strict.attempt("cold", make("grid6").nominal).outcome is Outcome.OK


# ---- rows that cannot be solved ----------------------------------------------------------------------------


@pytest.mark.parametrize("warm", WAYS)
def test_infeasible_rows_are_named(warm: str) -> None:
    solver = solver_for("half-infeasible", warm)
    verdicts = {x: solver.solve([x]).outcome for x in (1.0, 1.9, 2.1, 3.0)}
    assert verdicts == {1.0: Outcome.OK, 1.9: Outcome.OK, 2.1: Outcome.INFEASIBLE, 3.0: Outcome.INFEASIBLE}


def test_a_problem_without_any_solution_is_built_and_says_so() -> None:
    solver = solver_for("infeasible")
    assert solver.nominal.outcome is Outcome.INFEASIBLE
    failed = solver.solve([0.2])
    assert failed.outcome is Outcome.INFEASIBLE
    assert np.isnan(failed.y).all()
    assert np.isnan(failed.objective)


def test_infeasible_grids_agree_with_ipopt() -> None:
    problem = load_problem("pglib:case30_as")
    solver = Solver.build(problem)
    x = problem.nominal * 2.5  # far more load than generation
    assert solver.solve(x).outcome is Outcome.INFEASIBLE
    assert (
        Ipopt(solver.model, SolverOptions(), solver.settings).attempt("cold", x).outcome is Outcome.INFEASIBLE
    )


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_inputs_that_are_not_finite_are_refused_before_solving(bad: float) -> None:
    failed = solver_for("toy").solve([0.5, bad])
    assert failed.outcome is Outcome.NOT_FINITE_INPUT
    assert failed.iterations == 0


def test_iteration_limit() -> None:
    solver = Solver.build(make("grid3"), SolverOptions(max_iterations=2, warm="none"))
    failed = solver.solve(make("grid3").nominal)
    assert failed.outcome is Outcome.ITERATION_LIMIT
    assert failed.attempts == 3


def test_unbounded_objective() -> None:
    problem = Problem(
        lambda x, y: jnp.sum(y) * (1.0 + x[0] ** 2), np.full(2, -np.inf), np.full(2, 1.0), box=([0.0], [1.0])
    )
    assert Solver.build(problem).solve([0.5]).outcome is Outcome.UNBOUNDED


def test_functions_that_break_down_are_named() -> None:
    problem = Problem(
        lambda x, y: jnp.sum(jnp.log(y - 0.9) * 1e3 + y), [-1.0], [1.0], start=[1.0], box=([0.0], [1.0])
    )
    assert not Solver.build(problem).solve([0.5]).outcome.ok


def test_every_outcome_but_ok_gives_advice() -> None:
    assert Outcome.OK.advice == ""
    assert all(outcome.advice.endswith(".") for outcome in Outcome if outcome is not Outcome.OK)
    assert sorted(outcome.value for outcome in Outcome) == list(range(len(Outcome)))
    assert Outcome(1) is Outcome.INFEASIBLE


# ---- two bounds on one expression ---------------------------------------------------------------------------


def test_bounds_on_one_expression_are_one_row_for_ipopt() -> None:
    """Minimise (y0 + 2 y1 - 5 x)^2 + small, with y0 + 2 y1 bounded four times over."""

    def rows(x: jax.Array, y: jax.Array) -> jax.Array:
        both = y[0] + 2.0 * y[1]
        return jnp.stack(
            [both - 1.0, -both - x[0], 0.5 * y[0] - 2.0, both - 1.0 - x[0] ** 2, y[0] ** 2 - 9.0]
        )

    problem = Problem(
        lambda x, y: (y[0] + 2.0 * y[1] - 5.0 * x[0]) ** 2 + 1e-2 * jnp.sum(y * y),
        [-5.0, -5.0],
        [5.0, 5.0],
        inequality=rows,
        box=([-1.0], [1.0]),
    )
    model = build_model(problem)
    ranges = Ranges(model)
    assert ranges.nlp.size1_out(1) == 3
    lower, upper = ranges.bounds(np.array([0.5]))
    assert (lower[-1], upper[-1]) == (-0.5, 1.0)
    for x in (0.5, -0.5):
        cold, warm = (Solver(model, SolverOptions(warm=way)).solve([x]) for way in ("none", "interior"))  # type: ignore[arg-type]
        np.testing.assert_allclose(cold.duals.inequality, warm.duals.inequality, atol=1e-5)
        assert cold.duals.inequality.argmax() == (0 if x > 0 else 1)
        joined = ranges.join(cold.duals.equality, cold.duals.inequality)
        np.testing.assert_array_equal(ranges.split(np.array([x]), joined)[1], cold.duals.inequality)


# ---- starts ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("warm", ["interior", "ipopt"])
def test_a_good_start_saves_iterations(warm: str) -> None:
    solver = solver_for("grid6", warm)
    x = sample(make("grid6"), 3, seed=5)[2]
    first = solver.solve(x)
    again = solver.solve(x, first.point)
    assert again.iterations < first.iterations
    assert again.objective == pytest.approx(first.objective, rel=1e-8)


def test_a_rough_start_is_mended() -> None:
    solver, random = solver_for("grid6"), np.random.default_rng(0)
    for x in sample(make("grid6"), 4, seed=6):
        good = solver.solve(x)
        rough = Point(good.y + 1e-2 * random.standard_normal(len(good.y)), good.duals)
        mended = solver.solve(x, rough)
        assert mended.attempts == 1
        assert mended.objective == pytest.approx(good.objective, rel=1e-7)


def test_a_start_with_nan_is_passed_over_and_one_of_wrong_size_refused() -> None:
    solver = solver_for("toy")
    good = solver.solve([0.1, 0.2])
    broken = Point(np.full(2, np.nan), good.duals)
    assert solver.solve([0.1, 0.2], broken).outcome is Outcome.OK
    with pytest.raises(FeasiblyError, match="`equality` should have shape"):
        solver.solve([0.1, 0.2], Point(good.y, replace(good.duals, equality=np.zeros(3))))
    with pytest.raises(FeasiblyError, match=r"such as `solution\.point`"):
        solver.solve([0.1, 0.2], good)  # type: ignore[arg-type]
    with pytest.raises(FeasiblyError, match="expected an input of shape"):
        solver.solve([0.1])


# ---- the same everywhere -----------------------------------------------------------------------------------


@pytest.mark.parametrize("warm", WAYS)
def test_rows_are_the_same_to_the_last_bit_after_a_round_trip_and_in_any_order(warm: str) -> None:
    solver, x = solver_for("grid6", warm), sample(make("grid6"), 5, seed=7)
    here = [solver.solve(row) for row in x]
    there = Solver.deserialise(solver.serialise())
    elsewhere = [there.solve(row) for row in x[::-1]][::-1]
    for one, other in zip(here, elsewhere, strict=True):
        for part, same in zip(one.point.parts, other.point.parts, strict=True):
            np.testing.assert_array_equal(part, same)
        assert (one.objective, one.iterations, one.attempts) == (
            other.objective,
            other.iterations,
            other.attempts,
        )


def test_a_worker_needs_neither_the_problem_nor_jax(tmp_path: Path) -> None:
    solver, x = solver_for("grid3"), make("grid3").nominal
    (tmp_path / "solver").write_bytes(solver.serialise())
    np.save(tmp_path / "x.npy", x)
    script = """
import sys
from pathlib import Path
import numpy as np
from feasibly.solve.nlp import Solver
solver = Solver.deserialise(Path("solver").read_bytes())
np.save("y.npy", solver.solve(np.load("x.npy")).y)
from feasibly.solve.outcome import Outcome
assert not any(name.split(".")[0] in ("jax", "jaxlib") for name in sys.modules), "JAX was imported"
"""
    package = str(Path(feasibly.solve.__file__).parents[2])
    subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        check=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": package},
    )
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), solver.solve(x).y)


@pytest.mark.parametrize("packed", [b"", to_bytes({"format": 999}), to_bytes({"form": 4})])
def test_bytes_of_another_version_are_refused(packed: bytes) -> None:
    with pytest.raises(FeasiblyError, match="another version"):
        Solver.deserialise(zlib.compress(packed))


@pytest.mark.parametrize("warm", WAYS)
def test_interrupt_is_not_swallowed(warm: str, capfd: pytest.CaptureFixture[str]) -> None:
    solver, x = solver_for("nonconvex", warm), make("nonconvex").nominal
    timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))

    def solve_on() -> None:
        for _ in range(1_000_000):
            solver.solve(x)

    timer.start()
    with pytest.raises(KeyboardInterrupt):
        solve_on()
    assert solver.solve(x).outcome is Outcome.OK
    assert capfd.readouterr().err == ""


def test_solve_takes_all_rows() -> None:
    x = sample(make("toy"), 4, seed=8)
    solutions = solve(make("toy"), x)
    assert [solution.outcome for solution in solutions] == [Outcome.OK] * 4
    with pytest.raises(FeasiblyError, match="expected shape"):
        solve(make("toy"), x[:, :1])


# ---- sensitivities -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["toy", "unconstrained", "nonconvex", "grid3", "grid6"])
def test_sensitivity_agrees_with_finite_differences(name: str) -> None:
    problem, solver = make(name), solver_for(name)
    box = problem.box()
    assert box is not None
    x = problem.nominal + 0.1 * (box[1] - box[0]) * np.random.default_rng(4).uniform(-1, 1, problem.n_inputs)
    solution = solver.solve(x)
    direction = np.random.default_rng(5).standard_normal((problem.n_inputs, 1)) * (box[1] - box[0])[:, None]
    found = solver.sensitivity(x, solution.point, direction)
    step = 1e-4
    ahead, behind = (solver.solve(x + sign * step * direction[:, 0]) for sign in (1, -1))
    # Reactive power may be split in any way between generators at one bus.
    settled = np.delete(np.arange(problem.n_outputs), problem.blocks.get("qg", slice(0)))
    for slope, after, before in (
        (found.y[settled], ahead.y[settled], behind.y[settled]),
        (found.equality, ahead.duals.equality, behind.duals.equality),
    ):
        wanted = (after - before) / (2 * step)
        scale = max(1.0, np.abs(wanted).max(initial=0.0))
        np.testing.assert_allclose(slope[:, 0], wanted, atol=2e-3 * scale)
    whole = solver.sensitivity(x, solution.point)
    np.testing.assert_allclose(whole.y @ direction, found.y, atol=1e-6 * max(1.0, np.abs(found.y).max()))


def test_sensitivity_of_a_failed_row_is_refused() -> None:
    solver = solver_for("half-infeasible")
    with pytest.raises(FeasiblyError, match="no sensitivity"):
        solver.sensitivity([3.0], solver.solve([3.0]).point)
    with pytest.raises(FeasiblyError, match="directions"):
        solver.sensitivity([1.0], solver.solve([1.0]).point, np.ones((4, 1)))


@pytest.mark.parametrize("warm", WAYS)
def test_a_small_cost_is_as_good_as_a_large_one(warm):
    price = np.array([3.0, 1.0, 2.0, 5.0, 4.0])
    cheap = Problem(
        lambda x, y: 1e-3 * jnp.sum((price + x) * y), np.zeros(5), np.ones(5),
        equality=lambda x, y: jnp.sum(y)[None] - 1.0, box=(np.full(5, -0.1), np.full(5, 0.1)), name="cheap",
    )  # fmt: skip
    solver = Solver.build(cheap, SolverOptions(warm=warm))
    for x in sample(cheap, 5, seed=0):
        assert solver.solve(x).objective == pytest.approx(1e-3 * (price + x).min(), rel=1e-8)


def test_rows_of_large_problems_are_settled_without_ipopt(monkeypatch):
    solver = Solver.build(make("half-infeasible"), settings=replace(DEFAULT, large_from=1))
    monkeypatch.setattr(solver.ipopt, "attempt", lambda *_: pytest.fail("IPOPT was asked"))
    monkeypatch.setattr(solver.feasibility, "search", lambda *_: pytest.fail("a search was made"))
    found = [solver.solve(np.array([x])).outcome for x in (1.0, 1.9, 2.4, 3.0)]
    assert found == [Outcome.OK, Outcome.OK, Outcome.INFEASIBLE, Outcome.INFEASIBLE]
