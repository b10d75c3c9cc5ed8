"""Methods in closed form: ridge, Gaussian processes, and the default."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from feasibly.model.belief import Model
from feasibly.model.linear import LinearModel
from feasibly.train.task import Trained
from feasibly.train.training import Request


def fit_ridge(request: Request) -> Trained:
    """Ridge regression on every label."""
    return _closed_form(request, lambda: ridge_of(request))


def fit_gp(request: Request) -> Trained:
    """A Gaussian process on every label."""
    from feasibly.model.kernel import fit_gp as fit

    return _closed_form(request, lambda: fit(request.task.all_x, request.task.all_y))


def ridge_of(request: Request) -> LinearModel:
    """What every method falls back on: the ridge model, fitted already where constants were found."""
    from feasibly.model.linear import fit_ridge as fit

    return (
        fit(request.task.all_x, request.task.all_y) if request.constants is None else request.constants.first
    )


def _closed_form(request: Request, fit: Callable[[], Model]) -> Trained:
    try:
        request.tell("closed form")
        with request.clock.account("closed form"):
            model = fit()
    except KeyboardInterrupt:
        return fall_back(request, "Training was interrupted before it was done", interrupted=True)
    return Trained(model, request.name, {}, [], [], request.clock.accounts(), "", request.task.labels)


def fit_response(request: Request) -> Trained:
    """The default; ridge where there was no time to prepare it."""
    from feasibly.train.constants import find_constants
    from feasibly.train.response import train_response

    task, constants = request.task, request.constants
    solved = task.solved
    if solved is None:
        raise ValueError("response learns from labels with their costs; make the task with `solved`")
    if constants is None:
        constants = find_constants(
            task.problem,
            solved,
            ridge_of(request),
            request.clock,
            seed=task.seed,
            share=0.5,
            alone=False,
            tell=request.tell,
        )
        request = replace(request, constants=constants)
    if constants.driver is None:
        return fall_back(request, constants.note)
    try:
        model, driver, extra = train_response(request, constants.first, constants.driver)
    except KeyboardInterrupt:
        return fall_back(request, "Training was interrupted before anything was learnt", interrupted=True)
    note = extra.pop("note", "")
    accounts = request.clock.accounts()
    return Trained(model, request.name, extra, [], [], accounts, note, task.labels, driver=driver)


def fall_back(request: Request, why: str, *, interrupted: bool = False) -> Trained:
    """The ridge model, under its own name and with a note that says what was asked for and why it is not."""
    request.tell("closed form")
    with request.clock.account("closed form"):
        model = ridge_of(request)
    advice = "" if interrupted else "; give it a larger budget"
    note = f"{why}, so this is the closed-form ridge model instead of {request.name}{advice}."
    if request.name == "ridge":
        note = f"{why}."
    return Trained(model, "ridge", {}, [], [], request.clock.accounts(), note, request.task.labels)
