"""A pandapower net from its JSON file, without what pandapower's own reader would do with one.

That reader imports whatever module the file names and makes objects of its classes. Here tables are read, and plain
values; anything else in the file (controllers, characteristics, graphs) is left out and told of.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from feasibly.interop._pandapower_case import load_pandapower, quiet
from feasibly.problem.errors import FeasiblyError

_NET = "pandapowerNet"
_TABLE = "DataFrame"
_LEFT = ("_empty_", "res_", "_pd2", "_ppc", "_is_", "_gen_order", "_options", "_impedance", "_isolated")
"""Beginnings of the names of results and of what a calculation leaves behind."""
_OBJECTS = ("controller", "characteristic", "group", "measurement", "output_writer", "std_types")


def is_pandapower(path: Path) -> bool:
    """Whether a file is a net that pandapower wrote as JSON."""
    if path.suffix.lower() != ".json" or not path.is_file():
        return False
    with path.open("rb") as file:
        return _NET.encode() in file.read(4096)


def read_net(path: Path) -> tuple[Any, list[str]]:
    """The net, and what a reader should know of it.

    Raises:
        FeasiblyError: for a file that is no net, or one that pandapower cannot bring to its present format.
        MissingExtraError: where pandapower is not installed.
    """
    pandapower = load_pandapower(f"{path.name}, which is a pandapower net")
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        parts = document["_object"]
        parts = json.loads(parts) if isinstance(parts, str) else parts
        if document["_class"] != _NET or not isinstance(parts, Mapping):
            raise KeyError(_NET)
    except (KeyError, TypeError):
        raise FeasiblyError(f"{path.name} cannot be read as a grid: it is no pandapower net") from None
    except (ValueError, RecursionError) as wrong:
        raise FeasiblyError(f"{path.name} cannot be read as a grid: it is not valid JSON ({wrong})") from None
    net, notes = pandapower.create_empty_network(), list[str]()
    for name, part in parts.items():
        if name.startswith(_LEFT):
            continue
        if isinstance(part, Mapping) and part.get("_class") == _TABLE:
            table = _table(path, name, part)
            if name in _OBJECTS:
                if len(table):
                    notes.append(f"{name}: {len(table)} rows, which an optimal power flow does not use")
                continue
            net[name] = table
        elif isinstance(part, (int, float, str)) and not name.startswith("_"):
            net[name] = part
        elif isinstance(part, Mapping) and "_class" in part:
            notes.append(f"{name}: an object of {part.get('_module')}, which is left out")
    try:
        with quiet():
            pandapower.convert_format(net)
    except Exception as error:  # of a file's content: whatever pandapower makes of it
        raise FeasiblyError(
            f"{path.name} cannot be read as a grid: pandapower cannot bring it to its present format ({error})"
        ) from None
    return net, notes


def _table(path: Path, name: str, part: Mapping[str, Any]) -> Any:
    import pandas as pd

    kinds = part.get("dtype")
    kinds = kinds if isinstance(kinds, Mapping) else None
    try:
        text = part["_object"]
        table = pd.read_json(
            io.StringIO(text if isinstance(text, str) else json.dumps(text)),
            orient=part.get("orient", "split"), dtype=kinds, precise_float=True, convert_axes=False,
        )  # fmt: skip
    except (KeyError, TypeError, ValueError, AttributeError) as wrong:
        raise FeasiblyError(
            f"{path.name} cannot be read as a grid: its table {name} is damaged ({str(wrong).splitlines()[0][:100]})"
        ) from None
    if kinds is not None and part.get("orient", "split") == "split":
        _check_cast(path, name, text, kinds)
    if part.get("orient") == "columns" or not len(table):
        with suppress(TypeError, ValueError):
            table.index = table.index.astype("int64")
    return table


def _check_cast(path: Path, name: str, text: Any, kinds: Mapping[str, Any]) -> None:
    """Refuse what pandas would bend to the kind of a column: -1 becomes true or 4294967295, 2.5 becomes 2.

    Raises:
        FeasiblyError: naming the first such cell.
    """
    raw = json.loads(text) if isinstance(text, str) else text
    for place, column in enumerate(raw["columns"]):
        kind = str(kinds.get(str(column), ""))
        if kind == "bool":
            fits, what = _is_choice, "true or false"
        elif kind.startswith(("int", "uint")):
            fits, what = (
                (_is_place, "a whole number from 0 on") if kind[0] == "u" else (_is_whole, "a whole number")
            )
        else:
            continue
        for index, row in zip(raw["index"], raw["data"], strict=True):
            if not fits(row[place]):
                raise FeasiblyError(
                    f"{path.name} cannot be read as a grid: {name} {index}: {column} must be {what}, got {row[place]!r}"
                )


def _is_choice(value: Any) -> bool:
    return isinstance(value, (bool, int, float, type(None))) and value in (True, False, None)


def _is_place(value: Any) -> bool:
    return _is_whole(value) and (value is None or value >= 0)


def _is_whole(value: Any) -> bool:
    return value is None or (isinstance(value, (int, float)) and float(value).is_integer())
