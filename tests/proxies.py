"""Proxies of small problems, trained once a process, and rows they have not seen."""

import functools
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

import feasibly as fb
from feasibly.answer.calibration import Calibration
from tests.grids import GRID3
from tests.problems import CASES, make


@functools.cache
def trained(name, method="ridge"):
    problem = make(name)
    data = fb.label(problem, fb.sample(problem, 120, seed=5), jobs=1)
    proxy = fb.fit(problem, data, method, labels=60 if CASES[name].feasible else 30, budget=900.0)
    return patient(proxy), data


def patient(proxy):
    """The same proxy, with every pass over shared operators: how many pay, which training times, is left to chance."""
    if proxy.calibration is None:
        return proxy
    every = replace(
        proxy.calibration,
        worthwhile_passes=Calibration.worthwhile_passes,
        auto_tries_passes=True,
        start_from_belief=True,
    )
    return fb.Proxy(
        proxy.problem, proxy.model, proxy.record, keys=proxy.keys, calibration=every,
        driver=proxy.ladder.driver.having(every), box=proxy.box, leverage=proxy.leverage,
    )  # fmt: skip


def having(proxy, **settings):
    """The same proxy with other numbers in its settings."""
    calibration = replace(proxy.calibration, settings=replace(proxy.calibration.settings, **settings))
    return fb.Proxy(
        proxy.problem, proxy.model, proxy.record, keys=proxy.keys, calibration=calibration, box=proxy.box,
        leverage=proxy.leverage,
    )  # fmt: skip


@functools.cache
def switched():
    """A certified proxy of a grid whose lines and units may be out."""
    with tempfile.TemporaryDirectory() as folder:
        path = GRID3.write(Path(folder) / "grid.json")
        problem = fb.load_problem(path, vary=("load", "branch", "generator"))
    data = fb.label(problem, fb.sample(problem, 120, seed=1), jobs=1)
    proxy = fb.fit(problem, data, "ridge", labels=20, budget=300.0)
    proxy.certificate = fb.certify(proxy, data, 0.8, answers=("conditioned",))
    return proxy


def unseen(proxy, data, count=40):
    rows = np.flatnonzero(data.solved & data.unseen(proxy.keys))[:count]
    return data.x[rows], data.objective[rows], data.y[rows]
