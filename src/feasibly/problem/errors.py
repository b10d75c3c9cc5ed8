"""Errors that list everything wrong at once, each naming its place."""

from __future__ import annotations

import contextlib
import numbers
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass


class FeasiblyError(Exception):
    """Anything a user can put right; the message is a sentence that says how."""


class GridWarning(UserWarning):
    """Something in a grid file that its reader should know of, and that does not stop it from being used."""


class CertificateWarning(UserWarning):
    """A model opened without its certificate, which no longer describes its answers."""


class ProofWarning(UserWarning):
    """A model opened without what its proofs are made from, which another version of the method learnt."""


_shell = ContextVar("shell", default=False)


@contextlib.contextmanager
def in_shell() -> Iterator[None]:
    """Say what is said inside to a reader of the command line: what Python calls an argument is an option there."""
    before = _shell.set(True)
    try:
        yield
    finally:
        _shell.reset(before)


def argument(name: str, value: str | None = None) -> str:
    """An argument as whoever asked would write it: `ignore="areas"`, or `--ignore areas` in a shell."""
    if _shell.get():
        return f"--{name.replace('_', '-')}" + ("" if value is None else f" {value}")
    return name if value is None else f'{name}="{value}"'


@dataclass(frozen=True)
class Fault:
    """One thing wrong: where it stands (`generator 3`, `equality`) and what is wrong there."""

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


def is_whole(value: object) -> bool:
    """Whether `value` is a whole number, of whatever type."""
    try:
        return bool(int(value) == value)  # type: ignore[call-overload]
    except (TypeError, ValueError, OverflowError):
        return False


def is_spread(value: object) -> bool:
    """Whether `value` can say how far inputs vary around nominal."""
    return isinstance(value, numbers.Real) and 0.0 <= float(value) < float("inf")


class ProblemError(FeasiblyError, ValueError):
    """A definition that cannot be used. `faults` lists every reason found."""

    def __init__(self, subject: str, faults: Sequence[Fault]) -> None:
        self.subject = subject
        self.faults = tuple(faults)
        if len(self.faults) == 1:
            message = f"{subject} cannot be used: {self.faults[0]}"
        else:
            listed = "\n".join(f"  - {fault}" for fault in self.faults)
            message = f"{subject} cannot be used, for {len(self.faults)} reasons:\n{listed}"
        super().__init__(message)


class MissingExtraError(FeasiblyError, ImportError):
    """An optional dependency is not installed."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs {package}; install it with: pip install 'feasibly[{extra}]'")
