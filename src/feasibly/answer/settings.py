"""Every number of the method, named, with the reason or the measurement behind it; saved with a model.

`Settings` is the one record: how rows are iterated on shared operators and, in `solver`, how rows that none serves are
solved on their own. What belongs to the layout of a machine (sizes of programs that are compiled, shares of its memory,
bytes that travel at a time), or only keeps a division from zero, stands beside its code.
"""

from __future__ import annotations

from dataclasses import dataclass

from feasibly._codec import record
from feasibly.solve.settings import DEFAULT, SolverSettings


@record("settings", retired=("unusual",), added=("solver",))
@dataclass(frozen=True)
class Settings:
    """How rows are iterated, when they count as converged, and when they are handed on."""

    solver: SolverSettings = DEFAULT
    """The numbers of the row-wise solver."""

    # ---- when a row has converged ----------------------------------------------------------------------

    equality_tolerance: float = 1e-7
    """Largest |equality| of a converged row. Steps contract tenfold or better, so that the point returned, one step
    later, is at 1e-8 on the grids measured."""
    inequality_tolerance: float = 5e-7
    """Largest violation of a watched inequality or bound of a converged row."""
    feasibility_tolerance: float = 1e-6
    """Largest violation of any constraint, watched or not, in the problem's own units."""
    change_tolerance: float = 1e-9
    """In optimal mode: the last step changed the cost by less than this share of it."""
    remaining_tolerance: float = 1e-8
    """In optimal mode: what all further steps would change the cost by, as a share, extrapolated from the last two
    changes. A slow iteration changes little in each step and much in all of them."""

    probe_steps: int = 3
    """Steps in optimal mode that show whether a feasible answer can gain anything."""
    probe_tolerance: float = 1e-7
    """An answer that these steps, and all that would follow, change by less than this share of its cost is optimal for
    `auto`: 1e-5 per cent. On case500 conditioned answers gain 4e-9."""
    probe_contraction: float = 0.99
    """What would follow is extrapolated from the last two changes of the cost, and no further than from this rate:
    changes of 1e-10, from equalities that are still settling, say nothing about it. Were the rate 0.999, the gap would
    still be below 1e-4 per cent."""

    settling_passes: int = 2
    """Passes of two steps in optimal mode for feasible rows that the probe has not confirmed. They settle all of them
    on case30_as (one row in twenty) and none on case24_ieee_rts, where more would not either."""

    # ---- the operator ----------------------------------------------------------------------------------

    belief_floor: float = 1e-5
    """Standard deviation (natural units) below which the belief is not trusted to be stiffer."""
    curvature_floor: float = 1e-8
    """Eigenvalues of the reduced Hessian below this share of the largest are raised to it: a metric must be convex.
    1e-6 instead doubled the iterations on a congested grid."""
    large: int = 1000
    """More free variables than this: the equalities are factored as a sparse matrix and products are in single
    precision, which is all that is kept of them."""
    sparse_share: float = 0.05
    """Largest share of nonzeros of a Jacobian that is factored as a sparse one."""
    sparse_error: float = 1e-7
    """How well a sparse factorisation must satisfy the equations it stands for."""
    sparse_from: int = 2500
    """With so many free variables or more, operators are sparse factorisations."""
    trust_deviations: float = 3.0
    """The longest step of a variable, in standard deviations among the labels: as far as frozen derivatives reach."""
    trust_floor: float = 1e-2
    """Added to that, so that a variable that never moved among the labels can."""

    trust_far: float = 0.3
    """The longest step where one label alone is known, and nothing of how far variables move."""

    # ---- the complementarity problem -------------------------------------------------------------------

    quick_rounds: tuple[int, int] = (4, 2)
    """Soft and hard rounds of the first steps: the next step goes on from where they end, and the last row of a batch
    to settle holds up all others. With these alone 27 of 1000 rows of case57 went round in circles for ever."""
    thorough_rounds: tuple[int, int] = (8, 4)
    """From the fifth step on; then 6 of 1000 do."""
    patient_rounds: tuple[int, int] = (40, 40)
    """For the last ones: ten of 688 rows of case500 needed so many."""
    switched_rounds: tuple[int, int] = (12, 6)
    """The same where elements may be out of service: rows whose active set that changes in many places are many, and
    quicker to solve. With case118's patient rounds five outages in six took twice as long."""

    # ---- passes ----------------------------------------------------------------------------------------

    first_steps: int = 4
    """Steps of the first pass over all rows: 59 % of case118's rows have converged then."""
    last_steps: int = 16
    """Steps of the last pass, over the few rows that are left."""
    sparse_last_steps: int = 64
    """The same where operators are sparse and solving a row takes a thousand steps' time: one row in four of
    case2869_pegase was still at 1e-6 after sixteen, halving that in each."""
    few_rows: int = 16
    """For so few rows, a program of the smallest width, a call costs more than the steps that rows at rest sit out: two
    long passes instead of many short ones (16 rows of case118: 13 ms instead of 19)."""
    hopeless: tuple[float, float] = (1e7, 2e6)
    """A row whose largest violation is still so many times its tolerance after the first pass, or after a later one, is
    handed on: of the rows that converge, hardly one is. Rows without a solution are, and each of them takes longer
    than ten others."""
    patient_passes: int = 4
    """Before so many passes are over, the rate of contraction says little: active sets still change."""
    most_steps_ahead: float = 60.0
    """A row whose rate of contraction promises convergence no sooner than this is handed on. With 24, fourteen of 400
    rows of case57 were, with 60 two, and the batch took a quarter less time."""
    few_hopeless: int = 4
    """As many rows as this go through all passes whatever their rate: handing them on saves nothing."""
    far_belief: float = 4.0
    """A belief off by more than this (mean over outputs of squared deviations, in standard units) is not followed: the
    row goes on in optimal mode. With one label of case118 rows between 5 and 22 were feasible, at rest, and 0.02 %
    above their optimum."""
    confirmed_distance: float = 0.7
    """`auto` confirms no row whose belief was further off than this: where the belief is sure of itself and wrong, a
    few steps in its own metric show nothing. Usual rows are below 0.5; of those between one and four, with one label of
    case118, two in a hundred were 5e-4 and 2e-3 % above."""

    # ---- calibration -----------------------------------------------------------------------------------

    candidate_reach: float = 2.0
    """A constraint within so many standard deviations of its own slack of some label is watched. Among 128 of 512
    labels of case57, 118 and 500, 3 watches a quarter more constraints and misses no fewer."""
    sparse_reach: float = 4.0
    """The same where operators are sparse: labels are few there, and a watched constraint costs next to nothing. Bounds
    are all watched: two in sixteen of case2869_pegase's rows broke one that no label was near."""
    prices_of_belief: tuple[float, ...] = (1e10, 1e9, 1e7)
    """tau, the likeliest first: how much a unit of relative cost outweighs the belief. Larger ones gain cost and take
    more steps: 1e10 leaves 2e-5 % in 5.7 steps on case57, 1e12 9e-8 % in 7.6."""
    switched_price: float = 1e6
    """A further tau where elements may be out of service: with costs and ratings that vary on top, 79 % of case57's
    rows converge with it (60 % with 1e7, 36 % with 1e10), 7e-7 % above the optimum in the median."""
    switched_margin: float = 0.1
    """By how large a share of the labels more have to converge with it: without costs that vary it brings none, and the
    mean gap of case57 rises from 9e-7 to 6e-5 %."""
    most_operators: int = 6
    """At most so many shared operators."""
    worthwhile_operator: float = 0.02
    """A further shared operator must reach this share of all labels, else the rows are left to the row-wise solver."""
    worthwhile_share: float = 0.25
    """Where nobody knows what solving takes, and shared operators reach fewer of the labels than this, rows go straight
    to the row-wise solver."""
    warm_share: float = 0.7
    """What solving a row from where shared steps have left it takes, as a share of solving it for a label: where that
    is not measured."""
    warm_gain: float = 0.85
    """Rows start from the belief where that, with what believing takes, is less than this share of starting from
    nowhere: its multipliers have to be predicted too."""
    shared_gain: float = 0.8
    """Shared passes are made where they take less than this share of going straight to the row-wise solver: they are
    timed on many rows, and few rows share what a call costs. 40 rows of case73_ieee_rts took 0.21 of solving with
    them and 0.12 without."""
    timed_rows: int = 256
    """Labels that passes are timed on."""
    timed_solves: tuple[int, int] = (8, 24)
    """At least and at most so many rows the row-wise solver is timed on, and within that"""
    timed_together: tuple[int, int] = (32, 64)
    """The same where rows are solved many at once, and within"""
    timed_seconds: float = 2.0
    """so many seconds' worth."""
    local_optimum: float = 1e-6
    """A cost that is higher by more than this share belongs to another local optimum."""
    timed_outputs: int = 3000
    """Where there are more outputs than this, building a solver takes too long for it to be timed."""
    based_rows: int = 16
    """Labels that tell a large problem's usual active set."""
    trial_rows: int = 128
    """Labels that tau is chosen on."""
