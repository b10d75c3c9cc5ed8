"""Is there a feasible point at all? The least infeasible point, found by the same interior-point method.

IPOPT takes hundreds of iterations to give up on an instance without a solution, so a percent of those costs
more than all others together. Here every equality and inequality is relaxed by non-negative amounts whose sum
is minimised; a local minimum above the tolerance is what IPOPT's own restoration phase would end at.
"""

from __future__ import annotations

from dataclasses import replace

import casadi
import numpy as np

from feasibly.problem.point import Point
from feasibly.solve._attempt import AttemptEnd
from feasibly.solve.compiled import without_remarks
from feasibly.solve.interior import InteriorPoint
from feasibly.solve.model import NlpModel, complete
from feasibly.solve.records import Array
from feasibly.solve.settings import SolverSettings
from feasibly.solve.status import SearchEnd


class Feasibility:
    """Tells rows that have no feasible point from rows that are merely hard."""

    def __init__(self, model: NlpModel, settings: SolverSettings) -> None:
        self.model, self.settings = model, settings
        self._relaxed = relax(model, settings.proximal_weight)
        longer = replace(settings, most_iterations=settings.search_iterations)
        self._interior = InteriorPoint(self._relaxed, settings.search_tolerance, longer)

    def search(self, x: Array, y: Array) -> SearchEnd:
        """Whether the least infeasible point near `y` is feasible or clearly is not, if it is found."""
        end = self._run(x, y)
        if end is None:
            return SearchEnd.UNKNOWN
        total = end.iterate.y[len(self.model.free) :].sum()
        infeasible = total - end.iterate.gap > self.settings.infeasible_above
        return SearchEnd.INFEASIBLE if infeasible else SearchEnd.FEASIBLE

    def least_infeasible(self, x: Array, y: Array) -> Point | None:
        """That point, with multipliers of the constraints for a cost of nothing; `None` if it is not found.

        Where the problem is convex these are what a proof that nothing is feasible is made of.
        """
        with without_remarks():
            end = self._run(x, y)
        if end is None:
            return None
        n, ne, scale = len(self.model.lower), self.model.n_equalities, self.model.scale[1:]
        found = self._interior.point(x, end.iterate)
        duals = found.duals
        return Point.of(
            found.y[:n],
            scale[:ne] * duals.equality,
            scale[ne:] * duals.inequality,
            duals.lower[:n],
            duals.upper[:n],
        )

    def _run(self, x: Array, y: Array) -> AttemptEnd | None:
        relaxed, model, s = self._relaxed, self.model, self.settings
        n, ne, ni = len(model.lower), model.n_equalities, model.n_inequalities
        y = np.clip(y, *model.bounds_at(x))
        _, rows = (np.asarray(part).ravel() for part in model.nlp(y, x))
        rows = rows * model.scale[1:]
        equality, inequality = rows[:ne], rows[ne:]
        if not np.isfinite(rows).all():
            return None
        amounts = [np.maximum(equality, 0.0), np.maximum(-equality, 0.0), np.maximum(inequality, 0.0)]
        lower = np.concatenate([np.zeros(n), np.full(2 * ne + ni, s.elastic_multiplier)])
        multipliers, upper = np.full(ni, s.elastic_multiplier), np.zeros(len(relaxed.lower))
        start = Point.of(np.concatenate([y, *amounts]), np.zeros(ne), multipliers, lower, upper)
        end = self._interior.solve_from_afar(x, start, s.elastic_push)
        return end if end.converged else None


def relax(model: NlpModel, proximal_weight: float) -> NlpModel:
    """The model of `(y, above, below, beyond)`: `equality = above - below`, `inequality <= beyond`.

    `proximal_weight` is that of the term towards the first guess.
    """
    n, ne, ni = len(model.lower), model.n_equalities, model.n_inequalities
    y = casadi.SX.sym("y", n)
    x = casadi.SX.sym("x", len(model.nominal))
    above, below, beyond = (casadi.SX.sym(*part) for part in (("above", ne), ("below", ne), ("beyond", ni)))
    copies = casadi.SX.sym("copies", len(model.places))
    _, rows = model.values(y, copies, x)
    rows = casadi.DM(model.scale[1:]) * rows if ne + ni else rows
    relaxed = casadi.vertcat(rows[:ne, 0] - above + below, rows[ne:, 0] - beyond)
    everything = casadi.vertcat(y, above, below, beyond)
    amounts = 2 * ne + ni
    near = 0.5 * proximal_weight * casadi.sumsqr(y - casadi.DM(model.start))
    total = casadi.sum1(casadi.vertcat(above, below, beyond)) + near
    bounds = None
    if model.bounds is not None:
        low, high = model.bounds(x)
        ends = [casadi.vertcat(low, casadi.DM.zeros(amounts)), casadi.vertcat(high, casadi.DM.inf(amounts))]
        bounds = casadi.Function("bounds", [x], ends)
    return complete(
        casadi.Function("values", [everything, copies, x], [total, relaxed]),
        places=model.places,
        lower=np.concatenate([model.lower, np.zeros(amounts)]),
        upper=np.concatenate([model.upper, np.full(amounts, np.inf)]),
        start=np.concatenate([model.start, np.zeros(amounts)]),
        nominal=model.nominal,
        n_equalities=ne,
        n_inequalities=ni,
        bounds=bounds,
    )
