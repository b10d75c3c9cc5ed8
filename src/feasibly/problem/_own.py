"""A user's function on constants of its own.

JAX (0.10) remembers in which precision it first compiled with a NumPy array that a function captures, and
hands that version to every later trace of any function that captures the same array. A problem evaluated in
float64 would so break the user's own float32 code around the same arrays, and the reverse. Copies made
once, when the problem is defined, keep the two apart; and a problem stays what it was if an array is changed.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator
from typing import Any

import numpy as np


def own_constants(function: Any) -> Any:
    """`function` with copies of the NumPy arrays it captures, itself or through functions it calls.

    Looks into closures, module-level names and `functools.partial`; arrays inside objects and containers stay
    shared. Anything else than a plain Python function comes back as it is.
    """
    return _Copier().copy(function)


class _Copier:
    def __init__(self) -> None:
        self._done: dict[int, Any] = {}

    def copy(self, thing: Any) -> Any:
        if id(thing) in self._done:
            return self._done[id(thing)]
        if type(thing) is np.ndarray:
            fresh = thing.copy()
            fresh.setflags(write=False)
            self._done[id(thing)] = fresh
            return fresh
        if isinstance(thing, functools.partial):
            arguments = (self.copy(value) for value in thing.args)
            named = {key: self.copy(value) for key, value in thing.keywords.items()}
            return functools.partial(self.copy(thing.func), *arguments, **named)
        if isinstance(thing, types.FunctionType) and _captures(thing, set()):
            return self._function(thing)
        return thing

    def _function(self, function: types.FunctionType) -> types.FunctionType:
        cells = tuple(types.CellType() for _ in function.__closure__ or ())
        names = dict(function.__globals__)
        fresh = types.FunctionType(function.__code__, names, function.__name__, None, cells or None)
        self._done[id(function)] = fresh  # before looking inside: a function may call itself
        for cell, old in zip(cells, function.__closure__ or (), strict=True):
            if _is_set(old):
                cell.cell_contents = self.copy(old.cell_contents)
        for name in _named(function.__code__):
            if name in names and _is_home_made(names[name], function):
                names[name] = self.copy(names[name])
        fresh.__defaults__ = function.__defaults__ and tuple(self.copy(v) for v in function.__defaults__)
        fresh.__kwdefaults__ = function.__kwdefaults__ and {
            key: self.copy(value) for key, value in function.__kwdefaults__.items()
        }
        functools.update_wrapper(fresh, function)
        return fresh


def _captures(function: types.FunctionType, seen: set[int]) -> bool:
    """Whether an array is to be found from here; most functions have none and are left alone."""
    if id(function) in seen:
        return False
    seen.add(id(function))
    return any(
        type(thing) is np.ndarray
        or isinstance(thing, functools.partial)
        or (isinstance(thing, types.FunctionType) and _captures(thing, seen))
        for thing in _held(function)
    )


def _held(function: types.FunctionType) -> Iterator[Any]:
    yield from (cell.cell_contents for cell in function.__closure__ or () if _is_set(cell))
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()
    for name in _named(function.__code__):
        thing = function.__globals__.get(name)
        if _is_home_made(thing, function):
            yield thing


def _is_home_made(thing: Any, function: types.FunctionType) -> bool:
    """Functions of other modules (those of jax.numpy above all) are not looked into."""
    if isinstance(thing, types.FunctionType):
        return thing.__globals__ is function.__globals__
    return type(thing) is np.ndarray or isinstance(thing, functools.partial)


def _is_set(cell: types.CellType) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True


def _named(code: types.CodeType) -> Iterator[str]:
    """Global names that the code, or a function defined inside it, may look up."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _named(constant)
