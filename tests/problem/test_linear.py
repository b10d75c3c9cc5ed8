"""MATPOWER's linear extensions: optima are those that MATPOWER 8.1 finds for the same files in Octave."""

from __future__ import annotations

from pathlib import Path

import pytest

from feasibly.problem.errors import ProblemError
from feasibly.problem.families import load_problem
from feasibly.problem.read import read_grid
from feasibly.solve.nlp import solve
from tests.grids import GRID3

PLAIN = 3300.0122
USER = """
mpc.A = sparse([1 1 2 2], [7 8 5 6], [1 -2 1 -1], 2, 10);
mpc.l = [-Inf; 0.01];
mpc.u = [-0.2; 0.01];
"""
RESERVES = """
mpc.reserves.zones = [1 1; 0 1];
mpc.reserves.req = [130; 40];
mpc.reserves.cost = [1; 14];
mpc.reserves.qty = [70; 90];
"""
INTERFACE = """
mpc.if.map = [1 1; 1 -3];
mpc.if.lims = [1 24 60];
"""


def _written(more: str, folder: Path) -> Path:
    path = folder / "grid.m"
    path.write_text(GRID3.matpower() + more)
    return path


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("more", "tables", "cost"),
    [(USER, "A", 3506.21026), (RESERVES, "reserves", 4210.01220), (INTERFACE, "if", 3336.87829)],
)
def test_the_optimum_is_matpowers(more: str, tables: str, cost: float, tmp_path: Path) -> None:
    path = _written(more, tmp_path)
    for ignore, expected in (("", cost), (tables, PLAIN)):
        problem = load_problem(path, ignore=ignore)
        (found,) = solve(problem, problem.nominal[None])
        assert found.objective == pytest.approx(expected, rel=1e-7)


def test_reserves_are_outputs_and_rows_have_names(tmp_path: Path) -> None:
    from feasibly.problem.flows import limits

    with pytest.warns(match=r"mpc\.reserves.*: modelled, as MATPOWER does once they are switched on"):
        problem = load_problem(_written(RESERVES, tmp_path))
    assert problem.output_names[-2:] == ("reserve_1", "reserve_2")
    _, rows = limits(problem, read_grid(tmp_path / "grid.m"))
    assert [(row.component, row.name) for row in rows[-4:]] == [
        ("generator", "reserve_1"), ("generator", "reserve_2"), ("zone", "reserve_zone_1"), ("zone", "reserve_zone_2"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("mpc.A = [1 2 3];", "has 3 columns; without variables of its own it needs 10"),
        ("mpc.A = ones(1, 10);\nmpc.u = [1 2];", "needs a number for each of the 1 rows of A"),
        ("mpc.A = ones(1, 10);\nmpc.u = 1;\nmpc.l = 2;", "its limits are crossed"),
        ("mpc.reserves.zones = [1 1];", "needs zones"),
        (RESERVES + "mpc.reserves.cost = [1 2 3];", "cost needs 2 values"),
        ("mpc.if.map = [1 9];\nmpc.if.lims = [1 0 1];", "has no branch in service"),
        ("mpc.if.map = [1 1];", "needs map .* and lims"),
        ("mpc.N = [1 2];\nmpc.Cw = 3;", "constraints or costs of the user's own"),
    ],
)
def test_tables_that_do_not_fit(more: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(ProblemError, match=words):
        read_grid(_written(more, tmp_path))
