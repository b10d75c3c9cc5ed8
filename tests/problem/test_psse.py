"""RAW files of every revision that is read: one grid, written here by each revision's own columns, is one grid."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from feasibly.problem.errors import FeasiblyError, ProblemError
from feasibly.problem.families import load_problem
from feasibly.problem.read import read_grid
from feasibly.solve.nlp import solve

pytestmark = pytest.mark.filterwarnings("ignore::feasibly.problem.errors.GridWarning")
REVISIONS = (29, 30, 31, 32, 33, 34, 35)


def _written(revision: int, **change: str) -> str:
    """Four buses, a line, a transformer of two windings and one of three, shunts of every kind."""
    new, wide = revision >= 31, revision >= 34
    heading = f"0, 100.0{'' if revision == 29 else f', {revision}'} / PSS(tm)E-{revision} made for a test"
    limits = ", 1.1, 0.9, 1.1, 0.9" if revision >= 33 else ""

    def bus(number: int, code: int, kv: float, b: float) -> str:
        if new:
            return f"{number}, 'B, {number} / x', {kv}, {code}, 1, 1, 1, 1.0, 0.0{limits}"
        return f"{number} 'B, {number} / x' {kv} {code} 0.0 {b} 1 1 1.0 0.0 1"

    node = ", 0" if revision >= 35 else ""
    load = ", 1, 0" if revision >= 33 else ""
    rates = "60.0, 0, 0" if not wide else "'line', 60.0" + ", 0.0" * 11
    met = "1, " if new else ""
    winding = "50.0, 0, 0" if not wide else "50.0" + ", 0.0" * 11
    tail = f"0, 0{node}, 1.1, 0.9, 1.1, 0.9, 33, 0, 0.0, 0.0"
    shunt = {29: "", 30: "100.0, ", 31: "100.0, "}.get(revision, "100.0, ")
    status = "0, 1, " if revision >= 32 else ""
    ident = "'1', " if revision >= 35 else ""
    sections: dict[str, list[str]] = {
        "SYSTEM-WIDE": ["GENERAL, THRSHZ=0.0001"] if wide else [],
        "BUS": [bus(1, 3, 220.0, 0.0), bus(2, 1, 110.0, 7.0), bus(3, 1, 20.0, 0.0), bus(4, 2, 220.0, 0.0)],
        "LOAD": [f"2, '1', 1, 1, 1, 40.0, 12.0, 0.0, 0.0, 3.0, -2.0, 1, 1{load}",
                 f"3, '1', 1, 1, 1, 9.0, 2.0, 0.0, 0.0, 0.0, 0.0, 1, 1{load}"],
        "FIXED SHUNT": ["2, '1', 1, 0.0, 7.0"],
        "GENERATOR": [f"1, '1', 30.0, 0.0, 50.0, -50.0, 1.0, 0{node}, 100.0, 0, 1, 0, 0, 1, 1, 100, 90.0, 0.0",
                      f"4, '1', 20.0, 0.0, 30.0, -30.0, 1.0, 0{node}, 100.0, 0, 1, 0, 0, 1, 1, 100, 60.0, 5.0"],
        "BRANCH": [f"1, -4, '1', 0.01, 0.08, 0.03, {rates}, 0.001, 0.02, 0.0, 0.01, 1, {met}0.0, 1, 1.0"],
        "SYSTEM SWITCHING DEVICE": [],
        "TRANSFORMER": [
            "4, 2, 0, '1', 2, 2, 2, 20000.0, 0.004, 2, 'T1', 1, 1, 1.0", "0.01, 0.12, 80.0",
            f"226.0, 225.0, 5.0, {winding}, {tail}", "110.0, 110.0",
            "1, 2, 3, 'X', 1, 1, 1, 0.0001, -0.002, 2, 'T3', 1, 1, 1.0",
            "0.002, 0.1, 100.0, 0.003, 0.14, 100.0, 0.004, 0.2, 100.0, 1.0, 0.0",
            f"1.02, 0.0, 0.0, {winding}, {tail}", f"1.0, 0.0, 0.0, {winding}, {tail}",
            f"0.99, 0.0, 30.0, {winding}, {tail}",
        ],
        "AREA": [], "TWO-TERMINAL DC": [], "VOLTAGE SOURCE CONVERTER": [], "IMPEDANCE CORRECTION": [],
        "MULTI-TERMINAL DC": [], "MULTI-SECTION LINE": [], "ZONE": ["1, 'ZONE'"], "INTER-AREA TRANSFER": [],
        "OWNER": [],         "FACTS CONTROL DEVICE": [],
        "SWITCHED SHUNT": [f"3, {ident}1, {status}1.1, 0.9, 0{node}, {shunt}'', 4.0, 1, 4.0"],
        "GNE DEVICE": [], "INDUCTION MACHINE": [], "SUBSTATION": [],
    }  # fmt: skip
    sections |= {name: [line] for name, line in change.items() if name in sections}
    order = list(sections)
    if not new:
        for name in ("FIXED SHUNT", "GNE DEVICE", "INDUCTION MACHINE"):
            order.remove(name)
        order.remove("SWITCHED SHUNT")
        order.insert(order.index("IMPEDANCE CORRECTION"), "SWITCHED SHUNT")
    if not wide:
        for name in ("SYSTEM-WIDE", "SYSTEM SWITCHING DEVICE", "SUBSTATION"):
            order.remove(name)
    lines = [heading, "a test", ""]
    for name in order:
        lines += [*sections[name], f"0 / END OF {name} DATA"]
    text = "\n".join([*lines, "Q", ""])
    for old, replacement in change.items():
        text = text.replace(old, replacement, 1) if old not in sections else text
    return text


def _file(folder: Path, text: str) -> Path:
    path = folder / "grid.raw"
    path.write_text(text)
    return path


def test_every_revision_is_the_same_grid(tmp_path: Path) -> None:
    found = {r: read_grid(_file(tmp_path, _written(r)), costs=10.0) for r in REVISIONS}
    assert {grid.digest for grid in found.values()} == {found[33].digest}
    assert "revision 30 has no voltage limits" in " ".join(found[30].warnings)
    assert "switched shunts stay" in " ".join(found[33].warnings)


@pytest.mark.parametrize("own", REVISIONS)
def test_a_file_of_another_revision_than_it_says_is_refused(own: int, tmp_path: Path) -> None:
    """Columns moved between revisions: a rating would be read as a name, and a share as a susceptance."""
    text = _written(own).split("\n", 1)[1]
    for said in REVISIONS:
        path = tmp_path / "grid.raw"
        path.write_text(_written(said).split("\n", 1)[0] + "\n" + text)
        if own == said or (own, said) == (32, 33):  # 33 only adds fields at the end
            read_grid(path, costs=10.0)
            continue
        with pytest.raises(FeasiblyError):
            read_grid(path, costs=10.0)


def test_units_of_transformers(tmp_path: Path) -> None:
    """By hand: kV and losses in W on the winding's base to per unit of 100 MVA and the bus's voltage."""
    grid = read_grid(_file(tmp_path, _written(33)), costs=10.0)
    assert grid.n_buses == 5
    ratio = (225.0 / 220.0) ** 2 * 100.0 / 80.0
    np.testing.assert_allclose([grid.r[1], grid.x[1]], [0.01 * ratio, 0.12 * ratio])
    np.testing.assert_allclose([grid.tap[1], np.degrees(grid.shift[1])], [226.0 / 220.0, 5.0])
    loss, size = 0.02 / 100.0, 0.004 * 80.0 / 100.0
    y_ff = grid.admittances()[0] - np.append([0.0], 1.0 / (grid.r + 1j * grid.x)[1:] / grid.tap[1:] ** 2)
    np.testing.assert_allclose(
        y_ff[1], (loss - 1j * np.sqrt(size**2 - loss**2)) * (220 / 225) ** 2, rtol=1e-9
    )
    np.testing.assert_allclose(grid.x[2:], [0.08, 0.02, 0.12])  # the star of 0.1, 0.14 and 0.2
    np.testing.assert_allclose(grid.g_from[0], 0.001)
    np.testing.assert_allclose([grid.b_from[0], grid.b_to[0]], [0.035, 0.025])
    np.testing.assert_allclose(np.sort(grid.bs * 100.0), [-2.0, 4.0, 7.0])  # a load's admittance is a shunt


def test_impedance_correction(tmp_path: Path) -> None:
    """The table of the two-winding transformer, between its points."""
    text = _written(33, **{"IMPEDANCE CORRECTION": "1, 0.9, 1.5, 1.1, 0.5, 0.0, 0.0"})
    tail = "226.0, 225.0, 5.0, 50.0, 0, 0, 0, 0, 1.1, 0.9, 1.1, 0.9, 33, 0"
    text = text.replace("4, 2, 0, '1', 2, 2, 2", "4, 2, 0, '1', 1, 2, 2").replace(
        tail, tail.replace("226.0", "1.0").removesuffix("0") + "1"
    )
    text = text.replace("110.0, 110.0\n", "1.0, 110.0\n")
    plain = read_grid(_file(tmp_path, _written(33)), costs=10.0)
    grid = read_grid(_file(tmp_path, text), costs=10.0)
    assert grid.x[1] == pytest.approx(plain.x[1])  # halfway: a factor of one
    grid = read_grid(_file(tmp_path, text.replace("1, 0.9, 1.5, 1.1", "1, 0.9, 3.0, 1.1")), costs=10.0)
    assert grid.x[1] == pytest.approx(1.75 * plain.x[1])


def test_dc_lines_stand_at_their_set_points(tmp_path: Path) -> None:
    line = (
        "'DC', 1, 8.0, 20.0, 100.0\n1, 1, 20.0, 10.0, 0, 0, 220\n4, 1, 20.0, 10.0, 0, 0, 220\n"
        "'OFF', 0, 8.0, 20.0, 100.0\n1, 1, 20.0, 10.0, 0, 0, 220\n4, 1, 20.0, 10.0, 0, 0, 220"
    )
    problem = load_problem(_file(tmp_path, _written(33, **{"TWO-TERMINAL DC": line})), costs=10.0)
    (found,) = solve(problem, problem.nominal[None])
    drawn, arrives = (100.0 * found.y[problem.blocks[name]] for name in ("pdc_from", "pdc_to"))
    assert drawn == pytest.approx(20.0)
    current = arrives / 100.0  # kA at 100 kV
    assert drawn - arrives == pytest.approx(8.0 * current**2)
    assert (found.y[problem.blocks["qdc_from"]] < 0.0).all()
    source = "'V', 1, 2.0, 1, 1\n1, 1, 1, 150.0, 1.0, 100.0, 0.5, 0\n4, 2, 1, -10.0, 1.0, 100.0, 0.5, 0, 0, 0, 1, 9, -9"
    problem = load_problem(_file(tmp_path, _written(33, **{"VOLTAGE SOURCE CONVERTER": source})), costs=10.0)
    (found,) = solve(problem, problem.nominal[None])
    drawn, arrives = (100.0 * found.y[problem.blocks[name]] for name in ("pdc_from", "pdc_to"))
    lost = 2.0 / 15.0**2 + 2 * (100.0 + 0.5 * 1000.0 / 15.0) / 1000.0
    assert (drawn.item(), arrives.item()) == pytest.approx((10.0, 10.0 - lost))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"40.0, 12.0": "4O.0, 12.0"}, r"line 9: a load must be a number, and '4O.0' stands there \(field 6\)"),
        ({"BUS": "1, 'x', 220, 7"}, "the bus type must be 1, 2, 3 or 4, got 7"),
        ({"FACTS CONTROL DEVICE": "'F', 1, 0, 1, 0, 0"}, r"FACTS data\): a FACTS device, .*ignore=\"FACTS\""),
        ({"INDUCTION MACHINE": "1, '1', 1, 1"}, "an induction machine, which"),
        ({"'1', 2, 2, 2, 20000": "'1', 4, 2, 2, 20000"}, "CW is 4; CW and CZ are 1, 2 or 3"),
        ({"4, 2, 0, '1', 2": "4, 9, 0, '1', 2"}, "a transformer is at bus 9, which does not exist"),
        ({"TWO-TERMINAL DC": "'DC', 1"}, "come in three lines each, and there are 1"),
        ({"0 / END OF BRANCH": "/ END OF BRANCH"}, "ends the transformer data, and the branch data before"),
        ({"END OF LOAD DATA": "END OF LOAD DATA, BEGIN GENERATOR DATA"},
         r"line 11 begins 'GENERATOR' data, and line \d+ ends them as fixed shunt data; mend one"),
        ({"END OF BRANCH DATA": "END OF BRANCH DATA, BEGIN TRANFORMER DATA"}, "begins 'TRANFORMER' data, and line"),
        ({"0, 100.0, 33": "0, 100.0, 23"}, "it is of revision 23; 29 to 35 are read"),
        ({"0, 100.0, 33": "1, 100.0, 33"}, "it adds to another case"),
        ({"'1', 0.01, 0.08": "'1', 0.01, "}, "X is missing"),
        ({"3, '1', 1, 1, 1, 9.0": "2, '1', 1, 1, 1, 9.0"}, "line 10: this load stands in line 9 already"),
        ({"4, '1', 20.0": "1, 1, 20.0"}, "line 15: this generator stands in line 14 already"),
        ({"0, 0, 1, 1, 100, 90.0": "0, 0, 1, 3, 100, 90.0"}, "line 14: a status must be 0 or 1, got 3"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_by_line(change: dict[str, str], words: str, tmp_path: Path) -> None:
    with pytest.raises(FeasiblyError, match=words):
        read_grid(_file(tmp_path, _written(33, **change)), costs=10.0)


def test_names_to_leave_out_are_sections_that_can_be(tmp_path: Path) -> None:
    path = _file(tmp_path, _written(33, **{"FACTS CONTROL DEVICE": "'F', 1, 0, 1, 0, 0"}))
    assert "FACTS: 1 lines left out, as asked" in read_grid(path, costs=10.0, ignore="facts").warnings
    with pytest.raises(
        ProblemError, match="'load' cannot be left out of a RAW file; multi-terminal-DC, FACTS"
    ):
        read_grid(path, costs=10.0, ignore="FACTS,load")
    plain = read_grid(_file(tmp_path, _written(33)), costs=10.0, ignore="FACTS")
    assert "'FACTS' is to be left out, and the file holds none in service" in plain.warnings


def test_a_file_that_breaks_off(tmp_path: Path) -> None:
    text = _written(33)
    for at in range(0, text.index("END OF BRANCH"), 97):
        with pytest.raises(FeasiblyError):
            read_grid(_file(tmp_path, text[:at]), costs=10.0)
    with pytest.raises(ProblemError, match="generation costs: this file carries none"):
        read_grid(_file(tmp_path, text))
