"""What became of a row, in words that say what to do next."""

from __future__ import annotations

import enum
from collections.abc import Mapping


class Outcome(enum.Enum):
    """How solving one row ended. The value is a small number for files and never changes its meaning."""

    OK = 0
    INFEASIBLE = 1
    ITERATION_LIMIT = 2
    TIME_LIMIT = 3
    NUMERICAL = 4
    UNBOUNDED = 5
    INACCURATE = 6
    NOT_FINITE_INPUT = 7
    EVALUATION = 8
    CRASHED = 9
    ISLANDED = 10
    OPENED = 11

    @property
    def ok(self) -> bool:
        """Whether the row is a label."""
        return self is Outcome.OK

    @property
    def advice(self) -> str:
        """A sentence that the user can act on; empty when there is nothing to do."""
        return _ADVICE[self]


_ADVICE: Mapping[Outcome, str] = {
    Outcome.OK: "",
    Outcome.INFEASIBLE: (
        "No feasible point was found: the solver settled where the constraints cannot all hold; check that this "
        "input has a solution, or draw inputs from a narrower range."
    ),
    Outcome.ITERATION_LIMIT: (
        "The solver hit its iteration limit; raise max_iterations, or check that this input has a solution and that "
        "no function has a kink there (abs, max, norm at zero)."
    ),
    Outcome.TIME_LIMIT: "The solver ran out of time on this row; raise max_seconds or leave it out.",
    Outcome.NUMERICAL: (
        "The solver broke down numerically; check the problem's functions near this input for kinks, "
        "divisions by zero and badly scaled constraints."
    ),
    Outcome.UNBOUNDED: "The objective falls without end for this input; give the free outputs bounds.",
    Outcome.INACCURATE: (
        "The solver stopped where constraints or the optimality conditions are off by more than the tolerance; scale "
        "the problem's functions to be of order one, or loosen the tolerance."
    ),
    Outcome.NOT_FINITE_INPUT: (
        "The input holds NaN or infinite values and was not solved; mend or drop this row."
    ),
    Outcome.EVALUATION: (
        "The problem's functions gave NaN or infinity where the solver tried them; give the outputs bounds "
        "that keep the functions defined."
    ),
    Outcome.ISLANDED: (
        "Its outages split the grid; leave the row out, or let the parts balance each on its own (islands=True)."
    ),
    Outcome.OPENED: (
        "An output is free for this input and pinned for all that the problem declares; declare a wider range of "
        "inputs, or give the problem widest=(lower, upper)."
    ),
    Outcome.CRASHED: "The process that was solving this row died; run the same command again to solve it.",
}
