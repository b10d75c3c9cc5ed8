"""CasADi's expressions as programs for lanes.

A program is a list of runs: operations of one kind that do not wait for one another, so that nothing has to be decided
between them. Inputs, constants and outputs have their own slots of the workspace and are read and written there.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import casadi
import numpy as np

from feasibly.solve.lanes.kernels import Slots, Workspace, kernels
from feasibly.solve.lanes.operations import OPERATIONS

_WINDOW = 1024
"""Operations among which runs are gathered: wider windows make longer runs of values that wait longer for their use."""
_ASSIGN = casadi.OP_ASSIGN
_COMMUTE = frozenset({casadi.OP_ADD, casadi.OP_MUL})


class UnsupportedError(Exception):
    """The expression has an operation that lanes do not know."""


@dataclass(frozen=True, eq=False)
class Program:
    """Operations on slots of one workspace."""

    words: Slots
    """Of each run its operation's code and how many there are, then of each a result's slot and two arguments'."""
    runs: int
    operations: int

    def on(self, vectors: Workspace) -> Callable[[], None]:
        """What runs it on this workspace; the addresses are looked up once."""
        run, count = kernels(vectors.shape[1]).run, self.runs
        words, address = self.words.ctypes.data, vectors.ctypes.data
        return lambda: run(words, count, address)


class Layout:
    """Which slots of a workspace are whose: named blocks, constants, and temporaries of programs."""

    def __init__(self) -> None:
        self.blocks: dict[str, slice] = {}
        self.constants: dict[float, int] = {}
        self.size = 0
        self._temporaries: list[int] = []

    def copy(self) -> Layout:
        """Another that begins with the same: programs of this one run on a workspace of that one too."""
        other = Layout()
        other.blocks, other.constants = dict(self.blocks), dict(self.constants)
        other.size, other._temporaries = self.size, list(self._temporaries)
        return other

    def add(self, name: str, size: int) -> slice:
        """The slots of a block, which is made with this size if it is not there."""
        if name not in self.blocks:
            self.blocks[name] = slice(self.size, self.size + size)
            self.size += size
        return self.blocks[name]

    def constant(self, value: float) -> int:
        """The slot of this number."""
        if value not in self.constants:
            self.constants[value] = self.size
            self.size += 1
        return self.constants[value]

    def temporary(self, number: int) -> int:
        """The slot of the `number`th temporary value; programs share them."""
        while len(self._temporaries) <= number:
            self._temporaries.append(self.size)
            self.size += 1
        return self._temporaries[number]


def program(layout: Layout, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> Program:
    """A program that writes expressions into blocks.

    Args:
        layout: of the workspace; blocks, constants and temporaries are added to it.
        inputs: symbols by the name of the block they are read from.
        outputs: dense columns by the name of the block they are written to.

    Raises:
        UnsupportedError: an expression has an operation that lanes do not know.
    """
    if both := set(inputs) & set(outputs):
        raise ValueError(f"a program cannot write what it reads: {sorted(both)}")
    function = casadi.Function("program", list(inputs.values()), list(outputs.values()))
    where_in = [layout.add(name, symbol.nnz()).start for name, symbol in inputs.items()]
    where_out = [layout.add(name, value.nnz()).start for name, value in outputs.items()]
    values = _values(function, layout, where_in, where_out)
    return _scheduled(values, layout)


@dataclass(frozen=True, eq=False)
class _Values:
    """Operations in single-assignment form.

    Arguments are operations (their number) or slots (minus one minus the slot). `homes` has the slot a result goes to,
    or -1 for a temporary one.
    """

    codes: list[int]
    first: list[int]
    second: list[int]
    homes: list[int]


def _values(function: Any, layout: Layout, where_in: list[int], where_out: list[int]) -> _Values:
    codes: list[int] = []
    first: list[int] = []
    second: list[int] = []
    homes: list[int] = []
    register = [0] * function.sz_w()
    known: dict[tuple[int, int, int], int] = {}  # what has been computed before need not be again
    for k in range(function.n_instructions()):
        code = function.instruction_id(k)
        reads, writes = function.instruction_input(k), function.instruction_output(k)
        if code == casadi.OP_INPUT:
            register[writes[0]] = -1 - (where_in[reads[0]] + reads[1])
        elif code == casadi.OP_CONST:
            register[writes[0]] = -1 - layout.constant(function.instruction_constant(k))
        elif code == casadi.OP_OUTPUT:
            slot, value = where_out[writes[0]] + writes[1], register[reads[0]]
            if value >= 0 and homes[value] < 0:
                homes[value] = slot
            else:
                codes.append(_ASSIGN)
                first.append(value)
                second.append(value)
                homes.append(slot)
        elif code in OPERATIONS:
            a = register[reads[0]]
            b = register[reads[1]] if len(reads) > 1 else a
            if code in _COMMUTE and b < a:
                a, b = b, a
            value = known.setdefault((code, a, b), len(codes))
            register[writes[0]] = value
            if value == len(codes):
                codes.append(code)
                first.append(a)
                second.append(b)
                homes.append(-1)
        else:
            raise UnsupportedError(f"operation {code} of CasADi")
    return _Values(codes, first, second, homes)


def _scheduled(values: _Values, layout: Layout) -> Program:
    codes, first, second = values.codes, values.first, values.second
    count = len(codes)
    level = [0] * count
    for k in range(count):
        begins = k - k % _WINDOW
        a, b = first[k], second[k]
        above = level[a] + 1 if a >= begins else 0
        other = level[b] + 1 if b >= begins else 0
        level[k] = above if above > other else other
    order = np.lexsort((np.array(codes), np.array(level), np.arange(count) // _WINDOW)).tolist()
    last = _last_uses(values, order)
    slot = list(values.homes)
    free: list[int] = []
    used = 0
    words: list[int] = []
    runs = 0
    for code, group in itertools.groupby(order, key=codes.__getitem__):
        members = list(group)
        runs += 1
        words += (code, len(members))
        for k in members:
            a, b = first[k], second[k]
            at = -1 - a if a < 0 else slot[a], -1 - b if b < 0 else slot[b]
            for value in {a, b}:
                if value >= 0 and last[value] == k and values.homes[value] < 0:
                    free.append(slot[value])
            if slot[k] < 0:
                if free:
                    slot[k] = free.pop()
                else:
                    slot[k] = layout.temporary(used)
                    used += 1
            words += (slot[k], *at)
    return Program(np.array(words, dtype=np.int32), runs, count)


def _last_uses(values: _Values, order: list[int]) -> list[int]:
    """The last operation, in this order, that reads each value; -1 for what nothing reads."""
    last = [-1] * len(order)
    for k in order:
        for value in (values.first[k], values.second[k]):
            if value >= 0:
                last[value] = k
    return last


def entries(matrix: Any) -> Any:
    """The entries of a sparse matrix as a dense column."""
    column = casadi.vertcat(*matrix.nonzeros()) if matrix.nnz() else casadi.SX(0, 1)
    return casadi.reshape(column, matrix.nnz(), 1)
