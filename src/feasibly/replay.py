"""Programs of JAX, run again by other rules.

A problem's functions are written once and read in several ways: handed to the solver's symbols, run in single
precision, with quicker sines, or only followed to see what depends on the outputs. All of these walk the same traced
program; they differ in the rule that says what an operation makes of the values it is given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jax.extend import core

Rule = Callable[[Any, list[Any]], Sequence[Any]]
"""From an equation and the values of its operands to the values of its results."""

CALLS = {"jit": "jaxpr"}
"""Calls that change nothing about what is computed, and the parameter that holds their program."""


def replay(
    program: Any, values: Sequence[Any], rule: Rule, constant: Callable[[Any], Any] = lambda value: value
) -> list[Any]:
    """Run `program` (with or without its constants) on `values`: what `rule` makes of its equations, one by one.

    `constant` turns constants and literal numbers into values of the kind that `rule` works on.
    """
    jaxpr = getattr(program, "jaxpr", program)
    known = dict(zip(jaxpr.constvars, map(constant, getattr(program, "consts", ())), strict=True))
    known.update(zip(jaxpr.invars, values, strict=True))

    def read(atom: Any) -> Any:
        return constant(atom.val) if isinstance(atom, core.Literal) else known[atom]

    for equation in jaxpr.eqns:
        results = rule(equation, [read(atom) for atom in equation.invars])
        known.update(zip(equation.outvars, results, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def called(equation: Any) -> Any | None:
    """The program that an equation merely calls, if that is what it does."""
    name = CALLS.get(equation.primitive.name)
    return None if name is None else equation.params[name]


def perform(equation: Any, values: Sequence[Any], params: dict[str, Any]) -> list[Any]:
    """The operation itself."""
    result = equation.primitive.bind(*values, **params)
    return list(result) if equation.primitive.multiple_results else [result]
