"""What the tests of this room share: two real trainings, one here and one in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import feasibly as fb
from feasibly.report import reproduce as module
from feasibly.report import studies
from feasibly.report.compare import Comparison, compare
from feasibly.report.published import TABLE_57, PublishedTable
from feasibly.report.reproduce import Reproduction, reproduce
from tests.grids import GRID3
from tests.problems import CASES, make

LABELS, TESTS = 40, 20


@pytest.fixture(scope="session")
def toy_data() -> fb.Dataset:
    """The toy problem's rows, solved in closed form."""
    problem = make("toy")
    optimum = CASES["toy"].optimum
    assert optimum is not None
    x = fb.sample(problem, LABELS + TESTS, seed=0)
    return fb.Dataset.from_arrays(problem, x, optimum(x))


@pytest.fixture(scope="session")
def toy_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("toy") / "store"


@pytest.fixture(scope="session")
def toy_comparison(toy_data: fb.Dataset, toy_store: Path) -> Comparison:
    """Ridge on the toy problem, trained in this process; the store keeps the cells and the proxy."""
    return compare(toy_data, ["ridge"], ["mean", "svp"], budget=20.0, labels=LABELS, store=toy_store)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> PublishedTable:
    """The paper's first table as if it had been made on a grid of three buses."""
    case = GRID3.write(tmp_path_factory.mktemp("grid") / "grid.json")
    return replace(TABLE_57, case=str(case), labels=LABELS, tests=TESTS, unlabelled=8, budget=1000.0)


@pytest.fixture(scope="session")
def patched(tiny: PublishedTable) -> Iterator[PublishedTable]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "TABLES", {"table-57": (tiny,)})
        patch.setattr(studies, "GRIDS", (tiny,))
        patch.setattr(studies, "TABLE_118", tiny)
        yield tiny


@pytest.fixture(scope="session")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reproduced")


@pytest.fixture(scope="session")
def reproduced(patched: PublishedTable, out: Path) -> Reproduction:
    """That table made by a real training of ridge in a process of its own, at half the budget."""
    return reproduce("table-57", 0.5, out, methods=("ridge",), answers=("mean", "conditioned"))
