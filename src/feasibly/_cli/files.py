"""Files that appear whole or not at all, and are never replaced unasked."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from feasibly import _files
from feasibly._cli import signals
from feasibly.problem.errors import FeasiblyError


class FileError(FeasiblyError):
    """A file or folder that cannot be read or written as asked."""


def check_target(path: Path, *, force: bool) -> None:
    """Make sure, before any work is done for it, that `path` can be written.

    Raises:
        FileError: it is there already and `force` is not set, or its folder cannot be written.
    """
    if (path.exists() or path.is_symlink()) and not force:
        raise FileError(f"{path} exists already; choose another path, or pass --force to replace it")
    folder = path.absolute().parent
    while not folder.exists():
        folder = folder.parent
    if not folder.is_dir():
        raise FileError(f"{path} cannot be written: {folder} is a file, not a folder")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise FileError(f"{path} cannot be written: you may not write in {folder}")


@contextlib.contextmanager
def writing(path: Path) -> Iterator[Path]:
    """A path beside `path` to write to, which becomes `path` once all went well; signals wait until it has."""
    with signals.writing():
        try:
            with _files.writing(path) as partial:
                yield partial
        except OSError as error:
            raise FileError(f"{path} cannot be written: {error.strerror or error}") from error
