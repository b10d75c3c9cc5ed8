"""What every promise asks of its arrays, and the errors that say what is wrong with them."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]


class PromiseError(ValueError):
    """Numbers from which no promise can be made; the message says what to change."""


class TooFewLabelsError(PromiseError):
    """The asked confidence needs more calibration points than were given. `needed` says how many.

    `parts` promises were to hold together with that confidence, by union bound.
    """

    def __init__(
        self, have: int, needed: int, confidence: float, what: str = "calibration labels", parts: int = 1
    ) -> None:
        self.have = have
        self.needed = needed
        self.confidence = confidence
        together = f" for {parts} promises that hold together" if parts > 1 else ""
        reach = math.floor(10_000 * (1 - Fraction(parts, have + 1))) / 10_000
        lower = f" or ask for confidence {reach:g} or less" if reach > 0 else ""
        super().__init__(
            f"Confidence {confidence:g}{together} needs at least {needed} {what} and there are {have}: add "
            f"{needed - have}{lower}."
        )


def check_confidence(confidence: float) -> float:
    """The confidence as a float strictly between 0 and 1."""
    value = float(confidence)
    if not 0.0 < value < 1.0:
        hint = f"; for {value:g} % say {value / 100:g}" if 1.0 < value < 100.0 else ""
        raise PromiseError(f"The confidence must lie strictly between 0 and 1, not {value:g}{hint}.")
    return value


def check_array(
    values: ArrayLike, what: str, dims: tuple[int, ...] = (1, 2), *, infinite: bool = False
) -> Array:
    """`values` in float64, with one of the numbers of dimensions `dims`, not empty and without NaN."""
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise PromiseError(f"{what} must be an array of numbers: {error}.") from None
    if array.ndim not in dims:
        wanted = " or ".join(str(dim) for dim in dims)
        raise PromiseError(f"{what} must have {wanted} dimensions, not shape {array.shape}.")
    if array.size == 0:
        raise PromiseError(f"{what} is empty (shape {array.shape}): no promise can be made from nothing.")
    bad = int(np.isnan(array).sum()) if infinite else int((~np.isfinite(array)).sum())
    if bad:
        kind = "NaN" if infinite else "NaN or infinite"
        raise PromiseError(f"{what}: {bad} of {array.size} values are {kind}; leave failed rows out first.")
    return array


def check_same_shape(first: Array, second: Array, names: str) -> None:
    """Raise unless both arrays have one shape."""
    if first.shape != second.shape:
        raise PromiseError(f"{names} must have the same shape, not {first.shape} and {second.shape}.")


def spread_over(values: ArrayLike, shape: tuple[int, ...], what: str) -> Array:
    """One non-negative number, or one for each output, as an array of `shape`."""
    array = check_array(values, what, (0, 1))
    if array.shape not in ((), shape):
        raise PromiseError(f"{what} must be one number or of shape {shape}, not {array.shape}.")
    if (array < 0).any():
        raise PromiseError(f"{what} must not be negative.")
    return np.broadcast_to(array, shape).copy()


def exact_level(confidence: float, parts: int = 1) -> Fraction:
    """The confidence as the decimal it was written as; with `parts`, what each must have in a union bound.

    Exact, because in floating point 0.9 x 10 may land on either side of 9, and one rank too few is a promise
    too much.
    """
    return 1 - (1 - Fraction(str(check_confidence(confidence)))) / parts


def conformal_rank(count: int, confidence: float, parts: int = 1, what: str = "calibration labels") -> int:
    """k = ceil((n + 1) level): the k-th smallest of n scores is the conformal quantile.

    The level is the confidence or, with `parts`, what each must have for all to hold together.

    Raises:
        TooFewLabelsError: when k > n, so that only an infinite bound would be honest.
    """
    rank = math.ceil((count + 1) * exact_level(confidence, parts))
    if rank > count:
        raise TooFewLabelsError(count, labels_needed(confidence, parts), confidence, what, parts)
    return rank


def labels_needed(confidence: float, parts: int = 1) -> int:
    """The fewest labels for a conformal promise at this confidence, on `parts` outputs by union bound."""
    level = exact_level(confidence, parts)
    return math.ceil(level / (1 - level))
