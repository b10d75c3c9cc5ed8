"""What loops over all lanes are written with: LLVM's types, vectors of lanes in memory, counted loops."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

ALIGNMENT = 64
"""Of vectors, in bytes."""
INT, LONG, DOUBLE = ir.IntType(32), ir.IntType(64), ir.DoubleType()


class Loops:
    """Functions of one module, for lanes of one width."""

    def __init__(self, module: Any, width: int) -> None:
        self._module, self._width, self._vector = module, width, ir.VectorType(DOUBLE, width)

    def _begin(self, name: str, *kinds: Any) -> tuple[Any, Any]:
        function = ir.Function(self._module, ir.FunctionType(ir.VoidType(), kinds), name)
        return function, function.args

    def _load(self, b: Any, vectors: Any, slot: Any) -> Any:
        return b.load(b.gep(vectors, [slot]), align=ALIGNMENT)

    def _store(self, b: Any, value: Any, vectors: Any, slot: Any) -> None:
        b.store(value, b.gep(vectors, [slot]), align=ALIGNMENT)

    def _all_lanes(self, value: float) -> Any:
        """A constant in all lanes."""
        return ir.Constant(self._vector, [value] * self._width)

    def _intrinsic(self, name: str, arguments: int) -> Any:
        """One of LLVM's own functions of vectors."""
        return self._declared(
            f"llvm.{name}.v{self._width}f64", ir.FunctionType(self._vector, [self._vector] * arguments)
        )

    def _declared(self, name: str, kind: Any) -> Any:
        known = self._module.globals.get(name)
        return ir.Function(self._module, kind, name) if known is None else known


class loop:  # noqa: N801
    """`with loop(builder, first, end) as number:` what is built inside is done for each number."""

    def __init__(self, b: Any, first: Any, end: Any) -> None:
        self._b, self._first, self._end = b, first, end

    def __enter__(self) -> Any:
        b = self._b
        before = b.block
        self._head, self._body, self._done = (b.append_basic_block(name) for name in ("head", "body", "done"))
        b.branch(self._head)
        b.position_at_end(self._head)
        self._number = b.phi(LONG)
        self._number.add_incoming(self._first, before)
        b.cbranch(b.icmp_unsigned("<", self._number, self._end), self._body, self._done)
        b.position_at_end(self._body)
        return self._number

    def __exit__(self, *_: object) -> None:
        b = self._b
        self._number.add_incoming(b.add(self._number, LONG(1)), b.block)
        b.branch(self._head)
        b.position_at_end(self._done)
