"""The escalation as data: which rows, by which operator, in which mode, from where, in how many steps."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, replace
from typing import NamedTuple

from feasibly.answer.settings import Settings


class Factorisation(enum.Enum):
    """What a level solves its linear systems with."""

    SHARED = "the shared operators, one after the other"
    CENTRAL = "the first shared operator alone"
    OWN = "a factorisation of each row's own system, in the row-wise solver"


class Mode(enum.Enum):
    """What a level converges to."""

    PROXIMAL = "feasible, optimal up to the small proximal term"
    OPTIMAL = "the optimum itself"


class StartFrom(enum.Enum):
    """Where a level begins."""

    BELIEF = "the belief's mean with predicted multipliers"
    FOUND = "the best point found so far"
    CENTRE = "the operator's own point, as start and as belief"


class WhichRows(enum.Enum):
    """Which rows a level takes."""

    LEFT = "those that have not converged"
    EVERY = "all of them"
    FAR = "converged ones whose belief was far off"
    WITHOUT_SOLVER = "those left, where there is no row-wise solver"


@dataclass(frozen=True)
class Level:
    """One line of a schedule. Where `by` is OWN, `mode` and `start` are not read: `Plan.solver_start` decides."""

    name: str
    rows: WhichRows
    by: Factorisation
    mode: Mode
    start: StartFrom
    passes_an_operator: float = math.inf
    """At most so many: whoever answers many at once lets nobody wait for the last rows to converge."""
    approach: bool = False
    """Whether steps with the proximal term come before the first pass (`Settings.approach_steps`)."""
    steps: int = 0
    """One pass of so many steps instead of the usual ones, where rows that have not converged go on in a later call."""


_SHARED = Level("shared", WhichRows.LEFT, Factorisation.SHARED, Mode.PROXIMAL, StartFrom.BELIEF)
_FAR_BELIEF = Level("far-belief", WhichRows.FAR, Factorisation.CENTRAL, Mode.OPTIMAL, StartFrom.FOUND)
_ROW = Level("row", WhichRows.LEFT, Factorisation.OWN, Mode.OPTIMAL, StartFrom.FOUND)
_RESTART = Level("restart", WhichRows.WITHOUT_SOLVER, Factorisation.CENTRAL, Mode.PROXIMAL, StartFrom.CENTRE)
_RESTART_OPTIMAL = Level(
    "restart", WhichRows.WITHOUT_SOLVER, Factorisation.CENTRAL, Mode.OPTIMAL, StartFrom.CENTRE
)
_OPTIMAL = Level(
    "optimal", WhichRows.EVERY, Factorisation.SHARED, Mode.OPTIMAL, StartFrom.FOUND, approach=True
)
_FROM_BELIEF = Level("shared", WhichRows.LEFT, Factorisation.SHARED, Mode.OPTIMAL, StartFrom.BELIEF)

CONDITIONED = (_SHARED, _FAR_BELIEF, _RESTART, _ROW)
"""`conditioned`: feasible and, where the belief is not far off, optimal to many digits."""

POLISHED = (_OPTIMAL, _RESTART_OPTIMAL, _ROW)
"""`polished`: the optimum, whatever the belief."""

CONFIRMED = (_OPTIMAL,)
"""`auto`, before the solver: what shared operators bring to the optimum itself."""

ROW_BY_ROW = (_ROW,)
"""What is left after shared operators were tried elsewhere."""

SHARED_ONLY = (_SHARED,)
"""What can be had without factoring anything for a row; for calibration and for answers that teach."""

SHARED_OPTIMAL = (_FROM_BELIEF,)
"""The same in optimal mode, for labels whose multipliers are wanted."""


def shared_part(schedule: tuple[Level, ...], passes_an_operator: float = math.inf) -> tuple[Level, ...]:
    """The levels that cost every row about the same: no solver, and nothing that stands in for it."""
    shared = (
        level
        for level in schedule
        if level.by is not Factorisation.OWN and level.rows is not WhichRows.WITHOUT_SOLVER
    )
    return tuple(replace(level, passes_an_operator=passes_an_operator) for level in shared)


class Pass(NamedTuple):
    """So many steps, with so many rounds of the complementarity problem in each (soft and hard)."""

    steps: int
    rounds: tuple[int, int]


def level_passes(settings: Settings, rows: int, level: Level) -> tuple[Pass, ...]:
    """The passes over the rows of a level in a call of so many; rows that have converged sit out the later ones."""
    quick, thorough, patient = settings.quick_rounds, settings.thorough_rounds, settings.patient_rounds
    last = Pass(settings.last_steps, patient)
    if level.steps:
        return (Pass(level.steps, thorough),)
    if rows <= settings.few_rows:
        return Pass(settings.few_steps, thorough), last
    if level.start is StartFrom.FOUND:
        return *(Pass(steps, thorough) for steps in settings.found_steps), last
    first = Pass(settings.first_steps, quick)
    then = settings.later_steps if level.mode is Mode.PROXIMAL else settings.optimal_steps
    later = (Pass(steps, thorough) for steps in then)
    return first, *later, Pass(settings.patient_steps, patient), last
