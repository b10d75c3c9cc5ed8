"""Datasets on disk: Zarr, chunked by blocks of rows, readable by xarray, safe against dying at any moment.

What keeps a row whole:

- a store comes into being at once: it is built in a hidden folder inside its own and `zarr.json` moves last;
- arrays are preallocated; the answer of a block is written array by array, its outcome last. A chunk is one
  block, so a block whose outcome is there is there in full;
- every chunk carries a checksum, and the lengths that readers see stand in one file, replaced in one go.
"""

from __future__ import annotations

import errno
import json
import shutil
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from feasibly.data._lock import NAME as LOCK
from feasibly.data._lock import WriterLock
from feasibly.data.reading import (
    NEW,
    PROBLEM,
    ROOT,
    blocks_without_files,
    finished_blocks,
    first_line,
    read_attributes,
)
from feasibly.data.schema import (
    ALL,
    FORMAT,
    FORMAT_VERSION,
    OUTCOME,
    PENDING,
    Field,
    StoreError,
    stored_fields,
)

if TYPE_CHECKING:
    import zarr

_BEGUN = ".partial"
"""The end of the name of a file that is being written; zarr's own have it too."""

# ---- making ------------------------------------------------------------------------------------------------


class Builder:
    """Make a store that appears whole or not at all: `append` rows, then `publish`."""

    def __init__(
        self,
        path: Path,
        sizes: Mapping[str, int],
        *,
        duals: bool,
        block: int,
        overwrite: bool = False,
    ) -> None:
        self._path, self._block = path, block
        self._fields = stored_fields(sizes, duals)
        self._rows = 0
        with _telling_of_disk(path):
            path.mkdir(parents=True, exist_ok=True)
        self._lock = WriterLock(path)
        try:
            _check_free(path, overwrite)
            with _telling_of_disk(path):
                shutil.rmtree(path / NEW, ignore_errors=True)
                self._group = _create_arrays(path / NEW, self._fields, sizes, block)
        except BaseException:
            self.abandon()
            raise

    @property
    def rows(self) -> int:
        """Rows appended so far."""
        return self._rows

    def append(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Add rows. Fields not given stay empty; `x` is always given."""
        count = len(arrays["x"])
        with _telling_of_disk(self._path), _whole_chunks():
            for field in self._fields:
                array = _array(self._group, field.name)
                array.resize((self._rows + count, *array.shape[1:]))
                if field.name in arrays:
                    array[self._rows : self._rows + count] = np.asarray(arrays[field.name], dtype=field.dtype)
        self._rows += count

    def publish(self, attributes: Mapping[str, Any], problem_arrays: Mapping[str, NDArray[Any]]) -> None:
        """Make the store visible under its path."""
        new = self._path / NEW
        with _telling_of_disk(self._path):
            if problem_arrays:
                inner = self._group.create_group(PROBLEM)
                for name, array in problem_arrays.items():
                    _create_array(inner, name, np.asarray(array))
            self._group.attrs.update(
                {"format": FORMAT, "format_version": FORMAT_VERSION, "block": self._block, **attributes}
            )
            _consolidate(new)
            # The file that makes it a store goes first when replacing and comes last when placing.
            (self._path / ROOT).unlink(missing_ok=True)
            for name in _ENTRIES:
                shutil.rmtree(self._path / name, ignore_errors=True)
            for entry in sorted(new.iterdir(), key=lambda item: item.name == ROOT):
                entry.rename(self._path / entry.name)
            new.rmdir()
        self._lock.release()

    def abandon(self) -> None:
        """Remove what was begun."""
        shutil.rmtree(self._path / NEW, ignore_errors=True)
        self._lock.release()
        if self._path.is_dir() and not any(self._path.iterdir()):
            self._path.rmdir()

    def __enter__(self) -> Builder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if (self._path / NEW).exists():
            self.abandon()


_ENTRIES = (*(field.name for field in ALL), PROBLEM)


def _check_free(path: Path, overwrite: bool) -> None:
    if (path / ROOT).exists():
        read_attributes(path)  # never delete what is not ours
        if not overwrite:
            raise StoreError(
                f"{path} exists already; choose another path, or pass overwrite=True to replace it"
            )
        return
    strange = sorted({entry.name for entry in path.iterdir()} - {LOCK, NEW, *_ENTRIES})
    if strange:
        raise StoreError(
            f"{path} exists and is not a dataset of feasibly ({strange[0]} is in it); choose another path"
        )


def _create_arrays(path: Path, fields: Sequence[Field], sizes: Mapping[str, int], block: int) -> zarr.Group:
    import zarr

    group = zarr.open_group(str(path), mode="w", zarr_format=3)
    for field in fields:
        names = ["row"] if field.dimension is None else ["row", field.dimension]
        group.create_array(
            field.name,
            shape=field.shape(0, sizes),
            chunks=field.shape(block, sizes),
            dtype=field.dtype,
            fill_value=field.fill,
            compressors=_compressors(),
            dimension_names=names,
        )
    return group


def _create_array(group: zarr.Group, name: str, values: NDArray[Any]) -> None:
    array = group.create_array(
        name,
        shape=values.shape,
        chunks=tuple(max(size, 1) for size in values.shape),
        dtype=values.dtype,
        compressors=_compressors(),
    )
    array[...] = values


def _compressors() -> list[Any]:
    from zarr.codecs import Crc32cCodec

    return [Crc32cCodec()]  # solutions hardly compress


def _consolidate(path: Path) -> None:
    import zarr

    with warnings.catch_warnings():
        # Zarr 3 notes that its specification has no word on this yet; xarray and zarr both read it.
        warnings.filterwarnings("ignore", message=".*[Cc]onsolidated metadata.*")
        warnings.filterwarnings("ignore", message=".*not recognized as a component.*")  # the lock file
        zarr.consolidate_metadata(str(path), zarr_format=3)


@contextmanager
def _whole_chunks() -> Iterator[None]:
    """Write every chunk, even one that holds only fill values: a missing file then always means a loss."""
    import zarr

    with zarr.config.set({"array.write_empty_chunks": True}):
        yield


@contextmanager
def _telling_of_disk(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        what = "the disk is full" if full else (error.strerror or first_line(error))
        raise StoreError(
            f"{path} cannot be written: {what}. What was stored before is safe; mend that and run the same "
            "command again"
        ) from error


def _array(group: zarr.Group, name: str) -> zarr.Array[Any]:
    import zarr

    array = group[name]
    assert isinstance(array, zarr.Array)
    return array


# ---- writing -----------------------------------------------------------------------------------------------


class Writer:
    """The one process that may add answers to an existing store."""

    def __init__(self, path: Path) -> None:
        self.attributes = read_attributes(path)
        self.path = path
        self.block = int(self.attributes["block"])
        self._lock = WriterLock(path)
        try:
            # Between the first look and the lock another writer may have extended it.
            self.attributes = read_attributes(path)
            self._open()
        except BaseException:
            self._lock.release()
            raise

    def _open(self) -> None:
        import zarr

        for stray in self.path.glob(f"*/c/**/*{_BEGUN}"):  # a chunk that a killed writer had begun
            stray.unlink(missing_ok=True)
        try:
            group = zarr.open_group(str(self.path), mode="r+", zarr_format=3, use_consolidated=True)
            names = {field.name for field in ALL}
            self._arrays = {name: array for name, array in group.arrays() if name in names}
            self.outcome = self._read_outcome()
        except Exception as error:
            raise StoreError(f"{self.path} is damaged: {first_line(error)}") from None

    def _read_outcome(self) -> NDArray[np.int8]:
        array = self._arrays[OUTCOME.name]
        outcome = np.full(array.shape, PENDING, dtype=np.int8)
        for first in range(0, len(outcome), self.block):
            with suppress(Exception):  # a damaged chunk tells nothing, so its rows are unsolved
                outcome[first : first + self.block] = array[first : first + self.block]
        return outcome

    def __len__(self) -> int:
        return len(self.outcome)

    def read(self, name: str, rows: slice = slice(None)) -> NDArray[Any]:
        """Rows of one array."""
        try:
            return np.asarray(self._arrays[name][rows])
        except Exception as error:
            raise StoreError(f"{self.path} is damaged: {name} cannot be read ({first_line(error)})") from None

    def rows(self, index: int) -> slice:
        """The rows of block `index`."""
        return slice(index * self.block, min((index + 1) * self.block, len(self)))

    def sound_blocks(self) -> set[int]:
        """Finished blocks whose every array is there and passes its checksum."""
        names = [name for name in self._arrays if name != "x"]
        finished = finished_blocks(self.outcome, self.block)
        lost = set(blocks_without_files(self.path, names, finished, len(self), self.block))
        sound = set()
        for index in finished:
            if index in lost:
                continue
            try:
                for name in names:
                    self.read(name, self.rows(index))
            except StoreError:
                continue
            sound.add(index)
        return sound

    def damaged_inputs(self) -> set[int]:
        """Blocks whose inputs are missing or do not pass their checksum."""
        damaged = set(blocks_without_files(self.path, ["x"], (), len(self), self.block))
        for index in range(-(-len(self) // self.block)):
            try:
                self.read("x", self.rows(index))
            except StoreError:
                damaged.add(index)
        return damaged

    def mend_inputs(self, index: int, x: NDArray[np.float64]) -> None:
        """Write the inputs of a block anew; its answers are no longer known to belong to them."""
        self.forget(index)
        with _telling_of_disk(self.path):
            self._write_chunk("x", index, x)

    def forget(self, index: int) -> None:
        """Mark a block unsolved before its arrays are written anew."""
        rows = self.rows(index)
        self.outcome[rows] = PENDING
        with _telling_of_disk(self.path):
            self._write_chunk(OUTCOME.name, index, self.outcome[rows])

    def write(self, index: int, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Store the answers of block `index`: its arrays, then its outcome."""
        with _telling_of_disk(self.path):
            for name in self._arrays:
                if name not in ("x", OUTCOME.name):
                    self._write_chunk(name, index, arrays[name])
            self._write_chunk(OUTCOME.name, index, arrays[OUTCOME.name])
        self.outcome[self.rows(index)] = arrays[OUTCOME.name]

    def _write_chunk(self, name: str, index: int, values: NDArray[Any]) -> None:
        """One whole chunk: little-endian bytes and their CRC-32C, as the array's metadata says.

        Zarr would write the same file at eight times the cost, which is as long as solving two rows of a
        118-bus grid takes.
        """
        import google_crc32c

        array = self._arrays[name]
        chunk = np.full(array.chunks, array.fill_value, dtype=array.dtype.newbyteorder("<"))
        chunk[: len(values)] = values
        packed = chunk.tobytes()
        target = self.path.joinpath(name, "c", str(index), *("0" for _ in array.chunks[1:]))
        target.parent.mkdir(parents=True, exist_ok=True)
        begun = target.with_name(f"{target.name}{_BEGUN}")
        begun.write_bytes(packed + google_crc32c.value(packed).to_bytes(4, "little"))
        begun.replace(target)

    def extend(self, x: NDArray[np.float64]) -> None:
        """Add unsolved rows with the inputs `x`. Readers see all of them or none."""
        count, total = len(self), len(self) + len(x)
        with _telling_of_disk(self.path), _whole_chunks():
            for array in self._arrays.values():
                array.resize((total, *array.shape[1:]))
            self._arrays["x"][count:] = x
            _consolidate(self.path)
        self._open()

    def note(self, key: str, value: Any) -> None:
        """Add to what the provenance notes."""
        root = self.path / ROOT
        document = json.loads(root.read_text(encoding="utf-8"))
        document["attributes"]["provenance"]["notes"][key] = value
        begun = root.with_name(f"{ROOT}{_BEGUN}")
        with _telling_of_disk(self.path):
            begun.write_text(json.dumps(document), encoding="utf-8")
            begun.replace(root)
        self.attributes = document["attributes"]

    def close(self) -> None:
        """Let others write."""
        self._lock.release()

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
