"""What the iteration was calibrated to on the labels: small, plain, and saved with a model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from feasibly._codec import record
from feasibly.answer.candidates import Candidates
from feasibly.answer.settings import Settings
from feasibly.answer.switches import Switches
from feasibly.answer.system import System
from feasibly.model.belief import Covariance
from feasibly.model.linear import LinearModel
from feasibly.problem.point import Duals

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Labels:
    """Solved instances; `duals` is `None` where the labels came without multipliers.

    `seconds` is what solving one took on average, where that is known.
    """

    x: Array
    y: Array
    objective: Array
    duals: Duals | None = None
    seconds: float | None = None


@record("centre")
class Centre(NamedTuple):
    """Where an operator was taken: one input, its optimum, and its multipliers over the candidates."""

    x: Array
    y: Array
    equality: Array
    lam: Array


@record(
    "calibration",
    shapes={
        "base": "candidates", "radius": "outputs", "duals.inputs.mean": "inputs",
        "centres.*.x": "inputs", "centres.*.y": "outputs", "centres.*.equality": "equalities",
        "centres.*.lam": "candidates",
    },
    indices={
        "candidates.lower": "outputs", "candidates.upper": "outputs", "candidates.inequality": "inequalities",
        "watched": "inequalities",
    },
    added=("large_barrier", "watched", "row_seconds", "solving_seconds"),  # seconds shape no answer
    stored={
        "radius": "trust", "max_changes": "flips", "auto_tries_passes": "confirms", "start_from_belief": "warm",
        "start_from_passes": "goes_on", "large_barrier": "wide",
    },
)  # fmt: skip
@dataclass(frozen=True)
class Calibration:
    """Everything the solver of a model is rebuilt from."""

    candidates: Candidates
    base: NDArray[np.bool_]
    """The usual active set among the candidates."""
    weight: float
    """`c / tau`: the belief's worth in units of cost, the weight of the proximal term."""
    tau: float
    radius: Array
    """The trust-region radius: the longest step of each output; infinite where nothing is frozen that it changes."""
    max_changes: int
    """In how many places a row's active set may differ from the usual one."""
    centres: tuple[Centre, ...]
    """One for each shared operator."""
    duals: LinearModel
    """Predicts multipliers of equalities and candidates from inputs."""
    covariance: Covariance | None = None
    """The belief's, where it is not the model's own: operators must be the same after a model was saved and loaded."""
    settings: Settings = field(default_factory=Settings)
    systems: tuple[System, ...] = ()
    """The derivatives at each centre; where there are none, they are computed when they are needed."""
    switches: tuple[Switches, ...] = ()
    """What elements that are out of service change at each centre; none where nothing can be."""
    sparse: bool = False
    """Whether operators are sparse factorisations."""
    reached: float = 1.0
    """Share of the labels, or of the unlabelled inputs that passes were timed on, that converge on shared operators."""

    # ---- what was found to be quickest; `answer.plan` makes plans of these ------------------------------

    worthwhile_passes: int = 1_000_000
    """Passes over the shared operators, counted through all of them, after which what is left of a batch is better off
    row by row; with zero, rows go there straight away. Found by what each pass took and brought."""
    auto_tries_passes: bool = True
    """Whether `auto` tries shared operators at all: it keeps only what they can show to be optimal."""
    start_from_belief: bool = True
    """Whether the row-wise solver starts a row that no shared pass was tried on from the belief, or as for a label."""
    large_barrier: bool = False
    """Whether rows that are solved many at once as for a label begin at a larger barrier parameter."""
    watched: NDArray[np.int64] | None = None
    """Inequalities that rows which are solved many at once have to know of; all of them unless said."""
    start_from_passes: bool = True
    """Whether it starts a row that shared passes were tried on from where they left it, or as for a label."""
    row_seconds: float = float("nan")
    """Processor seconds that a row of a batch is expected to take, as training has measured it; NaN if it has not."""
    solving_seconds: float = float("nan")
    """What solving such a row takes."""

    @property
    def shares(self) -> bool:
        """Whether shared operators serve at all, whatever is cheapest here: for programs without a solver."""
        return self.reached >= self.settings.worthwhile_share

    @property
    def outlook(self) -> str:
        """How hard the problem is, and whether a proxy pays, in one line; empty where nobody has measured it."""
        if not (self.row_seconds > 0.0 and self.solving_seconds > 0.0):
            return ""
        share = self.row_seconds / self.solving_seconds
        times = (
            f"about {_short(self.row_seconds)} an instance where solving takes {_short(self.solving_seconds)}"
        )
        if share > self.settings.hardly_pays:
            return (
                f"Hard: shared factorisations reach {self.reached:.0%} of such rows, the others are solved one by one; "
                f"{times}. A proxy hardly pays here: answer='solved' does as well."
            )
        kind = "Easy" if self.reached > self.settings.mostly_reached else "Partly hard"
        return f"{kind}: shared factorisations reach {self.reached:.0%} of such rows; {times}."


def _short(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size or unit == "us":
            break
    return f"{float(f'{seconds / size:.2g}'):g} {unit}"
