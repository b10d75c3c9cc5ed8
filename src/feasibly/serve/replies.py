"""JSON that every client can read: what is not finite is `null`."""

from __future__ import annotations

from typing import Any

import orjson
from starlette.responses import Response


def as_json(value: Any, status: int = 200) -> Response:
    """A reply; NumPy arrays are lists, NaN and the infinities `null`."""
    body = orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS)
    return Response(body, status, media_type="application/json")
