"""The loops of linear algebra on all lanes at once.

`factor` and `substitute` are the sparse `L D L'` of a matrix that every lane has its own values of; `forward` and
`backward` substitute with triangular factors whose values all lanes share.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from feasibly.solve.lanes._ir import DOUBLE, INT, LONG, Loops, loop


class LinearLoops(Loops):
    """See `factors.Factors` and `triangular.Triangles`."""

    def write(self) -> None:
        """Add them to the module."""
        self._factor()
        self._substitute()
        self._forward()
        self._backward()

    # ---- every lane its own factors --------------------------------------------------------------------

    def _factor(self) -> None:
        """`L D L'` of a symmetric matrix, column after column, each taken off those to its right at once.

        `values` are the diagonal, then the entries below it, column by column; `columns` say where each begins, and
        `targets`, for every pair of entries of a column in turn, which value their product is taken off. After the
        inverses of the diagonal stands how many of them are negative.
        """
        words, vectors = INT.as_pointer(), self._vector.as_pointer()
        function, (columns, targets, size, values, inverses) = self._begin(
            "factor", words, words, LONG, vectors, vectors
        )
        b = ir.IRBuilder(function.append_basic_block("entry"))
        zero, one = self._all_lanes(0.0), self._all_lanes(1.0)
        reader, negative = b.alloca(LONG), b.alloca(self._vector)
        b.store(LONG(0), reader)
        self._store(b, zero, negative, LONG(0))
        with loop(b, LONG(0), size) as column:
            inverse = b.fdiv(one, self._load(b, values, column))
            self._store(b, inverse, inverses, column)
            below = b.select(b.fcmp_ordered("<", inverse, zero), one, zero)
            self._store(b, b.fadd(self._load(b, negative, LONG(0)), below), negative, LONG(0))
            begins, ends = self._column(b, columns, column, size)
            with loop(b, begins, ends) as entry:
                scaled = b.fmul(self._load(b, values, entry), inverse)
                minus = b.fneg(scaled)
                at = b.load(reader)
                with loop(b, entry, ends) as other:
                    place = b.add(at, b.sub(other, entry))
                    target = b.zext(b.load(b.gep(targets, [place])), LONG)
                    taken = b.call(
                        self._intrinsic("fma", 3),
                        [self._load(b, values, other), minus, self._load(b, values, target)],
                    )
                    self._store(b, taken, values, target)
                b.store(b.add(at, b.sub(ends, entry)), reader)
                self._store(b, scaled, values, entry)
        self._store(b, self._load(b, negative, LONG(0)), inverses, size)
        b.ret_void()

    def _substitute(self) -> None:
        """`(L D L')^-1` times a right-hand side, which the solution replaces."""
        words, vectors = INT.as_pointer(), self._vector.as_pointer()
        function, (columns, rows, size, values, inverses, right) = self._begin(
            "substitute", words, words, LONG, vectors, vectors, vectors
        )
        b = ir.IRBuilder(function.append_basic_block("entry"))
        fma, total = self._intrinsic("fma", 3), b.alloca(self._vector)

        def row_of(entry: Any) -> Any:
            return b.zext(b.load(b.gep(rows, [b.sub(entry, size)])), LONG)

        with loop(b, LONG(0), size) as column:
            minus = b.fneg(self._load(b, right, column))
            begins, ends = self._column(b, columns, column, size)
            with loop(b, begins, ends) as entry:
                row = row_of(entry)
                now = b.call(fma, [self._load(b, values, entry), minus, self._load(b, right, row)])
                self._store(b, now, right, row)
        with loop(b, LONG(0), size) as backwards:
            column = b.sub(b.sub(size, LONG(1)), backwards)
            own = b.fmul(self._load(b, right, column), self._load(b, inverses, column))
            self._store(b, own, total, LONG(0))
            begins, ends = self._column(b, columns, column, size)
            with loop(b, begins, ends) as entry:
                minus = b.fneg(self._load(b, values, entry))
                now = b.call(fma, [self._load(b, right, row_of(entry)), minus, self._load(b, total, LONG(0))])
                self._store(b, now, total, LONG(0))
            self._store(b, self._load(b, total, LONG(0)), right, column)
        b.ret_void()

    # ---- factors that all lanes share ------------------------------------------------------------------

    def _forward(self) -> None:
        """`L^-1` times a right-hand side, `L` with ones on its diagonal that are left out, column after column."""
        words, numbers, vectors = INT.as_pointer(), DOUBLE.as_pointer(), self._vector.as_pointer()
        function, (columns, rows, size, values, right) = self._begin(
            "forward", words, words, LONG, numbers, vectors
        )
        b = ir.IRBuilder(function.append_basic_block("entry"))
        with loop(b, LONG(0), size) as column:
            self._subtract_column(b, columns, rows, values, right, column, self._load(b, right, column))
        b.ret_void()

    def _backward(self) -> None:
        """`U^-1` times a right-hand side, the inverses of its diagonal apart."""
        words, numbers, vectors = INT.as_pointer(), DOUBLE.as_pointer(), self._vector.as_pointer()
        function, (columns, rows, size, values, inverses, right) = self._begin(
            "backward", words, words, LONG, numbers, DOUBLE.as_pointer(), vectors
        )
        b = ir.IRBuilder(function.append_basic_block("entry"))
        with loop(b, LONG(0), size) as backwards:
            column = b.sub(b.sub(size, LONG(1)), backwards)
            inverse = self._broadcast(b, b.load(b.gep(inverses, [column])))
            own = b.fmul(self._load(b, right, column), inverse)
            self._store(b, own, right, column)
            self._subtract_column(b, columns, rows, values, right, column, own)
        b.ret_void()

    def _subtract_column(
        self, b: Any, columns: Any, rows: Any, values: Any, right: Any, column: Any, own: Any
    ) -> None:
        """Take a column's entries, times what stands at its diagonal, off the right-hand side."""
        minus = b.fneg(own)
        begins, ends = (
            b.zext(b.load(b.gep(columns, [place])), LONG) for place in (column, b.add(column, LONG(1)))
        )
        with loop(b, begins, ends) as entry:
            row = b.zext(b.load(b.gep(rows, [entry])), LONG)
            value = self._broadcast(b, b.load(b.gep(values, [entry])))
            now = b.call(self._intrinsic("fma", 3), [value, minus, self._load(b, right, row)])
            self._store(b, now, right, row)

    def _broadcast(self, b: Any, value: Any) -> Any:
        """A number that was read, in all lanes."""
        one = b.insert_element(ir.Constant(self._vector, ir.Undefined), value, INT(0))
        lanes = ir.Constant(ir.VectorType(INT, self._width), [0] * self._width)
        return b.shuffle_vector(one, ir.Constant(self._vector, ir.Undefined), lanes)

    def _column(self, b: Any, columns: Any, column: Any, size: Any) -> tuple[Any, Any]:
        """Where the entries of a column begin and end among the values."""
        ends = [b.zext(b.load(b.gep(columns, [place])), LONG) for place in (column, b.add(column, LONG(1)))]
        return b.add(ends[0], size), b.add(ends[1], size)
