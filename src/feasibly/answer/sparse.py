"""The optimality system of a large problem as one sparse factorisation that all rows share.

Where `operator.py` inverts the system, this keeps it: with `H` the Hessian of the Lagrangian, `J` the Jacobian of the
equalities, `P` a diagonal belief and `A_b` the normals of the candidates that are usually active,

    K = [ H + P   J'   A_b' ]
        [ J       0    0    ]
        [ A_b     0    0    ]

is factored once and solved for the residuals of many rows at a time. A row whose active set differs from the usual one
does so in a few places: each is a column of `K^-1`, computed when it is first needed and kept (`Flips`), and what they
have to be is a small complementarity problem of the row's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
import scipy.sparse.linalg
from numpy.typing import NDArray

from feasibly.answer.calibration import Centre
from feasibly.answer.candidates import Candidates, in_order
from feasibly.answer.settings import Settings
from feasibly.answer.system import System
from feasibly.problem.core import Problem

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


class Flips:
    """Columns of the inverse for the places where some row's active set differed from the usual one."""

    def __init__(self, size: int, candidates: int, most: int) -> None:
        self.most = most
        """So many columns are kept."""
        self.place = np.full(candidates, -1)
        """Where a candidate's column is; -1 where there is none."""
        self.which: Ints = np.zeros(0, dtype=np.int64)
        self.columns: Array = np.zeros((0, size))
        """One after the other in memory: a row picks some."""
        self.matrix: Array = np.zeros((0, 0))

    def forget(self) -> None:
        """Drop all columns."""
        self.place[:] = -1
        self.which, self.matrix = self.which[:0], np.zeros((0, 0))
        self.columns = self.columns[:0]

    def add(self, which: Ints, columns: Array, matrix: Array) -> None:
        """Those of the candidates `which` too: all `columns` there are then, and the matrix between them."""
        self.place[which] = len(self.which) + np.arange(len(which))
        self.which = np.concatenate([self.which, which])
        self.columns, self.matrix = columns, matrix


@dataclass(frozen=True, eq=False)
class SparseOperator:
    """A factorisation and where it was taken."""

    centre: Centre
    candidates: Candidates
    free: Ints
    base: Mask
    """The usual active set."""
    normals: Any
    """Of all candidates, over the free outputs; and their transpose."""
    transposed: Any
    precision: Array
    """The belief's curvature, a diagonal."""
    trust: Array
    """The longest step of each free output."""
    scale: Array
    """What the system was scaled with."""
    matrix: Any
    """The scaled system."""
    factors: Any
    softness: Array
    """By how much a candidate gives way for a unit of change of its multiplier."""
    flips: Flips
    std: Array

    @property
    def rows(self) -> tuple[int, int]:
        """How many entries a step has, and how many come before the usual candidates' multipliers."""
        inside = int(self.base.sum())
        return len(self.scale), len(self.scale) - inside

    def solve(self, right: Array) -> Array:
        """`K^-1` times columns."""
        return np.asarray(self.scale[:, None] * self.factors.solve(self.scale[:, None] * right))

    def pulled(self, apart: Array) -> Array:
        """The belief's term, twice, at distances `(rows, outputs)` from its mean."""
        return np.asarray((apart[:, self.free] ** 2) @ self.precision)

    def values(self, a: Array, lam: Array, step: Array) -> Array:
        """What must not be negative once `step` is taken: multipliers of the usual candidates, slacks of the others."""
        slack = -(a + self.normals @ step[: len(self.free)]) - self.softness[:, None] * lam
        slack[self.base] = lam[self.base] + step[self.rows[1] :]
        return np.asarray(slack)

    def know(self, which: Ints) -> None:
        """Make sure that there are columns for the candidates `which`, as far as there is room for them."""
        new = np.unique(which[self.flips.place[which] < 0])
        if not len(new):
            return
        if len(self.flips.which) + len(new) > self.flips.most:
            self.flips.forget()
            new = np.unique(which)[: self.flips.most]
        total, before = self.rows
        right = np.zeros((total, len(new)))
        outside = ~self.base[new]
        right[: len(self.free), outside] = self.transposed[:, new[outside]].toarray()
        right[before + np.cumsum(self.base)[new[~outside]] - 1, np.flatnonzero(~outside)] = 1.0
        columns = np.ascontiguousarray(self.solve(right).T)
        every = np.concatenate([self.flips.which, new])
        together = np.concatenate([self.flips.columns, columns])
        matrix = self._across(every, together)
        self.flips.add(new, together, matrix)

    def _across(self, which: Ints, columns: Array) -> Array:
        """How each of `values` changes with a unit in each of the columns."""
        inside = self.base[which]
        matrix = np.zeros((len(which), len(columns)))
        matrix[~inside] = self.normals[which[~inside]] @ columns[:, : len(self.free)].T
        outside = np.flatnonzero(~inside)
        matrix[outside, outside] += self.softness[which[outside]]
        matrix[inside] = -columns[:, self.rows[1] + np.cumsum(self.base)[which[inside]] - 1].T
        return matrix


def build_sparse_operator(
    problem: Problem,
    system: System,
    centre: Centre,
    candidates: Candidates,
    base: Mask,
    variance: Array,
    weight: float,
    trust: Array,
    settings: Settings,
) -> SparseOperator:
    """Factor at `centre`.

    Args:
        problem: what is solved.
        system: its derivatives there.
        centre: where.
        candidates: the watched constraints.
        base: the usual active set among them.
        variance: of the belief about each output.
        weight: `c / tau`, the belief's worth in units of cost.
        trust: the longest step of each output.
        settings: floors, and what keeps the system regular.
    """
    free = np.flatnonzero(problem.lower < problem.upper)
    hessian = system.hessian.matrix[free][:, free]
    jacobian = system.jacobian.matrix[:, free]
    unit = scipy.sparse.identity(problem.n_outputs, format="csr")[:, free]
    normals = scipy.sparse.vstack(
        in_order(-unit[candidates.lower], unit[candidates.upper], system.normals.matrix[:, free]),
        format="csr",
    )
    precision = weight / (variance[free] + settings.belief_floor**2)
    usual = normals[np.flatnonzero(base)]
    first, factor, last = settings.sparse_shifts
    shift, regular = 0.0, settings.sparse_regularisation
    while True:
        metric = hessian + scipy.sparse.diags(precision * (1.0 + shift))
        matrix, scale = _scaled(metric, jacobian, usual, regular)
        if shift > last or _curves_up(matrix, jacobian.shape[0] + usual.shape[0]):
            break
        shift = max(first, factor * shift)
    # As a share of how far a unit of their multiplier moves candidates.
    softness = settings.complementarity.soft * spread_of(metric, jacobian, normals, regular)
    matrix, scale = _scaled(metric, jacobian, usual, regular, softness[base])
    factors = scipy.sparse.linalg.splu(matrix)
    std = np.zeros(problem.n_outputs)
    std[free] = np.sqrt(variance[free])
    flips = Flips(len(scale), len(candidates), settings.sparse_columns)
    return SparseOperator(
        centre, candidates, free, np.asarray(base), normals, normals.T.tocsc(), precision, trust[free], scale, matrix,
        factors, softness, flips, std,
    )  # fmt: skip


def spread_of(metric: Any, jacobian: Any, normals: Any, regularisation: float) -> Array:
    """The diagonal of `A G A'`: how far a unit of each candidate's multiplier moves it, no other being active."""
    matrix, scale = _scaled(metric, jacobian, normals[:0], regularisation)
    factors = scipy.sparse.linalg.splu(matrix)
    n = metric.shape[0]
    found = []
    for first in range(0, normals.shape[0], 64):
        right = np.zeros((len(scale), min(64, normals.shape[0] - first)))
        right[:n] = normals[first : first + 64].T.toarray()
        columns = scale[:, None] * factors.solve(scale[:, None] * right)
        found.append(np.sum(right * columns, axis=0))
    return np.maximum(np.concatenate([np.zeros(0), *found]), 0.0)


def _scaled(
    metric: Any, jacobian: Any, usual: Any, regularisation: float, softness: Array | None = None
) -> tuple[Any, Array]:
    """The system with rows and columns scaled to one, and by what."""
    corner_ = None if softness is None else -scipy.sparse.diags(softness)
    blocks = [[metric, jacobian.T, usual.T], [jacobian, None, None], [usual, None, corner_]]
    matrix = scipy.sparse.bmat(blocks, format="csc")
    scale = np.ones(matrix.shape[0])
    for _ in range(3):
        largest = np.sqrt(np.maximum(abs(matrix).max(axis=1).toarray().ravel(), 1e-30))
        scale /= largest
        across = scipy.sparse.diags(1.0 / largest)
        matrix = across @ matrix @ across
    corner = np.zeros(len(scale))
    corner[metric.shape[0] :] = -regularisation
    return (matrix + scipy.sparse.diags(corner)).tocsc(), scale


def _curves_up(matrix: Any, constraints: int) -> bool:
    """Whether the system has as many negative eigenvalues as constraints: its pivots, taken on the diagonal, tell."""
    try:
        factors = scipy.sparse.linalg.splu(
            matrix, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True}
        )
    except RuntimeError:  # singular
        return False
    return int(np.sum(factors.U.diagonal() < 0.0)) == constraints
