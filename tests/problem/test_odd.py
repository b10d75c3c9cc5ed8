"""Odd grids, and what MATPOWER 8.1 (in Octave) finds for the same files; PYPOWER agrees to its tolerance."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from feasibly.problem.errors import ProblemError
from feasibly.problem.families import load_problem
from feasibly.problem.read import read_grid
from feasibly.solve.nlp import solve

Edit = Callable[[dict[str, list[list[float]]]], None]

BUS = [
    [1, 3, 0, 0, 0, 0, 1, 1, 0, 345, 1, 1.1, 0.9], [2, 2, 0, 0, 0, 0, 1, 1, 0, 345, 1, 1.1, 0.9],
    [3, 2, 0, 0, 0, 0, 1, 1, 0, 345, 1, 1.1, 0.9], [4, 1, 0, 0, 0, 0, 1, 1, 0, 345, 1, 1.1, 0.9],
    [5, 1, 90, 30, 0, 0, 1, 1, 0, 345, 1, 1.1, 0.9], [6, 1, 110, 40, 0, 0, 1, 1, 0, 345, 1, 1.1, 0.9],
]  # fmt: skip
GEN = [
    [1, 0, 0, 200, -200, 1, 100, 1, 150, 10],
    [2, 80, 0, 200, -200, 1, 100, 1, 120, 10],
    [3, 60, 0, 200, -200, 1, 100, 1, 90, 10],
]
BRANCH = [
    [1, 4, 0, 0.05, 0, 180, 0, 0, 0, 0, 1, -360, 360], [4, 5, 0.02, 0.09, 0.15, 120, 0, 0, 0, 0, 1, -360, 360],
    [2, 5, 0.01, 0.06, 0.1, 120, 0, 0, 0, 0, 1, -360, 360], [5, 6, 0.03, 0.12, 0.2, 60, 0, 0, 0, 0, 1, -360, 360],
    [3, 6, 0, 0.07, 0, 120, 0, 0, 0, 0, 1, -360, 360], [4, 6, 0.02, 0.1, 0.12, 90, 0, 0, 0, 0, 1, -360, 360],
]  # fmt: skip
COST = [[2, 0, 0, 3, 0.11, 5, 150], [2, 0, 0, 3, 0.085, 1.2, 600], [2, 0, 0, 3, 0.1225, 1, 335]]
DEAD = [77, 4, 33, 11, 2, 3, 1, 1, 0, 345, 1, 1.1, 0.9]


def _set(table: str, *cells: tuple[int, int, float]) -> Edit:
    def edit(tables: dict[str, list[list[float]]]) -> None:
        for row, column, value in cells:
            tables[table][row][column] = value

    return edit


def _add(**rows: list[float]) -> Edit:
    def edit(tables: dict[str, list[list[float]]]) -> None:
        for table, row in rows.items():
            tables[table].append(list(row))

    return edit


def _text(*edits: Edit) -> str:
    parts = {"bus": BUS, "gen": GEN, "branch": BRANCH, "gencost": COST}
    tables = {name: [list(map(float, row)) for row in rows] for name, rows in parts.items()}
    for edit in edits:
        edit(tables)
    lines = ["function mpc = odd", "mpc.version = '2';", "mpc.baseMVA = 100;"]
    for name, rows in tables.items():
        lines += [f"mpc.{name} = [", *(" ".join(f"{v:g}" for v in row) + ";" for row in rows), "];"]
    return "\n".join([*lines, ""])


GRIDS: dict[str, tuple[str, float]] = {
    "plain": (_text(), 2921.6982),
    "phase shifters": (_text(_set("branch", (1, 8, 0.97), (1, 9, -12.5), (3, 9, 7))), 2936.4322),
    "a dead bus with load, shunt, generator and branch": (
        _text(_add(bus=DEAD, gen=[77, 50, 0, 90, -90, 1, 100, 1, 90, 10], gencost=[2, 0, 0, 3, 0.1, 5, 100],
                   branch=[77, 5, 0.01, 0.1, 0, 0, 0, 0, 0, 0, 1, -360, 360])), 2921.6982),
    "parallel branches": (
        _text(_add(branch=[4, 5, 0.02, 0.09, 0.15, 40, 0, 0, 0, 0, 1, -360, 360]),
              _add(branch=[5, 4, 0.02, 0.1, 0.1, 0, 0, 0, 1.02, 3, 1, -360, 360])), 2929.7985),
    "no ratings": (_text(*(_set("branch", (i, 5, 0)) for i in range(6))), 2921.6982),
    "angle limits of zero": (_text(*(_set("branch", (i, 11, 0), (i, 12, 0)) for i in range(6))), 2921.6982),
    "tight angle limits": (_text(_set("branch", (1, 11, -1), (1, 12, 1), (5, 11, -360), (5, 12, 1.5))), 2921.9160),
    "negative loads": (_text(_set("bus", (4, 2, -40), (5, 3, -60))), 1401.1211),
    "shunts with G": (_text(_set("bus", (4, 4, 12), (5, 4, -3), (3, 5, 40))), 3049.6097),
    "a dispatchable load": (
        _text(_add(gen=[5, -20, -5, 0, -10, 1, 100, 1, 0, -40], gencost=[2, 0, 0, 3, 0, 30, 0])), 2430.3058),
    "two references": (_text(_set("bus", (1, 1, 3))), 2924.3753),
    "a negative reactance": (_text(_set("branch", (3, 3, -0.05))), 2924.4920),
    "fixed voltage": (_text(_set("bus", (4, 11, 1), (4, 12, 1))), 2924.5036),
    "a generator out": (_text(_set("gen", (2, 7, -1)), _set("branch", (0, 5, 0))), 3281.2760),
    "no limits on a generator": (
        _text(_set("gen", (0, 3, float("inf")), (0, 4, float("-inf")), (1, 8, float("inf")))), 2921.6982),
}  # fmt: skip
WRITTEN = {
    "Windows": lambda text: text.replace("\n", "\r\n"),
    "rows on one line": lambda text: (
        text.replace(";\n", "; ").replace("; ]", ";]").replace("]; mpc", "];\nmpc")
    ),
    "exponents": lambda text: text.replace(" 90 ", " 9.0E+01 ").replace(" 110 ", " .11e3 "),
    "commas": lambda text: "\n".join(
        line.replace(" ", ", ") if line[:1].isdigit() else line for line in text.split("\n")
    ),
    "a comment in a table": lambda text: text.replace("mpc.gen = [", "mpc.gen = [ % 1 2 3;\n%{\n9 9 9\n%}"),
    "a percent sign in a name": lambda text: (
        text + "mpc.bus_name = {'50% of it'; 'it''s; ]'; 'c'; 'd'; 'e'; 'f'};\n"
    ),
    "a line that goes on": lambda text: text.replace("baseMVA = 100", "baseMVA = ... so\n 100"),
    "expressions": lambda text: text.replace(" 90 ", " (100-10) ").replace(" 110 ", " 11*10 "),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("which", GRIDS)
def test_the_optimum_is_matpowers(which: str, tmp_path: Path) -> None:
    text, cost = GRIDS[which]
    (tmp_path / "odd.m").write_text(text.replace("inf", "Inf"))
    problem = load_problem(tmp_path / "odd.m")
    (found,) = solve(problem, problem.nominal[None])
    assert found.objective == pytest.approx(cost, rel=1e-6)


@pytest.mark.parametrize("how", WRITTEN)
def test_another_way_of_writing_is_the_same_grid(how: str, tmp_path: Path) -> None:
    (tmp_path / "plain.m").write_text(_text())
    (tmp_path / "odd.m").write_bytes(WRITTEN[how](_text()).encode())
    assert read_grid(tmp_path / "odd.m").digest == read_grid(tmp_path / "plain.m").digest


def test_no_impedance_is_the_limit_of_a_small_one(tmp_path: Path) -> None:
    """MATPOWER has no form for it; with 1e-7 it finds what is found here with none."""
    costs = []
    for reactance in (0.0, 1e-7):
        more = _add(bus=[77, 1, 20, 5, 0, 0, 1, 1, 0, 345, 1, 1.1, 0.9],
                    branch=[5, 77, 0, reactance, 0, 0, 0, 0, 0, 0, 1, -360, 360])  # fmt: skip
        (tmp_path / "odd.m").write_text(_text(more))
        problem = load_problem(tmp_path / "odd.m")
        (found,) = solve(problem, problem.nominal[None])
        costs.append(found.objective)
    assert costs[0] == pytest.approx(costs[1], rel=1e-7)


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (_set("branch", (1, 8, -1)), "the tap ratio must be positive"),
        (_add(bus=BUS[4]), "bus 5: stands 2 times"),
        (_set("gencost", (0, 3, 4)), "4 terms do not fit"),
        (_set("branch", (1, 10, 2)), "the status must be 0 or 1, got 2"),
    ],
)
def test_what_nobody_can_mean_is_refused(edit: Edit, words: str, tmp_path: Path) -> None:
    (tmp_path / "odd.m").write_text(_text(edit))
    with pytest.raises(ProblemError, match=words):
        read_grid(tmp_path / "odd.m")
