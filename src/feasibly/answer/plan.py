"""The plan of a batch: one pure function of what was asked and what training has measured, read by everything else.

An answer goes through the levels of its schedule (`answer.schedule`). What training has measured decides three things
about that, and they are decided here alone:

1. how many passes over the shared operators a row makes before it is handed on, if any;
2. where the row-wise solver starts a row: after passes, and where none was made;
3. whether the model has to be asked at all.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, replace

from feasibly.answer.calibration import Calibration
from feasibly.answer.schedule import (
    CONDITIONED,
    CONFIRMED,
    POLISHED,
    ROW_BY_ROW,
    SHARED_ONLY,
    SHARED_OPTIMAL,
    Factorisation,
    Level,
    WhichRows,
)


class SolverStart(enum.Enum):
    """Where the row-wise solver starts a row."""

    PASSES = "where shared passes left it"
    BELIEF = "the belief's mean with predicted multipliers"
    NOMINAL = "the nominal central path, near its end"
    NOMINAL_LARGE_BARRIER = "the nominal central path, at a larger barrier parameter"

    @property
    def cold(self) -> bool:
        """Whether nothing that is known of the row itself is used."""
        return self in (SolverStart.NOMINAL, SolverStart.NOMINAL_LARGE_BARRIER)


@dataclass(frozen=True)
class Plan:
    """What the rows of a batch go through."""

    schedule: tuple[Level, ...]
    """Levels of the driver, each for what the one before left; what is left after them is the solver's in `auto`."""
    max_passes: float
    """Passes over the shared operators, counted through all of them; rows that have not converged are handed on."""
    after_passes: SolverStart
    """Where the row-wise solver starts rows that passes were made on."""
    without_passes: SolverStart
    """And where all others."""
    needs_belief: bool
    """Whether anything starts from, or is drawn to, what the model believes."""

    def max_passes_of(self, level: Level, nearby_passes: int) -> float:
        """The same of one level: rows near their optimum converge in `nearby_passes` more in another mode."""
        return max(self.max_passes, nearby_passes if level.rows is WhichRows.EVERY else 0)

    def solver_start(self, passes_made: bool) -> SolverStart:
        """Where the row-wise solver starts a row."""
        return self.after_passes if passes_made else self.without_passes

    def __str__(self) -> str:
        levels = " -> ".join(level.name for level in self._levels) or "the solver alone"
        parts = [levels]
        if self._shared:
            parts.append(
                "every pass" if math.isinf(self.max_passes) else f"at most {self.max_passes:g} passes"
            )
            parts.append(f"then from {self.after_passes.value}")
        else:
            parts.append(f"from {self.without_passes.value}")
        return "; ".join(parts)

    @property
    def _levels(self) -> tuple[Level, ...]:
        """Those that are gone through at all."""
        return tuple(level for level in self.schedule if self.max_passes or level.by is Factorisation.OWN)

    @property
    def _shared(self) -> bool:
        return any(level.by is not Factorisation.OWN for level in self._levels)


def plan_answer(answer: str, calibration: Calibration, *, solver: bool) -> Plan:
    """The plan of an answer that iterates: `conditioned`, `polished`, `auto` or `solved`.

    Args:
        answer: which.
        calibration: what was found to be quickest (see the table in docs/method.md).
        solver: whether there is a row-wise solver on this machine; without one shared operators are tried to the end.
    """
    c = calibration
    # Asking for the optimum is asking the solver: no pass pays, and rows start as for a label.
    solves = solver and not (c.worthwhile_passes and c.auto_tries_passes) and not c.start_from_belief
    schedule: tuple[Level, ...] = ()
    if answer == "conditioned":
        schedule = CONDITIONED
    elif answer == "polished":
        schedule = ROW_BY_ROW if solves else POLISHED
    elif answer == "auto" and not solves and (c.auto_tries_passes or not solver):
        schedule = CONFIRMED
    plan = plan_schedule(schedule, c, solver=solver)
    if answer == "solved":
        return replace(plan, without_passes=_cold(c), needs_belief=False)
    return plan


def plan_schedule(schedule: tuple[Level, ...], calibration: Calibration, *, solver: bool) -> Plan:
    """The plan for these levels, whoever asks for them."""
    c = calibration
    shared = any(level.by is not Factorisation.OWN for level in schedule)
    # What only shared operators are asked for, or can do, is not handed on to anything else.
    alone = schedule in (SHARED_ONLY, SHARED_OPTIMAL) or not solver
    passes = math.inf if alone else c.worthwhile_passes
    after = SolverStart.PASSES if c.start_from_passes else _cold(c)
    without = SolverStart.BELIEF if c.start_from_belief else _cold(c)
    believes = bool(shared and passes) or not without.cold or not solver
    return Plan(schedule, passes if shared else 0, after, without, believes)


def _cold(c: Calibration) -> SolverStart:
    return SolverStart.NOMINAL_LARGE_BARRIER if c.large_barrier else SolverStart.NOMINAL
