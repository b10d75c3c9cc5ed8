"""What a row of a comparison is about: `method` is what answered, `asked` what it stands in for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from feasibly._words import named


def as_now(row: Mapping[str, Any]) -> dict[str, Any]:
    """A stored row in today's form: older ones had what was asked for as `method` and what answered as `instead`."""
    found = dict(row)
    instead = found.pop("instead", "")
    return {**found, "method": instead, "asked": row["method"]} if instead else found


def asked_of(row: Mapping[str, Any]) -> str:
    """The method that was to be trained."""
    return str(row.get("asked") or row["method"])


def stands_in(row: Mapping[str, Any]) -> bool:
    """Whether another method answered than the one that was asked for."""
    return asked_of(row) != row["method"]


def called(row: Mapping[str, Any]) -> str:
    """The method in words: `ridge`, or `ridge (instead of response)` where it stands in."""
    return named(str(row["method"]), str(row["asked"]) if stands_in(row) else "")


def key_of(row: Mapping[str, Any]) -> tuple[str, str, str]:
    """What seeds are averaged over: the same method, for the same one that was asked for, answering alike."""
    return asked_of(row), str(row["method"]), str(row["answer"])
