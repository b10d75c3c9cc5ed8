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
    nearby_passes: int
    """See `Settings.nearby_passes`."""
    solver: bool
    """Whether there is a row-wise solver on this machine."""
    ends_with_solver: bool = False
    """Whether the whole solver takes what the levels leave: in `auto` and `solved`."""

    def max_passes_of(self, level: Level) -> float:
        """How many passes a level makes: rows near their optimum converge in a few more in another mode."""
        return max(self.max_passes, self.nearby_passes if level.rows is WhichRows.EVERY else 0)

    def solver_start(self, passes_made: bool) -> SolverStart:
        """Where the row-wise solver starts a row."""
        return self.after_passes if passes_made else self.without_passes

    def __str__(self) -> str:
        """Levels in order, how many passes on shared operators, and where the solver starts what those leave."""
        levels = [level for level in self.schedule if self._has_part(level)]
        shared = [level for level in levels if level.by is not Factorisation.OWN]
        solver = self.solver and self.ends_with_solver
        names = [level.name for level in levels] + ["solver"] * solver
        parts = ["the solver alone" if names == ["solver"] else " -> ".join(names) or "nothing"]
        if shared:
            most = max(self.max_passes_of(level) for level in shared)
            every = most >= Calibration.worthwhile_passes  # that is what it is before anybody has timed them
            parts.append("every pass" if every else f"at most {most:g} pass{'' if most == 1 else 'es'}")
        if solver or len(shared) < len(levels):
            start = self.after_passes if shared else self.without_passes
            parts.append(("then from " if shared else "from ") + start.value)
        return "; ".join(parts)

    def _has_part(self, level: Level) -> bool:
        """Whether a level has any part in this plan, as far as that is known beforehand."""
        if level.by is Factorisation.OWN:
            return self.solver
        return bool(self.max_passes) and not (self.solver and level.rows is WhichRows.WITHOUT_SOLVER)


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
        plan = replace(plan, without_passes=_cold(c), needs_belief=False)
    return replace(plan, ends_with_solver=answer in ("auto", "solved"))


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
    nearby = c.settings.nearby_passes
    return Plan(schedule, passes if shared else 0, after, without, believes, nearby, solver)


def _cold(c: Calibration) -> SolverStart:
    return SolverStart.NOMINAL_LARGE_BARRIER if c.large_barrier else SolverStart.NOMINAL
