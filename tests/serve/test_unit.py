"""The systemd unit of the documentation is one that systemd takes."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

UNIT = Path(__file__).parents[2] / "docs" / "files" / "feasibly.service"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")
def test_the_unit_passes_verify() -> None:
    done = subprocess.run(
        ["systemd-analyze", "verify", str(UNIT)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_the_unit_starts_a_command_that_exists() -> None:
    from typer.main import get_command

    from feasibly.cli import app

    (line,) = [line for line in UNIT.read_text().splitlines() if line.startswith("ExecStart=")]
    words = line.split()[1:]
    assert words[:2] == ["feasibly", "serve"]
    known = {option for parameter in get_command(app).commands["serve"].params for option in parameter.opts}  # type: ignore[attr-defined]
    assert {word for word in words if word.startswith("--")} <= known
