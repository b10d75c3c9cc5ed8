"""The page's own endpoints, and the files it is made of."""

from __future__ import annotations

import asyncio
import time
from importlib import resources
from typing import TYPE_CHECKING, Any

import numpy as np
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from feasibly.problem.errors import FeasiblyError
from feasibly.serve.bodies import body_of, check_count, known, read_how, read_json, read_numbers
from feasibly.serve.openapi import document
from feasibly.serve.plain import detail
from feasibly.serve.refusal import Refused
from feasibly.serve.replies import as_json
from feasibly.serve.tables import figures, read_csv, write_csv
from feasibly.serve.view import look, scene

if TYPE_CHECKING:
    from starlette.requests import Request

    from feasibly.serve.desk import Desk
    from feasibly.serve.shelf import Served

KINDS = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
FIELDS = ("x", "answer", "tolerance", "prove", "promise", "full")


def routes(desk: Desk) -> list[Route]:
    """The page, its files, and what it asks for."""
    files = _files()
    solving = asyncio.Lock()

    async def index(request: Request) -> Response:
        return _file(files, "index.html")

    async def docs(request: Request) -> Response:
        return _file(files, "docs.html")

    async def static(request: Request) -> Response:
        return _file(files, request.path_params["name"])

    async def icon(request: Request) -> Response:
        return RedirectResponse("/static/icon.svg", 301)

    async def openapi(request: Request) -> Response:
        return as_json(document(desk.limits))

    async def show(request: Request) -> Response:
        served = desk.find(request.path_params["name"])
        return as_json(detail(served) | await asyncio.to_thread(scene, served, desk.drawings))

    async def answer(request: Request) -> Response:
        began = time.perf_counter()
        served = desk.find(request.path_params["name"])
        deadline = began + desk.limits.seconds
        said = await read_json(request, desk, deadline)
        known(said, FIELDS, "a request")
        how = read_how(said, served)
        x = _one_row(said, served)
        asked = await desk.batcher.ask(served, how, x, deadline)
        found = asked.answer
        if said.get("promise") is True:
            found = await asyncio.to_thread(served.promise, found, x, how)
        shown = await asyncio.to_thread(look, served, found, full=said.get("full") is True)
        desk.meters.answered(served.name, found)
        return as_json(shown | {"seconds": {"wait": asked.waited, "answer": asked.answering}})

    async def solver(request: Request) -> Response:
        """The exact solver from a cold start, for comparison; one at a time."""
        served = desk.find(request.path_params["name"])
        said = await read_json(request, desk, time.perf_counter() + desk.limits.seconds)
        known(said, ("x",), "a request")
        x = _one_row(said, served)
        if not np.isfinite(x).all():
            raise Refused(422, "the solver needs finite numbers")
        if solving.locked():
            raise Refused(
                429, "the solver is busy with somebody else's row; ask again in a moment", retry_after=1
            )
        async with solving:
            try:
                return as_json(await asyncio.to_thread(_solve, served, x))
            except FeasiblyError as error:
                raise Refused(422, str(error)) from None

    async def table(request: Request) -> Response:
        began = time.perf_counter()
        served = desk.find(request.path_params["name"])
        deadline = began + desk.limits.seconds
        wanted: dict[str, Any] = dict(request.query_params)
        known(wanted, ("answer", "tolerance"), "the address")
        if "tolerance" in wanted:
            try:
                wanted["tolerance"] = float(wanted["tolerance"])
            except ValueError:
                raise Refused(422, "the tolerance must be a number, as 1e-4") from None
        how = read_how(wanted, served)
        async with body_of(request, desk, deadline) as body, desk.intake.parsing:
            x = await asyncio.to_thread(read_csv, body, served, desk.limits)
        check_count(len(x), desk.limits)
        asked = await desk.batcher.ask(served, how, x, deadline)
        desk.meters.answered(served.name, asked.answer)
        text = await asyncio.to_thread(write_csv, served, asked.answer)
        if "text/csv" in request.headers.get("accept", ""):
            return Response(text, media_type="text/csv")
        shown = await asyncio.to_thread(figures, served, asked.answer)
        return as_json(shown | {"x": x, "csv": text, "seconds": time.perf_counter() - began})

    return [
        Route("/", index),
        Route("/docs", docs),
        Route("/openapi.json", openapi),
        Route("/favicon.ico", icon),
        Route("/static/{name}", static),
        Route("/models/{name}/page", show),
        Route("/models/{name}/look", answer, methods=["POST"]),
        Route("/models/{name}/solver", solver, methods=["POST"]),
        Route("/models/{name}/table", table, methods=["POST"]),
    ]


def _files() -> dict[str, bytes]:
    folder = resources.files("feasibly.serve") / "static"
    return {
        each.name: each.read_bytes() for each in folder.iterdir() if each.name.rpartition(".")[2] in KINDS
    }


def _file(files: dict[str, bytes], name: str) -> Response:
    if name not in files:
        raise Refused(404, "there is no such file")
    kind = KINDS[name.rpartition(".")[2]]
    return Response(files[name], media_type=kind, headers={"cache-control": "no-cache"})


def _one_row(said: dict[str, Any], served: Served) -> np.ndarray:
    for name in ("promise", "full"):
        if not isinstance(said.get(name, False), bool):
            raise Refused(422, f"{name} is true or false")
    x = read_numbers(said.get("x"), "x")
    if len(x) != served.problem.n_inputs:
        raise Refused(422, f"x must have {served.problem.n_inputs} numbers, not {len(x)}")
    return x[None]


def _solve(served: Served, x: np.ndarray) -> dict[str, Any]:
    """Cost, time and outcome of IPOPT from the problem's own start; translating comes first and is not counted."""
    from feasibly.measure.metrics import measure_rows
    from feasibly.solve.nlp import Solver
    from feasibly.solve.records import SolverOptions

    if "solver" not in served.page:
        served.page["solver"] = Solver.build(served.problem, SolverOptions(warm="none"))
    began = time.perf_counter()
    solution = served.page["solver"].solve(x[0])
    seconds = time.perf_counter() - began
    said: dict[str, Any] = {"outcome": solution.outcome.name, "seconds": seconds}
    if solution.outcome.ok:
        rows = measure_rows(served.problem, x, solution.y[None])
        said |= {"objective": rows.objective[0], "violation": max(rows.max_eq[0], rows.max_ineq[0])}
    return said
