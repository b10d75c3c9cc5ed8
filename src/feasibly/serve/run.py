"""Starting, and stopping without losing what was taken."""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvicorn

from feasibly._compiled import cache_home
from feasibly.problem.errors import FeasiblyError
from feasibly.serve.limits import Limits

if TYPE_CHECKING:
    from feasibly.proxy import Proxy

log = logging.getLogger("feasibly.serve")

PORT = 8000
BACKLOG = 1024
SWITCH_SECONDS = 0.0005
"""How long the answering thread may keep the interpreter from the one that reads and writes; Python's own choice,
ten times as long, is felt in every request."""


def serve(
    models: Mapping[str, Proxy] | Sequence[str | os.PathLike[str]],
    *,
    host: str = "127.0.0.1",
    port: int = PORT,
    token_file: str | os.PathLike[str] | None = None,
    hosts: Sequence[str] = (),
    origins: Sequence[str] = (),
    limits: Limits | None = None,
    cache: str | os.PathLike[str] | None = None,
    started: Callable[[str], None] | None = None,
) -> None:
    """Serve models until asked to stop (Ctrl-C or SIGTERM), then finish what was taken.

    Args:
        models: proxies by name, or folders: of models, or of folders of models.
        host, port: where to listen; port 0 takes a free one.
        token_file: a file with the token that requests have to show.
        hosts: further names the server goes by.
        origins: pages elsewhere that may ask.
        limits: of a request and of the queue.
        cache: a folder for compiled code and drawings of grids, so that the next start is quick; that of the user
            unless told.
        started: called with the address once the server listens.
    """
    _set_up(cache)
    from feasibly.serve.app import build_app
    from feasibly.serve.connection import connections
    from feasibly.serve.desk import Desk
    from feasibly.serve.drawings import Drawings
    from feasibly.serve.guard import read_token
    from feasibly.serve.shelf import WARM, Shelf

    token = None if token_file is None else read_token(Path(token_file))
    limits = limits or Limits()
    warm = sorted({min(rows, limits.batch_rows) for rows in WARM})
    named = models if isinstance(models, Mapping) else {}
    folders = [] if isinstance(models, Mapping) else [Path(path) for path in models]
    shelf = Shelf(folders, named, warm=warm)
    listening = _listen(host, port)
    troubles: list[FeasiblyError] = []

    def failed(error: FeasiblyError) -> None:
        troubles.append(error)
        server.should_exit = True

    drawings = (Path(cache) if cache is not None else cache_home() / "feasibly") / "drawings"
    desk = Desk(shelf, limits, Drawings(drawings))
    own = [] if _is_address(host) else [host]
    app = build_app(desk, failed, hosts=[*own, *hosts], origins=origins, token=token)
    config = uvicorn.Config(
        app, http=connections(limits.seconds), ws="none", log_config=None, access_log=False, server_header=False,
        lifespan="on", backlog=BACKLOG, proxy_headers=False,
        timeout_graceful_shutdown=max(1, int(limits.stopping_seconds)), timeout_keep_alive=30,
    )  # fmt: skip
    server = _Server(config, desk)
    desk.batcher.clients = lambda: len(server.server_state.connections)
    if started is not None:
        started(_address(host, listening.getsockname()[1]))
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        server.run(sockets=[listening])
    finally:
        sys.setswitchinterval(before)
        listening.close()
    if troubles:
        raise troubles[0]


class _Server(uvicorn.Server):
    """Leaves quietly on the first signal, at once on the second."""

    def __init__(self, config: uvicorn.Config, desk: Any) -> None:
        super().__init__(config)
        self._desk = desk

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals stop the server and are not raised again: stopping when asked to is success."""

        def stop(number: int, frame: Any) -> None:
            self._desk.stopping = True
            if self.should_exit:
                self.force_exit = True
            self.should_exit = True

        try:
            before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        except ValueError:  # not the main thread: whoever runs it there stops it
            yield
            return
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _set_up(cache: str | os.PathLike[str] | None) -> None:
    """Compiled code outlives the process; and matrices this small are not worth threads of their own.

    With two of XLA's threads a batch of 16 rows of 118 buses takes a third more of the processor, and is there no
    sooner.
    """
    if cache is not None:
        os.environ["JAX_COMPILATION_CACHE_DIR"] = str(cache)
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
    os.environ.setdefault("PJRT_NPROC", "1")


def _listen(host: str, port: int) -> socket.socket:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(BACKLOG)  # who comes early waits instead of being turned away
    except (OSError, UnicodeError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise FeasiblyError(
            f"cannot listen on {host} port {port}: {reason}; choose another with --port"
        ) from None
    return listening


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _address(host: str, port: int) -> str:
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{port}"
