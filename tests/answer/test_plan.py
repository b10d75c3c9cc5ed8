"""The table of plans in docs/method.md, row by row: what is asked and what training has measured, and what follows."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from feasibly.answer.calibration import Calibration
from feasibly.answer.plan import SolverStart, plan_answer, plan_schedule
from feasibly.answer.schedule import CONDITIONED, CONFIRMED, POLISHED, ROW_BY_ROW, SHARED_ONLY
from tests.proxies import trained, unseen

PASSES, BELIEF, NOMINAL, LARGE = (
    SolverStart.PASSES,
    SolverStart.BELIEF,
    SolverStart.NOMINAL,
    SolverStart.NOMINAL_LARGE_BARRIER,
)


def calibrated(passes=0, auto=False, belief=False, after=False, large=False):
    return replace(
        trained("toy")[0].calibration, worthwhile_passes=passes, auto_tries_passes=auto, start_from_belief=belief,
        start_from_passes=after, large_barrier=large,
    )  # fmt: skip


TABLE = [
    # asked, calibration: schedule, passes, start of rows that passes were made on and of others, whether one believes
    ("conditioned", calibrated(3, True, True, True), (CONDITIONED, 3, PASSES, BELIEF, True)),
    ("conditioned", calibrated(3, True, False, False), (CONDITIONED, 3, NOMINAL, NOMINAL, True)),
    ("conditioned", calibrated(0, False, True, True), (CONDITIONED, 0, PASSES, BELIEF, True)),
    ("conditioned", calibrated(0, False, False, True, True), (CONDITIONED, 0, PASSES, LARGE, False)),
    ("polished", calibrated(3, True, False, True), (POLISHED, 3, PASSES, NOMINAL, True)),
    ("polished", calibrated(3, False, True, True), (POLISHED, 3, PASSES, BELIEF, True)),
    ("polished", calibrated(3, False, False, True), (ROW_BY_ROW, 0, PASSES, NOMINAL, False)),
    ("polished", calibrated(0, False, False, True, True), (ROW_BY_ROW, 0, PASSES, LARGE, False)),
    ("auto", calibrated(3, True, False, True), (CONFIRMED, 3, PASSES, NOMINAL, True)),
    ("auto", calibrated(3, False, True, True), ((), 0, PASSES, BELIEF, True)),
    ("auto", calibrated(0, False, False, True, True), ((), 0, PASSES, LARGE, False)),
    ("solved", calibrated(3, True, True, True), ((), 0, PASSES, NOMINAL, False)),
    ("solved", calibrated(3, True, True, True, True), ((), 0, PASSES, LARGE, False)),
]


@pytest.mark.parametrize(("answer", "calibration", "expected"), TABLE)
def test_what_follows_from_what_was_measured(answer, calibration, expected):
    plan = plan_answer(answer, calibration, solver=True)
    found = plan.schedule, plan.max_passes, plan.after_passes, plan.without_passes, plan.needs_belief
    assert found == expected


@pytest.mark.parametrize("flags", list(product([0, 3], [False, True], [False, True])))
@pytest.mark.parametrize(
    ("answer", "schedule"), [("conditioned", CONDITIONED), ("polished", POLISHED), ("auto", CONFIRMED)]
)
def test_without_a_solver_shared_operators_are_tried_to_the_end(answer, schedule, flags):
    plan = plan_answer(answer, calibrated(*flags), solver=False)
    assert (plan.schedule, plan.max_passes, plan.needs_belief) == (schedule, np.inf, True)


def test_what_only_shared_operators_are_asked_for_is_not_handed_on():
    assert plan_schedule(SHARED_ONLY, calibrated(0), solver=True).max_passes == np.inf


def test_a_plan_can_be_read():
    assert str(plan_answer("solved", calibrated(), solver=True)) == (
        "the solver alone; from the nominal central path, near its end"
    )
    assert str(plan_answer("conditioned", calibrated(3, after=True), solver=True)) == (
        "shared -> far-belief -> row; at most 3 passes; then from where shared passes left it"
    )
    assert str(plan_answer("conditioned", calibrated(1), solver=True)) == (
        "shared -> far-belief -> row; at most 1 pass; then from the nominal central path, near its end"
    )
    assert str(plan_answer("polished", calibrated(0, belief=True), solver=True)) == (
        "row; from the belief's mean with predicted multipliers"
    )


def test_a_printed_plan_knows_of_passes_near_the_optimum_and_of_the_solver_after_auto():
    polished, auto = (
        plan_answer(which, calibrated(1, auto=True, large=True), solver=True)
        for which in ("polished", "auto")
    )
    (nearby, *_) = polished.schedule
    assert (polished.max_passes, polished.max_passes_of(nearby)) == (1, 3)
    after = "at most 3 passes; then from the nominal central path, at a larger barrier parameter"
    assert str(polished) == f"optimal -> row; {after}"
    assert str(auto) == f"optimal -> solver; {after}"
    assert str(plan_answer("auto", calibrated(3, belief=True), solver=True)) == (
        "the solver alone; from the belief's mean with predicted multipliers"
    )


def test_a_printed_plan_without_a_solver_names_none():
    for answer, levels in (
        ("conditioned", "shared -> far-belief -> restart"),
        ("polished", "optimal -> restart"),
        ("auto", "optimal"),
    ):
        assert str(plan_answer(answer, calibrated(1), solver=False)) == f"{levels}; every pass"
    assert str(plan_answer("solved", calibrated(), solver=False)) == "nothing"
    assert str(plan_schedule(SHARED_ONLY, calibrated(1), solver=True)) == "shared; every pass"
    untimed = calibrated(Calibration.worthwhile_passes, after=True)
    assert "; every pass; then from " in str(plan_answer("conditioned", untimed, solver=True))


@pytest.mark.parametrize(("belief", "after"), [(True, False), (False, True)])
def test_where_no_pass_was_made_auto_starts_as_rows_without_passes_do(belief, after, monkeypatch):
    """Not as rows that passes were made on, which have been brought nearer."""
    proxy, data = trained("grid6")
    x, _, _ = unseen(proxy, data, 6)
    chosen = replace(
        proxy.calibration,
        worthwhile_passes=0,
        auto_tries_passes=True,
        start_from_belief=belief,
        start_from_passes=after,
    )
    if not belief:  # else the solver would be asked straight away
        chosen = replace(chosen, worthwhile_passes=1)
    asked = type(proxy)(
        proxy.problem, proxy.model, proxy.record, keys=proxy.keys, calibration=chosen, box=proxy.box,
        leverage=proxy.leverage,
    )  # fmt: skip
    driver, given = asked.ladder.driver, []
    solve, run = driver.rowwise.solve, driver.run
    # A moment that is past: no pass is made.
    monkeypatch.setattr(driver, "run", lambda *args, **more: run(*args, **{**more, "until": 0.0}))

    def spying(rows, starts, **more):
        given.append(starts)
        return solve(rows, starts, **more)

    monkeypatch.setattr(driver.rowwise, "solve", spying)
    assert asked.predict(x, "auto").ok.all()
    (starts,) = given
    assert np.isfinite(starts.y).all() == belief
