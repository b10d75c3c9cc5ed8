"""From `jax.numpy` to CasADi: a problem is written once and solved with exact sparse derivatives.

The function is traced to a jaxpr in double precision and its equations are replayed on CasADi columns.
Whatever is known while translating (constants, index arithmetic) stays NumPy; calls, loops of known length
and custom derivative rules are unrolled. CasADi then differentiates the value that comes out, so
`custom_jvp`, `custom_vjp` and `stop_gradient` change nothing here: the solver needs the true derivative.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import casadi
import jax
import numpy as np
from numpy.typing import NDArray

from feasibly.precision import double, twin
from feasibly.problem.core import Function, Problem
from feasibly.problem.errors import FeasiblyError
from feasibly.replay import CALLS, replay
from feasibly.solve._elementwise import BINARY, INTEGER_DIFFERS, NUMPY, UNARY
from feasibly.solve._movement import MOVEMENT, SCATTER, NotStaticError
from feasibly.solve._reduction import REDUCTION, choose
from feasibly.solve._values import Symbolic, Value, as_column, dense, is_known, pick, positions_of, stretch

_LONGEST_LOOP = 10_000
_NOWHERE = "the problem"

_INLINED: Mapping[str, str] = {
    **CALLS,
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "remat2": "jaxpr",
}
"""Calls that are replaced by their body, and the parameter that holds it."""


class TranslationError(FeasiblyError):
    """A problem uses an operation that CasADi does not have; `primitive` and `where` say which and where."""

    def __init__(self, primitive: str, where: str, reason: str) -> None:
        self.primitive = primitive
        self.where = where
        self.reason = reason
        super().__init__(f"{where} uses {primitive!r}, which cannot be handed to the solver: {reason}")


@dataclass(frozen=True)
class Expressions:
    """A problem as CasADi expressions: `x` the parameter, `y` the variable, and what is made of them.

    Where an output is used in many places (the voltage of a bus, by every branch there), each has a `copy` of its own;
    `places` says of which output. Expressions in copies have derivatives with few entries a row, which a handful of
    sweeps find; those of the outputs themselves are sums of them.
    """

    x: Any
    y: Any
    copies: Any
    places: NDArray[np.int64]
    objective: Any
    equality: Any
    inequality: Any


def translate(problem: Problem) -> Expressions:
    """Translate all functions of a problem.

    Raises:
        TranslationError: naming the first operation that cannot be translated and its line in the code.
    """
    x = casadi.SX.sym("x", problem.n_inputs)
    y = casadi.SX.sym("y", problem.n_outputs)

    sharing = _Sharing(Symbolic(y, (problem.n_outputs,), np.arange(problem.n_outputs)))
    token = _SHARING.set(sharing)

    def column(function: Function | None) -> Any:
        return casadi.SX(0, 1) if function is None else translate_function(function, x, y)

    try:
        parts = [column(part) for part in (problem.objective, problem.equality, problem.inequality)]
    finally:
        _SHARING.reset(token)
    return Expressions(
        x,
        y,
        casadi.vertcat(casadi.SX(0, 1), *sharing.copies),
        np.concatenate([np.zeros(0, dtype=np.int64), *sharing.places]),
        *parts,
    )


@dataclass(eq=False)
class _Sharing:
    """What the functions of one problem have in common: operations on the same values, and copies of outputs."""

    variable: Symbolic
    copies: list[Any] = field(default_factory=list)
    places: list[NDArray[np.int64]] = field(default_factory=list)
    known: dict[Any, tuple[list[Value], list[Value]]] = field(default_factory=dict)

    def key(self, equation: Any, values: list[Value]) -> Any:
        """The same for operations that give the same; operands are kept in `known`, so no address comes twice."""
        parts = [
            id(value.column) if isinstance(value, Symbolic) else (value.shape, _digest(value))
            for value in values
        ]
        shapes = tuple(value.shape for value in values)
        return equation.primitive.name, str(equation.params), shapes, tuple(parts)

    def copied(self, results: list[Value]) -> list[Value]:
        """Results of a gather, outputs that come more than once replaced by copies."""
        return [self._copy(result) for result in results]

    def _copy(self, result: Value) -> Value:
        if isinstance(result, np.ndarray) or result.places is None:
            return result
        if len(np.unique(result.places)) == len(result.places):
            return result
        self.copies.append(casadi.SX.sym("copy", len(result.places)))
        self.places.append(result.places)
        return Symbolic(self.copies[-1], result.shape)


_SHARING: ContextVar[_Sharing | None] = ContextVar("sharing", default=None)


def _digest(value: NDArray[Any]) -> bytes:
    return (
        value.tobytes() if value.nbytes <= 64 else hashlib.sha256(np.ascontiguousarray(value).data).digest()
    )


def translate_function(function: Callable[..., Any], *columns: Any) -> Any:
    """One function of vectors as a dense CasADi column, its result in row-major order.

    `columns` are the CasADi columns (of any expressions) to call it with.
    """
    with double():
        shapes = [jax.ShapeDtypeStruct((column.shape[0],), np.float64) for column in columns]
        closed = jax.make_jaxpr(twin(function))(*shapes)
        sharing = _SHARING.get()
        operands = [
            sharing.variable
            if sharing is not None and column is sharing.variable.column
            else Symbolic(column if column.is_dense() else casadi.densify(column), (column.shape[0],))
            for column in columns
        ]
        results = replay(closed, operands, _apply, np.asarray)
    return as_column(results[0])


def _apply(equation: Any, values: list[Value]) -> list[Value]:
    name = equation.primitive.name
    try:
        if name in _INLINED:
            return replay(equation.params[_INLINED[name]], values, _apply, np.asarray)
        if name in _CONTROL:
            return _CONTROL[name](equation, values)
    except TranslationError as refusal:
        # Inside JAX's own functions there may be no line of the user's; the call that led there has one.
        if refusal.where != _NOWHERE:
            raise
        raise TranslationError(refusal.primitive, source_line(equation), refusal.reason) from None
    if is_known(*values):
        return _evaluate(equation, values)
    sharing = _SHARING.get()
    if sharing is None:
        return _symbolic(equation, values)
    key = sharing.key(equation, values)
    if key not in sharing.known:
        results = _symbolic(equation, values)
        sharing.known[key] = values, sharing.copied(results) if name == "gather" else results
    return sharing.known[key][1]


def _symbolic(equation: Any, values: list[Value]) -> list[Value]:
    """An equation with an operand that depends on the problem's inputs or outputs."""
    name = equation.primitive.name
    _refuse_other_numbers(equation)
    try:
        if name in MOVEMENT:
            return _as_list(MOVEMENT[name](equation.params, *values))
        if name in SCATTER:
            return [SCATTER[name](equation.params, *values)]
        if name in REDUCTION:
            return [REDUCTION[name](equation.params, *values)]
    except NotStaticError:
        raise _refusal(
            equation, "its index depends on the problem's inputs or outputs; index with constants instead"
        ) from None
    shape = equation.outvars[0].aval.shape
    if name in UNARY:
        return [dense(UNARY[name](as_column(values[0])), shape)]
    if name in BINARY:
        return [dense(BINARY[name](stretch(values[0], shape), stretch(values[1], shape)), shape)]
    raise _refusal(equation, "the solver has no such operation; write it with arithmetic, powers or sines")


def _evaluate(equation: Any, values: list[Value]) -> list[Value]:
    """An equation whose operands are all known."""
    name = equation.primitive.name
    try:
        if name in NUMPY:
            dtype = equation.outvars[0].aval.dtype
            return [np.asarray(NUMPY[name](*values)).astype(dtype, copy=False)]
        if name in MOVEMENT:
            return _as_list(MOVEMENT[name](equation.params, *values))
        if name == "select_n":
            return [choose(values[0], values[1:])]
        if name == "convert_element_type":
            return [np.asarray(values[0]).astype(equation.params["new_dtype"])]
    except NotStaticError:
        pass
    with jax.ensure_compile_time_eval():  # even where whoever needs the solver is being traced
        results = equation.primitive.bind(*values, **equation.params)
    return [np.asarray(result) for result in (results if equation.primitive.multiple_results else [results])]


def _as_list(result: Value | list[Value]) -> list[Value]:
    return result if isinstance(result, list) else [result]


def _refuse_other_numbers(equation: Any) -> None:
    kinds = {np.dtype(atom.aval.dtype).kind for atom in (*equation.invars, *equation.outvars)}
    if "c" in kinds:
        raise _refusal(equation, "complex numbers are not supported; write the real and imaginary parts out")
    name = equation.primitive.name
    if name in INTEGER_DIFFERS and kinds & set("iu"):
        kind = np.dtype(equation.outvars[0].aval.dtype).kind
        if kind in "iu":
            raise _refusal(
                equation, "whole numbers that depend on inputs or outputs are not supported; use floats"
            )
    if name == "convert_element_type":
        source, target = (
            np.dtype(atom.aval.dtype).kind for atom in (equation.invars[0], equation.outvars[0])
        )
        if source == "f" and target in "iu":
            raise _refusal(equation, "turning outputs into whole numbers has no derivative; keep them floats")


# ---- control flow ------------------------------------------------------------------------------------------


def _scan(equation: Any, values: list[Value]) -> list[Value]:
    params = equation.params
    n_consts, n_carry, length = params["num_consts"], params["num_carry"], params["length"]
    if length > _LONGEST_LOOP:
        raise _refusal(
            equation, f"a loop of {length} steps is too long to unroll; write it with array operations"
        )
    consts, carry = values[:n_consts], values[n_consts : n_consts + n_carry]
    rows = values[n_consts + n_carry :]
    stacks: list[list[Value]] = [[] for _ in equation.outvars[n_carry:]]
    steps = range(length - 1, -1, -1) if params["reverse"] else range(length)
    for step in steps:
        slices = [pick([row], positions_of(row.shape)[step]) for row in rows]
        results = replay(params["jaxpr"], [*consts, *carry, *slices], _apply, np.asarray)
        carry = results[:n_carry]
        for stack, result in zip(stacks, results[n_carry:], strict=True):
            stack.append(result)
    stacked: list[Value] = []
    for stack, atom in zip(stacks, equation.outvars[n_carry:], strict=True):
        shape = atom.aval.shape
        if not stack:
            stacked.append(np.zeros(shape, dtype=atom.aval.dtype))
            continue
        places = positions_of(shape)
        stacked.append(pick(stack, places[::-1] if params["reverse"] else places))
    return [*carry, *stacked]


def _while(equation: Any, values: list[Value]) -> list[Value]:
    params = equation.params
    n_test, n_body = params["cond_nconsts"], params["body_nconsts"]
    test_consts, body_consts = values[:n_test], values[n_test : n_test + n_body]
    carry = values[n_test + n_body :]
    for _ in range(_LONGEST_LOOP):
        (goes_on,) = replay(params["cond_jaxpr"], [*test_consts, *carry], _apply, np.asarray)
        if not isinstance(goes_on, np.ndarray):
            raise _refusal(
                equation, "the number of its steps depends on inputs or outputs; loop a fixed number of times"
            )
        if not bool(goes_on):
            return carry
        carry = replay(params["body_jaxpr"], [*body_consts, *carry], _apply, np.asarray)
    raise _refusal(
        equation, f"more than {_LONGEST_LOOP} steps are too many to unroll; write it with array operations"
    )


def _cond(equation: Any, values: list[Value]) -> list[Value]:
    which, operands = values[0], values[1:]
    branches = equation.params["branches"]
    if isinstance(which, np.ndarray):
        return replay(branches[int(np.clip(which, 0, len(branches) - 1))], operands, _apply, np.asarray)
    outcomes = [replay(branch, operands, _apply, np.asarray) for branch in branches]
    return [choose(which, cases) for cases in zip(*outcomes, strict=True)]


_CONTROL: Mapping[str, Callable[[Any, list[Value]], list[Value]]] = {
    "scan": _scan,
    "while": _while,
    "cond": _cond,
}


# ---- where an operation stands -----------------------------------------------------------------------------


def _refusal(equation: Any, reason: str) -> TranslationError:
    return TranslationError(equation.primitive.name, source_line(equation), reason)


def source_line(equation: Any) -> str:
    """`file:line (function)` of the user's code that an equation came from."""
    try:
        from jax._src import source_info_util  # there is no public way to ask

        frame = source_info_util.user_frame(equation.source_info.traceback)
        if frame is not None:
            return f"{frame.file_name}:{frame.start_line} ({frame.function_name})"
    except Exception:  # JAX moves its private parts; a place is a courtesy, never a reason to fail
        pass
    return _line_from_frames(equation)


def _line_from_frames(equation: Any) -> str:
    inside = os.path.dirname(jax.__file__) + os.sep
    try:
        for frame in equation.source_info.traceback.frames:
            if not frame.file_name.startswith(inside):
                return f"{frame.file_name}:{frame.line_num} ({frame.function_name})"
    except Exception:
        pass
    return _NOWHERE
