"""Files that appear whole or not at all, and values as JSON can say them."""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any


@contextlib.contextmanager
def writing(path: Path) -> Iterator[Path]:
    """A path beside `path` to write to; it becomes `path`, file or folder, once all went well.

    A file is replaced in one go. A folder cannot be, so the one before it steps aside and comes back should the new one
    not take its place. Whoever else writes the same has a path of their own: the last one stays.
    """
    mark = f"{os.getpid()}-{secrets.token_hex(4)}"
    partial = path.with_name(f".{path.name}.{mark}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield partial
        if path.is_dir() and not path.is_symlink():
            _replace_folder(partial, path, path.with_name(f".{path.name}.{mark}.old"))
        else:
            partial.replace(path)
    finally:
        _remove(partial)


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file in one go: a reader sees the old content or the new, never a part of it."""
    with writing(path) as partial:
        partial.write_bytes(content if isinstance(content, bytes) else content.encode())


def _replace_folder(new: Path, path: Path, aside: Path) -> None:
    path.rename(aside)
    try:
        new.rename(path)
    except BaseException:
        aside.rename(path)
        raise
    _remove(aside)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()


def plain(value: Any) -> Any:
    """`value` as JSON can say it: NaN and infinity become `None`, arrays lists, members of enums their names."""
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(inner) for inner in value]
    if hasattr(value, "tolist"):  # NumPy's arrays and numbers, without importing it
        return plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)
