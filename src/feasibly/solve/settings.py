"""Every number that decides how a row is solved, named, with the reason or the measurement behind it.

What is said here is about the method: where rows begin, how they are iterated, when they have converged, and when they
are handed on. What belongs to the layout of a machine (bytes of a cache, lanes of a vector, opcodes, the format of
files), or only keeps a division from zero, stands beside its code.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from feasibly._codec import record


@record("manner")
@dataclass(frozen=True)
class Manner:
    """How an iteration is made.

    Attributes:
        bold: a predictor that soon meets a bound says little. Unless bold, its second-order term counts by how far it
            reaches, and the point is to become more central first. Bold is quicker from a good start (500_goc: 8
            iterations, not 10) and gets stuck more often from a bad one.
        regularisation: added to the diagonal of the matrix that is factored, and refined away again. 1e-7 keeps the
            factors sound where an output has no curvature, and leaves outputs that do not matter (reactive power of
            two generators at one bus) wherever they were instead of at the centre of their range.
        stiffest: the largest `z/s` in that matrix. A larger one (prices of 1000 at the end of a solve make it 1e15)
            drowns all else that stands in the same place; refinement restores what is left out.
        refined_below: the complementarity below which a step is refined.
        short, most: so many steps in a row shorter than that mean the row is stuck.
    """

    bold: bool
    regularisation: float
    stiffest: float
    refined_below: float
    short: float
    most: int

    def settings(self, barrier: float, shift: float = 0.0) -> NDArray[np.float64]:
        """What `Newton.step` takes: `barrier` is the least complementarity to aim at; `shift` is added to the
        Hessian's diagonal, to make it curve upwards."""
        own = float(self.bold), self.regularisation, self.stiffest, self.refined_below
        return np.array([barrier, shift, *own])


_HASTY = Manner(bold=True, regularisation=1e-10, stiffest=1e30, refined_below=0.0, short=5e-2, most=2)
_LARGE = replace(_HASTY, short=1e-2, most=3)
_FINISHING = replace(_LARGE, regularisation=1e-7, stiffest=1e8, refined_below=1e-4)
_CAREFUL = Manner(bold=False, regularisation=1e-7, stiffest=1e8, refined_below=1e-4, short=1e-3, most=3)
_WARM = replace(_CAREFUL, short=5e-2)
_ELASTIC = replace(_CAREFUL, refined_below=1e-2, short=1e-5, most=8)


@record(
    "solver-settings",
    added=(
        "firmly",
        "firm_error",
        "ipopt_complementarity",
        "standing",
        "whole_step",
        "standing_change",
        "standing_apart",
    ),
)
@dataclass(frozen=True)
class SolverSettings:
    """How rows are solved on their own systems: the interior-point method, one row at a time and many, and IPOPT.

    What a caller chooses from case to case (tolerances, limits of time) is in `SolverOptions`.
    """

    # ---- scaling ---------------------------------------------------------------------------------------

    largest_gradient: float = 100.0
    """Objective and rows with larger gradients at the start are scaled down to this, as IPOPT does by default."""
    usual_multiplier: float = 100.0
    """Where multipliers are larger than this on average, errors are divided by by how much, as IPOPT does."""

    # ---- where rows begin ------------------------------------------------------------------------------

    centres: tuple[float, ...] = (3e-3, 0.3)
    """Where on the nominal input's central path rows begin: 3e-3 is best on easy grids (197_snem: 11 iterations, from
    0.3 12); on congested ones (240_pserc__api) no row gets away from there, and from 0.3 all do."""
    climb: float = 10.0
    """From one point of the path to a wider one, barriers rise by at most this factor at a time."""
    central: float = 2.0
    """A complementarity within this factor of its barrier is that of the path."""
    inside_share: float = 0.02
    """A row that is given a start begins inside of its constraints by this share of what the start is wrong by;"""
    inside_range: tuple[float, float] = (1e-6, 1e-2)
    """at least and at most by so much."""
    inside_complementarity: float = 1e-2
    """Multipliers are begun with so much of that over their slack, or more: near the end of the path."""

    # ---- an iteration ----------------------------------------------------------------------------------

    hasty: Manner = _HASTY
    """For rows that most likely are easy: the least work an iteration; hard rows get stuck at once. Steps below 5 % in
    a row are the sign: with 1 %, a row of 197_snem__sad wandered on and ended at a local optimum 3e-3 % above the
    other."""
    large: Manner = _LARGE
    """The same where there are thousands of outputs: of so many bounds one is always near, and steps are short. On
    case9241_pegase rows that were given up after six iterations, and took IPOPT twenty seconds, converge in two, in
    19."""
    finishing: Manner = _FINISHING
    """And once such a row is feasible and complementary: what is left is in its multipliers, for rounding. On
    case2869_pegase all rows stood there for thirty iterations."""
    careful: Manner = _CAREFUL
    """For the others. Without the refinement a tenth of the rows of 89_pegase and 179_goc stall at an error of 1e-7."""
    warm: Manner = _WARM
    """From a point near the answer a row goes straight there or not at all: one in six of 89_pegase's rows went on for
    40 iterations in vain."""
    elastic: Manner = _ELASTIC
    """Where constraints may be broken at a price there is an interior, so that short steps are no sign of being
    stuck."""
    large_from: int = 2500
    """With so many free outputs a problem is large."""
    dual_regularisation: float = 1e-8
    """It keeps the factorisation alive where rows depend on each other, and is too small to slow Newton's method
    down."""
    centring: float = 0.3
    """The least centring, unless bold, of a predictor that gets nowhere; less by how far it reaches."""
    furthest: float = 0.995
    """A step goes this share of the way to where a slack or a multiplier would be zero, more near the end."""
    shifts: tuple[float, float, float] = (1e-4, 8.0, 1e8)
    """The first shift of a Hessian that does not curve upwards, what it is multiplied by until it does, and the
    last."""

    # ---- when a row has converged, or is stuck -----------------------------------------------------------

    least_barrier: float = 1e-9
    """The barrier parameter, in scaled units, that iterations end at, or less: what all constraints together hold the
    cost up by is to be no more than the share of it below."""
    share_held_up: float = 2e-9
    """197_snem__sad has 1,500 constraints and a cost of five in scaled units: with the barrier alone its labels were
    3e-7 above IPOPT's, and up to 2e-5 where multipliers are large, which loosens the test of the errors."""
    smallest_barrier: float = 1e-13
    """However small the cost: below this, rounding decides."""
    nearly: float = 1e-5
    """Below this error the next iterate should pass, so it is checked before it is worked on."""
    most_iterations: int = 40
    """Of each attempt: rows that converge take a dozen."""
    runaway: float = 1e12
    """An error or a complementarity above this has no way back."""

    # ---- is there a feasible point at all ----------------------------------------------------------------

    pull: float = 1e-6
    """Weight of staying near the first guess: it makes the least infeasible point unique and hardly moves it."""
    clearly: float = 1e-4
    """A sum of broken constraints, in scaled units and less what the barrier holds it up by, above this is
    infeasibility and not round-off."""
    search_tolerance: float = 1e-5
    """Of the search for the least infeasible point: it only has to tell which side of that it is on."""
    search_iterations: int = 60
    """At most, of that search; it begins further away than rows do."""
    elastic_inside: float = 0.1
    """How far inside it begins, one row at a time and in lanes;"""
    elastic_price: float = 0.5
    """and with which multipliers of constraints that it may break: half of what breaking one costs, which is fair to
    both sides."""

    # ---- attempts, one after the other -------------------------------------------------------------------

    enough: int = 2
    """So many attempts that end infeasible settle the matter."""
    far: float = 1e-3
    """A warm attempt that ends with a larger violation (scaled) most likely belongs to a row without a solution."""
    raised: float = 0.25
    """Share of the way from the first guess to its upper bound that IPOPT begins at once more: a grid whose voltages
    may be anything falls to nothing from below its operating point, and does not from above."""
    ipopt_iterations: int = 100
    """IPOPT's from a given point: a good start shows itself early."""
    ipopt_barrier: float = 1e-4
    """IPOPT's first barrier from there."""
    ipopt_push: float = 1e-4
    """How far IPOPT moves that point away from bounds: a tenth of its own, so that it stays the start it was."""
    ipopt_other_push: float = 0.1
    """The same for its last attempt, by another road: ten times its own, so that it begins elsewhere."""
    ipopt_margin: float = 0.1
    """IPOPT's tolerance of constraints, as a share of what is asked for."""
    ipopt_complementarity: float = 1e-11
    """The least complementarity that is asked of IPOPT where its own would hold the cost up by more than the share
    above. A portfolio of 50 assets is worth 0.06: IPOPT left it 4e-7 above the optimum, and takes two iterations more
    not to."""

    # ---- many rows at once -------------------------------------------------------------------------------

    most_free: int = 80_000
    """Free outputs up to which rows are solved many at once."""
    ready_seconds: float = 1e-5
    """What making ready for that takes, for every operation of the derivatives: 0.7 s on 118 buses."""
    soon_seconds: float = 1.5
    """What is ready within so many seconds need not pay first."""
    cold: float = 3.0
    """The nominal input, solved from nowhere, takes about so many times as long as a row."""
    close: float = 1e-5
    """A row whose errors are all below this has twice as many iterations as another: at the edge of feasibility, where
    constraints' gradients hardly differ, errors halve in every step (one row in 800 of case57_ieee)."""
    acceptable: float = 2.0
    """A row whose iterations are all used up and whose errors are below so many times their tolerance stands. At such
    an edge cost moves as the root of what constraints are broken by: with ten, one of 1000 outages of case57_ieee was
    1.5e-3 % above IPOPT."""
    settled: int = 4
    """A row whose constraints and complementarity hold, and whose stationarity has been below the next one in so many
    iterations, has as much of it as rounding allows:"""
    settled_error: float = 1e-6
    """on 89_pegase, with multipliers of 8,000, that is 1e-7 for one row in ten, and IPOPT ends there too."""
    standing: int = 5
    """So many whole steps in a row that leave what constraints are off by as it was: there is nothing less infeasible
    near."""
    whole_step: float = 0.9
    """A step so long is a whole one there."""
    standing_change: float = 1e-2
    """What it is off by may change by that share of it."""
    standing_apart: float = 0.1
    """And what two ways end with may differ by that share."""
    flat: float = 1e-5
    """Curvature that may be missing, in scaled units: gradients are at most 100 there."""
    lane_shifts: tuple[float, float, float] = (1e-6, 10.0, 1e8)
    """As `shifts`, in lanes, where nobody waits for a shift to be found: the next iteration tries a larger one."""
    ease: float = 3.0
    """What that shift is divided by afterwards. Without, a quarter of 162_ieee_dtc's rows under correlated loads
    wandered about."""
    price: float = 100.0
    """What breaking a constraint costs, in largest multipliers of the nominal solution: with 30, one row in eleven of
    case24_ieee_rts__api broke some for its cost; more takes more iterations (240_pserc__api: 36 with 30, 48 with
    100)."""
    dearer: float = 100.0
    """So many times that for rows that broke constraints for their cost though some point breaks none."""
    elastic_barrier: float = 1e-8
    """As `least_barrier`, where constraints may be broken: such a row is finished without that."""
    elastic_tolerances: tuple[float, float, float] = (1e-6, 2e-5, 1e-7)
    """Of stationarity, feasibility and complementarity. The objective counts little or nothing: outputs that do not
    matter move by rounding errors over almost no curvature, and constraints follow them. Finishing takes care of
    that."""
    elastic_iterations: int = 100
    """At most."""
    elastic_settled: int = 6
    """A row that satisfies the other two for so many iterations has as much of the second as it will have;"""
    firmly: float = 1e-7
    """A constraint that is broken by no more than this, in scaled units, where an elastic row has been followed to the
    optimum, is not broken."""
    firm_error: float = 10.0
    """Errors of such a row, as multiples of its barrier, that are as good as none."""
    clearer: float = 2.0
    """what is broken has to be so many times what all constraints are off by then."""

    # ---- how a solution moves with the input -------------------------------------------------------------

    slack_floor: float = 1e-12
    """Less room than this is none."""
    sensitivity_regularisation: float = 1e-10
    """Of rows that hold with equality, so that those that depend on each other leave the system regular."""
    condensed_directions: int = 16
    """Directions up to which the interior-point method's own matrix pays; for more the factorisation of the whole
    system is shared by many and hardly matters."""
    condensed_solves: int = 2
    """On that matrix: with one, what moves is off by 2e-5 on 118 buses, with two by nothing more than with four."""
    condensed_stiffest: float = 1e8
    """The largest `z/s` in it, as in `careful`."""
    condensed_regularisation: float = 1e-9
    """On its diagonal; the second solve takes it out."""
    condensed_sound: float = 1e-7
    """What may be left of the equations, relative to what stands in them."""


DEFAULT = SolverSettings()
"""What is in force where nobody says otherwise."""
