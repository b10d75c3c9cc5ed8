"""When rows are handed on: how many shared passes pay, and where the row-wise solver starts, by timing both.

In order (`choose_handover`): time the shared passes on inputs like those to come, and count what each leaves
(`_pass_costs`); time the row-wise solver on some of the same inputs from each start (`time_starts`); add both up for
every number of passes and take the cheapest; then see whether `auto`, which keeps only what is optimal, gains from them
too (`_auto_gains`). What was chosen is recorded in the calibration, and read by `answer.plan` alone.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from feasibly.answer.calibration import Calibration
from feasibly.answer.driver import Driver
from feasibly.answer.progress import PassRecord
from feasibly.answer.rowwise import Solved
from feasibly.answer.schedule import CONDITIONED, CONFIRMED, SHARED_ONLY
from feasibly.problem.point import Point

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


def choose_handover(
    driver: Driver,
    x: Array,
    mean: Array,
    seconds: float | None,
    until: float = np.inf,
    believing: float = 0.0,
) -> Driver:
    """The same driver, but rows are handed on as soon as it is cheaper to solve what is left row by row.

    Args:
        driver: what is timed; it has answered rows before, so that nothing is left to compile.
        x: inputs like those it will be asked.
        mean: what is believed of them.
        seconds: what solving a row takes from nowhere, if that is known.
        until: no further pass begins after this moment.
        believing: seconds a row that finding out what is believed takes; who starts from nowhere need not.
    """
    calibration, settings = driver.calibration, driver.settings
    everything = Calibration.worthwhile_passes
    if not driver.rowwise.translates:
        return driver
    if seconds is None or time.monotonic() > until:
        return _untimed(driver)
    some = slice(0, settings.timed_rows)
    rows = len(x[some])
    converged, taken, left = _pass_costs(driver, x[some], mean[some], until)
    last = len(taken) - 1
    straight = quick = slow = settings.warm_share * seconds
    from_belief_pays, from_passes_pays, large_barrier, solvable = True, True, False, 1.0
    timed = len(driver.search.lower) <= settings.timed_outputs
    if timed and driver.rowwise.available:  # which builds the solver, before it is timed
        times = time_starts(driver, x[some], mean[some], seconds, until)
        if not len(times.solved):
            return _untimed(driver)
        served = converged[times.rows]
        solved = times.solved | served
        if solved.any():
            # Rows without a solution cost the same whatever is done first, and would drown the rest.
            solvable, hard, large_barrier = float(solved.mean()), solved & ~served, times.large_barrier
            left = left - left[-1] + round(float(hard.mean()) * rows)
            from_nominal = float(times.plain[solved].mean())
            from_belief = float(times.warm[solved].mean()) + believing
            from_belief_pays = from_belief < settings.warm_gain * from_nominal and not times.worse.any()
            straight = from_belief if from_belief_pays else from_nominal
            # What shared operators do not reach is hard for the solver too, and may be harder from where they left it.
            quick = _mean(times.after[solved & served], straight)
            both = hard & np.isfinite(times.after)
            afresh, after = (_mean(part[both], straight) for part in (times.plain, times.after))
            slow, from_passes_pays = min(afresh, after), bool(after <= afresh and both.sum() == hard.sum())
    whole = rows * believing + taken + left[-1] * slow + (left - left[-1]) * quick
    whole[0] = settings.shared_gain * left[0] * straight
    best = int(np.argmin(whole))
    most = everything if best == last > 0 else best
    count = max(solvable * rows, 1.0)
    tried = driver.having(replace(calibration, worthwhile_passes=most))
    auto_tries_passes = most > 0 and _auto_gains(tried, x[some], mean[some], count, straight, slow, until)
    reached = float(np.clip(1.0 - left[-1] / count, 0.0, 1.0))
    whole[0] /= settings.shared_gain
    chosen = replace(
        calibration, worthwhile_passes=most, auto_tries_passes=auto_tries_passes, start_from_belief=from_belief_pays,
        start_from_passes=from_passes_pays, large_barrier=large_barrier, reached=reached,
        row_seconds=float(whole[best] / count), solving_seconds=seconds,
    )  # fmt: skip
    return driver.having(chosen)


def _pass_costs(driver: Driver, x: Array, mean: Array, until: float) -> tuple[Mask, Array, Ints]:
    """Rows that converge on shared operators; and after 0, 1, 2... passes the seconds taken and the rows left."""
    passes: tuple[PassRecord, ...] = ()
    converged = np.zeros(len(x), dtype=bool)
    if driver.calibration.reached > 0.0:
        found = driver.run(x, mean, SHARED_ONLY, until=until)
        passes, converged = found.passes, found.converged
    last = 1 + max((done.place for done in passes), default=-1)
    taken, left = np.zeros(last + 1), np.full(last + 1, len(x))
    for done in passes:
        taken[done.place + 1 :] += done.seconds
        left[done.place + 1 :] = done.left
    left[-1] = len(x) - int(converged.sum())  # some satisfy the candidates and break something else
    return converged, taken, left


def _untimed(driver: Driver) -> Driver:
    """Where nothing is known, rows start as for a label, which is never slower than solving them.

    Many at once if that is possible: shared passes are quicker than that where operators are sparse, and hardly
    anywhere else (five times as slow under outages on 118 buses).
    """
    c = driver.calibration
    tries = c.shares and (c.sparse or not driver.rowwise.together)
    most = Calibration.worthwhile_passes if tries else 0
    return driver.having(replace(c, worthwhile_passes=most, start_from_belief=False))


def _mean(seconds: Array, otherwise: float) -> float:
    known = seconds[np.isfinite(seconds)]
    return float(known.mean()) if len(known) else otherwise


def _auto_gains(
    driver: Driver, x: Array, mean: Array, solvable: float, straight: float, later: float, until: float
) -> bool:
    """Whether what `auto` may keep of shared operators' answers outweighs the time it takes to look at all of them.

    Args:
        driver: what is timed.
        x: inputs.
        mean: what is believed of them.
        solvable: how many of them have a solution.
        straight: seconds that a row takes that goes to the row-wise solver straight away.
        later: the same after shared passes.
        until: no further pass begins after this moment.
    """
    if time.monotonic() > until:
        return True
    driver.run(x, mean, CONFIRMED, until=until)  # compiles
    began = time.process_time()
    found = driver.run(x, mean, CONFIRMED, until=until)
    taken = time.process_time() - began
    rest = max(solvable - float(found.converged.sum()), 0.0)
    return taken + rest * later < driver.settings.shared_gain * solvable * straight


class Timed(NamedTuple):
    """Processor seconds that each of some rows takes the row-wise solver, by where it starts."""

    plain: Array
    """As for a label, or from where the central path is wider."""
    warm: Array
    """From what is believed."""
    after: Array
    """From where one shared pass has left it; NaN where that was the answer."""
    solved: Mask
    worse: Mask
    """Where there are several local optima, a belief may lead to a worse one than the nominal solution does."""
    rows: Ints
    """Which rows these are."""
    large_barrier: bool
    """Whether that is where they were quicker."""


def time_starts(driver: Driver, x: Array, mean: Array, usual: float, until: float) -> Timed:
    """The same rows from each start, so that what one row happens to cost counts alike for all of them."""
    s, rowwise = driver.settings, driver.rowwise
    at_once = time.monotonic() + rowwise.ready_seconds < until and rowwise.batch is not None
    until = min(until, time.monotonic() + s.timed_patience * s.timed_seconds)
    fewest, most = s.timed_together if at_once else s.timed_solves
    count = min(int(np.clip(s.timed_seconds / max(usual, 1e-9), fewest, most)), len(x))
    x, mean = x[:count], mean[:count]
    passed, reached = None, np.ones(count, dtype=bool)
    if driver.calibration.reached > 0.0:
        one_pass = driver.having(replace(driver.calibration, worthwhile_passes=1))
        after = one_pass.run(x, mean, CONDITIONED[:-1], until=until)
        passed, reached = driver.full(after.iterate), after.converged
    starts = None, driver.full(driver.start(x, mean)), passed, None

    def timed(start: Point | None, rows: Ints, large_barrier: bool = False) -> Solved:
        # What is not begun in time does not count, nor does what cannot be solved with the others: it may take minutes.
        own = None if start is None else start.take(rows)
        return rowwise.solve(
            x[rows], own, thorough=False, go_on=lambda: time.monotonic() < until, at_once=at_once, rest=False,
            large_barrier=large_barrier,
        )  # fmt: skip

    every = np.arange(count)
    timed(None, every)  # builds what is built on first use
    seconds, costs = np.full((4, count), np.nan), np.full((4, count), np.nan)
    for k in (0, 3, 1, 2):  # beliefs may be far off, and rows that begin there take longest
        start = starts[k]
        rows = every if k != 2 else every[~reached]
        if not len(rows) or (k == 3 and not at_once):
            continue
        found = timed(start, rows, large_barrier=k == 3)
        finished = np.array([outcome != "TIME_LIMIT" for outcome in found.outcome])
        seconds[k, rows[finished]] = found.seconds[finished]
        ok = rows[found.ok]
        if len(ok):
            costs[k, ok] = driver.problem.objectives(x[ok], found.point.y[found.ok])
    done = np.isfinite(seconds[0])
    seconds[1] = np.where(np.isnan(seconds[1]), np.inf, seconds[1])  # what there was no time for does not pay
    (plain, warm, later, wider), costs = seconds[:, done], costs[:, done]
    worse = costs[[1, 3]] - costs[0] > s.local_optimum * np.abs(costs[0])
    near, far = np.isfinite(costs[[0, 3]])
    both = near & far
    quicker = _mean(wider[both], np.inf) < s.wide_gain * _mean(plain[both], 0.0)
    large_barrier = bool(quicker and far.sum() >= near.sum() and not worse[1].any())
    ended = np.isfinite(costs[:2]).any(axis=0)
    if large_barrier:
        plain = np.where(np.isfinite(wider), wider, plain)
    return Timed(plain, warm, later, ended, worse[0], np.flatnonzero(done), large_barrier)
