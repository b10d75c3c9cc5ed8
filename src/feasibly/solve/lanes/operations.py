"""The elementary operations that lanes know, by CasADi's codes, and where each one's vector form comes from."""

from __future__ import annotations

import contextlib
import ctypes
import ctypes.util

import casadi
from llvmlite import binding

INTRINSIC = {"SQRT": "sqrt", "FABS": "fabs", "FLOOR": "floor", "CEIL": "ceil"}
INTRINSIC_PAIR = {"FMIN": "minnum", "FMAX": "maxnum", "COPYSIGN": "copysign"}
_LIBRARY = {
    "TAN": "tan", "ASIN": "asin", "ACOS": "acos", "ATAN": "atan", "SINH": "sinh",
    "COSH": "cosh", "TANH": "tanh", "ASINH": "asinh", "ACOSH": "acosh", "ATANH": "atanh", "EXP": "exp", "LOG": "log",
    "ERF": "erf", "LOG1P": "log1p", "EXPM1": "expm1",
}  # fmt: skip
_LIBRARY_PAIR = {"POW": "pow", "CONSTPOW": "pow", "ATAN2": "atan2", "FMOD": "fmod", "HYPOT": "hypot"}
COMPARED = {"LT": "<", "LE": "<=", "EQ": "==", "NE": "!="}
_OTHER = (
    "ASSIGN", "ADD", "SUB", "MUL", "DIV", "NEG", "SQ", "TWICE", "INV", "SIGN", "NOT", "AND", "OR", "IF_ELSE_ZERO",
    "SIN", "COS",
)  # fmt: skip
MULTIPLY_ADD = 1000
"""Beside CasADi's codes: the product of the arguments is added to what stands in the result's slot."""


def _found(name: str) -> bool:
    """Whether a function of the C library is there to be called: LLVM ends the process over one that is not."""
    if binding.address_of_symbol(name) is None:
        for library in (None, ctypes.util.find_library("m")):
            with contextlib.suppress(OSError, AttributeError, TypeError):
                function = getattr(ctypes.CDLL(library), name)
                binding.add_symbol(name, ctypes.cast(function, ctypes.c_void_p).value)
                return True
        return False
    return True


LIBRARY = {name: own for name, own in _LIBRARY.items() if _found(own)}
LIBRARY_PAIR = {name: own for name, own in _LIBRARY_PAIR.items() if _found(own)}
OPERATIONS: dict[int, str] = {
    getattr(casadi, f"OP_{name}"): name
    for name in (*_OTHER, *INTRINSIC, *INTRINSIC_PAIR, *LIBRARY, *LIBRARY_PAIR, *COMPARED)
    if hasattr(casadi, f"OP_{name}")
}
"""CasADi's codes of the operations that lanes know."""
CODES = {name: code for code, name in OPERATIONS.items()}
