"""What several rooms do with arrays, once: moments of what streams by, and rows padded to few sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

Entry = TypeVar("Entry", bound=np.generic)


class RunningMoments:
    """Mean and variance of arrays of one shape, given one after the other: nothing but two arrays is kept."""

    def __init__(self) -> None:
        self.count = 0
        self.mean: NDArray[np.float64] = np.zeros(())
        self._squares: NDArray[np.float64] = np.zeros(())

    def add(self, values: ArrayLike) -> None:
        """Take in one array."""
        new = np.asarray(values, dtype=np.float64)
        if not self.count:
            self.mean, self._squares = np.zeros(new.shape), np.zeros(new.shape)
        self.count += 1
        # Welford's update: no difference of large sums.
        change = new - self.mean
        self.mean += change / self.count
        change *= new - self.mean
        self._squares += change

    @property
    def variance(self) -> NDArray[np.float64]:
        """Divided by the number of arrays, as the paper's MPV is."""
        return self._squares / max(self.count, 1)


def padded(rows: NDArray[Entry], size: int | None = None) -> NDArray[Entry]:
    """Repeat the last row up to `size`, or to a power of two (of 1024 above that), so that few shapes are compiled."""
    count = len(rows)
    if size is None:
        size = 1 << max(count - 1, 0).bit_length() if count <= 1024 else -(-count // 1024) * 1024
    if count in (0, size):
        return rows
    return np.concatenate([rows, np.repeat(rows[-1:], size - count, axis=0)])


def over_chunks(
    evaluate: Callable[..., Any], sizes: Sequence[int], *arrays: NDArray[Any]
) -> NDArray[np.float64]:
    """`evaluate` of the arrays' rows, a chunk of at most `sizes[-1]` at a time, each filled up to one of `sizes`."""
    found = []
    for first in range(0, len(arrays[0]), sizes[-1]):
        rows = [array[first : first + sizes[-1]] for array in arrays]
        count = len(rows[0])
        width = next(size for size in sizes if size >= count)
        found.append(np.asarray(evaluate(*(padded(part, width) for part in rows)))[:count])
    return np.concatenate(found)
