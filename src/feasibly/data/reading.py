"""Reading a store: what is there, whether it is whole, and a sentence where it is not."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from feasibly.data._lock import NAME as LOCK
from feasibly.data.schema import FORMAT, FORMAT_VERSION, PENDING, StoreError
from feasibly.problem.core import Problem
from feasibly.problem.errors import FeasiblyError
from feasibly.problem.families import rebuild

if TYPE_CHECKING:
    import xarray as xr

NEW = ".new"
"""Where a store is built before it appears."""
PROBLEM = "problem"
"""The group that holds the arrays of a built-in family."""
ROOT = "zarr.json"
"""The file that makes a folder a store."""


def read_attributes(path: Path) -> dict[str, Any]:
    """The attributes of the store at `path`, once it is sure that this version can read it."""
    if not path.exists():
        raise StoreError(f"there is no dataset at {path}")
    root = path / ROOT
    if not root.is_file():
        unfinished = path.is_dir() and any((path / name).exists() for name in (NEW, LOCK))
        if unfinished:
            raise StoreError(
                f"{path} was interrupted while it was being made; run the command that makes it again"
            )
        raise StoreError(f"{path} is not a dataset of feasibly (it has no {ROOT})")
    try:
        attributes = json.loads(root.read_text(encoding="utf-8"))["attributes"]
        stored, version = attributes.get("format"), attributes.get("format_version")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise StoreError(f"{path} is damaged: its {ROOT} cannot be read") from None
    if stored != FORMAT:
        raise StoreError(f"{path} is a Zarr store, but not a dataset of feasibly")
    if not isinstance(version, int) or version > FORMAT_VERSION:
        raise StoreError(
            f"{path} was written in format {version} by a newer feasibly and this one reads up to "
            f"{FORMAT_VERSION}; upgrade feasibly"
        )
    wrong = _wrong(attributes)
    if wrong:
        raise StoreError(
            f"{path} is damaged: its {ROOT} has no sound {wrong}; fetch another copy, or label again"
        )
    return dict(attributes)


def _wrong(attributes: Mapping[str, Any]) -> str:
    """What is missing in the attributes, or not what it should be; empty where all is well."""
    block, problem = attributes.get("block"), attributes.get("problem")
    if not isinstance(block, int) or isinstance(block, bool) or block < 1:
        return "block"
    if not isinstance(problem, Mapping):
        return "problem"
    for key, kinds in (("name", str), ("fingerprint", str), ("family", Mapping | None)):
        if key not in problem or not isinstance(problem[key], kinds):
            return f"{key} of the problem"
    return "" if "provenance" in attributes else "provenance"


def open_frame(path: Path) -> xr.Dataset:
    """The store as an xarray dataset, arrays read when asked for. Finished blocks must all be there."""
    import xarray as xr

    attributes = read_attributes(path)
    try:
        frame = xr.open_zarr(path, consolidated=True, chunks=None, decode_cf=False, zarr_format=3)
    except Exception as error:  # whatever xarray and zarr make of damaged metadata
        raise StoreError(f"{path} is damaged: {first_line(error)}") from None
    missing = [name for name in ("x", "y", "objective", "outcome") if name not in frame]
    if missing:
        raise StoreError(f"{path} is damaged: it has no {', '.join(missing)}")
    block = int(attributes["block"])
    outcome = read_values(frame, "outcome", path)
    lost = blocks_without_files(
        path, [str(name) for name in frame.data_vars], finished_blocks(outcome, block), len(outcome), block
    )
    if lost:
        raise StoreError(
            f"{path} is truncated: {_rows_in_words(lost, block, len(outcome))} lack files; {_MEND}"
        )
    return frame


def read_values(frame: xr.Dataset, name: str, path: Path | None) -> NDArray[Any]:
    """One array in full, or a sentence that says it is damaged."""
    try:
        return np.asarray(frame[name].values)
    except Exception as error:  # zarr, zstd and the checksum raise many kinds
        raise StoreError(f"{path} is damaged: {name} cannot be read ({first_line(error)}); {_MEND}") from None


def read_problem_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of the problem that the store carries."""
    import zarr

    folder = path / PROBLEM
    if not folder.is_dir():
        return {}
    try:
        group = zarr.open_group(str(path), mode="r", zarr_format=3)[PROBLEM]
        assert isinstance(group, zarr.Group)
        return {name: np.asarray(array[...]) for name, array in group.arrays()}
    except Exception as error:
        raise StoreError(f"{path} is damaged: its problem cannot be read ({first_line(error)})") from None


def rebuild_stored(stored: Mapping[str, Any], path: Path) -> Problem:
    """The problem that the store carries, which must still be the one its rows belong to."""
    arrays = read_problem_arrays(path)
    try:
        with np.errstate(all="ignore"):
            problem = rebuild(stored["family"], arrays)
    except (FeasiblyError, ValueError, TypeError, IndexError, KeyError) as error:
        raise StoreError(
            f"{path} is damaged: its problem cannot be made again ({first_line(error)})"
        ) from None
    if problem.fingerprint != stored["fingerprint"]:
        raise StoreError(
            f"{path} is damaged, or made by another version of feasibly: the problem stored in it is not the one its "
            f"rows belong to ({stored['name']!r}); fetch another copy, or label again"
        )
    return problem


_MEND = "run the command that made it again to solve those rows anew"


def finished_blocks(outcome: NDArray[Any], block: int) -> list[int]:
    """Blocks in which no row is unsolved."""
    starts = range(0, len(outcome), block)
    return [i for i, first in enumerate(starts) if (outcome[first : first + block] != PENDING).all()]


def blocks_without_files(
    path: Path, names: Sequence[str], finished: Sequence[int], rows: int, block: int
) -> list[int]:
    """Blocks that should be there and lack a file of one of the arrays `names`."""
    lost: set[int] = set()
    for name in names:
        folder = path / name / "c"
        there = {entry.name for entry in folder.iterdir() if _holds_file(entry)} if folder.is_dir() else set()
        # Inputs are written when the store is made; answers as they come.
        wanted = range(-(-rows // block)) if name == "x" else finished
        lost.update(i for i in wanted if str(i) not in there)
    return sorted(lost)


def _holds_file(entry: Path) -> bool:
    """Whether a chunk is there: the chunk of a matrix is a file in a folder of its own, which stays when it is lost."""
    return entry.is_file() or any(entry.rglob("*"))


def _rows_in_words(blocks: Sequence[int], block: int, rows: int) -> str:
    spans = [f"{i * block} to {min((i + 1) * block, rows) - 1}" for i in blocks[:3]]
    more = f" and {len(blocks) - 3} more blocks" if len(blocks) > 3 else ""
    return f"rows {', '.join(spans)}{more}"


def first_line(error: BaseException) -> str:
    """The first line of what went wrong."""
    return (str(error).splitlines() or [type(error).__name__])[0]
