"""The step: pure functions of one state for many rows at once, and the compiled loop over them.

Inside, rows go last: gathers, scatters and matrix products then run over contiguous memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from feasibly.answer.acceleration_wide import History, accelerated, no_history
from feasibly.answer.candidates import Candidates, in_order
from feasibly.answer.derivatives import lagrangian_pieces
from feasibly.answer.operator import DenseInverse, Operator, free_variables
from feasibly.answer.settings import Settings
from feasibly.answer.switches import Corrected
from feasibly.arrays import padded
from feasibly.model.complementarity import solve
from feasibly.precision import double
from feasibly.problem.core import Problem

Array = NDArray[np.float64]

BUCKETS = (1, 16, 256)
"""Batch sizes that are ever compiled, which takes seconds each."""


LEAST_COST = 1e-12
"""What a change of the cost is at least compared with: it keeps a division from zero and is no number of the method."""


class Iterate(NamedTuple):
    """Where each row stands: decisions, multipliers of equalities and candidates, and the active set among those."""

    y: Any
    equality: Any
    lam: Any
    active: Any

    def take(self, rows: Any) -> Iterate:
        """These rows alone."""
        return Iterate(*(part[rows] for part in self))


class Residuals(NamedTuple):
    """How far each row is from convergence."""

    equality: Array
    """Largest |equality|."""
    inequality: Array
    """Largest violation of a candidate."""
    change: Array
    """By which share of itself the cost changed in the last step."""
    remaining: Array
    """By which share all further steps would change it, extrapolated from the last two changes."""
    steps: NDArray[np.int64]
    """How many were taken."""
    stationarity: Array
    """The largest entry of the Lagrangian's gradient over the largest multiplier (or a small share of the cost, if that
    is more), where the last step began."""
    settled: NDArray[np.bool_]
    """What else an iteration asks for: on sparse operators, that the last step was short and its active set that of its
    own complementarity problem."""
    costs: Array
    """Before the last step and before the one before it, `(rows, 2)`; infinite where there was none. A run that goes on
    from there is told, since a single step says nothing of those that follow."""


def has_converged(settings: Settings, y: Array, seen: Residuals, proximal: bool) -> NDArray[np.bool_]:
    """Rows that satisfy the candidates and whose cost has settled, also by what all further steps would change; in
    optimal mode, that are stationary, too, and can gain nothing more."""
    s = settings
    done = np.isfinite(y).all(axis=1) & (seen.equality < s.equality_tolerance)
    done &= (seen.inequality < s.inequality_tolerance) & seen.settled
    if proximal:
        # Of a single step nothing is known of those that follow.
        creeps = np.isfinite(seen.remaining) & (seen.remaining >= s.proximal_remaining_tolerance)
        return np.asarray(done & (seen.change < s.proximal_change_tolerance) & ~creeps)
    done &= (seen.change < s.change_tolerance) & (seen.remaining < s.remaining_tolerance)
    return np.asarray(done & (seen.stationarity < s.stationarity_tolerance))


class Carry(NamedTuple):
    """What one step hands to the next."""

    state: Iterate
    costs: tuple[Any, Any]
    """Costs at the last two points, the newest first."""
    worst_in_batch: Any
    """The largest violation over its tolerance, of all rows, at the last point looked at."""
    count: Any
    stationarity: Any
    """Of each row, as in `Residuals`."""
    history: History | None = None
    """Where steps are extrapolated, those before."""

    @classmethod
    def first(cls, state: Iterate, history: History | None = None, costs: Any = None) -> Carry:
        """Before the first step nothing is known, but for the costs at the last two points of an earlier run."""
        unknown = jnp.full(state.y.shape[1], jnp.inf)
        costs = (unknown, unknown) if costs is None else (costs[0], costs[1])
        return cls(state, costs, jnp.asarray(jnp.inf), jnp.asarray(0), unknown, history)


class DenseIteration:
    """Compiled steps for one problem and its candidates; operators come and go as arguments."""

    def __init__(
        self,
        problem: Problem,
        candidates: Candidates,
        max_changes: int,
        settings: Settings,
        solver: Callable[..., tuple[Any, Any, Any]] = solve,
    ) -> None:
        """`solver` is that of the complementarity problem: `solve`, or another with its arguments."""
        self._run = _compile(problem, candidates, max_changes, settings, solver)
        self._depth, self._free = settings.acceleration_depth, free_variables(problem)

    def run(
        self,
        operator: Operator,
        x: Array,
        mean: Array,
        state: Iterate,
        steps: int,
        *,
        proximal: bool,
        cost_tolerance: float,
        rounds: tuple[int, int],
        single: bool = False,
        until: float = np.inf,
        costs: Array | None = None,
    ) -> tuple[Iterate, Residuals]:
        """At most `steps` steps for every row, fewer when every row of a batch is likely to have converged.

        Args:
            operator: whose inverse steers.
            x: inputs.
            mean: the belief.
            state: where the rows stand.
            steps: at most so many.
            proximal: whether the cost has the proximal term, centred at `mean`; else rows go to the optimum itself.
            cost_tolerance: in optimal mode, the change of the cost below which a row has converged.
            rounds: of the complementarity problem, soft and hard.
            single: for callers who will ask for one row at a time again: a program of that width is then worth
                compiling.
            until: rows that have not begun by this moment of `time.monotonic()` stay where they are.
            costs: `Residuals.costs` of the run that this one goes on from, in the same mode.
        """
        outs, costs = [], np.full((len(x), 2), np.inf) if costs is None else costs
        with double():
            for part, width in batches(len(x), single):
                args = [padded(a[part], width).T for a in (x, mean, *state, costs)]
                most = steps if time.monotonic() <= until else 0
                out, _ = self._run(operator.inverse, *args, most, cost_tolerance, proximal, rounds, None)
                outs.append([np.asarray(o).T[: part.stop - part.start] for o in out])
        parts = [np.concatenate(part) for part in zip(*outs, strict=True)]
        everything = np.ones(len(x), dtype=bool)
        *seen, last = parts[4:]
        return Iterate(*parts[:4]), Residuals(*[*seen, everything, last])

    def on_device(
        self,
        operator: Operator,
        x: Any,
        mean: Any,
        state: Iterate,
        costs: Any,
        history: History | None,
        steps: int,
        *,
        rounds: tuple[int, int],
    ) -> tuple[tuple[Any, ...], History | None]:
        """The same in proximal mode for arrays on a device, rows last: state and residuals, as `run` returns them, and
        the history of rows that came with one (`begin_history`): their steps are extrapolated."""
        cost_tolerance = 0.0  # of optimal mode
        found: tuple[tuple[Any, ...], History | None] = self._run(
            operator.inverse, x, mean, *state, costs, steps, cost_tolerance, True, rounds, history
        )
        return found

    def begin_history(self, state: Iterate) -> History:
        """Of rows that begin."""
        return no_history(self._depth, (state.y[self._free], state.equality, state.lam))


def batches(rows: int, single: bool = False) -> list[tuple[slice, int]]:
    """Rows cut into batches, each with the size it is filled up to.

    Several small batches where they waste less than a large one.
    """
    small, large = BUCKETS[1:]
    found = []
    first = 0
    while first < rows:
        left = rows - first
        width = 1 if single and rows == 1 else large if left > large // 2 else small
        found.append((slice(first, min(first + width, rows)), width))
        first += width
    return found


class BatchPieces(NamedTuple):
    """A problem's functions for many rows, and where its candidates lie."""

    values: Callable[[Any, Any], tuple[Any, Any, Any]]
    """Cost, equalities and candidate inequalities, rows last."""
    bounds: Callable[[Any], tuple[Any, Any]]
    """Limits of the candidate bounds for each row."""
    free: NDArray[np.int64]
    candidates: Candidates

    def violations(self, inverse: DenseInverse, x: Any, y: Any, h: Any) -> Any:
        """Every candidate as `<= 0`."""
        inside = y[self.free]
        floor, ceiling = self.bounds(x)
        return jnp.concatenate(in_order(floor - inside[inverse.low], inside[inverse.high] - ceiling, h))


def make_pieces(problem: Problem, candidates: Candidates) -> BatchPieces:
    """Fresh functions for one set of candidates."""
    pieces = lagrangian_pieces(problem, candidates)
    values = jax.vmap(
        lambda x, y: (pieces.objective(x, y), pieces.equality(x, y), pieces.inequality(x, y)),
        in_axes=-1,
        out_axes=-1,
    )
    floor, ceiling = problem.lower[candidates.lower][:, None], problem.upper[candidates.upper][:, None]
    return BatchPieces(values, lambda x: (floor, ceiling), free_variables(problem), candidates)


def take_step(
    pieces: BatchPieces,
    inverse: DenseInverse,
    x: Any,
    mean: Any,
    carry: Carry,
    proximal: Any,
    rounds: Any,
    max_changes: int,
    settings: Settings,
    solver: Callable[..., tuple[Any, Any, Any]] = solve,
    corrected: Corrected | None = None,
) -> Carry:
    """One step of every row: exact residuals, an approximate inverse, and the complementarity problem between them.

    Steps are extrapolated where `carry` has a history, which is on a device alone. With `corrected` (elements that can
    be out of service) the complementarity problem is the usual one's, whatever `solver` is.
    """
    state, free, n = carry.state, pieces.free, len(pieces.free)
    at_lower, at_upper, at_inequality = pieces.candidates.split(state.lam)
    (cost, g, h), backwards = jax.vjp(lambda at: pieces.values(x, at), state.y)
    g, h = jax.lax.optimization_barrier((g, h))
    a = pieces.violations(inverse, x, state.y, h)
    r = backwards((jnp.ones_like(cost), state.equality, at_inequality))[0][free]
    r = r.at[inverse.low].add(-at_lower).at[inverse.high].add(at_upper)
    r = r + jax.lax.cond(
        proximal, lambda: inverse.proximal_gradient((state.y - mean)[free]), lambda: jnp.zeros_like(r)
    )
    correct = (lambda solved: solved) if corrected is None else corrected
    d = correct(inverse.solve(jax.lax.optimization_barrier(r), g))
    lam, active = state.lam, state.active
    sound = jnp.ones(state.y.shape[1], dtype=bool)
    if len(lam):
        q = inverse.along_normals(d[:n]) + a + inverse.gram @ lam
        if corrected is None:
            lam, active, sound = solver(
                inverse.pivoted, q, lam, active, max_changes, rounds, settings=settings.complementarity
            )
        else:
            q = q - corrected.gram(lam)
            lam, active, sound = solve(
                inverse.pivoted,
                q,
                lam,
                active,
                max_changes,
                rounds,
                corrected.bordered,
                settings=settings.complementarity,
            )
        d = d + correct(inverse.respond(lam - state.lam))
    share = _share_within(inverse, d[:n])
    step = share * d[:n], share * d[n:], share * (lam - state.lam)
    history = carry.history
    if history is not None:
        afresh = jnp.any(active != state.active, axis=0) | (history.taken < settings.accelerated_from)
        point = state.y[free], state.equality, state.lam
        history = history._replace(length=_worst(step[0]), sound=sound)
        step, history = accelerated(
            history, point, step, afresh, share < 1.0, 1.0 / jnp.maximum(inverse.radius, 1e-300) ** 2
        )
        share = _share_within(inverse, step[0])
        step = share * step[0], share * step[1], jnp.maximum(state.lam + share * step[2], 0.0) - state.lam
    moved = Iterate(state.y.at[free].add(step[0]), state.equality + step[1], state.lam + step[2], active)
    broken = jnp.maximum(
        _worst(g) / settings.equality_tolerance, _worst(jnp.maximum(a, 0.0)) / settings.inequality_tolerance
    )
    multiplier = jnp.maximum(_worst(state.equality), _worst(state.lam))
    unit = jnp.maximum(multiplier, settings.stationarity_floor * jnp.abs(cost))
    # Without constraints that press, the cost alone says whether a row has settled.
    stationarity = jnp.where(multiplier > 0.0, _worst(r) / jnp.maximum(unit, 1e-300), 0.0)
    return Carry(moved, (cost, carry.costs[0]), jnp.max(broken), carry.count + 1, stationarity, history)


def _share_within(inverse: DenseInverse, step: Any) -> Any:
    """Frozen derivatives are trusted as far as the data reach; further, a step is shortened, never turned."""
    if not len(step):
        return jnp.ones(step.shape[1])
    return 1.0 / jnp.maximum(jnp.max(jnp.abs(step) / inverse.radius[:, None], axis=0), 1.0)


def _worst(residuals: Any) -> Any:
    return jnp.max(jnp.abs(residuals), axis=0, initial=0.0)


def relative_change(now: Any, before: Any) -> Any:
    """By which share of itself a cost has changed."""
    return jnp.abs(now - before) / jnp.maximum(jnp.abs(now), LEAST_COST)


def _compile(
    problem: Problem,
    candidates: Candidates,
    max_changes: int,
    settings: Settings,
    solver: Callable[..., tuple[Any, Any, Any]],
) -> Callable[..., tuple[Any, ...]]:
    pieces = make_pieces(problem, candidates)

    @jax.jit
    def run(
        inverse: DenseInverse,
        x: Any,
        mean: Any,
        y: Any,
        equality: Any,
        lam: Any,
        active: Any,
        costs: Any,
        steps: Any,
        cost_tolerance: Any,
        proximal: Any,
        rounds: Any,
        history: History | None,
    ) -> tuple[tuple[Any, ...], History | None]:
        corrected = inverse.corrected(x)

        def step(carry: Carry) -> Carry:
            return take_step(
                pieces, inverse, x, mean, carry, proximal, rounds, max_changes, settings, solver, corrected
            )

        def unfinished(carry: Carry) -> Any:
            # This ends the loop and judges no row: `has_converged` does, by what the last step changed.
            changed = jnp.max(relative_change(*carry.costs))
            enough = jnp.where(proximal, settings.proximal_loop_exit, cost_tolerance)
            return (carry.count < steps) & ~((carry.worst_in_batch < 1.0) & (changed < enough))

        begin = Carry.first(Iterate(y, equality, lam, active), history, costs)
        last = jax.lax.while_loop(unfinished, step, begin)
        state = last.state
        cost, g, h = jax.lax.optimization_barrier(pieces.values(x, state.y))
        before, earlier = last.costs
        change, previous = relative_change(cost, before), relative_change(before, earlier)
        ratio = jnp.clip(change / jnp.maximum(previous, 1e-300), 0.0, settings.slowest_contraction)
        # One step alone says nothing about the next.
        remaining = jnp.where(jnp.isfinite(earlier), change * ratio / (1.0 - ratio), jnp.inf)
        worst = _worst(jnp.maximum(pieces.violations(inverse, x, state.y, h), 0.0))
        count = jnp.full(y.shape[1], last.count)
        seen = _worst(g), worst, change, remaining, count, last.stationarity, jnp.stack(last.costs)
        return (*state, *seen), last.history

    return run
