"""Methods of others: registered here, or offered by packages to every process."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Iterator
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
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A registry that has not asked the packages yet, and a folder that is searched for them."""
    monkeypatch.delitem(sys.modules, "others", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    with registry.scope(ask=True):
        yield tmp_path


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


@pytest.mark.parametrize(
    ("method", "settings", "said"),
    [
        ("mae", {"loss": "mse"}, "mae does not have 'loss' to choose"),
        ("mae", {"multiplier": 5.0}, "'multiplier' to choose"),
        ("mae-penalty", {"dual_every": 2}, "'dual_every' to choose"),
        ("supervised-bnn", {"rounds": 2}, "'rounds' to choose"),
        ("mae", {"hidden_layers": -1}, "'hidden_layers' of 'mae' is a whole number of at least 0, not -1"),
        (
            "mae",
            {"width": -1.0, "repair": "banana"},
            "'width' of 'mae' is a number above 0.*'repair' of 'mae' is one of sigmoid, clip",
        ),
        ("lagrangian-dual", {"dual_every": 0}, "of at least 1, not 0"),
        ("sandwich-bnn", {"estimator": "x"}, "one of shared, local"),
        ("sandwich-bnn", {"sup_share": 1.5}, "of at least 0 and of at most 1, not 1.5"),
        ("sandwich-dnn", {"learning_rate": float("nan")}, "a number above 0, not nan"),
    ],
)
def test_settings_that_a_method_cannot_honour_are_refused(method: str, settings: dict, said: str) -> None:
    problem, data = _toy()
    with pytest.raises(fb.FeasiblyError, match=said):
        fb.fit(problem, data, method, budget=5, **settings)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"seed": -1}, "a seed is a whole number"),
        ({"seed": 1.5}, "a seed is a whole number"),
        ({"budget": "10"}, "positive number of seconds"),
        ({"unlabelled": 3.7}, "how many inputs to draw"),
        ({"unlabelled": 30}, "mae learns from labels alone"),
        ({"progress": 3}, "progress is a function"),
        ({"steps": []}, "those of another run"),
        ({"steps": "abc"}, "those of another run"),
        ({"steps": [{"a": 1}]}, "those of another run"),
        ({"steps": [{"trial": 1, "place": 0, "chunks": [3]}]}, "more than 1 trials"),
    ],
)
def test_arguments_that_mean_nothing_are_refused(wrong: dict, said: str) -> None:
    problem, data = _toy()
    with pytest.raises(fb.FeasiblyError, match=said):
        fb.fit(problem, data, "mae", **{"budget": 5, **wrong})


def test_what_is_no_method_is_not_registered(fresh: Path) -> None:
    for given, said in (
        ("x", "takes a feasibly.Method"),
        (dataclasses.replace(registry.find("ridge"), name=""), "small letters"),
        (dataclasses.replace(registry.find("ridge"), name="a/b"), "small letters"),
    ):
        with pytest.raises(fb.FeasiblyError, match=said):
            fb.register(given)  # type: ignore[arg-type]
    problem, data = _toy()
    fb.register(fb.Method("silent", "gives nothing", lambda request: None))  # type: ignore[arg-type, return-value]
    told: list[str] = []
    with pytest.raises(fb.FeasiblyError, match="should give a feasibly"):
        fb.fit(problem, data, "silent", budget=0.3, progress=lambda moment: told.append(moment.stage))
    assert told


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
