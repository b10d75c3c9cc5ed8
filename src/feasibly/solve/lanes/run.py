"""Lanes at work: each is given a row, watched until its attempt has ended, and given the next.

A row waits among the fresh ones with its first attempt. A lane takes it, iterates in lock-step with the others
(`LaneIteration`), and when the monitor says that its attempt has ended the table (`attempts`) names the row's next
one, which the same lane goes on with; if there is none the row is done and the lane takes another. Elastic attempts
wait until no fresh row is left: while one lane is elastic, an iteration costs more for all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from feasibly.solve.lanes.attempts import Attempt, StartPoint
from feasibly.solve.lanes.formulas import INFO
from feasibly.solve.lanes.monitor import LaneMonitor
from feasibly.solve.records import Array
from feasibly.solve.status import AttemptStatus, RowStatus

if TYPE_CHECKING:
    from feasibly.solve.lanes.batch import BatchSolver
    from feasibly.solve.lanes.iteration import LaneIteration

_MU, _ELASTIC_SUM, _RESIDUAL_SUM = (INFO.index(name) for name in ("mu", "elastic sum", "residual sum"))


class Assigned(NamedTuple):
    """What a lane works on."""

    row: int
    attempt: Attempt


class LaneRun:
    """One run of the lanes over some rows, and what has become of them.

    Attributes:
        found: the iterates that rows have converged at, without elastic variables.
        status: of each row, a `RowStatus`.
        iterations: of each row, all attempts together.
        least: iterates, by row, of searches that ended where constraints are violated least.
    """

    def __init__(
        self, batch: BatchSolver, iteration: LaneIteration, x: Array, plain_starts: dict[int, Array],
        go_on: Callable[[], bool], large_barrier: bool,
    ) -> None:  # fmt: skip
        self._batch, self._iteration, self._settings = batch, iteration, batch.settings
        self._monitor = LaneMonitor(iteration, batch.settings, batch.large)
        self._plan = batch.plan
        self._x, self._go_on = x, go_on
        self._plain_starts = plain_starts
        """Iterates without elastic variables: rows' own starts, later where their elastic attempts have ended."""
        count, parts = len(x), iteration.parts
        self.found = np.empty((count, parts["z"].stop))
        self.status = np.full(count, RowStatus.NOT_STARTED, dtype=np.int8)
        self.iterations = np.zeros(count, dtype=np.int64)
        others = self._plan.large_barrier if large_barrier else self._plan.near
        self.least: dict[int, Array] = {}
        self._fresh = deque(
            Assigned(row, self._plan.given if row in plain_starts else others) for row in range(count)
        )
        self._elastic: deque[Assigned] = deque()
        """They wait until the others are done."""
        self._assigned: list[Assigned | None] = [None] * self._iteration.width
        self._elastic_variables = slice(parts["z"].stop, len(self._iteration.iterate))
        """Among the entries of an iterate."""
        self._solved: set[int] = set()
        """Rows that have a solution; some are solved again from elsewhere."""
        self._violations: dict[int, float] = {}
        """Of rows at the first infeasible stationary point that an attempt ended at."""
        self._elastic_ends: dict[int, Array] = {}
        """Where elastic attempts have converged, elastic as they were."""

    def run(self) -> None:
        """Until nothing is left to do."""
        iteration = self._iteration
        for lane in range(iteration.width):
            self._assign(lane, None)
        while any(self._assigned):
            iteration()
            converged, ended = self._monitor.look()
            following = [
                (lane, self._conclude(lane, bool(converged[lane]))) for lane in np.flatnonzero(ended).tolist()
            ]
            # `info` and the inertia are those of `iterate`, which stays until every end is noted.
            np.copyto(iteration.iterate, iteration.following)
            for lane, assigned in following:
                self._assign(lane, assigned)

    # ---- the end of an attempt --------------------------------------------------------------------------

    def _conclude(self, lane: int, converged: bool) -> Assigned | None:
        """Note how a lane's attempt ended; what its row tries next, if anything."""
        assigned = self._assigned[lane]
        assert assigned is not None
        row, attempt = assigned
        self.iterations[row] += self._monitor.iterations[lane]
        iterate, status = self._end(lane, converged, assigned)
        if status is AttemptStatus.CONVERGED:
            assert iterate is not None
            if not attempt.elastic or attempt.to_optimum:
                plain = self._batch.without_elastic(iterate, attempt) if attempt.elastic else iterate
                self._note_solution(row, plain[: self.found.shape[1]])
            elif attempt.with_objective:
                self._plain_starts[row] = self._batch.without_elastic(iterate, attempt)
                self._elastic_ends[row] = iterate.copy()
        if iterate is not None and status is AttemptStatus.INFEASIBLE_POINT and not attempt.with_objective:
            self.least[row] = iterate[: self.found.shape[1]].copy()
        if attempt.concludes and status is AttemptStatus.INFEASIBLE_POINT:
            self.status[row] = RowStatus.INFEASIBLE
            return None
        later = self._plan.after(attempt, status)
        if later is None or (row in self._solved and not later.again):
            return None
        return Assigned(row, later)

    def _note_solution(self, row: int, iterate: Array) -> None:
        """Keep a row's solution, the better one where there are two."""
        if row not in self._solved or self._batch.cost(self._x[row], iterate) < self._batch.cost(
            self._x[row], self.found[row]
        ):
            self.found[row] = iterate
        self.status[row] = RowStatus.CONVERGED
        self._solved.add(row)

    def _end(self, lane: int, converged: bool, assigned: Assigned) -> tuple[Array | None, AttemptStatus]:
        """Where an attempt ended, if it is optimal to first order, and how."""
        iterate, minimum = self._monitor.end(lane, converged)
        if iterate is None:
            stays = self._monitor.stays_infeasible(lane)
            return None, self._infeasible(lane, assigned.row) if stays else AttemptStatus.STALLED
        if not minimum:
            return iterate, AttemptStatus.STALLED
        if assigned.attempt.elastic:
            return iterate, self._elastic_status(lane, assigned.attempt, iterate)
        return iterate, AttemptStatus.CONVERGED

    def _infeasible(self, lane: int, row: int) -> AttemptStatus:
        """How an attempt ended that stays infeasible; one from elsewhere has to agree with the first."""
        violation = float(self._monitor.violation[lane])
        known = self._violations.setdefault(row, violation)
        same = abs(violation - known) <= self._settings.violation_apart * known
        return AttemptStatus.INFEASIBLE_POINT if same else AttemptStatus.STALLED

    def _elastic_status(self, lane: int, attempt: Attempt, iterate: Array) -> AttemptStatus:
        """Whether constraints are violated at the `iterate` that an elastic lane has converged at.

        A search for a feasible point counts as one only where it ended at a minimum.
        """
        iteration, s = self._iteration, self._settings
        if attempt.to_optimum:
            largest = iterate[self._elastic_variables].max(initial=0.0)
            feasible = largest <= s.elastic_zero
            return AttemptStatus.CONVERGED if feasible else AttemptStatus.INFEASIBLE_POINT
        violation, mu = iteration.info[_ELASTIC_SUM, lane], iteration.info[_MU, lane]
        model = iteration.model
        pairs = iteration.newton.n_slacks + model.n_inequalities + 2 * model.n_equalities
        rounding = s.infeasible_margin * iteration.info[_RESIDUAL_SUM, lane]
        if not violation - mu * pairs > max(s.infeasible_above, rounding):
            return AttemptStatus.CONVERGED
        if attempt.with_objective or iteration.inertia_is_right()[lane]:
            return AttemptStatus.INFEASIBLE_POINT
        return AttemptStatus.STALLED

    # ---- the beginning of one ---------------------------------------------------------------------------

    def _assign(self, lane: int, assigned: Assigned | None) -> None:
        """Give a lane its row's next attempt, the next row, or one that waits for an elastic attempt."""
        if assigned is not None and assigned.attempt.elastic and self._fresh:
            self._elastic.append(assigned)
            assigned = None
        if assigned is None:
            waiting = self._fresh or self._elastic
            if not waiting or not self._go_on():
                self._assigned[lane] = None
                self._monitor.release(lane)
                return
            assigned = waiting.popleft()
        row, attempt = assigned
        if row not in self._solved:
            self.status[row] = RowStatus.UNSOLVED
        iteration = self._iteration
        known = self._elastic_ends if attempt.start is StartPoint.STILL_ELASTIC else self._plain_starts
        iteration.iterate[:, lane] = start = self._batch.start(attempt, self._x[row], known.get(row))
        # Plain iterations do not write those of `following`: they are whatever an elastic one has left there.
        iteration.following[self._elastic_variables, lane] = start[self._elastic_variables]
        iteration.x[:, lane] = self._x[row]
        self._assigned[lane] = assigned
        self._monitor.start(lane, attempt, self._batch.rules(attempt))
