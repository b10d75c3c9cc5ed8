"""A year of loads, made up from a seed: days, weeks and seasons for all of them together, and noise of each."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import feasibly as fb

HOURS = 8760
NOISE = 0.05

Array = NDArray[np.float64]


def system_factor(hours: int) -> Array:
    """Every load's share of its nominal one: a winter peak, weekdays, two peaks a day; between 0.83 and 1.1."""
    hour = np.arange(hours)
    season = np.cos(2 * np.pi * (hour / 24 - 15) / 365)
    weekday = np.where(hour // 24 % 7 < 5, 1.0, -1.0)
    day = -np.cos(2 * np.pi * (hour % 24 - 4) / 24) + 0.5 * np.sin(4 * np.pi * (hour % 24 - 6) / 24)
    return np.asarray(0.98 + 0.05 * season + 0.02 * weekday + 0.055 * day)


def loads_of_a_year(problem: fb.Problem, hours: int = HOURS, seed: int = 1) -> tuple[list[str], Array]:
    """The first `hours` of it: names of the loads, and an hour a row."""
    loads = [i for i, name in enumerate(problem.input_names) if name.startswith(("pd_", "qd_"))]
    noise = 1.0 + NOISE * np.random.default_rng(seed).uniform(-1.0, 1.0, (hours, len(loads)))
    values = system_factor(hours)[:, None] * noise * problem.nominal[loads]
    return [problem.input_names[i] for i in loads], values
