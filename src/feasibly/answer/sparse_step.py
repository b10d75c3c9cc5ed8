"""The step of `step.py` with a sparse factorisation: residuals compiled, linear systems and active sets on the host.

At most `BATCH` rows are at work at a time (`_WorkingRows`). In order, until none is left (`SparseIteration.run`):

1. cost, constraints and gradient of the Lagrangian of rows that moved or came in (`_evaluate`);
2. rows that have converged take one step more and leave; those that have taken all their steps leave as they are; the
   next rows take their places, and 1 follows for those (`test_convergence`);
3. the step of all rows (`_solve`), below;
4. it is shortened to the trust region, accelerated where the active set no longer changes, and taken (`take_steps`).

With the usual active set `b` in the matrix, one solve gives the step that a row would take if its own set were `b`
(`_usual_step`). It is wrong where a multiplier of `b`, or the slack of another candidate, comes out negative. Let `v`
be these quantities (multipliers of usual candidates, slacks of others) and `t` the change at each candidate: the slack
of a usual one that becomes inactive, the multiplier of another that becomes active. Both follow from the matrix,

    v = first + M t,        v >= 0,        t >= 0,        v t = 0.

For a usual candidate `v` is its multiplier after the step and `t` its slack, which comes off its row of the right-hand
side; for another one `v` is its slack, `-(a + A d) + sigma (t - lam)`, and `t` its multiplier, whose normal comes off
the first block (`SparseOperator.nonnegatives`, `_right_hand_sides`). `M` is the Schur complement between the candidates
(`ActiveSetChanges.matrix`): `solve_changes` solves it among those met so far. A second solve takes `t` into the step;
what is negative after that is met now, and solved for again (`_solve`). In the code `changed` says where `t` may differ
from zero, `amounts` is `t`.

Invariants: `cost`, `g`, `a` and `r` of `_WorkingRows` are those at its `y`, `nu`, `lam` whenever a step is solved for;
the multiplier of an unusual candidate that is not active is zero.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from feasibly.answer.acceleration import Acceleration
from feasibly.answer.candidates import Candidates, in_order
from feasibly.answer.derivatives import lagrangian_pieces
from feasibly.answer.settings import Settings
from feasibly.answer.sparse import SparseOperator
from feasibly.answer.step import LEAST_COST, Iterate, Residuals, has_converged
from feasibly.arrays import padded
from feasibly.precision import double
from feasibly.problem.core import Problem

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

BATCH = 32
"""Rows that are solved for at a time: factors are read once for all of them."""
WIDTHS = (1, 2)
"""Rows whose residuals are computed at a time, as compiled. Whatever is computed of a row on the way fits into a core's
own cache then: with 32, case9241_pegase takes five times as long a row, and case2000_goc no less."""


class SparseIteration:
    """Steps for one problem and its candidates; operators come and go as arguments."""

    def __init__(self, problem: Problem, candidates: Candidates, settings: Settings) -> None:
        self._candidates, self._settings = candidates, settings
        self._residuals = _compile(problem, candidates)
        self._floor, self._ceiling = problem.lower[candidates.lower], problem.upper[candidates.upper]

    def run(
        self,
        operator: SparseOperator,
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
        """As `DenseIteration.run`, which see; a row that has converged makes room for the next.

        No further step is begun after `until`.
        """
        costs = np.full((len(x), 2), np.inf) if costs is None else costs
        working = _WorkingRows(
            operator, self._settings, x, mean, state, costs, proximal, stops=proximal or cost_tolerance > 0.0
        )
        entering = np.arange(len(working))
        while len(working):
            self._evaluate(operator, working, entering)
            entering = working.test_convergence(steps if time.monotonic() <= until else 0)
            if len(entering) or not len(working):
                continue
            with operator.changes.lock:
                step = self._solve(operator, working, sum(rounds))
            working.take_steps(step)
            entering = np.arange(len(working))
        return working.state, working.residuals

    def _evaluate(self, operator: SparseOperator, working: _WorkingRows, places: Ints) -> None:
        """Cost, constraints and gradient of the Lagrangian of the rows at these places."""
        c = self._candidates
        x, y, nu, lam = (part[places] for part in (working.x, working.y, working.nu, working.lam))
        at_lower, at_upper, at_inequality = c.split(lam, axis=1)
        width = WIDTHS[min(len(x), len(WIDTHS)) - 1]
        with double():
            for first in range(0, len(x), width):
                some = slice(first, first + width)
                parts = self._residuals(*(padded(part[some], width) for part in (x, y, nu, at_inequality)))
                own = places[some]
                cost, g, h, gradient = (np.asarray(part)[: len(own)] for part in parts)
                gradient = gradient.copy()
                gradient[:, c.lower] -= at_lower[some]
                gradient[:, c.upper] += at_upper[some]
                working.cost[own], working.g[own], working.r[own] = cost, g, gradient[:, operator.free]
                working.a[own] = np.concatenate(
                    in_order(self._floor - y[some, c.lower], y[some, c.upper] - self._ceiling, h), axis=1
                )

    def _solve(self, operator: SparseOperator, working: _WorkingRows, rounds: int) -> _Step:
        """The step of each row.

        In the letters of (3s): `v_usual` and `v` are what must not be negative, as if the usual set pressed and as the
        row's own does; `t` what the row changes, at the candidates that are known to the operator (`t_known`) and
        everywhere.
        """
        base, a, lam, settings = operator.base, working.a, working.lam, self._settings
        usual = self._usual_step(operator, working)
        changed = working.active != base
        v_usual = operator.nonnegatives(a.T, lam.T, usual).T
        # Multipliers are prices, slacks are not: each has a tolerance of its own.
        largest_multiplier = np.abs(v_usual[:, base]).max(axis=1, initial=0.0)[:, None]
        tolerance = settings.sparse_rounding * np.where(base, 1.0 + largest_multiplier, 1.0)
        for _ in range(settings.sparse_looks):
            operator.include(np.flatnonzero(changed.any(axis=0)))
            known = operator.changes.candidates
            changed &= operator.changes.position >= 0
            t_known, changed[:, known] = solve_changes(
                operator.changes.matrix, v_usual[:, known], changed[:, known], rounds, settings
            )
            step = operator.with_changes(usual, t_known)
            v = operator.nonnegatives(a.T, lam.T, step).T
            # Sigma's own part. Entries of usual candidates get it too, and are not read: where one of them has
            # changed its amount is what counts, and where not the amount is zero.
            v[:, known] += operator.changes.sigma[known] * t_known
            missed = (v < -tolerance) & ~changed
            missed[:, known] = False
            if not missed.any():
                break
            # For the next look, which solves for them. After the last one nothing does: such a row is inconsistent
            # (below), they count as zero, and its next step begins with them.
            for kind in (base, ~base):
                changed[:, kind] |= missed[:, kind] & _nearly_worst(
                    np.where(missed[:, kind], v[:, kind], 0.0), settings
                )
        t = np.zeros_like(lam)
        t[:, known] = t_known
        multipliers = np.where(base, np.where(changed, 0.0, v), np.where(changed, t, 0.0))
        slack = np.where(base, np.where(changed, t, 0.0), np.where(changed, 0.0, v))
        least = settings.sparse_sound
        consistent = np.all((multipliers >= -least * (1.0 + largest_multiplier)) & (slack >= -least), axis=1)
        consistent &= ~missed.any(axis=1)  # seen in the last look, and not solved for
        return _Step(step, np.maximum(multipliers, 0.0), changed != base, consistent)

    def _usual_step(self, operator: SparseOperator, working: _WorkingRows) -> Array:
        """The step of each row (columns) if its active set were the usual one."""
        base = operator.base
        # Multipliers of unusual candidates come back with the changes.
        unusual = np.where(base, 0.0, working.lam)
        r = working.gradients() - np.asarray(operator.normals_transposed @ unusual.T).T
        return operator.solve(-np.concatenate([r.T, working.g.T, working.a.T[base]]))


class _Step(NamedTuple):
    """Steps of the rows at work, and what they lead to."""

    step: Array
    """Rows are columns: free outputs, multipliers of equalities and of the usual candidates."""
    multipliers: Array
    """Of all candidates, after the whole step."""
    active: Mask
    consistent: Mask
    """Whether the active set is that of the row's own complementarity problem."""


class _WorkingRows:
    """The rows at work, at most `BATCH` of all of them; the place of one that leaves is taken by the next.

    Attributes:
        x, mean, y, nu, lam, active: of the rows at work.
        cost, g, a, r: what was last seen of them: costs, equalities, candidates as `<= 0`, and gradients of the
            Lagrangian over the free outputs.
        state, residuals: of all rows; those at work are not in them yet.
    """

    def __init__(
        self,
        operator: SparseOperator,
        settings: Settings,
        x: Array,
        mean: Array,
        state: Iterate,
        costs: Array,
        proximal: bool,
        stops: bool,
    ) -> None:
        self._operator, self._settings, self._proximal, self._stops = operator, settings, proximal, stops
        self._given = x, mean, *(np.asarray(part) for part in state)
        self._given_costs = costs
        self.state = Iterate(*(np.array(part) for part in state))
        equality, inequality, change, remaining, stationarity = np.full((5, len(x)), np.inf)
        steps, settled = np.zeros(len(x), dtype=np.int64), np.zeros(len(x), dtype=bool)
        self.residuals = Residuals(
            equality, inequality, change, remaining, steps, stationarity, settled, costs.copy()
        )
        self._rows = np.arange(min(len(x), BATCH))
        self._next = count = len(self._rows)
        self.x, self.mean, self.y, self.nu, self.lam, self.active = (
            np.array(part[self._rows]) for part in self._given
        )
        self.cost, self.g, self.a = np.empty(count), np.empty_like(self.nu), np.empty_like(self.lam)
        self.r = np.empty((count, len(operator.free)))
        self._costs = costs[self._rows].T
        self._steps = np.zeros(count, dtype=np.int64)
        self._step_length = np.full(count, np.inf)
        """The longest move of a free output in the row's last plain step: within the trust region, not accelerated."""
        self._consistent = np.zeros(count, dtype=bool)
        """Whether the last step's active set was that of its own complementarity problem."""
        self._final = np.zeros(count, dtype=bool)
        """Rows that leave after one more step: answers are then the same to a digit more, whatever else was known."""
        self._acceleration = Acceleration(
            settings.acceleration_depth, 1.0 / np.maximum(operator.radius, 1e-300) ** 2
        )

    def __len__(self) -> int:
        return len(self._rows)

    def gradients(self) -> Array:
        """Of the Lagrangian, with that of the proximal term in proximal mode."""
        if not self._proximal:
            return self.r
        return self.r + self._operator.precision * (self.y - self.mean)[:, self._operator.free]

    def test_convergence(self, most: int) -> Ints:
        """Rows that have converged take one more step, others that have taken `most` leave.

        Returned are the places that further rows have taken.
        """
        s = self._settings
        change, previous = _relative(self.cost, self._costs[0]), _relative(*self._costs)
        ratio = np.clip(change / np.maximum(previous, 1e-300), 0.0, s.slowest_contraction)
        remaining = np.where(np.isfinite(self._costs[1]), change * ratio / (1.0 - ratio), np.inf)
        multiplier = np.maximum(_worst(self.nu), _worst(self.lam))
        # Without constraints that press, the cost alone says whether a row has settled.
        unit = np.maximum(np.maximum(multiplier, s.stationarity_floor * np.abs(self.cost)), 1e-300)
        stationarity = np.where(multiplier > 0.0, _worst(self.r) / unit, 0.0)
        inequality = _worst(np.maximum(self.a, 0.0))
        settled = (self._step_length < s.settled_step) & self._consistent
        seen = Residuals(
            _worst(self.g), inequality, change, remaining, self._steps, stationarity, settled, self._costs.T
        )
        self._final = has_converged(s, self.y, seen, self._proximal) & self._stops & (most > 0)
        for whole, part in zip(self.residuals, seen, strict=True):
            whole[self._rows] = part
        return self._retire(np.flatnonzero(~self._final & (self._steps >= most)))

    def _retire(self, leaving: Ints) -> Ints:
        """Write rows that leave to `state`; the places that further ones have taken."""
        if not len(leaving):
            return leaving
        for whole, part in zip(self.state, (self.y, self.nu, self.lam, self.active), strict=True):
            whole[self._rows[leaving]] = part[leaving]
        self.residuals.steps[self._rows[leaving]] = self._steps[leaving]
        entering = np.arange(self._next, min(self._next + len(leaving), len(self.state.y)))
        self._next += len(entering)
        places = leaving[: len(entering)]
        working = self.x, self.mean, self.y, self.nu, self.lam, self.active
        for part, given in zip(working, self._given, strict=True):
            part[places] = given[entering]
        self._rows[places], self._steps[places] = entering, 0
        self._costs[:, places] = self._given_costs[entering].T
        self._final[places], self._step_length[places], self._consistent[places] = False, np.inf, False
        self._acceleration.forget(places)
        if len(leaving) > len(entering):
            self._compact(np.setdiff1d(np.arange(len(self._rows)), leaving[len(entering) :]))
            places = np.flatnonzero(np.isin(self._rows, entering))
        return places

    def _compact(self, places: Ints) -> None:
        names = "x mean y nu lam active cost g a r _rows _steps _final _consistent _step_length"
        for name in names.split():
            setattr(self, name, getattr(self, name)[places])
        self._costs = self._costs[:, places]
        self._acceleration.keep(places)

    def take_steps(self, solved: _Step) -> None:
        """Take a step with every row; those that had converged before it leave.

        Where those end up is not looked at again: a step contracts.
        """
        operator, free = self._operator, self._operator.free
        d, active = solved.step[: len(free)].T, solved.active
        share = self._step_share(d)
        point = [self.y[:, free], self.nu, self.lam]
        nu_step = solved.step[len(free) : operator.before_usual].T
        moves = [share * d, share * nu_step, share * (solved.multipliers - self.lam)]
        afresh = (active != self.active).any(axis=1) | (self._steps < self._settings.accelerated_from)
        further = self._acceleration(point, moves, afresh, shortened=share[:, 0] < 1.0)
        share = self._step_share(further[0])
        self.y[:, free] = point[0] + share * further[0]
        self.nu = point[1] + share * further[1]
        lam = np.maximum(point[2] + share * further[2], 0.0)
        unusual = ~operator.base
        lam[:, unusual] = np.where(active[:, unusual], lam[:, unusual], 0.0)
        self.lam, self.active, self._consistent = lam, active, solved.consistent
        self._costs = np.stack([self.cost, self._costs[0]])
        self._steps, self._step_length = self._steps + 1, np.abs(moves[0]).max(axis=1, initial=0.0)
        self._retire(np.flatnonzero(self._final))

    def _step_share(self, d: Array) -> Array:
        """How much of a step over the free outputs lies within the trust region."""
        return np.asarray(1.0 / np.maximum(np.max(np.abs(d) / self._operator.radius, axis=1), 1.0)[:, None])


def solve_changes(
    matrix: Array, first: Array, changed: Mask, rounds: int, settings: Settings
) -> tuple[Array, Mask]:
    """How rows change the usual active set: `(rows, known)` amounts, and where they do.

    `first + matrix @ amounts` must not be negative where a row changes nothing and is zero where it does, and amounts
    are not negative either. The primal-dual active-set rule: the worst of the wrong signs are changed, and from where
    that cycles the last of all of them alone (Murty's rule, which ends for every P-matrix).
    """
    rows, size = first.shape
    if not size:
        return np.zeros((rows, 0)), changed
    scale = 1.0 / np.sqrt(np.maximum(np.abs(np.diag(matrix)), 1e-300))
    scaled = matrix * scale[:, None] * scale
    start = first * scale
    tolerance = settings.sparse_rounding * (1.0 + np.max(np.abs(start), axis=1, keepdims=True))
    patient, hard = settings.complementarity.patience, settings.complementarity.hard
    fewest, patience = np.full(rows, size + 1), np.full(rows, patient)
    changed, amounts = changed.copy(), np.zeros((rows, size))
    left = np.arange(rows)
    for _ in range(max(rounds, 1)):
        here = changed[left]
        amounts[left] = tried = _solve_amounts(scaled, start[left], here, hard)
        value = np.where(here, tried, start[left] + tried @ scaled.T)
        wrong = value < -tolerance[left]
        count = wrong.sum(axis=1)
        last = wrong & (
            np.arange(size) == np.max(np.where(wrong, np.arange(size), -1), axis=1, keepdims=True)
        )
        wrong &= _nearly_worst(value, settings)
        left, wrong, last, count = (part[count > 0] for part in (left, wrong, last, count))
        if not len(left):
            return amounts * scale, changed
        patience[left] = np.where(count < fewest[left], patient, patience[left] - 1)
        fewest[left] = np.minimum(fewest[left], count)
        changed[left] ^= np.where((patience[left] >= 0)[:, None], wrong, last)
    amounts[left] = _solve_amounts(scaled, start[left], changed[left], hard)
    return amounts * scale, changed


def _nearly_worst(value: Array, settings: Settings) -> Mask:
    """What is nearly as negative as anything in its row: most of the rest is negative because of it."""
    return np.asarray(value <= settings.complementarity.worst * value.min(axis=1, keepdims=True, initial=0.0))


def _solve_amounts(matrix: Array, start: Array, changed: Mask, hard: float) -> Array:
    most = int(changed.sum(axis=1).max())
    amounts = np.zeros_like(start)
    if not most:
        return amounts
    where = np.argsort(~changed, axis=1, kind="stable")[:, :most]
    valid = np.take_along_axis(changed, where, axis=1)
    both = valid[:, :, None] & valid[:, None, :]
    chosen = matrix[where[:, :, None], where[:, None, :]] + hard * np.eye(most)
    small = np.where(both, chosen, np.eye(most))
    right = np.where(valid, -np.take_along_axis(start, where, axis=1), 0.0)
    np.put_along_axis(amounts, where, np.linalg.solve(small, right[..., None])[..., 0] * valid, axis=1)
    return amounts


def _compile(problem: Problem, candidates: Candidates) -> Callable[..., Any]:
    pieces = lagrangian_pieces(problem, candidates)

    def look(x: Any, y: Any, nu: Any, lam: Any) -> Any:
        (cost, g, h), back = jax.vjp(
            lambda at: (pieces.objective(x, at), pieces.equality(x, at), pieces.inequality(x, at)), y
        )
        return cost, g, h, back((jnp.ones_like(cost), nu, lam))[0]

    rows_final = jax.vmap(look, in_axes=-1, out_axes=-1)
    return jax.jit(lambda x, y, nu, lam: tuple(part.T for part in rows_final(x.T, y.T, nu.T, lam.T)))


def _worst(residuals: Array) -> Array:
    return np.asarray(np.max(np.abs(residuals), axis=1, initial=0.0))


def _relative(now: Array, before: Array) -> Array:
    """As `step.relative_change`, on the host."""
    with np.errstate(invalid="ignore"):
        return np.asarray(np.abs(now - before) / np.maximum(np.abs(now), LEAST_COST))
