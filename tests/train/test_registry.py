"""Methods of others: registered here, or offered by packages to every process."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest

import feasibly as fb
from feasibly.train import registry
from tests.problems import CASES, make

MODULE = """
import dataclasses
import feasibly as fb
from feasibly.train.registry import find

offered = dataclasses.replace(find("ridge"), name="offered", summary="ridge of a package")
other = fb.register(dataclasses.replace(offered, name="by-itself"))
taken = dataclasses.replace(offered, name="mae")
number = 7
"""


def _package(folder: Path, **points: str) -> Path:
    """A package as pip leaves it, with a module and entry points."""
    (folder / "others.py").write_text(MODULE)
    info = folder / "others-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: others\nVersion: 1.0\n")
    lines = [f"{name} = {value}" for name, value in points.items()]
    (info / "entry_points.txt").write_text("\n".join([f"[{registry.GROUP}]", *lines, ""]))
    return folder


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A registry that has not asked the packages yet, and a folder that is searched for them."""
    monkeypatch.setattr(registry, "_METHODS", dict(registry._METHODS))
    monkeypatch.setattr(registry, "_EVERYWHERE", set(registry._EVERYWHERE))
    monkeypatch.setattr(registry, "_BROKEN", {})
    monkeypatch.setattr(registry, "_WAITING", [registry.GROUP])
    monkeypatch.delitem(sys.modules, "others", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def _toy() -> tuple[fb.Problem, fb.Dataset]:
    problem = make("toy")
    x = fb.sample(problem, 30, seed=1)
    return problem, fb.Dataset.from_arrays(problem, x, CASES["toy"].optimum(x))


def test_packages_offer_methods(fresh: Path) -> None:
    _package(fresh, offered="others:offered", itself="others:other")
    assert set(fb.METHODS[-2:]) == {"by-itself", "offered"}
    problem, data = _toy()
    assert fb.fit(problem, data, "offered", budget=1e-9).method == "offered"
    assert registry.is_everywhere("offered")
    assert registry.is_everywhere("by-itself")
    sys.modules.pop("others")


def test_what_is_registered_here_is_not_everywhere(fresh: Path) -> None:
    fb.register(dataclasses.replace(registry.find("ridge"), name="here"))
    assert not registry.is_everywhere("here")
    assert registry.is_everywhere("ridge")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("others:missing", "no attribute 'missing'"),
        ("nowhere:offered", "No module named 'nowhere'"),
        ("others:number", "others:number is not a feasibly.Method but 7"),
        ("others:taken", "a method 'mae' is registered already"),
    ],
)
def test_a_package_that_is_broken_costs_its_own_method_alone(fresh: Path, value: str, said: str) -> None:
    _package(fresh, broken=value)
    with pytest.warns(
        registry.MethodWarning, match=f"'broken' of the package others cannot be used: .*{said}"
    ):
        assert "ridge" in fb.METHODS
    with pytest.raises(fb.FeasiblyError, match=said):
        registry.find("broken")
    assert registry.find("mae").steps
    sys.modules.pop("others", None)


def _command(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "feasibly", *words], capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONPATH": str(folder)},
    )  # fmt: skip


def test_the_command_line_has_what_packages_offer(tmp_path: Path) -> None:
    _package(tmp_path, offered="others:offered", broken="others:missing")
    done = _command(tmp_path, "train", "--help")
    assert "offered" in done.stdout
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("the method 'broken' of the package others cannot be used: ")


def test_what_a_method_does_not_declare_is_refused(fresh: Path) -> None:
    problem, data = _toy()
    fb.register(fb.Method("mine", "mine", registry.find("mae").fit))
    with pytest.raises(fb.FeasiblyError, match="mine is trained once; leave trials out"):
        fb.fit(problem, data, "mine", trials=2)
    with pytest.raises(fb.FeasiblyError, match="leave steps out"):
        fb.fit(problem, data, "mine", steps=[])


def test_workers_have_what_packages_offer_and_nothing_else(
    fresh: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _package(fresh, offered="others:offered")
    monkeypatch.setenv("PYTHONPATH", str(fresh))
    data = fb.label(make("nonconvex"), count=12, seed=1, jobs=1)
    (row,) = fb.compare(data, ["offered"], ["mean"], labels=8, budget=1e-9, jobs=1).rows
    assert (row["method"], row["count"], row.get("failed")) == ("offered", data.n_labels - 8, None)
    fb.register(dataclasses.replace(registry.find("ridge"), name="here"))
    with pytest.raises(fb.FeasiblyError, match="'here' is registered in this process alone"):
        fb.compare(data, ["here"], ["mean"], labels=8, budget=1e-9, jobs=1)
    sys.modules.pop("others", None)
