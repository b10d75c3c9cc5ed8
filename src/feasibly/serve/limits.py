"""What a server lets one request take, and all of them together; every number with its reason."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from feasibly.problem.errors import FeasiblyError


@dataclass(frozen=True)
class Limits:
    """How much is taken in before a request is refused."""

    body_bytes: int = 32 << 20
    """1,024 rows of a grid with 2,000 buses are 50 MB of JSON at full precision; half of that is a long request."""
    pending_bytes: int = 128 << 20
    """Of all requests that are being read at any time; then 503."""
    rows: int = 1024
    """In one request. More is work for `feasibly predict`."""
    queued_rows: int = 4096
    """Waiting at any time, for all models. Beyond that an answer would come too late to be of use: 429."""
    seconds: float = 30.0
    """From the first byte to the answer; then 503, and what has not begun is not begun."""
    batch_rows: int = 64
    """Of one request, answered at once. Wider programs would take half as long again to start with, and gain a
    fifth."""
    joined_rows: int = 16
    """Of several requests, answered at once: the width of the narrowest program. The first that have gathered are
    answered sooner, and the last hardly later. Where four times as many wait, speed matters more, and `batch_rows`
    holds for all."""
    stopping_seconds: float = 30.0
    """To finish what was taken, after being asked to stop."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if not (isinstance(value, int | float) and math.isfinite(value) and value > 0):
                raise FeasiblyError(f"the limit {each.name} must be a positive number, not {value!r}")
