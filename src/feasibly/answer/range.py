"""Whether an input is one that the proxy was made for: inside the declared box, or like those learnt from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feasibly._codec import record

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]


_BOX_SHARE, _BOX_ROUNDING = 1e-9, 1e-12
"""What an input may be outside by, as a share of the range and beside that: rounding of inputs that lie on its ends."""


def outside_box(x: Any, box: tuple[Array, Array]) -> Any:
    """Rows with an input below the first or above the second of `box`; of arrays of NumPy or JAX."""
    low, high = box
    slack = _BOX_SHARE * (high - low) + _BOX_ROUNDING
    return ((x < low - slack) | (x > high + slack)).any(axis=1)


@record("leverage", shapes={"mean": "inputs", "root": "inputs rank"})
@dataclass(frozen=True)
class Leverage:
    """For problems without a declared box: how unlike the inputs learnt from an input is.

    The limit is the largest leave-one-out leverage among those inputs, so that an honest further draw exceeds
    it about once in as many draws as there were labels.
    """

    mean: Array
    root: Array
    limit: float

    @staticmethod
    def of(x: Array) -> Leverage:
        """Learn from inputs `(rows, n_inputs)`."""
        mean = x.mean(axis=0)
        centred = x - mean
        spread = np.where(centred.std(axis=0) < 1e-12, 1.0, centred.std(axis=0))
        _, values, right = np.linalg.svd(centred / spread, full_matrices=False)
        kept = values > 1e-9 * max(float(values[0]), 1e-300)
        made = Leverage(mean, (right[kept].T / values[kept]) / spread[:, None], 0.0)
        own = made._measure(x)
        return Leverage(made.mean, made.root, float(np.max(own / np.maximum(1.0 - own, 1e-9))))

    def _measure(self, x: Array) -> Array:
        return np.asarray(np.sum(((x - self.mean) @ self.root) ** 2, axis=1))

    def unlike(self, x: Array) -> Mask:
        """Rows with a larger leverage than any input learnt from."""
        return np.asarray(self._measure(x) > self.limit)
