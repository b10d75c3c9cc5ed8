"""Calibration: candidates, the usual active set, the belief's price and shared operators, found on the labels.

In order (`calibrate`):

1. candidates and watched inequalities, by how near labels come to them;
2. multipliers of the labels, their own or estimated (`label_multipliers`, later `_iterated_multipliers`);
3. the usual active set, the trust region and the model of multipliers (`_initial_calibration`, `_sparse_calibration`);
4. the first operator, moved to the middle of the inputs (`_recentred`), and what a switched element changes there;
5. by trying it on the labels (`_tuned`): tau (`_with_best_tau`) and further operators (`_with_operators`);
6. when rows are handed on to the row-wise solver (`handover.choose_handover`).

Nothing here changes what it is given: each function returns a new driver or record.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from feasibly.answer.calibration import Calibration, Centre, Labels
from feasibly.answer.candidates import Candidates, find_candidates, find_near
from feasibly.answer.driver import Driver, search_duals
from feasibly.answer.handover import choose_handover
from feasibly.answer.label_multipliers import label_multipliers
from feasibly.answer.operator import free_variables
from feasibly.answer.rowwise import RowSolver
from feasibly.answer.schedule import SHARED_ONLY, SHARED_OPTIMAL
from feasibly.answer.settings import Settings
from feasibly.answer.switches import find_switches, switch_inputs
from feasibly.answer.system import System, find_system, linear_outputs
from feasibly.model.belief import Covariance
from feasibly.model.linear import fit_ridge
from feasibly.problem.core import Problem
from feasibly.problem.point import Point

Array = NDArray[np.float64]

Deadline = Callable[[float], float]
"""From a share of the time given to the moment, on `time.monotonic`, at which that share is over."""


def calibrate(
    problem: Problem,
    labels: Labels,
    covariance: Covariance,
    *,
    seed: int = 0,
    seconds: float = np.inf,
    settings: Settings | None = None,
    timed: bool = True,
) -> Driver:
    """Find everything the iteration needs on the labels.

    Args:
        problem: what is solved.
        labels: solved instances; their multipliers are used where they have any.
        covariance: how wrong the model's mean usually is; starts are drawn with it.
        seed: of those starts.
        seconds: no further pass is begun after this long; rows that were not reached by then count as out of reach.
        settings: constants, if not the usual ones.
        timed: whether to find out, too, when rows are better handed on (see `choose_handover`).
    """
    chosen = Settings() if settings is None else settings
    began = time.monotonic()

    def deadline(share: float) -> float:
        return began + share * seconds

    search = problem.with_fixed_bounds
    if labels.duals is not None:
        labels = replace(labels, duals=search_duals(problem, labels.duals))
    h = search.inequalities(labels.x, labels.y)
    watched = _watched(problem, labels, chosen)
    rowwise = RowSolver(problem, chosen.solver, watched)
    large = is_sparse(problem, rowwise, chosen)
    reach = chosen.sparse_reach if large else chosen.candidate_reach
    candidates = find_candidates(search, labels.y, h, reach, chosen.touching, every_bound=large)
    middle = labels.x.mean(axis=0)
    spread = np.maximum(labels.x.std(axis=0), 1e-9)
    central = int(np.argmin(np.sum(((labels.x - middle) / spread) ** 2, axis=1)))
    switched = switch_inputs(problem)
    if len(switched) and (nominal := _with_nominal_label(rowwise, labels, switched)) is not None:
        labels, central = nominal
        middle[switched] = 1.0
        chosen = replace(chosen, patient_rounds=chosen.switched_rounds)
    else:
        switched = switched[:0]
    equality, lam = label_multipliers(search, labels, candidates, central, chosen)
    start = replace(_initial_calibration(labels, candidates, equality, lam, central, chosen), watched=watched)
    if large:
        start = _sparse_calibration(rowwise, start, labels, equality, lam)
    first = Driver(problem, start, covariance, rowwise)
    driver = _recentred(first, middle, labels, deadline(chosen.calibration_share))
    if len(switched) and not driver.calibration.sparse:
        c = driver.calibration
        switches = find_switches(problem, rowwise, candidates, c.centres[0], switched, chosen.unchanged)
        driver = driver.having(replace(c, switches=(switches,)))
    if labels.duals is None:
        equality, lam = _iterated_multipliers(
            driver, labels, equality, lam, deadline(chosen.calibration_share)
        )
        again = _initial_calibration(labels, candidates, equality, lam, central, chosen)
        found = driver.calibration
        again = replace(
            again, centres=found.centres, systems=found.systems, sparse=found.sparse, switches=found.switches,
            watched=watched,
        )  # fmt: skip
        if found.sparse:
            again = replace(again, settings=found.settings, radius=found.radius)
        driver = Driver(problem, again, covariance, rowwise)
    starts = labels.y + _draw_errors(covariance, len(labels.x), seed, together=driver.calibration.sparse)
    if driver.calibration.sparse and len(switched):
        # What an element that is out changes is not known to sparse operators: hundreds of places, in every row.
        driver = driver.having(replace(driver.calibration, reached=0.0))
    else:
        driver = _tuned(driver, labels, equality, lam, starts, deadline)
    if timed:
        driver = choose_handover(driver, labels.x, starts, labels.seconds, deadline(1.0))
    return _with_saved_derivatives(driver)


def _watched(problem: Problem, labels: Labels, settings: Settings) -> NDArray[np.int64] | None:
    """The inequalities that rows which are solved many at once have to know of, if labels are enough to tell."""
    if len(labels.x) < settings.watched_labels or not problem.n_inequalities:
        return None
    h = problem.inequalities(labels.x, labels.y)
    return find_near(h, settings.watched_reach, settings.touching)


def _with_nominal_label(
    rowwise: RowSolver, labels: Labels, switched: NDArray[np.int64]
) -> tuple[Labels, int] | None:
    """The labels with one more, of the nominal input with everything on, and its place; `None` without a solution."""
    if labels.duals is None or not rowwise.available:
        return None
    nominal = rowwise.solver.nominal
    x = rowwise.model.nominal
    if not nominal.outcome.ok or not (x[switched] == 1.0).all():
        return None
    own = Point.of(*(part[None] for part in nominal.point.parts))
    own = Point(own.y, search_duals(rowwise.problem, own.duals))
    point = Point.join([Point(labels.y, labels.duals), own])
    costs = np.append(labels.objective, nominal.objective)
    every = replace(
        labels, x=np.concatenate([labels.x, x[None]]), y=point.y, objective=costs, duals=point.duals
    )
    return every, len(labels.x)


def first_driver(
    problem: Problem, labels: Labels, candidates: Candidates, covariance: Covariance, settings: Settings
) -> Driver:
    """A driver with one operator, at the first label, for those who have too few to calibrate anything on."""
    assert labels.duals is not None
    search = problem.with_fixed_bounds
    one = replace(labels, x=labels.x[:1], y=labels.y[:1], objective=labels.objective[:1])
    duals = search_duals(problem, labels.duals.take(slice(0, 1)))
    equality, lam = duals.equality, np.maximum(candidates.compress(duals), 0.0)
    start = _initial_calibration(one, candidates, equality, lam, 0, settings)
    far = np.where(search.lower < search.upper, settings.trust_far, settings.trust_floor)
    active = lam[0] > settings.active_share * np.abs(lam).max(initial=0.0)
    return Driver(problem, replace(start, radius=far, base=active), covariance)


def _with_saved_derivatives(driver: Driver) -> Driver:
    """With the derivatives at every centre, so that a model that is loaded has none to compile."""
    c = driver.calibration
    if c.sparse:
        return driver
    found = (
        driver.derivatives(index).at(centre.x, centre.y, centre.equality, c.candidates.split(centre.lam)[2])
        for index, centre in enumerate(c.centres)
    )
    return driver.having(replace(c, systems=tuple(System.of(*parts) for parts in found)))


def _initial_calibration(
    labels: Labels, candidates: Candidates, equality: Array, lam: Array, central: int, settings: Settings
) -> Calibration:
    """What multipliers tell: the usual active set, how far rows stray from it, and how to predict them."""
    largest = lam.max(axis=0, initial=0.0)
    some = largest[largest > 0.0]
    typical = np.quantile(some, settings.typical_share) if len(some) else 0.0
    threshold = np.maximum(settings.active_spread * lam.std(axis=0), settings.active_share * typical)
    active = lam > threshold
    base = active.mean(axis=0) > settings.usually
    differing = int(np.max(np.sum(active != base, axis=1), initial=0))
    room = settings.changes_room
    needed = max(differing, len(candidates) // room) + room
    max_changes = min(len(candidates), room * int(np.ceil(needed / room)))
    tau = settings.taus[0]
    return Calibration(
        candidates=candidates,
        base=base,
        weight=float(np.mean(np.abs(labels.objective))) / tau,
        tau=tau,
        radius=settings.trust_deviations * labels.y.std(axis=0) + settings.trust_floor,
        max_changes=max(max_changes, 1),
        centres=(Centre(labels.x[central], labels.y[central], equality[central], lam[central]),),
        duals=fit_ridge(labels.x, np.concatenate([equality, lam], axis=1)).slim,
        settings=settings,
    )


def _sparse_calibration(
    rowwise: RowSolver, start: Calibration, labels: Labels, equality: Array, lam: Array
) -> Calibration:
    """The calibration of a large problem: sparse derivatives, and steps that only curved outputs limit.

    The longest of so many steps is always too long for one of them: on case9241_pegase that is the power of a
    generator, which nothing depends on but linearly, and a row crept along for ten steps that needs two.
    """
    centre = start.centres[0]
    system = find_system(rowwise, start.candidates, centre)
    far = int(np.argmax(np.sum((labels.y - centre.y) ** 2, axis=1)))
    other = Centre(labels.x[far], labels.y[far], equality[far], lam[far])
    straight = linear_outputs(rowwise, start.candidates, centre, other, start.settings.linear_tolerance)
    first, later, patient, last = start.settings.sparse_steps
    settings = replace(
        start.settings, first_steps=first, later_steps=(later,), optimal_steps=(later,), patient_steps=patient,
        found_steps=(first, patient), last_steps=last,
    )  # fmt: skip
    radius = np.where(straight, np.inf, start.radius)
    return replace(start, systems=(system,), sparse=True, radius=radius, settings=settings)


def _tuned(
    driver: Driver, labels: Labels, equality: Array, lam: Array, starts: Array, deadline: Deadline
) -> Driver:
    """What only trying tells: the usual active set, the worth of the belief, and how many operators there should be."""
    if driver.calibration.sparse:
        driver = _with_observed_active_set(
            driver, labels, starts, deadline(driver.settings.calibration_share)
        )
    driver = _with_best_tau(driver, labels, starts, deadline)
    return _with_operators(driver, labels, equality, lam, starts, deadline)


def _with_observed_active_set(driver: Driver, labels: Labels, starts: Array, until: float) -> Driver:
    """The usual active set as labels answered on the operator have it, if that takes fewer changes.

    Multipliers from an interior point do not tell where constraints are nearly redundant: on case9241_pegase all rows
    differed in the same 150 places from the set that they suggest, and each place costs a solve.
    """
    c = driver.calibration
    some = np.arange(min(len(labels.x), c.settings.based_rows))
    found = driver.run(labels.x[some], starts[some], SHARED_ONLY, until=until)
    active = found.iterate.active[found.converged]
    base = active.mean(axis=0) > c.settings.usually if len(active) else c.base
    if np.sum(active != base) >= np.sum(active != c.base):
        return driver
    return driver.having(replace(c, base=base))


def _iterated_multipliers(
    driver: Driver, labels: Labels, equality: Array, lam: Array, until: float
) -> tuple[Array, Array]:
    """Labels that came without multipliers: optimal mode leaves a label where it is and finds them."""
    found = driver.run(labels.x, labels.y, SHARED_OPTIMAL, until=until)
    kept = found.converged
    if kept.sum() < 2:
        return equality, lam
    state = found.iterate.take(kept)
    usual = state.equality.mean(axis=0), state.lam.mean(axis=0)
    return (
        np.where(kept[:, None], found.iterate.equality, usual[0]),
        np.where(kept[:, None], found.iterate.lam, usual[1]),
    )


def _draw_errors(covariance: Covariance, rows: int, seed: int, *, together: bool) -> Array:
    """Drawn; with `together` as outputs are wrong together, and never one of them alone.

    Neighbours of a large grid may have next to nothing between them: errors of their own in their angles would be flows
    of a hundred per unit on case9241_pegase, which no model's answers have.
    """
    random = np.random.default_rng(seed)
    common = random.standard_normal((rows, covariance.factor.shape[1])) @ covariance.factor.T
    if together:
        return np.asarray(common)
    return np.asarray(
        common + random.standard_normal((rows, len(covariance.diagonal))) * np.sqrt(covariance.diagonal)
    )


def _recentred(driver: Driver, middle: Array, labels: Labels, until: float) -> Driver:
    """Move the first operator from the most central label to the middle of the inputs, where it serves best."""
    mean = labels.y.mean(axis=0)[None]
    # Two rows, so that no batch of one has to be compiled before anyone asks for a single answer.
    twice = np.stack([middle, middle])
    reached = driver.run(twice, np.repeat(mean, 2, axis=0), SHARED_OPTIMAL, until=until)
    y = reached.y[0]
    room = driver.settings.active_room
    if not reached.converged[0] or _other_bound_active(driver.search, driver.calibration.candidates, y, room):
        return driver
    centre = Centre(middle, y, reached.iterate.equality[0], reached.iterate.lam[0])
    return driver.having(_with_centre(driver, (), centre))


def _with_centre(driver: Driver, kept: tuple[Centre, ...], centre: Centre) -> Calibration:
    """The calibration with the operators at `kept` centres and one more."""
    systems = driver.calibration.systems
    if driver.calibration.sparse:
        found = find_system(driver.rowwise, driver.calibration.candidates, centre)
        systems = (*systems[: len(kept)], found)
    return replace(driver.calibration, centres=(*kept, centre), systems=systems)


def is_sparse(problem: Problem, rowwise: RowSolver, settings: Settings) -> bool:
    """Whether operators of this problem are sparse: where it is large, and the solver's model has its derivatives."""
    return len(free_variables(problem)) >= settings.sparse_from and rowwise.translates


def _other_bound_active(problem: Problem, candidates: Candidates, y: Array, room: float) -> bool:
    """Whether a bound is active that is no candidate: an operator there would not know of it."""
    moving = free_variables(problem)
    low, high = np.setdiff1d(moving, candidates.lower), np.setdiff1d(moving, candidates.upper)
    return bool((y[low] - problem.lower[low] < room).any() or (problem.upper[high] - y[high] < room).any())


def _with_best_tau(driver: Driver, labels: Labels, starts: Array, deadline: Deadline) -> Driver:
    """The tau whose answers to labels are least wrong: mean largest violation plus mean relative gap."""
    calibration, problem, settings = driver.calibration, driver.problem, driver.settings
    cost = float(np.mean(np.abs(labels.objective)))
    some = np.arange(min(len(labels.x), settings.trial_rows))
    best, best_score = driver, np.inf
    prices = settings.taus
    if calibration.switches:
        prices = (*prices, settings.switched_price)
    for tau in prices:
        if tau != calibration.tau and time.monotonic() > deadline(settings.tau_share):
            break
        tried = (
            driver
            if tau == calibration.tau
            else driver.having(replace(calibration, tau=tau, weight=cost / tau))
        )
        found = tried.run(
            labels.x[some], starts[some], SHARED_ONLY, until=deadline(settings.calibration_share)
        )
        gap = np.abs(problem.objectives(labels.x[some], found.y) - labels.objective[some]) / cost
        score = float(np.mean(np.minimum(tried.violation(labels.x[some], found.y), 1.0)) + np.mean(gap))
        if calibration.switches:  # some rows run away whatever the price: how far says nothing
            score = float(np.mean(~found.converged) + np.mean(np.where(found.converged, gap, 0.0)))
        # A firm belief costs gap, and has to bring many more rows.
        margin = settings.switched_margin if tau == settings.switched_price else 0.0
        if score < best_score - margin:
            best, best_score = tried, score
        serves = calibration.sparse and found.converged.mean() > settings.sparse_good_share
        if score < settings.good_price or serves:
            break
    return best


def _with_operators(
    driver: Driver, labels: Labels, equality: Array, lam: Array, starts: Array, deadline: Deadline
) -> Driver:
    """Where labels are not reached, the most central of those becomes the centre of another operator."""
    settings = driver.settings

    def reached(tried: Driver, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        return tried.run(labels.x[rows], starts[rows], SHARED_ONLY, until=deadline(1.0)).converged

    everything = np.arange(len(labels.x))
    missing = everything[~reached(driver, everything)]
    while (
        not len(switch_inputs(driver.problem))  # labels have something out, and an operator's centre has not
        and len(missing) > settings.worthwhile_operator * len(everything)
        and len(driver.calibration.centres) < settings.most_operators
        and time.monotonic() < deadline(settings.calibration_share)
    ):
        scaled = labels.y[missing] / driver.calibration.radius
        at = missing[int(np.argmin(np.sum((scaled - np.median(scaled, axis=0)) ** 2, axis=1)))]
        centre = Centre(labels.x[at], labels.y[at], equality[at], lam[at])
        tried = driver.having(_with_centre(driver, driver.calibration.centres, centre))
        now = reached(tried, missing)
        if now.sum() < settings.worthwhile_operator * len(everything):
            break
        driver, missing = tried, missing[~now]
    share = 1.0 - len(missing) / len(everything)
    return driver.having(replace(driver.calibration, reached=share))
