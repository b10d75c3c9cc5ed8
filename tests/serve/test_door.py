"""Who asks slowly, too much at once, or from another site; and who leaves."""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from feasibly.serve.app import build_app
from feasibly.serve.desk import Desk
from feasibly.serve.shelf import Shelf
from tests.proxies import trained
from tests.serve.browser import running, wait
from tests.serve.conftest import make_desk

ORIGIN = "https://desk.example"


def test_a_browser_is_told_that_a_site_was_let_in(desk: Desk) -> None:
    """Before it asks, without a token, and again with the reply; other sites are told nothing."""
    app = build_app(desk, print, origins=[ORIGIN], token="a-long-enough-token")
    asker = TestClient(app, base_url="http://localhost")
    wants = {"access-control-request-method": "POST", "access-control-request-headers": "authorization"}
    first = asker.options("/models/toy/answer", headers={"origin": ORIGIN, **wants})
    assert first.status_code == 204
    assert first.headers["access-control-allow-origin"] == ORIGIN
    assert "authorization" in first.headers["access-control-allow-headers"]
    token = {"authorization": "Bearer a-long-enough-token"}
    told = asker.get("/models", headers={"origin": ORIGIN, **token})
    assert (told.status_code, told.headers["access-control-allow-origin"]) == (200, ORIGIN)
    assert told.headers["vary"] == "Origin"
    untold = asker.get("/models", headers={"origin": ORIGIN})
    assert untold.status_code == 401
    assert untold.json()["error"]
    assert untold.headers["access-control-allow-origin"] == ORIGIN
    other = asker.options("/models", headers={"origin": "https://attacker.example", **wants})
    assert other.status_code == 403
    assert "access-control-allow-origin" not in other.headers
    assert "access-control-allow-origin" not in asker.get("/v2/health/live").headers


@pytest.fixture(scope="module")
def patient() -> Iterator[tuple[Desk, int]]:
    """A server that gives a request two seconds and takes little at a time."""
    desk = make_desk(
        Shelf((), {"toy": trained("toy")[0]}, warm=(1,)), seconds=2, body_bytes=400_000, pending_bytes=500_000
    )
    with running(desk) as address:
        yield desk, int(address.rpartition(":")[2])


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=30)


def rest_of(line: socket.socket) -> bytes:
    parts = []
    while part := line.recv(65536):
        parts.append(part)
    return b"".join(parts)


def test_who_does_not_finish_asking_is_hung_up_on(patient: tuple[Desk, int]) -> None:
    _, port = patient
    for begun in (b"", b"GET /v2/health/live HT", b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\nX: "):
        with connect(port) as line:
            line.sendall(begun)
            assert rest_of(line) == b""
    # A second question on the same connection is watched as the first was.
    whole = b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with connect(port) as line:
        line.sendall(whole)
        assert line.recv(65536).startswith(b"HTTP/1.1 200")
        line.sendall(whole[:20])
        assert rest_of(line) == b""
    with connect(port) as line:
        line.sendall(b"POST /models/toy/answer HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\n{")
        assert b"408" in line.recv(65536)[:20]


def test_bytes_in_memory_are_bounded(patient: tuple[Desk, int]) -> None:
    """One that is being read, slowly, leaves room for small ones and not for another like it."""
    desk, port = patient
    head = b"POST /models/toy/answer HTTP/1.1\r\nHost: localhost\r\nContent-Length: 399999\r\n\r\n"
    small = b"POST /models/toy/answer HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"
    with connect(port) as first, connect(port) as second, connect(port) as third:
        first.sendall(head + b" " * 300_000)
        wait(lambda: desk.intake.held == 300_000)
        second.sendall(head + b" " * 300_000)
        reply = second.recv(65536)
        assert reply.startswith(b"HTTP/1.1 503")
        assert b"being read already" in reply
        third.sendall(small)
        assert rest_of(third).startswith(b"HTTP/1.1 200")
    wait(lambda: desk.intake.held == 0)


def test_who_leaves_is_no_error(patient: tuple[Desk, int], caplog: pytest.LogCaptureFixture) -> None:
    desk, port = patient
    with caplog.at_level(logging.WARNING, logger="feasibly.serve"):
        for body in (b"{", b"{}"):  # before the question is complete, and before the answer
            with connect(port) as line:
                line.sendall(
                    b"POST /models/toy/answer HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n" + body
                )
        wait(lambda: desk.intake.held == 0 and desk.batcher.waiting == 0)
        with connect(port) as line:
            line.sendall(b"GET /v2/health/ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert rest_of(line).startswith(b"HTTP/1.1 200")
    assert not caplog.records


def test_who_does_not_read_is_left(patient: tuple[Desk, int]) -> None:
    """A reply that nobody takes is dropped after a while, and the next one is served."""
    _, port = patient
    rows = [{}] * 1000
    body = json.dumps({"inputs": rows, "answer": "mean"}).encode()
    ask = b"POST /models/toy/answer HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)
    line = socket.socket()
    line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    line.settimeout(60)
    line.connect(("127.0.0.1", port))
    with line:
        threading.Thread(target=lambda: line.sendall((ask + body) * 40), daemon=True).start()
        with connect(port) as other:
            other.sendall(b"GET /v2/health/ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert rest_of(other).startswith(b"HTTP/1.1 200")


def test_models_are_loaded_and_unloaded_while_they_are_asked(patient: tuple[Desk, int]) -> None:
    """Whoever holds a model keeps it; whoever comes between gets 404 or 503 and a sentence, nobody a 500."""
    desk, port = patient
    seen: set[int] = set()
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            with connect(port) as line:
                line.sendall(
                    b"POST /models/toy/answer HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n"
                    b"Connection: close\r\n\r\n{}"
                )
                seen.add(int(rest_of(line)[9:12]))

    askers = [threading.Thread(target=ask) for _ in range(3)]
    for each in askers:
        each.start()
    for word in ("unload", "load", "load", "unload", "load"):
        with connect(port) as line:
            line.sendall(
                f"POST /v2/repository/models/toy/{word} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n"
                "Connection: close\r\n\r\n".encode()
            )
            assert rest_of(line).startswith(b"HTTP/1.1 200")
    over.set()
    for each in askers:
        each.join(30)
    assert 200 in seen
    assert seen <= {200, 404, 503}
    assert not desk.not_ready()
