"""Every method by name, and the one function that trains any of them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np

from feasibly.model.belief import Model
from feasibly.problem.errors import FeasiblyError
from feasibly.train.clock import Clock
from feasibly.train.task import Progress, Steps, Task, Trained


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


@dataclass(frozen=True)
class Method:
    """A way to learn."""

    name: str
    summary: str
    """One line for lists and help."""
    settings: Any
    """A frozen dataclass with the method's default settings; `None` when it has none."""
    fit: Callable[[Request], Trained]
    bayesian: bool = False
    """Whether its models have a posterior to draw from, so that `svp` applies."""


METHODS: dict[str, Method] = {}
"""By name, in the order in which tables show them."""


def register(method: Method) -> Method:
    """Add a method; a name is taken once."""
    if method.name in METHODS:
        raise ValueError(f"a method {method.name!r} is registered already")
    METHODS[method.name] = method
    return method


def find(name: str) -> Method:
    """The method of that name, or an error that lists the names there are."""
    if name not in METHODS:
        raise FeasiblyError(f"there is no method {name!r}; choose one of {', '.join(METHODS)}")
    return METHODS[name]


def train(
    task: Task,
    method: str,
    budget: float,
    *,
    settings: Any | Mapping[str, Any] | None = None,
    trials: int = 1,
    replay: Steps | None = None,
    progress: Progress | None = None,
) -> Trained:
    """Train `method` on `task` within `budget` seconds of wall-clock time, compilation and all trials included.

    Args:
        task: labels and inputs.
        method: a name from `METHODS`.
        budget: seconds.
        settings: the method's own settings, or those to change as a mapping.
        trials: how many times to start anew within the budget; the best on the validation labels is returned.
        replay: the `steps` of an earlier `Trained`, taken again instead of watching the clock; with the same task and
            settings the same model results.
        progress: called after every chunk of steps with a `Moment`.

    Ctrl-C ends training early and returns the best model so far; `Trained.note` says so.
    """
    clock = Clock(budget)
    found = find(method)
    chosen = _settings(found, settings)
    return found.fit(Request(task, method, chosen, clock, trials, replay, progress))


def _settings(method: Method, given: Any | Mapping[str, Any] | None) -> Any:
    if given is None:
        return method.settings
    if not isinstance(given, Mapping):
        if method.settings is None or type(given) is not type(method.settings):
            raise FeasiblyError(
                f"these settings ({type(given).__name__}) do not belong to the method {method.name!r}"
            )
        return given
    known = [] if method.settings is None else [field.name for field in dataclasses.fields(method.settings)]
    unknown = [key for key in given if key not in known]
    if unknown:
        there = f"it has {', '.join(known)}" if known else "it has none"
        raise FeasiblyError(
            f"the method {method.name!r} has no setting {', '.join(map(repr, unknown))}; {there}"
        )
    for key, value in given.items():
        wanted = _wanted(getattr(method.settings, key), value)
        if wanted:
            raise FeasiblyError(f"the setting {key!r} of {method.name!r} is {wanted}, not {value!r}")
    return dataclasses.replace(method.settings, **given) if given else method.settings


def _wanted(usual: Any, value: Any) -> str:
    """What a setting has to be, in words, where `value` is not that."""
    flag = isinstance(value, bool | np.bool_)
    if isinstance(usual, bool):
        return "" if flag else "yes or no"
    if isinstance(usual, int):
        return "" if isinstance(value, Integral) and not flag else "a whole number"
    if isinstance(usual, float):
        sound = isinstance(value, Real) and not flag and math.isfinite(value)
        return "" if sound else "a number"
    return ""


# ---- closed form -------------------------------------------------------------------------------------------


def fit_ridge(request: Request) -> Trained:
    """Ridge regression on every label."""
    return _closed_form(request, _ridge)


def fit_gp(request: Request) -> Trained:
    """A Gaussian process on every label."""

    def gp(task: Task) -> Model:
        from feasibly.model.kernel import fit_gp

        return fit_gp(task.all_x, task.all_y)

    return _closed_form(request, gp)


def _ridge(task: Task) -> Model:
    from feasibly.model.linear import fit_ridge

    return fit_ridge(task.all_x, task.all_y)


def _closed_form(request: Request, fit: Callable[[Task], Model]) -> Trained:
    with request.clock.account("closed form"):
        model = fit(request.task)
    accounts = request.clock.accounts()
    return Trained(model, request.name, {}, [], [], accounts, "", request.task.labels)


# ---- by gradient steps -------------------------------------------------------------------------------------


def _by_steps(make: Callable[[Request], Any], cost: float) -> Callable[[Request], Trained]:
    def fit(request: Request) -> Trained:
        from feasibly.train.driver import drive

        return drive(
            request.task,
            lambda: make(request),
            request.clock,
            name=request.name,
            settings=dataclasses.asdict(request.settings),
            fallback=lambda: _ridge(request.task),
            trials=request.trials,
            replay=request.replay,
            progress=request.progress,
            compile_cost=cost,
        )

    return fit


def _penalty(request: Request) -> Any:
    from feasibly.train.deterministic import PenaltyLearner

    return PenaltyLearner(request.name, request.task, request.settings)


def _sandwich_dnn(request: Request) -> Any:
    from feasibly.train.deterministic import SandwichNetworkLearner

    return SandwichNetworkLearner(request.name, request.task, request.settings)


def _bayesian(request: Request) -> Any:
    from feasibly.train.bayesian import BayesianLearner

    return BayesianLearner(request.name, request.task, request.settings)


def _register_all() -> None:
    from feasibly.train.bayesian import BayesianSettings
    from feasibly.train.deterministic import PenaltySettings, SandwichSettings

    register(Method("ridge", "ridge regression, in closed form", None, fit_ridge, bayesian=True))
    register(Method("gp", "a Gaussian process, in closed form", None, fit_gp, bayesian=True))
    kinds = {
        "mae": ("mean absolute error with a bound-repair layer", "mae", "none"),
        "mse": ("mean squared error with a bound-repair layer", "mse", "none"),
        "mae-penalty": ("mean absolute error and penalised violations", "mae", "penalty"),
        "mse-penalty": ("mean squared error and penalised violations", "mse", "penalty"),
        "lagrangian-dual": ("mean absolute error and violations with learnt multipliers", "mae", "dual"),
    }
    for name, (summary, loss, constraints) in kinds.items():
        defaults = PenaltySettings(loss=loss, constraints=constraints)
        register(Method(name, summary, defaults, _by_steps(_penalty, 30.0)))
    summary = "a network trained by turns on labels and on feasibility"
    register(Method("sandwich-dnn", summary, SandwichSettings(), _by_steps(_sandwich_dnn, 50.0)))
    summary = "a Bayesian network trained on labels"
    alone = BayesianSettings(rounds=0)
    register(Method("supervised-bnn", summary, alone, _by_steps(_bayesian, 45.0), bayesian=True))
    summary = "a Bayesian network trained by turns on labels and on feasibility"
    register(Method("sandwich-bnn", summary, BayesianSettings(), _by_steps(_bayesian, 75.0), bayesian=True))


_register_all()
