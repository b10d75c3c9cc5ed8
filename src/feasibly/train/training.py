"""The one function that trains any method, within one budget that counts everything."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Any

from feasibly.model.belief import Model
from feasibly.problem.errors import FeasiblyError
from feasibly.train.choices import faults
from feasibly.train.clock import Clock
from feasibly.train.registry import Method, find
from feasibly.train.task import Moment, Progress, Steps, Task, Trained

if TYPE_CHECKING:
    from feasibly.train.constants import Constants


Offer = Callable[[Callable[[], Model], str], None]
"""Called with a function that makes the best model so far, and the name of the method it belongs to."""


@dataclass(frozen=True)
class Request:
    """What a method's `fit` is asked for; `settings` is an instance of the method's settings class."""

    task: Task
    name: str
    settings: Any
    clock: Clock
    trials: int = 1
    replay: Steps | None = None
    progress: Progress | None = None
    constants: Constants | None = None
    """What was found on the labels before training; `None` for those who train a bare model."""
    best: Offer | None = None

    def tell(self, stage: str, **validation: float) -> None:
        """Say how training stands, for methods without steps."""
        if self.progress is not None:
            clock = self.clock
            self.progress(Moment(self.name, 0, 0, stage, 0, math.nan, validation, clock.elapsed, clock.left))

    def offer(self, make: Callable[[], Model], what: str) -> None:
        """Leave a model for whoever has to stop training from outside; `what` is the method it belongs to."""
        if self.best is not None:
            self.best(make, what)


def train(
    task: Task,
    method: str,
    budget: float | Clock,
    *,
    settings: Any | Mapping[str, Any] | None = None,
    trials: int = 1,
    replay: Steps | None = None,
    progress: Progress | None = None,
    constants: Constants | None = None,
    best: Offer | None = None,
) -> Trained:
    """Train `method` on `task` within `budget` seconds of wall-clock time, compilation and all trials included.

    Args:
        task: labels and inputs.
        method: a name from `METHODS`.
        budget: seconds, or a clock that is running already.
        settings: the method's own settings, or those to change as a mapping.
        trials: how many times to start anew within the budget; the best on the validation labels is returned.
        replay: the `steps` of an earlier `Trained`, taken again instead of watching the clock; with the same task and
            settings the same model results.
        progress: called after every chunk of steps with a `Moment`, and at least once by every method.
        constants: of conditioning, where they were found already.
        best: told of every model that is better than those before it.

    Ctrl-C ends training early and returns the best model so far; `Trained.note` says so.
    """
    clock = budget if isinstance(budget, Clock) else Clock(budget)
    found = find(method)
    chosen = check_request(found, settings, trials, replay)
    if task.labels < found.fewest:
        raise FeasiblyError(
            f"{task.labels} labels are too few to learn from; {method} needs at least {found.fewest}"
        )
    request = Request(task, method, chosen, clock, int(trials), replay, progress, constants, best)
    request.tell("training")
    trained = found.fit(request)
    if not isinstance(trained, Trained):
        raise FeasiblyError(
            f"the method {method!r} should give a feasibly.train.task.Trained, not a {type(trained).__name__}"
        )
    return trained


def check_request(
    method: Method, settings: Any | Mapping[str, Any] | None, trials: int, replay: Steps | None
) -> Any:
    """The settings to train with; what the method cannot honour is refused."""
    if not isinstance(trials, Integral) or isinstance(trials, bool) or trials < 1:
        raise FeasiblyError(f"at least one trial is needed, not {trials}")
    if trials > 1 and not method.trials:
        how = "gives the same model every time" if method.closed else "is trained once"
        raise FeasiblyError(f"{method.name} {how}; leave trials out, or choose a network")
    if replay is not None and not method.steps:
        raise FeasiblyError(f"{method.name} takes no steps that could be repeated; leave steps out")
    if replay is not None:
        _check_steps(replay, trials)
    return _settings(method, settings)


def _check_steps(steps: Steps, trials: int) -> None:
    """Whether these are steps as `record.steps` has them, of as many trials."""
    entries = list(steps) if isinstance(steps, Sequence) and not isinstance(steps, str | bytes) else []
    known = all(
        isinstance(entry, Mapping) and {"trial", "place", "chunks"} <= set(entry) and list(entry["chunks"])
        for entry in entries
    )
    if not entries or not known:
        raise FeasiblyError("steps are those of another run, as its record.steps has them")
    if any(entry["trial"] >= trials for entry in entries):
        raise FeasiblyError(f"these steps are of more than {trials} trials; say trials as that run did")


def by_steps(request: Request, learner: Callable[..., Any], cost: float) -> Trained:
    """Train a learner by gradient steps; `cost` is that of compiling it."""
    from feasibly.train.driver import drive

    return drive(request, lambda: learner(request.name, request.task, request.settings), compile_cost=cost)


def _settings(method: Method, given: Any | Mapping[str, Any] | None) -> Any:
    usual = method.settings
    if given is None:
        return usual
    if not isinstance(given, Mapping):
        if usual is None or type(given) is not type(usual):
            raise FeasiblyError(
                f"these settings ({type(given).__name__}) do not belong to the method {method.name!r}"
            )
        if dataclasses.is_dataclass(usual):
            _check_values(method, usual, {f.name: getattr(given, f.name) for f in dataclasses.fields(usual)})
        return given
    known = [] if usual is None else [field.name for field in dataclasses.fields(usual)]
    unknown = [key for key in given if key not in known]
    if unknown:
        there = f"it has {', '.join(known)}" if known else "it has no settings"
        raise FeasiblyError(
            f"the method {method.name!r} has no setting {', '.join(map(repr, unknown))}; {there}"
        )
    fixed = [key for key in given if key in method.fixed and given[key] != getattr(usual, key)]
    if fixed:
        raise FeasiblyError(
            f"{method.name} does not have {', '.join(map(repr, fixed))} to choose; leave it out, or choose another "
            "method"
        )
    _check_values(method, usual, dict(given))
    return dataclasses.replace(usual, **given) if given else usual


def _check_values(method: Method, usual: Any, given: dict[str, Any]) -> None:
    wrong = list(faults(usual, given, method.name))
    if wrong:
        raise FeasiblyError("; ".join(wrong))
