"""Every number of the method, named, with the reason or the measurement behind it; saved with a model.

`Settings` is the one record: how rows are iterated on shared operators, in `complementarity` how active sets are found,
and in `solver` how rows that no shared operator serves are solved on their own. What belongs to the layout of a machine
(sizes of programs that are compiled, shares of its memory, bytes that travel at a time), or only guards against
rounding (a ridge, what keeps a division from zero, how often something is scaled or orthogonalised), stands beside its
code.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from feasibly._codec import record
from feasibly.model.settings import ComplementaritySettings
from feasibly.solve.settings import SolverSettings

METHOD_VERSION = 5
"""Of the method as code, where these numbers do not tell: it rises when answers, or which of them `auto` keeps, change
by more than rounding. What was certified of earlier answers is not true of later ones."""


@record(
    "settings",
    retired=(
        "unusual", "probe_steps", "probe_tolerance", "probe_contraction", "settling_steps", "settling_passes",
        "confirmed_distance", "sparse_settled", "sparse_furthest", "sparse_last_steps",
    ),
    added=(
        "solver", "complementarity", "slowest_contraction", "multiplier_stationarity",
        "multiplier_feasibility", "multiplier_steps", "multiplier_hopeless", "rank_tolerance", "unchanged",
        "sparse_regularisation", "sparse_shifts", "sparse_columns", "sparse_rounding", "sparse_looks",
        "later_steps", "optimal_steps", "patient_steps", "found_steps", "few_steps", "device_steps",
        "device_draws", "program_steps", "program_settling", "program_settled", "active_multiplier",
        "derivative_damping", "touching",
        "active_spread", "active_share", "typical_share", "usually", "active_room", "good_price", "sparse_good_share",
        "timed_patience", "hardly_pays", "mostly_reached", "enough_labels", "unsure", "first_touching", "first_reach",
        "nearby_passes", "watched_reach", "watched_labels", "wide_gain", "proximal_change_tolerance",
        "proximal_loop_exit", "proximal_remaining_tolerance", "accelerated_from", "acceleration_depth", "sparse_steps",
        "settled_step", "sparse_sound", "optimal_loop_exit_share", "multiplier_complementarity",
        "stationarity_tolerance", "stationarity_floor", "approach_steps", "least_curvature", "spread_regularisation",
        "changes_room", "linear_tolerance", "calibration_share", "tau_share",
    ),
    stored={
        "active_multiplier": "presses", "taus": "prices_of_belief", "derivative_damping": "corner",
        "active_room": "pressing_room",
        "proximal_change_tolerance": "settled_change",
        "proximal_remaining_tolerance": "settled_remaining",
        "proximal_loop_exit": "settling_change",
        "optimal_loop_exit_share": "cost_tolerance_share",
    },
)  # fmt: skip
@dataclass(frozen=True)
class Settings:
    """How rows are iterated, when they count as converged, and when they are handed on."""

    solver: SolverSettings = field(default_factory=SolverSettings)
    """The numbers of the row-wise solver."""
    complementarity: ComplementaritySettings = field(default_factory=ComplementaritySettings)
    """The numbers by which active sets are found."""

    # ---- when a row has converged ----------------------------------------------------------------------

    equality_tolerance: float = 1e-7
    """Largest |equality| of a converged row. Steps contract tenfold or better, so that on sparse operators the point
    returned, one step later, is at 1e-8 on the grids measured; on dense ones it is the point looked at."""
    inequality_tolerance: float = 5e-7
    """Largest violation of a candidate of a converged row."""
    feasibility_tolerance: float = 1e-6
    """Largest violation of any constraint, candidate or not, in the problem's own units."""
    change_tolerance: float = 1e-9
    """In optimal mode: the last step changed the cost by less than this share of it."""
    remaining_tolerance: float = 1e-8
    """In optimal mode: what all further steps would change the cost by, as a share, extrapolated from the last two
    changes. A slow iteration changes little in each step and much in all of them."""

    stationarity_tolerance: float = 1e-3
    """In optimal mode: the largest entry of the Lagrangian's gradient over the largest multiplier, where the last step
    began; a step contracts it tenfold or better."""
    stationarity_floor: float = 1e-6
    """Or over this share of the cost: where the true multipliers are zero those of the iteration vanish with the
    gradient, and their ratio says nothing."""
    optimal_loop_exit_share: float = 0.1
    """The loop over a batch ends when every cost changed by less than this share of that: what is looked at afterwards
    is one step later."""
    proximal_change_tolerance: float = 1e-6
    """With the proximal term: the last step changed the cost by less than this share of it. Where constraints are
    linear a row satisfies them long before its cost has settled: a portfolio with a smooth limit on turnover was 3.5 %
    above its optimum in the mean."""
    proximal_remaining_tolerance: float = 1e-5
    """And all further steps would change it by less than this, extrapolated from the last two: a row that creeps
    changes little in each step. It is what an answer that is OK may be above its optimum by; of a single step, which
    says nothing of others, it is not asked."""
    proximal_loop_exit: float = 1e-4
    """The same of the step before the last, which is what an iteration knows while it runs: the next one changes less
    by far, and is looked at afterwards."""
    settled_step: float = 1e-6
    """Where operators are sparse, also: the last step moved no output by more than this. Outputs that hardly cost
    anything are the last to settle, and what two calls find of them should not differ by more."""
    slowest_contraction: float = 0.999
    """The slowest contraction that is extrapolated; nearer to one, two changes say nothing about the rest."""

    multiplier_stationarity: float = 1e-6
    """The largest entry of the Lagrangian's gradient, relative to the row's largest multiplier, of multipliers that
    serve. Their own error is larger by the condition of the system: at 1e-6, 1e-5 of the largest on the grids
    measured."""
    multiplier_feasibility: float = 1e-6
    """And the largest violation of a constraint at the point they belong to, per unit."""
    multiplier_complementarity: float = 1e-6
    """And the largest product of a multiplier, relative to the row's largest one, and its constraint's slack."""
    multiplier_steps: tuple[int, ...] = (4, 8, 16)
    """Steps of each pass in optimal mode towards them, the last with patient rounds."""
    multiplier_hopeless: float = 1e6
    """A row that is still so many times further off after a pass is left to the row-wise solver."""

    nearby_passes: int = 3
    """`polished` takes rows that first steps have brought near through so many passes, even where rows that have not
    converged are handed on sooner: on case30_as that takes half the time of solving them."""

    # ---- the operator ----------------------------------------------------------------------------------

    belief_floor: float = 1e-5
    """Standard deviation (natural units) below which the belief is not trusted to be stiffer."""
    curvature_floor: float = 1e-8
    """Eigenvalues of the reduced Hessian below this share of the largest are raised to it: a metric must be convex.
    1e-6 instead doubled the iterations on a congested grid."""
    least_curvature: float = 1e-8
    """The largest eigenvalue counts as this if it is less: a metric is needed where neither cost nor belief curves."""
    changes_room: int = 8
    """A row may differ from the usual active set in as many places as any label does and up to twice as many more, or
    as in one candidate of so many; room for that comes in multiples of it, since its size is compiled."""
    linear_tolerance: float = 1e-9
    """An output whose second derivatives change by no more than this share with other multipliers is linear, and may
    step as far as it likes."""
    calibration_share: float = 0.5
    """Share of its time after which training begins nothing that it can do without,"""
    tau_share: float = 0.25
    """and after which it tries no further weight of the proximal term."""
    spread_regularisation: float = 1e-10
    """Of the system of the usual active set, as a share of its mean diagonal, where the belief's spread is narrowed to
    that: constraints that repeat one another leave it regular. No step is made of it."""
    rank_tolerance: float = 1e-9
    """Equalities whose part of their own is a smaller share of the largest repeat others."""
    unchanged: float = 1e-12
    """A derivative that changes by less when an element is out of service has not changed."""
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

    # ---- sparse operators ------------------------------------------------------------------------------

    sparse_regularisation: float = 1e-10
    """On the diagonal of the multipliers' blocks, of a system scaled to one: constraints that repeat one another leave
    it regular, and no digit that a step has is lost."""
    sparse_shifts: tuple[float, float, float] = (1e-6, 10.0, 1e6)
    """The first shift of a Hessian that does not curve upwards on the usual constraints, what it is multiplied by until
    it does, and the last; times the belief's curvature."""
    sparse_columns: int = 1024
    """Candidates in which rows differ from the usual active set that are kept in mind: 32 rows of case2000 need 63.
    Where rows need more, no set is settling."""
    sparse_rounding: float = 1e-9
    """Slacks, and multipliers relative to the largest, that are not negative beyond this are not negative."""
    sparse_sound: float = 1e-6
    """A row whose step leaves a slack, or a multiplier relative to the largest, more negative than this has not
    converged: its active set is not that of its own problem."""
    sparse_looks: int = 3
    """Times that a step looks for further places where a row's active set differs from the usual one."""
    accelerated_from: int = 2
    """Steps after which those of a row whose active set no longer changes are extrapolated (`answer.acceleration`)."""
    acceleration_depth: int = 3
    """From so many steps before the last. Of case9241_pegase's and case10000_goc's rows that had not converged after 56
    steps, and would not have for contracting by a tenth in each, all do, in 9 to 32; with 5 or 10 no sooner."""

    # ---- rounds of the complementarity problem ---------------------------------------------------------

    quick_rounds: tuple[int, int] = (4, 2)
    """Soft and hard rounds of the first steps: the next step goes on from where they end, and the last row of a batch
    to settle holds up all others. With these alone 27 of 1000 rows of case57 went round in circles for ever."""
    thorough_rounds: tuple[int, int] = (8, 4)
    """From the fifth step on; then 6 of 1000 do."""
    patient_rounds: tuple[int, int] = (40, 40)
    """For the last ones: ten of 688 rows of case500 needed so many."""
    switched_rounds: tuple[int, int] = (12, 6)
    """The same where elements may be out of service: rows whose active set changes in many places are many, and are
    quicker to solve. With case118's patient rounds five outages in six took twice as long."""

    # ---- passes ----------------------------------------------------------------------------------------

    first_steps: int = 4
    """Steps of the first pass over all rows: 59 % of case118's rows have converged then."""
    later_steps: tuple[int, ...] = (1, 1, 2)
    """Of the passes after that: rows that have converged sit out the later ones."""
    approach_steps: int = 2
    """With the proximal term, before the first pass of `polished` and `auto`: where the cost is flat, optimal mode from
    afar wanders off along it and leaves the equalities behind."""
    optimal_steps: tuple[int, ...] = (2, 2, 2, 2, 4)
    """The same in optimal mode: two steps are the least that tell what further ones would change."""
    patient_steps: int = 4
    """Of the last but one, the first with patient rounds."""
    found_steps: tuple[int, ...] = (2, 2, 4, 8)
    """Of all passes but the last over rows that start from what was found before."""
    last_steps: int = 16
    """Steps of the last pass, over the few rows that are left."""
    sparse_steps: tuple[int, int, int, int] = (6, 6, 12, 24)
    """Steps of each pass where operators are sparse. A row that has converged makes room for the next there, so that
    passes need not be short; solving a row takes a thousand steps' time."""
    few_rows: int = 16
    """For so few rows, a program of the smallest width, a call costs more than the steps that rows at rest sit out: two
    long passes instead of many short ones (16 rows of case118: 13 ms instead of 19)."""
    few_steps: int = 12
    """Steps of the first of those."""
    device_steps: tuple[int, ...] = (4, 1, 1, 2, 4, 8)
    """Steps of each pass on an accelerator, on each shared operator in turn. Rows that have converged sit out the later
    passes, and only those that do not settle at once take the rounds of the complementarity problem. More rounds for
    the last ones brought nothing on case118 and case500, and took a quarter of the time there."""
    device_draws: int = 512
    """Inputs drawn there to see which bounds answers come near, where all of them are candidates here."""
    program_steps: int = 28
    """At most so many in a program without a solver, as many as few rows take here; most batches come to rest in fewer
    than ten."""
    program_settling: int = 40
    """Steps there without the proximal term, at most, for those who want multipliers or derivatives."""
    program_settled: float = 1e-9
    """A row there that a step moves by less than this, relative to its largest decision and multiplier, has settled."""
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

    # ---- derivatives of answers ------------------------------------------------------------------------

    active_multiplier: float = 1e-6
    """A multiplier above this share of the row's largest one is that of an active constraint. What an interior-point
    method leaves on others is up to 5e-7 of it on 500 buses, where the smallest that does is at 6e-6."""
    derivative_damping: float = 1e-10
    """Keeps the system solvable where active constraints depend on each other, or outputs can stand in for each
    other (two generators at one bus): of all ways to move it is then the shortest one. A step of refinement takes it
    out elsewhere."""

    # ---- calibration -----------------------------------------------------------------------------------

    candidate_reach: float = 2.0
    """A constraint within so many standard deviations of its own slack of some label is a candidate. Among 128 of
    512 labels of case57, 118 and 500, 3 takes a quarter more constraints and misses no fewer."""
    sparse_reach: float = 4.0
    """The same where operators are sparse: labels are few there, and a candidate costs next to nothing. Bounds are all
    candidates: two in sixteen of case2869_pegase's rows broke one that no label was near."""
    watched_reach: float = 4.0
    """The same of the inequalities that rows which are solved many at once know of (`Calibration.watched`).
    Eight grids with 64 to 256 labels: 0.37 to 0.65 of the time with all of them, no row that breaks another one; with
    2, one row of case197_snem__sad went to a worse optimum. Of case2000_goc with outages, costs and ratings one in 200
    does."""
    watched_labels: int = 16
    """Fewer labels than this do not tell which those are."""
    touching: float = 1e-5
    """Less room than this, whatever the spread, is none: such a constraint is near, and may have a multiplier where
    labels came without."""
    active_spread: float = 0.1
    """A multiplier counts as active above this share of its own standard deviation,"""
    active_share: float = 1e-5
    """and above this share of what is typical: what an interior-point method leaves on others is below."""
    typical_share: float = 0.99
    """Typical is what this share of the largest multipliers stay below: one price in a hundred may be beyond all
    measure, as one of case9241_pegase's is, a thousand times the others."""
    usually: float = 0.5
    """A constraint that is active for more than this share of the labels is in the usual active set."""
    active_room: float = 1e-7
    """A bound with less room than this that is no candidate forbids a centre: an operator there would not know of
    it."""
    taus: tuple[float, ...] = (1e10, 1e9, 1e7)
    """tau, the likeliest first: how much a unit of relative cost outweighs the belief. Larger ones gain cost and take
    more steps: 1e10 leaves 2e-5 % in 5.7 steps on case57, 1e12 9e-8 % in 7.6."""
    switched_price: float = 1e6
    """A further tau where elements may be out of service: with costs and ratings that vary on top, 79 % of case57's
    rows converge with it (60 % with 1e7, 36 % with 1e10), 7e-7 % above the optimum in the median."""
    switched_margin: float = 0.1
    """By how large a share of the labels more have to converge with it: without costs that vary it brings none, and the
    mean gap of case57 rises from 9e-7 to 6e-5 %."""
    good_price: float = 1e-6
    """A tau whose answers are off by less than this (mean largest violation plus mean relative gap) is taken without
    trying others."""
    sparse_good_share: float = 0.9
    """The same where operators are sparse and this share of the labels converges: there is no time for more than one
    that serves."""
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
    wide_gain: float = 0.9
    """Rows begin where the central path is wider if that takes less than this share: where it pays it takes 0.6 to 0.8,
    and on a busy machine 118 buses were timed at less than one once, and take 1.15."""
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
    timed_patience: float = 4.0
    """Nothing that is timed may take longer than so many times that."""
    local_optimum: float = 1e-6
    """A cost that is higher by more than this share belongs to another local optimum."""
    timed_outputs: int = 6000
    """Where there are more outputs than this, building a solver takes too long for it to be timed: 6 s on 2000 buses,
    80 on 9241."""
    based_rows: int = 16
    """Labels that tell a large problem's usual active set."""
    trial_rows: int = 128
    """Labels that tau is chosen on."""
    hardly_pays: float = 0.8
    """A proxy that takes more of the solver's time than this hardly pays, and is said not to."""
    mostly_reached: float = 0.9
    """A problem of whose rows shared operators reach more than this is said to be easy."""

    # ---- from few labels to enough ---------------------------------------------------------------------

    enough_labels: int = 8
    """As many labels as this say by themselves which constraints are candidates."""
    unsure: float = 0.1
    """Standard deviation of a belief that rests on one point: it only keeps the iteration from wandering."""
    first_touching: float = 1e-6
    """A constraint with less room than this is active at the label."""
    first_reach: float = 3.0
    """Candidates are the constraints that the plain linear response comes within so many standard deviations of."""
