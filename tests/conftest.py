"""Fixtures for everyone: the table of small problems, by name."""

from __future__ import annotations

import signal

import pytest
from hypothesis import settings

from feasibly.data.dataset import Dataset
from feasibly.problem.core import Problem
from tests.certified import solved
from tests.problems import make

# Shared machines have slow moments: an example is judged by what it finds, not by how long it takes.
settings.register_profile("house", deadline=None, derandomize=True)
settings.load_profile("house")

# Whoever runs the tests in the background of a shell has Ctrl-C ignored, here and in every process started from here;
# tests that press it would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def grid3() -> Problem:
    """Three buses, one binding limit."""
    return make("grid3")


@pytest.fixture(scope="session")
def grid6() -> Problem:
    """Six buses with one of everything."""
    return make("grid6")


@pytest.fixture(scope="session")
def toy() -> Problem:
    """Two outputs, an equality, an inequality, bounds, and a closed form."""
    return make("toy")


@pytest.fixture(scope="session")
def nonconvex20() -> Problem:
    """The paper's smaller nonconvex family member."""
    return make("nonconvex")


@pytest.fixture(scope="session")
def plain() -> Dataset:
    """Labels of a problem without constraints."""
    return solved("unconstrained", 300, 0)


@pytest.fixture(scope="session")
def toy_data() -> Dataset:
    """Labels of the toy problem."""
    return solved("toy", 320, 0)
