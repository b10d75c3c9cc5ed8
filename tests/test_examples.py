"""The examples in docstrings of public names run, one after the other: later ones go on where `fit`'s left off."""

from __future__ import annotations

import doctest
from typing import Any

import numpy as np

import feasibly as fb

FIRST = ("load_problem", "sample", "fit", "evaluate", "certify", "compare")


def _examples() -> list[doctest.DocTest]:
    """Those of all public names, the ones that others build on first."""
    names = [*FIRST, *(name for name in fb.__all__ if name not in FIRST and callable(getattr(fb, name)))]
    found = [
        test for name in names for test in doctest.DocTestFinder().find(getattr(fb, name), name, globs={})
    ]
    return [test for test in found if test.examples]


def test_examples_do_what_they_show() -> None:
    """One test for all: what an example leaves behind is what the next one finds."""
    found = _examples()
    assert [test.name for test in found[: len(FIRST)]] == list(FIRST)
    names: dict[str, Any] = {"fb": fb, "np": np}
    said: list[str] = []
    for test in found:
        test.globs = names
        doctest.DocTestRunner(verbose=False).run(test, clear_globs=False, out=said.append)
    assert not said, "".join(said)
