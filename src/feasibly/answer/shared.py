"""One level on the shared operators: passes over the rows that are left, until they converge or are handed on.

In order, for each operator in turn (`run_level`):

1. begin at the belief as it is, at the best point found so far, or at the operator's centre (`_first_iterates`);
2. make the passes of the level, each a few steps for all rows that are left (`_run_passes`);
3. after each pass a row leaves that has converged on the candidates (`has_converged`), or whose residuals do not
   promise that it will (`converging`);
4. a converged row is kept if it satisfies every constraint, candidate or not; of any other the least violated iterate.

Invariant: `progress.iterate` holds, for each row, the converged point or the least violated one met so far.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from feasibly.answer.progress import PassRecord, Progress, Status
from feasibly.answer.schedule import Factorisation, Level, Mode, StartFrom, WhichRows, level_passes
from feasibly.answer.settings import Settings
from feasibly.answer.step import Iterate, Residuals, has_converged

if TYPE_CHECKING:
    from feasibly.answer.driver import Driver

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


def run_level(driver: Driver, progress: Progress, level: Level, rows: Ints) -> None:
    """Take some rows through a level on shared operators."""
    settings = driver.settings
    # A row whose belief was far off has converged already: that point serves unless this level finds a better one. Open
    # rows stay so.
    second_try = level.rows is WhichRows.FAR
    progress.status[rows] = np.minimum(progress.status[rows], Status.FALLBACK)
    count = len(driver.calibration.centres) if level.by is Factorisation.SHARED else 1
    for index in range(count):
        left = rows[~progress.finished[rows]]
        made = index * usual_passes(settings, level)
        if not len(left) or progress.late or made >= progress.plan.max_passes_of(level):
            break
        done, iterate = _run_passes(driver, progress, level, index, left)
        feasible = np.zeros(len(done), dtype=bool)
        measured = driver.measure(progress.x[left[done]], iterate.y[done])
        feasible[done] = np.maximum(*measured[1:]) < settings.feasibility_tolerance
        among_done = feasible[done]
        progress.keep(left[feasible], iterate.take(feasible), level.name, [m[among_done] for m in measured])
        if not second_try:
            _keep_least_violated(driver, progress, left[~feasible], iterate.take(~feasible))


def usual_passes(settings: Settings, level: Level) -> int:
    """How many passes a level makes on one operator when there are many rows."""
    return len(level_passes(settings, settings.few_rows + 1, level))


def _place_among_usual(number: int, passes: int, usual: int) -> int:
    """The place of pass `number` of so many among the `usual` ones, which limits and records count in.

    Few rows make fewer and longer passes: the first of those is the first, and the last the last, of the usual ones.
    Where six are usual, few rows make those at places 0 and 5, so that a limit of one to five leaves them the first.
    """
    return number if passes == usual or not number else usual - passes + number


def _run_passes(
    driver: Driver, progress: Progress, level: Level, index: int, rows: Ints
) -> tuple[Mask, Iterate]:
    """All passes over some rows on one operator: which converged on the candidates, and where all of them ended."""
    s, operator = driver.settings, driver.operator(index)
    proximal = level.mode is Mode.PROXIMAL
    iterate, mean = _first_iterates(driver, progress, level, index, rows)
    ended = Iterate(*(np.array(part) for part in iterate))
    converged = np.zeros(len(rows), dtype=bool)
    left, last, costs = np.arange(len(rows)), None, None
    if level.approach and index == 0:
        iterate, residuals = driver.iteration.run(
            operator, progress.x[rows], mean, iterate, s.approach_steps, proximal=True, cost_tolerance=0.0,
            rounds=s.thorough_rounds, single=progress.single, until=progress.until,
        )  # fmt: skip
        progress.steps[rows] += residuals.steps
    passes = level_passes(s, len(progress.x), level)
    usual = usual_passes(s, level)
    for number, (steps, rounds) in enumerate(passes):
        # Limits and records count passes as a large batch makes them, over all operators.
        place_on_operator = _place_among_usual(number, len(passes), usual)
        place = index * usual + place_on_operator
        enough = place >= progress.plan.max_passes_of(level) or place_on_operator >= level.passes_an_operator
        if not len(left) or (number and progress.late) or enough:
            break
        began = time.process_time()
        iterate, residuals = driver.iteration.run(
            operator, progress.x[rows[left]], mean[left], iterate, steps, proximal=proximal,
            cost_tolerance=s.optimal_loop_exit_share * s.change_tolerance, rounds=rounds, single=progress.single,
            until=progress.until, costs=costs,
        )  # fmt: skip
        progress.steps[rows[left]] += residuals.steps
        done, merit = has_converged(s, iterate.y, residuals, proximal), _merit(s, residuals)
        stay = ~done
        # From a point that was found already active sets hardly change: the rate tells from the second pass on.
        near = level.start is StartFrom.FOUND
        if stay.sum() > s.few_hopeless and not (near and number == 0):
            stay &= converging(s, merit, last, residuals.steps, s.patient_passes if near else number)
        for part, now in zip(ended, iterate, strict=True):
            part[left[~stay]] = now[~stay]
        converged[left[done]] = True
        unfinished = len(rows) - int(converged.sum())
        progress.passes.append(PassRecord(place, time.process_time() - began, unfinished))
        left, iterate, last, costs = left[stay], iterate.take(stay), merit[stay], residuals.costs[stay]
    for part, now in zip(ended, iterate, strict=True):
        part[left] = now
    return converged, ended


def _first_iterates(
    driver: Driver, progress: Progress, level: Level, index: int, rows: Ints
) -> tuple[Iterate, Array]:
    """Where a level begins, and the proximal centre of its steps, both of these rows alone.

    Only what was found so far is read from `progress.iterate`: a level that starts from the belief takes the mean
    anew, which is not clipped to the bounds there.
    """
    mean = progress.mean[rows]
    if level.start is StartFrom.CENTRE:
        mean = np.broadcast_to(driver.operator(index).centre.y, mean.shape)
    if level.start is StartFrom.FOUND:
        return progress.iterate.take(rows), mean
    return driver.start(progress.x[rows], mean), mean


def _merit(settings: Settings, residuals: Residuals) -> Array:
    """The largest violation over its tolerance."""
    s = settings
    return np.maximum(
        residuals.equality / s.equality_tolerance, residuals.inequality / s.inequality_tolerance
    )


def converging(settings: Settings, merit: Array, last: Array | None, steps: Ints | int, number: int) -> Mask:
    """Rows that will converge soon, by the rate at which their residuals fall.

    Args:
        settings: what counts as soon.
        merit: the largest violation of each row over its tolerance.
        last: the same before the pass; `None` after the first one.
        steps: that each row took in the pass.
        number: of the pass, from zero.
    """
    s = settings
    if last is None:
        return np.asarray(merit < s.hopeless[0])
    with np.errstate(divide="ignore", invalid="ignore"):
        rate = np.log(np.maximum(last, 1.0) / np.maximum(merit, 1e-30)) / np.maximum(steps, 1)
        ahead = np.log(np.maximum(merit, 1.0)) / np.maximum(rate, 1e-9)
    return np.asarray((merit < s.hopeless[1]) & ((ahead < s.most_steps_ahead) | (number < s.patient_passes)))


def _keep_least_violated(driver: Driver, progress: Progress, rows: Ints, tried: Iterate) -> None:
    """Of rows that have not converged, keep the iterate with the smaller violation."""
    finite = np.all([np.isfinite(part).all(axis=1) for part in tried[:3]], axis=0)
    rows, tried = rows[finite], tried.take(finite)
    if not len(rows):
        return
    unknown = rows[np.isnan(progress.measured[0][rows])]
    before = progress.iterate.take(unknown)
    progress.write(unknown, before, driver.measure(progress.x[unknown], before.y))
    measured = driver.measure(progress.x[rows], tried.y)
    now, known = (np.maximum(*part[1:]) for part in (measured, [part[rows] for part in progress.measured]))
    better = (now < known) | (np.isfinite(now) & np.isnan(known))
    progress.write(rows[better], tried.take(better), [m[better] for m in measured])
