"""The ways a row is tried in, one after the other: which comes first, and which follows how the last one ended."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

from feasibly.solve._newton import CAREFUL, HASTY, Manner


class Start(enum.Enum):
    """Where a way begins."""

    GIVEN = "the row's own start"
    NEAR = "the nominal input's central path, near its end"
    WIDE = "the same where the path is wider"
    NOMINAL = "the nominal solution, elastic"
    GUESS = "the problem's first guess, elastic"
    FOUND = "where the elastic problem ended"


class End(enum.Enum):
    """How a way ended."""

    CONVERGED = "at a point that satisfies the optimality conditions"
    BROKEN = "an elastic one has converged, and constraints are broken there"
    STUCK = "anything else"


@dataclass(frozen=True)
class Way:
    """One attempt."""

    start: Start
    manner: Manner
    elastic: bool = False
    guarded: bool = False
    """Whether the Hessian is made to curve upwards on the constraints."""
    weight: float = 1.0
    """What the objective counts; for an elastic way, as a share of what makes the price high enough."""
    pull: float = 0.0
    """The weight of staying near the first guess: it makes a least infeasible point unique."""


_SOFT = replace(CAREFUL, refined_below=1e-2, short=1e-5, most=8)
"""Elastic lanes: there is an interior, so that short steps are no sign of being stuck."""
_PULL = 1e-6

FIRST = Way(Start.GIVEN, HASTY)
"""Bold where one row at a time is not (`WARM`): failing costs little here, and refining more than it brings. 118 buses
0.42 ms a row instead of 0.53, 197_snem 0.63 instead of 1.03, 60_c__api 0.38 instead of 0.46."""
NEAR = Way(Start.NEAR, HASTY)
WIDE = Way(Start.WIDE, CAREFUL)
GUARDED = replace(WIDE, guarded=True)
"""From where the last one went to a saddle, as every fifth row of 197_snem__sad does, this goes to a minimum."""
ELASTIC = Way(Start.NOMINAL, _SOFT, elastic=True, guarded=True)
FINISH = Way(Start.FOUND, HASTY)
FINISH_CAREFULLY = Way(Start.FOUND, CAREFUL)
LEAST = replace(ELASTIC, weight=0.0, pull=_PULL)
LEAST_FROM_AFAR = replace(LEAST, start=Start.GUESS)
DEARER = replace(ELASTIC, weight=1e-2)
"""For rows that broke constraints for their cost and have points that break none: at the edge of feasibility multipliers
are large. One row in 300 of case57_ieee, which took as long as all others together."""

FOLLOWING: dict[tuple[Way, End], Way] = {
    (FIRST, End.STUCK): NEAR,
    (NEAR, End.STUCK): WIDE,
    (WIDE, End.STUCK): GUARDED,
    (GUARDED, End.STUCK): ELASTIC,
    (ELASTIC, End.CONVERGED): FINISH,
    (FINISH, End.STUCK): FINISH_CAREFULLY,
    (ELASTIC, End.BROKEN): LEAST,
    (LEAST, End.BROKEN): LEAST_FROM_AFAR,
    (LEAST, End.CONVERGED): DEARER,
    (LEAST_FROM_AFAR, End.CONVERGED): DEARER,
    (DEARER, End.CONVERGED): FINISH,
}
"""What is tried next; nothing comes back to what was tried before. A row whose two searches for a feasible point both
end at a broken constraint has none; one for which nothing follows, and which has not converged, is left to others."""
