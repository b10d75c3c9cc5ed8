"""Whatever is sent, the server is not at fault."""

from __future__ import annotations

import random
import socket

from feasibly.serve.desk import Desk
from feasibly.serve.shelf import Shelf
from tests.proxies import trained
from tests.serve.browser import running
from tests.serve.conftest import make_desk
from tests.serve.nonsense import nonsense

REQUESTS = 400


def _status(port: int, request: bytes) -> int:
    """The status of the reply; 0 where the server hung up on what is no HTTP."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as line:
        line.sendall(request)
        line.shutdown(socket.SHUT_WR)
        head = b""
        while b"\r\n" not in head:
            part = line.recv(65536)
            if not part:
                return 0
            head += part
    return int(head[9:12])


def test_nonsense_gets_no_server_error() -> None:
    desk: Desk = make_desk(Shelf((), {"grid3": trained("grid3")[0]}, warm=(1,)), rows=64, seconds=60)
    with running(desk) as address:
        port = int(address.rpartition(":")[2])
        seen: dict[int, int] = {}
        for request in nonsense(random.Random(1), "grid3", REQUESTS):
            status = _status(port, request)
            assert status < 500, request[:500]
            seen[status] = seen.get(status, 0) + 1
        assert seen[200] >= 5
        assert seen[422] > 10
        assert _status(port, b"GET /v2/health/ready HTTP/1.1\r\nHost: localhost\r\n\r\n") == 200
