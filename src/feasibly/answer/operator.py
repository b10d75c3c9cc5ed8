"""The optimality system around one point, and an approximate inverse of it that rows can share.

Write `H` for the Hessian of the Lagrangian, `J` for the Jacobian of the equalities, `A` for the gradients of the
candidates (inequalities and bounds that may become active), `P` for the Hessian of the proximal term (see
docs/method.md). With `Z` an orthonormal basis of the null space of `J` and `J+` its pseudo-inverse, the inverse of
`[[H + P, J'], [J, 0]]` has the blocks

    G = Z (Z' (H + P) Z)^-1 Z',     R = J+ - G (H + P) J+,     C = J+' (H + P) R

and a row moves by `d = -G r - R g - G A' dlam`, its equality multipliers by `-R' r + C g - R' A' dlam`, where `r` is
the exact gradient of its own Lagrangian and `g` its own equalities. The matrices are only a metric: at a fixed
point the row's own optimality conditions hold. It is the adjoint form of sequential quadratic programming with
inexact derivatives (Bock, Diehl, Kostina and Schloeder 2007 use it for real-time control).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np
import scipy.linalg
import scipy.sparse
import scipy.sparse.linalg
from numpy.typing import NDArray

from feasibly.answer.calibration import Centre
from feasibly.answer.candidates import Candidates, in_order
from feasibly.answer.derivatives import Derivatives
from feasibly.answer.settings import Settings
from feasibly.answer.switches import Corrected, Correction, Switches, correct
from feasibly.answer.system import Saved
from feasibly.model.belief import Covariance
from feasibly.model.complementarity import Pivoted, pivot
from feasibly.precision import double
from feasibly.problem.core import Problem

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


class DenseInverse(NamedTuple):
    """The inverse as dense matrices, over the free variables; fixed ones never move. Rows of a batch are columns here.

    The large ones are only a metric, applied to residuals that vanish at a fixed point: single precision
    halves their size and the time they take, and costs no digit of the answer.
    """

    blocks: Any
    """`[-G, -R; -R', C]`: from `[r; g]` to the step and the change of the equalities' multipliers."""
    response: Any
    """`-[G; R'] A'`: what a unit of change of each candidate's multiplier adds to that."""
    normals: Any
    """Gradients of the candidate inequalities (bounds need no matrix)."""
    precision: Any
    """`P`."""
    gram: Any
    """`A G A'`, the matrix of the complementarity problem."""
    pivoted: tuple[Pivoted, Pivoted]
    """The same, prepared for the usual active set: soft and hard."""
    radius: Any
    """The longest step of each free variable."""
    low: Any
    """Positions, among the free variables, of the candidate lower bounds."""
    high: Any
    """The same for upper bounds."""
    correction: Correction | None = None
    """For rows in which an element is out of service."""

    def solve(self, slope: Any, equality: Any) -> Any:
        """Step and change of the equalities' multipliers for residuals `(free, rows)` and `(equalities, rows)`."""
        import jax.numpy as jnp

        return _in_float32(self.blocks, jnp.concatenate([slope, equality]))

    def respond(self, change: Any) -> Any:
        """What a change of the candidates' multipliers adds to `solve`."""
        return _in_float32(self.response, change)

    def along_normals(self, step: Any) -> Any:
        """How a step changes each candidate, to first order."""
        import jax.numpy as jnp

        return jnp.concatenate(in_order(-step[self.low], step[self.high], _in_float32(self.normals, step)))

    def corrected(self, x: Any) -> Corrected | None:
        """The corrections of rows with inputs `(inputs, rows)`, where there are any."""
        return None if self.correction is None else self.correction.of(self.correction.which(x), self.blocks)

    def proximal_gradient(self, away: Any) -> Any:
        """The gradient of the proximal term (2) at a distance `away` from its mean."""
        return _in_float32(self.precision, away)


def _in_float32(matrix: Any, vectors: Any) -> Any:
    import jax.numpy as jnp

    # Accelerators would take fewer digits yet, unasked: on case57 nothing converged in four steps then.
    return jnp.matmul(matrix, vectors.astype(matrix.dtype), precision="highest").astype(vectors.dtype)


@dataclass(frozen=True, eq=False)
class Operator:
    """An inverse and where it was taken."""

    centre: Centre
    candidates: Candidates
    free: Ints
    inverse: DenseInverse
    std: Array
    """Standard deviations of the conditioned belief at the usual active set, per output."""

    def proximal_square(self, away: Array) -> Array:
        """`away' P away`, twice the proximal term, at distances `(rows, outputs)` from the belief's mean."""
        inside = away[:, self.free].astype(np.float32)
        return np.asarray(
            np.sum(inside * (inside @ np.asarray(self.inverse.precision)), axis=1, dtype=np.float64)
        )


def build_operator(
    problem: Problem,
    derivatives: Derivatives | Saved,
    centre: Centre,
    candidates: Candidates,
    base: NDArray[np.bool_],
    belief: Array,
    weight: float,
    radius: Array,
    settings: Settings,
    switches: Switches | None = None,
) -> Operator:
    """Differentiate and factor at `centre`.

    Args:
        problem: what is solved.
        derivatives: its compiled derivatives for `candidates`.
        centre: where.
        candidates: the constraints that may become active.
        base: the usual active set among them.
        belief: its inverse covariance on the free variables.
        weight: `c / tau`, the belief's worth in units of cost.
        radius: the longest step of each output.
        settings: floors and sizes.
        switches: inputs that are on at the centre, and what changes when they are off.
    """
    free = free_variables(problem)
    at_inequality = candidates.split(centre.lam)[2]
    jacobian, normals, curvature = derivatives.at(centre.x, centre.y, centre.equality, at_inequality)
    jacobian, normals = jacobian[:, free], normals[:, free]
    precision = weight * belief
    metric = curvature[np.ix_(free, free)] + precision
    metric = (metric + metric.T) / 2.0
    null, right = split_spaces(jacobian, settings)
    inner = metric @ null
    reduced = convexify(null.T @ inner, settings.curvature_floor, settings.least_curvature)
    solved = scipy.linalg.solve(reduced, null.T, assume_a="pos") if null.shape[1] else null.T
    inverse = null @ solved  # G
    # Written so that no product passes through `G`, which is large and of low rank. Where matrices are large, single
    # precision, which is all that is kept of them, halves the time; in small ones it would only lose digits.
    kind: Any = np.float32 if len(free) > settings.large else np.float64
    across, along = right.astype(kind), null.astype(kind)
    bent = metric.astype(kind) @ across
    turned = solved.astype(kind) @ bent
    towards = right - along @ turned  # R
    corner = across.T @ bent - (across.T @ inner.astype(kind)) @ turned  # C
    corner = (corner + corner.T) / 2.0
    blocks = np.block([[-inverse, -towards], [-towards.T, corner]])

    position = np.full(problem.n_outputs, -1)
    position[free] = np.arange(len(free))
    low, high = position[candidates.lower], position[candidates.upper]
    columns = np.concatenate(
        in_order(-inverse[:, low], inverse[:, high], inverse @ normals.T), axis=1
    )  # G A'
    duals = np.concatenate(in_order(-towards.T[:, low], towards.T[:, high], towards.T @ normals.T), axis=1)
    gram = np.concatenate(in_order(-columns[low], columns[high], normals @ columns))
    gram = (gram + gram.T) / 2.0
    usual = pivot(gram, base, settings.complementarity)
    response = np.concatenate([columns, duals])
    made = DenseInverse(
        blocks=blocks.astype(np.float32),
        response=-response.astype(np.float32),
        normals=normals.astype(np.float32),
        precision=precision.astype(np.float32),
        gram=gram,
        pivoted=usual,
        radius=radius[free],
        low=low,
        high=high,
        correction=None
        if switches is None
        else correct(switches, position, len(free), -blocks, response, usual),
    )
    with double():
        made = jax.device_put(made)  # once, not once a call
    std = np.zeros(problem.n_outputs)
    std[free] = _spread(inverse, columns, gram, base, settings.spread_regularisation) * np.sqrt(weight)
    return Operator(centre, candidates, free, made, std)


def free_variables(problem: Problem) -> Ints:
    """Positions of the outputs whose bounds leave them room."""
    return np.flatnonzero(problem.lower < problem.upper)


def _spread(
    inverse: Array, columns: Array, gram: Array, base: NDArray[np.bool_], regularisation: float
) -> Array:
    """Root of the diagonal of the inverse curvature on the tangent of the usual active set.

    Curvature is cost times belief: multiplied by `weight = c / tau`, its inverse is the tilted belief's covariance.
    """
    active = np.flatnonzero(base)
    variance = np.diag(inverse).copy()
    small = gram[np.ix_(active, active)]
    usual = float(np.trace(small)) / max(len(active), 1)
    if usual > 0.0:  # where equalities settle everything there is nothing to take away
        small = small + regularisation * usual * np.eye(len(active))
        solved = scipy.linalg.solve(small, columns[:, active].T, assume_a="pos")
        variance -= np.sum(columns[:, active] * solved.T, axis=1)
    return np.sqrt(np.maximum(variance, 0.0))


def invert_belief(covariance: Covariance, free: Ints, floor: float) -> Array:
    """`(S + floor^2 I)^-1` on the free variables, by Woodbury."""
    diagonal = covariance.diagonal[free] + floor**2
    factor = covariance.factor[free] / diagonal[:, None]
    middle = np.eye(factor.shape[1]) + covariance.factor[free].T @ factor
    return np.asarray(np.diag(1.0 / diagonal) - factor @ scipy.linalg.solve(middle, factor.T, assume_a="pos"))


def split_spaces(jacobian: Array, settings: Settings) -> tuple[Array, Array]:
    """An orthonormal basis of the null space and the pseudo-inverse of the equalities' Jacobian."""
    rows, columns = jacobian.shape
    if rows == 0:
        return np.eye(columns), np.zeros((columns, 0))
    sparse = np.count_nonzero(jacobian) < settings.sparse_share * jacobian.size
    if rows < columns and columns > settings.large and sparse:
        found = split_sparse(jacobian, settings.sparse_error)
        if found is not None:
            return found
    full, triangle = scipy.linalg.qr(jacobian.T, mode="full")
    diagonal = np.abs(np.diag(triangle))
    if rows <= columns and diagonal.min() > settings.rank_tolerance * diagonal.max():
        right = scipy.linalg.solve_triangular(triangle[:rows], full[:, :rows].T).T
        return full[:, rows:], right
    # Equalities that repeat one another: rank by singular values.
    left, values, across = np.linalg.svd(jacobian)
    rank = int(np.sum(values > settings.rank_tolerance * values[0]))
    right = across[:rank].T @ (left[:, :rank] / values[:rank]).T
    return across[rank:].T, right


def split_sparse(jacobian: Array, most_error: float) -> tuple[Array, Array] | None:
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
    for _ in range(2):  # twice is enough: the second takes away what rounding has left of the first
        vectors, _ = np.linalg.qr(vectors - sparse.T @ factors.solve(sparse @ vectors))
    scale = np.abs(sparse).max()
    left = max(np.abs(sparse @ right - np.eye(rows)).max(), np.abs(sparse @ vectors).max() / scale)
    return (vectors, right) if left < most_error else None


def convexify(matrix: Array, floor: float, least_curvature: float) -> Array:
    """`matrix` with eigenvalues that are negative or nearly zero raised, so that it defines a metric.

    Nearly zero is below the share `floor` of the largest one, or of `least_curvature` if that is more.
    """
    if not len(matrix):
        return matrix
    matrix = (matrix + matrix.T) / 2.0
    values, vectors = np.linalg.eigh(matrix)
    least = floor * max(float(values[-1]), least_curvature)
    if values[0] >= least:
        return matrix
    raised = np.maximum(np.abs(values), least)
    return np.asarray((vectors * raised) @ vectors.T)
