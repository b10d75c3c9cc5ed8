"""The loop that runs a program of elementary operations on all lanes at once."""

from __future__ import annotations

import math
from typing import Any

from llvmlite import ir

from feasibly.solve.lanes._ir import DOUBLE, INT, LONG, Loops
from feasibly.solve.lanes.operations import (
    COMPARED,
    INTRINSIC,
    INTRINSIC_PAIR,
    LIBRARY,
    LIBRARY_PAIR,
    MULTIPLY_ADD,
    OPERATIONS,
)

_QUARTER = 1.5707963267948966, 6.123233995736766e-17, -1.4973849048591833e-33
"""A quarter turn, as the sum of three numbers: what is left of an angle is right to its last digit."""
_TERMS = 8
"""Of the power series of sine and cosine after the first, for half a quarter turn: the next one is below 1e-19."""


class ProgramLoop(Loops):
    """`run(runs, number of runs, workspace)`: see `program.Program`."""

    def write(self) -> None:
        """Runs of one operation each: its code, how many, then for each of them a result's slot and two arguments'."""
        words, vectors = INT.as_pointer(), self._vector.as_pointer()
        function, (runs, count, vector) = self._begin("run", words, LONG, vectors)
        b = ir.IRBuilder(function.append_basic_block("entry"))
        entry, head, known, done, following = (
            b.block,
            *(function.append_basic_block(name) for name in ("head", "known", "done", "following")),
        )
        b.branch(head)
        b.position_at_end(head)
        number, at = b.phi(LONG), b.phi(LONG)
        for phi in (number, at):
            phi.add_incoming(LONG(0), entry)
        b.cbranch(b.icmp_unsigned("<", number, count), known, done)
        b.position_at_end(known)
        code = b.load(b.gep(runs, [at]))
        length = b.zext(b.load(b.gep(runs, [b.add(at, LONG(1))])), LONG)
        first = b.add(at, LONG(2))
        end = b.add(first, b.mul(length, LONG(3)))
        b.branch(choose := function.append_basic_block("choose"))
        b.position_at_end(choose)
        switch = b.switch(code, following)
        for value, name in [*OPERATIONS.items(), (MULTIPLY_ADD, "MULTIPLY_ADD")]:
            block = function.append_basic_block(name)
            switch.add_case(INT(value), block)
            b.position_at_end(block)
            self._repeat(b, name, runs, vector, first, end, following)
        b.position_at_end(following)
        number.add_incoming(b.add(number, LONG(1)), following)
        at.add_incoming(end, following)
        b.branch(head)
        b.position_at_end(done)
        b.ret_void()

    def _repeat(
        self, b: Any, name: str, runs: Any, vector: Any, first: Any, end: Any, following: Any
    ) -> None:
        """One operation for the words from `first` to `end`."""
        before, body = b.block, b.append_basic_block(f"{name}.body")
        b.branch(body)
        b.position_at_end(body)
        at = b.phi(LONG)
        at.add_incoming(first, before)
        slots = [b.zext(b.load(b.gep(runs, [b.add(at, LONG(k))])), LONG) for k in range(3)]
        arguments = [self._load(b, vector, slot) for slot in slots[1:]]
        if name == "MULTIPLY_ADD":
            sum_ = self._load(b, vector, slots[0])
            result = b.call(self._intrinsic("fma", 3), [*arguments, sum_])
        else:
            result = self._operation(b, name, *arguments)
        self._store(b, result, vector, slots[0])
        later = b.add(at, LONG(3))
        at.add_incoming(later, b.block)
        b.cbranch(b.icmp_unsigned("<", later, end), body, following)

    def _operation(self, b: Any, name: str, first: Any, second: Any) -> Any:
        plain = {"ADD": b.fadd, "SUB": b.fsub, "MUL": b.fmul, "DIV": b.fdiv}
        zero, one = self._all_lanes(0.0), self._all_lanes(1.0)

        def flag(choice: Any) -> Any:
            return b.select(choice, one, zero)

        if name in plain:
            return plain[name](first, second)
        if name in INTRINSIC:
            return b.call(self._intrinsic(INTRINSIC[name], 1), [first])
        if name in INTRINSIC_PAIR:
            return b.call(self._intrinsic(INTRINSIC_PAIR[name], 2), [first, second])
        if name in ("SIN", "COS"):
            return self._sine(b, first, 0.0 if name == "SIN" else 1.0)
        if name in LIBRARY:
            return self._one_by_one(b, LIBRARY[name], first)
        if name in LIBRARY_PAIR:
            return self._one_by_one(b, LIBRARY_PAIR[name], first, second)
        if name in COMPARED:
            compare = b.fcmp_unordered if name == "NE" else b.fcmp_ordered
            return flag(compare(COMPARED[name], first, second))
        some, other = (b.fcmp_unordered("!=", part, zero) for part in (first, second))
        rest = {
            "ASSIGN": lambda: first,
            "NEG": lambda: b.fneg(first),
            "SQ": lambda: b.fmul(first, first),
            "TWICE": lambda: b.fadd(first, first),
            "INV": lambda: b.fdiv(one, first),
            "SIGN": lambda: b.fsub(
                flag(b.fcmp_ordered(">", first, zero)), flag(b.fcmp_ordered("<", first, zero))
            ),
            "NOT": lambda: flag(b.fcmp_ordered("==", first, zero)),
            "AND": lambda: flag(b.and_(some, other)),
            "OR": lambda: flag(b.or_(some, other)),
            "IF_ELSE_ZERO": lambda: b.select(some, second, zero),
        }
        return rest[name]()

    def _sine(self, b: Any, angle: Any, quarters: float) -> Any:
        """The sine of an angle and so many quarter turns: all lanes at once, where the C library takes one by one."""
        every = self._all_lanes
        fma, whole, down = (self._intrinsic(*which) for which in (("fma", 3), ("rint", 1), ("floor", 1)))
        turns = b.call(whole, [b.fmul(angle, every(2.0 / math.pi))])
        rest = angle
        for part in _QUARTER:
            rest = b.call(fma, [turns, every(-part), rest])
        square = b.fmul(rest, rest)

        def series(first: int) -> Any:
            """`1/first! - square/(first + 2)! + ...`"""
            total = every(0.0)
            for k in range(_TERMS - 1, -1, -1):
                total = b.call(fma, [total, square, every((-1.0) ** k / math.factorial(first + 2 * k))])
            return total

        sine = b.call(fma, [b.fmul(rest, square), b.fneg(series(3)), rest])
        cosine = b.call(fma, [square, b.fneg(series(2)), every(1.0)])
        turns = b.fadd(turns, every(quarters))
        half = b.fmul(turns, every(0.5))
        odd = b.fcmp_ordered("!=", half, b.call(down, [half]))
        halves = b.fmul(b.call(down, [half]), every(0.5))
        result = b.select(odd, cosine, sine)
        return b.select(b.fcmp_ordered("!=", halves, b.call(down, [halves])), b.fneg(result), result)

    def _one_by_one(self, b: Any, name: str, *arguments: Any) -> Any:
        """A function of the C library, lane after lane."""
        function = self._declared(name, ir.FunctionType(DOUBLE, [DOUBLE] * len(arguments)))
        result = ir.Constant(self._vector, ir.Undefined)
        for lane in range(self._width):
            values = [b.extract_element(argument, INT(lane)) for argument in arguments]
            result = b.insert_element(result, b.call(function, values), INT(lane))
        return result
