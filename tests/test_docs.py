"""Every Python block in README and docs runs; every command they show exists, and so do its options."""

from __future__ import annotations

import importlib
import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from feasibly.train import registry

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
FENCE = re.compile(r"^```([a-z]*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
RUNNABLE = "getting-started.md"


@dataclass(frozen=True)
class Block:
    """A fenced block and where it starts."""

    language: str
    text: str
    line: int


def _blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for found in FENCE.finditer(text):
        yield Block(found.group(1), found.group(2), text[: found.start()].count("\n") + 2)


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


WITH_PYTHON = [page for page in PAGES if any(block.language == "python" for block in _blocks(page))]


@pytest.mark.parametrize("page", WITH_PYTHON, ids=_name)
def test_python_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In order, in one namespace, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    space: dict[str, Any] = {"__name__": "__main__"}
    with registry.scope():  # what a page registers goes with it
        for block in _blocks(page):
            if block.language == "python":
                # Blank lines keep the line numbers of a traceback those of the page.
                code = compile("\n" * (block.line - 1) + block.text, _name(page), "exec")
                exec(code, space)


def test_every_public_name_is_on_the_page_of_the_api() -> None:
    """By the place where its own text stands, and the text is one."""
    import feasibly as fb

    listed = re.findall(r"^::: (feasibly\.\S+)$", (ROOT / "docs" / "api.md").read_text(), re.MULTILINE)
    shown = {}
    for path in listed:
        home, _, name = path.rpartition(".")
        shown[name] = getattr(importlib.import_module(home), name)
    for name in set(fb.__all__) - {"__version__"}:
        public = getattr(fb, name)
        assert shown.get(name) is public, name
        assert not callable(public) or "see there" not in str(public.__doc__), name


def test_languages_are_known() -> None:
    """A block in a language nobody checks would rot unseen."""
    for page in PAGES:
        for block in _blocks(page):
            assert block.language in {"python", "bash", "text", "json", "csv"}, (_name(page), block.line)


def _shell_lines(page: Path) -> Iterator[list[str]]:
    for block in _blocks(page):
        if block.language == "bash":
            joined = block.text.replace("\\\n", " ")
            for line in joined.splitlines():
                words = shlex.split(line, comments=True)
                if words:
                    yield words


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_make_targets_exist(page: Path) -> None:
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for words in _shell_lines(page):
        if words[0] == "make":
            named = [word for word in words[1:] if "=" not in word]
            assert set(named) <= set(targets), words


# ---- the command line --------------------------------------------------------------------------------------


def _commands() -> dict[str, Any]:
    """Every command by its words: `label`, `import opfdata`, ..."""
    from typer.main import get_command

    from feasibly.cli import app

    found: dict[str, Any] = {}

    def walk(prefix: str, command: Any) -> None:
        if hasattr(command, "commands"):
            for name, inner in command.commands.items():
                walk(f"{prefix} {name}".strip(), inner)
        else:
            found[prefix] = command

    walk("", get_command(app))
    return found


def test_every_command_has_help_and_a_place_in_the_docs() -> None:
    commands = _commands()
    assert {"demo", "case", "label", "train", "predict", "evaluate"} <= set(commands)
    pages = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    for name, command in commands.items():
        assert (command.help or "").strip(), f"{name} has no help"
        assert f"feasibly {name}" in pages, f"{name} stands nowhere in README or docs"
        for parameter in command.params:
            if getattr(parameter, "help", None) is not None or parameter.param_type_name == "argument":
                continue
            pytest.fail(f"{name}: {parameter.name} has no help")


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_shown_commands_and_options_exist(page: Path) -> None:
    commands = _commands()
    for words in _shell_lines(page):
        if words[0] != "feasibly" or words[1].startswith("-"):
            continue
        name = " ".join(words[1:3]) if " ".join(words[1:3]) in commands else words[1]
        assert name in commands, words
        known = {option for parameter in commands[name].params for option in parameter.opts}
        known |= {option for parameter in commands[name].params for option in parameter.secondary_opts}
        used = {word.partition("=")[0] for word in words if word.startswith("--")} - {"--help"}
        assert used <= known, (_name(page), words, used - known)


def test_the_first_steps_run_as_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands of the first page a newcomer reads, one after the other, in an empty folder."""
    from typer.testing import CliRunner

    from feasibly.cli import app

    monkeypatch.chdir(tmp_path)
    for words in _shell_lines(ROOT / "docs" / RUNNABLE):
        if words[0] == "feasibly":
            done = CliRunner().invoke(app, words[1:])
            assert done.exit_code == 0, (words, done.output, done.exception)
    assert os.listdir(tmp_path)
