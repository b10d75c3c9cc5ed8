"""The frozen frame: everything about a problem's neighbourhood that its instances can share.

At a solved point near the middle of the data, the constraints and the cost are differentiated once and the
optimality system is factored once. An instance then moves by

    d = -G r - R g - G A' dlam,        nu <- nu - R' r + C g - R' A' dlam

where `g` are its equalities, `r` the exact gradient of its own Lagrangian (a reverse-mode derivative, no matrix),
and `lam + dlam` solves a small complementarity problem that all instances share too. The matrices are only a
metric: where the iteration rests, the instance's own optimality conditions hold. It is the adjoint form of sequential
quadratic programming with inexact derivatives (Bock, Diehl, Kostina and Schloeder 2007 use it for real-time control).

The belief enters as curvature `P = c / tau * S^-1`: directions in which the answer hardly ever moves are stiff, and
where the cost is indifferent (two equal generators at one bus) the most probable answer wins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
import scipy.sparse
import scipy.sparse.linalg
from numpy.typing import NDArray

from feasibly.answer.derivatives import Derivatives, lagrangian_pieces
from feasibly.answer.rows import Rows
from feasibly.model.belief import Covariance
from feasibly.model.complementarity import Pivoted, pivot
from feasibly.model.response import LawArrays
from feasibly.precision import double
from feasibly.problem.core import Problem

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

FLOOR = 1e-5
"""Standard deviation (natural units) below which the belief is not trusted to be stiffer."""

LARGE, SPARSE = 1000, 0.05
"""More free variables and a smaller share of nonzeros than these: the equalities are factored as a sparse matrix."""
SOUND = 1e-7
"""How well that must satisfy the equations it stands for."""


class Bounds(NamedTuple):
    """The candidate bounds: positions among the free variables, and the limits there."""

    low: Any
    high: Any
    floor: Any
    ceiling: Any


class Matrices(NamedTuple):
    """The arrays an iteration reads. `free` variables only; fixed ones never move.

    The large ones are only a metric, applied to residuals that vanish where the iteration rests: single precision
    halves their size and the time they take, and costs no digit of the answer.
    """

    move: Any
    """`[-G, -R; -R', C]`: from `[r; g]` to the step and the change of the equalities' multipliers."""
    push: Any
    """`-[G; R'] A'`: what a unit of change of each candidate's multiplier adds to that."""
    normals: Any
    """`A_h`: gradients of the candidate inequalities."""
    precision: Any
    """`P`."""
    gram: Any
    """`A G A'`."""
    pivoted: tuple[Pivoted, Pivoted]
    span: Any
    """The longest step of each free variable: a few of its own standard deviations."""
    bounds: Bounds


@dataclass(frozen=True, eq=False)
class Frame:
    """A frozen frame and where it was taken."""

    x: Array
    y: Array
    nu: Array
    lam: Array
    rows: Rows
    free: Ints
    matrices: Matrices
    std: Array
    """Standard deviations of the conditioned belief at the frame's own active set, per output."""


def build_frame(
    problem: Problem,
    derivatives: Derivatives,
    x: Array,
    y: Array,
    nu: Array,
    lam: Array,
    rows: Rows,
    base: NDArray[np.bool_],
    belief: Array,
    weight: float,
    span: Array,
) -> Frame:
    """Differentiate and factor at `(x, y)` with multipliers `nu` (equalities) and `lam` (candidates).

    `belief` is its inverse covariance, `weight` is `c / tau`, its worth in units of cost; `base` the usual active
    set among `rows`; `span` the longest step of each output.
    """
    free = np.flatnonzero(problem.lower < problem.upper)
    jacobian, normals, curvature = derivatives.at(x, y, nu, lam[len(rows.lower) + len(rows.upper) :])
    jacobian, normals = jacobian[:, free], normals[:, free]
    precision = weight * belief
    metric = curvature[np.ix_(free, free)] + precision
    metric = (metric + metric.T) / 2.0
    null, right = split_spaces(jacobian)
    inner = metric @ null
    reduced = _convex(null.T @ inner)
    solved = scipy.linalg.solve(reduced, null.T, assume_a="pos") if null.shape[1] else null.T
    inverse = null @ solved  # G
    # Written so that no product passes through `G`, which is large and of low rank. Where matrices are large, single
    # precision, which is all that is kept of them, halves the time; in small ones it would only lose digits.
    kind: Any = np.float32 if len(free) > LARGE else np.float64
    across, along = right.astype(kind), null.astype(kind)
    bent = metric.astype(kind) @ across
    turned = solved.astype(kind) @ bent
    response = right - along @ turned  # R
    corner = across.T @ bent - (across.T @ inner.astype(kind)) @ turned
    corner = (corner + corner.T) / 2.0
    move = np.block([[-inverse, -response], [-response.T, corner]])

    position = np.full(problem.n_outputs, -1)
    position[free] = np.arange(len(free))
    low, high = position[rows.lower], position[rows.upper]
    columns = np.concatenate([-inverse[:, low], inverse[:, high], inverse @ normals.T], axis=1)  # G A'
    duals = np.concatenate([-response.T[:, low], response.T[:, high], response.T @ normals.T], axis=1)
    gram = np.concatenate([-columns[low], columns[high], normals @ columns])
    gram = (gram + gram.T) / 2.0
    matrices = Matrices(
        move=move.astype(np.float32),
        push=-np.concatenate([columns, duals]).astype(np.float32),
        normals=normals.astype(np.float32),
        precision=precision.astype(np.float32),
        gram=gram,
        pivoted=pivot(gram, base),
        span=span[free],
        bounds=Bounds(low, high, problem.lower[rows.lower], problem.upper[rows.upper]),
    )
    with double():
        matrices = jax.device_put(matrices)  # once, not once a call
    std = np.zeros(problem.n_outputs)
    std[free] = _spread(inverse, columns, gram, base) * np.sqrt(weight)
    return Frame(x, y, nu, lam, rows, free, matrices, std)


def _spread(inverse: Array, columns: Array, gram: Array, base: NDArray[np.bool_]) -> Array:
    """Root of the diagonal of the inverse curvature on the tangent of the usual active set.

    Curvature is cost times belief: multiplied by `weight = c / tau`, its inverse is the tilted belief's covariance.
    """
    active = np.flatnonzero(base)
    variance = np.diag(inverse).copy()
    if len(active):
        small = gram[np.ix_(active, active)]
        small = small + 1e-10 * np.trace(small) / len(active) * np.eye(len(active))
        solved = scipy.linalg.solve(small, columns[:, active].T, assume_a="pos")
        variance -= np.sum(columns[:, active] * solved.T, axis=1)
    return np.sqrt(np.maximum(variance, 0.0))


def invert(covariance: Covariance, free: Ints) -> Array:
    """`(S + FLOOR^2 I)^-1` on the free variables, by Woodbury."""
    diagonal = covariance.diagonal[free] + FLOOR**2
    factor = covariance.factor[free] / diagonal[:, None]
    middle = np.eye(factor.shape[1]) + covariance.factor[free].T @ factor
    return np.asarray(np.diag(1.0 / diagonal) - factor @ scipy.linalg.solve(middle, factor.T, assume_a="pos"))


def split_spaces(jacobian: Array) -> tuple[Array, Array]:
    """An orthonormal basis of the null space and the pseudo-inverse of the equalities' Jacobian."""
    rows, columns = jacobian.shape
    if rows == 0:
        return np.eye(columns), np.zeros((columns, 0))
    if rows < columns and columns > LARGE and np.count_nonzero(jacobian) < SPARSE * jacobian.size:
        found = _split_sparse(jacobian)
        if found is not None:
            return found
    full, triangle = scipy.linalg.qr(jacobian.T, mode="full")
    diagonal = np.abs(np.diag(triangle))
    if rows <= columns and diagonal.min() > 1e-9 * diagonal.max():
        right = scipy.linalg.solve_triangular(triangle[:rows], full[:, :rows].T).T
        return full[:, rows:], right
    # Equalities that repeat one another: rank by singular values.
    left, values, across = np.linalg.svd(jacobian)
    rank = int(np.sum(values > 1e-9 * values[0]))
    right = across[:rank].T @ (left[:, :rank] / values[:rank]).T
    return across[rank:].T, right


def _split_sparse(jacobian: Array) -> tuple[Array, Array] | None:
    """The same from a sparse factorisation of `J J'`, or nothing where that is too ill-conditioned.

    The basis is what is left of random vectors once their part across the null space is taken away.
    """
    rows, columns = jacobian.shape
    sparse = scipy.sparse.csc_matrix(jacobian)
    try:
        factors = scipy.sparse.linalg.splu((sparse @ sparse.T).tocsc())
    except RuntimeError:  # singular
        return None
    right = sparse.T @ factors.solve(np.eye(rows))
    vectors = np.random.default_rng(0).standard_normal((columns, columns - rows))
    for _ in range(2):
        vectors, _ = np.linalg.qr(vectors - sparse.T @ factors.solve(sparse @ vectors))
    scale = np.abs(sparse).max()
    left = max(np.abs(sparse @ right - np.eye(rows)).max(), np.abs(sparse @ vectors).max() / scale)
    return (vectors, right) if left < SOUND else None


def _convex(matrix: Array) -> Array:
    """`matrix` with eigenvalues that are negative or nearly zero raised, so that it defines a metric."""
    if not len(matrix):
        return matrix
    matrix = (matrix + matrix.T) / 2.0
    values, vectors = np.linalg.eigh(matrix)
    least = 1e-8 * max(float(values[-1]), 1e-8)
    if values[0] >= least:
        return matrix
    raised = np.maximum(np.abs(values), least)
    return np.asarray((vectors * raised) @ vectors.T)


def law_of(problem: Problem, frame: Frame) -> LawArrays:
    """The first-order response of the optimum around a frame, as arrays linear in the input."""
    pieces = lagrangian_pieces(problem, frame.rows)
    rows, free = frame.rows, frame.free
    first = len(rows.lower) + len(rows.upper)
    lam_h = frame.lam[first:]

    def residuals(x: Any, y: Any, nu: Any, lam: Any) -> Any:
        slope = jax.grad(pieces.lagrangian, argnums=1)(x, y, nu, lam)[free]
        return jnp.concatenate([slope, pieces.equality(x, y)]), pieces.inequality(x, y)

    with double():
        centre = tuple(jnp.asarray(part) for part in (frame.x, frame.y, frame.nu, lam_h))
        (at, h) = jax.jit(residuals)(*centre)
        (at_slope, h_slope) = jax.jit(jax.jacfwd(residuals))(*centre)
    m = frame.matrices
    move, push, normals, gram = (
        np.asarray(part, dtype=np.float64) for part in (m.move, m.push, m.normals, m.gram)
    )
    n = len(free)
    position = np.full(problem.n_outputs, -1)
    position[free] = np.arange(n)
    low, high = position[rows.lower], position[rows.upper]
    residual = np.array(at)  # the bounds' multipliers come on top: all of it vanishes at a solved point
    residual[low] -= frame.lam[: len(low)]
    residual[high] += frame.lam[len(low) : first]
    step = move[:n] @ residual
    step_slope = move[:n] @ np.asarray(at_slope)
    slack = np.concatenate(
        [
            problem.lower[rows.lower] - frame.y[rows.lower],
            frame.y[rows.upper] - problem.upper[rows.upper],
            np.asarray(h),
        ]
    )
    still = np.zeros((first, len(frame.x)))
    return LawArrays(
        x0=frame.x,
        y0=frame.y,
        drift=_spread_out(step - push[:n] @ frame.lam, free, problem.n_outputs),
        slope=_spread_out(step_slope, free, problem.n_outputs),
        push=_spread_out(push[:n], free, problem.n_outputs),
        q0=np.concatenate([-step[low], step[high], normals @ step]) + slack + gram @ frame.lam,
        q_slope=np.concatenate([-step_slope[low], step_slope[high], normals @ step_slope])
        + np.concatenate([still, np.asarray(h_slope)]),
        lam0=frame.lam,
        pivoted=m.pivoted,
    )


def _spread_out(part: Array, free: Ints, size: int) -> Array:
    """`part` of the free outputs among all of them, zero elsewhere."""
    whole = np.zeros((size, *part.shape[1:]))
    whole[free] = part
    return whole
