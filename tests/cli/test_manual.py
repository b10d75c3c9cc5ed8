"""docs/commands.md is what `--help` says. After a change: python -m tests.cli.test_manual"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

from feasibly.cli import app

PAGE = Path(__file__).parents[2] / "docs" / "commands.md"

HEAD = """# Commands

What `feasibly --help` and `feasibly COMMAND --help` print. Every command shows progress on standard error, prints
results on standard output (with `--json` one JSON document and nothing else), and leaves with status 0; 2 for input
that cannot be used, with a sentence that says why; 130 after Ctrl-C, with nothing half-written; and 1 for a bug, where
`--debug` (before or after the command) shows the traceback.
"""


def _walk(words: tuple[str, ...], command: Any, parent: Any) -> Iterator[tuple[tuple[str, ...], str]]:
    context = command.make_context(words[-1], [], parent=parent, resilient_parsing=True)
    context.terminal_width = context.max_content_width = 96
    yield words, command.get_help(context)
    for name, inner in getattr(command, "commands", {}).items():
        yield from _walk((*words, name), inner, context)


def manual() -> str:
    """The page."""
    parts = [HEAD]
    for words, text in _walk(("feasibly",), get_command(app), None):
        lines = "\n".join(line.rstrip() for line in text.splitlines())
        parts.append(f"## {' '.join(words)}\n\n```text\n{lines}\n```\n")
    return "\n".join(parts)


def test_the_page_is_what_help_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == manual(), "run: python -m tests.cli.test_manual"


if __name__ == "__main__":
    PAGE.write_text(manual(), encoding="utf-8")
