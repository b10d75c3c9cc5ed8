"""Who may see which row: training, validation and test by rule, never overlapping, counted honestly."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from feasibly.problem.errors import FeasiblyError

Places = NDArray[np.int64]
Keys = NDArray[np.bytes_]

VALIDATION_SHARE = 0.2
"""The share of the labels that a method may only choose by, not learn from."""


@dataclass(frozen=True, eq=False)
class Split:
    """Positions of rows in a dataset, in order. `train` and `validation` are the labels a method sees."""

    train: Places
    validation: Places
    test: Places

    @property
    def labels(self) -> Places:
        """Every label that a method sees, validation included."""
        return np.sort(np.concatenate([self.train, self.validation]))


def split_rows(usable: NDArray[np.bool_], labels: int | None, validation: float) -> Split:
    """The first `labels` usable rows, of which every so-manyth validates; the usable rows after them test.

    A row keeps its part when more rows or more labels come: row i of the labels validates where the running
    count `floor(i * validation)` steps up.
    """
    if not 0.0 <= validation < 1.0:
        raise FeasiblyError(f"the validation share must be at least 0 and below 1, got {validation}")
    rows = np.flatnonzero(usable)
    count = len(rows) if labels is None else labels
    if int(count) != count or count < 1:
        raise FeasiblyError(f"labels must be a whole number of at least 1, got {labels}")
    if count > len(rows):
        raise FeasiblyError(
            f"{count} labels were asked for and the data has {len(rows)}; label more rows, or ask for fewer"
        )
    seen, test = rows[:count], rows[count:]
    steps = np.floor(np.arange(count + 1) * validation + 1e-9)
    validates = np.diff(steps) > 0
    return Split(train=seen[~validates], validation=seen[validates], test=test)


def row_keys(fingerprint: str, x: NDArray[np.float64]) -> Keys:
    """A short hash of each input, the same in any store: what a model keeps to know its own training rows."""
    rows = np.ascontiguousarray(x, dtype=np.float64) + 0.0  # -0.0 and 0.0 are one input
    base = hashlib.blake2b(fingerprint.encode(), digest_size=16)
    keys = []
    for row in rows:
        one = base.copy()
        one.update(row.tobytes())
        keys.append(one.hexdigest().encode())
    return np.array(keys, dtype="S32")


def first_of_each(keys: Keys) -> NDArray[np.bool_]:
    """Whether no earlier row has the same input: a repeated one is no second label."""
    first = np.zeros(len(keys), dtype=bool)
    first[np.unique(keys, return_index=True)[1]] = True
    return first
