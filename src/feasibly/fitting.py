"""From labels to a proxy: one budget for everything, and something to keep at any time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feasibly.answer.bootstrap import answered_by_itself
from feasibly.answer.calibration import Labels
from feasibly.answer.ladder import Leverage
from feasibly.answer.settings import Settings
from feasibly.data.dataset import Dataset
from feasibly.data.schema import versions_now
from feasibly.model.belief import Model
from feasibly.model.linear import LinearModel, fit_ridge
from feasibly.problem.core import Problem
from feasibly.problem.errors import FeasiblyError
from feasibly.problem.sampling import input_range, sample
from feasibly.proxy import Proxy, TrainingRecord
from feasibly.train.choices import is_whole
from feasibly.train.clock import Clock
from feasibly.train.registry import DEFAULT_METHOD, find
from feasibly.train.task import UNLABELLED, UNLABELLED_SEED, Moment, Task, Trained

UNLABELLED_FOR_FEW = 128
"""Inputs that are to become labels where there is a handful of them."""
FEW_SHARE = 0.5
"""Of the budget that answering those may take."""


def fit(
    problem: Problem,
    data: Dataset,
    method: str = DEFAULT_METHOD,
    *,
    budget: float = 60.0,
    seed: int = 0,
    labels: int | None = None,
    unlabelled: int | None = None,
    trials: int = 1,
    progress: Callable[[Moment], None] | None = None,
    steps: Any = None,
    **settings: Any,
) -> Proxy:
    """Train a proxy for `problem` from the labels in `data`.

    A budget that is too small for the method gives a ridge model: `record.method` is then `ridge`, `record.asked` what
    was asked for, and `record.note` says why. Ctrl-C ends training early and gives the best proxy until then.

    Args:
        problem: what is optimised; must be the problem of `data`.
        data: labelled rows. The first `labels` solved ones are used, validation included; all unless told.
        method: one of `METHODS`.
        budget: wall-clock seconds for everything: the constants of conditioning, compilation, all trials.
        seed: the same seed and the same number of steps give the same model. Which of the ways to an answer is taken is
            decided by timing, and may differ from one call to the next; answers then agree to their tolerance.
        labels: how many labels to use.
        unlabelled: how many inputs to draw without solving them; four times the labels unless told.
        trials: how many times to train; the best on the validation labels is kept.
        progress: called now and then with a `Moment`: the stage, the seconds left, the loss where there is one.
        steps: the recorded steps of another run, to repeat it instead of watching the clock.
        settings: of the method, by name.

    Raises:
        FeasiblyError: data of another problem, too few labels, or what the method cannot honour.

    Examples:
        The nearest point to `x` in a box, with answers known in closed form:

        >>> problem = fb.Problem(
        ...     lambda x, y: ((y - x) ** 2).sum() + 1.0, [0.0, 0.0], [1.0, 1.0], box=([-1.0, -1.0], [2.0, 2.0])
        ... )
        >>> x = fb.sample(problem, 100, seed=0)
        >>> data = fb.Dataset.from_arrays(problem, x, x.clip(0.0, 1.0))
        >>> proxy = fb.fit(problem, data, "ridge", labels=40, budget=600)
        >>> answer = proxy.predict([[0.25, 1.5]])
        >>> answer.y.round(3)
        array([[0.25, 1.  ]])
        >>> answer.outcomes()
        {'OK': 1}
    """
    return Fitting(
        problem, data, method, budget=budget, seed=seed, labels=labels, unlabelled=unlabelled, trials=trials,
        progress=progress, steps=steps, settings=settings,
    ).run()  # fmt: skip


class Fitting:
    """One call of `fit`: `run` does it, and `so_far` gives, to another thread if need be, what there is meanwhile.

    Its arguments are those of `fit`, which has their defaults.
    """

    def __init__(
        self,
        problem: Problem,
        data: Dataset,
        method: str,
        *,
        budget: float,
        seed: int,
        labels: int | None,
        unlabelled: int | None,
        trials: int,
        progress: Callable[[Moment], None] | None,
        settings: Mapping[str, Any] | None,
        steps: Any = None,
    ) -> None:
        from feasibly.train.training import check_request

        if not is_whole(seed) or seed < 0:
            raise FeasiblyError(f"a seed is a whole number of at least zero, not {seed!r}")
        if unlabelled is not None and (not is_whole(unlabelled) or unlabelled < 0):
            raise FeasiblyError(f"unlabelled is how many inputs to draw, a whole number, not {unlabelled!r}")
        if progress is not None and not callable(progress):
            raise FeasiblyError(f"progress is a function that is called with a Moment, not {progress!r}")
        self._method, self._asked = find(method), method
        self._settings = check_request(self._method, settings or None, trials, steps)
        if unlabelled and not self._method.unlabelled:
            raise FeasiblyError(f"{method} learns from labels alone; leave unlabelled out")
        if data.problem.fingerprint != problem.fingerprint:
            raise FeasiblyError(
                f"the data belong to another problem ({data.problem.name}) than {problem.name}"
            )
        if not np.any(problem.limits.usual[0] < problem.limits.usual[1]):
            raise FeasiblyError(
                f"every output of {problem.name} is fixed by its bounds; there is nothing to learn"
            )
        self._clock = Clock(budget)
        self._problem, self._data, self._seed = problem, data, int(seed)
        self._trials, self._progress, self._steps = int(trials), progress, steps
        self._chosen = data.split(labels, validation=0.0).train
        if len(self._chosen) < self._method.fewest:
            raise FeasiblyError(
                f"{len(self._chosen)} labels are too few to learn from; {method} needs at least "
                f"{self._method.fewest}: label more rows"
            )
        count = UNLABELLED * len(self._chosen) if unlabelled is None else int(unlabelled)
        if unlabelled is None and len(self._chosen) < Settings.enough_labels:
            count = UNLABELLED * UNLABELLED_FOR_FEW
        self._unlabelled = count if self._method.unlabelled else 0
        self._constants: Any = None
        self._best: tuple[Callable[[], Model], str] | None = None

    def run(self) -> Proxy:
        """Do it."""
        from feasibly._compiled import keep_compiled
        from feasibly.train.constants import find_constants
        from feasibly.train.training import train

        keep_compiled()
        problem, data, clock = self._problem, self._data, self._clock
        rows = _labels(data, self._chosen)
        drawing = data.provenance.drawing(problem)
        inputs = sample(problem, self._unlabelled, seed=UNLABELLED_SEED + self._seed, **drawing)
        inputs = np.delete(
            inputs, list(problem.refused(inputs)), axis=0
        )  # outages that split the grid teach nothing
        try:
            if len(rows.x) > 1:
                self._begin(rows)
            rows, inputs = self._enough(rows, inputs)
            first = self._begin(rows)
            task = Task.split(problem, rows.x, rows.y, unlabelled=inputs, seed=self._seed, solved=rows)
            self._constants = find_constants(
                problem, rows, first, clock, seed=self._seed, share=0.5 if self._method.closed else 0.25,
                alone=self._asked != DEFAULT_METHOD, tell=self._tell,
            )  # fmt: skip
            trained = train(
                task, self._asked, clock, settings=self._settings, trials=self._trials, replay=self._steps,
                progress=self._progress, constants=self._constants, best=self._offer,
            )  # fmt: skip
        except KeyboardInterrupt:
            if self._best is None:  # one label, and nothing was made of it yet
                raise
            return self.so_far("Training was interrupted")
        return self._proxy(trained)

    def _begin(self, rows: Labels) -> LinearModel:
        """Ridge: what there is from now on, whatever happens."""
        from feasibly.train.constants import Constants

        with self._clock.account("ridge"):
            first = fit_ridge(rows.x, rows.y)
        self._constants = Constants(first)
        self._offer(lambda: first, "ridge")
        return first

    def _enough(self, rows: Labels, inputs: NDArray[np.float64]) -> tuple[Labels, NDArray[np.float64]]:
        """The labels; where they are a handful, with answers of its own to a part of the other inputs.

        Raises:
            FeasiblyError: one label, and nothing could be answered from it.
        """
        if len(rows.x) >= Settings.enough_labels or not self._method.unlabelled:
            return rows, inputs
        part = len(inputs) // UNLABELLED
        with self._clock.account("from few labels"):
            found = answered_by_itself(
                self._problem, rows, inputs[:part], seconds=FEW_SHARE * self._clock.left, tell=self._tell
            )
        if len(found.x) < 2:
            raise FeasiblyError(
                "nothing could be learnt from one label here: no answer made from it holds; label a few more rows"
            )
        return found, inputs[part:]

    @property
    def budget(self) -> float:
        """Seconds."""
        return self._clock.budget

    @property
    def seconds_left(self) -> float:
        """Of the budget; negative when it is spent."""
        return self._clock.left

    @property
    def has_something(self) -> bool:
        """Whether `so_far` has anything to give: ridge at least."""
        return self._best is not None

    def so_far(self, why: str) -> Proxy:
        """The best proxy until now, with a note that begins with `why`; ridge before anything else was learnt.

        Raises:
            FeasiblyError: not even that is there.
        """
        if self._best is None:
            raise FeasiblyError(f"{why}, and there is nothing to keep yet")
        make, method = self._best
        return self._proxy(
            Trained(
                make(), method, {}, [], [], self._clock.accounts(), self._why(why, method), len(self._chosen)
            )
        )

    def _why(self, why: str, method: str) -> str:
        if method == self._asked:
            return f"{why}; this is the best model until then."
        return f"{why}, so this is the closed-form ridge model instead of {self._asked}."

    def _offer(self, make: Callable[[], Model], method: str) -> None:
        self._best = make, method

    def _tell(self, stage: str) -> None:
        if self._progress is not None:
            clock = self._clock
            self._progress(Moment(self._asked, 0, 0, stage, 0, np.nan, {}, clock.elapsed, clock.left))

    def _proxy(self, trained: Trained) -> Proxy:
        problem, clock = self._problem, self._clock
        driver = trained.driver or self._constants.driver
        notes = [trained.note] if trained.note else []
        if driver is None:
            why = "" if self._constants.note in trained.note else self._constants.note
            only = "answers with mean and svp only."
            notes.append(f"{why}: it {only}" if why else f"It has no constants of conditioning, and {only}")
        box = input_range(problem, **self._data.provenance.drawing(problem))
        learnt = trained.method == self._asked
        seconds = clock.accounts()  # before the whole, which is then no less than the sum of its parts
        record = TrainingRecord(
            method=trained.method,
            labels=len(self._chosen),
            unlabelled=self._unlabelled if learnt else 0,
            budget_seconds=clock.budget,
            train_seconds=clock.elapsed,
            seed=self._seed,
            trials=self._trials if learnt else 1,
            seconds=seconds,
            history=tuple(trained.history),
            steps=tuple(trained.steps),
            settings=dict(trained.settings),
            note=" ".join(notes),
            versions=versions_now(),
            asked="" if learnt else self._asked,
        )
        return Proxy(
            problem,
            trained.model,
            record,
            keys=self._data.keys[self._chosen],
            calibration=None if driver is None else driver.calibration,
            driver=driver,
            box=box,
            leverage=None if box is not None else Leverage.of(self._data.x[self._chosen]),
        )


def _labels(data: Dataset, rows: NDArray[np.int64]) -> Labels:
    x, y, objective = data.x[rows], data.y[rows], data.objective[rows]
    duals = None if data.duals is None else data.duals.take(rows)
    seconds = data.seconds[rows]
    usual = float(np.mean(seconds)) if np.isfinite(seconds).all() and seconds.any() else None
    return Labels(x, y, objective, duals if duals is not None and duals.known.all() else None, usual)
