"""What became of a row, in words that say what to do next."""

from __future__ import annotations

import enum


class Outcome(enum.Enum):
    """How solving one row ended. The value is a small stable number for files; `advice` is for people.

    `Outcome(0) is Outcome.OK`, and an empty `advice` means there is nothing to do.
    """

    advice: str

    OK = (0, "")
    INFEASIBLE = (
        1,
        "No feasible point was found: the solver settled where the constraints cannot all hold; check that "
        "this input has a solution, or draw inputs from a narrower range.",
    )
    ITERATION_LIMIT = (
        2,
        "The solver hit its iteration limit; raise max_iterations, or check that this input has a solution.",
    )
    TIME_LIMIT = (3, "The solver ran out of time on this row; raise max_seconds or leave it out.")
    NUMERICAL = (
        4,
        "The solver broke down numerically; check the problem's functions near this input for kinks, "
        "divisions by zero and badly scaled constraints.",
    )
    UNBOUNDED = (5, "The objective falls without end for this input; give the free outputs bounds.")
    INACCURATE = (
        6,
        "The solver stopped where constraints are off by more than the tolerance; scale them to be of order "
        "one, or loosen the tolerance.",
    )
    NOT_FINITE_INPUT = (
        7,
        "The input holds NaN or infinite values and was not solved; mend or drop this row.",
    )
    EVALUATION = (
        8,
        "The problem's functions gave NaN or infinity where the solver tried them; give the outputs bounds "
        "that keep the functions defined.",
    )
    CRASHED = (9, "The process that was solving this row died; run the same command again to solve it.")

    def __new__(cls, code: int, advice: str) -> Outcome:  # noqa: D102
        member = object.__new__(cls)
        member._value_ = code
        member.advice = advice
        return member

    @property
    def ok(self) -> bool:
        """Whether the row is a label."""
        return self is Outcome.OK
