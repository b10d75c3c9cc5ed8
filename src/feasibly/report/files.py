"""Documents of reports: JSON out and in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from feasibly._files import plain
from feasibly.problem.errors import FeasiblyError


class ReportError(FeasiblyError):
    """A comparison, reproduction or report that cannot be made as asked."""


def to_json(value: Any) -> str:
    """A JSON document, with `null` for what JSON has no number for, and a newline at its end."""
    return json.dumps(plain(value), indent=1, allow_nan=False, ensure_ascii=False) + "\n"


def read_json(path: Path) -> Any:
    """The document in a file, or a sentence about why it is none."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ReportError(
            f"{path} cannot be read as JSON: {error}; remove it to have it made again"
        ) from None
