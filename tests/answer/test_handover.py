"""What pays: timing that is not fooled by what is built once."""

import time
from dataclasses import replace

import numpy as np
import pytest

from feasibly.answer.calibration import Calibration
from feasibly.answer.handover import choose_handover, time_starts
from tests.proxies import trained, unseen


@pytest.mark.parametrize("first_calls", [1, 2])
def test_what_the_first_rows_had_to_build_is_not_what_a_row_takes(first_calls, monkeypatch):
    proxy, data = trained("grid6")
    driver = proxy.ladder.driver
    x, _, y = unseen(proxy, data, 8)
    solve, calls = driver.rowwise.solve, []

    def building(*args, **kwargs):
        calls.append(None)
        if len(calls) <= first_calls:
            until = time.process_time() + 0.5
            while time.process_time() < until:
                pass
        return solve(*args, **kwargs)

    monkeypatch.setattr(driver.rowwise, "solve", building)
    times = time_starts(driver, x, y, 1e-3, np.inf)
    assert len(times.plain) == 8
    assert np.nanmax([times.plain, times.warm, times.after]) < 0.5


@pytest.mark.parametrize(
    ("together", "sparse", "reached", "most"),
    [
        (True, False, 1.0, 0),
        (True, True, 1.0, Calibration.worthwhile_passes),
        (False, False, 1.0, Calibration.worthwhile_passes),
        (False, False, 0.0, 0),
    ],
)
def test_without_time_to_time_anything_rows_are_solved_as_labels_are(
    together, sparse, reached, most, monkeypatch
):
    proxy, data = trained("grid6")
    driver = proxy.ladder.driver
    x, _, y = unseen(proxy, data, 8)
    assert driver.rowwise.together
    monkeypatch.setitem(driver.rowwise.__dict__, "together", together)
    known = driver.having(replace(driver.calibration, reached=reached, sparse=sparse))
    found = choose_handover(known, x, y, 1e-3, until=time.monotonic() - 1.0).calibration
    assert found.worthwhile_passes == most
    assert not found.start_from_belief


@pytest.mark.parametrize("slow", ["near", "wide"])
def test_rows_begin_where_they_are_quicker(slow, monkeypatch):
    proxy, data = trained("grid6")
    driver = proxy.ladder.driver
    x, _, y = unseen(proxy, data, 8)
    solve = driver.rowwise.solve

    def slower(*args, large_barrier=False, **kwargs):
        found = solve(*args, large_barrier=large_barrier, **kwargs)
        return replace(found, seconds=found.seconds + (10.0 if large_barrier == (slow == "wide") else 0.0))

    monkeypatch.setattr(driver.rowwise, "solve", slower)
    times = time_starts(driver, x, y, 1e-3, np.inf)
    assert times.large_barrier == (slow == "near")
    assert np.isfinite(times.plain).all()
    assert times.plain.max() < 5.0


def test_where_rows_begin_does_not_change_where_they_end():
    proxy, data = trained("grid6")
    x, _, _ = unseen(proxy, data, 8)
    near, wide = (
        proxy.ladder.driver.rowwise.solve(x, None, thorough=False, at_once=True, large_barrier=flag)
        for flag in (False, True)
    )
    assert near.ok.all()
    assert wide.ok.all()
    assert (near.iterations != wide.iterations).any()
    costs = [proxy.problem.objectives(x, found.point.y) for found in (near, wide)]  # two units share a bus
    np.testing.assert_allclose(*costs, rtol=1e-8)
