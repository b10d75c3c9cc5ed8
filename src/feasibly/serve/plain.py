"""Names in, names out: the endpoints for people and for scripts without a client library."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from starlette.responses import Response
from starlette.routing import Route

from feasibly.answer.record import Answer
from feasibly.serve.bodies import check_count, known, read_how, read_json
from feasibly.serve.refusal import Refused
from feasibly.serve.replies import as_json

if TYPE_CHECKING:
    from starlette.requests import Request

    from feasibly.serve.desk import Desk
    from feasibly.serve.shelf import Served

Array = NDArray[np.float64]

FIELDS = ("inputs", "answer", "tolerance", "prove", "promise")


def routes(desk: Desk) -> list[Route]:
    """The list of models, one model, and its answers."""

    async def models(request: Request) -> Response:
        found = desk.shelf.names()
        return as_json(
            {
                "models": [summary(desk.shelf.served[name]) for name in found if name in desk.shelf.served],
                "loading": [name for name in found if desk.shelf.state(name) == "LOADING"],
            }
        )

    async def model(request: Request) -> Response:
        return as_json(detail(desk.find(request.path_params["name"])))

    async def answer(request: Request) -> Response:
        began = time.perf_counter()
        served = desk.find(request.path_params["name"])
        deadline = began + desk.limits.seconds
        said = await read_json(request, desk, deadline)
        known(said, FIELDS, "a request")
        how = read_how(said, served)
        wants = said.get("promise", False)
        if not isinstance(wants, bool):
            raise Refused(422, f"promise is true or false, not {wants!r}")
        x = read_rows(said.get("inputs", {}), served, desk)
        parsed = time.perf_counter()
        asked = await desk.batcher.ask(served, how, x, deadline)
        found = asked.answer
        if wants:
            found = await asyncio.to_thread(served.promise, found, x, how)
        writing = time.perf_counter()
        response = as_json(
            {
                "model": served.name,
                "rows": [row(served, found, i) for i in range(len(found))],
                "warnings": found.warnings,
                "seconds": {"parse": parsed - began, "wait": asked.waited, "answer": asked.answering},
            }
        )
        desk.meters.phases(
            parse=parsed - began,
            wait=asked.waited,
            answer=asked.answering,
            write=time.perf_counter() - writing,
        )
        desk.meters.answered(served.name, found)
        return response

    return [
        Route("/models", models),
        Route("/models/{name}", model),
        Route("/models/{name}/answer", answer, methods=["POST"]),
    ]


def summary(served: Served) -> dict[str, Any]:
    """A model in a line."""
    problem, grid = served.problem, served.grid
    return {
        "name": served.name,
        "problem": problem.name,
        **served.proxy.record.named,
        "inputs": problem.n_inputs,
        "outputs": problem.n_outputs,
        "buses": None if grid is None else grid.n_buses,
        "certified": served.proxy.certificate is not None,
    }


def detail(served: Served) -> dict[str, Any]:
    """Everything a caller needs to ask: names, the usual input, and the range answers may be trusted in."""
    problem = served.problem
    low, high = served.range
    promise = served.proxy.certificate
    return summary(served) | {
        "input_names": problem.input_names,
        "output_names": problem.output_names,
        "nominal": problem.nominal,
        "low": low,
        "high": high,
        "declared": served.proxy.box is not None,
        "blocks": {name: [where.start, where.stop] for name, where in problem.blocks.items()},
        "labels": served.proxy.record.labels,
        "promise": None if promise is None else promise.describe(),
        "sentences": []
        if promise is None
        else [{"kind": each.kind, "answer": each.answer, "text": each.say()} for each in promise.sentences()],
        "confidence": None if promise is None else promise.confidence,
        "promised": [] if promise is None else list(promise.answers),
        "digest": served.digest,
    }


def read_rows(given: Any, served: Served, desk: Desk) -> Array:
    """One object of named inputs, or a list of them; what is not named stays as usual."""
    rows = given if isinstance(given, list) else [given]
    if not all(isinstance(each, dict) for each in rows):
        raise Refused(422, "inputs must be an object of names and numbers, or a list of such objects")
    check_count(len(rows), desk.limits)
    x = np.tile(served.problem.nominal, (len(rows), 1))
    for i, named in enumerate(rows):
        _fill(x[i], named, served)
    return x


def _fill(x: Array, named: Mapping[str, Any], served: Served) -> None:
    for name, value in named.items():
        at = served.position.get(name)
        if at is None:
            first = ", ".join(served.problem.input_names[:3])
            raise Refused(422, f"{served.name} has no input {name[:80]!r}; its inputs are {first}, ...")
        if value is not None and type(value) not in (int, float):
            raise Refused(422, f"{name} must be a number or null, not {str(value)[:40]!r}")
        x[at] = np.nan if value is None else value


def row(served: Served, found: Answer, i: int) -> dict[str, Any]:
    """One answer, by name."""
    names = served.problem.output_names
    said: dict[str, Any] = {
        "outcome": found.outcome[i].name,
        "advice": found.outcome[i].advice,
        "rung": found.rung[i],
        "objective": found.objective[i],
        "max_equality": found.max_equality[i],
        "max_inequality": found.max_inequality[i],
        "outputs": dict(zip(names, found.y[i].tolist(), strict=True)),
    }
    for name in ("lower_bound", "proven_gap_percent"):
        values = getattr(found, name, None)
        if values is not None:
            said[name] = values[i]
    if found.lower is not None and found.upper is not None and found.gap_limit is not None:
        said["promise"] = {
            "gap_percent": found.gap_limit[i],
            "lower": dict(zip(names, found.lower[i].tolist(), strict=True)),
            "upper": dict(zip(names, found.upper[i].tolist(), strict=True)),
        }
    return said
