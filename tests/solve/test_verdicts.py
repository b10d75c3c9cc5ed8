"""When a row counts as one without a solution: two ends that agree, and no feasible point met."""

import sys
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from feasibly.problem.core import Problem
from feasibly.solve import Outcome, Solver
from feasibly.solve._attempt import AttemptEnd
from feasibly.solve.feasibility import Feasibility
from feasibly.solve.lanes.batch import BatchResult
from feasibly.solve.records import AttemptResult
from feasibly.solve.sensitivity import Differentiator
from feasibly.solve.settings import DEFAULT
from feasibly.solve.status import AttemptStatus, RowStatus, SearchEnd
from tests.problems import make


def two_wells() -> Problem:
    """Feasible near -1 alone where the input is small; a search that starts near 1 ends at a violation there."""
    return Problem(
        lambda x, y: (y[0] - 0.96) ** 2, lower=[-2.0], upper=[1.5],
        inequality=lambda x, y: jnp.array([(y[0] ** 2 - 1.0) ** 2 + 0.3 * y[0] - x[0]]),
        box=([-0.2], [3.2]), name="two wells",
    )  # fmt: skip


@pytest.mark.parametrize("tried", [True, False])
def test_one_infeasible_point_is_no_verdict_where_cheap_attempts_alone_are_made(tried):
    solver = Solver.build(two_wells())
    for x in ([0.0], [0.1], [0.25]):
        assert solver.feasibility.search(np.array(x), solver.nominal.y) is SearchEnd.INFEASIBLE
        assert not solver.solve(x, thorough=False, tried=tried).outcome.ok
        assert solver.solve(x, thorough=False, tried=tried).outcome is not Outcome.INFEASIBLE
        assert solver.solve(x, tried=tried).y[0] == pytest.approx(two_wells_optimum(x[0]), abs=1e-6)


def two_wells_optimum(x: float) -> float:
    """The largest feasible decision, on a fine grid and by bisection from there."""

    def over(y: float) -> float:
        return (y**2 - 1.0) ** 2 + 0.3 * y - x

    y = np.linspace(-2.0, 1.5, 35_001)
    low = y[over(y) <= 0.0].max()
    high = low + 1e-4
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if over(middle) <= 0.0 else (low, middle)
    return float(low)


def test_a_search_says_where_it_ended():
    solver = Solver.build(make("half-infeasible"))
    ends = [solver.feasibility.search(np.array([x]), solver.nominal.y) for x in (1.0, 1.9, 2.4, 3.0)]
    assert ends == [SearchEnd.FEASIBLE, SearchEnd.FEASIBLE, SearchEnd.INFEASIBLE, SearchEnd.INFEASIBLE]


def test_a_feasible_point_that_was_met_overrules_infeasible_ones(monkeypatch):
    solver = Solver.build(two_wells())
    ends = iter([SearchEnd.INFEASIBLE, SearchEnd.FEASIBLE] * 2)
    monkeypatch.setattr(solver.feasibility, "search", lambda *_: next(ends))
    monkeypatch.setattr(solver.ipopt, "attempt", lambda *_: AttemptResult(None, Outcome.INFEASIBLE, 0))
    for thorough in (True, False):
        assert solver.solve([0.1], tried=True, thorough=thorough).outcome is Outcome.NUMERICAL


def test_lanes_do_not_overrule_a_feasible_point_that_was_met(monkeypatch):
    """On large problems lanes follow a start that ended far off and what was searched because of it."""
    solver = Solver.build(two_wells(), settings=replace(DEFAULT, large_from=1))
    monkeypatch.setattr(solver.feasibility, "search", lambda *_: SearchEnd.FEASIBLE)
    monkeypatch.setattr(solver.ipopt, "attempt", lambda *_: AttemptResult(None, Outcome.NUMERICAL, 0))
    nothing = BatchResult(
        solver.nominal.point.take(None), np.array([RowStatus.INFEASIBLE]), np.array([9]), {}
    )
    monkeypatch.setattr(solver.batch, "solve", lambda *_: nothing)
    for name in ("solve", "solve_from", "solve_inertia_corrected"):
        monkeypatch.setattr(solver.interior, name, lambda *_: stalled(solver))
    settled = solver.solve([0.1])
    assert settled.outcome is Outcome.INFEASIBLE
    assert settled.iterations > 9  # those in vain count too
    assert solver.solve([0.1], solver.nominal.point).outcome is Outcome.NUMERICAL


def stalled(solver: Solver) -> AttemptEnd:
    """An attempt that ended far from feasible, nowhere in particular."""
    central = solver.interior.central_points[0]
    return AttemptEnd(central, AttemptStatus.STALLED, 1, violation=1.0)


def test_what_casadi_remarks_on_is_not_shown(monkeypatch, capsys):
    """It writes a line for every singular matrix, from derivatives and searches as from solving."""
    solver = Solver.build(make("toy"))
    solved = solver.solve(solver.model.nominal)

    def remark(*_, **__):
        print('CasADi - WARNING("LDL factorization has zeros in D")', file=sys.stderr)

    monkeypatch.setattr(Differentiator, "differentiate", remark)
    monkeypatch.setattr(Feasibility, "_run", remark)
    solver.sensitivity(solver.model.nominal, solved.point)
    assert solver.feasibility.least_infeasible(solver.model.nominal, solver.model.start) is None
    assert not capsys.readouterr().err
