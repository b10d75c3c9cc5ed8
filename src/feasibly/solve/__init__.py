"""The exact answer: `jax.numpy` to CasADi, IPOPT, warm starts, outcomes. CasADi lives here and nowhere else.

Nothing is imported until it is asked for: a worker that solves rows from a serialised solver needs no JAX.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from feasibly.solve.nlp import Solver as Solver
    from feasibly.solve.nlp import solve as solve
    from feasibly.solve.outcome import Outcome as Outcome
    from feasibly.solve.records import Solution as Solution
    from feasibly.solve.records import SolverOptions as SolverOptions
    from feasibly.solve.sensitivity import Sensitivity as Sensitivity
    from feasibly.solve.settings import SolverSettings as SolverSettings
    from feasibly.solve.translate import TranslationError as TranslationError

_HOMES = {
    "Solver": "nlp",
    "solve": "nlp",
    "Outcome": "outcome",
    "Solution": "records",
    "SolverOptions": "records",
    "SolverSettings": "settings",
    "Sensitivity": "sensitivity",
    "TranslationError": "translate",
}

__all__ = [
    "Outcome",
    "Sensitivity",
    "Solution",
    "Solver",
    "SolverOptions",
    "SolverSettings",
    "TranslationError",
    "solve",
]


def __getattr__(name: str) -> Any:
    import importlib

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
