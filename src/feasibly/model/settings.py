"""Every number of the complementarity problem, named, with the reason or the measurement behind it.

Sizes of programs that are compiled, and how batches become narrower, belong to the layout of a machine: nothing that is
found depends on them, and they stand beside their code.
"""

from __future__ import annotations

from dataclasses import dataclass

from feasibly._codec import record


@record(
    "complementarity-settings",
    stored={
        "response_rounds": "law_rounds",
        "response_patient": "law_settles",
        "response_settles": "law_mostly",
    },
)
@dataclass(frozen=True)
class ComplementaritySettings:
    """How the active set of a row is found, where rows share a matrix."""

    soft: float = 1e-3
    """Added to the diagonal (scaled to one). The soft problem finds the active set without going round in circles even
    where constraints nearly repeat one another (on sparse operators it is the share that makes Sigma, (3s));"""
    hard: float = 1e-10
    """the hard one then gives multipliers that hold the constraints exactly."""
    patience: int = 3
    """Rounds without progress before flipping one at a time."""
    rounding: float = 1e-11
    """What is not negative beyond this share of the row's largest value is not negative."""

    # ---- batches so wide that no row should wait for another -------------------------------------------

    few: int = 8
    """Systems of most rows are as large as half the differences that any may have, in steps of this. On case57 99 % of
    the rows differ in at most four places where 16 are allowed, on case118 in 13 of 24, on case500 in 37 of 56."""
    most: int = 128
    """Rows that differ in more places do not settle: as large as a system may be that a GPU holds in registers. On
    case9241 rows differ in 57 places at most."""
    worst: float = 0.03
    """A round flips the signs that are wrong by this share of the worst: most of the others are wrong because of those.
    Flipping all of them, 41 of 512 rows of case500 are unsettled after nine rounds and as many do not fit, instead of 5
    and 2;"""
    worst_alone: float = 0.3
    """and by this share where a row has come to more differences than there is room for: on case2000 one row in sixty
    did not fit, for seven to twelve differences."""

    # ---- the first-order response ----------------------------------------------------------------------

    response_rounds: tuple[tuple[int, int], ...] = ((8, 4), (40, 40))
    """Soft and hard rounds: for all rows, and then for those that did not settle."""
    response_patient: float = 0.9
    """Share of the labels that settle in the first of those above which patience pays for the others;"""
    response_settles: float = 0.5
    """and below which the map is its linear part alone. On a congested grid patience took longer than solving."""


DEFAULT = ComplementaritySettings()
"""What is in force where nobody says otherwise."""
