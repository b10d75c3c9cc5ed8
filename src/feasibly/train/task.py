"""What a learner is given, and what it gives back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from feasibly.answer.calibration import Labels
from feasibly.answer.driver import Driver
from feasibly.model.belief import Model
from feasibly.problem.core import Problem
from feasibly.problem.errors import FeasiblyError
from feasibly.problem.sampling import sample

Array = NDArray[np.float64]

VALIDATION_PER_TRAINING = 0.2
"""Validation rows for every training row, as in the paper; both come out of the labels."""

UNLABELLED = 4
"""Unlabelled inputs for every label, as in the paper."""

UNLABELLED_SEED = 1 << 40
"""Keeps unlabelled inputs apart from any inputs that were drawn for labelling or testing."""


@dataclass(frozen=True)
class Task:
    """One thing to learn: labelled rows for training and for validation, and inputs without labels."""

    problem: Problem
    x: Array
    y: Array
    x_valid: Array
    y_valid: Array
    unlabelled: Array
    seed: int = 0
    solved: Labels | None = None
    """All labels with their costs and multipliers, in their own order, for methods that know what to do with them."""

    @property
    def labels(self) -> int:
        """Every label that a method sees, validation included."""
        return len(self.x) + len(self.x_valid)

    @property
    def all_x(self) -> Array:
        """The inputs of all labels: what a closed-form model without validation is fitted to."""
        return np.concatenate([self.x, self.x_valid]) if self.solved is None else self.solved.x

    @property
    def all_y(self) -> Array:
        """The answers of all labels."""
        return np.concatenate([self.y, self.y_valid]) if self.solved is None else self.solved.y

    @staticmethod
    def split(
        problem: Problem,
        x: ArrayLike,
        y: ArrayLike,
        *,
        unlabelled: ArrayLike | int | None = None,
        validation: float = VALIDATION_PER_TRAINING,
        seed: int = 0,
        solved: Labels | None = None,
    ) -> Task:
        """Divide labels into training and validation rows by `seed`, and draw the unlabelled inputs.

        Args:
            problem: what the rows belong to.
            x, y: labelled rows. Every one of them counts as a label.
            unlabelled: inputs, or how many to draw; four times the labels unless told.
            validation: validation rows for every training row.
            seed: decides the split, the draws, and everything random in training.
            solved: the same labels with their costs and multipliers.
        """
        x, y = problem.check_rows(x, y)
        if len(x) < 2:
            raise FeasiblyError(f"{len(x)} labels are too few to learn from; label more rows")
        if not (np.isfinite(x).all() and np.isfinite(y).all()):
            raise FeasiblyError("some labels are not finite; leave out rows that were not solved")
        if unlabelled is None:
            unlabelled = UNLABELLED * len(x)
        if isinstance(unlabelled, int | np.integer):
            inputs = sample(problem, int(unlabelled), seed=UNLABELLED_SEED + seed)
        else:
            inputs, _ = problem.check_rows(unlabelled)
        kept = min(max(round(len(x) / (1.0 + validation)), 1), len(x) - 1)
        order = np.random.Generator(np.random.Philox(key=seed)).permutation(len(x))
        train, valid = np.sort(order[:kept]), np.sort(order[kept:])
        return Task(problem, x[train], y[train], x[valid], y[valid], inputs, int(seed), solved)


@dataclass(frozen=True)
class Moment:
    """What can be shown while training runs."""

    method: str
    trial: int
    round: int
    stage: str
    step: int
    loss: float
    validation: Mapping[str, float]
    seconds: float
    """Since the start."""
    seconds_left: float


Progress = Callable[[Moment], None]
"""Called after every chunk of steps. `KeyboardInterrupt` raised in it ends training as Ctrl-C does."""

Steps = Sequence[Mapping[str, Any]]
"""For every stage taken: `trial`, `round`, `stage`, and `chunks`, the numbers of steps between validations."""


@dataclass(frozen=True)
class Trained:
    """A model and how it came about."""

    model: Model
    method: str
    """What the model is: `ridge` where there was no time for the method that was asked for."""
    settings: Mapping[str, Any]
    """Plain values; with `steps` and the task's seed they replay the run."""
    history: Sequence[Mapping[str, Any]]
    """One entry a validation: seconds, trial, round, stage, step, loss, score and metrics on the validation labels."""
    steps: Steps
    seconds: Mapping[str, float]
    """Where the time went: `compile`, one entry a kind of stage, `validation`, `other`, and `total`."""
    note: str = ""
    """What a user should know, in words; empty when all went as asked."""
    labels: int = 0
    driver: Driver | None = None
    """Where the method itself improved on the constants of conditioning."""
