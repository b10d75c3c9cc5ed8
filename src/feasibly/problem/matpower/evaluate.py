"""What a MATPOWER file computes, by an arithmetic of its own: nothing of the file is ever run.

A value that cannot be computed does not stop the reading: whatever is set from it is marked, and the mark is
passed on to all that uses it, so that a name nobody needs harms nobody and a table that needs it is refused.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from feasibly.problem.matpower.columns import INDICES
from feasibly.problem.matpower.functions import FUNCTIONS, NUMBERS, OPERATORS, scalar
from feasibly.problem.matpower.parse import Choice, Expression, Program, Statement
from feasibly.problem.matpower.tokens import MatlabError, Matrix

Value = Any
"""A matrix, a string, a `Cell`, a structure (a dictionary) or an `Unknown`."""

_SILENT = ("disp", "fprintf", "printf", "warning", "clc", "more", "format")
"""Commands that change nothing."""


@dataclass(frozen=True)
class Unknown:
    """What could not be computed, and why."""

    line: int
    what: str


@dataclass(frozen=True)
class Cell:
    """A cell array; nothing here needs what is in one."""


@dataclass(frozen=True)
class Outcome:
    """What a program leaves behind."""

    names: dict[str, Value]
    faults: list[MatlabError]
    """The commands that could not be followed."""
    lines: dict[str, list[int]]
    """Where each name or field is set as a whole: `mpc.bus` or, in files of version 1, `bus`."""


def run(program: Program) -> Outcome:
    """Follow a program to its end."""
    machine = _Machine()
    machine.block(program.body)
    return Outcome(machine.names, machine.faults, machine.lines)


class _Machine:
    def __init__(self) -> None:
        self.names: dict[str, Value] = {}
        self.faults: list[MatlabError] = []
        self.lines: dict[str, list[int]] = {}
        self.ends: list[int] = []

    # ---- statements ------------------------------------------------------------------------------------

    def block(self, body: tuple[Any, ...]) -> None:
        for statement in body:
            try:
                if isinstance(statement, Choice):
                    self.choose(statement)
                else:
                    self.perform(statement)
            except MatlabError as error:
                self.faults.append(error)

    def choose(self, choice: Choice) -> None:
        for condition, body in choice.branches:
            if condition is None or self.holds(condition, choice.line):
                self.block(body)
                return

    def holds(self, condition: Expression, line: int) -> bool:
        value = self.matrix(condition, line)
        return bool(value.size and np.all(value != 0.0))

    def perform(self, statement: Statement) -> None:
        line, value = statement.line, statement.value
        if not statement.targets:
            self.command(value, line)
            return
        if len(statement.targets) > 1 or (value[0] == "name" and value[1] in INDICES):
            self.constants(statement)
            return
        try:
            found = self.evaluate(value, line)
        except MatlabError as error:
            found = Unknown(error.line, error.what)
        target = statement.targets[0]
        self.assign(target, found, line, erase=value[0] == "table" and value[1].size == 0)
        if target[0] == "name":
            self.lines.setdefault(target[1], []).append(line)
        elif target[0] == "field" and target[1][0] == "name":
            self.lines.setdefault(f"{target[1][1]}.{target[2]}", []).append(line)

    def command(self, value: Expression, line: int) -> None:
        called = value[1] if value[0] == "call" else value
        name = called[1] if called[0] == "name" else ""
        if name == "define_constants" and value[0] == "name":
            for table in INDICES.values():
                self.names |= {key: scalar(number) for key, number in table}
        elif name not in _SILENT and self.root(value) not in self.names:
            what = f"calls {name!r}" if name else "is a command"
            raise MatlabError(line, f"{what}, which is not computed here")

    def root(self, value: Expression) -> str:
        while value[0] in ("call", "field"):
            value = value[1]
        return str(value[1]) if value[0] == "name" else ""

    def constants(self, statement: Statement) -> None:
        """`[PQ, PV, REF, ...] = idx_bus`: the names may be others, their order is what counts."""
        value = statement.value
        table = INDICES.get(str(value[1])) if value[0] == "name" else None
        for i, target in enumerate(statement.targets):
            if target[1] == "~":
                continue
            if table is None:
                name = self.root(value)
                self.assign(target, Unknown(statement.line, f"is set by {name!r}, which is not computed here"),
                            statement.line)  # fmt: skip
            elif i >= len(table):
                raise MatlabError(statement.line, f"{value[1]} has {len(table)} values, not {i + 1}")
            else:
                self.assign(target, scalar(table[i][1]), statement.line)

    def assign(self, target: Expression, value: Value, line: int, *, erase: bool = False) -> None:
        if target[0] == "name":
            self.names[target[1]] = value
            return
        if target[0] == "field":
            try:
                holder = self.structure(target[1], line)
            except MatlabError as error:
                self.assign(_whole(target[1]), Unknown(error.line, error.what), line)
                return
            if holder is not None:
                holder[target[2]] = value
            return
        whole = target[1]
        try:
            held = self.evaluate(whole, line)
            if isinstance(value, Unknown):
                raise MatlabError(value.line, value.what)
            changed = self.with_part(held, target[2], value, line, erase)
        except MatlabError as error:
            self.assign(whole, Unknown(error.line, error.what), line)
            return
        self.assign(whole, changed, line)

    def structure(self, target: Expression, line: int) -> dict[str, Value] | None:
        """The structure that a field is set in, made where there is none; `None` within an unknown one."""
        if target[0] == "name":
            found = self.names.setdefault(target[1], {})
        elif target[0] == "field":
            holder = self.structure(target[1], line)
            if holder is None:
                return None
            found = holder.setdefault(target[2], {})
        else:
            raise MatlabError(line, "a part of a list of structures is not computed here")
        if isinstance(found, Unknown):
            return None
        if not isinstance(found, dict):
            raise MatlabError(line, "sets a field of what is no structure")
        return found

    def with_part(self, held: Value, where: Any, value: Value, line: int, erase: bool) -> Matrix:
        if not isinstance(held, np.ndarray):
            raise MatlabError(line, "sets a part of what is no table")
        index = self.index(held, where, line)
        if erase:
            return _erased(held, index, where, line)
        if not isinstance(value, np.ndarray):
            raise MatlabError(line, "sets a part of a table to what is no number")
        changed = held.copy()
        shape = changed[index].shape
        if value.size != 1 and value.shape != shape:
            raise MatlabError(line, f"sets a part of shape {shape} to a table of shape {value.shape}")
        changed[index] = value.reshape(()) if value.size == 1 else value
        return changed

    # ---- expressions -----------------------------------------------------------------------------------

    def matrix(self, expression: Expression, line: int) -> Matrix:
        value = self.evaluate(expression, line)
        if not isinstance(value, np.ndarray):
            raise MatlabError(line, "computes with what is no number")
        return value

    def evaluate(self, expression: Expression, line: int) -> Value:
        kind = expression[0]
        if kind == "number":
            return scalar(expression[1])
        if kind in ("string", "table"):
            return expression[1]
        if kind == "group":
            return self.evaluate(expression[1], line)
        if kind == "name":
            return self.named(expression, line)
        if kind == "field":
            return self.field(expression, line)
        if kind == "call":
            return self.call(expression, line)
        if kind in ("cell", "names"):
            return Cell()
        if kind == "handle":
            raise MatlabError(line, "uses a function handle, which is not computed here")
        if kind == "matrix":
            return self.joined(expression[1], line)
        if kind == "transpose":
            return np.ascontiguousarray(self.matrix(expression[1], line).T)
        if kind == "unary":
            value = self.matrix(expression[2], line)
            if expression[1] in ("~", "!"):
                return value == 0.0
            return -_numbers(value) if expression[1] == "-" else _numbers(value)
        if kind == "binary":
            return self.binary(expression, line)
        raise MatlabError(line, "':' stands where a value is expected")

    def named(self, expression: Expression, line: int) -> Value:
        name = expression[1]
        if name in self.names:
            return _known(self.names[name])
        if name == "end" and self.ends:
            return scalar(self.ends[-1])
        if name in NUMBERS:
            return np.array([[NUMBERS[name]]])
        raise MatlabError(line, f"calls {name!r}, which is not computed here")

    def field(self, expression: Expression, line: int) -> Value:
        holder = self.evaluate(expression[1], line)
        if not isinstance(holder, dict) or expression[2] not in holder:
            raise MatlabError(line, f"uses the field {expression[2]!r}, which is not set before")
        return _known(holder[expression[2]])

    def call(self, expression: Expression, line: int) -> Value:
        called, arguments = expression[1], expression[2]
        if called[0] == "name" and called[1] not in self.names:
            name = called[1]
            if name not in FUNCTIONS:
                raise MatlabError(line, f"calls {name!r}, which is not computed here")
            given = [self.matrix(argument, line) for argument in arguments]
            try:
                with np.errstate(all="ignore"):
                    found = np.asarray(FUNCTIONS[name](*(_numbers(value) for value in given)))
            except (TypeError, ValueError, IndexError):
                raise MatlabError(line, f"calls {name!r} in a way that is not computed here") from None
            found = found if found.dtype == np.bool_ else _numbers(found)
            return found.reshape(1, 1) if found.ndim == 0 else found
        held = self.evaluate(called, line)
        if not isinstance(held, np.ndarray):
            raise MatlabError(line, "takes a part of what is no table")
        found = held[self.index(held, arguments, line)]
        if found.ndim == 1:
            found = found.reshape((1, -1) if held.shape[0] == 1 else (-1, 1))
        return found

    def index(self, held: Matrix, where: Any, line: int) -> Any:
        """NumPy's index for MATLAB's: from one, both ends in, columns first for a single one."""
        if len(where) == 2:
            axes = [self.axis(where[i], held.shape[i], line) for i in (0, 1)]
            return np.ix_(*axes)
        if len(where) != 1:
            raise MatlabError(line, "a table has two indices")
        axis = self.axis(where[0], held.size, line)
        return np.unravel_index(axis, held.shape, order="F")

    def axis(self, where: Expression, size: int, line: int) -> Any:
        if where[0] == "all":
            return np.arange(size)
        self.ends.append(size)
        try:
            value = self.matrix(where, line).ravel(order="F")
        finally:
            self.ends.pop()
        if value.dtype == np.bool_:
            if len(value) != size:
                raise MatlabError(line, f"a condition on {len(value)} rows picks from {size}")
            return np.flatnonzero(value)
        if not np.all((value == np.round(value)) & (value >= 1) & (value <= size)):
            raise MatlabError(line, f"an index lies outside 1 to {size}")
        return value.astype(np.int64) - 1

    def joined(self, rows: Any, line: int) -> Matrix:
        found = []
        for row in rows:
            cells = [self.matrix(cell, line) for cell in row]
            cells = [cell for cell in cells if cell.size]
            if cells and len({len(cell) for cell in cells}) > 1:
                raise MatlabError(line, "a row of a table joins parts of different heights")
            if cells:
                found.append(np.concatenate(cells, axis=1))
        if len({part.shape[1] for part in found}) > 1:
            raise MatlabError(line, "the rows of a table have different lengths")
        return np.concatenate(found) if found else np.zeros((0, 0))

    def binary(self, expression: Expression, line: int) -> Matrix:
        sign = expression[1]
        left = self.matrix(expression[2], line)
        if sign in ("&&", "||"):
            first = bool(left.size and np.all(left != 0.0))
            return np.array([[first if first == (sign == "||") else self.holds(expression[3], line)]])
        if sign == ":":
            return self.span(expression, line)
        right = self.matrix(expression[3], line)
        if sign in ("*", "/", "^") and not (left.size == 1 and right.size == 1):
            if sign == "^" or (sign == "/" and right.size != 1):
                raise MatlabError(
                    line, f"a matrix {sign!r} a matrix is not computed here; for each entry write '.{sign}'"
                )
            if sign == "*" and left.size != 1 and right.size != 1:
                if left.shape[1] != right.shape[0]:
                    raise MatlabError(line, f"multiplies tables of shapes {left.shape} and {right.shape}")
                return _numbers(left) @ _numbers(right)
        try:
            with np.errstate(all="ignore"):
                return np.asarray(OPERATORS[sign](_numbers(left), _numbers(right)))
        except ValueError:
            raise MatlabError(line, f"joins tables of shapes {left.shape} and {right.shape}") from None

    def span(self, expression: Expression, line: int) -> Matrix:
        """`a:b` and `a:step:b`, which parse as `(a:step):b`."""
        ends = []
        inner = expression
        while inner[0] == "binary" and inner[1] == ":":
            ends.append(inner[3])
            inner = inner[2]
        ends.append(inner)
        values = [float(self.matrix(end, line).reshape(-1)[0]) for end in reversed(ends)]
        if len(values) > 3 or not all(math.isfinite(value) for value in values):
            raise MatlabError(line, "a range has a first, a step and a last value")
        first, last = values[0], values[-1]
        step = values[1] if len(values) == 3 else 1.0
        count = math.floor((last - first) / step + 1e-10) + 1 if step else 0
        if count > 10_000_000:
            raise MatlabError(line, "a range is too long")
        return (first + step * np.arange(max(count, 0), dtype=np.float64)).reshape(1, -1)


def _known(value: Value) -> Value:
    if isinstance(value, Unknown):
        raise MatlabError(value.line, value.what)
    return value


def _whole(target: Expression) -> Expression:
    """The table that a part is of."""
    while target[0] == "call":
        target = target[1]
    return target


def _numbers(value: Matrix) -> Matrix:
    """Conditions count as zero and one in arithmetic; as an index they pick."""
    return value.astype(np.float64) if value.dtype == np.bool_ else np.asarray(value, dtype=np.float64)


def _erased(held: Matrix, index: Any, where: Any, line: int) -> Matrix:
    if len(where) != 2 or (where[0][0] != "all" and where[1][0] != "all"):
        raise MatlabError(line, "only whole rows or columns can be taken out")
    axis = 0 if where[1][0] == "all" else 1
    return np.delete(held, index[axis].ravel(), axis=axis)
