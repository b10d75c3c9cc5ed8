"""pandapower's own networks: our optimum beside that of `runopp` and of PYPOWER, and how they differ.

    python benchmarks/pandapower_networks.py               every net
    python benchmarks/pandapower_networks.py case5 case9   these, the others as they were stored
    python benchmarks/pandapower_networks.py --page        the page, from what is stored

Two readings of every net: pandapower's (the external grid holds its voltage, ratings limit current), against
`runopp`; and PYPOWER's (its voltage is free, ratings limit apparent power), against PYPOWER's `runopf` on the same
arrays. `runopp` starts flat as it does by default, and where it fails so from a power flow, and then on the net with
the vector groups of its transformers left out (they turn angles and nothing else); PYPOWER, without vector groups, with
tight tolerances, its default ones where that fails, and step control where that fails too. Where `runopp` finds
nothing, PYPOWER is also given pandapower's reading. Where nothing is found here, the least by which limits would have
to give way is. Each net has a time limit, because an interior point method that wanders does not stop by itself.
Writes benchmarks/results/pandapower-networks.json and .md.
"""

from __future__ import annotations

import argparse
import copy
import json
import logging
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

import feasibly as fb
from feasibly.interop._pandapower_case import convert
from feasibly.problem.families import grid_of
from feasibly.report.machine import describe_machine
from feasibly.solve.nlp import solve

NETWORKS = (
    "case4gs", "case5", "case6ww", "case9", "case11_iwamoto", "case14", "case24_ieee_rts", "case30", "case_ieee30",
    "case33bw", "case39", "case57", "case89pegase", "case118", "case145", "case_illinois200", "case300",
    "GBreducednetwork", "iceland", "case1354pegase", "GBnetwork", "example_simple", "example_multivoltage",
    "mv_oberrhein", "simple_mv_open_ring_net", "create_cigre_network_hv", "create_cigre_network_mv",
    "create_cigre_network_lv", "create_kerber_dorfnetz", "ieee_european_lv_asymmetric", "lv_schutterwald",
    "create_kerber_landnetz_freileitung_1", "create_kerber_landnetz_kabel_1", "create_kerber_vorstadtnetz_kabel_1",
    "kb_extrem_landnetz_kabel", "kb_extrem_vorstadtnetz_1", "create_dickert_lv_network", "panda_four_load_branch",
    "four_loads_with_branches_out", "simple_four_bus_system", "create_synthetic_voltage_control_lv_network",
)  # fmt: skip
OUT = Path(__file__).parent / "results" / "pandapower-networks.json"
NOTES = {
    "case4gs": "its external grid may give nothing (`max_p_mw` is 0)",
    "case11_iwamoto": "made to lie just beyond what its source can feed",
    "case57": "`runpp` of it ends 0.22 p.u. below a voltage limit",
    "case89pegase": "`runpp` of it loads a transformer to 392 %",
    "case145": "`runpp` of it ends 0.15 p.u. above a voltage limit and 259 Mvar outside a generator's limits",
    "case_illinois200": "`runpp` of it ends 40 Mvar outside a generator's limits",
    "case1354pegase": "transformers that have no rating in MATPOWER's file have 99.999 MVA here, and `runpp` of it "
    "loads one to 303 %; by how much limits would have to give way stands among the [grid files](files.md)",
    "GBnetwork": "`runpp` of it ends 0.14 p.u. beyond limits of voltage, at 392 buses; by how much limits would have "
    "to give way stands among the [grid files](files.md)",
    "case300": "`runpp` of it ends 0.051 p.u. below a voltage limit and 115 Mvar outside a generator's limits",
}
"""What was found out about a net by hand."""
TURNED = 20.0
"""Degrees; transformers that turn angles by more do so by their vector group."""
TIGHT = {"PDIPM_COSTTOL": 1e-10, "PDIPM_GRADTOL": 1e-8, "PDIPM_COMPTOL": 1e-9, "OPF_VIOLATION": 1e-8}


def compare(name: str, row: dict[str, Any]) -> None:
    """One net, both readings, into `row` as they become known."""
    import pandapower as pp
    import pandapower.networks as networks

    from giving_way import least, say

    logging.getLogger("pandapower").setLevel(logging.CRITICAL)
    net = getattr(networks, name)()
    row["buses"] = len(net.bus)
    try:
        fixed = fb.from_pandapower(net)
    except fb.FeasiblyError as error:
        words = str(error).splitlines()
        more = [f"and {len(words) - 3} more"] if len(words) > 3 else []
        row["refused"] = " ".join([*words[:3], *more])
        return
    free = fb.from_pandapower(net, slack_voltage="free", flow_limit="power")
    for key, problem in (("ours", fixed), ("ours_free", free)):
        (found,) = solve(problem, problem.nominal[None])
        row[key] = float(found.objective) if found.outcome.ok else None
        row[f"{key}_outcome"] = found.outcome.name
    row["runopp_how"] = ""
    plain = copy.deepcopy(net)
    if len(plain.trafo):
        plain.trafo.loc[plain.trafo.shift_degree.abs() > TURNED, "shift_degree"] = 0.0
    for how, given, options in (
        ("flat", net, {}),
        ("from a power flow", net, {"init": "pf"}),
        ("without vector groups", plain, {}),
    ):
        row["runopp"] = row["runopp_tight"] = None
        for key, tolerances in (("runopp", {}), ("runopp_tight", TIGHT | {"PDIPM_MAX_IT": 500})):
            theirs = copy.deepcopy(given)
            try:
                pp.runopp(theirs, numba=False, **options, **tolerances)
                row[key], row["runopp_how"] = float(theirs.res_cost), how
            except TimeoutError:
                raise
            except Exception as error:
                row.setdefault("runopp_says", f"{type(error).__name__}: {str(error).strip()[:120]}")
                break  # no net that failed as it is was ever solved with tighter tolerances
        if row["runopp_how"]:
            break
    row.update(_pypower(net, free, "pypower", by_current=False))
    if not row["runopp_how"] and row["ours"] is not None:
        row.update(_pypower(net, fixed, "pypower_fixed", by_current=True))
    for key, problem in (("ours", fixed), ("ours_free", free)):
        if row[key] is None:
            row[f"{key}_why"] = say(least(problem))


def _pypower(net: Any, problem: fb.Problem, key: str, *, by_current: bool) -> dict[str, Any]:
    """PYPOWER on the same arrays, and how it got there.

    Conductances of branches, which it has no column for, become shunts. Limits that mean "none" are given as what
    PYPOWER takes for none, since squares of 1e9 drown everything else. It fails where no branch is rated, so one gets
    a rating that nothing reaches; and it leaves out the cost of a generator that is the only one, so that one gets a
    neighbour that stands still.
    """
    import pypower.api as pypower

    grid = grid_of(problem)
    assert grid is not None
    case = convert(net, free_slack=not by_current)
    bus, gen = case.ppci["bus"][:, :13].real.copy(), case.ppci["gen"][:, :21].real.copy()
    branch = case.ppci["branch"][:, :13].real.copy()
    bus[:, 0] += 1
    gen[:, 0] += 1
    branch[:, :2] += 1
    base = grid.base_mva
    shunt = np.zeros(grid.n_buses, dtype=complex)
    half = branch[:, 4] / 2.0
    branch[np.abs(branch[:, 9]) > TURNED, 9] = 0.0
    np.add.at(shunt, grid.branch_from, (grid.g_from + 1j * (grid.b_from - half)) / grid.tap**2)
    np.add.at(shunt, grid.branch_to, grid.g_to + 1j * (grid.b_to - half))
    bus[:, 4] += shunt.real * base
    bus[:, 5] += shunt.imag * base
    bus[:, 11], bus[:, 12] = grid.vmax, grid.vmin
    total = base * np.abs(grid.pd + 1j * grid.qd).sum()
    branch[(branch[:, 5] > 1e3 * total) | (branch[:, 5] >= 1e9), 5] = 0.0
    if not branch[:, 5].any():
        branch[0, 5] = 1e2 * total
    for column, sign in ((3, 1.0), (4, -1.0), (8, 1.0), (9, -1.0)):
        gen[sign * gen[:, column] >= 1e9, column] = sign * 1e10
    cost = np.zeros((len(gen), 7))
    cost[:, 0], cost[:, 3] = 2, 3
    cost[:, 4:] = grid.cost / np.array([base**2, base, 1.0])
    if len(gen) == 1:
        gen, cost = np.concatenate([gen, gen]), np.concatenate([cost, cost])
        gen[1, [1, 2, 3, 4, 8, 9]] = 0.0
        cost[1, 4:] = [0.0, 1.0, 0.0]
    whole = {"version": "2", "baseMVA": base, "bus": bus, "gen": gen, "branch": branch, "gencost": cost}
    said = ""
    tries = ((560, TIGHT, "with tight tolerances"), (560, {}, "as it is"), (565, {}, "with step control"))
    for method, tolerances, words in tries:
        options = pypower.ppoption(VERBOSE=0, OUT_ALL=0, OPF_FLOW_LIM=2 if by_current else 0, OPF_ALG=method,
                                   PDIPM_MAX_IT=300, **tolerances)  # fmt: skip
        try:
            result = pypower.runopf(copy.deepcopy(whole), options)
        except TimeoutError:
            raise
        except Exception as error:
            said = f"{type(error).__name__}: {str(error)[:120]}"
            continue
        if result["success"]:
            return {key: float(result["f"]), f"{key}_how": words}
        said = "does not converge, nor with step control"
    return {key: None, f"{key}_says": said}


def differences(row: dict[str, Any]) -> dict[str, float]:
    """Per cent by which our optimum lies above the others' of the same reading."""
    found = {}
    for key in ("runopp", "runopp_tight", "pypower", "pypower_fixed"):
        ours = row.get("ours_free" if key == "pypower" else "ours")
        if ours is not None and row.get(key) is not None:
            found[f"percent_from_{key}"] = 100.0 * (ours - row[key]) / abs(row[key])
    return found


def remark(row: dict[str, Any]) -> str:
    """What the numbers alone do not say."""
    if "refused" in row:
        return f"refused: {row['refused']}"
    said = [row["failed"]] if "failed" in row else []
    if said and row.get("runopp", 0) is None and row.get("runopp_says"):
        said.insert(0, "`runopp` does not converge from its flat start")
    both = row.get("ours_why") == row.get("ours_free_why")
    if "ours_why" in row:
        said.append(row["ours_why"])
    if "ours_free_why" in row:
        said.append("in PYPOWER's reading too" if both else f"in PYPOWER's reading {row['ours_free_why']}")
    if row.get("runopp_how", "flat") not in ("", "flat"):
        said.append(f"`runopp` {row['runopp_how']}; it fails otherwise")
    elif row.get("ours") is not None and row.get("runopp_how") == "":
        beside = row.get("percent_from_pypower_fixed")
        said.append("`runopp` does not converge, however started; PYPOWER on this reading " + (
            f"differs by {beside:.0e} %" if beside is not None else "does not converge either"))  # fmt: skip
    if row.get("pypower_how") == "with step control":
        said.append("PYPOWER with step control; it fails without")
    if row.get("ours_free") is not None and row.get("pypower", 0) is None:
        said.append("PYPOWER " + row.get("pypower_says", "finds none"))
    found = {
        key: abs(row[key]) for key in ("percent_from_runopp_tight", "percent_from_pypower") if key in row
    }
    if any(value > 1e-3 for value in found.values()):
        said.append(NOTES.get(row["net"], "NOT EXPLAINED"))
    elif row["net"] in NOTES:
        said.insert(0, NOTES[row["net"]])
    return "; ".join(said)


def page(known: dict[str, Any]) -> str:
    """The table of differences."""
    rows = known["rows"]
    counts = Counter(str(row["commit"])[:8] for row in rows)
    commits = (
        next(iter(counts)) if len(counts) == 1 else ", ".join(f"{c} ({n} rows)" for c, n in counts.items())
    )
    lines = ["# pandapower's networks beside `runopp` and PYPOWER", "", f"Commit {commits}; " + "".join([
        "`benchmarks/pandapower_networks.py`. Costs as pandapower counts them; differences in per cent of the other's ",
        "optimum. What both readings are, and why they differ, is told in [From pandapower](../pandapower.md)."]),
        "", "| net | buses | here | `runopp` | difference | with tight tolerances | here, PYPOWER's reading | PYPOWER "
        "| difference | remark |", "|---|---|---|---|---|---|---|---|---|---|"]  # fmt: skip
    for row in rows:
        cells = [_cost(row, "ours"), _cost(row, "runopp"), _percent(row, "percent_from_runopp"),
                 _percent(row, "percent_from_runopp_tight"), _cost(row, "ours_free"),
                 _cost(row, "pypower"), _percent(row, "percent_from_pypower")]  # fmt: skip
        lines.append(f"| `{row['net']}` | {row.get('buses', '')} | {' | '.join(cells)} | {remark(row)} |")
    missing = [f"`{name}`" for name in NETWORKS if name not in {row["net"] for row in rows}]
    lines += ["", f"Not run: {', '.join(missing)}."] if missing else []
    return "\n".join([*lines, ""])


def _cost(row: dict[str, Any], key: str) -> str:
    return _shown(row[key]) if key in row else ""


def _shown(value: float | None) -> str:
    return "none" if value is None else f"{value:.8g}"


def _percent(row: dict[str, Any], key: str) -> str:
    return f"{row[key]:.0e}" if key in row else ""


_LATE = False


def _late(signal_number: int, frame: Any) -> None:
    global _LATE
    _LATE = True
    raise TimeoutError


def main() -> None:
    """Net after net."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", default=list(NETWORKS))
    parser.add_argument("--limit", type=float, default=600.0, help="processor seconds a net")
    parser.add_argument("--page", action="store_true", help="write the page of what is stored")
    given = parser.parse_args()
    stored = json.loads(OUT.read_text()) if OUT.exists() else {"rows": []}
    if not given.page:
        machine = describe_machine()
        rows = {row["net"]: row for row in stored["rows"] if len(given.names) < len(NETWORKS)}
        signal.signal(signal.SIGVTALRM, _late)
        for name in given.names:
            global _LATE
            _LATE, row = False, {"net": name, "commit": machine["commit"]}
            signal.setitimer(signal.ITIMER_VIRTUAL, given.limit, 5.0)  # again, for what swallows the first
            try:
                compare(name, row)
            except (TimeoutError, KeyboardInterrupt):  # inside IPOPT the one becomes the other
                if not _LATE:
                    raise
                row["failed"] = f"not done after {given.limit:.0f} s; what is missing was not reached"
            finally:
                signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
            rows[name] = row | differences(row)
            print(json.dumps(rows[name]), flush=True)
            stored = {"rows": [rows[name] for name in NETWORKS if name in rows], **machine}
            OUT.write_text(json.dumps(stored, indent=1) + "\n")
    OUT.with_suffix(".md").write_text(page(stored), encoding="utf-8")


if __name__ == "__main__":
    main()
