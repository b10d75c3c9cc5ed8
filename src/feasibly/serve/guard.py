"""The door: who may ask, from where, and what every reply carries."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import orjson
from starlette.requests import ClientDisconnect

from feasibly.problem.errors import FeasiblyError
from feasibly.serve.refusal import Refused

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from feasibly.serve.meters import Meters

log = logging.getLogger("feasibly.serve")

OPEN = ("/v2/health/live", "/v2/health/ready", "/", "/docs", "/openapi.json")
"""Needs no token: whether the server is up, and the page itself, which holds no data and asks for the token."""
OPEN_BELOW = "/static/"

HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (
        b"content-security-policy",
        b"default-src 'self'; img-src 'self' data: blob:; style-src 'self'; frame-ancestors 'none'; base-uri 'none'; "
        b"form-action 'self'",
    ),
]

BUFFERED = 1 << 16
"""Bytes of a reply that go out at once, whether or not anybody reads them."""
GONE = 499
"""Counted for who left before the reply."""
_SHORTEST = 16


def read_token(path: Path) -> str:
    """The token in a file: one line, long enough not to be guessed."""
    try:
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise FeasiblyError(f"the token file {path} cannot be read: {reason}") from None
    if len(token) < _SHORTEST or not token.isascii() or not token.isprintable() or " " in token:
        raise FeasiblyError(
            f"{path} must hold one token of at least {_SHORTEST} letters or digits; make one with: "
            "openssl rand -hex 32"
        )
    return token


class Guard:
    """Wraps the application: Host, origin and token are checked before anything is read."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        hosts: Iterable[str] = (),
        origins: Iterable[str] = (),
        token: str | None = None,
        meters: Meters,
        seconds: float = 30.0,
    ) -> None:
        self._app = app
        self._hosts = {"localhost", *(host.lower() for host in hosts)}
        self._origins = {origin.rstrip("/").lower() for origin in origins}
        self._token = None if token is None else f"Bearer {token}".encode()
        self._meters = meters
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 500
        begun = False
        shared: list[tuple[bytes, bytes]] = []

        async def sending(message: Message) -> None:
            nonlocal status, begun
            if message["type"] == "http.response.start":
                status, begun = message["status"], True
                message["headers"] = [*message.get("headers", ()), *HEADERS, *shared]
            if len(message.get("body", b"")) < BUFFERED:
                await send(message)
                return
            async with asyncio.timeout(self._seconds):  # who does not read what was asked for is left
                await send(message)

        try:
            headers = self._check(scope)
            shared += self._for_other_sites(headers.get(b"origin"))
            if shared and scope["method"] == "OPTIONS":
                await _preflight(sending)
                return
            self._check_token(scope, headers)
            await self._app(scope, receive, sending)
        except Refused as refusal:
            await reply(sending, refusal.status, refusal.sentence, refusal.headers)
        except ClientDisconnect:
            status = GONE
        except Exception as error:
            if begun and isinstance(error, TimeoutError):  # the reply's; the connection is closed on return
                status = GONE
                return
            log.error("%s %s failed", scope["method"], scope["path"], exc_info=error)
            if not begun:
                await reply(sending, 500, "this is a bug in feasibly; the server's log has the traceback", {})
        finally:
            method = scope["method"] if scope["method"] in ("GET", "HEAD", "POST", "OPTIONS") else "other"
            self._meters.requests.labels(method, str(status)).inc()

    def _check(self, scope: Scope) -> dict[bytes, bytes]:
        """Refuse who asks for another host or from another site; the headers, each once."""
        headers = dict(
            scope["headers"]
        )  # of several with one name the last: each of these may stand once only
        names = [name for name, _ in scope["headers"]]
        for name in (b"host", b"origin", b"authorization"):
            if names.count(name) > 1:
                raise Refused(400, f"the header {name.decode()} stands more than once")
        host = headers.get(b"host", b"").decode("latin-1").lower()
        if not self._knows(host):
            raise Refused(
                421,
                "this server does not go by the name in the Host header; start it with --allow-host NAME if it should",
            )
        origin = headers.get(b"origin")
        if origin is not None:
            self._check_origin(origin.decode("latin-1").lower(), host)
        return headers

    def _check_token(self, scope: Scope, headers: dict[bytes, bytes]) -> None:
        if self._token is not None and not _open(scope["path"]):
            given = headers.get(b"authorization", b"")
            if not hmac.compare_digest(given, self._token):
                raise Refused(401, "give the server's token in the header Authorization: Bearer TOKEN")

    def _knows(self, host: str) -> bool:
        """A literal address cannot be another site's name that was pointed here; a name has to be known."""
        name = _hostname(host)
        if name in self._hosts:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True

    def _for_other_sites(self, origin: bytes | None) -> list[tuple[bytes, bytes]]:
        """What a browser wants to see before it gives a reply to a page of a site that was let in."""
        if origin is None or origin.decode("latin-1").lower().rstrip("/") not in self._origins:
            return []
        return [(b"access-control-allow-origin", origin), (b"vary", b"Origin")]

    def _check_origin(self, origin: str, host: str) -> None:
        if origin.rstrip("/") in self._origins or origin in (f"http://{host}", f"https://{host}"):
            return
        raise Refused(
            403,
            "requests from pages of other sites are refused; start the server with --allow-origin ORIGIN if wanted",
        )


async def _preflight(send: Send) -> None:
    """A browser asks whether it may ask; it never shows a token when it does."""
    lines = [
        (b"access-control-allow-methods", b"GET, POST"),
        (b"access-control-allow-headers", b"authorization, content-type"),
        (b"access-control-max-age", b"600"),
        (b"content-length", b"0"),
    ]
    await send({"type": "http.response.start", "status": 204, "headers": lines})
    await send({"type": "http.response.body", "body": b""})


def _open(path: str) -> bool:
    return path in OPEN or path.startswith(OPEN_BELOW)


def _hostname(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


async def reply(send: Send, status: int, sentence: str, headers: dict[str, str]) -> None:
    """A refusal in the protocol's shape."""
    body = orjson.dumps({"error": sentence})
    lines = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    lines += [(name.encode(), value.encode()) for name, value in headers.items()]
    if status == 401:
        lines.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": lines})
    await send({"type": "http.response.body", "body": body})
