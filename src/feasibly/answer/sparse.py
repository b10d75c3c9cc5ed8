"""The optimality system of a large problem as one sparse factorisation that all rows share.

Where `operator.py` inverts the system, this keeps it: with `H` the Hessian of the Lagrangian, `J` the Jacobian of the
equalities, `P` a diagonal belief, `A_b` the normals of the usually active candidates and `S_b` a small diagonal,

    K = [ H + P   J'    A_b' ]
        [ J       0     0    ]
        [ A_b     0    -S_b  ]

is factored once and solved for the residuals of many rows at a time. In order (`build_sparse_operator`): shift the
Hessian until `K` has one negative eigenvalue a constraint (inertia correction); factor the system of the equalities
alone, which tells `S_b`; factor `K`.

A row's active set differs from the usual one in a few places: how such changes act on each other is a Schur complement,
computed when they are first met and kept (`ActiveSetChanges`), and what they have to be is a small complementarity
problem of the row's own (`sparse_step.solve_changes`).
"""

from __future__ import annotations

import threading
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


_COLUMNS = 32
"""So many at a time: of 40,000 numbers each, that is what the caches of a processor hold."""


class ActiveSetChanges:
    """Candidates in which some row's active set differed from the usual one, and how they act on each other."""

    def __init__(self, sigma: Array, capacity: int) -> None:
        self.lock = threading.RLock()
        """Held by whoever adds to them or reads them: threads share an operator."""
        self.capacity = capacity
        """At most so many are kept; beyond that all are dropped and met anew."""
        self.sigma = sigma
        """Sigma of (3s) by candidate, if usual or among them: how far a unit of change of its multiplier moves it."""
        self.position = np.full(len(sigma), -1)
        """Of each candidate among them; -1 for one that is not."""
        self.candidates: Ints = np.zeros(0, dtype=np.int64)
        self.matrix: Array = np.zeros((0, 0))
        """The Schur complement between them: how the nonnegative quantity of each moves with a unit of each change."""

    def clear(self) -> None:
        """Drop all of them."""
        self.position[:] = -1
        self.candidates, self.matrix = self.candidates[:0], np.zeros((0, 0))

    def add(self, which: Ints, matrix: Array) -> None:
        """The candidates `which` too, whose sigma is known; `matrix` is that of all of them."""
        self.position[which] = len(self.candidates) + np.arange(len(which))
        self.candidates, self.matrix = np.concatenate([self.candidates, which]), matrix


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
    normals_transposed: Any
    precision: Array
    """The belief's curvature, a diagonal."""
    radius: Array
    """The longest step of each free output."""
    scale: Array
    """What the system was scaled with."""
    matrix: Any
    """The scaled system."""
    factors: Any
    equality_system: EqualitySystem
    """The same without candidates."""
    sigma_share: float
    """Sigma, as a share of how far a unit of a candidate's multiplier moves it, no other being active."""
    changes: ActiveSetChanges
    std: Array

    @property
    def before_usual(self) -> int:
        """How many entries of a step come before the multipliers of the usual candidates, which are its last."""
        return len(self.scale) - int(self.base.sum())

    def solve(self, right: Array) -> Array:
        """`K^-1` times columns."""
        return np.asarray(self.scale[:, None] * self.factors.solve(self.scale[:, None] * right))

    def proximal_square(self, away: Array) -> Array:
        """`away' P away`, twice the proximal term, at distances `(rows, outputs)` from the belief's mean."""
        return np.asarray((away[:, self.free] ** 2) @ self.precision)

    def with_changes(self, step: Array, amounts: Array) -> Array:
        """`step` (columns) where rows differ from the usual set by `amounts`, `(rows, known)`."""
        used = np.flatnonzero(amounts.any(axis=0))
        if not len(used):
            return step
        right = self._right_hand_sides(
            self.changes.candidates[used], scipy.sparse.csc_matrix(amounts[:, used].T)
        )
        return np.asarray(step - self.solve(right))

    def _right_hand_sides(self, which: Ints, amounts: Any) -> Array:
        """The right-hand sides of `K` that such amounts, a row for each of the candidates `which`, stand for."""
        total, before = len(self.scale), self.before_usual
        inside = self.base[which]
        right = np.zeros((total, amounts.shape[1]))
        rows = amounts.tocsr()
        right[: len(self.free)] = (self.normals_transposed[:, which[~inside]] @ rows[~inside]).toarray()
        right[before + np.cumsum(self.base)[which[inside]] - 1] = rows[inside].toarray()
        return right

    def nonnegatives(self, a: Array, lam: Array, step: Array) -> Array:
        """What must not be negative once `step` is taken: multipliers of the usual candidates, slacks of the others."""
        slack = -(a + self.normals @ step[: len(self.free)]) - self.changes.sigma[:, None] * lam
        slack[self.base] = lam[self.base] + step[self.before_usual :]
        return np.asarray(slack)

    def include(self, which: Ints) -> None:
        """Make sure that the candidates `which` are among the changes, as far as there is room for them."""
        known = self.changes
        new = np.unique(which[known.position[which] < 0])
        if not len(new):
            return
        if len(known.candidates) + len(new) > known.capacity:
            known.clear()
            new = np.unique(which)[: known.capacity]
        before, every = len(known.candidates), np.concatenate([known.candidates, new])
        outside = new[~self.base[new]]
        known.sigma[outside] = self.sigma_share * self.equality_system.gram_diagonal(self.normals[outside])
        inside = self.base[every]
        across = np.zeros((len(every), len(new)))
        places = self.before_usual + np.cumsum(self.base)[every[inside]] - 1
        for first in range(0, len(new), _COLUMNS):
            some = new[first : first + _COLUMNS]
            columns = self.solve(self._right_hand_sides(some, scipy.sparse.identity(len(some), format="csc")))
            across[~inside, first : first + len(some)] = (
                self.normals[every[~inside]] @ columns[: len(self.free)]
            )
            across[inside, first : first + len(some)] = -columns[places]
        own = np.arange(len(new))
        across[before + own, own] += np.where(self.base[new], 0.0, known.sigma[new])
        matrix = np.zeros((len(every), len(every)))
        matrix[:before, :before] = known.matrix
        matrix[:, before:] = across
        # `K` is symmetric: so is what acts between two of a kind, and of two kinds one is the other's with its sign
        # turned.
        turned = np.where(inside[:before, None] == inside[before:], 1.0, -1.0)
        matrix[before:, :before] = (turned * across[:before]).T
        known.add(new, matrix)


def build_sparse_operator(
    problem: Problem,
    system: System,
    centre: Centre,
    candidates: Candidates,
    base: Mask,
    variance: Array,
    weight: float,
    radius: Array,
    settings: Settings,
) -> SparseOperator:
    """Factor at `centre`.

    Args:
        problem: what is solved.
        system: its derivatives there.
        centre: where.
        candidates: the constraints that may become active.
        base: the usual active set among them.
        variance: of the belief about each output.
        weight: `c / tau`, the belief's worth in units of cost.
        radius: the longest step of each output.
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
        matrix, scale = _equilibrated(metric, jacobian, usual, regular)
        if shift > last or _has_correct_inertia(matrix, jacobian.shape[0] + usual.shape[0]):
            break
        shift = max(first, factor * shift)
    equality_system = EqualitySystem(metric, jacobian, regular)
    # (3s): what the soft problem (5) has on its diagonal.
    sigma, share = np.zeros(len(candidates)), settings.complementarity.soft
    sigma[base] = share * equality_system.gram_diagonal(usual)
    matrix, scale = _equilibrated(metric, jacobian, usual, regular, sigma[base])
    factors = _vectorised(scipy.sparse.linalg.splu(matrix))
    std = np.zeros(problem.n_outputs)
    std[free] = np.sqrt(variance[free])
    changes = ActiveSetChanges(sigma, settings.sparse_columns)
    return SparseOperator(
        centre, candidates, free, np.asarray(base), normals, normals.T.tocsc(), precision, radius[free], scale, matrix,
        factors, equality_system, share, changes, std,
    )  # fmt: skip


def _vectorised(factors: Any) -> Any:
    """The same factors for many right-hand sides at a time, where that can be compiled."""
    try:
        from feasibly.solve.lanes.triangular import Triangles

        return Triangles(factors)
    except (ImportError, OSError, RuntimeError):
        return factors


class EqualitySystem:
    """The system of the equalities alone."""

    def __init__(self, metric: Any, jacobian: Any, regularisation: float) -> None:
        matrix, self._scale = _equilibrated(metric, jacobian, jacobian[:0], regularisation)
        self._factors, self._free = _vectorised(scipy.sparse.linalg.splu(matrix)), metric.shape[0]

    def gram_diagonal(self, normals: Any) -> Array:
        """The diagonal of `A G A'`: how far a unit of each multiplier moves its constraint, no other being active."""
        found = np.zeros(normals.shape[0])
        for first in range(0, len(found), _COLUMNS):
            some = normals[first : first + _COLUMNS].T
            right = np.zeros((len(self._scale), some.shape[1]))
            right[: self._free] = some.toarray()
            columns = self._scale[:, None] * self._factors.solve(self._scale[:, None] * right)
            found[first : first + _COLUMNS] = np.sum(right * columns, axis=0)
        return np.maximum(found, 0.0)


def _equilibrated(
    metric: Any, jacobian: Any, usual: Any, regularisation: float, sigma: Array | None = None
) -> tuple[Any, Array]:
    """The system with rows and columns scaled to one, and by what."""
    lower_block = None if sigma is None else -scipy.sparse.diags(sigma)
    blocks = [[metric, jacobian.T, usual.T], [jacobian, None, None], [usual, None, lower_block]]
    matrix = scipy.sparse.bmat(blocks, format="csc")
    scale = np.ones(matrix.shape[0])
    for _ in range(3):  # each halves the orders of magnitude that the largest entries are away from one
        largest = np.sqrt(np.maximum(abs(matrix).max(axis=1).toarray().ravel(), 1e-30))
        scale /= largest
        across = scipy.sparse.diags(1.0 / largest)
        matrix = across @ matrix @ across
    corner = np.zeros(len(scale))
    corner[metric.shape[0] :] = -regularisation
    return (matrix + scipy.sparse.diags(corner)).tocsc(), scale


def _has_correct_inertia(matrix: Any, constraints: int) -> bool:
    """Whether the system has as many negative eigenvalues as constraints: its pivots, taken on the diagonal, tell."""
    try:
        factors = scipy.sparse.linalg.splu(
            matrix, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True}
        )
    except RuntimeError:  # singular
        return False
    return int(np.sum(factors.U.diagonal() < 0.0)) == constraints
