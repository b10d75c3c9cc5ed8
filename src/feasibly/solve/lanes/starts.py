"""Where lanes start: points, central points and guesses as iterates in a lane's own order and units."""

from __future__ import annotations

import numpy as np

from feasibly.problem.point import Point
from feasibly.solve.interior import InteriorPoint
from feasibly.solve.lanes.attempts import Attempt, StartPoint
from feasibly.solve.lanes.evaluate import LaneFunction
from feasibly.solve.lanes.iteration import LaneIteration
from feasibly.solve.records import Array

_ON_PATH = (StartPoint.NEAR, StartPoint.WIDE, StartPoint.WIDER)
"""Starts on the nominal central path, in the order of its points."""


class LaneStarts:
    """The starts of one model's rows.

    Args:
        iteration: of the lanes, whose model may have some of the inequalities alone.
        interior: the method for one row, whose central points are taken.
        kept: which inequalities of the whole problem the lanes' model has.
        nominal: the nominal solution.
    """

    def __init__(
        self, iteration: LaneIteration, interior: InteriorPoint, kept: np.ndarray, nominal: Point
    ) -> None:
        self._iteration, self._newton, self._model = iteration, iteration.newton, iteration.model
        self._settings, self._kept, self._nominal = interior.settings, kept, nominal
        self._first_order = LaneFunction(self._model.first_order)
        self._bounds = None if self._model.bounds is None else LaneFunction(self._model.bounds)
        elastic = np.zeros(2 * self._model.n_equalities + self._model.n_inequalities)
        bounds = np.arange(interior.model.n_inequalities, len(interior.central_points[0].s))
        slacks = np.concatenate([kept, bounds])
        padding = np.ones(self._newton.n_slacks - len(slacks))
        self._central_points = [
            np.concatenate([c.y, c.nu, c.s[slacks], padding, c.z[slacks], padding, elastic])
            for c in interior.central_points
        ]

    def start(self, attempt: Attempt, x: Array, known: Array | None) -> Array:
        """The iterate that an attempt at a row starts at; `known` is the one that belongs to the row."""
        if attempt.start in (StartPoint.GIVEN, StartPoint.ELASTIC_END, StartPoint.STILL_ELASTIC):
            assert known is not None
            return known
        if attempt.start in _ON_PATH:
            return self._central_points[min(_ON_PATH.index(attempt.start), len(self._central_points) - 1)]
        y = self._nominal.y if attempt.start is StartPoint.NOMINAL else self._model.start
        return self._elastic(x, y) if attempt.elastic else self._centred(x, y)

    def push_inside(self, x: Array, starts: Point) -> Array:
        """An interior point near each start, by how much that violates (as `InteriorPoint.push_inside`)."""
        model, newton, s = self._model, self._newton, self._settings
        free, unit = model.free, model.objective_scale
        lower, upper = self._search_bounds(x)
        y = np.clip(starts.y[:, free], lower, upper)
        nu = starts.duals.equality * (unit / model.equality_scale)
        padding = np.ones((len(x), newton.padding))
        inequality_z = starts.duals.inequality[:, self._kept] * (unit / model.inequality_scale)
        bounds = starts.duals.lower[:, free][:, newton.below], starts.duals.upper[:, free][:, newton.above]
        z = np.concatenate([inequality_z, *(part * unit for part in bounds), padding], axis=1)
        _, equality, inequality, _ = self._first_order(y, x, nu, inequality_z)
        slack = newton.slacks(y, inequality, lower, upper)
        violation = np.maximum(np.abs(equality).max(axis=1, initial=0.0), -slack.min(axis=1, initial=0.0))
        push = np.clip(s.push_share * violation, *s.push_range)[:, None]
        slack = np.maximum(slack, push)
        elastic = np.zeros((len(x), 2 * model.n_equalities + model.n_inequalities))
        z = np.maximum(z, s.push_complementarity * push / slack)
        return np.concatenate([y, nu, slack, z, elastic], axis=1)

    def bounds(self, x: Array) -> tuple[Array, Array]:
        """Bounds of all outputs, a row each."""
        if self._bounds is None:
            shape = len(x), len(self._model.lower)
            return np.broadcast_to(self._model.lower, shape), np.broadcast_to(self._model.upper, shape)
        lower, upper = self._bounds(x)
        return lower, upper

    def cost(self, x: Array, iterate: Array) -> float:
        """The scaled objective of one row's iterate."""
        parts, ni = self._iteration.parts, self._model.n_inequalities
        y, nu, z = (iterate[parts[name]][None] for name in ("y", "nu", "z"))
        return float(np.ravel(self._first_order(y, x[None], nu, z[:, :ni])[0])[0])

    def _search_bounds(self, x: Array) -> tuple[Array, Array]:
        """Bounds of the free outputs, the usual ones where they meet for one input alone."""
        model = self._model
        lower, upper = (part[:, model.free] for part in self.bounds(x))
        if model.bounds is None:
            return lower, upper
        closed = lower >= upper
        usual = model.lower[model.free], model.upper[model.free]
        return np.where(closed, usual[0], lower), np.where(closed, usual[1], upper)

    def _centred(self, x: Array, y: Array) -> Array:
        """A point near `y`, well inside of everything and as central as that is."""
        parts = self._iteration.parts
        iterate = np.zeros(len(self._iteration.iterate))
        inside = self._elastic(x, y)
        iterate[parts["y"]], iterate[parts["s"]] = inside[parts["y"]], inside[parts["s"]]
        iterate[parts["z"]] = self._settings.wide_barrier / inside[parts["s"]]
        return iterate

    def _elastic(self, x: Array, y: Array) -> Array:
        """A point near `y` that violates whatever it violates: inside of everything, complementary, its multipliers as
        far from zero as from their penalty."""
        model, newton, s = self._model, self._newton, self._settings
        ne, ni = model.n_equalities, model.n_inequalities
        lower, upper = self._search_bounds(x[None])
        y = np.clip(y[model.free][None], lower, upper)
        _, equality, inequality, _ = self._first_order(y, x[None], np.zeros((1, ne)), np.zeros((1, ni)))
        slack = np.maximum(newton.slacks(y, inequality, lower, upper)[0], s.elastic_push)
        slack[:ni] = np.maximum(-inequality[0], 0.0) + s.elastic_push
        z = s.push_complementarity * s.elastic_push / slack
        z[:ni] = s.elastic_multiplier
        violations = equality[0], -equality[0], inequality[0]
        elastic = [np.maximum(part, 0.0) + s.elastic_push for part in violations]
        return np.concatenate([y[0], np.zeros(ne), slack, z, *elastic])
