"""Every method in one place: whoever lists, offers, draws or trains methods derives that from here.

Nothing heavy is imported before a method is asked for, so that the command line's help can list them. Packages that
are installed offer theirs as entry points of the group `feasibly.methods`, each a `Method` or several: those are there
in every process, for the command line and for workers too.
"""

from __future__ import annotations

import re
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

from feasibly.problem.errors import FeasiblyError

if TYPE_CHECKING:
    from feasibly.train.task import Trained
    from feasibly.train.training import Request

DEFAULT_METHOD = "response"

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")

GROUP = "feasibly.methods"
"""The entry points under which packages offer methods."""


class MethodWarning(UserWarning):
    """A method that a package offers and that is not to be had."""


def _no_settings() -> None:
    """For methods that have none."""


@dataclass(frozen=True)
class Method:
    """A way to learn, for `register`."""

    name: str
    summary: str
    """One line for lists and help."""
    fit: Callable[[Request], Trained]
    """Takes a `feasibly.train.training.Request` and gives a `feasibly.train.task.Trained`."""
    make_settings: Callable[[], Any] = _no_settings
    """Gives a frozen dataclass with the method's default settings, or `None` when it has none."""
    closed: bool = False
    """Whether it is a formula, and so quick to fit again."""
    unlabelled: bool = True
    """Whether it learns from inputs without labels."""
    fewest: int = 4
    """Labels that it needs."""
    trials: bool = False
    """Whether it starts anew as often as `Request.trials` says, and keeps the best."""
    steps: bool = False
    """Whether it takes the steps of `Request.replay` again."""
    fixed: tuple[str, ...] = ()
    """Settings that make it what it is, or that it does not look at: nobody else may choose them."""

    @property
    def settings(self) -> Any:
        """The default settings."""
        return self.make_settings()


_METHODS: dict[str, Method] = {}
_EVERYWHERE: set[str] = set()
"""Names that other processes know too."""
_BROKEN: dict[str, str] = {}
"""Why methods that packages offer are not to be had."""
_WAITING = [GROUP]
"""Empty once the packages were asked."""
_LOCK = threading.RLock()


def _known() -> dict[str, Method]:
    """All methods; packages are asked for theirs the first time, not when this is imported."""
    with _LOCK:
        while _WAITING:
            _ask_packages(_WAITING.pop())
    return _METHODS


def _ask_packages(group: str) -> None:
    from importlib.metadata import entry_points

    for point in entry_points(group=group):
        try:
            given = point.load()
            for method in given if isinstance(given, list | tuple) else [given]:
                if not isinstance(method, Method):
                    raise TypeError(f"{point.value} is not a feasibly.Method but {method!r}")
                if _METHODS.get(method.name) is not method:  # else its module has registered it by itself
                    register(method)
                _EVERYWHERE.add(method.name)
        except Exception as error:  # whatever is wrong with another's package, the other methods are there
            who = point.dist.name if point.dist is not None else point.value
            why = " ".join(str(error).split()) or type(error).__name__
            _BROKEN[point.name] = f"the method {point.name!r} of the package {who} cannot be used: {why}"
            warnings.warn(_BROKEN[point.name], MethodWarning, stacklevel=2)


class Names(Sequence[str]):
    """The names of all methods, in the order in which tables show them; what is registered later joins them."""

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        return tuple(_known())[index]

    def __len__(self) -> int:
        return len(_known())

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(_known()))

    def __contains__(self, name: object) -> bool:
        return name in _known()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))


METHODS = Names()


def register(method: Method) -> Method:
    """Add a method, for `fit` and everyone else in this process; a name is taken once.

    Raises:
        FeasiblyError: the name is taken, or no name.
    """
    if not isinstance(method, Method):
        raise FeasiblyError(f"register takes a feasibly.Method, not {method!r}")
    if not isinstance(method.name, str) or not _NAME.fullmatch(method.name):
        raise FeasiblyError(
            f"a method's name has small letters, digits and hyphens, such as my-method, not {method.name!r}"
        )
    if method.name in _METHODS:
        raise FeasiblyError(f"a method {method.name!r} is registered already; choose another name")
    _METHODS[method.name] = method
    return method


@contextmanager
def scope(*, ask: bool = False) -> Iterator[None]:
    """What is registered inside is forgotten afterwards; with `ask`, packages are asked for theirs again."""
    methods, everywhere, broken, waiting = dict(_METHODS), set(_EVERYWHERE), dict(_BROKEN), list(_WAITING)
    if ask:
        _WAITING[:] = [GROUP]
    try:
        yield
    finally:
        _METHODS.clear()
        _METHODS.update(methods)
        _EVERYWHERE.clear()
        _EVERYWHERE.update(everywhere)
        _BROKEN.clear()
        _BROKEN.update(broken)
        _WAITING[:] = waiting


def find(name: str) -> Method:
    """The method of that name, or an error that lists the names there are."""
    known = _known()
    if name not in known:
        raise FeasiblyError(
            _BROKEN.get(name) or f"there is no method {name!r}; choose one of {', '.join(known)}"
        )
    return known[name]


def is_everywhere(name: str) -> bool:
    """Whether other processes know the method too: those here, and those that packages offer."""
    return name in _known() and name in _EVERYWHERE


def closed_form() -> tuple[str, ...]:
    """The names of the methods that are quick to fit again."""
    return tuple(name for name, method in _known().items() if method.closed)


# ---- the methods there are ---------------------------------------------------------------------------------


def _ridge(request: Request) -> Trained:
    from feasibly.train.closed import fit_ridge

    return fit_ridge(request)


def _gp(request: Request) -> Trained:
    from feasibly.train.closed import fit_gp

    return fit_gp(request)


def _response(request: Request) -> Trained:
    from feasibly.train.closed import fit_response

    return fit_response(request)


def _penalty(request: Request) -> Trained:
    from feasibly.train.deterministic import PenaltyLearner
    from feasibly.train.training import by_steps

    return by_steps(request, PenaltyLearner, 30.0)


def _sandwich_dnn(request: Request) -> Trained:
    from feasibly.train.deterministic import SandwichNetworkLearner
    from feasibly.train.training import by_steps

    return by_steps(request, SandwichNetworkLearner, 50.0)


def _bayesian(request: Request) -> Trained:
    from feasibly.train.bayesian import BayesianLearner
    from feasibly.train.training import by_steps

    return by_steps(request, BayesianLearner, 75.0 if request.settings.rounds else 45.0)


def _penalty_settings(loss: str, constraints: str) -> Callable[[], Any]:
    def make() -> Any:
        from feasibly.train.deterministic import PenaltySettings

        return PenaltySettings(loss=loss, constraints=constraints)

    return make


def _sandwich_settings() -> Any:
    from feasibly.train.deterministic import SandwichSettings

    return SandwichSettings()


def _bayesian_settings() -> Any:
    from feasibly.train.bayesian import BayesianSettings

    return BayesianSettings()


def _supervised_settings() -> Any:
    from feasibly.train.bayesian import BayesianSettings

    return BayesianSettings(rounds=0)


_BY_STEPS: dict[str, Any] = {"trials": True, "steps": True}
_LOSS = ("loss", "constraints")
_DUAL = ("dual_step", "dual_kick_in", "dual_every")
_PLAIN: dict[str, Any] = {**_BY_STEPS, "unlabelled": False, "fixed": (*_LOSS, *_DUAL, "multiplier")}
_WEIGHTED: dict[str, Any] = {**_PLAIN, "fixed": (*_LOSS, *_DUAL)}
_BY_DUALS: dict[str, Any] = {**_PLAIN, "fixed": (*_LOSS, "multiplier")}
_WITHOUT_TURNS: dict[str, Any] = {
    **_BY_STEPS,
    "fixed": (
        "rounds", "sup_share", "closing_share", "unlabelled_batch", "feasibility_variance", "free_biases",
        "patience_unsup",
    ),
}  # fmt: skip

for _method in (
    Method("ridge", "ridge regression, in closed form", _ridge, closed=True, unlabelled=False, fewest=2),
    Method("gp", "a Gaussian process, in closed form", _gp, closed=True, unlabelled=False, fewest=2),
    Method(
        "mae", "mean absolute error with a bound-repair layer", _penalty, _penalty_settings("mae", "none"),
        **_PLAIN,
    ),
    Method(
        "mse", "mean squared error with a bound-repair layer", _penalty, _penalty_settings("mse", "none"),
        **_PLAIN,
    ),
    Method(
        "mae-penalty", "mean absolute error and penalised violations", _penalty, _penalty_settings("mae", "penalty"),
        **_WEIGHTED,
    ),
    Method(
        "mse-penalty", "mean squared error and penalised violations", _penalty, _penalty_settings("mse", "penalty"),
        **_WEIGHTED,
    ),
    Method(
        "lagrangian-dual", "mean absolute error and violations with learnt multipliers", _penalty,
        _penalty_settings("mae", "dual"), **_BY_DUALS,
    ),
    Method(
        "supervised-bnn", "a Bayesian network trained on labels", _bayesian, _supervised_settings,
        **_WITHOUT_TURNS,
    ),
    Method(
        "sandwich-bnn", "a Bayesian network trained by turns on labels and on feasibility", _bayesian,
        _bayesian_settings, **_BY_STEPS,
    ),
    Method(
        "sandwich-dnn", "a network trained by turns on labels and on feasibility", _sandwich_dnn, _sandwich_settings,
        **_BY_STEPS,
    ),
    Method(
        DEFAULT_METHOD, "the optimum's first-order response, corrected on labels and on its own conditioned answers",
        _response, closed=True, fewest=1,
    ),
):  # fmt: skip
    _EVERYWHERE.add(register(_method).name)
