"""The constants of conditioning: found once, before anything is learnt, on the same labels and within the same budget.

Every method's answers are conditioned in the same way, so the work is the same for all, and it comes first: a learner
can use whatever time is left, and this cannot be cut short.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from feasibly.answer.calibrate import calibrate
from feasibly.answer.calibration import Labels
from feasibly.answer.driver import Driver
from feasibly.model.linear import LinearModel
from feasibly.problem.core import Problem
from feasibly.train.clock import Clock
from feasibly.train.driver import HASTE, probe
from feasibly.train.response import cost

PATIENCE = 0.9
"""The share of what is left that the constants are expected to need at most."""

ALONE = 0.5
"""The constants' part of what the default takes to prepare: measured 0.5 for 2 outputs, 0.4 for the 128 of case57."""


@dataclass(frozen=True)
class Constants:
    """What was found on the labels, for every method alike."""

    first: LinearModel
    """Ridge on all labels: what there is before anything else."""
    driver: Driver | None = None
    """`None` where there was no time for it."""
    note: str = ""
    """Why there was none."""


def find_constants(
    problem: Problem,
    labels: Labels,
    first: LinearModel,
    clock: Clock,
    *,
    seed: int,
    share: float,
    alone: bool,
    tell: Callable[[str], None],
) -> Constants:
    """Find the constants in at most about a `share` of what is left; starts are as wrong as ridge usually is.

    `alone` says that nothing else is compiled with them, as it is for the default.
    """
    units = cost(problem.n_outputs) * (ALONE if alone else 1.0)
    expected = units * probe() if clock.left > HASTE else float("inf")
    if expected > PATIENCE * clock.left:
        about = "" if clock.budget <= HASTE else f" (about {expected:.0f} s here)"
        return Constants(
            first, None, f"The budget of {clock.budget:g} s leaves no time to prepare conditioning{about}"
        )
    tell("constants of conditioning")
    with clock.account("conditioning"):
        # The default times itself later, on inputs that nobody has labelled.
        made = calibrate(
            problem, labels, first.covariance, seed=seed, seconds=share * clock.left, timed=alone
        )
    # Whatever is learnt later: the constants were found with this covariance and hold with it.
    kept = replace(made.calibration, covariance=first.covariance)
    return Constants(first, Driver(problem, kept, first.covariance, reuse=made))
