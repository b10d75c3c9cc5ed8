"""Whether a batch of inputs looks like those a promise was calibrated on.

Every promise in this room is for instances drawn like the calibration instances. Three questions are asked of
a batch before the promise is attached to it:

- Does an input leave the declared box? It is named, with the inputs that are out. (The minimum and maximum of
  a sample are no box: they flag most honest draws in high dimension.)
- Is an instance odd? Its conformal p-value is the rank of its leverage (squared Mahalanobis distance) among
  the calibration inputs'; p-values of a batch are screened by Benjamini and Hochberg, which is valid for
  conformal p-values (Bates, Candes, Lei, Romano and Sesia 2023).
- Does the batch as a whole look drawn from elsewhere? Permutation tests of four statistics, at a quarter of
  the level each: location (distance between the means, whitened), too much leverage, too little of it,
  largest leverage.

A false alarm on the batch has probability at most `level` for each batch checked. The converse does not hold:
a batch that raises no alarm has not been proved alike, and a shift in how x and y hang together cannot be
seen in inputs at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from feasibly.promise._check import Array, Flags, PromiseError, check_array, check_confidence

_STATISTICS = ("location", "more leverage", "less leverage", "largest leverage")
_SHRINK = 0.1
_LARGEST = 2000
"""Rows of a batch that enter the permutation tests; choosing rows at random keeps them valid."""


@dataclass(frozen=True, eq=False)
class Reference:
    """What calibration inputs look like.

    Attributes:
        centre, whiten: mean and inverse Cholesky factor of the shrunk covariance, from one half of the
            inputs.
        inputs: the other half, whitened, `(n, inputs)`; batches are compared with these.
        leverage: their squared norms, `(n,)`.
        low, high: the declared box, infinite where there is none.
    """

    centre: Array
    whiten: Array
    inputs: Array
    leverage: Array
    low: Array
    high: Array


@dataclass(frozen=True, eq=False)
class Outside:
    """One input outside its box: which row of the batch, which input, its value and the limit it passed."""

    row: int
    name: str
    value: float
    limit: float

    def __str__(self) -> str:
        side = "above" if self.value > self.limit else "below"
        return f"row {self.row}: {self.name} = {self.value:.6g} is {side} {self.limit:.6g}"


@dataclass(frozen=True, eq=False)
class BatchCheck:
    """What a batch of inputs looks like beside the calibration inputs.

    Attributes:
        p_values: of each instance, `(instances,)`: small means more leverage than calibration inputs have.
        odd: instances singled out by Benjamini and Hochberg at `level`.
        outside_rows: instances with an input outside its box.
        outside: every such input, by row and name.
        batch_p: p-value of the batch as a whole, corrected for four statistics.
        alarm: `batch_p <= level`: the promise is void for this batch.
        statistic: the statistic with the smallest p-value; empty when the batch was not tested.
        level: probability of a false alarm.
    """

    p_values: Array
    odd: Flags
    outside_rows: Flags
    outside: tuple[Outside, ...]
    batch_p: float
    alarm: bool
    statistic: str
    level: float

    @property
    def void(self) -> Flags:
        """Instances without a promise: outside the box, odd, or in a batch that raised the alarm."""
        return np.asarray(self.outside_rows | self.odd | self.alarm)

    def describe(self) -> str:
        """What was found, in one sentence or a few."""
        said = []
        if self.outside:
            listed = "; ".join(str(item) for item in self.outside[:3])
            more = f"; and {len(self.outside) - 3} more" if len(self.outside) > 3 else ""
            said.append(f"{int(self.outside_rows.sum())} instances leave the declared box ({listed}{more}).")
        if self.odd.any():
            said.append(f"{int(self.odd.sum())} instances are unlike any calibration input.")
        if self.alarm:
            said.append(
                f"The batch is not drawn like the calibration inputs ({self.statistic}, p = "
                f"{self.batch_p:.2g}): the promise is void for all of it."
            )
        if not said and not self.statistic:
            return "Nothing speaks against any instance; the batch as a whole was not tested."
        if not said:
            return f"Nothing speaks against the batch at level {self.level:g} (p = {self.batch_p:.2g})."
        return " ".join(said)


def learn_reference(
    inputs: ArrayLike, low: ArrayLike | None = None, high: ArrayLike | None = None, *, seed: int = 0
) -> Reference:
    """Describe calibration inputs, so that later batches can be compared with them.

    Args:
        inputs: `(n, inputs)`, drawn like the calibration instances. No labels are needed: draw a thousand.
        low, high: the declared box, each `(inputs,)`.
        seed: half of the inputs, by this seed, teach what leverage is, the other half what values of it are
            usual.

    Raises:
        PromiseError: for fewer than 8 inputs, NaN, or a box of another shape.
    """
    x = check_array(inputs, "inputs", (2,))
    if len(x) < 8:
        raise PromiseError(f"At least 8 inputs are needed to tell what is usual, and there are {len(x)}.")
    box = (_side(low, -np.inf, x.shape[1], "low"), _side(high, np.inf, x.shape[1], "high"))
    order = np.random.default_rng(seed).permutation(len(x))
    teach, hold = x[order[: len(x) // 2]], x[order[len(x) // 2 :]]
    centre = teach.mean(axis=0)
    spread = teach.std(axis=0)
    # A constant input has no direction of its own to be odd in; its unit scale lets any change stand out.
    unit = np.where(spread > 1e-12 * np.maximum(1.0, np.abs(centre)), spread, 1.0)
    scaled = (teach - centre) / unit
    shrunk = (1.0 - _SHRINK) * (scaled.T @ scaled) / len(teach) + _SHRINK * np.eye(x.shape[1])
    whiten = np.linalg.inv(np.linalg.cholesky(shrunk)) / unit
    white = (hold - centre) @ whiten.T
    return Reference(centre, whiten, white, (white**2).sum(axis=1), *box)


def check_batch(
    reference: Reference,
    inputs: ArrayLike,
    level: float = 0.01,
    *,
    names: Sequence[str] | None = None,
    permutations: int = 1999,
    seed: int = 0,
) -> BatchCheck:
    """Compare a batch of inputs with the reference.

    Args:
        reference: from `learn_reference`.
        inputs: `(instances, inputs)`, or `(inputs,)` for one.
        level: probability of a false alarm on the batch, and the false discovery rate of odd instances.
        names: of the inputs, for messages; `x0, x1, ...` otherwise.
        permutations: random regroupings; at least `4 / level` for an alarm to be possible. 0 leaves the question
            about the batch as a whole unasked, for batches too small to answer it.
        seed: of the regroupings.

    Raises:
        PromiseError: for wrong shapes, NaN, or too few permutations for the level.
    """
    x = check_array(inputs, "inputs", (1, 2))
    x = x[None] if x.ndim == 1 else x
    width = reference.centre.size
    if x.shape[1] != width:
        raise PromiseError(f"Each instance must have {width} inputs, not {x.shape[1]}.")
    level = check_confidence(level)
    if permutations and permutations + 1 < len(_STATISTICS) / level:
        raise PromiseError(f"Level {level:g} needs at least {int(np.ceil(4 / level)) - 1} permutations.")
    white = (x - reference.centre) @ reference.whiten.T
    leverage = (white**2).sum(axis=1)
    usual = np.sort(reference.leverage)
    at_least = len(usual) - np.searchsorted(usual, leverage, side="left")
    p_values = (1.0 + at_least) / (len(usual) + 1.0)
    out = (x < reference.low) | (x > reference.high)
    each = np.ones(1)
    if permutations:
        each = _permutation_p(reference, white, leverage, permutations, seed)
    batch_p = min(1.0, len(each) * float(each.min()))
    return BatchCheck(
        p_values=p_values,
        odd=_benjamini_hochberg(p_values, level),
        outside_rows=np.asarray(out.any(axis=1)),
        outside=tuple(_name_outside(reference, x, out, names)),
        batch_p=batch_p,
        alarm=batch_p <= level,
        statistic=_STATISTICS[int(each.argmin())] if permutations else "",
        level=level,
    )


def _permutation_p(
    reference: Reference, white: Array, leverage: Array, permutations: int, seed: int
) -> Array:
    """Valid p-values of four statistics: (1 + regroupings at least as extreme) / (1 + regroupings)."""
    rng = np.random.default_rng(seed)
    if len(white) > _LARGEST:
        chosen = rng.choice(len(white), _LARGEST, replace=False)
        white, leverage = white[chosen], leverage[chosen]
    size = len(white)
    both = np.concatenate([reference.leverage, leverage])
    points = np.concatenate([reference.inputs, white])
    points = points - points.mean(axis=0)
    total = len(both)
    groups = np.zeros((permutations + 1, total))
    groups[0, total - size :] = 1.0
    ranked = rng.random((permutations, total)).argpartition(size - 1, axis=1)[:, :size]
    np.put_along_axis(groups[1:], ranked, 1.0, axis=1)
    location = ((groups @ points) ** 2).sum(axis=1)
    amount = groups @ both
    largest = np.where(groups > 0, both, -np.inf).max(axis=1)
    tested = np.stack([location, amount, -amount, largest])
    # Equal groupings may differ in the last bits; counting near-ties as ties keeps the test on the safe side.
    near = 1e-9 * np.abs(tested[:, :1])
    return np.asarray((tested >= tested[:, :1] - near).sum(axis=1) / (permutations + 1.0))


def _benjamini_hochberg(p_values: Array, level: float) -> Flags:
    order = np.argsort(p_values)
    passed = p_values[order] <= level * np.arange(1, len(p_values) + 1) / len(p_values)
    odd = np.zeros(len(p_values), dtype=bool)
    if passed.any():
        odd[order[: int(np.flatnonzero(passed)[-1]) + 1]] = True
    return odd


def _name_outside(reference: Reference, x: Array, out: Flags, names: Sequence[str] | None) -> list[Outside]:
    if names is not None and len(names) != x.shape[1]:
        raise PromiseError(f"There are {x.shape[1]} inputs and {len(names)} names.")
    found = []
    for row, column in np.argwhere(out):
        value = float(x[row, column])
        limit = reference.high[column] if value > reference.high[column] else reference.low[column]
        name = names[column] if names is not None else f"x{column}"
        found.append(Outside(int(row), name, value, float(limit)))
    return found


def _side(bound: ArrayLike | None, default: float, width: int, what: str) -> Array:
    if bound is None:
        return np.full(width, default)
    array = check_array(bound, what, (0, 1), infinite=True)
    if array.shape not in ((), (width,)):
        raise PromiseError(f"{what} must have one value for each of {width} inputs, not shape {array.shape}.")
    return np.broadcast_to(array, (width,)).copy()
