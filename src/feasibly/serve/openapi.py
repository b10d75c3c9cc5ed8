"""The endpoints as an OpenAPI document, written by hand: a test asks each of them for what is said here."""

from __future__ import annotations

from typing import Any

from feasibly._version import __version__
from feasibly.serve.limits import Limits

_REFUSALS = {
    "413": "too many bytes or rows",
    "422": "not understood; the sentence says what",
    "429": "too many rows are waiting",
    "503": "no answer in time, or a model is being loaded, or the server is stopping",
}


def document(limits: Limits) -> dict[str, Any]:
    """OpenAPI 3.1."""
    paths: dict[str, Any] = {}
    for method, path, summary, body, reply in _ENDPOINTS:
        paths.setdefault(path, {})[method] = _operation(path, summary, body, reply)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "feasibly",
            "version": __version__,
            "description": (
                "Answers of optimization proxies. Numbers are in the problem's own units (grids: per unit, radians); "
                "one that is not finite is null. "
                f"A request may have {limits.rows} rows and {limits.body_bytes:,} bytes, and takes at most "
                f"{limits.seconds:g} seconds."
            ),
        },
        "paths": paths,
        "components": {
            "schemas": _SCHEMAS,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _operation(path: str, summary: str, body: str | None, reply: str | None) -> dict[str, Any]:
    said: dict[str, Any] = {"summary": summary, "responses": {"200": _content(reply, "done")}}
    if "{name}" in path:
        said["parameters"] = [
            {
                "name": "name",
                "in": "path",
                "required": True,
                "schema": {"type": "string"},
                "description": "the model",
            }
        ]
        said["responses"]["404"] = _content("Error", "there is no such model")
    if body is not None:
        kind = "text/csv" if body == "Table" else "application/json"
        said["requestBody"] = {"required": True, "content": {kind: {"schema": _ref(body)}}}
        said["responses"] |= {code: _content("Error", why) for code, why in _REFUSALS.items()}
    return said


def _content(name: str | None, description: str) -> dict[str, Any]:
    said: dict[str, Any] = {"description": description}
    if name is not None:
        said["content"] = {"application/json": {"schema": _ref(name)}}
    return said


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


_ENDPOINTS: tuple[tuple[str, str, str, str | None, str | None], ...] = (
    ("get", "/v2/health/live", "Whether the server is up", None, None),
    ("get", "/v2/health/ready", "Whether every model named at the start is loaded and warm", None, None),
    ("get", "/v2", "The server's name, version and extensions", None, None),
    ("get", "/v2/models/{name}", "A model's tensors", None, "Metadata"),
    ("get", "/v2/models/{name}/ready", "Whether a model can be asked", None, None),
    ("post", "/v2/models/{name}/infer", "Answer rows (Open Inference Protocol)", "Infer", "Inferred"),
    ("post", "/v2/repository/index", "Models that are loaded or could be", None, "Index"),
    ("post", "/v2/repository/models/{name}/load", "Load a model, or load it again", None, None),
    ("post", "/v2/repository/models/{name}/unload", "Let go of a model", None, None),
    ("get", "/models", "Loaded models", None, "Models"),
    ("get", "/models/{name}", "Names, the usual input, the trusted range and the promise", None, None),
    ("post", "/models/{name}/answer", "Answer by name", "Ask", "Answered"),
    ("post", "/models/{name}/table", "Answer the rows of a CSV file", "Table", None),
    ("get", "/metrics", "Counters and times for Prometheus", None, None),
)

_HOW: dict[str, Any] = {
    "answer": {
        "type": "string",
        "enum": ["mean", "svp", "conditioned", "polished", "solved", "auto"],
        "default": "conditioned",
        "description": "the rung of the ladder, from quick to exact; auto climbs as far as each row needs",
    },
    "tolerance": {
        "type": "number",
        "default": 1e-4,
        "description": "a row that breaks a constraint by more is flagged, and makes auto climb",
    },
    "prove": {"type": "boolean", "default": False, "description": "add a bound on the least possible cost"},
}
_NUMBERS = {"type": "array", "items": {"type": ["number", "null"]}}
_SCHEMAS: dict[str, Any] = {
    "Error": {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]},
    "Ask": {
        "type": "object",
        "properties": {
            "inputs": {
                "description": "inputs by name, or a list of such objects; what is not named stays as usual",
                "type": ["object", "array"],
            },
            **_HOW,
            "promise": {
                "type": "boolean",
                "default": False,
                "description": "add what the certificate promises",
            },
        },
        "example": {"inputs": {}, "answer": "auto"},
    },
    "Answered": {
        "type": "object",
        "properties": {
            "model": {"type": "string"},
            "rows": {"type": "array", "items": {"type": "object"}},
            "warnings": {"type": "array", "items": {"type": "string"}},
            "seconds": {"type": "object"},
        },
    },
    "Infer": {
        "type": "object",
        "required": ["inputs"],
        "properties": {
            "id": {"type": "string"},
            "inputs": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "name": {"const": "x"},
                        "datatype": {"enum": ["FP64", "FP32"]},
                        "shape": {"type": "array", "items": {"type": "integer"}},
                        "data": _NUMBERS,
                    },
                },
            },
            "outputs": {
                "type": "array",
                "items": {"type": "object", "properties": {"name": {"type": "string"}}},
            },
            "parameters": {"type": "object", "properties": _HOW},
        },
        "example": {
            "inputs": [{"name": "x", "datatype": "FP64", "shape": [1, 2], "data": [0.5, 0.1]}],
            "parameters": {"answer": "conditioned"},
        },
    },
    "Inferred": {
        "type": "object",
        "properties": {
            "model_name": {"type": "string"},
            "model_version": {"type": "string"},
            "id": {"type": "string"},
            "outputs": {"type": "array", "items": {"type": "object"}},
        },
    },
    "Metadata": {"type": "object"},
    "Models": {"type": "object", "properties": {"models": {"type": "array", "items": {"type": "object"}}}},
    "Index": {"type": "array", "items": {"type": "object"}},
    "Table": {
        "type": "string",
        "description": "a line of input names, then a line a row",
        "example": "name\n1.0\n",
    },
}
