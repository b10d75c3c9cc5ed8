"""Multipliers, derivatives and proven bounds on every grid of the suite, beside IPOPT's.

    python benchmarks/suite_answers.py                          every case; what is stored is not measured again
    python benchmarks/suite_answers.py --cases case57_ieee

Labels, unseen rows and IPOPT's costs are the first of those of benchmarks/everygrid.py (loads within 20 % where enough
draws have a solution), kept in `--keep`. A proxy is trained on 64 labels of each case, and its prover with it.
Multipliers are held against the label's where they are unique; derivatives along two directions against exact
differences (exact.py); a bound above the cost that IPOPT finds at tolerance 1e-10 would be wrong, and is counted. Times
are of batches of a thousand rows. Writes benchmarks/results/suite-answers.json and a page beside it.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

from trees import ONE_CORE

os.environ |= ONE_CORE

import numpy as np

import feasibly as fb
from answered import quantiles, timed
from feasibly.problem.duals import unique
from feasibly.problem.errors import FeasiblyError
from feasibly.report.machine import describe_machine
from grids import Member, Rows
from lots import FILE
from prices import apart, derivatives

LABELS, BUDGET, PROOF_BUDGET = 64, 60.0, 120.0
MANY = 1000
ROWS = 160
"""Unseen instances of each case: ten thousand of all grids together."""
DERIVATIVES = 12
"""Rows whose derivatives are looked at."""
WITHIN = 1e-4
"""Multipliers should be as near to the label's, relative to the largest."""
ANOTHER = 1e-7
"""Where an answer's cost and its label's are apart by a larger share, one of them is at another optimum, with
multipliers of its own (on 179_goc__sad one answer in 160 is 6e-5 below its label, one 3e-6 above). Such rows are
counted apart."""
ROUNDED = 1e-9
"""IPOPT's constraints hold to 1e-10 or so, and its cost may be below the exact optimum by as small a share."""
OUT = Path(__file__).parent / "results" / "suite-answers.json"


def measure(member: Member, rows: Rows) -> dict[str, Any]:
    """Everything about one case."""
    data = fb.Dataset.open(rows.store)
    solved = np.flatnonzero(data.solved)[rows.labels :][: len(rows.x)]
    known = data.take(solved)
    proxy = fb.fit(member.problem, data, labels=LABELS, budget=BUDGET)
    found: dict[str, Any] = {
        "case": member.case, "buses": int(member.case[4:].split("_")[0]), "range": rows.level, "rows": len(rows.x)
    }  # fmt: skip
    found |= multipliers(proxy, known)
    found |= derivatives(proxy, known, DERIVATIVES)
    return found | proofs(proxy, rows)


def multipliers(proxy: fb.Proxy, solved: fb.Dataset) -> dict[str, Any]:
    """How far multipliers of `conditioned` answers are from the labels'."""
    answer = proxy.predict(solved.x, "conditioned")
    alone = unique(proxy.problem, solved.x, solved.y)
    said = answer.unique_duals
    elsewhere = np.abs(answer.objective - solved.objective) > ANOTHER * np.abs(solved.objective)
    fine = alone & answer.ok & ~elsewhere
    off = apart(answer.duals, solved.duals)[fine]
    return {
        "ok": int(answer.ok.sum()), "unique": int(fine.sum()), "multipliers": quantiles(off),
        "multipliers_within": float(np.mean(off < WITHIN)) if fine.any() else None,
        "said_unique": int((said & answer.ok).sum()), "another_optimum": int((elsewhere & answer.ok).sum()),
    }  # fmt: skip


def proofs(proxy: fb.Proxy, rows: Rows) -> dict[str, Any]:
    """Bounds beside IPOPT's costs."""
    try:
        proxy.learn_proofs(budget=PROOF_BUDGET)
    except FeasiblyError as error:
        return {"proofs": str(error)}
    known = np.isfinite(rows.best)
    cost = np.where(known, rows.best, rows.label_cost)
    found = proxy.predict(rows.x, "conditioned", prove=True)
    many = np.tile(rows.x, (MANY // len(rows.x), 1))
    plain = min(timed(lambda: proxy.predict(many, "conditioned"))[1] for _ in range(3))
    proven = min(timed(lambda: proxy.predict(many, "conditioned", prove=True))[1] for _ in range(3))
    return {
        "bounds": int(np.isfinite(found.lower_bound).sum()), "by_ipopt": int(known.sum()),
        "above_the_cost": int((found.lower_bound > cost + ROUNDED * np.abs(cost)).sum()),
        "proven_infeasible_but_solved": int(np.isposinf(found.lower_bound).sum()),
        "proven_gap_percent": quantiles(found.proven_gap_percent), "conditioned_ms": 1e3 * plain / len(many),
        "with_proof_ms": 1e3 * proven / len(many), "proof_over_conditioned": proven / plain,
    }  # fmt: skip


# ---- the page ----------------------------------------------------------------------------------------

COLUMNS = (
    "case", "within", "OK", "another optimum", "unique", "multipliers off", "prices beside IPOPT's",
    "derivatives", "median, worst", "a derivative", "a solve, IPOPT",
    "bounds above the cost", "proven gap", "`conditioned`, with a proof", "commit",
)  # fmt: skip


def page(rows: list[dict[str, Any]]) -> str:
    """Every case a line, and what limits it breaks in bold."""
    lines = [
        "# Multipliers, derivatives and bounds on every grid", "",
        "Made by `benchmarks/suite_answers.py`, which says how. Multipliers: the largest deviation from the label's, "
        "relative to the largest, in rows where they are unique; answers at another optimum than their label's, by "
        "cost, are counted and left out. Prices beside IPOPT's: multipliers of balances, the same against those of the "
        "optimum that IPOPT's active set leads to, in so many rows. Derivatives: how many rows have one that exact "
        "differences agree on; median and worst deviation of these. Bounds above IPOPT's cost would be wrong. Gaps in "
        "per cent, median and largest. Times in milliseconds of processor time, a row. Bold: multipliers off by more "
        "than 1e-4, a derivative by more than 1e-5 or dearer than a tenth of our own solve, a proof dearer than two "
        "answers' time more.", "",
        "| " + " | ".join(COLUMNS) + " |", "|---|" + "---:|" * (len(COLUMNS) - 1),
    ]  # fmt: skip
    lines += ["| " + " | ".join(_cells(row)) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def _cells(row: dict[str, Any]) -> list[str]:
    off, moves = row["multipliers"], row["derivatives"]
    ratio = row["derivative_ms"] / row["solve_ms"]
    cells = [
        row["case"][4:], f"{row['range']:.0%}", f"{row['ok']} of {row['rows']}",
        str(row.get("another_optimum", "")), str(row["unique"]),
        _bold(f"{off['100']:.0e}", off["100"] > WITHIN) if off else "-",
        _beside(row), f"{row['derivative_rows_determined']} of {row['derivative_rows']}",
        _bold(f"{moves['50']:.0e}, {moves['100']:.0e}", moves["100"] > 1e-5) if moves else "-",
        _bold(f"{row['derivative_ms']:.2f}", ratio > 0.1), f"{row['solve_ms']:.1f}, {row['ipopt_ms']:.0f}",
    ]  # fmt: skip
    if "proofs" in row:
        return [*cells, row["proofs"], "-", "-", row["commit"][:7]]
    gap, times = row["proven_gap_percent"], row["proof_over_conditioned"]
    return [
        *cells, f"{row['above_the_cost']} of {row['bounds']}", f"{gap['50']:.2g}, {gap['100']:.2g}",
        f"{row['conditioned_ms']:.3f}, " + _bold(f"{row['with_proof_ms']:.3f}", times > 3.0), row["commit"][:7],
    ]  # fmt: skip


def _beside(row: dict[str, Any]) -> str:
    """How far prices are from those of IPOPT's optimum, at worst, and in how many rows that was looked at."""
    if not row.get("prices_beside_ipopt"):
        return "-"
    worst = row["prices_beside_ipopt"]["100"]
    return _bold(f"{worst:.0e}", worst > WITHIN) + f" ({row['prices_beside_ipopt_rows']})"


def _bold(text: str, broken: bool) -> str:
    return f"**{text}**" if broken else text


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", nargs="*")
    parser.add_argument("--keep", type=Path, default=Path("build/everygrid"))
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    lots = json.loads(FILE.read_text(encoding="utf-8"))
    names = options.cases or sorted(
        lots["choosing"] + lots["judging"], key=lambda n: int(n[4:].split("_")[0])
    )
    stored = json.loads(options.out.read_text(encoding="utf-8"))["rows"] if options.out.exists() else []
    done = {row["case"]: row for row in stored}
    for case in names:
        if case in done and not options.cases:
            continue
        member = Member(case, "uniform", options.keep)
        rows = member.prepare(LABELS, ROWS)
        if rows is None:
            continue
        machine = describe_machine(cores_used=1)
        done[case] = measure(member, rows) | {"commit": machine.pop("commit")}
        print(json.dumps(done[case]), flush=True)
        ordered = sorted(done.values(), key=lambda row: (row["buses"], row["case"]))
        options.out.write_text(json.dumps({**machine, "rows": ordered}, indent=1) + "\n", encoding="utf-8")
        options.out.with_suffix(".md").write_text(page(ordered), encoding="utf-8")


if __name__ == "__main__":
    main()
