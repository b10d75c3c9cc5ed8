"""The result of a screening on disk: Zarr arrays of hours by outages, written hours at a time, resumable.

A block of hours counts once `done` says so, which is written last: whatever is killed before is answered again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feasibly.data._lock import WriterLock
from feasibly.data.reading import first_line
from feasibly.data.schema import StoreError

FORMAT, VERSION = "feasibly-screening", 1

CELL = {
    "cost": ("f8", np.nan),
    "outcome": ("i1", -1),
    "violation": ("f8", np.nan),
    "lowest_voltage": ("f4", np.nan),
    "lowest_voltage_bus": ("i4", -1),
    "highest_voltage": ("f4", np.nan),
    "highest_voltage_bus": ("i4", -1),
    "loading": ("f4", np.nan),
    "loading_branch": ("i4", -1),
}
"""What every hour and outage has; buses and branches by position."""
ELEMENT = {
    "bus_lowest": ("bus", np.nan),
    "bus_highest": ("bus", np.nan),
    "branch_loading": ("branch", np.nan),
}
"""What every hour and element has: the worst over all outages."""


class Store:
    """A result to write, one process at a time, or to read."""

    def __init__(self, path: Path, group: Any, lock: WriterLock | None) -> None:
        self.path = path
        self._group = group
        self._lock = lock
        self.attributes: dict[str, Any] = dict(group.attrs)

    @staticmethod
    def create_or_resume(
        path: Path, header: dict[str, Any], sizes: dict[str, int], block: int, *, full: bool
    ) -> Store:
        """A new store, or the one that the same question began.

        Raises:
            StoreError: `path` holds something else, or the answers to another question.
        """
        import zarr

        fresh = not path.exists() or not any(path.iterdir()) if path.is_dir() or not path.exists() else False
        if path.exists() and not path.is_dir():
            raise StoreError(f"{path} is a file; name a folder for the result")
        path.mkdir(parents=True, exist_ok=True)
        lock = WriterLock(path)
        try:
            if not fresh:
                store = Store(path, _open(path, "r+"), lock)
                store._check_same(header)
                return store
            return Store(path, _create(zarr, path, header, sizes, block, full), lock)
        except BaseException:
            lock.release()
            raise

    @staticmethod
    def open(path: Path) -> Store:
        """A store to read, finished or not."""
        return Store(path, _open(path, "r"), None)

    def _check_same(self, header: dict[str, Any]) -> None:
        stored = self.attributes.get("question", {})
        changed = [key for key, value in header.items() if stored.get(key) != value]
        if changed:
            words = {
                "plan": "profile, outages or problem",
                "model": "model",
                "answer": "answer",
                "full": "--full",
            }
            what = " and ".join(words.get(key, key) for key in changed)
            raise StoreError(f"{self.path} holds a screening with another {what}; choose another path")

    @property
    def block(self) -> int:
        """Hours answered and stored together."""
        return int(self.attributes["block"])

    @property
    def done(self) -> NDArray[np.bool_]:
        """Which blocks of hours are there."""
        return np.asarray(self._group["done"][...]) > 0

    def read(self, name: str) -> NDArray[Any]:
        """One array, hours first.

        Raises:
            StoreError: a chunk of it does not pass its checksum.
        """
        try:
            return np.asarray(self._group[name][...])
        except (OSError, ValueError, RuntimeError) as error:
            raise StoreError(
                f"{self.path} is damaged: {name} cannot be read ({first_line(error)}); screen into a new one"
            ) from None

    def write(self, index: int, arrays: dict[str, NDArray[Any]]) -> None:
        """The arrays of one block of hours, then that it is there."""
        first = index * self.block
        for name, values in arrays.items():
            self._group[name][first : first + len(values)] = values
        self._group["done"][index] = 1

    def close(self) -> None:
        """Let another process write."""
        if self._lock is not None:
            self._lock.release()


def _open(path: Path, mode: Any) -> Any:
    import zarr

    try:
        attributes = json.loads((path / "zarr.json").read_text(encoding="utf-8"))["attributes"]
        found = attributes.get("format")
    except (OSError, ValueError, KeyError, AttributeError):
        raise StoreError(f"{path} is no result of a screening") from None
    if found != FORMAT:
        raise StoreError(f"{path} is a Zarr store, but no result of a screening")
    if not isinstance(attributes.get("version"), int) or attributes["version"] > VERSION:
        raise StoreError(f"{path} was written by a newer feasibly; upgrade it")
    return zarr.open_group(str(path), mode=mode, zarr_format=3)


def _create(
    zarr: Any, path: Path, header: dict[str, Any], sizes: dict[str, int], block: int, full: bool
) -> Any:
    from zarr.codecs import Crc32cCodec, ZstdCodec

    group = zarr.open_group(str(path), mode="a", zarr_format=3)
    hours, outages = sizes["hour"], sizes["outage"]

    def add(name: str, shape: tuple[int, ...], dtype: Any, fill: Any, dimensions: tuple[str, ...]) -> None:
        chunks = (min(block, shape[0]), *shape[1:])
        group.create_array(
            name,
            shape=shape,
            chunks=chunks,
            dtype=dtype,
            fill_value=fill,
            dimension_names=dimensions,
            compressors=[ZstdCodec(), Crc32cCodec()],
        )

    for name, (dtype, fill) in CELL.items():
        add(name, (hours, outages), dtype, fill, ("hour", "outage"))
    for name, (dimension, fill) in ELEMENT.items():
        add(name, (hours, sizes[dimension]), "f4", fill, ("hour", dimension))
    if full:
        add("y", (hours, outages, sizes["output"]), "f8", np.nan, ("hour", "outage", "output"))
    blocks = -(-hours // block)
    group.create_array(
        "done",
        shape=(blocks,),
        chunks=(1,),
        dtype="i1",
        fill_value=0,
        dimension_names=("block",),
        compressors=[Crc32cCodec()],
    )
    # The attributes come last: a store without them is none.
    group.attrs.update({"format": FORMAT, "version": VERSION, "block": block, "question": header, **sizes})
    return group
