"""Files that appear whole or not at all, and are never replaced unasked."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

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
    """A path beside `path` to write to; it becomes `path`, file or folder, once all went well.

    A file is replaced in one go. A folder cannot be, so the one before it steps aside and comes back should
    the new one not take its place.
    """
    with signals.writing():
        yield from _written(path)


def _written(path: Path) -> Iterator[Path]:
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield partial
        if path.is_dir() and not path.is_symlink():
            _replace_folder(partial, path)
        else:
            partial.replace(path)
    except OSError as error:
        raise FileError(f"{path} cannot be written: {error.strerror or error}") from error
    finally:
        _remove(partial)


def _replace_folder(new: Path, path: Path) -> None:
    aside = path.with_name(f".{path.name}.{os.getpid()}.old")
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
