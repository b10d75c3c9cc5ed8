"""How an attempt at a row ended, and where a row stands: one word each."""

from __future__ import annotations

import enum


class AttemptStatus(enum.Enum):
    """How one attempt of the interior-point method ended, one row at a time or in a lane.

    An elastic attempt, whose constraints may be violated at a price, has CONVERGED where it ended with nothing
    violated, and is at an INFEASIBLE_POINT where it ended with something violated: for its cost, if that counts, so
    that only attempts without an objective tell that nothing is feasible. Whether it ended at a minimum is then looked
    at in the attempt that finishes the row; where none does (`Attempt.to_optimum`) and where there is no objective, at
    once: a saddle is STALLED.
    """

    CONVERGED = "at a minimum: the optimality conditions hold and the inertia is right"
    INFEASIBLE_POINT = "at an infeasible stationary point: nothing near violates the constraints less"
    STALLED = "anything else: short steps, a saddle, divergence, no iterations left"


class SearchEnd(enum.Enum):
    """Where a search for a feasible point ended."""

    FEASIBLE = "at a point that violates nothing to speak of"
    INFEASIBLE = "at a point that violates constraints, and nothing near violates them less"
    UNKNOWN = "nowhere: it stalled, or had nowhere to begin"


class RowStatus(enum.IntEnum):
    """Where a row of a batch stands."""

    NOT_STARTED = 0
    """The time was up before."""
    UNSOLVED = 1
    """It was begun, and nothing that was tried has found a solution or shown that there is none; or it has an output
    free that the problem declares fixed (`NlpModel.opens`). Left to others."""
    CONVERGED = 2
    """It has a solution, whatever became of further attempts."""
    INFEASIBLE = 3
    """Two attempts from different starts ended at infeasible stationary points."""
