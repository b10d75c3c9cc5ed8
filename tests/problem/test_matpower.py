"""MATPOWER's text: what it computes is computed, what it cannot is refused by line, nothing is passed over."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from feasibly.problem.errors import FeasiblyError
from feasibly.problem.matpower.evaluate import run
from feasibly.problem.matpower.parse import parse
from feasibly.problem.matpower.tokens import MatlabError, tokenize
from feasibly.problem.read import read_grid
from tests.grids import GRID3

INDICES = """
[PQ, PV, REF, NONE, BUS_I, BUS_TYPE, PD, QD, GS, BS, BUS_AREA, VM, ...
    VA, BASE_KV, ZONE, VMAX, VMIN, LAM_P, LAM_Q, MU_VMAX, MU_VMIN] = idx_bus;
[F_BUS, T_BUS, BR_R, BR_X, BR_B, RATE_A, RATE_B, RATE_C, ...
    TAP, SHIFT, BR_STATUS, PF, QF, PT, QT, MU_SF, MU_ST, ...
    ANGMIN, ANGMAX, MU_ANGMIN, MU_ANGMAX] = idx_brch;
"""
OHMS = """
Vbase = mpc.bus(1, BASE_KV) * 1e3;      %% in Volts
Sbase = mpc.baseMVA * 1e6;              %% in VA
mpc.branch(:, [BR_R BR_X]) = mpc.branch(:, [BR_R BR_X]) / (Vbase^2 / Sbase);
"""
KILOWATTS = "mpc.bus(:, [PD, QD]) = mpc.bus(:, [PD, QD]) / 1e3;\n"
POWER_FACTOR = """
pf = 0.85;
mpc.bus(:, QD) = mpc.bus(:, PD) * sin(acos(pf));
mpc.bus(:, PD) = mpc.bus(:, PD) * pf;
"""


def _value(text: str) -> np.ndarray:
    return run(parse(tokenize(f"a = {text};"))).names["a"]


ARITHMETIC: dict[str, list[list[float]]] = {
    "50/3": [[50 / 3]],
    "[1 -2]": [[1, -2]],
    "[1 - 2]": [[-1]],
    "[1 -2 - 3, +4]": [[1, -5, 4]],
    "[1, 2\n 3 4;]": [[1, 2], [3, 4]],
    "[1 2 ... the rest is a comment ] \n 3]": [[1, 2, 3]],
    "[1 % ] no end\n 2]": [[1], [2]],
    "[1 2; 3 4]'": [[1, 3], [2, 4]],
    "[1 2]' .* [3; 4]": [[3], [8]],
    "2^-1 + -2^2": [[-3.5]],
    "1e3 + 1.5d1 + .5 + 5.": [[1020.5]],
    "2:2:7": [[2, 4, 6]],
    "sum([1 2; 3 4](:, 2))": [[6]],
    "sin(acos(0.6)) / pi": [[math.sin(math.acos(0.6)) / math.pi]],
    "[1 Inf] > 2": [[False, True]],
    "3 - (2 - 1)": [[2]],
    "1 + 2:4": [[3, 4]],
    "zeros(1, 2) + 1": [[1, 1]],
    "max([1 5 3])": [[5]],
}


@pytest.mark.parametrize("text", ARITHMETIC)
def test_arithmetic_is_matlabs(text: str) -> None:
    np.testing.assert_array_equal(_value(text), ARITHMETIC[text])


NOT_TEXT = [
    "1 +",
    "[1 2",
    "[1 2; 3]",
    "(1",
    "1e5.5]",
    "[1.5.5]",
    "'open",
    "{1",
    "1 2",
    "[1,,2]",
    "5i",
    "0x1F",
]


@pytest.mark.parametrize("text", NOT_TEXT)
def test_what_is_no_matlab_is_refused(text: str) -> None:
    with pytest.raises(MatlabError):
        parse(tokenize(f"a = {text};"))


def test_tables_are_read_and_changed_as_matlab_does() -> None:
    text = """
    t = [1 2; 3 4; 5 6];
    t(2, :) = [];
    t(:, end) = t(:, end) * 10;
    k = find(t(:, 1) > 3); t(k, 1) = -1;
    all_of_them = t(:, 2) > 0; t(all_of_them, 1) = t(all_of_them, 1) + 100;
    if 0
        t = 1;
    elseif size(t, 1) == 2 && true
        t(1) = 7;
    else
        t = 2;
    end
    """
    np.testing.assert_array_equal(run(parse(tokenize(text))).names["t"], [[7, 20], [99, 60]])


def test_ohms_and_kilowatts_become_per_unit_and_megawatts(tmp_path: Path) -> None:
    """Written as in MATPOWER's distribution cases; the figures are worked out here."""
    plain = read_grid(GRID3.write(tmp_path / "plain.m"))
    text = replace(GRID3, extra=INDICES + OHMS + KILOWATTS + POWER_FACTOR).matpower()
    text = text.replace("mpc.baseMVA = 100.0", "mpc.baseMVA = 50/3")
    (tmp_path / "grid.m").write_text(text)
    grid = read_grid(tmp_path / "grid.m")
    assert grid.base_mva == 50 / 3
    ohms = 230e3**2 / (50 / 3 * 1e6)
    np.testing.assert_allclose(grid.r, plain.r / ohms, rtol=1e-15)
    np.testing.assert_allclose(grid.x, plain.x / ohms, rtol=1e-15)
    megawatts = np.array([80.0, 60.0]) / 1e3
    np.testing.assert_allclose(grid.pd, megawatts * 0.85 / (50 / 3), rtol=1e-15)
    np.testing.assert_allclose(grid.qd, megawatts * math.sqrt(1 - 0.85**2) / (50 / 3), rtol=1e-14)


def test_the_last_assignment_holds_and_is_told(tmp_path: Path) -> None:
    grid = read_grid(replace(GRID3, extra="mpc.baseMVA = 50;").write(tmp_path / "grid.m"))
    assert grid.base_mva == 50.0
    assert "mpc.baseMVA is set in the lines 3, 22; the last one holds" in grid.warnings


REFUSED: dict[str, tuple[str, str]] = {
    "scaled loads": (
        "mpc = scale_load(2, mpc);",
        "line 22 (mpc = scale_load(2, mpc);): calls 'scale_load', which is not computed here",
    ),
    "a part that cannot be computed": (
        "mpc.bus(:, 3) = mpc.bus(:, 3) * mystery(2);",
        "mpc.bus, line 22 (mpc.bus(:, 3) = mpc.bus(:, 3) * mystery(2);): calls 'mystery'",
    ),
    "by way of another name": (
        "f = mystery(2);\nmpc.baseMVA = f * 100;",
        "mpc.baseMVA, line 22 (f = mystery(2);): calls 'mystery'",
    ),
    "a script": ("make_it_hard", "line 22 (make_it_hard): calls 'make_it_hard'"),
    "a loop": ("for i = 1:3\nmpc.bus(i, 3) = 0;\nend", "'for' is not computed here"),
    "code in a string": ("eval('mpc.baseMVA = 1;');", "calls 'eval', which is not computed here"),
    "a row too many": ("mpc.bus(9, 3) = 1;", "an index lies outside 1 to 3"),
    "DC grid": (
        "mpc.dcbus = [1 2];\nmpc.dcbranch = [1 2];",
        "mpc.dcbus (line 22), mpc.dcbranch (line 23): a DC grid, which the AC-OPF model here does not have",
    ),
    "DC grid by its other names": ("mpc.busdc = [1 2];\nmpc.convdc = [1 2];", "mpc.busdc (line 22), mpc.convdc"),
    "three phases": ("mpc.bus3p = [1 2];", "mpc.bus3p (line 22): a three-phase part of the grid"),
    "an unknown table": ("mpc.whatever = [1 2; 3 4];", "mpc.whatever (line 22): not known here"),
    "unknown bus type": ("mpc.bus(2, 2) = 7;", "mpc.bus (line 4), row 2: the bus type must be 1, 2, 3 or 4, got 7"),
    "no whole bus number": ("mpc.bus(2, 1) = 2.5;", "row 2: the bus number must be a whole number, got 2.5"),
    "no whole bus number in a branch": ("mpc.branch(1, 2) = NaN;", "row 1: the bus number must be a whole number"),
    "half in service": ("mpc.gen(1, 8) = 0.5;", "mpc.gen (line 9), row 1: the status must be 0 or 1, got 0.5"),
    "unknown version": ("mpc.version = '3';", "mpc.version (line 22): is '3'; versions 1 and 2 are read"),
    "cost model": ("mpc.gencost(1, 1) = 3;", "row 1: the model must be 1 (piecewise linear) or 2 (polynomial)"),
    "cost terms": ("mpc.gencost(1, 4) = 9;", "row 1: 9 terms do not fit in"),
    "a cost that cannot be computed": (
        "mpc.dcline = [1 3 1 20 18 0 0 1 1 0 40 -9 9 -9 9 0 0];\nmpc.dclinecost = mystery(3);",
        "mpc.dclinecost, line 23 (mpc.dclinecost = mystery(3);): calls 'mystery'",
    ),
    "limits of no rows": ("mpc.l = [1; 2];", "mpc.l (line 22): limits the rows of A, and there is no A"),
    "narrow table": ("mpc.bus = [1 3 0 0];", "mpc.bus (line 22): has 4 columns and needs 13"),
}  # fmt: skip


@pytest.mark.parametrize("which", REFUSED)
def test_what_may_change_the_problem_is_refused(which: str, tmp_path: Path) -> None:
    extra, sentence = REFUSED[which]
    with pytest.raises(FeasiblyError, match=re.escape(sentence)):
        read_grid(replace(GRID3, extra=extra).write(tmp_path / "grid.m"))


HARMLESS = {
    "names": "mpc.bus_name = {\n 'one ] % no comment'; 'it''s two'; \"three\"\n};\nmpc.genfuel = {'coal'; 'gas'};",
    "an empty table": "mpc.dcline = [];\nmpc.A = zeros(0, 3);",
    "comments": "%{\nmpc.baseMVA = 1;\n%}\n# mpc.baseMVA = 1;\n% mpc.baseMVA = 1;",
    "a branch not taken": "fixed = 0;\nif fixed\n mpc.baseMVA = mystery(1);\nend",
    "a value that nobody needs": "mpc.note = 'x';\nnb = size(mpc.bus, 1);\nq = cellfun(@num2str, nb);",
    "another function": "end\nfunction x = unused(y)\nx = mystery(y);",
    "constants": "define_constants;\nmpc.bus(:, PD) = mpc.bus(:, PD) * 1;",
    "shown": "mpc.bus(:, 1)\ndisp('hello');",
}


@pytest.mark.parametrize("which", HARMLESS)
def test_what_changes_nothing_is_no_trouble(which: str, tmp_path: Path) -> None:
    plain = GRID3
    grid = read_grid(replace(plain, extra=HARMLESS[which]).write(tmp_path / "grid.m"))
    assert grid.warnings == ()
    assert grid.digest == read_grid(plain.write(tmp_path / "plain.m")).digest


def test_tables_are_left_out_when_asked(tmp_path: Path) -> None:
    path = replace(GRID3, extra="mpc.reserves.req = [1; 2];\nmpc.if.map = [1 2];").write(tmp_path / "grid.m")
    with pytest.raises(FeasiblyError, match="for 2 reasons"):
        read_grid(path)
    grid = read_grid(path, ignore="reserves, if")
    assert grid.warnings == ("mpc.reserves: left out, as asked", "mpc.if: left out, as asked")


TOLD = {
    "a number": ("mpc.mystery = 5;", "mpc.mystery (line 22): a number that nothing here asks for; left out"),
    "a status of MOST": ("mpc.gen(1, 8) = 61;", "mpc.gen (line 9), row 1: a status of 61 counts as in service"),
    "rows without limits": ("mpc.A = ones(2, 12);", "mpc.A (line 22): has no limits, l or u, and so changes nothing"),
    "a sum that costs nothing": (
        "mpc.N = ones(2, 12);",
        "mpc.N (line 22): there is no Cw or H that prices it, and so it changes nothing",
    ),
    "costs of no DC lines": (
        "mpc.dclinecost = [2 0 0 2 1 0];",
        "mpc.dclinecost (line 22): there are no DC lines; left out",
    ),
}  # fmt: skip


@pytest.mark.parametrize("which", TOLD)
def test_what_has_no_effect_is_told_of(which: str, tmp_path: Path) -> None:
    extra, sentence = TOLD[which]
    grid = read_grid(replace(GRID3, extra=extra).write(tmp_path / "grid.m"))
    assert grid.warnings == (sentence,)
    assert grid.digest == read_grid(GRID3.write(tmp_path / "plain.m")).digest


def test_names_to_leave_out_are_looked_at(tmp_path: Path) -> None:
    line = "mpc.dcline = [1 3 1 20 18 0 0 1 1 0 40 -9 9 -9 9 0 0];"
    path, plain = replace(GRID3, extra=line).write(tmp_path / "grid.m"), GRID3.write(tmp_path / "plain.m")
    grid = read_grid(path, ignore="dcline")
    assert grid.warnings == ("mpc.dcline (line 22): left out, as asked",)
    assert grid.digest == read_grid(plain).digest != read_grid(path).digest
    assert "holds no mpc.bus3p" in read_grid(plain, ignore=["bus3p"]).warnings[0]
    with pytest.raises(FeasiblyError, match=r"mpc.gencost \(line 18\): cannot be left out"):
        read_grid(plain, ignore="gencost")


def test_the_first_version_of_the_format_is_read(tmp_path: Path) -> None:
    text = GRID3.matpower().replace("mpc.version = '2';\n", "").replace("mpc.", "")
    text = text.replace("function mpc = grid", "function [baseMVA, bus, gen, branch, areas, gencost] = grid")
    (tmp_path / "old.m").write_text(text)
    old, new = read_grid(tmp_path / "old.m"), read_grid(GRID3.write(tmp_path / "grid.m"))
    np.testing.assert_array_equal(old.pmax, new.pmax)
    np.testing.assert_array_equal(old.cost, new.cost)
    assert np.isinf(old.angmax).all()  # its further columns are results, not limits
