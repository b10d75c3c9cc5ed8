"""One writer a store: a lock that the system lets go of when its process dies, however it dies."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType

from feasibly.data.schema import StoreError

NAME = ".lock"


class WriterLock:
    """Hold the only right to write the store in `folder` (which must exist) until `release`."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self._handle = _take(self._path, folder)

    def release(self) -> None:
        """Let go, and leave no file behind."""
        if self._handle is None:
            return
        self._path.unlink(missing_ok=True)
        os.close(self._handle)
        self._handle = None

    def __enter__(self) -> WriterLock:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def _take(path: Path, folder: Path) -> int | None:
    try:
        import fcntl
    except ImportError:
        raise StoreError(
            "writing a store needs file locks, which this system does not offer; use Linux or macOS"
        ) from None
    while True:
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StoreError(f"{folder} cannot be written: {error.strerror}") from None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            raise StoreError(
                f"another process is writing {folder}; wait for it to end, or choose another path"
            ) from None
        # The holder before us may have removed the file between our opening and locking it.
        try:
            if os.path.samestat(os.fstat(handle), os.stat(path)):
                return handle
        except FileNotFoundError:
            pass
        os.close(handle)
