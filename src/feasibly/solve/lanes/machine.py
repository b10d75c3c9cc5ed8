"""The loops that work on all lanes: a program of elementary operations, a factorisation, its substitution.

They are written in LLVM's own language (by llvmlite), where a vector of lanes is a type, and compiled for this very
processor in less than a tenth of a second; nothing is kept on disk. All of them work on one memory of vectors, and what
they read (see `program` and `factors`) are places in it.
"""

from __future__ import annotations

import contextlib
import ctypes
import ctypes.util
import functools
import math
import threading
from collections.abc import Callable
from typing import Any

import casadi
import numpy as np
from llvmlite import binding, ir
from numpy.typing import NDArray

WIDTHS = 8, 16, 32
"""Rows at a time. Eight is what one AVX-512 register holds, or two AVX registers; more pays for small problems, whose
operations take less time than asking for them."""
_ALIGNMENT = 64

_INT, _LONG, _DOUBLE = ir.IntType(32), ir.IntType(64), ir.DoubleType()

_INTRINSIC = {"SQRT": "sqrt", "FABS": "fabs", "FLOOR": "floor", "CEIL": "ceil"}
_INTRINSIC_PAIR = {"FMIN": "minnum", "FMAX": "maxnum", "COPYSIGN": "copysign"}
_LIBRARY = {
    "TAN": "tan", "ASIN": "asin", "ACOS": "acos", "ATAN": "atan", "SINH": "sinh",
    "COSH": "cosh", "TANH": "tanh", "ASINH": "asinh", "ACOSH": "acosh", "ATANH": "atanh", "EXP": "exp", "LOG": "log",
    "ERF": "erf", "LOG1P": "log1p", "EXPM1": "expm1",
}  # fmt: skip
_LIBRARY_PAIR = {"POW": "pow", "CONSTPOW": "pow", "ATAN2": "atan2", "FMOD": "fmod", "HYPOT": "hypot"}
_COMPARED = {"LT": "<", "LE": "<=", "EQ": "==", "NE": "!="}
_OTHER = (
    "ASSIGN", "ADD", "SUB", "MUL", "DIV", "NEG", "SQ", "TWICE", "INV", "SIGN", "NOT", "AND", "OR", "IF_ELSE_ZERO",
    "SIN", "COS",
)  # fmt: skip
_QUARTER = 1.5707963267948966, 6.123233995736766e-17, -1.4973849048591833e-33
"""A quarter turn, as the sum of three numbers: what is left of an angle is right to its last digit."""
_TERMS = 8
"""Of the power series of sine and cosine after the first, for half a quarter turn: the next one is below 1e-19."""
MULTIPLY_ADD = 1000
"""Beside CasADi's codes: the product of the arguments is added to what stands in the result's place."""


def _found(name: str) -> bool:
    """Whether a function of the C library is there to be called: LLVM ends the process over one that is not."""
    if binding.address_of_symbol(name) is None:
        for library in (None, ctypes.util.find_library("m")):
            with contextlib.suppress(OSError, AttributeError, TypeError):
                function = getattr(ctypes.CDLL(library), name)
                binding.add_symbol(name, ctypes.cast(function, ctypes.c_void_p).value)
                return True
        return False
    return True


_LIBRARY = {name: own for name, own in _LIBRARY.items() if _found(own)}
_LIBRARY_PAIR = {name: own for name, own in _LIBRARY_PAIR.items() if _found(own)}
OPERATIONS: dict[int, str] = {
    getattr(casadi, f"OP_{name}"): name
    for name in (*_OTHER, *_INTRINSIC, *_INTRINSIC_PAIR, *_LIBRARY, *_LIBRARY_PAIR, *_COMPARED)
    if hasattr(casadi, f"OP_{name}")
}
"""CasADi's codes of the operations that lanes know."""
CODES = {name: code for code, name in OPERATIONS.items()}

Memory = NDArray[np.float64]
Places = NDArray[np.int32]


def memory(size: int, width: int) -> Memory:
    """`(size, width)` zeros that begin where a vector may."""
    raw = np.zeros(size * width + _ALIGNMENT // 8)
    first = (-raw.ctypes.data % _ALIGNMENT) // 8
    return raw[first : first + size * width].reshape(size, width)


class Machine:
    """The compiled loops for lanes of one width. Whoever calls them keeps the arrays at the addresses alive."""

    def __init__(self, width: int) -> None:
        binding.initialize_native_target()
        binding.initialize_native_asmprinter()
        target = binding.Target.from_default_triple().create_target_machine(
            cpu=binding.get_host_cpu_name(), features=binding.get_host_cpu_features().flatten(), opt=3
        )
        parsed = binding.parse_assembly(_Module(width).text())
        parsed.verify()
        builder = binding.create_pass_builder(target, binding.create_pipeline_tuning_options(speed_level=2))
        builder.getModulePassManager().run(parsed, builder)
        self._engine = binding.create_mcjit_compiler(parsed, target)
        self._engine.finalize_object()
        self.run = self._function("run", 3)
        """`(runs, number of runs, memory)`: see `program.Program`."""
        self.factor = self._function("factor", 5)
        """`(columns, targets, size, values, inverses)`: see `factors.Factors`."""
        self.substitute = self._function("substitute", 6)
        """`(columns, rows, size, values, inverses, right-hand side)`, which the solution replaces."""
        self.forward = self._function("forward", 5)
        self.backward = self._function("backward", 6)
        """`(columns, rows, size, values, [inverses,] right-hand side)`: see `triangular.Triangles`."""

    def _function(self, name: str, arguments: int) -> Callable[..., None]:
        kind = ctypes.CFUNCTYPE(None, *([ctypes.c_void_p] * arguments))
        return kind(self._engine.get_function_address(name))


_LOCK = threading.Lock()


def machine(width: int) -> Machine:
    """The one of this process."""
    with _LOCK:
        return _machine(width)


@functools.cache
def _machine(width: int) -> Machine:
    return Machine(width)


class _Module:
    """Writes the loops down."""

    def __init__(self, width: int) -> None:
        self._width, self._vector = width, ir.VectorType(_DOUBLE, width)
        self.module = ir.Module("lanes")
        self._declared: dict[str, Any] = {}
        self._run()
        self._factor()
        self._substitute()
        self._forward()
        self._backward()

    def text(self) -> str:
        return str(self.module)

    # ---- a program of elementary operations ------------------------------------------------------------

    def _run(self) -> None:
        """Runs of one operation each: its code, how many, then for each of them a result's place and two arguments'."""
        words, vectors = _INT.as_pointer(), self._vector.as_pointer()
        function, (runs, count, vector) = self._begin("run", words, _LONG, vectors)
        b = ir.IRBuilder(function.append_basic_block("entry"))
        entry, head, known, done, following = (
            b.block,
            *(function.append_basic_block(name) for name in ("head", "known", "done", "following")),
        )
        b.branch(head)
        b.position_at_end(head)
        number, at = b.phi(_LONG), b.phi(_LONG)
        for phi in (number, at):
            phi.add_incoming(_LONG(0), entry)
        b.cbranch(b.icmp_unsigned("<", number, count), known, done)
        b.position_at_end(known)
        code = b.load(b.gep(runs, [at]))
        length = b.zext(b.load(b.gep(runs, [b.add(at, _LONG(1))])), _LONG)
        first = b.add(at, _LONG(2))
        end = b.add(first, b.mul(length, _LONG(3)))
        b.branch(choose := function.append_basic_block("choose"))
        b.position_at_end(choose)
        switch = b.switch(code, following)
        for value, name in [*OPERATIONS.items(), (MULTIPLY_ADD, "MULTIPLY_ADD")]:
            block = function.append_basic_block(name)
            switch.add_case(_INT(value), block)
            b.position_at_end(block)
            self._repeat(b, name, runs, vector, first, end, following)
        b.position_at_end(following)
        number.add_incoming(b.add(number, _LONG(1)), following)
        at.add_incoming(end, following)
        b.branch(head)
        b.position_at_end(done)
        b.ret_void()

    def _repeat(
        self, b: Any, name: str, runs: Any, vector: Any, first: Any, end: Any, following: Any
    ) -> None:
        """One operation for places `first` to `end`."""
        before, body = b.block, b.append_basic_block(f"{name}.body")
        b.branch(body)
        b.position_at_end(body)
        at = b.phi(_LONG)
        at.add_incoming(first, before)
        places = [b.zext(b.load(b.gep(runs, [b.add(at, _LONG(k))])), _LONG) for k in range(3)]
        arguments = [self._load(b, vector, place) for place in places[1:]]
        if name == "MULTIPLY_ADD":
            sum_ = self._load(b, vector, places[0])
            result = b.call(self._intrinsic("fma", 3), [*arguments, sum_])
        else:
            result = self._operation(b, name, *arguments)
        self._store(b, result, vector, places[0])
        later = b.add(at, _LONG(3))
        at.add_incoming(later, b.block)
        b.cbranch(b.icmp_unsigned("<", later, end), body, following)

    def _operation(self, b: Any, name: str, first: Any, second: Any) -> Any:
        plain = {"ADD": b.fadd, "SUB": b.fsub, "MUL": b.fmul, "DIV": b.fdiv}
        zero, one = (ir.Constant(self._vector, [value] * self._width) for value in (0.0, 1.0))

        def flag(choice: Any) -> Any:
            return b.select(choice, one, zero)

        if name in plain:
            return plain[name](first, second)
        if name in _INTRINSIC:
            return b.call(self._intrinsic(_INTRINSIC[name], 1), [first])
        if name in _INTRINSIC_PAIR:
            return b.call(self._intrinsic(_INTRINSIC_PAIR[name], 2), [first, second])
        if name in ("SIN", "COS"):
            return self._turned(b, first, 0.0 if name == "SIN" else 1.0)
        if name in _LIBRARY:
            return self._one_by_one(b, _LIBRARY[name], first)
        if name in _LIBRARY_PAIR:
            return self._one_by_one(b, _LIBRARY_PAIR[name], first, second)
        if name in _COMPARED:
            compare = b.fcmp_unordered if name == "NE" else b.fcmp_ordered
            return flag(compare(_COMPARED[name], first, second))
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

    def _turned(self, b: Any, angle: Any, quarters: float) -> Any:
        """The sine of an angle and so many quarter turns: all lanes at once, where the C library takes one by one."""

        def every(value: float) -> Any:
            return ir.Constant(self._vector, [value] * self._width)

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
        if name not in self._declared:
            kind = ir.FunctionType(_DOUBLE, [_DOUBLE] * len(arguments))
            self._declared[name] = ir.Function(self.module, kind, name)
        result = ir.Constant(self._vector, ir.Undefined)
        for lane in range(self._width):
            values = [b.extract_element(argument, _INT(lane)) for argument in arguments]
            result = b.insert_element(result, b.call(self._declared[name], values), _INT(lane))
        return result

    # ---- a factorisation -------------------------------------------------------------------------------

    def _factor(self) -> None:
        """`L D L'` of a symmetric matrix, column after column, each taken off those to its right at once.

        `values` are the diagonal, then the entries below it, column by column; `columns` say where each begins, and
        `targets`, for every pair of entries of a column in turn, which value their product is taken off. After the
        inverses of the diagonal stands how many of them are negative.
        """
        words, vectors = _INT.as_pointer(), self._vector.as_pointer()
        function, (columns, targets, size, values, inverses) = self._begin(
            "factor", words, words, _LONG, vectors, vectors
        )
        b = ir.IRBuilder(function.append_basic_block("entry"))
        zero, one = (ir.Constant(self._vector, [value] * self._width) for value in (0.0, 1.0))
        reader, negative = b.alloca(_LONG), b.alloca(self._vector)
        b.store(_LONG(0), reader)
        self._store(b, zero, negative, _LONG(0))
        with _loop(b, _LONG(0), size) as column:
            inverse = b.fdiv(one, self._load(b, values, column))
            self._store(b, inverse, inverses, column)
            below = b.select(b.fcmp_ordered("<", inverse, zero), one, zero)
            self._store(b, b.fadd(self._load(b, negative, _LONG(0)), below), negative, _LONG(0))
            begins, ends = self._column(b, columns, column, size)
            with _loop(b, begins, ends) as entry:
                scaled = b.fmul(self._load(b, values, entry), inverse)
                minus = b.fneg(scaled)
                at = b.load(reader)
                with _loop(b, entry, ends) as other:
                    place = b.add(at, b.sub(other, entry))
                    target = b.zext(b.load(b.gep(targets, [place])), _LONG)
                    taken = b.call(
                        self._intrinsic("fma", 3),
                        [self._load(b, values, other), minus, self._load(b, values, target)],
                    )
                    self._store(b, taken, values, target)
                b.store(b.add(at, b.sub(ends, entry)), reader)
                self._store(b, scaled, values, entry)
        self._store(b, self._load(b, negative, _LONG(0)), inverses, size)
        b.ret_void()

    def _substitute(self) -> None:
        words, vectors = _INT.as_pointer(), self._vector.as_pointer()
        function, (columns, rows, size, values, inverses, right) = self._begin(
            "substitute", words, words, _LONG, vectors, vectors, vectors
        )
        b = ir.IRBuilder(function.append_basic_block("entry"))
        fma, total = self._intrinsic("fma", 3), b.alloca(self._vector)

        def row_of(entry: Any) -> Any:
            return b.zext(b.load(b.gep(rows, [b.sub(entry, size)])), _LONG)

        with _loop(b, _LONG(0), size) as column:
            minus = b.fneg(self._load(b, right, column))
            begins, ends = self._column(b, columns, column, size)
            with _loop(b, begins, ends) as entry:
                row = row_of(entry)
                now = b.call(fma, [self._load(b, values, entry), minus, self._load(b, right, row)])
                self._store(b, now, right, row)
        with _loop(b, _LONG(0), size) as backwards:
            column = b.sub(b.sub(size, _LONG(1)), backwards)
            own = b.fmul(self._load(b, right, column), self._load(b, inverses, column))
            self._store(b, own, total, _LONG(0))
            begins, ends = self._column(b, columns, column, size)
            with _loop(b, begins, ends) as entry:
                minus = b.fneg(self._load(b, values, entry))
                now = b.call(
                    fma, [self._load(b, right, row_of(entry)), minus, self._load(b, total, _LONG(0))]
                )
                self._store(b, now, total, _LONG(0))
            self._store(b, self._load(b, total, _LONG(0)), right, column)
        b.ret_void()

    # ---- factors that all lanes share ------------------------------------------------------------------

    def _forward(self) -> None:
        """`L^-1` times a right-hand side, `L` with ones on its diagonal that are left out, column after column."""
        words, numbers, vectors = _INT.as_pointer(), _DOUBLE.as_pointer(), self._vector.as_pointer()
        function, (columns, rows, size, values, right) = self._begin(
            "forward", words, words, _LONG, numbers, vectors
        )
        b = ir.IRBuilder(function.append_basic_block("entry"))
        with _loop(b, _LONG(0), size) as column:
            self._take_off(b, columns, rows, values, right, column, self._load(b, right, column))
        b.ret_void()

    def _backward(self) -> None:
        """`U^-1` times a right-hand side, the inverses of its diagonal apart."""
        words, numbers, vectors = _INT.as_pointer(), _DOUBLE.as_pointer(), self._vector.as_pointer()
        function, (columns, rows, size, values, inverses, right) = self._begin(
            "backward", words, words, _LONG, numbers, _DOUBLE.as_pointer(), vectors
        )
        b = ir.IRBuilder(function.append_basic_block("entry"))
        with _loop(b, _LONG(0), size) as backwards:
            column = b.sub(b.sub(size, _LONG(1)), backwards)
            inverse = self._every(b, b.load(b.gep(inverses, [column])))
            own = b.fmul(self._load(b, right, column), inverse)
            self._store(b, own, right, column)
            self._take_off(b, columns, rows, values, right, column, own)
        b.ret_void()

    def _take_off(
        self, b: Any, columns: Any, rows: Any, values: Any, right: Any, column: Any, own: Any
    ) -> None:
        """Take a column's entries, times what stands at its diagonal, off the right-hand side."""
        minus = b.fneg(own)
        begins, ends = (
            b.zext(b.load(b.gep(columns, [place])), _LONG) for place in (column, b.add(column, _LONG(1)))
        )
        with _loop(b, begins, ends) as entry:
            row = b.zext(b.load(b.gep(rows, [entry])), _LONG)
            value = self._every(b, b.load(b.gep(values, [entry])))
            now = b.call(self._intrinsic("fma", 3), [value, minus, self._load(b, right, row)])
            self._store(b, now, right, row)

    def _every(self, b: Any, value: Any) -> Any:
        """One number in all lanes."""
        one = b.insert_element(ir.Constant(self._vector, ir.Undefined), value, _INT(0))
        lanes = ir.Constant(ir.VectorType(_INT, self._width), [0] * self._width)
        return b.shuffle_vector(one, ir.Constant(self._vector, ir.Undefined), lanes)

    def _column(self, b: Any, columns: Any, column: Any, size: Any) -> tuple[Any, Any]:
        """Where the entries of a column begin and end among the values."""
        ends = [b.zext(b.load(b.gep(columns, [place])), _LONG) for place in (column, b.add(column, _LONG(1)))]
        return b.add(ends[0], size), b.add(ends[1], size)

    # ---- parts -----------------------------------------------------------------------------------------

    def _begin(self, name: str, *kinds: Any) -> tuple[Any, Any]:
        function = ir.Function(self.module, ir.FunctionType(ir.VoidType(), kinds), name)
        return function, function.args

    def _load(self, b: Any, vectors: Any, place: Any) -> Any:
        return b.load(b.gep(vectors, [place]), align=_ALIGNMENT)

    def _store(self, b: Any, value: Any, vectors: Any, place: Any) -> None:
        b.store(value, b.gep(vectors, [place]), align=_ALIGNMENT)

    def _intrinsic(self, name: str, arguments: int) -> Any:
        if name not in self._declared:
            kind = ir.FunctionType(self._vector, [self._vector] * arguments)
            self._declared[name] = ir.Function(self.module, kind, f"llvm.{name}.v{self._width}f64")
        return self._declared[name]


class _loop:  # noqa: N801
    """`with _loop(builder, first, end) as number:` what is built inside is done for each number."""

    def __init__(self, b: Any, first: Any, end: Any) -> None:
        self._b, self._first, self._end = b, first, end

    def __enter__(self) -> Any:
        b = self._b
        before = b.block
        self._head, self._body, self._done = (b.append_basic_block(name) for name in ("head", "body", "done"))
        b.branch(self._head)
        b.position_at_end(self._head)
        self._number = b.phi(_LONG)
        self._number.add_incoming(self._first, before)
        b.cbranch(b.icmp_unsigned("<", self._number, self._end), self._body, self._done)
        b.position_at_end(self._body)
        return self._number

    def __exit__(self, *_: object) -> None:
        b = self._b
        self._number.add_incoming(b.add(self._number, _LONG(1)), b.block)
        b.branch(self._head)
        b.position_at_end(self._done)
