"""Every number that decides how a row is solved, named, with the reason or the measurement behind it.

What is said here is about the method: where rows start, how they are iterated, when they have converged, and when they
are handed on. What belongs to the layout of a processor (bytes of a cache, lanes of a vector, opcodes, the format of
files), or only keeps a division from zero, stands beside its code.

Letters are those of the optimality conditions in `_newton`: `y` outputs, `s` slacks, `z` their multipliers, `mu` the
mean of `s z`. "Scaled units" are those of `NlpModel`: objective and constraints over their gradients at the start.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from feasibly._codec import record


@record(
    "manner",
    stored={
        "full_corrector": "bold",
        "largest_ratio": "stiffest",
        "refine_below": "refined_below",
        "short_step": "short",
        "most_short_steps": "most",
    },
)
@dataclass(frozen=True)
class StepSettings:
    """How one iteration's step is computed, and after how many short ones a row has stalled.

    Attributes:
        full_corrector: take Mehrotra's corrector as it is. Otherwise its second-order term is weighted by the square of
            the predictor's step, and the shorter that is the more the step is centred. Full ones are quicker from a
            good start (500_goc: 8 iterations, not 10) and stall more often from a bad one.
        regularisation: added to the Hessian's diagonal in the matrix that is factored; refinement takes it out again.
            1e-7 keeps the factors sound where an output has no curvature, and leaves outputs that do not matter
            (reactive power of two generators at one bus) wherever they were instead of at the centre of their range.
        largest_ratio: the largest `z/s` in that matrix. A larger one (prices of 1000 at the end of a solve make it
            1e15) drowns all else that is added to the same entry; refinement restores what is left out.
        refine_below: the `mu` below which a step gets one iterative refinement.
        short_step, most_short_steps: so many steps in a row shorter than that mean the row has stalled.
    """

    full_corrector: bool
    regularisation: float
    largest_ratio: float
    refine_below: float
    short_step: float
    most_short_steps: int

    def parameters(self, barrier: float, shift: float = 0.0) -> NDArray[np.float64]:
        """What `Newton.step` takes: `barrier` is the least `mu` to aim at; `shift` is added to the Hessian's diagonal
        to correct its inertia."""
        own = float(self.full_corrector), self.regularisation, self.largest_ratio, self.refine_below
        return np.array([barrier, shift, *own])


_FAST = StepSettings(
    full_corrector=True,
    regularisation=1e-10,
    largest_ratio=1e30,
    refine_below=0.0,
    short_step=5e-2,
    most_short_steps=2,
)
_FAST_LARGE = replace(_FAST, short_step=1e-2, most_short_steps=3)
_FINAL_LARGE = replace(_FAST_LARGE, regularisation=1e-7, largest_ratio=1e8, refine_below=1e-4)
_SAFEGUARDED = StepSettings(
    full_corrector=False,
    regularisation=1e-7,
    largest_ratio=1e8,
    refine_below=1e-4,
    short_step=1e-3,
    most_short_steps=3,
)
_WARM_START = replace(_SAFEGUARDED, short_step=5e-2)
_ELASTIC = replace(_SAFEGUARDED, refine_below=1e-2, short_step=1e-5, most_short_steps=8)


@record(
    "solver-settings",
    retired=("condensed_directions", "condensed_solves"),
    added=(
        "refinement_solves",
        "refinement_failure",
        "elastic_zero",
        "elastic_error_factor",
        "ipopt_complementarity",
        "infeasible_steps",
        "full_step",
        "violation_change",
        "violation_apart",
        "infeasible_cold_attempts",
        "extended_iterations",
        "refinement_enough",
        "refinement_correction",
        "crossover_rounds",
        "crossover_residual",
        "crossover_sign",
        "crossover_step",
        "crossover_shrink",
        "slowest_refinement",
    ),
    stored={
        "start_barriers": "centres",
        "barrier_increase": "climb",
        "centrality": "central",
        "push_share": "inside_share",
        "push_range": "inside_range",
        "push_complementarity": "inside_complementarity",
        "fast": "hasty",
        "fast_large": "large",
        "final_large": "finishing",
        "safeguarded": "careful",
        "warm_start": "warm",
        "least_centring": "centring",
        "boundary_fraction": "furthest",
        "hessian_shifts": "shifts",
        "final_barrier": "least_barrier",
        "relative_gap": "share_held_up",
        "check_below": "nearly",
        "divergence": "runaway",
        "proximal_weight": "pull",
        "infeasible_above": "clearly",
        "elastic_push": "elastic_inside",
        "elastic_multiplier": "elastic_price",
        "infeasible_attempts": "enough",
        "far_from_feasible": "far",
        "raised_start": "raised",
        "extend_below": "close",
        "acceptable_factor": "acceptable",
        "rounding_iterations": "settled",
        "rounding_error": "settled_error",
        "infeasible_steps": "standing",
        "full_step": "whole_step",
        "violation_change": "standing_change",
        "violation_apart": "standing_apart",
        "flat_curvature": "flat",
        "lane_hessian_shifts": "lane_shifts",
        "shift_decrease": "ease",
        "penalty": "price",
        "penalty_increase": "dearer",
        "elastic_rounding_iterations": "elastic_settled",
        "elastic_zero": "firmly",
        "elastic_error_factor": "firm_error",
        "infeasible_margin": "clearer",
        "condensed_largest_ratio": "condensed_stiffest",
        "condensed_residual": "condensed_sound",
    },
)
@dataclass(frozen=True)
class SolverSettings:
    """How rows are solved on their own systems: the interior-point method, one row at a time and many, and IPOPT.

    What a caller chooses from case to case (tolerances, limits of time) is in `SolverOptions`.
    """

    # ---- scaling ---------------------------------------------------------------------------------------

    largest_gradient: float = 100.0
    """Objective and constraints with larger gradients at the start are scaled down to this, as IPOPT does by
    default."""
    usual_multiplier: float = 100.0
    """Where multipliers are larger than this on average, errors are divided by the excess, as IPOPT does."""

    # ---- where rows start ------------------------------------------------------------------------------

    start_barriers: tuple[float, ...] = (3e-3, 3.0, 30.0)
    """Rows start at the points of the nominal input's central path with these barrier parameters: *near* its end,
    *wide* and *wider*. 3e-3 is best on easy grids (197_snem: 11 iterations, from 0.3 12); on congested ones no row gets
    away from there. From 3 rows of 240_pserc__api (correlated) take 23 iterations, from 0.3 more than 100, and those of
    eight other grids as many. From 30 rows are solved once more that were led to a minimum by shifts."""
    barrier_increase: float = 10.0
    """From one point of the path to one with a larger barrier parameter, that rises by at most this factor at a
    time."""
    centrality: float = 2.0
    """A `mu` within this factor of the barrier parameter is that of the path."""
    push_share: float = 0.02
    """A row that is given a start is pushed inside of its constraints by this share of what the start violates;"""
    push_range: tuple[float, float] = (1e-6, 1e-2)
    """at least and at most by so much."""
    push_complementarity: float = 1e-2
    """Multipliers start at so much of that over their slack, or more: near the end of the path."""

    # ---- an iteration ----------------------------------------------------------------------------------

    fast: StepSettings = _FAST
    """For rows that most likely are easy: the least work an iteration; hard rows stall at once. Steps below 5 % in a
    row are the sign: with 1 %, one of 197_snem__sad wandered on and ended at a local optimum 3e-3 % above the other."""
    fast_large: StepSettings = _FAST_LARGE
    """The same where there are thousands of outputs: of so many bounds one is always near, and steps are short. On
    case9241_pegase rows that were given up after six iterations, and took IPOPT twenty seconds, converge in two, in
    19."""
    final_large: StepSettings = _FINAL_LARGE
    """And once such a row is feasible and complementary: what is left is in its multipliers, for rounding. On
    case2869_pegase all rows stayed there for thirty iterations."""
    safeguarded: StepSettings = _SAFEGUARDED
    """For the others. Without the refinement a tenth of the rows of 89_pegase and 179_goc stall at an error of 1e-7."""
    warm_start: StepSettings = _WARM_START
    """From a point near the answer a row goes straight there or not at all: one in six of 89_pegase's rows went on for
    40 iterations in vain."""
    elastic: StepSettings = _ELASTIC
    """In elastic mode there is an interior, so that short steps are no sign of having stalled."""
    large_from: int = 2500
    """With so many free outputs a problem is large."""
    dual_regularisation: float = 1e-8
    """In the matrix's lower corner: it keeps the factorisation alive where constraints depend on each other, and is too
    small to slow Newton's method down."""
    least_centring: float = 0.3
    """The least centring parameter of a safeguarded step whose predictor gets nowhere; less by how far it gets."""
    boundary_fraction: float = 0.995
    """A step goes this fraction of the way to where a slack or a multiplier would be zero, more near the end."""
    hessian_shifts: tuple[float, float, float] = (1e-4, 8.0, 1e8)
    """Inertia correction: the first shift of the Hessian, what it is multiplied by until the inertia is right, and the
    last."""

    # ---- when a row has converged, or stalled ------------------------------------------------------------

    final_barrier: float = 1e-9
    """The barrier parameter, in scaled units, that iterations end at, or less: the duality gap `s'z` is to be no more
    than the share of the cost below."""
    relative_gap: float = 2e-9
    """197_snem__sad has 1,500 constraints and a cost of five in scaled units: with the barrier alone its labels were
    3e-7 above IPOPT's, and up to 2e-5 where multipliers are large, which loosens the test of the errors. What residuals
    of the constraints cost is held to the same: of 57_ieee one row in 200 was 5e-8 above for a residual of 1e-9."""
    smallest_barrier: float = 1e-13
    """However small the cost: below this, rounding decides."""
    check_below: float = 1e-5
    """Below this error the next iterate should pass, so it is checked before it is worked on."""
    most_iterations: int = 40
    """Of each attempt: rows that converge take a dozen."""
    divergence: float = 1e12
    """An error or a complementarity above this means that the iterates diverge."""

    # ---- is there a feasible point at all ----------------------------------------------------------------

    proximal_weight: float = 1e-6
    """Of the proximal term towards the first guess: it makes the least infeasible point unique and hardly moves it."""
    infeasible_above: float = 1e-4
    """A sum of violations, in scaled units and less the duality gap, above this is infeasibility and not round-off."""
    search_tolerance: float = 1e-5
    """Of the search for the least infeasible point: it only has to tell which side of that it is on."""
    search_iterations: int = 60
    """At most, of that search; it starts further away than rows do."""
    elastic_push: float = 0.1
    """How far inside it starts, one row at a time and in lanes;"""
    elastic_multiplier: float = 0.5
    """and with which multipliers of constraints that it may violate: half of their l1 penalty, as far from either
    end."""

    # ---- attempts, one after the other -------------------------------------------------------------------

    infeasible_attempts: int = 2
    """So many attempts that end infeasible show that a row has no solution;"""
    infeasible_cold_attempts: int = 3
    """so many where the nominal input has none either, and all of them are cold starts."""
    far_from_feasible: float = 1e-3
    """A warm start that ends with a larger violation (scaled) most likely belongs to a row without a solution."""
    raised_start: float = 0.25
    """Share of the way from the first guess to its upper bound that IPOPT starts at once more: a grid whose voltages
    may be anything falls to nothing from below its operating point, and does not from above."""
    ipopt_iterations: int = 100
    """IPOPT's from a given point: a good start shows itself early."""
    ipopt_barrier: float = 1e-4
    """IPOPT's first barrier parameter from there."""
    ipopt_push: float = 1e-4
    """How far IPOPT moves that point away from bounds: a tenth of its own, so that it stays the start it was."""
    ipopt_other_push: float = 0.1
    """The same for its last attempt, with other options: ten times its own, so that it starts elsewhere."""
    ipopt_margin: float = 0.1
    """IPOPT's tolerance of constraints, as a share of what is asked for."""
    ipopt_complementarity: float = 1e-11
    """The least complementarity that is asked of IPOPT where its own would leave a larger gap than the share above. A
    portfolio of 50 assets is worth 0.06: IPOPT left it 4e-7 above the optimum, and takes two iterations more not to."""

    # ---- many rows at once: lanes ------------------------------------------------------------------------

    most_free: int = 80_000
    """Free outputs up to which rows are solved many at once."""
    ready_seconds: float = 1e-5
    """What making ready for that takes, for every operation of the derivatives: 0.7 s on 118 buses."""
    soon_seconds: float = 1.5
    """What is ready within so many seconds need not pay first."""
    cold: float = 3.0
    """The nominal input, solved from a cold start, takes about so many times as long as a row."""
    extend_below: float = 1e-5
    """A row whose errors are all below this has more iterations than another: at the edge of feasibility, where
    constraints' gradients hardly differ, errors halve in every step (one row in 800 of case57_ieee);"""
    extended_iterations: float = 2.0
    """so many times as many."""
    acceptable_factor: float = 2.0
    """A row whose iterations are all used up and whose errors are below so many times their tolerance has converged. At
    such an edge cost moves as the root of the violation: with ten, one of 1000 outages of case57_ieee was 1.5e-3 %
    above IPOPT."""
    rounding_iterations: int = 4
    """A row whose constraints and complementarity hold, and whose stationarity has been below the next one in so many
    iterations, has as much of it as rounding allows:"""
    rounding_error: float = 1e-6
    """on 89_pegase, with multipliers of 8,000, that is 1e-7 for one row in ten, and IPOPT ends there too."""
    infeasible_steps: int = 5
    """So many full steps in a row that leave the violation as it was end at an infeasible stationary point."""
    full_step: float = 0.9
    """A step so long is a full one there."""
    violation_change: float = 1e-2
    """The violation may change by that share of it."""
    violation_apart: float = 0.1
    """And what two attempts from different starts end with may differ by that share."""
    flat_curvature: float = 1e-5
    """Curvature that may be missing, in scaled units: gradients are at most 100 there."""
    lane_hessian_shifts: tuple[float, float, float] = (1e-6, 10.0, 1e8)
    """As `hessian_shifts`, in lanes, where nobody waits for a shift to be found: the next iteration tries a larger
    one."""
    shift_decrease: float = 3.0
    """What that shift is divided by afterwards. Without, a quarter of 162_ieee_dtc's rows under correlated loads
    wandered about."""
    penalty: float = 100.0
    """The l1 penalty of elastic mode, in largest multipliers of the nominal solution: with 30, one row in eleven of
    case24_ieee_rts__api violated constraints for its cost; more takes more iterations (240_pserc__api: 36 with 30, 48
    with 100)."""
    penalty_increase: float = 100.0
    """So many times that for rows that violated constraints for their cost though some point violates none."""
    elastic_barrier: float = 1e-8
    """As `final_barrier`, in elastic mode: such a row is finished without it."""
    elastic_tolerances: tuple[float, float, float] = (1e-6, 2e-5, 1e-7)
    """Of stationarity, feasibility and complementarity. The objective counts little or nothing: outputs that do not
    matter move by rounding errors over almost no curvature, and constraints follow them. The attempt that finishes the
    row takes care of that."""
    elastic_iterations: int = 200
    """At most. With 100 a tenth of the rows of 179_goc__api without a solution was left to IPOPT; on 4619_goc__api,
    where that takes minutes and settles none, searches take up to 183."""
    elastic_rounding_iterations: int = 6
    """A row that satisfies the other two for so many iterations has as much of the second as it will have: the
    violation that it is left with has to be larger than all constraints are off by then,"""
    infeasible_margin: float = 2.0
    """so many times."""
    elastic_zero: float = 1e-7
    """A violation of no more than this, in scaled units, where an elastic row has been followed to the optimum, is
    none."""
    elastic_error_factor: float = 10.0
    """Errors of such a row, as multiples of its barrier parameter, that are as good as none."""

    # ---- how a solution moves with the input -------------------------------------------------------------

    slack_floor: float = 1e-12
    """Less slack than this is none."""
    sensitivity_regularisation: float = 1e-10
    """Of constraints that hold with equality, so that those that depend on each other leave the system regular."""
    refinement_solves: int = 40
    """On that matrix, at most: each takes out what ratios that are bounded, and what is added to the diagonals, leave.
    Two are enough on most grids; with ten a sixth of the rows of 197_snem and 89_pegase__api were left to one at a
    time, with twenty a fiftieth, but of 300_ieee__api still a sixth, with forty one."""
    refinement_enough: float = 1e-8
    """Where further solves would change no more than that share, extrapolated from the last two, they end,"""
    refinement_correction: float = 1e-6
    """and where they would change more than that, it is not sound: many rows at once leave it to one at a time,"""
    refinement_failure: float = 1e-4
    """which finds no derivative where that is still so much: the system is singular."""
    slowest_refinement: float = 0.999
    """The slowest contraction of solves that is extrapolated."""
    condensed_largest_ratio: float = 1e8
    """The largest `z/s` in it, as in `safeguarded`."""
    condensed_regularisation: float = 1e-9
    """On its diagonal; refinement takes it out."""
    condensed_residual: float = 1e-7
    """What may be left of the equations, relative to their terms."""
    crossover_rounds: int = 6
    """Of Newton's method from an answer to the optimum of its active set, at most: one or two where that is the right
    one."""
    crossover_residual: float = 1e-11
    """What may be left of the optimality conditions there, relative to the largest multiplier or one."""
    crossover_sign: float = 1e-9
    """How far a multiplier, or a slack, may be on the wrong side: it is as good as zero, or rounding."""
    crossover_step: float = 1e-7
    """A step that moves no output further is the last: residuals are small up to 1e-3 from the optimum of 179_goc;"""
    crossover_shrink: float = 0.5
    """and so is one that is no shorter than this share of the one before: what is left is rounding."""

    @property
    def wide_barrier(self) -> float:
        """That of the wide central point."""
        return self.start_barriers[:2][-1]


DEFAULT = SolverSettings()
"""What is in force where nobody says otherwise."""
