"""Named columns from and to files: .csv, .parquet, .npz."""

from __future__ import annotations

import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feasibly._cli.files import FileError, writing
from feasibly._cli.units import KEPT, input_units
from feasibly._words import counted, listed
from feasibly.problem.core import Problem
from feasibly.problem.families import grid_of

Array = NDArray[np.float64]
Columns = Mapping[str, NDArray[Any]]

_NAMELESS = re.compile(r"^(__index_level_0__)?$")
"""How an index without a name is written by pandas."""
MATRIX = "x"
"""The array of an .npz file that may hold all inputs at once, in the problem's order."""


@dataclass(frozen=True)
class Table:
    """Columns in file order; a name may stand twice, until somebody looks."""

    path: Path
    names: tuple[str, ...]
    values: tuple[NDArray[Any], ...]
    index: tuple[str, ...] = ()
    """Columns that pandas wrote as the index of its rows."""

    @property
    def rows(self) -> int:
        """The length of every column."""
        return len(self.values[0]) if self.values else 0


def check_ending(path: Path) -> None:
    """Refuse a file whose ending says nothing about its format."""
    if path.suffix.lower() not in _READERS:
        raise FileError(f"{path.name} must end in .csv, .parquet or .npz, which says how it is written")


def read_table(path: Path) -> Table:
    """Every column of a file.

    Raises:
        FileError: there is no such file, or it is not what its ending says.
    """
    check_ending(path)
    if not path.exists():
        raise FileError(f"there is no file {path}")
    if path.is_dir():
        raise FileError(f"{path} is a folder, not a file")
    try:
        return _READERS[path.suffix.lower()](path)
    except FileError:
        raise
    # Archives that ask for a password, another compression or a patch raise the last two, and zlib's error is its own.
    except (
        OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, zlib.error, RuntimeError,
        NotImplementedError,
    ) as error:  # fmt: skip
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise FileError(f"{path} cannot be read as {path.suffix.lower()}: {reason}") from None


def write_table(path: Path, columns: Columns) -> None:
    """Write columns of one length; the file appears whole or not at all."""
    check_ending(path)
    with writing(path) as partial:
        _WRITERS[path.suffix.lower()](partial, columns)


def match_inputs(problem: Problem, table: Table, *, ignore_extra: bool = False) -> Array:
    """The inputs of `problem` from the columns of the same names, in whatever order: `(rows, n_inputs)`.

    Raises:
        FileError: naming columns that are missing, unknown or there twice, and cells that are no numbers.
    """
    if table.path.suffix.lower() == ".npz" and table.names == (MATRIX,) and table.values[0].ndim == 2:
        found = _numbers(table, MATRIX, table.values[0])
        if found.shape[1] != problem.n_inputs:
            raise FileError(
                f"{table.path}: {MATRIX} has {counted(found.shape[1], 'column')} and {problem.name} has "
                f"{counted(problem.n_inputs, 'input')}"
            )
    else:
        found = _by_name(problem, table, ignore_extra)
    if not len(found):
        raise FileError(f"{table.path} has no rows")
    _check_finite(problem, table, found)
    _check_units(problem, table, found)
    return found


def _by_name(problem: Problem, table: Table, ignore_extra: bool) -> Array:
    wanted = problem.input_names
    units = input_units(problem)
    given = set(table.names)
    # An input may come with its unit in its name (pd_12_mw), and is then brought to per unit.
    known = {units[name][0]: name for name in wanted if name in units and name not in given}
    table = replace(table, names=tuple(known.get(name, name) for name in table.names))
    scaled = {name: units[name][1] for name in known.values() if units[name][0] in given}
    says = {*KEPT, *table.index} - set(wanted)
    counts = Counter(name for name in table.names if name not in says)
    twice = [name for name in wanted if counts[name] > 1]
    twice += [name for name in says if table.names.count(name) > 1]
    missing = [name for name in wanted if name not in counts]
    extra = [name for name in counts if name not in set(wanted)]
    faults = []
    if twice:
        faults.append(f"{listed(twice)} {'stands' if len(twice) == 1 else 'stand'} more than once")
    if missing:
        faults.append(f"{listed(missing)} {'is' if len(missing) == 1 else 'are'} missing")
    if extra and not ignore_extra:
        faults.append(
            f"{listed(extra)} {'is not an input' if len(extra) == 1 else 'are no inputs'} "
            "(--ignore-extra leaves such columns out)"
        )
    if faults:
        raise FileError(
            f"{table.path} does not have the {counted(problem.n_inputs, 'column')} of {problem.name} "
            f"({listed(wanted, 3)}): " + "; ".join(faults)
        )
    column = dict(zip(table.names, table.values, strict=True))
    found = [_numbers(table, name, column[name]) / scaled.get(name, 1.0) for name in wanted]
    return np.stack(found, axis=1)


def kept_columns(problem: Problem, table: Table) -> dict[str, NDArray[Any]]:
    """Columns that say which row is which, to come back with the answers."""
    pairs = zip(table.names, table.values, strict=True)
    says = {*KEPT, *table.index} - set(problem.input_names)
    return {_NAMELESS.sub("index", name): values for name, values in pairs if name in says}


def _numbers(table: Table, name: str, values: NDArray[Any]) -> Array:
    if values.dtype.kind in "fiu":
        return np.asarray(values, dtype=np.float64)
    found = []
    for row, value in enumerate(values.ravel().tolist(), start=1):
        try:
            found.append(np.nan if value is None else float(value))
        except (TypeError, ValueError):
            raise FileError(
                f"{table.path}: {name} holds {str(value)!r} in row {row}, which is not a number"
            ) from None
    return np.array(found).reshape(values.shape)


def _check_finite(problem: Problem, table: Table, x: Array) -> None:
    bad = np.argwhere(~np.isfinite(x))
    if len(bad):
        row, column = bad[0]
        more = f", and so are {len(bad) - 1} more cells" if len(bad) > 1 else ""
        raise FileError(
            f"{table.path}: {problem.input_names[column]} is empty or not finite in row {row + 1}{more}; "
            "fill in or drop those rows"
        )


def _check_units(problem: Problem, table: Table, x: Array) -> None:
    """Loads in MW where per unit is meant are a hundred times too large, and every answer would be wrong."""
    grid = grid_of(problem)
    if grid is None or grid.base_mva < 10.0 or "pd" not in problem.inputs:
        return
    loads = slice(problem.inputs["pd"].start, problem.inputs["qd"].stop)
    usual = float(np.abs(problem.nominal[loads]).sum())
    if usual == 0.0:
        return
    times = float(np.median(np.abs(x[:, loads]).sum(axis=1))) / usual
    if 0.3 <= times / grid.base_mva <= 3.0:
        raise FileError(
            f"{table.path}: the loads are about {times:.0f} times the usual ones, as if they were in MW and "
            "Mvar; write the unit in the columns' names (pd_12_mw, qd_12_mvar), or divide them by the base of "
            f"{grid.base_mva:g} MVA"
        )


# ---- formats -----------------------------------------------------------------------------------------------


def _read_csv(path: Path) -> Table:
    import pyarrow as pa
    from pyarrow import csv

    # What names a row comes back as it was written: 007 stays 007.
    plain = csv.ConvertOptions(column_types={name: pa.string() for name in (*KEPT, "")})
    table = csv.read_csv(path, convert_options=plain)
    if table.num_columns == 1 and ";" in table.column_names[0]:
        raise FileError(
            f"{path} separates its columns by semicolons; write it with commas and decimal points"
        )
    nameless = table.column_names[:1] == [""]
    return _from_arrow(path, table, ("",) if nameless else ())


def _read_parquet(path: Path) -> Table:
    from pyarrow import parquet

    table = parquet.ParquetFile(path).read()
    written = (table.schema.pandas_metadata or {}).get("index_columns", ())
    return _from_arrow(path, table, tuple(name for name in written if isinstance(name, str)))


def _from_arrow(path: Path, table: Any, index: tuple[str, ...]) -> Table:
    columns = tuple(column.to_numpy() for column in table.columns)
    return Table(path, tuple(table.column_names), columns, index)


def _read_npz(path: Path) -> Table:
    with zipfile.ZipFile(path) as archive:
        names = tuple(name.removesuffix(".npy") for name in archive.namelist())
        columns = []
        for entry in archive.namelist():
            with archive.open(entry) as file:
                columns.append(np.lib.format.read_array(file, allow_pickle=False))
    for name, column in zip(names, columns, strict=True):
        if column.ndim != 1 and names != (MATRIX,):
            raise FileError(
                f"{path}: {name} has {column.ndim} dimensions; give one array a column, or {MATRIX} alone with "
                "all inputs, a row an instance"
            )
    lengths = {name: len(column) for name, column in zip(names, columns, strict=True)}
    if len(set(lengths.values())) > 1:
        raise FileError(
            f"{path}: its arrays have different lengths ({min(lengths.values())} to {max(lengths.values())})"
        )
    return Table(path, names, tuple(columns))


def _write_csv(path: Path, columns: Columns) -> None:
    from pyarrow import csv

    csv.write_csv(_to_arrow(columns), path, csv.WriteOptions(quoting_style="needed"))


def _write_parquet(path: Path, columns: Columns) -> None:
    from pyarrow import parquet

    parquet.write_table(_to_arrow(columns), path)


def _to_arrow(columns: Columns) -> Any:
    import pyarrow

    return pyarrow.table({name: pyarrow.array(values) for name, values in columns.items()})


def _write_npz(path: Path, columns: Columns) -> None:
    # numpy.savez takes names as keywords and stumbles over a column called "file".
    with zipfile.ZipFile(path, "w") as archive:
        for name, values in columns.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, np.asarray(values), allow_pickle=False)


_READERS: dict[str, Callable[[Path], Table]] = {
    ".csv": _read_csv,
    ".parquet": _read_parquet,
    ".npz": _read_npz,
}
_WRITERS: dict[str, Callable[[Path, Columns], None]] = {
    ".csv": _write_csv,
    ".parquet": _write_parquet,
    ".npz": _write_npz,
}
