"""The examples in docstrings of public names run, one after the other: later ones go on where `fit`'s left off."""

from __future__ import annotations

import doctest
from typing import Any

import numpy as np
import pytest

import feasibly as fb

FIRST = ("load_problem", "sample", "fit", "evaluate", "certify", "compare")


def _examples() -> list[doctest.DocTest]:
    """Those of all public names, the ones that others build on first."""
    names = [*FIRST, *(name for name in fb.__all__ if name not in FIRST and callable(getattr(fb, name)))]
    found = [
        test for name in names for test in doctest.DocTestFinder().find(getattr(fb, name), name, globs={})
    ]
    return [test for test in found if test.examples]


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    """What an example finds and leaves."""
    return {"fb": fb, "np": np}


@pytest.mark.parametrize("test", _examples(), ids=lambda test: test.name)
def test_the_example_does_what_it_shows(test: doctest.DocTest, names: dict[str, Any]) -> None:
    test.globs = names
    said: list[str] = []
    failed, tried = doctest.DocTestRunner(verbose=False).run(test, clear_globs=False, out=said.append)
    assert tried
    assert not failed, "".join(said)


def test_the_first_names_have_one() -> None:
    assert [test.name for test in _examples()[: len(FIRST)]] == list(FIRST)
