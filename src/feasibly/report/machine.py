"""Where figures come from: the machine, the cores that were used, the versions and the commit."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from pathlib import Path
from typing import Any

from feasibly.data.schema import versions_now


def describe_machine(cores_used: int | None = None) -> dict[str, Any]:
    """Plain values for a result file. `cores_used` is what one training had; all that may be used unless told."""
    return {
        "machine": platform.machine(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "cores_used": cores_available() if cores_used is None else cores_used,
        "commit": commit(),
        "versions": versions_now(),
    }


def cores_available() -> int:
    """The cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def commit() -> str:
    """The commit this code was checked out from, marked where it was changed since; empty outside a checkout."""
    package = Path(__file__).parents[1]
    if not _git(package, "ls-files", "__init__.py"):  # installed, perhaps inside somebody else's checkout
        return ""
    found = _git(package, "rev-parse", "HEAD")
    changed = _git(package, "status", "--porcelain", "--untracked-files=no", "--", ".")
    return f"{found}+changes" if changed else found


def _git(folder: Path, *words: str) -> str:
    try:
        done = subprocess.run(
            ["git", *words], cwd=folder, capture_output=True, text=True, check=False, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        match = re.search(r"model name\s*:\s*(.+)", info.read_text())
        if match:
            return match[1].strip()
    return platform.processor()
