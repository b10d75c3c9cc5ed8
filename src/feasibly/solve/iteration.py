"""The compiled iteration of one row (`_newton`), and the inertia of its matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import casadi

from feasibly.solve._newton import Newton
from feasibly.solve.compiled import Compiled
from feasibly.solve.records import Array
from feasibly.solve.settings import StepSettings


@dataclass(frozen=True, eq=False)
class InteriorIterate:
    """A primal-dual point in scaled units: free outputs, equality multipliers, slacks, their multipliers.

    Slacks and their multipliers are positive.
    """

    y: Array
    nu: Array
    s: Array
    z: Array

    @property
    def gap(self) -> float:
        """The duality gap: what the barrier holds the cost up by."""
        return float(self.s @ self.z)


class Step(NamedTuple):
    """What one iteration says of the iterate it began at, and where it leads."""

    following: InteriorIterate
    info: Array
    """As `_newton.ROW_INFO` names it."""
    matrix: Array
    """The entries of the condensed matrix, whose inertia says whether this is a minimum."""

    @property
    def errors(self) -> Array:
        """Stationarity, feasibility and complementarity, scaled."""
        return self.info[:3]

    @property
    def violation(self) -> float:
        """The largest violation, scaled."""
        return float(self.info[1])

    @property
    def mu(self) -> float:
        """The mean of `s z`."""
        return float(self.info[3])

    @property
    def cost_of_residuals(self) -> float:
        """What constraints that do not hold change of the objective."""
        return float(self.info[6])

    @property
    def shorter(self) -> float:
        """The shorter one of the primal and the dual step."""
        return float(min(self.info[4:6]))


class RowIteration:
    """The functions of one model, built once; one thread at a time."""

    def __init__(self, newton: Newton) -> None:
        self._n_equalities = newton.model.n_equalities
        self._step = Compiled(newton.step())
        self._errors = Compiled(newton.errors())
        self._pattern = self._step.function.sparsity_out(5)
        self._inertia = casadi.Linsol("inertia", "ldl", self._pattern)

    def step(
        self, iterate: InteriorIterate, x: Array, barrier: float, step: StepSettings, shift: float = 0.0
    ) -> Step:
        """One iteration with the Hessian shifted by `shift`."""
        *moved, info, matrix = self._step(
            iterate.y, iterate.nu, iterate.s, iterate.z, x, step.parameters(barrier, shift)
        )
        return Step(InteriorIterate(*moved), info, matrix)

    def errors(self, iterate: InteriorIterate, x: Array) -> Array:
        """The scaled errors and the cost of residuals alone: a fraction of an iteration."""
        (found,) = self._errors(iterate.y, iterate.nu, iterate.s, iterate.z, x)
        return found

    def inertia_is_right(self, matrix: Array | None) -> bool:
        """Whether a matrix has one negative eigenvalue an equality: its Hessian curves upwards on the constraints."""
        if matrix is None:
            return False
        system = casadi.DM(self._pattern, matrix)
        self._inertia.nfact(system)
        return bool(self._inertia.neig(system) == self._n_equalities)
