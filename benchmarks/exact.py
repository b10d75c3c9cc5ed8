"""Optima to the last digits: IPOPT's answer, its active set, and Newton's method on that set alone.

An interior-point method ends a barrier away from the optimum, 1e-8 or so, and differences of its answers over a step of
1e-5 are good to three digits. With the active set known an optimum is the root of a smooth system: the gradient of the
Lagrangian, the equalities and what is active. `Exact.at` finds it to rounding, from IPOPT's answer, and checks that it
is one: what is not active holds, what is has a multiplier of the right sign. Nothing of the methods that are judged by
it is used but the model's first and second derivatives, which tests hold against JAX's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import casadi
import numpy as np
import scipy.linalg
import scipy.sparse as sparse
from numpy.typing import NDArray
from scipy.sparse.linalg import splu

from feasibly.solve.model import NlpModel

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
REGULAR = 1e-9
"""On the matrix alone, not on the residuals: outputs that do not matter and constraints that repeat each other."""
ROUNDING = 1e-10
"""Scaled residuals below this are those of an optimum; signs may be wrong by as much."""
ROUNDED = 1e-13
"""And a gradient that is so small a share of the largest multiplier is as good as that allows."""
SHORT, SHRINK = 1e-9, 0.5
"""Where there is hardly any curvature, residuals are small far from the optimum: Newton's method goes on until a step
is short, or no shorter than this share of the one before, which is rounding."""
FLAT = 1e-8
"""A direction with less curvature than that share of the largest (or one, in scaled units) is flat. On 179_goc one has
1e-11, and the next 4e-3."""
STEPS, CHANGES = 12, 12
WAYS = (1e-5, 1e-9), (3e-6, 1e-9), (1e-5, 1e-11)
"""Steps of the input, and what is on the matrix's diagonal; the first is taken, the others say how good it is."""
AGREED = 3e-6


@dataclass(frozen=True, eq=False)
class Optimum:
    """Free outputs and what is active there, among inequalities, lower and upper bounds of free outputs."""

    y: Array
    nu: Array
    z: Array
    active: Mask


class Exact:
    """Optima of one problem whose bounds do not depend on the input."""

    def __init__(self, model: NlpModel) -> None:
        self.model, self.regular = model, REGULAR
        self.free = model.free
        self.lower, self.upper = model.lower[self.free], model.upper[self.free]
        settings = {
            "print_level": 0, "sb": "yes", "tol": 1e-9, "bound_relax_factor": 0.0, "max_iter": 1000,
            "acceptable_iter": 0, "max_wall_time": 60.0,
        }  # fmt: skip
        quiet = {"print_time": False, "show_eval_warnings": False, "error_on_fail": False}
        self._ipopt = casadi.nlpsol("exact", "ipopt", model.nlp, {**quiet, "ipopt": settings})

    # ---- IPOPT -----------------------------------------------------------------------------------------

    def by_ipopt(self, x: Array, start: Array) -> Optimum | None:
        """IPOPT's answer, and what it takes for active: a multiplier larger than its slack."""
        model = self.model
        ne, ni = model.n_equalities, model.n_inequalities
        low = np.concatenate([np.zeros(ne), np.full(ni, -np.inf)])
        found = self._ipopt(x0=start, p=x, lbx=model.lower, ubx=model.upper, lbg=low, ubg=np.zeros(ne + ni))
        if self._ipopt.stats()["return_status"] != "Solve_Succeeded":
            return None
        y, rows, bounds = (np.asarray(found[name]).ravel() for name in ("x", "lam_g", "lam_x"))
        unit, y, bounds = model.objective_scale, y[self.free], bounds[self.free]
        nu = rows[:ne] * unit / model.equality_scale
        z = np.concatenate([
            np.maximum(rows[ne:], 0.0) * unit / model.inequality_scale,
            np.maximum(-bounds, 0.0) * unit, np.maximum(bounds, 0.0) * unit,
        ])  # fmt: skip
        return Optimum(y, nu, z, z > self._slacks(y, self._values(x, y, nu, z)[2]))

    # ---- Newton's method on an active set -----------------------------------------------------------------

    def at(self, x: Array, near: Optimum) -> Optimum | None:
        """The optimum near a point, its active set changed as long as signs are wrong; `None` if none is found."""
        guess = near
        for _ in range(CHANGES):
            found = self.on(x, guess)
            if found is None:
                return None
            wrong = self.wrong(x, found)
            if not wrong.any():
                return found
            guess = Optimum(found.y, found.nu, np.where(found.active, found.z, 0.0), found.active ^ wrong)
        return None

    def on(self, x: Array, guess: Optimum) -> Optimum | None:
        """The root of the optimality conditions with these constraints active and no others."""
        n, ne, ni = len(self.free), self.model.n_equalities, self.model.n_inequalities
        active = guess.active
        rows = np.flatnonzero(active[:ni])
        down, up = active[ni : ni + n], active[ni + n :]
        held, moves = down | up, np.flatnonzero(~(down | up))
        y = np.where(down, self.lower, np.where(up, self.upper, guess.y))
        nu, z = guess.nu.copy(), np.where(active, guess.z, 0.0)
        last, settled = np.inf, False
        for left in reversed(range(STEPS)):
            gradient, equality, inequality, jacobians, hessian = self._derivatives(x, y, nu, z)
            residual = np.concatenate([gradient[moves], equality, inequality[rows]])
            if not np.isfinite(residual).all():
                return None
            rounding = ROUNDING + ROUNDED * max(np.abs(nu).max(initial=0.0), z.max(initial=0.0))
            if np.abs(residual).max(initial=0.0) < rounding and (settled or not left):
                break
            normals = sparse.vstack([jacobians[0], jacobians[1][rows]]).tocsc()[:, moves]
            corner = sparse.identity(normals.shape[0]) * -self.regular
            block = hessian[moves][:, moves] + sparse.identity(len(moves)) * self.regular
            system = sparse.bmat([[block, normals.T], [normals, corner]]).tocsc()
            try:
                factors = splu(system)
            except RuntimeError:
                return None
            step = factors.solve(-residual)
            y[moves] += step[: len(moves)]
            length = np.abs(step[: len(moves)]).max(initial=0.0)
            last, settled = length, settled or length <= SHORT or length > SHRINK * last
            nu += step[len(moves) : len(moves) + ne]
            z[rows] += step[len(moves) + ne :]
        else:
            return None
        z[ni:] = 0.0
        z[ni : ni + n][down], z[ni + n :][up] = gradient[down], -gradient[up]
        assert held.sum() == down.sum() + up.sum()
        return Optimum(y, nu, z, active)

    def flat(self, x: Array, found: Optimum) -> Array:
        """Directions of all outputs, orthonormal, along which the optimum stays one to the last digit.

        Those are held by no active constraint, and the Lagrangian hardly curves along them.
        """
        n, ni = len(self.free), self.model.n_inequalities
        *_, jacobians, hessian = self._derivatives(x, found.y, found.nu, found.z)
        held = sparse.identity(n, format="csr")[
            np.flatnonzero(found.active[ni : ni + n] | found.active[ni + n :])
        ]
        normals = sparse.vstack(
            [jacobians[0], jacobians[1][np.flatnonzero(found.active[:ni])], held]
        ).toarray()
        rotation, corner, _ = scipy.linalg.qr(normals.T, pivoting=True)
        size = np.abs(np.diag(corner))
        tangents = rotation[:, int((size > 1e-10 * size.max(initial=0.0)).sum()) :]
        curvature, ways = np.linalg.eigh(tangents.T @ hessian.toarray() @ tangents)
        all_of = np.zeros((len(self.model.lower), len(curvature)))
        all_of[self.free] = tangents @ ways
        return all_of[:, np.abs(curvature) < FLAT * np.abs(curvature).max(initial=1.0)]

    def wrong(self, x: Array, found: Optimum) -> Mask:
        """What is active with a multiplier of the wrong sign, or not and violated."""
        slack = self._slacks(found.y, self._values(x, found.y, found.nu, found.z)[2])
        return np.where(found.active, found.z < -ROUNDING, slack < -ROUNDING)

    # ---- the model ---------------------------------------------------------------------------------------

    def _slacks(self, y: Array, inequality: Array) -> Array:
        return np.concatenate([-inequality, y - self.lower, self.upper - y])

    def _values(self, x: Array, y: Array, nu: Array, z: Array) -> list[Array]:
        ni = self.model.n_inequalities
        return [np.asarray(part).ravel() for part in self.model.first_order(y, x, nu, z[:ni])]

    def _derivatives(self, x: Array, y: Array, nu: Array, z: Array) -> tuple[Any, ...]:
        ni = self.model.n_inequalities
        _, equality, inequality, gradient, *matrices = self.model.second_order(y, x, nu, z[:ni])
        *jacobians, hessian = (part.sparse().tocsr() for part in matrices)
        return *(np.asarray(part).ravel() for part in (gradient, equality, inequality)), jacobians, hessian


@dataclass(frozen=True, eq=False)
class Differences:
    """Central differences of exact optima along some directions, or why there are none."""

    moves: Array | None
    """`(n_outputs, directions)`."""
    why: str = ""
    y: Array | None = None
    """The optimum they are taken at."""
    equality: Array | None = None
    """Its multipliers of equalities."""
    flat: Array | None = None
    """Directions `(n_outputs, any)` along which that optimum stays one to the last digit."""
    spread: float = np.inf
    """By how much they change, relative to the largest, with a shorter step and with less on the matrix's diagonal."""

    @property
    def determined(self) -> bool:
        """Whether they are good to five digits themselves: not where the optimum turns sharply."""
        return self.spread < AGREED


def differences(
    exact: Exact,
    x: Array,
    start: Array,
    along: Array,
    size: Callable[[Array], float] = lambda a: np.abs(a).max(),
    answer: Array | None = None,
) -> Differences:
    """Central differences of the optimum of `x` along the columns of `along`; `size` is that of what counts of moves.

    There are none where constraints begin or cease to press on the way: one active set has to be that of the optimum
    here, ahead and behind. Where many points are optima to the last digit, each with differences of its own, those are
    taken next to an `answer`, on IPOPT's active set.
    """
    near = exact.by_ipopt(x, start)
    if near is None:
        return Differences(None, "IPOPT finds nothing")
    if answer is not None:
        near = Optimum(answer[exact.free], near.nu, near.z, near.active)
    found = [_central(exact, x, near, along, *how) for how in WAYS]
    if any(isinstance(moves, str) for moves in found):
        return Differences(None, next(moves for moves in found if isinstance(moves, str)))
    first, *others = (moves for moves, _ in found)
    model, at = exact.model, found[0][1]
    y = model.lower.copy()
    y[exact.free] = at.y
    flat = exact.flat(x, at)
    spread = max(size(across(flat, other - first)) for other in others) / max(size(first), 1e-300)
    return Differences(first, "", y, at.nu * model.equality_scale / model.objective_scale, flat, spread)


def across(flat: Array, moves: Array) -> Array:
    """What is left of moves without those along flat directions, which nothing determines."""
    return np.asarray(moves - flat @ (flat.T @ moves))


def _central(
    exact: Exact, x: Array, near: Optimum, along: Array, step: float, regular: float
) -> tuple[Array, Optimum] | str:
    """Differences and the optimum that they are taken at, or why there are none."""
    exact.regular = regular
    here = exact.at(x, near)
    if here is None:
        return "no active set is that of an optimum"
    columns = []
    for direction in along.T:
        ends = []
        for sign in (1.0, -1.0):
            there = x + sign * step * direction
            found = exact.on(there, here)
            if found is None or exact.wrong(there, found).any():
                return "the active set changes"
            ends.append(found.y)
        columns.append((ends[0] - ends[1]) / (2.0 * step))
    moved = np.zeros((len(exact.model.lower), along.shape[1]))
    moved[exact.free] = np.stack(columns, axis=1)
    return moved, here
