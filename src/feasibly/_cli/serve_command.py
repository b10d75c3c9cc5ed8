"""`feasibly serve`: answers over HTTP, and the page."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

import typer

from feasibly._cli.console import say

LOOPBACK = ("127.0.0.1", "localhost", "::1")


def serve(
    models: Annotated[
        list[Path],
        typer.Argument(
            metavar="MODEL...", help="Folders that train wrote, or folders that hold such folders."
        ),
    ],
    host: Annotated[
        str, typer.Option("--host", metavar="HOST", help="Where to listen; this machine alone unless told.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", metavar="N", min=0, max=65535, help="0 takes a free one.")
    ] = 8000,
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", metavar="FILE", help="Answer only who shows the token in this file."),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-host", metavar="NAME", help="Another name the server goes by; may be repeated."
        ),
    ] = None,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-origin", metavar="ORIGIN", help="A site whose pages may ask, as https://example.org."
        ),
    ] = None,
    rows: Annotated[
        int, typer.Option("--rows", metavar="N", min=1, help="The most rows of a request.")
    ] = 1024,
    queue: Annotated[
        int, typer.Option("--queue", metavar="N", min=1, help="The most rows that wait; then 429.")
    ] = 4096,
    body: Annotated[
        int, typer.Option("--body", metavar="MB", min=1, help="The largest request, in megabytes; then 413.")
    ] = 32,
    seconds: Annotated[
        float,
        typer.Option("--seconds", metavar="S", min=0.1, help="The longest a request may take; then 503."),
    ] = 30.0,
    batch: Annotated[
        int, typer.Option("--batch", metavar="N", min=1, help="The most rows answered at once.")
    ] = 64,
    cache: Annotated[
        Path | None,
        typer.Option(
            "--cache",
            metavar="FOLDER",
            help="Keeps compiled code and drawings, so that the next start is quick.",
        ),
    ] = None,
) -> None:
    """Answer over HTTP: a page at /, the Open Inference Protocol at /v2, plain JSON at /models, and /docs.

    A model is known by its folder's name. Requests that arrive together are answered together. Models can be loaded
    and unloaded while the server runs, from the folders named here alone. Ctrl-C or SIGTERM finishes what was taken.
    """
    from feasibly.serve import Limits
    from feasibly.serve import serve as run

    logging.basicConfig(format="%(message)s", level=logging.INFO)
    for noisy in ("uvicorn", "jax", "asyncio"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    if host not in LOOPBACK and token_file is None:
        say("note: whoever reaches this port can ask; --token-file FILE lets only those in who know a token")
    run(
        models,
        host=host,
        port=port,
        token_file=token_file,
        hosts=allow_host or (),
        origins=allow_origin or (),
        limits=Limits(
            body_bytes=body << 20, rows=rows, queued_rows=max(queue, rows), seconds=seconds, batch_rows=batch
        ),
        cache=cache,
        started=lambda address: say(f"listening on {address}; loading models"),
    )
    say("stopped")
