"""Proxies of small problems, trained once a process, and rows they have not seen."""

import functools

import numpy as np

import feasibly as fb
from tests.problems import CASES, make


@functools.cache
def trained(name, method="ridge"):
    problem = make(name)
    data = fb.label(problem, fb.sample(problem, 120, seed=5), jobs=1)
    return fb.fit(problem, data, method, labels=60 if CASES[name].feasible else 30, budget=900.0), data


def unseen(proxy, data, count=40):
    rows = np.flatnonzero(data.solved & data.unseen(proxy.keys))[:count]
    return data.x[rows], data.objective[rows], data.y[rows]
