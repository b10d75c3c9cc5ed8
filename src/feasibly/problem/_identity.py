"""Which problem this is: a hash of what it does, since Python functions cannot be hashed themselves."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from feasibly.problem.core import Problem

Array = NDArray[np.float64]

_PROBE_SEED = 20250713


def fingerprint_of(problem: Problem) -> str:
    """See `Problem.fingerprint`."""
    grid = None if problem.spec is None else problem.spec.get("grid")
    if grid is not None:
        drawn = None if problem.drawing is None else problem.drawing.identity
        if drawn is None:
            return str(grid.digest)
        return hashlib.sha256(f"{grid.digest} {drawn}".encode()).hexdigest()[:32]
    sizes = problem.n_inputs, problem.n_outputs, problem.n_equalities, problem.n_inequalities
    digest = hashlib.sha256(repr(sizes).encode())
    digest.update(repr((problem.input_names, problem.output_names)).encode())
    digest.update(repr([(k, v.start, v.stop) for k, v in problem.blocks.items()]).encode())
    if problem._inputs_named:
        digest.update(repr([(k, v.start, v.stop) for k, v in problem.inputs.items()]).encode())
    for bound in (problem.lower, problem.upper):
        digest.update(_rounded(bound))
    for row in _probes(problem):
        digest.update(_rounded(row))
    return digest.hexdigest()[:32]


def _probes(problem: Problem, count: int = 4) -> Iterator[Array]:
    generator = np.random.Generator(np.random.Philox(key=_PROBE_SEED))
    box = problem.box()
    low, high = (problem.nominal - 0.1, problem.nominal + 0.1) if box is None else box
    x = low + generator.random((count, problem.n_inputs)) * (high - low)
    y = problem.start + 0.01 * generator.standard_normal((count, problem.n_outputs))
    yield problem.objectives(x, y)
    yield problem.equalities(x, y).ravel()
    yield problem.inequalities(x, y).ravel()
    if problem.limits.functions is not None:
        yield np.concatenate(problem.bounds(x)).ravel()


def _rounded(values: Array) -> bytes:
    """Seven significant digits, with signed zeros and the infinities made plain."""
    return b",".join(f"{value + 0.0:.6e}".encode() for value in np.asarray(values, dtype=np.float64).ravel())
