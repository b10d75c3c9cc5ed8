"""Figures as people say them: durations, counts, shares and lists of names, the same wherever they are shown."""

from __future__ import annotations

import math
from collections.abc import Sequence


def duration(seconds: float) -> str:
    """`85 us`, `3.1 ms`, `42 s`, `3 min 20 s`, `2 h 5 min`; `?` where it is not known."""
    if not math.isfinite(seconds):
        return "?"
    whole = round(seconds)
    if whole < 120:
        return (
            f"{whole} s" if seconds >= 9.95 else f"{seconds:.1f} s" if seconds >= 0.9995 else timing(seconds)
        )
    if whole < 7200:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def timing(seconds: float) -> str:
    """A duration as tables have it, to be compared: `85 us`, `3.12 ms`, `42.1 s`, `600 s`, `2.1 h`."""
    if seconds < 0.9995e-3:
        return f"{seconds * 1e6:.0f} us"
    if seconds < 0.9995:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 99.5:
        return f"{seconds:.3g} s"
    return f"{seconds:.0f} s" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """`1 row`, `640 rows`, `2 branches`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def listed(names: Sequence[str], most: int = 5) -> str:
    """The first few names, and how many more there are."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def percent(share: float, digits: str = ".4g") -> str:
    """`99.5 %`."""
    return f"{100.0 * share:{digits}} %"


def named(method: str, asked: str = "") -> str:
    """A method in first lines and tables: `ridge`, or `ridge (instead of response)` where it stands in."""
    return f"{method} (instead of {asked})" if asked else method
