"""What a request says: read within its limits, and checked by hand, each fault with a sentence."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
from numpy.typing import NDArray

from feasibly.answer.ladder import ANSWERS
from feasibly.serve.asked import How
from feasibly.serve.limits import Limits
from feasibly.serve.refusal import Refused

if TYPE_CHECKING:
    from starlette.requests import Request

    from feasibly.serve.desk import Desk
    from feasibly.serve.shelf import Served

Array = NDArray[np.float64]

LARGE = 1 << 18
"""Bytes of JSON that are parsed beside the event loop: this many take about a millisecond."""
_NUMBERS = {float, int, type(None)}


class Intake:
    """How many bytes of requests are held in memory, so that many large ones at once cannot fill it."""

    def __init__(self, limits: Limits) -> None:
        self._most = limits.pending_bytes
        self.held = 0
        self.parsing = asyncio.Lock()
        """Of large ones, one at a time: what is made of them is many times as large."""

    def take(self, size: int) -> None:
        """Count bytes in, or refuse them."""
        if self.held + size > self._most:
            raise Refused(
                503,
                f"requests of {self.held:,} bytes are being read already; ask again in a moment",
                retry_after=1,
            )
        self.held += size

    def give(self, size: int) -> None:
        """And out."""
        self.held -= size


@asynccontextmanager
async def body_of(request: Request, desk: Desk, deadline: float) -> AsyncIterator[bytes]:
    """The body, unless it is too long or comes too slowly; counted until it has been understood."""
    limits, intake = desk.limits, desk.intake
    too_large = Refused(
        413,
        f"a request may have {limits.body_bytes:,} bytes; ask in several, or use feasibly predict",
    )
    stated = request.headers.get("content-length", "0")
    if stated.isdigit() and int(stated) > limits.body_bytes:
        raise too_large
    parts, size = [], 0
    try:
        try:
            async with asyncio.timeout(deadline - time.perf_counter()):
                async for part in request.stream():
                    if size + len(part) > limits.body_bytes:
                        raise too_large
                    intake.take(len(part))
                    size += len(part)
                    parts.append(part)
        except TimeoutError:
            raise Refused(
                408, f"the request was not complete within {limits.seconds:g} seconds; send it again"
            ) from None
        yield parts[0] if len(parts) == 1 else b"".join(parts)
    finally:
        intake.give(size)


async def read_json(request: Request, desk: Desk, deadline: float) -> dict[str, Any]:
    """The body as a JSON object."""
    async with body_of(request, desk, deadline) as body:
        try:
            if len(body) > LARGE:
                async with desk.intake.parsing:
                    said = await asyncio.to_thread(orjson.loads, body)
            else:
                said = orjson.loads(body)
        except orjson.JSONDecodeError as error:
            raise Refused(422, f"the body is not JSON: {error}") from None
    if not isinstance(said, dict):
        raise Refused(422, "the body must be a JSON object")
    return said


def known(said: Mapping[str, Any], names: tuple[str, ...], what: str) -> None:
    """Refuse entries that nobody would look at: a misspelt one should not be silently without effect."""
    strange = [name for name in said if name not in names]
    if strange:
        raise Refused(422, f"{what} knows no {strange[0]!r}; it may have {', '.join(names)}")


def read_how(said: Mapping[str, Any], served: Served) -> How:
    """The answer wanted, its tolerance, and whether it is to be proved."""
    answer = said.get("answer", "conditioned")
    if not isinstance(answer, str) or answer not in ANSWERS:
        raise Refused(422, f"there is no answer {answer!r}; choose one of {', '.join(ANSWERS)}")
    tolerance = said.get("tolerance", 1e-4)
    number = isinstance(tolerance, int | float) and not isinstance(tolerance, bool)
    if not number or not math.isfinite(tolerance) or not tolerance > 0:
        raise Refused(422, f"the tolerance must be a positive number, as 1e-4, not {tolerance!r}")
    prove = said.get("prove", False)
    if not isinstance(prove, bool):
        raise Refused(422, f"prove is true or false, not {prove!r}")
    if prove:
        served.check_prover()
    return How(answer, float(tolerance), prove)


def read_numbers(values: Any, where: str) -> Array:
    """A flat or nested list of numbers, `null` for one that is not known, as a flat array."""
    if not isinstance(values, list):
        raise Refused(422, f"{where} must be a list of numbers")
    if values and type(values[0]) is list:
        if set(map(type, values)) != {list}:
            raise Refused(422, f"{where} must hold lists of numbers or numbers, not both")
        values = list(chain.from_iterable(values))
    if not set(map(type, values)) <= _NUMBERS:
        raise Refused(422, f"{where} must hold numbers alone, and null where one is not known")
    return np.array(values, dtype=np.float64)


def check_count(rows: int, limits: Limits) -> None:
    """Refuse too many rows, and none."""
    if rows > limits.rows:
        raise Refused(413, f"a request may have {limits.rows} rows, not {rows}; ask in several requests")
    if rows < 1:
        raise Refused(422, "a request needs at least one row")
