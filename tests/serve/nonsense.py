"""Requests as nobody should send them: raw bytes, seeded."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

METHODS = ("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "BREW")
NUMBERS: tuple[Any, ...] = (
    0, 1, -1, 0.5, 1e-300, 1e300, -1e308, 2**63, 2**64, -(2**70), None, True, "1", "NaN", [], {}, [[1.0]], 1.0, 1.1,
)  # fmt: skip
TEXT = (
    "",
    "x",
    "pd_1",
    "auto",
    "mean",
    "svp",
    "polished",
    "\u0000",
    "ü" * 50,
    "../../etc/passwd",
    "a" * 5000,
    "%s%n",
)


def nonsense(generator: random.Random, model: str, count: int) -> Iterator[bytes]:
    """`count` requests, from almost right to no HTTP at all."""
    kinds = (_infer, _infer, _plain, _look, _table, _anywhere, _headers, _bytes)
    for _ in range(count):
        yield generator.choice(kinds)(generator, model)


def _request(method: str, path: str, body: bytes = b"", headers: str = "") -> bytes:
    host = "" if "host:" in headers.lower() else "Host: 127.0.0.1\r\n"
    length = "" if "content-length" in headers.lower() else f"Content-Length: {len(body)}\r\n"
    return (
        f"{method} {path} HTTP/1.1\r\n{host}{length}{headers}Connection: close\r\n\r\n".encode("latin-1")
        + body
    )


def _value(g: random.Random, depth: int = 0) -> Any:
    kind = g.randrange(6 if depth < 3 else 3)
    if kind < 2:
        return g.choice(NUMBERS)
    if kind == 2:
        return g.choice(TEXT)
    if kind == 3:
        return [_value(g, depth + 1) for _ in range(g.randrange(4))]
    return {g.choice(TEXT): _value(g, depth + 1) for _ in range(g.randrange(4))}


def _spoilt(g: random.Random, said: dict[str, Any]) -> bytes:
    """The same with a few entries replaced, taken away or added, and sometimes a few bytes too."""
    for _ in range(g.randrange(3)):
        key = g.choice([*said, g.choice(TEXT)])
        if g.random() < 0.3:
            said.pop(key, None)
        else:
            said[key] = _value(g)
    body = json.dumps(said).encode()
    if g.random() < 0.2 and body:
        at = g.randrange(len(body))
        body = (
            body[:at] + bytes(g.randrange(256) for _ in range(g.randrange(4))) + body[at + g.randrange(3) :]
        )
    return body


def _how(g: random.Random) -> dict[str, Any]:
    return {
        "answer": g.choice(["mean", "conditioned", "auto", "best", 3, None]),
        "tolerance": g.choice([1e-4, 0, -1, 1e-300, "x", None, 1e400]),
        "prove": g.choice([False, False, False, 1, "yes"]),
    }


def _infer(g: random.Random, model: str) -> bytes:
    rows, width = g.choice([0, 1, 1, 2, -1, 10**9, 2**64]), g.choice([0, 1, 4, 4, 4, 198, 10**12])
    tensor = {
        "name": g.choice(["x", "x", "x", "y", None]),
        "datatype": g.choice(["FP64", "FP64", "FP32", "INT8", "BYTES", 5]),
        "shape": g.choice([[rows, width], [rows, width], [width], [], "many", [rows, width, 1]]),
        "data": [
            g.choice(NUMBERS) if g.random() < 0.2 else g.uniform(-2, 2)
            for _ in range(g.choice([0, 1, 4, 8, 198]))
        ],
    }
    said: dict[str, Any] = {"inputs": g.choice([[tensor], [tensor], [tensor, tensor], tensor, None])}
    if g.random() < 0.5:
        said["parameters"] = g.choice([_how(g), _value(g)])
    if g.random() < 0.3:
        said["outputs"] = g.choice(
            [[{"name": g.choice(["y", "prices", "rung", "lower_bound", "z"])}], _value(g)]
        )
    return _request("POST", f"/v2/models/{model}/infer", _spoilt(g, said))


def _plain(g: random.Random, model: str) -> bytes:
    named = {g.choice(["pd_1", "pd_2", "qd_2", "nothing"]): g.choice(NUMBERS) for _ in range(g.randrange(3))}
    said = {
        "inputs": g.choice([named, [named, named], [], _value(g)]),
        **_how(g),
        "promise": g.choice([True, False, 1]),
    }
    return _request("POST", f"/models/{model}/answer", _spoilt(g, said))


def _look(g: random.Random, model: str) -> bytes:
    said = {
        "x": g.choice([[g.choice(NUMBERS) for _ in range(g.choice([0, 4, 198]))], _value(g)]),
        "full": g.choice([True, 0]),
    }
    return _request("POST", f"/models/{model}/{g.choice(['look', 'look', 'solver'])}", _spoilt(g, said))


def _table(g: random.Random, model: str) -> bytes:
    cells = ["pd_2", "qd_2", "1", "x", "", '"', "1e999", "\u00fc", "nan", ","]
    lines = [",".join(g.choice(cells) for _ in range(g.randrange(1, 4))) for _ in range(g.randrange(4))]
    query = g.choice(["", "?answer=auto", "?answer=x", "?tolerance=x", "?tolerance=nan", "?a=b&a=c", "?%00"])
    return _request(
        "POST", f"/models/{model}/table{query}", "\n".join(lines).encode(g.choice(["utf-8", "latin-1"]))
    )


def _anywhere(g: random.Random, model: str) -> bytes:
    path = g.choice([
        "/", "/docs", "/static/main.js", "/static/../app.py", "/static/%2e%2e%2fapp.py", "/v2", "/v2/models/", "//",
        f"/v2/models/{model}", f"/v2/models/{model}/ready", "/v2/models/%00/infer", f"/models/{model}/page", "/metrics",
        "/v2/repository/models/..%2f..%2fetc/load", "/v2/repository/index", "/models/" + "a" * 3000, "/%ff%fe",
        "/?" + "q=1&" * 50,
    ])  # fmt: skip
    return _request(g.choice(METHODS), path, g.choice([b"", b"{}", b"\x00" * 20]))


def _headers(g: random.Random, model: str) -> bytes:
    extra = g.choice([
        "Host: attacker.example\r\n", "Host: [::1\r\n", "Host:\r\n", "Origin: null\r\nHost: localhost\r\n",
        "Content-Length: 5\r\nContent-Length: 5\r\n", "Content-Length: -1\r\n", "Content-Length: 99999999999\r\n",
        "Authorization: Bearer \u00ff\r\n", "Content-Type: \u00ff\r\n", "Accept: text/csv\r\n",
        "Transfer-Encoding: chunked\r\n",
        "Origin: http://[\r\n", "Expect: 100-continue\r\n", "Upgrade: websocket\r\n", "X: " + "y" * 3000 + "\r\n",
    ])  # fmt: skip
    return _request(g.choice(("GET", "POST")), f"/models/{model}/answer", b"{}", extra)


def _bytes(g: random.Random, model: str) -> bytes:
    return bytes(g.randrange(256) for _ in range(g.randrange(1, 200))) + b"\r\n\r\n"
