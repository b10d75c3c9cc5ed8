"""The wall-clock budget, and how many steps fit into what is left of it."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from feasibly.problem.errors import FeasiblyError
from feasibly.train.choices import is_number

MOST_STEPS = 2**30
"""In one chunk: they are counted in 32 bits."""


class Clock:
    """Counts down `budget` seconds from the moment it is made, and keeps accounts of where they went."""

    def __init__(self, budget: float, now: Callable[[], float] = time.perf_counter) -> None:
        if not is_number(budget) or budget <= 0.0:
            raise FeasiblyError(
                f"the training budget must be a positive number of seconds and finite, not {budget!r}"
            )
        self.budget = float(budget)
        self._now = now
        self._start = now()
        self._accounts: dict[str, float] = defaultdict(float)

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return self._now() - self._start

    @property
    def left(self) -> float:
        """Seconds until the budget is spent; negative after that."""
        return self.budget - self.elapsed

    @contextmanager
    def account(self, name: str) -> Iterator[None]:
        """Book the time spent inside under `name`."""
        begun = self._now()
        try:
            yield
        finally:
            self._accounts[name] += self._now() - begun

    def accounts(self) -> dict[str, float]:
        """Seconds by name, with `other` for what was not booked and `total`."""
        total = self.elapsed
        booked = dict(self._accounts)
        return booked | {"other": max(total - sum(booked.values()), 0.0), "total": total}


class Pace:
    """Chooses how many steps to take at once, so that a chunk takes about `wanted` seconds and ends in time.

    One program serves every number of steps, so the choice is free. The speed of the last chunks predicts the next;
    the first chunk is a single step.
    """

    def __init__(self, wanted: float) -> None:
        self.wanted = wanted
        self._seconds_per_step: float | None = None

    def steps(self, left: float) -> int:
        """How many steps to take when `left` seconds remain; 0 when not one more fits."""
        if self._seconds_per_step is None:
            return 1 if left > 0.0 else 0
        fitting = min(max(int(left / self._seconds_per_step), 0), MOST_STEPS)
        most = max(int(self.wanted / self._seconds_per_step), 1)
        if fitting < 1.5 * most:
            return fitting
        return most

    def learn(self, steps: int, seconds: float) -> None:
        """Take note of how long a chunk took."""
        speed = max(seconds / steps, 1e-7)
        if self._seconds_per_step is None:
            self._seconds_per_step = speed
        else:
            weight = 0.5 if steps > 1 else 0.2
            self._seconds_per_step = (1.0 - weight) * self._seconds_per_step + weight * speed
