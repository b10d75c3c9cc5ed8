"""A translated problem as the functions that solvers call: derivatives, scaling, fixed outputs set aside.

Everything here is a CasADi function or a NumPy array, so that it can be sent to another process as bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import casadi
import numpy as np

from feasibly.solve.records import Array

if TYPE_CHECKING:
    from feasibly.problem.core import Problem

_FUNCTIONS = ("nlp", "slim", "full", "fixed")
_LARGEST_GRADIENT = 100.0
"""Objective and rows with larger gradients at the start are scaled down to this, as IPOPT does by default."""


@dataclass(frozen=True, eq=False)
class Model:
    """A problem without Python functions.

    Attributes:
        nlp: `(y, x) -> (objective, [equality; inequality])`, unscaled, for IPOPT.
        slim: `(free y, x, nu, z) -> (objective, equality, inequality, gradient of the Lagrangian)`, scaled.
        full: the same, then the Jacobians of both and the Hessian of the Lagrangian.
        fixed: `(y, x, nu, z) ->` the scaled Lagrangian's gradient over the outputs that cannot vary.
        lower, upper: of all outputs; those of the nominal input where they are functions of the input.
        start: of all outputs.
        nominal: the usual input.
        scale: of the objective, then of each equality, then of each inequality.
        bounds: `x -> (lower, upper)` where bounds are functions of the input. In `slim` and `full` an output whose
            bounds meet is held there, and its variable, on which nothing depends, roams between `search_at` bounds.
    """

    nlp: Any
    slim: Any
    full: Any
    fixed: Any
    lower: Array
    upper: Array
    start: Array
    nominal: Array
    scale: Array
    n_equalities: int
    n_inequalities: int
    bounds: Any = None

    def bounds_at(self, x: Array) -> tuple[Array, Array]:
        """The bounds of one input."""
        if self.bounds is None:
            return self.lower, self.upper
        low, high = (np.asarray(part).ravel() for part in self.bounds(x))
        return low, high

    def search_at(self, x: Array) -> tuple[Array, Array]:
        """The bounds of one input, the usual ones where they meet for this input alone."""
        low, high = self.bounds_at(x)
        closed = (low >= high) & (self.lower < self.upper)
        return np.where(closed, self.lower, low), np.where(closed, self.upper, high)

    def search_of(self, x: Any) -> tuple[Any, Any]:
        """The same as expressions of a symbolic input."""
        if self.bounds is None:
            return self.lower, self.upper
        low, high = self.bounds(x)
        closed = (low >= high) * casadi.DM((self.lower < self.upper).astype(np.float64))
        return casadi.if_else(closed, self.lower, low), casadi.if_else(closed, self.upper, high)

    @property
    def fixed_outputs(self) -> np.ndarray:
        """Which outputs `fixed` has the gradient of: those that may be pinned."""
        every = self.lower >= self.upper if self.bounds is None else np.full(len(self.lower), True)
        return np.flatnonzero(every)

    @property
    def free(self) -> np.ndarray:
        """Which outputs may vary: those whose bounds differ."""
        return np.flatnonzero(self.lower < self.upper)

    @property
    def objective_scale(self) -> float:
        """The objective in `slim` and `full` is this many times the problem's."""
        return float(self.scale[0])

    @property
    def equality_scale(self) -> Array:
        """A factor an equality."""
        return self.scale[1 : 1 + self.n_equalities]

    @property
    def inequality_scale(self) -> Array:
        """A factor an inequality."""
        return self.scale[1 + self.n_equalities :]

    def arrays(self) -> dict[str, np.ndarray]:
        """The model as plain arrays; `from_arrays` is the way back."""
        packed = {name: getattr(self, name) for name in ("lower", "upper", "start", "nominal", "scale")}
        packed["sizes"] = np.array([self.n_equalities, self.n_inequalities])
        for name in _FUNCTIONS:
            packed[name] = np.frombuffer(getattr(self, name).serialize().encode("latin-1"), np.uint8)
        if self.bounds is not None:
            packed["bounds"] = np.frombuffer(self.bounds.serialize().encode("latin-1"), np.uint8)
        return packed

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Model:
        """The model that `arrays` packed, bit for bit."""
        functions = {
            name: casadi.Function.deserialize(arrays[name].tobytes().decode("latin-1"))
            for name in (*_FUNCTIONS, "bounds")
            if name in arrays
        }
        equalities, inequalities = (int(size) for size in arrays["sizes"])
        return cls(
            **functions,
            lower=arrays["lower"],
            upper=arrays["upper"],
            start=arrays["start"],
            nominal=arrays["nominal"],
            scale=arrays["scale"],
            n_equalities=equalities,
            n_inequalities=inequalities,
        )


def build_model(problem: Problem) -> Model:
    """Translate a problem and differentiate it.

    Raises:
        TranslationError: the problem uses an operation that cannot be translated.
    """
    from feasibly.solve.translate import translate, translate_function

    made = translate(problem)
    bounds = None
    if problem.limits.functions is not None:
        ends = [translate_function(bound, made.x) for bound in problem.limits.functions]
        bounds = casadi.Function("bounds", [made.x], ends)
    # Shared subexpressions first: derivatives of each copy would be copies again.
    objective, equality, inequality = casadi.cse([made.objective, made.equality, made.inequality])
    rows = casadi.vertcat(equality, inequality)
    return complete(
        casadi.Function("nlp", [made.y, made.x], [objective, rows], ["x", "p"], ["f", "g"]),
        lower=problem.limits.usual[0],
        upper=problem.limits.usual[1],
        start=problem.start,
        nominal=problem.nominal,
        n_equalities=problem.n_equalities,
        n_inequalities=problem.n_inequalities,
        bounds=bounds,
    )


def complete(
    nlp: Any,
    *,
    lower: Array,
    upper: Array,
    start: Array,
    nominal: Array,
    n_equalities: int,
    n_inequalities: int,
    scale: Array | None = None,
    bounds: Any = None,
) -> Model:
    """The model of an `nlp` function, differentiated; scaled by its gradients at the start unless told."""
    y, x = casadi.SX.sym("y", len(lower)), casadi.SX.sym("x", len(nominal))
    objective, rows = nlp(y, x)
    free, fixed = (np.flatnonzero(test).tolist() for test in (lower < upper, lower >= upper))
    fixed = fixed if bounds is None else list(range(len(lower)))
    if scale is None:
        # The objective apart: a dense row among sparse ones spoils the colouring of their Jacobian.
        slopes = casadi.Function(
            "slopes", [y, x], [casadi.gradient(objective, y).T, casadi.jacobian(rows, y)]
        )
        parts = [part.sparse().tocsc()[:, free] for part in slopes(start, nominal)]
        scale = np.concatenate([_scale(part) for part in parts])
    objective = float(scale[0]) * objective
    rows = casadi.DM(scale[1:]) * rows if n_equalities + n_inequalities else rows
    nu, z = casadi.SX.sym("nu", n_equalities), casadi.SX.sym("z", n_inequalities)
    lagrangian = objective + casadi.dot(casadi.vertcat(nu, z), rows)
    pull = casadi.Function("fixed", [y, x, nu, z], [casadi.densify(casadi.gradient(lagrangian, y)[fixed, 0])])

    # The solver's own functions know the free outputs only; the others are constants and fold away.
    variable = casadi.SX.sym("y", len(free))
    whole = casadi.SX(casadi.DM(lower))
    whole[free, 0] = variable
    if bounds is not None:
        low, high = bounds(x)
        whole[free, 0] = casadi.if_else(low >= high, low, whole)[free, 0]
        rest = np.setdiff1d(np.arange(len(lower)), free).tolist()
        whole[rest, 0] = low[rest, 0]
    together = casadi.Function("together", [y, x, nu, z], [objective, rows, lagrangian])
    objective, rows, lagrangian = together(whole, x, nu, z)
    equality, inequality = rows[:n_equalities, 0], rows[n_equalities:, 0]
    slope = casadi.densify(casadi.gradient(lagrangian, variable))
    slim = [objective, equality, inequality, slope]
    jacobians = [casadi.jacobian(equality, variable), casadi.jacobian(inequality, variable)]
    curvature = casadi.jacobian(slope, variable, {"symmetric": True})
    return Model(
        nlp=nlp,
        slim=casadi.Function("slim", [variable, x, nu, z], slim),
        full=casadi.Function("full", [variable, x, nu, z], [*slim, *jacobians, curvature]),
        fixed=pull,
        lower=lower,
        upper=upper,
        start=start,
        nominal=nominal,
        scale=scale,
        n_equalities=n_equalities,
        n_inequalities=n_inequalities,
        bounds=bounds,
    )


def _scale(slopes: Any) -> Array:
    """What brings the largest entry of each row of a sparse Jacobian down to `_LARGEST_GRADIENT`."""
    largest = np.abs(slopes).max(axis=1).toarray().ravel() if slopes.shape[1] else np.zeros(slopes.shape[0])
    largest = np.where(np.isfinite(largest), largest, 0.0)
    return np.asarray(_LARGEST_GRADIENT / np.maximum(largest, _LARGEST_GRADIENT))
