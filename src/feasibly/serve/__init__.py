"""Answers over HTTP, and a page to ask for them: `feasibly serve`, or `serve` from Python.

Starlette on uvicorn. FastAPI was weighed: what it adds is validation by pydantic, which walks a row's numbers one by
one where one call to NumPy does, and documentation whose scripts come from elsewhere; both would be replaced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from feasibly.problem.errors import FeasiblyError

if TYPE_CHECKING:
    from feasibly.serve.limits import Limits
    from feasibly.serve.run import serve

_HOMES = {"Limits": "feasibly.serve.limits", "serve": "feasibly.serve.run"}

__all__ = ["Limits", "serve"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'feasibly.serve' has no attribute {name!r}")
    from importlib import import_module

    try:
        return getattr(import_module(_HOMES[name]), name)
    except ModuleNotFoundError as missing:
        if (missing.name or "").startswith("feasibly"):
            raise
        raise FeasiblyError(
            f"the server needs {missing.name}, which is not installed; run: pip install 'feasibly[serve]'"
        ) from None
