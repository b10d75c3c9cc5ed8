"""CasADi functions called on NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from feasibly.solve.records import Array


class Compiled:
    """A CasADi function without the conversions that a plain call makes; one thread at a time.

    Arguments and results are the nonzero entries, column by column: for a dense vector, the vector.
    """

    def __init__(self, function: Any) -> None:
        self.function = function
        self._buffer, self._trigger = function.buffer()
        self._inputs = [np.zeros(function.nnz_in(k)) for k in range(function.n_in())]
        self._outputs = [np.zeros(function.nnz_out(k)) for k in range(function.n_out())]
        for k, array in enumerate(self._inputs):
            self._buffer.set_arg(k, array.data)
        for k, array in enumerate(self._outputs):
            self._buffer.set_res(k, array.data)

    def __call__(self, *values: Array) -> list[Array]:
        """Fresh arrays of the results."""
        for array, value in zip(self._inputs, values, strict=True):
            array[:] = value
        self._trigger()
        return [array.copy() for array in self._outputs]
