"""pandapower's own networks: our optimum beside that of `runopp` and of PYPOWER, and how they differ.

python benchmarks/pandapower_networks.py --out benchmarks/results/pandapower-networks.json [NAME ...]

Two readings of every net: pandapower's (the external grid holds its voltage, ratings limit current), against
`runopp`; and PYPOWER's (its voltage is free, ratings limit apparent power), against PYPOWER's `runopf` on the same
arrays. Each net runs in a process of its own with a time limit, because an interior point method that wanders
does not stop by itself.
"""

from __future__ import annotations

import argparse
import copy
import json
import logging
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import feasibly as fb
from feasibly.interop._pandapower_case import convert
from feasibly.problem.families import grid_of
from feasibly.report.machine import describe_machine

NETWORKS = (
    "case4gs", "case5", "case6ww", "case9", "case11_iwamoto", "case14", "case24_ieee_rts", "case30", "case_ieee30",
    "case33bw", "case39", "case57", "case89pegase", "case118", "case145", "case_illinois200", "case300",
    "GBreducednetwork", "iceland", "case1354pegase", "GBnetwork", "example_simple", "example_multivoltage",
    "mv_oberrhein", "simple_mv_open_ring_net", "create_cigre_network_hv", "create_cigre_network_mv",
    "create_cigre_network_lv", "create_kerber_dorfnetz", "ieee_european_lv_asymmetric",
)  # fmt: skip
TIGHT = {"PDIPM_COSTTOL": 1e-10, "PDIPM_GRADTOL": 1e-8, "PDIPM_COMPTOL": 1e-9, "OPF_VIOLATION": 1e-8}


def compare(name: str) -> dict[str, Any]:
    """One net, both readings."""
    import pandapower as pp
    import pandapower.networks as networks

    logging.getLogger("pandapower").setLevel(logging.CRITICAL)
    net = getattr(networks, name)()
    row: dict[str, Any] = {"net": name, "buses": len(net.bus)}
    try:
        fixed = fb.from_pandapower(net)
    except fb.FeasiblyError as error:
        return row | {"refused": str(error)}
    row["ours"], row["ours_seconds"] = _ours(fixed)
    for key, options in (("runopp", {}), ("runopp_tight", TIGHT | {"PDIPM_MAX_IT": 500})):
        theirs, start = copy.deepcopy(net), time.perf_counter()
        try:
            pp.runopp(theirs, numba=False, **options)
            row[key] = float(theirs.res_cost)
        except Exception as error:
            row[key], row[f"{key}_says"] = None, str(error).strip()[:120]
        row[f"{key}_seconds"] = time.perf_counter() - start
    free = fb.from_pandapower(net, slack_voltage="free", flow_limit="power")
    row["ours_free"], _ = _ours(free)
    row["pypower"] = _pypower(net, free)
    return row


def _ours(problem: fb.Problem) -> tuple[float | None, float]:
    data = fb.label(problem, problem.nominal[None], jobs=1)
    return (float(data.objective[0]) if data.solved[0] else None), float(data.seconds[0])


def _pypower(net: Any, problem: fb.Problem) -> float | None:
    """PYPOWER on the same arrays; conductances of branches, which it has no column for, become shunts."""
    import pypower.api as pypower

    grid = grid_of(problem)
    assert grid is not None
    case = convert(net, free_slack=True)
    bus, gen = case.ppci["bus"][:, :13].real.copy(), case.ppci["gen"][:, :21].real.copy()
    branch = case.ppci["branch"][:, :13].real.copy()
    bus[:, 0] += 1
    gen[:, 0] += 1
    branch[:, :2] += 1
    base = grid.base_mva
    shunt = np.zeros(grid.n_buses, dtype=complex)
    half = branch[:, 4] / 2.0
    np.add.at(shunt, grid.branch_from, (grid.g_from + 1j * (grid.b_from - half)) / grid.tap**2)
    np.add.at(shunt, grid.branch_to, grid.g_to + 1j * (grid.b_to - half))
    bus[:, 4] += shunt.real * base
    bus[:, 5] += shunt.imag * base
    if not ((branch[:, 5] > 0.0) & (branch[:, 5] < 1e10)).any():
        branch[0, 5] = 1e9  # PYPOWER fails where no branch is rated: one that nothing reaches
    cost = np.zeros((len(gen), 7))
    cost[:, 0], cost[:, 3] = 2, 3
    cost[:, 4:] = grid.cost / np.array([base**2, base, 1.0])
    whole = {"version": "2", "baseMVA": base, "bus": bus, "gen": gen, "branch": branch, "gencost": cost}
    try:
        options = pypower.ppoption(VERBOSE=0, OUT_ALL=0, OPF_FLOW_LIM=0)
        result = pypower.runopf(whole, options)
    except Exception:
        return None
    return float(result["f"]) if result["success"] else None


def main() -> None:
    """Every net in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=list(NETWORKS))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--limit", type=float, default=300.0, help="seconds a net")
    parser.add_argument("--one", action="store_true")
    given = parser.parse_args()
    if given.one:
        print(json.dumps(compare(given.names[0])))
        return
    rows = []
    for name in given.names:
        command = [sys.executable, __file__, "--one", name]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=given.limit, check=False)
            found = done.stdout.strip().splitlines()
            row = json.loads(found[-1]) if found else {"net": name, "failed": done.stderr[-300:]}
        except subprocess.TimeoutExpired:
            row = {"net": name, "failed": f"not done after {given.limit:.0f} s"}
        for key, theirs in (("runopp", "runopp"), ("runopp_tight", "runopp_tight"), ("pypower", "pypower")):
            ours = row.get("ours_free" if key == "pypower" else "ours")
            if ours is not None and row.get(theirs):
                row[f"percent_from_{key}"] = 100.0 * (ours - row[theirs]) / abs(row[theirs])
        rows.append(row)
        print(json.dumps(row), flush=True)
    if given.out:
        given.out.write_text(json.dumps({"rows": rows, **describe_machine()}, indent=1) + "\n")


if __name__ == "__main__":
    main()
