"""Connections that are hung up on: who opens one and does not finish a question keeps it from others."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


def connections(seconds: float) -> type[HttpToolsProtocol]:
    """The protocol of a server whose clients have so many seconds for the head of a request.

    Its body has a time of its own (`bodies`), and between requests uvicorn's keep-alive counts.
    """

    class Connection(HttpToolsProtocol):
        waiting: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._wait()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if (self.cycle is None or self.cycle.response_complete) and not self.transport.is_closing():
                self._wait()

        def on_headers_complete(self) -> None:
            self._heard()
            super().on_headers_complete()

        def connection_lost(self, exc: Exception | None) -> None:
            self._heard()
            super().connection_lost(exc)

        def _wait(self) -> None:
            if self.waiting is None and self.timeout_keep_alive_task is None:
                self.waiting = self.loop.call_later(seconds, self._hang_up)

        def _heard(self) -> None:
            if self.waiting is not None:
                self.waiting.cancel()
                self.waiting = None

        def _hang_up(self) -> None:
            if not self.transport.is_closing():
                self.transport.close()

    return Connection
