"""The parametric problem: what every other room is written against.

min_y  objective(x, y)   s.t.  equality(x, y) = 0,  inequality(x, y) <= 0,  lower <= y <= upper
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from feasibly.precision import double, twin
from feasibly.problem._bounds import Bounds, bounds_given
from feasibly.problem._compile import Compiled, compile_bounds, compile_functions, compile_worst, run_rows
from feasibly.problem.errors import Fault, ProblemError, is_spread

if TYPE_CHECKING:
    from feasibly.problem.drawing import Drawing, Refusal

Function = Callable[[Any, Any], Any]
"""A function of one input `x` and one decision `y`, written in `jax.numpy`."""

Array = NDArray[np.float64]


class Problem:
    """A constrained problem whose data `x` change and whose answer `y` is wanted.

    Args:
        objective: the cost of `y` under `x`, a scalar.
        lower, upper: bounds on `y`; `-inf` and `inf` where there is none. Their length is that of `y`. Either may be a
            function of `x`; where both meet, the output is pinned there.
        equality: a vector that is zero at a feasible point, or `None`.
        inequality: a vector that is at most zero at a feasible point, or `None`. Smooth is better: solvers
            and training differentiate it.
        violation: the same rows as `inequality` in natural units, positive where violated, for the metrics
            (`|S| - rate` beside a smooth function of `|S|^2`). Without it the metrics use `inequality`.
        box: `(low, high)`, between which inputs are drawn and answers may be trusted.
        spread: instead of a box: inputs lie between `nominal * (1 - spread)` and `nominal * (1 + spread)`.
        sampler: instead of both: `sampler(generator)` draws one input with a `numpy.random.Generator`.
        nominal: the usual input; the middle of the box when not given.
        start: a first guess at `y`; the middle of the bounds when not given.
        input_names, output_names: for tables and files; `x0, x1, ...` when not given.
        blocks: named slices of `y`, in order and covering all of it. Networks are built one a block.
        inputs: named slices of `x`, likewise; `{"x": slice(0, n_inputs)}` when not given.
        widest: `(low, high)`, the widest that bounds given as functions become; looked up at many inputs when not
            given, exactly for bounds that are affine in `x`.
        name: what to call the problem in tables and messages.
        spec: how a built-in family describes itself on disk; users leave it out.
        some_inequalities: from positions, in rising order, to the function of those rows of `inequality` alone, for
            problems where that costs less than all of them; users may leave it out.
        drawing: how a built-in family draws inputs that are no plain range; users leave it out.
        first_guess: for problems whose `start` is far from any answer, how solvers may get a better one; users may
            leave it out.

    Attributes:
        lower, upper: the widest bounds; `bounds(x)` has those of each row.
        limits: bounds as functions of one `x` in `jax.numpy`, for those who search for answers.

    The functions must capture NumPy arrays, not `jax.numpy` ones, for their constants (see `precision`). They
    are copied here: an array that is changed later does not change the problem.

    Raises:
        ProblemError: with every fault found: shapes, crossed bounds, NaN at the nominal point, a function
            that JAX cannot trace.

    Examples:
        The nearest point to `x` on a line, within bounds:

        >>> nearest = fb.Problem(
        ...     lambda x, y: ((y - x) ** 2).sum(), [0.0, 0.0], [1.0, 1.0], box=([0.0, 0.0], [1.0, 1.0]),
        ...     equality=lambda x, y: y[:1] + y[1:] - 1.0,
        ... )
        >>> nearest.n_inputs, nearest.n_outputs, nearest.n_equalities, nearest.output_names
        (2, 2, 1, ('y0', 'y1'))
    """

    def __init__(
        self,
        objective: Function,
        lower: ArrayLike | Callable[[Any], Any],
        upper: ArrayLike | Callable[[Any], Any],
        *,
        equality: Function | None = None,
        inequality: Function | None = None,
        violation: Function | None = None,
        box: tuple[ArrayLike, ArrayLike] | None = None,
        spread: float | None = None,
        sampler: Callable[[np.random.Generator], ArrayLike] | None = None,
        nominal: ArrayLike | None = None,
        start: ArrayLike | None = None,
        input_names: Sequence[str] | None = None,
        output_names: Sequence[str] | None = None,
        blocks: Mapping[str, slice] | None = None,
        inputs: Mapping[str, slice] | None = None,
        widest: tuple[ArrayLike, ArrayLike] | None = None,
        name: str = "problem",
        spec: Mapping[str, Any] | None = None,
        some_inequalities: Callable[[NDArray[np.int64]], Function] | None = None,
        drawing: Drawing | None = None,
        first_guess: Callable[[], Array | None] | None = None,
    ) -> None:
        from feasibly.problem._check import check_data, check_functions
        from feasibly.problem._own import own_constants

        self.name = str(name)
        # A user's arrays are theirs: their own float32 code may be using them (see `_own`).
        keep = own_constants if spec is None else _as_it_is
        self.objective = keep(objective)
        self.equality = keep(equality)
        self.inequality = keep(inequality)
        self.violation = keep(violation)
        self.sampler = sampler
        self.spec = spec
        self.drawing = drawing
        self.first_guess = first_guess
        self._some_inequalities = some_inequalities
        faults, usual, functions = bounds_given(lower, upper, nominal, box, keep)
        if faults:
            raise ProblemError(f"problem {self.name!r}", faults)
        faults, data = check_data(
            lower=usual[0], upper=usual[1], box=box, spread=spread, sampler=sampler, nominal=nominal,
            start=start, input_names=input_names, output_names=output_names, blocks=blocks, inputs=inputs,
        )  # fmt: skip
        if faults:
            raise ProblemError(f"problem {self.name!r}", faults)
        reach = data.box if data.spread is None else _around(data.nominal, data.spread)
        self.limits = Bounds.over(data.lower, data.upper, functions, widest, data.nominal, reach, sampler)
        self.lower: Array = self.limits.lower
        self.upper: Array = self.limits.upper
        self.spread: float | None = data.spread
        self._box: tuple[Array, Array] | None = data.box
        self.nominal: Array = data.nominal
        self.start: Array = data.start
        self.input_names: tuple[str, ...] = data.input_names
        self.output_names: tuple[str, ...] = data.output_names
        self.blocks: Mapping[str, slice] = data.blocks
        self.inputs: Mapping[str, slice] = data.inputs
        self._inputs_named = inputs is not None
        faults = check_functions(self)
        if faults:
            raise ProblemError(f"problem {self.name!r}", faults)

    # ---- sizes -----------------------------------------------------------------------------------------

    @property
    def n_inputs(self) -> int:
        """Length of `x`."""
        return len(self.nominal)

    @property
    def n_outputs(self) -> int:
        """Length of `y`."""
        return len(self.lower)

    @functools.cached_property
    def n_equalities(self) -> int:
        """Number of equality constraints."""
        return self._rows(self.equality)

    @functools.cached_property
    def n_inequalities(self) -> int:
        """Number of inequality constraints, bounds not counted."""
        return self._rows(self.inequality)

    def only(self, rows: NDArray[np.int64]) -> Function:
        """The inequalities at `rows` (positions in rising order) as a function of their own."""
        inequality = self.inequality
        if inequality is None or not len(rows):
            return lambda x, y: jnp.zeros(0)
        if self._some_inequalities is not None:
            return self._some_inequalities(rows)
        return lambda x, y: inequality(x, y)[rows]

    def _rows(self, function: Function | None) -> int:
        if function is None:
            return 0
        with double():
            shape = jax.eval_shape(twin(function), self.nominal, self.start)
        return int(shape.shape[0])

    def box(self, spread: float | None = None) -> tuple[Array, Array] | None:
        """The declared range of inputs, or `None` for a problem with a sampler of its own.

        `spread` widens or narrows the range of a problem that was declared by one (a grid); a problem with a
        fixed box has no spread and refuses one.
        """
        if self.spread is None:
            if spread is not None:
                raise ProblemError(
                    f"problem {self.name!r}",
                    [
                        Fault(
                            "spread",
                            "its inputs have a range of their own, so a spread does not apply; leave it out",
                        )
                    ],
                )
            return self._box
        chosen = self.spread if spread is None else spread
        if not is_spread(chosen):
            raise ProblemError(
                f"problem {self.name!r}", [Fault("spread", f"must be zero or more, not {chosen}")]
            )
        if self.drawing is not None:
            return self.drawing.box(chosen)
        return _around(self.nominal, chosen)

    # ---- batched evaluation, float64 ------------------------------------------------------------------

    def objectives(self, x: ArrayLike, y: ArrayLike) -> Array:
        """`objective` for every row: shape `(rows,)`."""
        return self._batched("objective", x, y)

    def equalities(self, x: ArrayLike, y: ArrayLike) -> Array:
        """`equality` for every row: shape `(rows, n_equalities)`."""
        return self._batched("equality", x, y)

    def inequalities(self, x: ArrayLike, y: ArrayLike) -> Array:
        """`inequality` for every row: shape `(rows, n_inequalities)`."""
        return self._batched("inequality", x, y)

    def violations(self, x: ArrayLike, y: ArrayLike) -> Array:
        """The inequalities in natural units, positive where violated: shape `(rows, n_inequalities)`."""
        return self._batched("inequality" if self.violation is None else "violation", x, y)

    def bounds(self, x: ArrayLike) -> tuple[Array, Array]:
        """Lower and upper bounds for every row: two arrays of shape `(rows, n_outputs)`."""
        x, _ = self.check_rows(x, check=False)
        if self.limits.functions is None or not len(x):
            shape = (len(x), self.n_outputs)
            return np.broadcast_to(self.lower, shape), np.broadcast_to(self.upper, shape)
        found = run_rows(self._bounds_compiled, x, x)
        low, high = np.split(found, 2, axis=1)
        return low, high

    def pin(self, x: ArrayLike, y: ArrayLike) -> Array:
        """`y` with every output whose bounds meet for its row put there; the others are as they were."""
        answers = np.asarray(y, dtype=np.float64)
        if self.limits.functions is None:
            return answers
        low, high = self.bounds(x)
        return np.where(low >= high, low, answers)

    @functools.cached_property
    def with_fixed_bounds(self) -> Problem:
        """This problem with bounds that no input moves, for those who search for answers; see `_fixed`."""
        from feasibly.problem._fixed import fix_bounds

        return fix_bounds(self)

    def bound_violations(self, y: ArrayLike, x: ArrayLike | None = None) -> Array:
        """How far each finite bound is exceeded (0 where it holds): shape `(rows, finite bounds)`.

        Bounds that are functions of `x` need the inputs of the rows too.
        """
        y = np.asarray(y, dtype=np.float64)
        low, high = np.isfinite(self.lower), np.isfinite(self.upper)
        if self.limits.functions is None:
            floor, ceiling = self.lower, self.upper
        elif x is None:
            raise ValueError(f"the bounds of {self.name!r} depend on x; pass the inputs of the rows")
        else:
            floor, ceiling = self.bounds(x)
            low, high = low | np.isfinite(floor).any(axis=0), high | np.isfinite(ceiling).any(axis=0)
        below = floor[..., low] - y[:, low]
        above = y[:, high] - ceiling[..., high]
        return np.maximum(np.concatenate([below, above], axis=1), 0.0)

    def worst(self, x: ArrayLike, y: ArrayLike) -> tuple[Array, Array, Array]:
        """Cost, largest |equality| and largest violation of any inequality or bound (natural units) of every row.

        One compiled pass over the rows: what the answers of a batch are checked with. NaN in, NaN out.
        """
        x, y = self.check_rows(x, y)
        if not len(x):
            return np.zeros(0), np.zeros(0), np.zeros(0)
        found = run_rows(self._worst_compiled, x, y)
        floor, ceiling = (self.lower, self.upper) if self.limits.functions is None else self.bounds(x)
        with np.errstate(
            invalid="ignore"
        ):  # an infinite answer where there is no bound: not a number, and no answer
            over = np.max(np.maximum(floor - y, y - ceiling), axis=1, initial=0.0)
        return found[:, 0], found[:, 1], np.maximum(found[:, 2], over)

    @functools.cached_property
    def _worst_compiled(self) -> Compiled:
        return compile_worst(self)

    def _batched(self, which: str, x: ArrayLike, y: ArrayLike) -> Array:
        x, y = self.check_rows(x, y)
        if getattr(self, which) is None:
            return np.zeros((len(x), 0))
        if len(x):
            return run_rows(self._compiled[which], x, y)
        return np.zeros((0,) if which == "objective" else (0, self._rows(getattr(self, which))))

    @functools.cached_property
    def _bounds_compiled(self) -> Compiled:
        return compile_bounds(self)

    @functools.cached_property
    def _compiled(self) -> Mapping[str, Compiled]:
        return compile_functions(self)

    def check_rows(
        self, x: ArrayLike, y: ArrayLike | None = None, *, check: bool = True
    ) -> tuple[Array, Array]:
        """`x` and `y` as float64 matrices of matching rows, or a `ProblemError` that says what is wrong.

        Inputs alone are what somebody asks about: those of a grid are also checked for statuses, costs and ratings
        that cannot be (unless told not to).
        """
        faults: list[Fault] = []
        rows = _matrix("inputs", x, self.n_inputs, faults)
        answers = np.zeros((len(rows), 0)) if y is None else _matrix("outputs", y, self.n_outputs, faults)
        if not faults and len(rows) != len(answers):
            faults.append(Fault("rows", f"{len(rows)} inputs and {len(answers)} outputs"))
        if not faults and y is None and check and self.drawing is not None:
            faults += self.drawing.faults(rows)
        if faults:
            raise ProblemError(f"data for problem {self.name!r}", faults)
        return rows, answers

    def unlike(self, x: ArrayLike) -> NDArray[np.bool_]:
        """Rows that are not of the kind that is drawn, for reasons that a range cannot tell (two outages at once)."""
        rows, _ = self.check_rows(x, check=False)
        return np.zeros(len(rows), dtype=bool) if self.drawing is None else self.drawing.unlike(rows)

    def refused(self, x: ArrayLike) -> dict[int, Refusal]:
        """Rows that have no answer by their very nature, and why: an outage that splits the grid."""
        rows, _ = self.check_rows(x, check=False)
        return {} if self.drawing is None else self.drawing.refused(rows)

    # ---- identity --------------------------------------------------------------------------------------

    @functools.cached_property
    def fingerprint(self) -> str:
        """A hash that two equal problems share and two different ones do not.

        Python functions cannot be hashed, so their values at seeded probe points stand in for them, rounded
        so that another processor gives the same digits. A grid is hashed array by array.
        """
        from feasibly.problem._identity import fingerprint_of

        return fingerprint_of(self)

    def __repr__(self) -> str:
        return (
            f"Problem({self.name!r}, n_inputs={self.n_inputs}, n_outputs={self.n_outputs}, "
            f"n_equalities={self.n_equalities}, n_inequalities={self.n_inequalities})"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(
            "a Problem holds Python functions and is not pickled; pass the problem itself, or for a built-in "
            "family what feasibly.problem.families.describe says of it"
        )


def _as_it_is(function: Any) -> Any:
    return function


def _matrix(where: str, values: ArrayLike, width: int, faults: list[Fault]) -> Array:
    try:
        matrix = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        faults.append(Fault(where, f"expected {width} numbers a row"))
        return np.zeros((0, width))
    if matrix.ndim != 2 or matrix.shape[1] != width:
        faults.append(Fault(where, f"expected shape (rows, {width}), got {matrix.shape}"))
    return matrix


def _around(nominal: Array, spread: float) -> tuple[Array, Array]:
    """The range of inputs within a share of the nominal ones."""
    ends = nominal * (1.0 - spread), nominal * (1.0 + spread)
    return np.minimum(*ends), np.maximum(*ends)
