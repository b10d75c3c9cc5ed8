"""What a fresh clone relies on: the Makefile, pinned versions, a package that imports lightly."""

from __future__ import annotations

import datetime
import os
import re
import shutil
import stat
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PINS = [
    line
    for line in (ROOT / "constraints.txt").read_text().splitlines()
    if line.strip() and not line.startswith("#")
]


def test_constraints_are_plain_pins() -> None:
    for line in PINS:
        assert re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!]+", line), line
    names = [_plain(line) for line in PINS]
    assert len(names) == len(set(names))


def test_every_dependency_is_pinned_within_its_range() -> None:
    from packaging.requirements import Requirement

    pins = {_plain(line): line.partition("==")[2] for line in PINS}
    lists = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
    skipped = {"feasibly", "pypower"}  # itself, and what benchmarks alone use
    for text in (text for some in lists for text in some):
        requirement = Requirement(text)
        if requirement.name not in skipped:
            assert requirement.specifier.contains(pins[_plain(requirement.name)]), text


def _plain(line: str) -> str:
    return re.sub(r"[-_.]+", "-", line.partition("==")[0]).lower()


def test_the_stated_python_range_holds_here() -> None:
    from packaging.specifiers import SpecifierSet

    assert PROJECT["requires-python"] == ">=3.11,<3.14"
    assert SpecifierSet(PROJECT["requires-python"]).contains(".".join(map(str, sys.version_info[:3])))


def test_ci_runs_make_test() -> None:
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & stat.S_IXUSR
    assert "make test" in script.read_text()


def test_types_and_license_ship() -> None:
    assert (ROOT / "src" / "feasibly" / "py.typed").is_file()
    assert (ROOT / "LICENSE").is_file()


def test_importing_is_light_and_silent() -> None:
    """No solver, plotting or cluster, no printing, no change to JAX's settings."""
    code = (
        "import sys, feasibly\n"
        "heavy = {'casadi', 'matplotlib', 'jinja2', 'distributed', 'dask', 'ray', 'pandapower', 'pypsa'}\n"
        "heavy &= set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "import jax, jax.numpy as jnp\n"
        "assert jnp.ones(1).dtype == jnp.float32\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_nothing_names_a_machine_or_a_registry() -> None:
    """What is committed holds on any machine: no absolute home, no host that packages come from."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    unwanted = re.compile(r"--(extra-)?index-url|find-links|file://|https?://[^\s)]*/simple|/home/|/root/")
    for name in listed.stdout.splitlines():
        path = ROOT / name
        if path == Path(__file__) or not path.is_file():
            continue
        text = path.read_bytes().decode("utf-8", errors="ignore")
        found = unwanted.search(text)
        assert found is None, f"{name}: {found and found.group()}"


MAKE = shutil.which("make")


def _make(folder: Path, *arguments: str, python: str | None = None) -> subprocess.CompletedProcess[str]:
    assert MAKE is not None
    told = [] if python is None else [f"PYTHON={python}"]
    return subprocess.run([MAKE, *told, *arguments], cwd=folder, capture_output=True, text=True, check=False)


def _fake_python(folder: Path, body: str) -> str:
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Just what make looks at before it installs anything."""
    folder = tmp_path / "clone"
    folder.mkdir()
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, folder)
    return folder


@pytest.mark.skipif(MAKE is None, reason="make is not installed")
class TestMake:
    def test_a_python_that_is_not_there(self, clone: Path) -> None:
        done = _make(clone, "test", python="python-that-is-nowhere")
        assert done.returncode == 2
        assert "There is no python-that-is-nowhere here; name a Python 3.11, 3.12 or 3.13" in done.stderr

    def test_a_python_that_is_too_old(self, clone: Path) -> None:
        old = _fake_python(clone, 'case "$1" in --version) echo "Python 3.8.1";; *) exit 1;; esac')
        done = _make(clone, "demo", python=old)
        assert done.returncode == 2
        assert "needs Python 3.11, 3.12 or 3.13" in done.stderr
        assert "Python 3.8.1" in done.stderr

    def test_a_python_without_venv(self, clone: Path) -> None:
        """As Debian ships it: everything works but ensurepip."""
        split = _fake_python(
            clone, f'case "$2" in *ensurepip*) exit 1;; *) exec "{sys.executable}" "$@";; esac'
        )
        done = _make(clone, "test", python=split)
        assert done.returncode == 2
        assert "apt install python3-venv" in done.stderr
        assert not (clone / ".venv").exists()

    @pytest.mark.parametrize("target", ["demo", "lint"])
    def test_a_second_call_installs_nothing(self, clone: Path, target: str) -> None:
        """With the stamps in place and nothing newer, make has no installing left to do."""
        (clone / ".venv").mkdir()
        for name in ("Makefile", "pyproject.toml", "constraints.txt"):
            os.utime(clone / name, (1000.0, 1000.0))
        # Times are set, not taken: make calls a target old only where the times differ, and clocks of files are coarse.
        for stamp, moment in ((".made", 2000.0), (".demo", 3000.0), (".dev", 3000.0)):
            (clone / ".venv" / stamp).touch()
            os.utime(clone / ".venv" / stamp, (moment, moment))
        assert "pip" not in _make(clone, "-n", target).stdout
        os.utime(clone / "constraints.txt", (4000.0, 4000.0))
        assert "pip" in _make(clone, "-n", target).stdout


def test_what_a_package_index_and_a_citation_need() -> None:
    import yaml

    assert PROJECT["authors"]
    assert {f"Programming Language :: Python :: 3.{minor}" for minor in (11, 12, 13)} <= set(
        PROJECT["classifiers"]
    )
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    version = re.search(r'"(.*)"', (ROOT / "src" / "feasibly" / "_version.py").read_text().splitlines()[-1])
    assert version is not None
    assert (cited["version"], cited["license"]) == (version[1], PROJECT["license"])
    if "dev" not in cited["version"]:
        assert datetime.date.fromisoformat(cited["date-released"])
    readme = " ".join((ROOT / "README.md").read_text().split())
    (paper,) = cited["references"]
    assert paper["title"] in readme
    assert f"ICML {paper['year']}" in readme
    assert [author["family-names"] for author in paper["authors"]] == re.findall(
        r"\w+", readme.rpartition("proxy of ")[2].partition(", *")[0].replace(" and ", ", ")
    )
    addresses = PROJECT.get("urls", {})
    stated = (
        cited.get("repository-code"),
        yaml.load(  # its hooks are Python names, which only MkDocs can read
            (ROOT / "mkdocs.yml").read_text(), yaml.BaseLoader
        ).get("repo_url"),
    )
    if not any(stated):
        assert set(addresses) == {"Paper"}, (
            "the project has no public address yet: one that is given was made up"
        )
    else:
        assert {"Documentation", "Source", "Changelog", "Issues"} <= set(addresses)
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    assert {hook["entry"].split()[0] for hook in hooks} == {
        f".venv/bin/{tool}" for tool in ("ruff", "mypy", "lint-imports")
    }


def test_every_file_and_folder_is_described_and_under_contract() -> None:
    """Of the package's top: a new one needs its line in the design and its place in the import contract."""
    top = [
        path.name
        for path in (ROOT / "src" / "feasibly").iterdir()
        if path.suffix == ".py" or (path / "__init__.py").is_file()
    ]
    design = (ROOT / "docs" / "design.md").read_text()
    here = {path if path.endswith(".py") else f"{path}/" for path in top}
    assert here <= set(re.findall(r"`(\w+(?:\.py|/))`", design))
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = (contract["layers"] for contract in contracts if contract["type"] == "layers")
    placed = {name.split(".")[1] for layer in layers for name in re.findall(r"feasibly[\w.]+", layer)}
    assert placed == {path.removesuffix(".py") for path in top} - {"__init__"}
