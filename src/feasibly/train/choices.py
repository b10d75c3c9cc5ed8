"""What settings may be, said beside their defaults: one word of several, or a number within a range.

    loss: str = among("mae", "mse")
    width: float = number(2.0, above=0.0)

`faults` looks at all of them; whoever gives settings hears of everything that is wrong at once.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from numbers import Integral, Real
from typing import Any

import numpy as np


def among(default: str, *others: str) -> Any:
    """A word: the default or one of the others."""
    return dataclasses.field(default=default, metadata={"among": (default, *others)})


def number(
    default: float, *, least: float = -math.inf, above: float = -math.inf, most: float = math.inf
) -> Any:
    """A number of at least `least`, more than `above` and at most `most`; whole if the default is."""
    return dataclasses.field(default=default, metadata={"least": least, "above": above, "most": most})


def is_whole(value: Any) -> bool:
    """Whether it is a whole number, by whatever type."""
    return isinstance(value, Integral) and not isinstance(value, bool | np.bool_)


def is_number(value: Any) -> bool:
    """Whether it is a finite number, by whatever type."""
    return isinstance(value, Real) and not isinstance(value, bool | np.bool_) and math.isfinite(value)


def faults(usual: Any, given: dict[str, Any], whose: str) -> Iterator[str]:
    """What is wrong with values for the fields of `usual`, in words."""
    fields = {field.name: field for field in dataclasses.fields(usual)}
    for name, value in given.items():
        wanted = _wanted(getattr(usual, name), value, dict(fields[name].metadata))
        if wanted:
            yield f"the setting {name!r} of {whose!r} is {wanted}, not {value!r}"


def _wanted(usual: Any, value: Any, limits: dict[str, Any]) -> str:
    """What a setting has to be, in words, where `value` is not that."""
    if "among" in limits:
        return "" if value in limits["among"] else f"one of {', '.join(limits['among'])}"
    if isinstance(usual, bool):
        return "" if isinstance(value, bool | np.bool_) else "yes or no"
    whole = isinstance(usual, int)
    if not isinstance(usual, int | float):
        return ""
    inside = (is_whole if whole else is_number)(value) and (
        value >= limits.get("least", -math.inf)
        and value > limits.get("above", -math.inf)
        and value <= limits.get("most", math.inf)
    )
    return "" if inside else ("a whole number" if whole else "a number") + _range(limits)


def _range(limits: dict[str, Any]) -> str:
    parts = [
        f"{word} {limits[key]:g}"
        for key, word in (("least", "of at least"), ("above", "above"), ("most", "of at most"))
        if math.isfinite(limits.get(key, math.inf))
    ]
    return f" {' and '.join(parts)}" if parts else ""
