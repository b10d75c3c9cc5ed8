"""The driver and its schedules: rows that shared operators do not reach, beliefs that are far off, the clock."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

import feasibly as fb
from feasibly.answer import ladder, step
from feasibly.answer.auto import auto
from feasibly.answer.calibrate import calibrate
from feasibly.answer.calibration import Calibration, Labels
from feasibly.answer.candidates import Candidates
from feasibly.answer.driver import Driver
from feasibly.answer.multipliers import errors, refine
from feasibly.answer.record import AnswerOutcome
from feasibly.answer.rowwise import RowSolver, Solved
from feasibly.answer.schedule import (
    CONDITIONED,
    CONFIRMED,
    POLISHED,
    SHARED_ONLY,
    SHARED_OPTIMAL,
    Factorisation,
    level_passes,
    shared_part,
)
from feasibly.answer.settings import Settings
from feasibly.measure.metrics import measure_rows
from feasibly.model.belief import Belief
from feasibly.precision import double
from feasibly.problem.core import Problem
from feasibly.problem.point import Point
from tests.problems import CASES, make
from tests.proxies import patient, trained, unseen

SCHEDULES = {"conditioned": CONDITIONED, "polished": POLISHED}


def rough(data, rows):
    """Beliefs no better than the labels' mean."""
    return np.repeat(data.y[data.solved].mean(axis=0)[None], rows, axis=0)


def changed(proxy, **changes):
    """The proxy's driver with another calibration, which hands no row on early unless told to."""
    driver = proxy.ladder.driver
    patient = {"worthwhile_passes": Calibration.worthwhile_passes, "start_from_belief": True}
    calibration = replace(driver.calibration, **patient | changes)
    return Driver(proxy.problem, calibration, driver.covariance, reuse=driver)


@pytest.mark.parametrize("which", SCHEDULES)
@pytest.mark.parametrize("name", ["grid6", "nonconvex"])
def test_rows_that_shared_operators_are_not_tried_on_are_solved_on_their_own(name, which):
    proxy, data = trained(name)
    x, best, _ = unseen(proxy, data, 12)
    found = changed(proxy, worthwhile_passes=0).run(x, rough(data, len(x)), SCHEDULES[which])
    assert found.converged.mean() >= 0.9
    assert set(found.level[found.converged]) == {"row"}
    assert found.factorisations[found.converged].min() >= 1
    assert found.steps.max() == 0
    rows = measure_rows(proxy.problem, x, found.y, best)
    assert rows.worst[found.converged].max() < 1e-6
    gap = np.abs(rows.objective - best) / np.maximum(np.abs(best), 1e-2)
    assert np.median(gap[found.converged]) < 1e-6


class Denies(RowSolver):
    """A solver that finds no row to have a solution."""

    def solve(self, x, starts, **_):
        point, nothing = Point.nothing(self.problem, len(x)), np.full(len(x), np.nan)
        none = np.zeros(len(x), dtype=np.int64)
        return Solved(point, ("INFEASIBLE",) * len(x), none, nothing, (nothing, nothing, nothing))


@pytest.mark.parametrize("which", ["conditioned", "auto"])
def test_a_verdict_gives_way_to_a_feasible_belief_that_no_pass_has_measured(which):
    proxy, _ = trained("toy")
    x = np.array([[0.2, 0.1], [0.3, -0.2]])
    usual = proxy.ladder.driver
    calibration = replace(usual.calibration, worthwhile_passes=0, auto_tries_passes=False)
    denies = Denies(proxy.problem, calibration.settings.solver, None)
    driver = Driver(proxy.problem, calibration, usual.covariance, denies)
    for mean, feasible in ((CASES["toy"].optimum(x), True), (np.full((2, 2), 9.0), False)):
        if which == "conditioned":
            infeasible = driver.run(x, mean, CONDITIONED).infeasible
        else:
            belief, inside = Belief(mean, np.ones_like(mean)), np.zeros(len(x), dtype=bool)
            plan = replace(driver.plan(POLISHED), max_passes=0)
            found = auto(driver, plan, x, belief, inside, 1e-6, None)
            infeasible = np.array([verdict is AnswerOutcome.INFEASIBLE for verdict in found.verdicts])
            assert np.isfinite(found.y).all() == feasible
        assert (infeasible != feasible).all()


def test_a_constraint_that_nobody_watches_is_seen_and_the_row_solved():
    proxy, data = trained("grid6")
    x, best, _ = unseen(proxy, data, 12)
    driver = proxy.ladder.driver
    lam = driver.run(x, rough(data, len(x)), POLISHED).iterate.lam
    watched = driver.calibration.candidates
    at = int(np.argmax(lam[:, : watched.bounds].mean(axis=0)))
    assert lam[:, at].min() > 0.0
    keep = np.arange(len(watched)) != at  # the bound that presses most is not known of
    lower, upper, _ = np.split(keep, [len(watched.lower), watched.bounds])
    c = driver.calibration
    fewer = replace(
        c,
        candidates=Candidates(watched.lower[lower], watched.upper[upper], watched.inequality),
        base=c.base[keep],
        max_changes=min(c.max_changes, int(keep.sum())),
        centres=tuple(centre._replace(lam=centre.lam[keep]) for centre in c.centres),
        duals=calibrate_duals(data, proxy, keep, c),
    )
    found = Driver(proxy.problem, fewer, driver.covariance).run(x, rough(data, len(x)), CONDITIONED)
    measured = measure_rows(proxy.problem, x, found.y, best)
    assert found.converged.mean() >= 0.9
    assert measured.worst[found.converged].max() < 1e-6
    assert np.median(np.abs(measured.gap_percent)) < 0.01


def calibrate_duals(data, proxy, keep, calibration):
    from feasibly.model.linear import fit_ridge

    rows = data.solved
    duals = data.duals.take(rows)
    lam = calibration.candidates.compress(duals)[:, keep]
    return fit_ridge(data.x[rows], np.concatenate([duals.equality, lam], axis=1))


@pytest.mark.parametrize("which", SCHEDULES)
def test_there_is_no_answer_where_there_is_none(which):
    proxy, data = trained("grid6")
    x = 5.0 * data.x[:2]  # five times the load: nothing can serve it
    found = proxy.ladder.driver.run(x, rough(data, len(x)), SCHEDULES[which])
    assert not found.converged.any()
    assert np.isfinite(found.y).all()
    assert (found.level == "").all()


def test_nothing_is_begun_after_the_time_given():
    proxy, data = trained("grid6")
    x, _, _ = unseen(proxy, data, 10)
    for schedule in SCHEDULES.values():
        found = proxy.ladder.driver.run(x, rough(data, len(x)), schedule, until=0.0)
        assert not found.converged.any()
        assert found.steps.max() == 0
        assert found.factorisations.max() == 0
        assert np.all(np.isfinite(found.y))


@pytest.mark.parametrize("rows", [6, 40])
def test_so_many_passes_and_no_more(rows):
    proxy, data = trained("grid6")
    driver = changed(proxy)
    x = np.repeat(unseen(proxy, data, 10)[0], 4, axis=0)[:rows]
    usual = driver.run(x, rough(data, rows), shared_part(CONDITIONED))
    for most in (1, 3):
        found = driver.run(x, rough(data, rows), shared_part(CONDITIONED, most))
        plan = level_passes(driver.settings, rows, CONDITIONED[0])[:most]
        shared = found.level != "far-belief"
        assert found.steps[shared].max(initial=0) <= sum(one.steps for one in plan) * len(
            driver.calibration.centres
        )
        assert found.converged.sum() <= usual.converged.sum()
    assert (found.steps < usual.steps).any()


@pytest.mark.parametrize("rows", [1, 6, 40])
@pytest.mark.parametrize("off", [50.0, 1000.0, np.nan])
def test_however_wrong_the_belief_the_constraints_hold(rows, off):
    proxy, data = trained("grid6")
    x, best, _ = unseen(proxy, data, rows)
    wrong = proxy.model.predict(x).mean + off * np.sqrt(proxy.model.covariance.variance)
    found = proxy.ladder.driver.run(x, wrong, CONDITIONED)
    measured = measure_rows(proxy.problem, x, found.y, best)
    assert measured.worst.max() < 1e-6
    assert np.abs(measured.gap_percent).max() < 1e-3


def stiff(proxy):
    """A belief that is worth ten thousand times as much as it should be."""
    c = proxy.ladder.driver.calibration
    return {"weight": 1e4 * c.weight, "tau": c.tau / 1e4}


def test_a_belief_that_is_far_off_is_not_followed():
    proxy, data = trained("grid6")
    x, best, _ = unseen(proxy, data, 12)
    usual = proxy.model.predict(x).mean
    driver = proxy.ladder.driver
    assert driver.distance(usual, driver.run(x, usual, CONDITIONED).y).max() < driver.settings.far_belief
    wrong = usual + 5.0 * np.sqrt(proxy.model.covariance.variance)
    far = replace(driver.settings, far_belief=4.0)
    found = changed(proxy, **stiff(proxy), settings=far).run(x, wrong, CONDITIONED)
    gap = measure_rows(proxy.problem, x, found.y, best).gap_percent
    blind = replace(driver.settings, far_belief=np.inf)
    followed = changed(proxy, **stiff(proxy), settings=blind).run(x, wrong, CONDITIONED)
    gap_followed = measure_rows(proxy.problem, x, followed.y, best).gap_percent
    assert found.converged.all()
    assert set(found.level) & {"far-belief", "row"}
    assert np.mean(np.abs(gap)) < 1e-2 * np.mean(np.abs(gap_followed))


def test_what_is_confirmed_is_optimal_whatever_the_belief():
    proxy, data = trained("grid6")
    x, best, _ = unseen(proxy, data, 20)
    # Feasible answers that give up cost to a belief: conditioned ones hold, and what `auto` may keep gives up none.
    wrong = proxy.model.predict(x).mean + 5.0 * np.sqrt(proxy.model.covariance.variance)
    driver = changed(proxy, **stiff(proxy))
    conditioned = driver.run(x, wrong, SHARED_ONLY)
    assert conditioned.converged.mean() > 0.5
    before = measure_rows(proxy.problem, x, conditioned.y, best).signed_gap_percent
    assert before[conditioned.converged].max() > 2e-4
    for found in (
        driver.run(x, wrong, CONFIRMED),
        changed(proxy).run(x, proxy.model.predict(x).mean, CONFIRMED),
    ):
        after = measure_rows(proxy.problem, x, found.y, best).signed_gap_percent
        assert found.converged.mean() > 0.5
        assert after[found.converged].max() < 1e-5


def test_multipliers_are_the_solvers():
    proxy, data = trained("grid6")
    rows = np.flatnonzero(data.solved & data.unseen(proxy.keys))[:20]
    x, duals = data.x[rows], data.duals.take(rows)
    driver = changed(proxy)
    for schedule in (POLISHED, CONFIRMED):
        found = driver.run(x, proxy.model.predict(x).mean, schedule)
        own = refine(driver, x, found.iterate, found.converged, found.solved)
        good = found.converged
        assert good.mean() > 0.7
        scale = max(np.abs(duals.equality).max(), np.abs(duals.lower).max())
        for part in ("equality", "lower", "upper", "inequality"):
            off = np.abs(getattr(own, part) - getattr(duals, part))[good]
            assert off.max(initial=0.0) < 1e-4 * scale


@pytest.mark.parametrize("rows", [0, 1, 2, 8, 9, 16, 17, 33, 128, 129, 256, 257, 400, 1000])
def test_batches_cover_every_row_once(rows):
    batches = step.batches(rows)
    assert [i for part, _ in batches for i in range(part.start, part.stop)] == list(range(rows))
    for part, width in batches:
        assert width in step.BUCKETS
        assert part.stop - part.start <= width
    if rows > 1:
        assert sum(width for _, width in batches) < 2 * rows + step.BUCKETS[1]


def test_schedules_end_where_rows_can_be_solved_and_passes_grow_more_patient():
    assert CONDITIONED[-1].by is Factorisation.OWN
    assert POLISHED[-1].by is Factorisation.OWN
    assert all(level.by is not Factorisation.OWN for level in (*CONFIRMED, *SHARED_ONLY))
    settings = Settings()
    for level in {*CONDITIONED, *POLISHED, *CONFIRMED, *SHARED_ONLY, *SHARED_OPTIMAL}:
        rounds = [sum(one.rounds) for one in level_passes(settings, 1000, level)]
        assert rounds == sorted(rounds)


def test_calibration_needs_no_multipliers_and_changes_nothing_it_is_given():
    problem = make("grid6")
    data = fb.label(problem, fb.sample(problem, 40, seed=5), jobs=1)
    rows = data.solved
    labels = Labels(data.x[rows], data.y[rows], data.objective[rows])
    before = [part.copy() for part in (labels.x, labels.y, labels.objective)]
    from feasibly.model.linear import fit_ridge

    model = fit_ridge(labels.x, labels.y)
    driver = calibrate(problem, labels, model.covariance)
    for part, was in zip((labels.x, labels.y, labels.objective), before, strict=True):
        assert np.array_equal(part, was)
    assert driver.calibration.reached > 0.8
    found = driver.run(labels.x, model.predict(labels.x).mean, CONDITIONED)
    assert found.converged.mean() > 0.9


def test_polished_rows_start_as_for_a_label_where_training_says_so(monkeypatch):
    """There `polished` is the row-wise solver alone, and nothing that is believed may lead it to another optimum."""
    proxy, data = trained("grid6")
    x, _, _ = unseen(proxy, data, 6)
    quick = replace(
        proxy.calibration,
        worthwhile_passes=0,
        start_from_belief=False,
        start_from_passes=True,
        large_barrier=True,
    )
    asked = fb.Proxy(
        proxy.problem, proxy.model, proxy.record, keys=proxy.keys, calibration=quick,
        driver=proxy.ladder.driver.having(quick), box=proxy.box, leverage=proxy.leverage,
    )  # fmt: skip
    rowwise, given = asked.ladder.driver.rowwise, []
    solve = rowwise.solve

    def spying(rows, starts, **kwargs):
        given.append((starts, kwargs["large_barrier"]))
        return solve(rows, starts, **kwargs)

    monkeypatch.setattr(rowwise, "solve", spying)
    for answer in ("conditioned", "polished", "auto"):
        assert asked.predict(x, answer).ok.all()
    starts = [point for point, _ in given]
    assert len(given) == 3
    assert all(large for _, large in given)
    assert starts[:2] == [None, None]
    assert starts[2] is None or np.isnan(starts[2].y).all()


@pytest.mark.parametrize("which", ["conditioned", "polished"])
def test_a_row_that_nobody_solved_is_not_ok_for_being_feasible(which, monkeypatch):
    """Of a problem that has nothing but bounds every belief is feasible, and hardly any is an answer."""
    problem = Problem(
        lambda x, y: jnp.sum((y - x) ** 4 + jnp.cos(3.0 * y)),
        [-1.0, -1.0],
        [1.0, 1.0],
        box=([-1.0] * 2, [1.0] * 2),
    )
    proxy = fb.fit(problem, fb.label(problem, count=40, seed=0, jobs=1), "ridge", budget=30, seed=0)
    calibration = replace(proxy.calibration, worthwhile_passes=0, start_from_belief=False)
    proxy = fb.Proxy(problem, proxy.model, proxy.record, keys=proxy.keys, calibration=calibration)
    nothing = Solved(
        Point.nothing(problem, 3), ("NUMERICAL",) * 3, np.zeros(3, dtype=np.int64), np.zeros(3),
        (np.full(3, np.nan),) * 3,
    )  # fmt: skip
    monkeypatch.setattr(proxy.ladder.driver.rowwise, "solve", lambda *_, **__: nothing)
    x = fb.sample(problem, 3, seed=9)
    assert not proxy.predict(x, which).ok.any()
    if which == "conditioned":  # arrays of JAX take another path; where nothing converges there either:
        reached = ladder.on_device

        def none_converges(*given):
            found, note = reached(*given)
            return found._replace(converged=np.zeros(3, dtype=bool)), note

        monkeypatch.setattr(ladder, "on_device", none_converges)
        with double():
            assert not proxy.predict(jnp.asarray(x)).ok.any()


@pytest.mark.parametrize("schedule", [SHARED_ONLY, SHARED_OPTIMAL])
def test_a_cost_that_does_not_change_does_not_end_a_pass(schedule):
    """Nothing to choose between, but equations to satisfy: `y0 + y0^3 = x` takes more than two steps."""
    problem = fb.Problem(
        lambda x, y: 1.0 + 0.0 * y[0],
        [-2.0],
        [2.0],
        equality=lambda x, y: (y[0] + y[0] ** 3 - x[0])[None],
        box=([-2.0], [2.0]),
    )
    data = fb.label(problem, count=60, seed=0, jobs=1)
    proxy = patient(fb.fit(problem, data, "ridge", labels=40, budget=300))
    x, _, _ = unseen(proxy, data, 12)
    found = proxy.ladder.driver.run(x, proxy.model.predict(x).mean, schedule)
    assert found.converged.mean() > 0.7


def test_multipliers_of_constraints_with_room_are_found_out():
    """Stationary and feasible is every point whose gradient some multiplier balances; (1) asks for more."""
    proxy, data = trained("toy")
    driver, problem = proxy.ladder.driver, proxy.problem
    x = data.x[data.solved][:4]
    point = driver.rowwise.solve(x, None, thorough=True).point
    assert errors(driver, x, point).max() < 1.0
    low, high = problem.bounds(x)
    room = np.minimum(point.y - low, high - point.y)
    widest = int(np.argmax(np.where(np.isfinite(room), room, -1.0).min(axis=0)))
    assert room[:, widest].min() > 1e-3
    for part in (point.duals.lower, point.duals.upper):  # which leaves the gradient as it was
        part[:, widest] += 1.0
    assert errors(driver, x, point).min() > 1.0
