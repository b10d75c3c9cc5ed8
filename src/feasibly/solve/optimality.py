"""Whether a point is optimal, whoever found it: the errors of its optimality conditions by IPOPT's own measure."""

from __future__ import annotations

import numpy as np

from feasibly.problem.point import Point
from feasibly.solve._newton import Newton
from feasibly.solve.compiled import Compiled
from feasibly.solve.model import NlpModel
from feasibly.solve.records import Array
from feasibly.solve.settings import SolverSettings


class OptimalityTest:
    """The first-order conditions of one model, in scaled units."""

    def __init__(self, model: NlpModel, settings: SolverSettings) -> None:
        self._model, self._settings, self._newton = model, settings, Newton(model, settings)
        self._errors = Compiled(self._newton.errors())
        self._first_order = Compiled(model.first_order)

    def errors(self, x: Array, point: Point) -> Array:
        """Stationarity, feasibility and complementarity at a point of the input `x`."""
        model, newton = self._model, self._newton
        lower, upper = (bound[model.free] for bound in model.search_at(x))
        y, nu, z = newton.scaled(point)
        y = np.clip(y, lower, upper)
        varies = np.subtract(*model.bounds_at(x))[model.free] < 0.0  # others are held where their bounds meet
        counts = np.concatenate([np.ones(model.n_inequalities), varies[newton.below], varies[newton.above]])
        z = np.concatenate([z * counts, np.zeros(newton.padding)])
        _, _, inequality, _ = self._first_order(y, x, nu, z[: model.n_inequalities])
        slack = np.maximum(newton.slacks(y, inequality, lower, upper), 0.0)
        (found,) = self._errors(y, nu, slack, z, x)
        return found[:3]

    def holds(self, x: Array, point: Point, tolerance: float) -> bool:
        """Whether a point is optimal to `tolerance`, or to what rounding leaves of its stationarity."""
        stationarity, *others = self.errors(x, point)
        return bool(
            max(others) <= tolerance and stationarity <= max(tolerance, self._settings.rounding_error)
        )
