"""How much a server stands: 64 clients, one row a request, and where the time goes; `kill -9`; nonsense.

    python benchmarks/serve_load.py MODEL --seconds 600 --json benchmarks/results/serve_load.json

The clients are one process beside the server, on the same machine, each with a connection of its own that asks again
as soon as it is answered (`--rate 0`), or all together at a rate. Latency is what a client sees, from the first byte
sent to the last received.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import feasibly as fb
from feasibly.report.machine import describe_machine

CLIENTS = 64


class Server:
    """`feasibly serve` as a process."""

    def __init__(self, model: Path, cache: Path) -> None:
        self.command = [
            sys.executable,
            "-m",
            "feasibly",
            "serve",
            str(model),
            "--port",
            "0",
            "--cache",
            str(cache),
        ]
        # As after an installation: Python's own compiled files are kept, and nothing else is set.
        ours = ("JAX_", "XLA_", "OMP_", "OPENBLAS_", "PYTHONDONTWRITEBYTECODE")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        self.environment = kept | {"PYTHONPYCACHEPREFIX": str(cache / "python")}
        self.start()

    def start(self) -> None:
        began = time.perf_counter()
        self.process = subprocess.Popen(self.command, stderr=subprocess.PIPE, text=True, env=self.environment)
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if found := re.search(r"http://127\.0\.0\.1:(\d+)", line):
                self.port = int(found.group(1))
                break
        else:
            raise SystemExit("the server did not start; run feasibly serve to see why")
        while asyncio.run(_once(self.port, _get("/v2/health/ready")))[0] != 200:
            if self.process.poll() is not None:
                raise SystemExit(self.process.stderr.read())
            time.sleep(0.02)
        self.ready_seconds = time.perf_counter() - began

    @property
    def megabytes(self) -> float:
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1]) / 1024
        raise RuntimeError("no VmRSS")

    @property
    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(60)


def _get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()


def _post(path: str, body: bytes) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def _ask(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes
) -> tuple[int, bytes]:
    """One request on an open connection; as little work as a client can have."""
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head)
    body = await reader.readexactly(int(length.group(1))) if length else b""
    return int(head[9:12]), body


async def _once(port: int, request: bytes) -> tuple[int, bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        return await _ask(reader, writer, request)
    finally:
        writer.close()


def _metrics(port: int) -> dict[str, float]:
    _, text = asyncio.run(_once(port, _get("/metrics")))
    lines = (line.rpartition(" ") for line in text.decode().splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in lines}


async def _load(
    server: Server, requests: list[bytes], seconds: float, rate: float
) -> tuple[list[float], dict[int, int], list[tuple[float, float]]]:
    end = time.perf_counter() + seconds
    latencies: list[float] = []
    statuses: dict[int, int] = {}
    memory = [(0.0, server.megabytes)]
    pace = CLIENTS / rate if rate else 0.0

    async def client(number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        due = time.perf_counter() + pace * number / CLIENTS
        i = number
        while time.perf_counter() < end:
            if pace:
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
                due += pace
            began = time.perf_counter()
            status, _ = await _ask(reader, writer, requests[i % len(requests)])
            latencies.append(time.perf_counter() - began)
            statuses[status] = statuses.get(status, 0) + 1
            i += CLIENTS
        writer.close()

    async def watch() -> None:
        began = time.perf_counter()
        while time.perf_counter() < end - 1:
            await asyncio.sleep(min(10.0, seconds / 10))
            memory.append((time.perf_counter() - began, server.megabytes))

    await asyncio.gather(watch(), *(client(number) for number in range(CLIENTS)))
    return latencies, statuses, memory


def load(server: Server, model: Path, seconds: float, rate: float) -> dict[str, Any]:
    """The load test."""
    problem = fb.Proxy.load(model).problem
    x = fb.sample(problem, 2048, seed=11)
    path = f"/v2/models/{model.name}/infer"
    requests = [
        _post(path, json.dumps({"inputs": [
            {"name": "x", "datatype": "FP64", "shape": [1, problem.n_inputs], "data": row.tolist()}
        ]}).encode())
        for row in x
    ]  # fmt: skip
    asyncio.run(
        _load(server, requests, min(10.0, seconds / 4), rate)
    )  # nobody's first second is anybody's measure
    before, cpu = _metrics(server.port), server.cpu_seconds
    began = time.perf_counter()
    before_own = time.process_time()
    latencies, statuses, memory = asyncio.run(_load(server, requests, seconds, rate))
    own = time.process_time() - before_own
    spent = time.perf_counter() - began
    after = _metrics(server.port)
    phases = {
        phase: 1e3 * _change(before, after, f'feasibly_phase_seconds_sum{{phase="{phase}"}}') / len(latencies)
        for phase in ("parse", "wait", "answer", "write")
    }
    batches = _change(before, after, "feasibly_batch_rows_count")
    ms = 1e3 * np.array(latencies)
    return {
        "seconds": spent,
        "clients": CLIENTS,
        "requests": len(latencies),
        "requests_per_second": len(latencies) / spent,
        "failed": sum(count for status, count in statuses.items() if status != 200),
        "statuses": statuses,
        "client_cpu_ms_a_request": 1e3 * own / len(latencies),
        "server_cpu_ms_a_request": 1e3 * (server.cpu_seconds - cpu) / len(latencies),
        "latency_ms": {f"p{q}": float(np.percentile(ms, q)) for q in (50, 90, 95, 99, 99.9)}
        | {"max": float(ms.max())},
        "phases_ms_mean": phases | {"elsewhere": float(ms.mean()) - sum(phases.values())},
        "rows_a_batch": len(latencies) / batches if batches else None,
        "batch_ms_mean": 1e3 * _change(before, after, "feasibly_batch_seconds_sum") / batches
        if batches
        else None,
        "server_cores_used": (server.cpu_seconds - cpu) / spent,
        "memory_mb": {"start": memory[0][1], "middle": memory[len(memory) // 2][1], "end": memory[-1][1]},
    }


def _change(before: dict[str, float], after: dict[str, float], name: str) -> float:
    return after.get(name, 0.0) - before.get(name, 0.0)


def fuzz(server: Server, name: str, count: int) -> dict[str, Any]:
    """Requests that are wrong in every way that comes to mind; none may be the server's fault."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from tests.serve.nonsense import nonsense

    generator = random.Random(5)
    statuses: dict[int, int] = {}
    broken: list[str] = []

    async def all_of_them() -> None:
        for request in nonsense(generator, name, count):
            try:
                status, _ = await asyncio.wait_for(_once(server.port, request), 60)
            except (asyncio.IncompleteReadError, ConnectionError):
                status = 0  # the server hung up, as it may on what is no HTTP
            statuses[status] = statuses.get(status, 0) + 1
            if status >= 500:
                broken.append(repr(request[:300]))

    asyncio.run(all_of_them())
    ready = asyncio.run(_once(server.port, _get("/v2/health/ready")))[0]
    return {
        "requests": count,
        "statuses": dict(sorted(statuses.items())),
        "server_errors": broken,
        "ready_after": ready,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("model", type=Path)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument(
        "--rate", type=float, default=0.0, help="requests a second; as many as can be unless told"
    )
    parser.add_argument(
        "--flat-out",
        type=float,
        default=60.0,
        help="seconds more, each client asking as soon as it is answered",
    )
    parser.add_argument("--fuzzed", type=int, default=10_000)
    parser.add_argument("--note", default="", help="what else went on, for whoever reads the figures")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        server = Server(given.model.resolve(), Path(folder))
        cold = server.ready_seconds
        loaded = load(server, given.model.resolve(), given.seconds, given.rate)
        print(json.dumps(loaded, indent=1), flush=True)
        flat_out = load(server, given.model.resolve(), given.flat_out, 0.0) if given.flat_out else None
        print(json.dumps(flat_out, indent=1), flush=True)
        fuzzed = fuzz(server, given.model.name, given.fuzzed)
        print(json.dumps(fuzzed, indent=1), flush=True)
        again = []
        for _ in range(3):
            server.kill()
            server.start()
            again.append(server.ready_seconds)
        status = server.stop()
    found = {
        "about": "One row a request, conditioned; clients and server on one machine. By benchmarks/serve_load.py.",
        "note": given.note,
        "model": given.model.name,
        "machine": describe_machine(),
        "rate_asked_for": given.rate or "as many as can be",
        "load": loaded,
        "flat_out": flat_out,
        "fuzz": fuzzed,
        "start": {"cold_cache_seconds": cold, "after_kill_seconds": again, "status_after_sigterm": status},
    }
    print(json.dumps(found["start"], indent=1))
    if given.json:
        given.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
