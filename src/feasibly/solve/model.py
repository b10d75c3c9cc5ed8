"""A translated problem as the functions that solvers call: derivatives, scaling, fixed outputs set aside.

Everything here is a CasADi function or a NumPy array, so that it can be sent to another process as bytes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import casadi
import numpy as np

from feasibly._codec import record
from feasibly.problem.errors import FeasiblyError
from feasibly.solve.records import Array
from feasibly.solve.settings import DEFAULT, SolverSettings

if TYPE_CHECKING:
    from feasibly.problem.core import Problem


@record("solver-model", stored={"unscaled_first_order": "thin", "unscaled_second_order": "wide"})
@dataclass(frozen=True, eq=False)
class NlpModel:
    """A problem without Python functions.

    Attributes:
        values: `(y, copies, x) -> (objective, [equality; inequality])`, unscaled; `copies` are `y[places]`.
        unscaled_first_order: `(y, copies, x, weight, nu, z) -> (objective, rows, gradient over y of the Lagrangian)`
            with the objective multiplied by `weight`.
        unscaled_second_order: the same, then the Jacobians of equalities and inequalities and the Hessian of the
            Lagrangian, over y.
        places: which output each copy is of.
        lower, upper: of all outputs; those of the nominal input where they are functions of the input.
        start: of all outputs.
        nominal: the usual input.
        scale: of the objective, then of each equality, then of each inequality.
        kept: which of another model's inequalities these are, where they are not all of them.
        bounds: `x -> (lower, upper)` where bounds are functions of the input. In `first_order` and `second_order` an
            output whose bounds meet is held there, and its variable, on which nothing depends, roams between
            `search_at` bounds.
    """

    values: Any
    unscaled_first_order: Any
    unscaled_second_order: Any
    places: np.ndarray
    lower: Array
    upper: Array
    start: Array
    nominal: Array
    scale: Array
    n_equalities: int
    n_inequalities: int
    bounds: Any = None
    kept: np.ndarray | None = None

    @functools.cached_property
    def nlp(self) -> Any:
        """`(y, x) -> (objective, [equality; inequality])`, unscaled, for IPOPT."""
        y, x = casadi.SX.sym("y", len(self.lower)), casadi.SX.sym("x", len(self.nominal))
        return casadi.Function("nlp", [y, x], self.values(y, self.copies(y), x), ["x", "p"], ["f", "g"])

    @functools.cached_property
    def first_order(self) -> Any:
        """`(free y, x, nu, z) -> (objective, equality, inequality, gradient of the Lagrangian)`, scaled."""
        symbols, whole, alive, weights = self._scaled_symbols()
        found = self.unscaled_first_order(whole, self.copies(whole), symbols[1], *weights)
        return casadi.Function("first_order", symbols, self._scaled(found, alive))

    @functools.cached_property
    def second_order(self) -> Any:
        """The same, then the Jacobians of both and the Hessian of the Lagrangian."""
        symbols, whole, alive, weights = self._scaled_symbols()
        found = self.unscaled_second_order(whole, self.copies(whole), symbols[1], *weights)
        return casadi.Function("second_order", symbols, self._derivatives(found, alive))

    def _derivatives(self, found: Any, alive: Any) -> list[Any]:
        """The outputs of `second_order` from those of `unscaled_second_order`."""
        free = self.free.tolist()
        jacobians = [part[:, free] for part in found[3:5]]
        curvature = found[5][free, free]
        if alive is not None:
            jacobians = [_weighted(part, None, alive) for part in jacobians]
            curvature = _weighted(curvature, alive, alive)
        scales = self.equality_scale, self.inequality_scale
        jacobians = [
            _weighted(part, casadi.DM(scale), None) for part, scale in zip(jacobians, scales, strict=True)
        ]
        return [*self._scaled(found, alive), *jacobians, curvature]

    @functools.cached_property
    def weighted_second_order(self) -> Any:
        """`second_order` with one more argument: what the objective counts in the Lagrangian."""
        symbols, whole, alive, (unit, *rows) = self._scaled_symbols()
        weight = casadi.MX.sym("weight")
        found = self.unscaled_second_order(whole, self.copies(whole), symbols[1], weight * unit, *rows)
        return casadi.Function("weighted_second_order", [*symbols, weight], self._derivatives(found, alive))

    @functools.cached_property
    def input_jacobians(self) -> Any:
        """`(free y, x, nu, z) ->` how the Lagrangian's gradient, equalities and inequalities move with x, scaled."""
        sizes = len(self.free), len(self.nominal), self.n_equalities, self.n_inequalities
        symbols = [casadi.SX.sym(name, size) for name, size in zip(("y", "x", "nu", "z"), sizes, strict=True)]
        _, equality, inequality, gradient = self.first_order(*symbols)
        gradients = [casadi.jacobian(part, symbols[1]) for part in (gradient, equality, inequality)]
        return casadi.Function("input_jacobians", symbols, gradients)

    @functools.cached_property
    def fixed_gradient(self) -> Any:
        """`(y, x, nu, z) ->` the scaled Lagrangian's gradient over the outputs that cannot vary."""
        y = casadi.MX.sym("y", len(self.lower))
        _, x, nu, z = symbols = self._symbols()
        gradient = self.unscaled_first_order(y, self.copies(y), x, *self._weights(nu, z))[2]
        return casadi.Function(
            "fixed_gradient", [y, *symbols[1:]], [gradient[self.fixed_outputs.tolist(), 0]]
        )

    def copies(self, y: Any) -> Any:
        """The copies of outputs that `values`, `unscaled_first_order` and `unscaled_second_order` take beside them."""
        return casadi.reshape(y[self.places.tolist()], len(self.places), 1)

    def _symbols(self) -> list[Any]:
        sizes = len(self.free), len(self.nominal), self.n_equalities, self.n_inequalities
        return [casadi.MX.sym(name, size) for name, size in zip(("y", "x", "nu", "z"), sizes, strict=True)]

    def _weights(self, nu: Any, z: Any) -> tuple[Any, Any, Any]:
        """What objective and rows count in the scaled Lagrangian."""
        return self.objective_scale, self.equality_scale * nu, self.inequality_scale * z

    def _scaled_symbols(self) -> tuple[list[Any], Any, Any, tuple[Any, Any, Any]]:
        """Symbols of `first_order`, all outputs, whether each free one is one for this input, and the weights.

        The solver's own functions know the free outputs only.
        """
        v, x, nu, z = symbols = self._symbols()
        free = self.free
        held = np.where(self.lower < self.upper, 0.0, self.lower)
        pattern = casadi.Sparsity.triplet(len(self.lower), len(free), free.tolist(), list(range(len(free))))
        among = casadi.DM(pattern, 1.0)
        if self.bounds is None:
            return symbols, casadi.mtimes(among, v) + held, None, self._weights(nu, z)
        low, high = self.bounds(x)
        open_ = (low < high) * casadi.DM((self.lower < self.upper).astype(np.float64))
        whole = casadi.if_else(open_, casadi.mtimes(among, v), low)
        return symbols, whole, open_[free.tolist(), 0], self._weights(nu, z)

    def _scaled(self, found: Any, alive: Any) -> list[Any]:
        """The outputs of `first_order` from those of `unscaled_first_order` or `unscaled_second_order`."""
        ne = self.n_equalities
        gradient = found[2][self.free.tolist(), 0]
        return [
            self.objective_scale * found[0],
            self.equality_scale * found[1][:ne, 0],
            self.inequality_scale * found[1][ne:, 0],
            gradient if alive is None else alive * gradient,
        ]

    def keeping(self, kept: np.ndarray) -> NlpModel:
        """The same with some of the inequalities alone, in this order."""
        sizes = len(self.lower), len(self.places), len(self.nominal), 1, self.n_equalities
        names = ("y", "copies", "x", "weight", "nu")
        symbols = [casadi.SX.sym(name, size) for name, size in zip(names, sizes, strict=True)]
        z, some = casadi.SX.sym("z", len(kept)), kept.tolist()
        every = casadi.SX.zeros(self.n_inequalities, 1)
        every[some, 0] = z
        rows = [*range(self.n_equalities), *(self.n_equalities + k for k in some)]
        objective, values, gradient, equality, inequality, curvature = self.unscaled_second_order(
            *symbols, every
        )
        thin = [objective, values[rows, 0], gradient]
        wide = [*thin, equality, inequality[some, :], casadi.sparsify(curvature)]
        return replace(
            self,
            values=casadi.Function("values", symbols[:3], thin[:2]),
            unscaled_first_order=casadi.Function("unscaled_first_order", [*symbols, z], thin),
            unscaled_second_order=casadi.Function("unscaled_second_order", [*symbols, z], wide),
            scale=np.concatenate([self.scale[: 1 + self.n_equalities], self.inequality_scale[kept]]),
            n_inequalities=len(kept),
            kept=kept,
        )

    def bounds_at(self, x: Array) -> tuple[Array, Array]:
        """The bounds of one input."""
        if self.bounds is None:
            return self.lower, self.upper
        low, high = (np.asarray(part).ravel() for part in self.bounds(x))
        return low, high

    def opens(self, x: Array) -> np.ndarray:
        """Rows whose bounds leave an output open that is no variable here, being pinned for all declared inputs."""
        if self.bounds is None or len(self.free) == len(self.lower):
            return np.zeros(len(x), dtype=bool)
        ends = [self.bounds_at(row) for row in x]
        pinned = self.lower >= self.upper
        return np.array([bool(np.any(pinned & (low < high))) for low, high in ends], dtype=bool)

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
        """Which outputs `fixed_gradient` has the gradient of: those that may be pinned."""
        every = self.lower >= self.upper if self.bounds is None else np.full(len(self.lower), True)
        return np.flatnonzero(every)

    @property
    def free(self) -> np.ndarray:
        """Which outputs may vary: those whose bounds differ."""
        return np.flatnonzero(self.lower < self.upper)

    @property
    def objective_scale(self) -> float:
        """The objective in `first_order` and `second_order` is this many times the problem's."""
        return float(self.scale[0])

    @property
    def equality_scale(self) -> Array:
        """A factor an equality."""
        return self.scale[1 : 1 + self.n_equalities]

    @property
    def inequality_scale(self) -> Array:
        """A factor an inequality."""
        return self.scale[1 + self.n_equalities :]

    def flat(self) -> NlpModel:
        """The same with bytes for its functions, as records have them; `revived` is the way back."""
        return self._with_functions(lambda made: np.frombuffer(made.serialize().encode("latin-1"), np.uint8))

    def revived(self) -> NlpModel:
        """The model that `flat` flattened, bit for bit."""
        return self._with_functions(
            lambda kept: casadi.Function.deserialize(kept.tobytes().decode("latin-1"))
        )

    def _with_functions(self, change: Callable[[Any], Any]) -> NlpModel:
        names = ("values", "unscaled_first_order", "unscaled_second_order", "bounds")
        found = {name: getattr(self, name) for name in names}
        changed: dict[str, Any] = {name: change(each) for name, each in found.items() if each is not None}
        return replace(self, **changed)


def build_model(problem: Problem, settings: SolverSettings = DEFAULT) -> NlpModel:
    """Translate a problem, differentiate it, and scale it by its gradients at the start.

    Raises:
        TranslationError: the problem uses an operation that cannot be translated.
        FeasiblyError: no output can vary.
    """
    from feasibly.solve.translate import translate, translate_function

    if not np.any(problem.limits.usual[0] < problem.limits.usual[1]):
        raise FeasiblyError(
            f"every output of {problem.name} is fixed by its bounds; there is nothing to decide"
        )
    made = translate(problem)
    bounds = None
    if problem.limits.functions is not None:
        ends = [translate_function(bound, made.x) for bound in problem.limits.functions]
        bounds = casadi.Function("bounds", [made.x], ends)
    rows = casadi.vertcat(made.equality, made.inequality)
    guess = None if problem.first_guess is None else problem.first_guess()
    model = complete(
        casadi.Function("values", [made.y, made.copies, made.x], [made.objective, rows]),
        places=made.places,
        lower=problem.limits.usual[0],
        upper=problem.limits.usual[1],
        start=problem.start if guess is None else np.clip(guess, *problem.limits.usual),
        nominal=problem.nominal,
        n_equalities=problem.n_equalities,
        n_inequalities=problem.n_inequalities,
        bounds=bounds,
    )
    return replace(model, scale=_scale_of(model, settings.largest_gradient))


def complete(
    values: Any,
    *,
    places: np.ndarray,
    lower: Array,
    upper: Array,
    start: Array,
    nominal: Array,
    n_equalities: int,
    n_inequalities: int,
    bounds: Any = None,
) -> NlpModel:
    """The model of a `values` function, differentiated; nothing is scaled."""
    n = len(lower)
    y, x, copies = (
        casadi.SX.sym(name, size) for name, size in (("y", n), ("x", len(nominal)), ("copies", len(places)))
    )
    objective, rows = values(y, copies, x)
    variable = casadi.vertcat(y, copies)
    pattern = casadi.Sparsity.triplet(len(places), n, list(range(len(places))), places.tolist())
    gathered = casadi.vertcat(casadi.DM.eye(n), casadi.DM(pattern, 1.0))
    # Equalities apart: what sums over many branches would spoil the colouring of what belongs to one.
    jacobians = [
        casadi.mtimes(casadi.jacobian(part, variable), gathered)
        for part in (rows[:n_equalities, 0], rows[n_equalities:, 0])
    ]
    weight = casadi.SX.sym("weight")
    nu, z = casadi.SX.sym("nu", n_equalities), casadi.SX.sym("z", n_inequalities)
    lagrangian = weight * objective + casadi.dot(casadi.vertcat(nu, z), rows)
    gradient = casadi.densify(casadi.gradient(lagrangian, variable))
    curvature = casadi.jacobian(gradient, variable, {"symmetric": True})
    curvature = casadi.mtimes(casadi.mtimes(gathered.T, curvature), gathered)
    inputs = [y, copies, x, weight, nu, z]
    thin = [objective, rows, casadi.densify(casadi.mtimes(gathered.T, gradient))]
    return NlpModel(
        values=values,
        unscaled_first_order=casadi.Function("unscaled_first_order", inputs, thin),
        unscaled_second_order=casadi.Function(
            "unscaled_second_order", inputs, [*thin, *jacobians, curvature]
        ),
        places=places,
        lower=lower,
        upper=upper,
        start=start,
        nominal=nominal,
        scale=np.ones(1 + n_equalities + n_inequalities),
        n_equalities=n_equalities,
        n_inequalities=n_inequalities,
        bounds=bounds,
    )


def _weighted(matrix: Any, rows: Any, columns: Any) -> Any:
    """A sparse matrix with its rows or columns multiplied by the entries of a vector."""
    pattern = matrix.sparsity()
    if not pattern.nnz():
        return matrix
    entries = casadi.vec(matrix.nz[:])
    if rows is not None:
        entries = entries * rows[pattern.row(), 0]
    if columns is not None:
        entries = entries * columns[pattern.get_col(), 0]
    return type(matrix)(pattern, entries)


def _scale_of(model: NlpModel, most: float) -> Array:
    """What brings the largest entry of each gradient at the start down to `most`; objective first."""
    start, free = model.start, model.free
    nothing = np.zeros(model.n_equalities), np.zeros(model.n_inequalities)
    found = model.unscaled_second_order(start, start[model.places], model.nominal, 1.0, *nothing)
    _, _, gradient, *jacobians, _ = found
    parts = [gradient.sparse().tocsc().T, *(part.sparse().tocsc() for part in jacobians)]
    return np.concatenate([_scale(part.tocsc()[:, free], most) for part in parts])


def _scale(gradients: Any, most: float) -> Array:
    """What brings the largest entry of each row of a sparse Jacobian down to `most`."""
    entries = np.abs(gradients)
    largest = entries.max(axis=1).toarray().ravel() if entries.shape[1] else np.zeros(entries.shape[0])
    largest = np.where(np.isfinite(largest), largest, 0.0)
    return np.asarray(most / np.maximum(largest, most))
