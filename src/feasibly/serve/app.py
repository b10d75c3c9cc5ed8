"""The application: every endpoint behind the door."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from feasibly.problem.errors import FeasiblyError
from feasibly.serve import page, plain, v2
from feasibly.serve.desk import Desk
from feasibly.serve.guard import Guard
from feasibly.serve.meters import CONTENT_TYPE
from feasibly.serve.refusal import Refused
from feasibly.serve.replies import as_json

if TYPE_CHECKING:
    from starlette.types import ASGIApp

_WORDS = {
    404: "there is nothing at this address; GET /docs lists what there is",
    405: "this address takes another method",
}


def build_app(
    desk: Desk,
    failed: Callable[[FeasiblyError], None],
    *,
    hosts: Iterable[str] = (),
    origins: Iterable[str] = (),
    token: str | None = None,
) -> ASGIApp:
    """The ASGI application over `desk`; `failed` hears of a model that could not be loaded at the start."""

    async def metrics(request: Request) -> Response:
        return Response(desk.meters.text(), media_type=CONTENT_TYPE)

    async def lost(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        headers = dict(error.headers or {})
        response = as_json({"error": _WORDS.get(error.status_code, error.detail)}, error.status_code)
        response.headers.update(headers)
        return response

    async def refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, Refused)
        response = as_json({"error": error.sentence}, error.status)
        response.headers.update(error.headers)
        return response

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        desk.batcher.start()
        opening = asyncio.create_task(desk.open(failed))
        yield
        opening.cancel()
        desk.batcher.stop()
        await asyncio.to_thread(desk.close)

    app = Starlette(
        routes=[*v2.routes(desk), *plain.routes(desk), *page.routes(desk), Route("/metrics", metrics)],
        exception_handlers={HTTPException: lost, Refused: refused},
        lifespan=lifespan,
    )
    return Guard(
        app, hosts=hosts, origins=origins, token=token, meters=desk.meters, seconds=desk.limits.seconds
    )
