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


def padded(rows: NDArray[Entry], size: int | None = None, xp: Any = np) -> NDArray[Entry]:
    """Repeat the last row up to `size`, or to a power of two (of 1024 above that), so that few shapes are compiled.

    `xp` is the module that does it: `jax.numpy` for rows that are to stay on their device.
    """
    count = len(rows)
    if size is None:
        size = 1 << max(count - 1, 0).bit_length() if count <= 1024 else -(-count // 1024) * 1024
    if count in (0, size):
        return rows
    filled: NDArray[Entry] = xp.concatenate([rows, xp.repeat(rows[-1:], size - count, axis=0)])
    return filled


def over_chunks(
    evaluate: Callable[..., Any], sizes: Sequence[int], *arrays: NDArray[Any]
) -> NDArray[np.float64]:
    """`evaluate` of the arrays' rows in chunks, each filled up to one of `sizes`.

    Rows that would fill no more than half of a size go in chunks of the one below (not of one row): a large program
    that is mostly filling takes longer, and has to be compiled first.
    """
    total = len(arrays[0])
    place = next((i for i, size in enumerate(sizes) if size >= total), len(sizes) - 1)
    if place and sizes[place - 1] > 1 and 2 * total <= sizes[place]:
        place -= 1
    found = []
    for first in range(0, total, sizes[place]):
        rows = [array[first : first + sizes[place]] for array in arrays]
        count = len(rows[0])
        width = next(size for size in sizes if size >= max(count, min(total, 2)))
        found.append(np.asarray(evaluate(*(padded(part, width) for part in rows)))[:count])
    return np.concatenate(found)
