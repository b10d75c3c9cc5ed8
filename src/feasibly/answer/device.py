"""`conditioned` for large batches on an accelerator: belief, steps and checks stay there, one copy in and one out.

The passes are those of the driver's first shared operator, over rows that live on the device; what has converged is
written to its place there, and the rest is gathered into the next smaller size that is compiled. Rows that do not
converge are named, and the driver takes them on.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from feasibly.answer.acceleration_wide import History
from feasibly.answer.device_belief import mean_on_device
from feasibly.answer.device_operator import narrowed, operator_on_device, operators_fit
from feasibly.answer.driver import Driver
from feasibly.answer.range import outside_box
from feasibly.answer.shared import converging
from feasibly.answer.step import DenseIteration, Iterate
from feasibly.arrays import padded
from feasibly.model.belief import Model
from feasibly.model.complementarity_wide import solve_wide
from feasibly.model.small_systems import fastest
from feasibly.precision import double
from feasibly.problem.core import Problem
from feasibly.quick import quick

Array = NDArray[np.float64]

WIDTHS = (256, 1024, 4096, 16_384, 32_768, 65_536)
"""Batch sizes that are compiled, smallest first."""
SHARE_OF_MEMORY = 0.35
"""Of the device's free memory that the arrays of one batch may take, those of its steps included."""
ARRAYS_A_ROW = 5
"""How many times a row's numbers (inputs, outputs, multipliers) are held at once while it is stepped: 2.7 on case500,
where small systems stay in registers."""
PIECE = 1 << 24
"""Bytes of an array that travel at a time; the processor copies several pieces at once."""
PAGE = 512
"""Numbers in a page of the processor's memory."""


class OnDevice(NamedTuple):
    """What came out of one batch, on the device, rows first."""

    y: Any
    objective: Any
    max_equality: Any
    max_inequality: Any
    converged: Any
    finite: Any
    """Inputs that are numbers."""
    outside: Any
    """Inputs outside the box, where there is one."""


class DeviceProgram:
    """Everything that a batch needs, moved to the device once."""

    def __init__(
        self, driver: Driver, model: Model, box: tuple[Array, Array] | None = None, solver: Any = None
    ) -> None:
        solver = solver or functools.partial(solve_wide, small=fastest())
        driver = narrowed(driver, model, box)
        self._driver = driver
        self._settings = driver.settings
        self._operators = [
            operator_on_device(driver, index) for index in range(len(driver.calibration.centres))
        ]
        self._operator = self._operators[0]
        self.passes: list[tuple[int, int]] = []
        """Width and steps of each pass of the last batch."""
        search, calibration = driver.search, driver.calibration
        self._iteration = DenseIteration(
            search, calibration.candidates, calibration.max_changes, calibration.settings, solver
        )
        self._accelerates = calibration.sparse
        """As on the processor: rows of smaller grids contract faster than they can be extrapolated."""
        self._check = _checked(driver.problem)
        fixed = search.lower >= search.upper
        base, count = calibration.base, search.n_equalities
        belief, multipliers = mean_on_device(model, solver), mean_on_device(calibration.duals, solver)
        with double():
            arrays = jax.device_put((belief.arrays, multipliers.arrays))

        def begin(arrays: Any, x: Any) -> tuple[Any, Any, Iterate]:
            """Rows last: inputs, belief, and where the iteration begins."""
            mean, active = belief.mean(arrays[0], x)
            predicted, _ = multipliers.mean(arrays[1], x)
            y = jnp.where(fixed, search.lower, mean).T
            lam = jnp.maximum(predicted[:, count:], 0.0).T
            # A solution map that knows the same candidates has found out which of them press.
            if active is None or active.shape != lam.shape:
                active = jnp.broadcast_to(base[:, None], lam.shape)
            return x.T, mean.T, Iterate(y, predicted[:, :count].T, lam, active)

        def end(x: Any, mean: Any, y: Any) -> tuple[Any, ...]:
            """What is copied back of each row, rows first."""
            near = self._is_near(y.T, mean.T)
            finite, outside = jnp.isfinite(x).all(axis=1), jnp.zeros(x.shape[0], dtype=bool)
            if box is not None:
                outside = outside_box(x, box)
            return *self._check(x, y.T), near, finite, outside

        begun = jax.jit(begin)
        self._begin = lambda x: begun(arrays, x)
        self._end = jax.jit(end)
        self._place = jax.jit(lambda y, where, new: y.at[:, where].set(new, mode="drop"), donate_argnums=0)
        self._gather = jax.jit(lambda parts, where: jax.tree.map(lambda part: part[..., where], parts))
        self._judge = jax.jit(self._judged)

    def _judged(
        self, y: Any, equality: Any, inequality: Any, change: Any, remaining: Any, history: History | None
    ) -> tuple[Any, Any]:
        """Rows that have converged, and by how many times their tolerance the others are off."""
        s = self._settings
        merit = jnp.maximum(equality / s.equality_tolerance, inequality / s.inequality_tolerance)
        done = jnp.isfinite(y).all(axis=0) & (merit < 1.0) & (change < s.proximal_change_tolerance)
        done &= ~(jnp.isfinite(remaining) & (remaining >= s.proximal_remaining_tolerance))
        if history is not None:  # where a step was extrapolated, that it led nowhere new is not enough
            done &= (history.length < s.settled_step) & history.sound
        return done, merit

    def _is_near(self, y: Any, mean: Any) -> Any:
        """Rows whose belief was not far off; the others are not to follow it (see `Driver.distance`)."""
        apart = (y - mean)[:, self._operator.free].T
        squares = jnp.sum(apart * self._operator.inverse.proximal_gradient(apart), axis=0)
        most = self._settings.far_belief * self._driver.calibration.weight * apart.shape[0]
        return squares <= most

    @functools.cached_property
    def rows_at_once(self) -> int:
        """The largest size that the memory at hand allows. Looked up once: asking the device takes milliseconds."""
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
            x = x if isinstance(x, jax.Array) else _sent(x)
            filled: Any = padded(x, width, jnp)
            whole = self._begin(filled)
            answers, converged = self._step_all(whole, rows)
            y, *measured, near, finite, outside = self._end(filled, whole[1], answers)
            found = (*measured, near & jnp.asarray(converged), finite, outside)
            return OnDevice(*(part if width == rows else part[:rows] for part in (y, *found)))

    def _step_all(self, whole: tuple[Any, Any, Iterate], rows: int) -> tuple[Any, NDArray[np.bool_]]:
        """Every pass over the first `rows` rows: answers, rows last, and which have converged."""
        width = whole[0].shape[1]
        answers = None
        converged = np.arange(width) >= rows
        self.passes = []
        for index, operator in enumerate(self._operators):
            history = self._iteration.begin_history(whole[2]) if self._accelerates else None
            with double():
                unknown = jnp.full((2, width), jnp.inf)
            held, places = (*whole, unknown, history), np.arange(width)
            stay = ~converged
            for number, steps in enumerate(self._settings.device_steps):
                left = np.flatnonzero(stay)  # among `places`
                if not len(left):
                    break
                size = next((w for w in WIDTHS if w >= len(left)), width)
                if size < len(places):
                    order = padded(left, size)
                    held, places = self._gather(held, order), places[order]
                    own = np.arange(size) < len(left)
                else:
                    own = stay
                self.passes.append((len(places), steps))
                out, history = self._iteration.on_device(
                    operator, *held, steps, rounds=self._settings.thorough_rounds
                )
                held = (*held[:2], Iterate(*out[:4]), out[10], history)
                done, merit = (np.asarray(part) for part in self._judge(held[2].y, *out[4:8], history))
                if answers is None:
                    answers = jnp.array(held[2].y)  # its own: places are written where they stand
                else:  # of later operators only what has converged; their other rows are no better
                    written = own & (done | (index == 0))
                    answers = self._place(answers, np.where(written, places, width), held[2].y)
                converged[places[own & done]] = True
                stay = own & ~done
                if number == 0 and np.count_nonzero(stay) > self._settings.few_hopeless:
                    stay &= converging(self._settings, merit, None, steps, number)
        return answers, converged


class OnHost(NamedTuple):
    """The same for all batches of a call. `y` is a NumPy array, or a JAX array if the inputs were; the rest NumPy."""

    y: Any
    objective: Array
    max_equality: Array
    max_inequality: Array
    converged: NDArray[np.bool_]
    finite: NDArray[np.bool_]
    outside: NDArray[np.bool_]

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
        return OnHost(answers, objective, equality, inequality, *self[4:])


def on_device(program: DeviceProgram | None, problem: Problem, x: Any) -> tuple[OnHost, str]:
    """All rows of `x` in batches that fit, and a sentence where they did not.

    A batch that exhausts the device's memory is tried again at the next smaller size; where even the smallest does not
    fit, or there is no program, nothing has converged, and the caller goes on with what it has.
    """
    stays, parts, note, first = isinstance(x, jax.Array), [], "", 0
    width = 0 if program is None else program.rows_at_once
    shape = (x.shape[0], problem.n_outputs)
    landing = None if stays or program is None or not _Landing.wanted(shape) else _Landing(shape)
    while program is not None and first < x.shape[0]:
        try:
            out = program.run(x[first : first + width])
            y = out.y if landing is None else landing.take(first, out.y)
            parts.append((y if stays else np.asarray(y), *(np.asarray(p) for p in out[1:])))
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
        if landing is not None:
            landing.y[-count:] = blank
        none = np.zeros(count, dtype=bool)
        finite = np.isfinite(np.asarray(x[-count:])).all(axis=1)
        parts.append((blank, unknown, unknown, unknown, none, finite, none))
    with double():
        join = jnp.concatenate if stays else np.concatenate
        y = parts[0][0] if len(parts) == 1 else None if landing else join([part[0] for part in parts])
    rest = (np.concatenate([part[i] for part in parts]) for i in range(1, 7))
    return OnHost(landing.y if landing else y, *rest), note


def _sent(x: Array) -> Any:
    """Rows on the default device. In pieces: one is copied to where the device can read it while another travels."""
    x = np.asarray(x, dtype=np.float64)
    pieces = np.array_split(x, max(1, min(len(x), x.nbytes // PIECE)))
    return jnp.asarray(x) if len(pieces) == 1 else jnp.concatenate([jax.device_put(part) for part in pieces])


class _Landing:
    """Where many answers from another device will stand.

    The system hands memory out as it is first written to, which takes as long as a copy: that is done beside what the
    device does.
    """

    def __init__(self, shape: tuple[int, int]) -> None:
        self.y: Array = np.empty(shape)
        self._pages = threading.Thread(target=self._touch, daemon=True)
        self._pages.start()

    @staticmethod
    def wanted(shape: tuple[int, int]) -> bool:
        """Whether so many answers are worth it."""
        return 8 * shape[0] * shape[1] >= 2 * PIECE and jax.default_backend() != "cpu"

    def _touch(self) -> None:
        self.y.reshape(-1)[::PAGE] = 0.0

    def take(self, first: int, y: Any) -> Array:
        """Answers in their place, from row `first` on.

        Memory that the device can write to is filled at the full speed of the connection, but there is little of it and
        it is not for keeps; what takes time is the way from there, so several threads go it.
        """
        near = jax.sharding.SingleDeviceSharding(next(iter(y.devices())), memory_kind="pinned_host")
        try:
            source = np.asarray(jax.device_put(y, near))
        except (ValueError, jax.errors.JaxRuntimeError):  # a device without such memory, or none left
            source = np.asarray(y)
        into = self.y[first : first + len(source)]
        cuts = np.linspace(0, len(into), 2 + source.nbytes // PIECE).astype(int)

        def copy(first: int, last: int) -> None:
            into[first:last] = source[first:last]

        self._pages.join()
        with ThreadPoolExecutor(min(len(cuts) - 1, os.cpu_count() or 1)) as pool:
            list(pool.map(copy, cuts[:-1], cuts[1:]))
        return into


def serves(driver: Driver) -> bool:
    """Whether the default device has room for this driver's operators, where they are sparse factorisations here."""
    return not driver.calibration.sparse or (
        jax.default_backend() != "cpu" and operators_fit(driver, free_memory())
    )


def free_memory() -> float:
    """Bytes that are free on the default device; two gigabytes where it does not say."""
    stats = jax.devices()[0].memory_stats() or {}
    limit, used = stats.get("bytes_limit"), stats.get("bytes_in_use", 0)
    return float(limit - used) if limit else 2e9


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
