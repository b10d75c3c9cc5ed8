"""Programs for lanes and their factorisation, against CasADi and NumPy."""

import casadi
import numpy as np
import pytest

from feasibly.solve.lanes.builder import ProgramBuilder
from feasibly.solve.lanes.evaluate import LaneFunction
from feasibly.solve.lanes.factors import analyse
from feasibly.solve.lanes.kernels import WIDTHS, workspace
from feasibly.solve.lanes.operations import CODES
from feasibly.solve.lanes.program import Layout, UnsupportedError, program

WIDTH = WIDTHS[0]

ONE = {
    "NEG": lambda a: -a, "SQ": lambda a: a**2, "TWICE": lambda a: a + a, "INV": lambda a: 1.0 / a,
    "SIGN": casadi.sign, "NOT": casadi.logic_not, "SQRT": casadi.sqrt, "FABS": casadi.fabs, "FLOOR": casadi.floor,
    "CEIL": casadi.ceil, "SIN": casadi.sin, "COS": casadi.cos, "TAN": casadi.tan, "ASIN": casadi.asin,
    "ACOS": casadi.acos, "ATAN": casadi.atan, "SINH": casadi.sinh, "COSH": casadi.cosh, "TANH": casadi.tanh,
    "ASINH": casadi.asinh, "ACOSH": casadi.acosh, "ATANH": casadi.atanh, "EXP": casadi.exp, "LOG": casadi.log,
    "ERF": casadi.erf, "LOG1P": casadi.log1p, "EXPM1": casadi.expm1,
}  # fmt: skip
TWO = {
    "ADD": lambda a, b: a + b, "SUB": lambda a, b: a - b, "MUL": lambda a, b: a * b, "DIV": lambda a, b: a / b,
    "POW": casadi.power, "ATAN2": casadi.atan2, "FMOD": casadi.fmod, "FMIN": casadi.fmin, "FMAX": casadi.fmax,
    "COPYSIGN": casadi.copysign, "HYPOT": casadi.hypot, "LT": casadi.lt, "LE": casadi.le, "EQ": casadi.eq,
    "NE": casadi.ne, "AND": casadi.logic_and, "OR": casadi.logic_or,
    "IF_ELSE_ZERO": lambda a, b: casadi.if_else(a, b, 0.0),
}  # fmt: skip
VALUES = np.array([-2.5, -1.0, -0.3, 0.0, 1e-3, 0.4, 1.0, 3.7, 40.0])


def test_every_operation_has_a_row_here():
    assert set(CODES) - {"ASSIGN", "CONSTPOW"} == set(ONE) | set(TWO)


@pytest.mark.parametrize("name", sorted(ONE))
def test_operations_of_one_number_are_those_of_casadi(name):
    a = casadi.SX.sym("a", 1)
    _compare(casadi.Function("f", [a], [ONE[name](a)]), VALUES[:, None])


@pytest.mark.parametrize("name", sorted(TWO))
def test_operations_of_two_numbers_are_those_of_casadi(name):
    a, b = casadi.SX.sym("a", 1), casadi.SX.sym("b", 1)
    first, second = (part.reshape(-1, 1) for part in np.meshgrid(VALUES, VALUES))
    _compare(casadi.Function("f", [a, b], [TWO[name](a, b)]), first, second)


def _compare(function, *columns):
    (found,) = LaneFunction(function)(*columns)
    wanted = [float(function(*row)) for row in zip(*(column.ravel() for column in columns), strict=True)]
    np.testing.assert_allclose(found.ravel(), wanted, rtol=1e-14, atol=0.0)


def test_long_programs_in_which_values_are_used_again_and_again():
    random = np.random.default_rng(5)
    x = casadi.SX.sym("x", 6)
    pool = [x[i] for i in range(6)]
    for _ in range(4000):
        a, b = (pool[int(i)] for i in random.integers(max(len(pool) - 300, 0), len(pool), 2))
        pool.append((a + b, a * 0.5 - b, a * b / (1.0 + a * a))[int(random.integers(3))])
    chosen = [pool[int(i)] for i in random.integers(0, len(pool), 200)] + [
        x[0],
        casadi.SX(3.0),
        pool[-1],
        pool[-1],
    ]
    function = casadi.Function("f", [x], [casadi.vertcat(*chosen)])
    rows = random.uniform(-1.0, 1.0, (11, 6))
    wanted = [np.array(function(row)).ravel() for row in rows]
    np.testing.assert_allclose(LaneFunction(function)(rows)[0], wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("size", [1e-8, 0.1, 1.0, 3.0, 1e3, 1e6, 1e12])
def test_sine_and_cosine_are_right_to_the_last_digit(size):
    angle = casadi.SX.sym("angle", 4)
    rows = LaneFunction(casadi.Function("f", [angle], [casadi.sin(angle), casadi.cos(angle)]))
    x = np.random.default_rng(3).uniform(-size, size, (999, 4))
    for found, wanted in zip(rows(x), (np.sin(x), np.cos(x)), strict=True):
        assert (np.abs(found - wanted) <= 2.0 * np.spacing(np.abs(wanted))).all()


def test_quarter_turns_and_what_is_no_angle():
    angle = casadi.SX.sym("angle")
    rows = LaneFunction(casadi.Function("f", [angle], [casadi.sin(angle), casadi.cos(angle)]))
    x = np.concatenate([0.25 * np.pi * np.arange(-9, 10), [0.0, np.nan, np.inf, -np.inf]])[:, None]
    with np.errstate(invalid="ignore"):
        for found, wanted in zip(rows(x), (np.sin(x), np.cos(x)), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-15, atol=1e-25)


def test_what_a_program_reads_it_may_not_write():
    x = casadi.SX.sym("x", 2)
    with pytest.raises(ValueError, match="cannot write what it reads"):
        program(Layout(), {"x": x}, {"x": 2.0 * x})


def test_operations_that_lanes_do_not_know_are_refused():
    x = casadi.SX.sym("x", 1)
    with pytest.raises(UnsupportedError):
        LaneFunction(casadi.Function("f", [x], [x.printme(x)]))


@pytest.mark.parametrize("seed", range(4))
def test_factors_solve_what_numpy_solves(seed):
    random = np.random.default_rng(seed)
    size, negative = 40, 12
    matrices = []
    pattern = (random.random((size, size)) < 0.06) | np.eye(size, dtype=bool)
    pattern |= pattern.T
    for _ in range(WIDTH):
        dense = np.where(pattern, random.standard_normal((size, size)), 0.0)
        dense = dense + dense.T
        signs = np.where(np.arange(size) < size - negative, 1.0, -1.0)
        matrices.append(dense + np.diag(signs * 40.0))
    rows, columns = np.nonzero(pattern.T)[::-1]
    sparsity = casadi.Sparsity.triplet(size, size, rows.tolist(), columns.tolist())
    factors = analyse(sparsity)
    values, inverses, right = (
        workspace(size, WIDTH) for size in (factors.values, factors.size + 1, factors.size)
    )
    row, column = np.array(sparsity.row())[factors.upper], np.array(sparsity.get_col())[factors.upper]
    wanted = random.standard_normal((size, WIDTH))
    for lane, matrix in enumerate(matrices):
        values[factors.entries, lane] = matrix[row, column]
        right[:, lane] = (matrix @ wanted[:, lane])[factors.order]
    factors.factor(values, inverses)()
    factors.substitute(values, inverses, right)()
    np.testing.assert_allclose(right, wanted[factors.order], rtol=1e-9, atol=1e-9)
    for lane, matrix in enumerate(matrices):
        assert inverses[-1, lane] == (np.linalg.eigvalsh(matrix) < 0.0).sum()


def test_temporary_columns_share_slots_only_when_nobody_reads_them_any_more():
    layout = Layout()
    for name in ("x", "y"):
        layout.add(name, 5)
    build = ProgramBuilder(layout)
    x, y = build.block("x"), build.block("y")
    kept = build.mul(x, 2.0)
    total = build.copy(y)
    for _ in range(20):
        total = build.fma(0.5, total, build.sub(kept, x))
    build.add(total, build.largest(build.apply("NEG", kept)), build.block("out", 5))
    build.add_product([0, 0, 3], [1, 2, 4], x[:3], y, build.block("out"))
    written = build.program()
    vectors = workspace(layout.size, WIDTH)
    for value, slot in layout.constants.items():
        vectors[slot] = value
    random = np.random.default_rng(0)
    a, b = random.standard_normal((2, 5, WIDTH))
    vectors[layout.blocks["x"]], vectors[layout.blocks["y"]] = a, b
    written.on(vectors)()
    total = b
    for _ in range(20):
        total = 0.5 * total + (2.0 * a - a)
    wanted = total + (-2.0 * a).max(axis=0)
    wanted[0] += a[0] * b[1] + a[1] * b[2]
    wanted[3] += a[2] * b[4]
    np.testing.assert_allclose(vectors[layout.blocks["out"]], wanted, rtol=1e-13, atol=1e-13)
    assert layout.size < 60
