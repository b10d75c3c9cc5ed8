"""The Open Inference Protocol, version 2: what servers of models have agreed on."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from starlette.responses import Response
from starlette.routing import Route

from feasibly._version import __version__
from feasibly.answer.record import Answer
from feasibly.problem.errors import FeasiblyError
from feasibly.serve.bodies import check_count, known, read_how, read_json, read_numbers
from feasibly.serve.refusal import Refused
from feasibly.serve.replies import as_json

if TYPE_CHECKING:
    from starlette.requests import Request

    from feasibly.serve.desk import Desk
    from feasibly.serve.shelf import Served

Array = NDArray[np.float64]

FLOATS: Mapping[str, type] = {"FP64": np.float64, "FP32": np.float32}
PARAMETERS = ("answer", "tolerance", "prove")
PASSED_OVER = (
    "content_type",
    "headers",
    "binary_data",
    "binary_data_output",
    "sequence_id",
    "priority",
    "timeout",
)
"""Parameters that clients of other servers send along, and that change nothing here."""

_OUTPUTS: Mapping[str, Callable[[Answer], Any]] = {
    "y": lambda a: a.y,
    "objective": lambda a: a.objective,
    "max_equality": lambda a: a.max_equality,
    "max_inequality": lambda a: a.max_inequality,
    "outcome": lambda a: [outcome.name for outcome in a.outcome],
}
"""Given unless others are asked for."""
_ON_REQUEST: Mapping[str, Callable[[Answer], Any]] = {
    "rung": lambda a: list(a.rung),
    "std": lambda a: a.std,
    "lower_bound": lambda a: getattr(a, "lower_bound", None),
    "proven_gap_percent": lambda a: getattr(a, "proven_gap_percent", None),
    "prices": lambda a: getattr(a, "prices", None),
}


def routes(desk: Desk) -> list[Route]:
    """Health, metadata, inference, and the repository extension."""

    async def live(request: Request) -> Response:
        return as_json({"live": True})

    async def ready(request: Request) -> Response:
        trouble = desk.not_ready()
        if trouble:
            raise Refused(503, trouble, retry_after=1)
        return as_json({"ready": True})

    async def server(request: Request) -> Response:
        return as_json({"name": "feasibly", "version": __version__, "extensions": ["model_repository"]})

    async def model(request: Request) -> Response:
        return as_json(_metadata(desk.find(request.path_params["name"])))

    async def model_ready(request: Request) -> Response:
        served = desk.find(request.path_params["name"])
        return as_json({"name": served.name, "ready": True})

    async def infer(request: Request) -> Response:
        began = time.perf_counter()
        served = desk.find(request.path_params["name"])
        deadline = began + desk.limits.seconds
        said = await read_json(request, desk, deadline)
        x, kind, wanted = _parse(said, served, desk)
        how = read_how(_parameters(said), served)
        parsed = time.perf_counter()
        found = await desk.batcher.ask(served, how, x, deadline)
        writing = time.perf_counter()
        reply = {
            "model_name": served.name,
            "model_version": served.digest[:8],
            "outputs": [_tensor(name, found.answer, kind) for name in wanted],
        }
        if "id" in said:
            reply["id"] = said["id"]
        response = as_json(reply)
        desk.meters.phases(
            parse=parsed - began,
            wait=found.waited,
            answer=found.answering,
            write=time.perf_counter() - writing,
        )
        desk.meters.answered(served.name, found.answer)
        return response

    async def index(request: Request) -> Response:
        shelf = desk.shelf
        return as_json(
            [
                {"name": name, "state": shelf.state(name), "reason": shelf.troubles.get(name, "")}
                for name in shelf.names()
            ]
        )

    async def load(request: Request) -> Response:
        await desk.load(request.path_params["name"])
        return as_json({})

    async def unload(request: Request) -> Response:
        desk.unload(request.path_params["name"])
        return as_json({})

    return [
        Route("/v2/models/{name}/infer", infer, methods=["POST"]),
        Route("/v2/health/live", live),
        Route("/v2/health/ready", ready),
        Route("/v2", server),
        Route("/v2/models/{name}", model),
        Route("/v2/models/{name}/ready", model_ready),
        Route("/v2/repository/index", index, methods=["POST"]),
        Route("/v2/repository/models/{name}/load", load, methods=["POST"]),
        Route("/v2/repository/models/{name}/unload", unload, methods=["POST"]),
    ]


def _metadata(served: Served) -> dict[str, Any]:
    problem = served.problem
    numbers = {"objective", "max_equality", "max_inequality"}
    return {
        "name": served.name,
        "versions": [served.digest[:8]],
        "platform": "feasibly",
        "inputs": [{"name": "x", "datatype": "FP64", "shape": [-1, problem.n_inputs]}],
        "outputs": [
            {"name": "y", "datatype": "FP64", "shape": [-1, problem.n_outputs]},
            *({"name": name, "datatype": "FP64", "shape": [-1]} for name in _OUTPUTS if name in numbers),
            {"name": "outcome", "datatype": "BYTES", "shape": [-1]},
        ],
    }


def _parameters(said: Mapping[str, Any]) -> Mapping[str, Any]:
    given = said.get("parameters", {})
    if not isinstance(given, dict):
        raise Refused(422, "parameters must be an object")
    own = {name: value for name, value in given.items() if name not in PASSED_OVER}
    known(own, PARAMETERS, "parameters")
    return own


def _parse(said: Mapping[str, Any], served: Served, desk: Desk) -> tuple[Array, type, tuple[str, ...]]:
    known(said, ("id", "inputs", "outputs", "parameters"), "an inference request")
    if not isinstance(said.get("id", ""), str):
        raise Refused(422, "id must be a string")
    inputs = said.get("inputs")
    if not isinstance(inputs, list) or len(inputs) != 1 or not isinstance(inputs[0], dict):
        raise Refused(422, "inputs must be a list with one tensor, called x")
    tensor = inputs[0]
    if tensor.get("name") != "x":
        raise Refused(422, f"the input is called x, not {tensor.get('name')!r}")
    kind = tensor.get("datatype")
    if not isinstance(kind, str) or kind not in FLOATS:
        raise Refused(422, f"the datatype of x must be FP64 or FP32, not {kind!r}")
    rows = _rows(tensor.get("shape"), served.problem.n_inputs)
    check_count(rows, desk.limits)
    x = read_numbers(tensor.get("data"), "the data of x")
    if x.size != rows * served.problem.n_inputs:
        raise Refused(
            422,
            f"x has {x.size} numbers and its shape [{rows}, {served.problem.n_inputs}] promises another count",
        )
    if kind == "FP32":
        with np.errstate(over="ignore"):
            x = x.astype(np.float32).astype(np.float64)
    return x.reshape(rows, -1), FLOATS[kind], _wanted(said.get("outputs"))


def _rows(shape: Any, width: int) -> int:
    whole = isinstance(shape, list) and all(type(n) is int and 0 <= n < 1 << 62 for n in shape)
    if whole and shape == [width]:
        return 1
    if not whole or len(shape) != 2 or shape[1] != width:
        raise Refused(422, f"the shape of x must be [rows, {width}], not {str(shape)[:60]}")
    return int(shape[0])


def _wanted(outputs: Any) -> tuple[str, ...]:
    if outputs is None or outputs == []:
        return tuple(_OUTPUTS)
    if not isinstance(outputs, list) or not all(isinstance(each, dict) for each in outputs):
        raise Refused(422, "outputs must be a list of objects with a name each")
    names = tuple(each.get("name") for each in outputs)
    for name in names:
        if not isinstance(name, str) or (name not in _OUTPUTS and name not in _ON_REQUEST):
            raise Refused(
                422, f"there is no output {name!r}; there are {', '.join([*_OUTPUTS, *_ON_REQUEST])}"
            )
    return tuple(dict.fromkeys(names))


def _tensor(name: str, answer: Answer, kind: type) -> dict[str, Any]:
    try:
        values = (_OUTPUTS.get(name) or _ON_REQUEST[name])(answer)
    except FeasiblyError as error:
        raise Refused(422, f"there is no {name}: {error}") from None
    if values is None:
        raise Refused(422, f"these answers have no {name}; ask with prove set to true")
    if isinstance(values, list):
        return {"name": name, "shape": [len(values)], "datatype": "BYTES", "data": values}
    array = np.asarray(values, dtype=np.float64)
    shape = list(array.shape)
    with np.errstate(over="ignore"):
        data: NDArray[Any] = np.ascontiguousarray(array, dtype=kind).ravel()
    return {"name": name, "shape": shape, "datatype": "FP32" if kind is np.float32 else "FP64", "data": data}
