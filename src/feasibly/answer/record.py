"""What an answer is made of."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class AnswerOutcome(enum.Enum):
    """What became of a row; `advice` says what to do about it and is empty when there is nothing to do."""

    advice: str

    OK = (0, "")
    VIOLATED = (
        1,
        "This answer breaks a constraint by more than the tolerance; ask for a higher rung: conditioned, polished, "
        "solved, or auto, which climbs by itself.",
    )
    OUTSIDE = (
        2,
        "This input lies outside the range the proxy was made for; the answer may be far off. Ask for auto or solved, "
        "or label and train on a wider range.",
    )
    INFEASIBLE = (3, "No answer to this input satisfies the constraints; check the input.")
    UNSOLVED = (
        4,
        "The solver found no answer to this input and no proof that there is none; check the input.",
    )
    NOT_FINITE_INPUT = (5, "The input holds NaN or infinite values; mend or drop this row.")

    def __new__(cls, code: int, advice: str) -> AnswerOutcome:
        """A member whose value is its code."""
        member = object.__new__(cls)
        member._value_ = code
        member.advice = advice
        return member


@dataclass(frozen=True, eq=False)
class Answer:
    """Answers to a batch of inputs, one row each.

    `max_equality` and `max_inequality` are the largest violations of each row, measured in float64 over all
    constraints; `rung` says which answer was given; `seconds` is the wall clock of the whole batch. A row without an
    answer (infeasible, not finite) is NaN. With a certificate, `lower` and `upper` hold the promised intervals of the
    optimal outputs and `gap_limit` the promised limit on the gap in per cent; NaN where the promise is void.
    """

    y: Array
    std: Array
    objective: Array
    max_equality: Array
    max_inequality: Array
    outcome: tuple[AnswerOutcome, ...]
    rung: tuple[str, ...]
    seconds: float
    lower: Array | None = None
    upper: Array | None = None
    gap_limit: Array | None = None
    warnings: tuple[str, ...] = field(default=())

    def __len__(self) -> int:
        return len(self.y)

    @property
    def ok(self) -> NDArray[np.bool_]:
        """Which rows may be used as they are."""
        return np.array([outcome is AnswerOutcome.OK for outcome in self.outcome], dtype=bool)

    def outcomes(self) -> dict[str, int]:
        """How many rows ended how, by name."""
        return {kind.name: n for kind in AnswerOutcome if (n := sum(o is kind for o in self.outcome))}
