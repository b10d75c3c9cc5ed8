"""A CasADi function evaluated for many rows."""

from __future__ import annotations

from typing import Any

import casadi
import numpy as np

from feasibly.solve.lanes.kernels import WIDTHS, workspace
from feasibly.solve.lanes.program import Layout, program
from feasibly.solve.records import Array


class LaneFunction:
    """A function of dense columns, `(rows, entries)` in and out; one thread at a time.

    Raises:
        UnsupportedError: the function has an operation that lanes do not know.
    """

    def __init__(self, function: Any) -> None:
        sizes = [function.size1_in(k) for k in range(function.n_in())]
        symbols = {f"in {k}": casadi.SX.sym(f"in{k}", size) for k, size in enumerate(sizes)}
        values = function.call(list(symbols.values()))
        layout = Layout()
        named = {f"out {k}": casadi.densify(value) for k, value in enumerate(values)}
        written = program(layout, symbols, named)
        self._width = WIDTHS[0]
        self._workspace = workspace(layout.size, self._width)
        for value, slot in layout.constants.items():
            self._workspace[slot] = value
        self._program, self._run = written, written.on(self._workspace)
        self._inputs = [self._workspace[layout.blocks[name]] for name in symbols]
        self._outputs = [self._workspace[layout.blocks[name]] for name in named]

    def __call__(self, *inputs: Array) -> list[Array]:
        """The function's values for every row."""
        rows = len(inputs[0])
        outputs = [np.empty((rows, len(block))) for block in self._outputs]
        for first in range(0, rows, self._width):
            some = slice(first, min(first + self._width, rows))
            count = some.stop - some.start
            for block, values in zip(self._inputs, inputs, strict=True):
                block[:, :count] = values[some].T
            self._run()
            for block, out in zip(self._outputs, outputs, strict=True):
                out[some] = block[:, :count].T
        return outputs
