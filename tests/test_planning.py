"""The planning example at a small size: descent through a proxy ends where descent with a solver does."""

from __future__ import annotations

import numpy as np

from benchmarks.planning import by_proxy, by_solver, hours_of, plan, project
from feasibly.problem.families import grid_of
from tests.problems import make
from tests.proxies import trained


def test_storage_goes_where_the_solver_puts_it():
    problem = make("grid6")
    proxy, _ = trained("grid6")
    hours, sign = hours_of(problem, 8, seed=1, daily=0.08, seasonal=0.04)
    total = 0.1
    ours = plan(problem, by_proxy(proxy), hours, sign, total, steps=5)
    theirs = plan(problem, by_solver(problem), hours, sign, total, steps=5)
    assert np.isclose(ours.storage.sum(), total)
    assert np.allclose(ours.costs, theirs.costs, rtol=1e-6)
    assert np.abs(ours.storage - theirs.storage).max() < 1e-3 * total
    assert min(ours.costs) < ours.costs[0]
    # The gradient that steered it, against a difference of solved costs.
    loads = grid_of(problem).n_loads
    more = np.zeros_like(hours)
    more[:, 0] = 1e-4
    (up, _), (down, _) = by_solver(problem)(hours + more), by_solver(problem)(hours - more)
    _, price = by_proxy(proxy)(hours)
    assert price.shape == (8, loads)
    assert np.allclose(price[:, 0], (up - down) / 2e-4, rtol=1e-3)


def test_projection_keeps_caps_and_total():
    cap = np.array([0.2, 0.5, 1.0, 0.0])
    found = project(np.array([3.0, -1.0, 0.4, 2.0]), cap, 0.9)
    assert np.isclose(found.sum(), 0.9)
    assert (found >= 0.0).all()
    assert (found <= cap).all()
    assert np.isclose(found[0], 0.2)
