"""The door: who may ask, from where, and what every reply carries."""

from __future__ import annotations

import hmac
import ipaddress
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import orjson

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
    ) -> None:
        self._app = app
        self._hosts = {"localhost", *(host.lower() for host in hosts)}
        self._origins = {origin.rstrip("/").lower() for origin in origins}
        self._token = None if token is None else f"Bearer {token}".encode()
        self._meters = meters

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 500
        begun = False

        async def sending(message: Message) -> None:
            nonlocal status, begun
            if message["type"] == "http.response.start":
                status, begun = message["status"], True
                message["headers"] = [*message.get("headers", ()), *HEADERS]
            await send(message)

        try:
            self._check(scope)
            await self._app(scope, receive, sending)
        except Refused as refusal:
            await reply(sending, refusal.status, refusal.sentence, refusal.headers)
        except Exception as error:
            log.error("%s %s failed", scope["method"], scope["path"], exc_info=error)
            if not begun:
                await reply(sending, 500, "this is a bug in feasibly; the server's log has the traceback", {})
        finally:
            method = scope["method"] if scope["method"] in ("GET", "HEAD", "POST", "OPTIONS") else "other"
            self._meters.requests.labels(method, str(status)).inc()

    def _check(self, scope: Scope) -> None:
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

    def _check_origin(self, origin: str, host: str) -> None:
        if origin.rstrip("/") in self._origins or origin in (f"http://{host}", f"https://{host}"):
            return
        raise Refused(
            403,
            "requests from pages of other sites are refused; start the server with --allow-origin ORIGIN if wanted",
        )


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
