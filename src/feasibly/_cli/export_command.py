"""`feasibly export`: a proxy as a file for another runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from feasibly._cli import signals
from feasibly._cli.console import Meter, emit, show
from feasibly._cli.files import check_target
from feasibly._cli.options import AsJson, Force, Model


def export(
    model: Model,
    out: Annotated[
        Path,
        typer.Argument(
            metavar="OUT", help="The file to write: OUT.stablehlo (read by JAX alone) or OUT.onnx."
        ),
    ],
    answer: Annotated[
        str | None,
        typer.Option(
            "--answer",
            metavar="A",
            help="conditioned (StableHLO's default) or mean (ONNX's, and all it carries).",
        ),
    ] = None,
    force: Force = False,
    json: AsJson = False,
) -> None:
    """Write a proxy as a file for another runtime, with its names, units and bounds in a JSON file beside it.

    The file takes x (float64, any number of rows). What was written is read back and compared with the proxy before it
    is kept.
    """
    import feasibly as fb

    check_target(out, force=force)
    with Meter(f"opening {model}") as meter:
        proxy = fb.Proxy.load(model)
        meter.turn_to(f"writing {out}")
        with signals.writing():
            made = fb.export(proxy, out, answer, overwrite=force)
    if json:
        emit({"path": made.path, "facts": made.facts, "answer": made.answer, "difference": made.difference})
        return
    size = made.path.stat().st_size / 1e6
    show(
        f"{made.answer} answers of {proxy.record.label} for {proxy.problem.name} in {made.path} ({size:.1f} MB), "
        f"names and bounds in {made.facts}; read back, it differs from the proxy by {made.difference:.0e} at most."
    )
