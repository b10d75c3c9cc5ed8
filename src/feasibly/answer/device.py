"""`conditioned` for large batches on an accelerator: belief, steps and checks stay there, one copy in and one out.

The passes are those of the driver's first shared operator, over rows that live on the device; what has converged is
written to its place there, and the rest is gathered into the next smaller size that is compiled. Rows that do not
converge are named, and the driver takes them on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from feasibly.answer.driver import Driver
from feasibly.answer.step import State
from feasibly.arrays import padded
from feasibly.model.belief import Model
from feasibly.model.complementarity import solve
from feasibly.model.linear import LinearModel
from feasibly.model.response import Law, ResponseModel
from feasibly.precision import double
from feasibly.problem.core import Problem
from feasibly.quick import quick

Array = NDArray[np.float64]

WIDTHS = (256, 1024, 4096, 16_384, 32_768, 65_536)
"""Batch sizes that are compiled, smallest first."""
SHARE_OF_MEMORY = 0.35
"""Of the device's free memory that the arrays of one batch may take, those of its steps included."""
ARRAYS_A_ROW = 14
"""How many times a row's numbers (inputs, outputs, multipliers) are held at once while it is stepped."""
PLAN = ((4, "quick_rounds"), (2, "thorough_rounds"), (4, "thorough_rounds"), (8, "patient_rounds"))
"""Steps and rounds of each pass, on each shared operator in turn. A batch of any size waits for its last row in every
round, so patience is for the few that are left."""


class OnDevice(NamedTuple):
    """What came out of one batch, on the device, rows first."""

    y: Any
    objective: Any
    max_equality: Any
    max_inequality: Any
    converged: Any


class DeviceProgram:
    """Everything that a batch needs, moved to the device once."""

    def __init__(self, driver: Driver, model: Model) -> None:
        self._driver = driver
        self._settings = driver.settings
        operator = driver.operator(0)
        self._operator = operator
        with double():
            self._belief = jax.jit(mean_on_device(model))
            self._multipliers = jax.jit(mean_on_device(driver.calibration.duals))
        self._check = _checked(driver.problem)
        search = driver.search
        fixed = search.lower >= search.upper
        base = driver.calibration.base
        count = search.n_equalities

        def begin(x: Any, mean: Any, predicted: Any) -> State:
            y = jnp.where(fixed, search.lower, mean).T
            lam = jnp.maximum(predicted[:, count:], 0.0).T
            active = jnp.broadcast_to(base[:, None], lam.shape)
            return State(y, predicted[:, :count].T, lam, active)

        self._begin = jax.jit(begin)
        self._place = jax.jit(lambda y, where, new: y.at[:, where].set(new), donate_argnums=0)
        self._gather = jax.jit(lambda parts, where: jax.tree.map(lambda part: part[:, where], parts))
        self._converged = jax.jit(self._has_converged)
        self._near = jax.jit(self._is_near)

    def _has_converged(self, y: Any, equality: Any, inequality: Any) -> Any:
        s = self._settings
        finite = jnp.isfinite(y).all(axis=0)
        return finite & (equality < s.equality_tolerance) & (inequality < s.inequality_tolerance)

    def _is_near(self, y: Any, mean: Any) -> Any:
        """Rows whose belief was not far off; the others are not to follow it (see `Driver.distance`)."""
        apart = (y - mean)[:, self._operator.free].T
        squares = jnp.sum(apart * self._operator.inverse.pull(apart), axis=0)
        most = self._settings.far_belief * self._driver.calibration.weight * apart.shape[0]
        return squares <= most

    def rows_at_once(self) -> int:
        """The largest size that the memory at hand allows."""
        search = self._driver.search
        numbers = search.n_inputs + 2 * search.n_outputs + search.n_equalities
        numbers += 4 * len(self._driver.calibration.candidates)
        free = free_memory()
        for width in reversed(WIDTHS[1:]):
            if 8 * ARRAYS_A_ROW * numbers * width < SHARE_OF_MEMORY * free:
                return width
        return WIDTHS[0]

    def run(self, x: Any) -> OnDevice:
        """Answer the rows of `x`, at most `rows_at_once` of them; a NumPy array is moved there, a JAX array stays."""
        rows = x.shape[0]
        width = next((w for w in WIDTHS if w >= rows), rows)
        with double():
            x = jnp.asarray(x, dtype=jnp.float64)
            filled = jnp.concatenate([x, jnp.repeat(x[-1:], width - rows, axis=0)]) if width > rows else x
            mean = self._belief(filled)
            state = self._begin(filled, mean, self._multipliers(filled))
            whole = (filled.T, mean.T, state)
            answers = jnp.array(state.y)  # its own: places are written where they stand
            left = np.arange(rows)
            for index in range(len(self._driver.calibration.centres)):
                held, places = whole, np.arange(width)
                for number, (steps, rounds) in enumerate(PLAN):
                    if not len(left):
                        break
                    if (
                        index or number
                    ):  # what is left, in the smallest size that is compiled; the last one fills up
                        size = next((w for w in WIDTHS if w >= len(left)), width)
                        wanted = padded(left, max(size, len(left)))
                        order = np.arange(width) if number == 0 else _positions(places, width)
                        held, places = self._gather(held, order[wanted]), wanted
                    out = self._driver.iteration.on_device(
                        self._driver.operator(index), *held, steps, rounds=getattr(self._settings, rounds)
                    )
                    held = (*held[:2], State(*out[:4]))
                    done = np.asarray(self._converged(held[2].y, out[4], out[5]))
                    fresh = np.flatnonzero(done) if index else np.arange(len(places))
                    if len(
                        fresh
                    ):  # of later operators only what has converged; their other rows are no better
                        answers = self._place(answers, places[fresh], held[2].y[:, fresh])
                    left = np.setdiff1d(left, places[done])
            y = answers.T[:rows]
            near = self._near(y, mean[:rows])
            y, objective, equality, inequality = self._check(x, y)
            converged = np.ones(rows, dtype=bool)
            converged[left] = False
            return OnDevice(y, objective, equality, inequality, near & jnp.asarray(converged))


def _positions(places: NDArray[np.int64], width: int) -> NDArray[np.int64]:
    """Where each row of the whole batch stands among `places`."""
    found = np.zeros(width, dtype=np.int64)
    found[places[::-1]] = np.arange(len(places))[::-1]
    return found


class OnHost(NamedTuple):
    """The same for all batches of a call. `y` is a NumPy array, or a JAX array if the inputs were; the rest NumPy."""

    y: Any
    objective: Array
    max_equality: Array
    max_inequality: Array
    converged: NDArray[np.bool_]

    def put(self, rows: NDArray[np.int64], y: Array, measured: tuple[Array, Array, Array]) -> OnHost:
        """The same with other answers to some rows."""
        if isinstance(self.y, jax.Array):
            with double():
                answers: Any = self.y.at[rows].set(y)
        else:
            answers = np.array(self.y)
            answers[rows] = y
        objective, equality, inequality = (np.array(part) for part in self[1:4])
        objective[rows], equality[rows], inequality[rows] = measured
        return OnHost(answers, objective, equality, inequality, self.converged)


def on_device(program: DeviceProgram | None, problem: Problem, x: Any) -> tuple[OnHost, str]:
    """All rows of `x` in batches that fit, and a sentence where they did not.

    A batch that exhausts the device's memory is tried again at the next smaller size; where even the smallest does not
    fit, or there is no program, nothing has converged, and the caller goes on with what it has.
    """
    stays, parts, note, first = isinstance(x, jax.Array), [], "", 0
    width = 0 if program is None else program.rows_at_once()
    while program is not None and first < x.shape[0]:
        try:
            out = program.run(x[first : first + width])
            part = (out.y, *(np.asarray(p) for p in out[1:]))
            parts.append(part if stays else (np.asarray(out.y), *part[1:]))
        except jax.errors.JaxRuntimeError as error:
            if "RESOURCE_EXHAUSTED" not in str(error):
                raise
            smaller = [w for w in WIDTHS if w < width]
            if not smaller:
                note = "The device has too little memory for a batch, so these rows were answered on the processor."
                break
            width = smaller[-1]
            note = f"The device ran out of memory, so batches were cut to {width:,} rows."
            continue
        first += width
    count = x.shape[0] - min(first, x.shape[0])
    if count:
        unknown = np.full(count, np.nan)
        blank = np.full((count, problem.n_outputs), np.nan)
        parts.append((blank, unknown, unknown, unknown, np.zeros(count, dtype=bool)))
    with double():
        join = jnp.concatenate if stays else np.concatenate
        y = parts[0][0] if len(parts) == 1 else join([part[0] for part in parts])
    rest = (np.concatenate([part[i] for part in parts]) for i in range(1, 5))
    return OnHost(y, *rest), note


def free_memory() -> float:
    """Bytes that are free on the default device; two gigabytes where it does not say."""
    stats = jax.devices()[0].memory_stats() or {}
    limit, used = stats.get("bytes_limit"), stats.get("bytes_in_use", 0)
    return float(limit - used) if limit else 2e9


def mean_on_device(model: Model) -> Callable[[Any], Any]:
    """The mean of a model in closed form as a function of `(rows, n_inputs)`; others are computed on the host."""
    if isinstance(model, LinearModel):
        return _linear(model)
    if isinstance(model, ResponseModel):
        correction, varying = _linear(model.correction), np.flatnonzero(model.varying)

        def mean(x: Any) -> Any:
            answer = _respond(model.law, x)
            return answer + correction(jnp.concatenate([x, answer[:, varying]], axis=1))

        return mean

    def elsewhere(x: Any) -> Any:
        shape = jax.ShapeDtypeStruct((x.shape[0], len(model.covariance.diagonal)), jnp.float64)
        return jax.pure_callback(lambda rows: model.predict(np.asarray(rows)).mean, shape, x)

    return elsewhere


def _linear(model: LinearModel) -> Callable[[Any], Any]:
    centre, spread = np.asarray(model.inputs.mean), np.asarray(model.inputs.std)
    return lambda x: model.offset + ((x - centre) / spread) @ model.weights


def _respond(law: Law, x: Any) -> Any:
    """`Law.respond` for rows on the device, in as many rounds as all of them together may need at first."""
    a = law.arrays
    dx = (x - a.x0).T
    answer = (a.y0 + a.drift)[:, None] + a.slope @ dx
    if not a.q0.shape[0]:
        return answer.T
    q = a.q0[:, None] + a.q_slope @ dx
    previous = jnp.broadcast_to(a.lam0[:, None], q.shape)
    active = jnp.broadcast_to(a.pivoted[0].base[:, None], q.shape)
    lam, _, settled = solve(a.pivoted, q, previous, active, law.flips, law.rounds[0])
    return (answer + a.push @ jnp.where(settled, lam, previous)).T


def _checked(problem: Problem) -> Callable[[Any, Any], tuple[Any, ...]]:
    """Pinned answers with their cost and largest violations, in float64 over all constraints."""

    def one(x: Any, y: Any) -> tuple[Any, ...]:
        y = problem.limits.hold(x, y) if problem.limits.functions is not None else y
        low, high = problem.limits.at(x)
        natural = problem.inequality if problem.violation is None else problem.violation
        equal = jnp.zeros(0) if problem.equality is None else jnp.abs(problem.equality(x, y))
        over = jnp.zeros(0) if natural is None else natural(x, y)
        worst = jnp.maximum(jnp.max(over, initial=0.0), jnp.max(jnp.maximum(low - y, y - high), initial=0.0))
        return y, problem.objective(x, y), jnp.max(equal, initial=0.0), worst

    inner = jax.vmap(quick(one), in_axes=-1, out_axes=-1)

    @jax.jit
    def checked(x: Any, y: Any) -> tuple[Any, ...]:
        answers, *measured = inner(x.T, y.T)
        return answers.T, *measured

    return checked
