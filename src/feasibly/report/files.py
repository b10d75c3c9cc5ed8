"""Files that appear whole or not at all, and values as JSON can say them."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from feasibly.problem.errors import FeasiblyError


class ReportError(FeasiblyError):
    """A comparison, reproduction or report that cannot be made as asked."""


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file in one go: a reader sees the old content or the new, never a part of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        partial.write_bytes(content if isinstance(content, bytes) else content.encode())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def to_json(value: Any) -> str:
    """A JSON document, with `null` for what JSON has no number for, and a newline at its end."""
    return json.dumps(plain(value), indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def plain(value: Any) -> Any:
    """`value` as JSON can say it: NaN and infinity become `None`, arrays lists."""
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)


def read_json(path: Path) -> Any:
    """The document in a file, or a sentence about why it is none."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ReportError(
            f"{path} cannot be read as JSON: {error}; remove it to have it made again"
        ) from None
