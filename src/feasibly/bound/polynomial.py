"""A user's functions as polynomials in the outputs: of which degree, and how large the terms are that they are sums of.

The traced program of a function is run by another rule (`replay`): every value carries its degree in the outputs, and
beside what it is, what it would be if all terms had the same sign. Rounding errors are in proportion to that, whatever
cancels. Derivatives are those of the operations themselves, so that a function with derivatives of its own making
cannot be taken for something else. Operations on inputs alone may be anything: what they give is taken as data.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from feasibly.replay import perform, replay

_WORDS = """
    add add_any sub neg reduce_sum reshape broadcast_in_dim squeeze slice dynamic_slice transpose copy rev expand_dims
    concatenate stack pad gather scatter scatter-add split cumsum
"""
_LINEAR = frozenset(_WORDS.split())
"""Operations that make sums of their operands, or move them."""
_CALLS = ("jaxpr", "call_jaxpr", "fun_jaxpr")
"""Parameters that hold the program of an operation that calls one."""
_LONGEST = 512
"""Turns of a loop that are followed."""


class NoPolynomialError(Exception):
    """The first operation on outputs that does not make a polynomial of degree two at most; says which."""


class Value(NamedTuple):
    """One value of the program.

    Attributes:
        degree: in the outputs; known before anything is computed.
        value: what it is.
        size: what it would be if nothing cancelled; the value itself where that is no floating-point number.
    """

    degree: int
    value: Any
    size: Any


class Followed(NamedTuple):
    """The result of a function."""

    degree: int
    value: Any
    size: Any
    operations: int
    """How many rounding errors follow one another at most."""


def follow(function: Callable[[Any, Any], Any], x: Any, y: Any, sizes: Any) -> Followed:
    """The value of `function(x, y)` and all about it; `sizes` are those of the outputs, `abs(y)` to begin with.

    Raises:
        NoPolynomialError: it is no polynomial in `y`, or of a degree above two.
    """
    traced = jax.make_jaxpr(function)(*(jax.ShapeDtypeStruct(part.shape, part.dtype) for part in (x, y)))
    count = _Count()
    (result,) = replay(traced, [_data(x), Value(1, y, sizes)], count.rule, _data)
    return Followed(result.degree, result.value, result.size, count.operations + 1)


def _data(value: Any) -> Value:
    value = jnp.asarray(value)
    return Value(0, value, jnp.abs(value) if jnp.issubdtype(value.dtype, jnp.floating) else value)


class _Count:
    """The rule, and how many roundings it has met."""

    def __init__(self) -> None:
        self.operations = 0

    def rule(self, equation: Any, given: list[Value]) -> list[Value]:
        values, name = [part.value for part in given], equation.primitive.name
        inner = next((equation.params[key] for key in _CALLS if equation.params.get(key) is not None), None)
        if all(part.degree == 0 for part in given):
            return [_data(value) for value in perform(equation, values, equation.params)]
        if name == "scan":
            return self._scan(equation.params, given)
        if inner is not None and name != "while":
            return replay(inner, given, self.rule, _data)
        if name == "stop_gradient":  # which moves all the same
            return given
        degree = _degree(name, equation.params, [part.degree for part in given])
        if degree > 2:
            raise NoPolynomialError("its functions have a degree above two in the outputs")
        self.operations += _roundings(name, equation)
        sizes = [part.size for part in given]
        if name == "div":
            sizes[1] = jnp.abs(values[1])
        found = perform(equation, values, equation.params)
        if name == "neg":
            bounds = sizes
        elif name == "sub":
            bounds = [sizes[0] + sizes[1]]
        else:
            bounds = perform(equation, sizes, equation.params)
        return [Value(degree, value, size) for value, size in zip(found, bounds, strict=True)]

    def _scan(self, params: dict[str, Any], given: list[Value]) -> list[Value]:
        """A loop turn by turn: degrees may grow on the way."""
        length, consts, carried = params["length"], params["num_consts"], params["num_carry"]
        if length > _LONGEST:
            raise NoPolynomialError(f"a loop of {length} turns is too long to be followed")
        fixed, carry, rows = given[:consts], given[consts : consts + carried], given[consts + carried :]
        turns: list[list[Value]] = []
        order = range(length)[::-1] if params["reverse"] else range(length)
        for k in order:
            row = [Value(part.degree, part.value[k], part.size[k]) for part in rows]
            found = replay(params["jaxpr"], [*fixed, *carry, *row], self.rule, _data)
            carry = found[:carried]
            turns.append(found[carried:])
        if params["reverse"]:
            turns.reverse()
        stacked = [
            Value(
                max(part.degree for part in column),
                jnp.stack([p.value for p in column]),
                jnp.stack([p.size for p in column]),
            )
            for column in zip(*turns, strict=True)
        ]
        return [*carry, *stacked]


def _degree(name: str, params: dict[str, Any], degrees: list[int]) -> int:
    if name in _LINEAR or (
        name == "convert_element_type" and jnp.issubdtype(params["new_dtype"], jnp.floating)
    ):
        return max(degrees)
    if name in ("mul", "dot_general"):
        return sum(degrees)
    if name == "square":
        return 2 * degrees[0]
    if name == "integer_pow":
        if params["y"] < 0:
            raise NoPolynomialError("a negative power of outputs is no polynomial")
        return int(params["y"]) * degrees[0]
    if name == "div" and degrees[1] == 0:
        return degrees[0]
    if name == "select_n" and degrees[0] == 0:
        return max(degrees)
    raise NoPolynomialError(f"{name} of outputs is no polynomial")


def _roundings(name: str, equation: Any) -> int:
    """How many roundings one operation puts one after the other."""
    shapes = [getattr(atom.aval, "shape", ()) for atom in equation.invars]
    if name == "dot_general":
        (across, _), _ = equation.params["dimension_numbers"]
        return math.prod(shapes[0][axis] for axis in across) + 1
    if name == "reduce_sum":
        return math.prod(shapes[0][axis] for axis in equation.params["axes"])
    if name == "cumsum":
        return int(shapes[0][equation.params["axis"]])
    if name == "scatter-add":
        return math.prod(shapes[2]) + 1
    return int(equation.params["y"]) if name == "integer_pow" else 1
