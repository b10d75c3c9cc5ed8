"""A year of hourly optimal power flow of a pandapower net: one batch here, and `runopp` on some of the hours.

python benchmarks/pandapower_year.py --out benchmarks/results/pandapower-year.json [--net case118 --beside 50]

Times are processor seconds, which a busy machine disturbs less, with the wall clock beside them; `runopp` is timed on
`--beside` hours spread over the year, without numba where that is not installed, and extrapolated. Costs of those hours
are compared.
"""

from __future__ import annotations

import argparse
import copy
import json
import logging
import os
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import feasibly as fb
from feasibly.report.machine import describe_machine


def profiles(net: Any, hours: int) -> dict[tuple[str, str], pd.DataFrame]:
    """Seasons, days, weekends, and 5 % of noise of its own for every load, between about 0.55 and 1.05 of the net's."""
    random = np.random.default_rng(0)
    hour = np.arange(hours)
    season = 0.08 * np.cos(hour / 8760 * 2 * np.pi)
    day = 0.12 * np.sin((hour % 24 - 8) / 24 * 2 * np.pi)
    week = np.where(hour // 24 % 7 >= 5, -0.06, 0.0)
    common = (0.8 + season + day + week)[:, None]
    return {
        ("load", column): pd.DataFrame(
            common
            * net.load[column].to_numpy()
            * (1 + 0.05 * random.standard_normal((hours, len(net.load)))),
            columns=net.load.index,
        )
        for column in ("p_mw", "q_mvar")
    }


def timed(function: Callable[..., Any], *args: Any, **options: Any) -> tuple[Any, dict[str, float]]:
    """What it returns, and processor and wall-clock seconds."""
    wall, processor = time.perf_counter(), _processor()
    value = function(*args, **options)
    return value, {"processor": _processor() - processor, "wall": time.perf_counter() - wall}


def _processor() -> float:
    """Of this process and of those it started and that have ended."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def main() -> None:
    """The batch first, so that what it found can be compared hour by hour."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--net", default="case118")
    parser.add_argument("--hours", type=int, default=8760)
    parser.add_argument("--labels", type=int, default=256)
    parser.add_argument("--budget", type=float, default=60.0)
    parser.add_argument("--beside", type=int, default=50)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()

    import pandapower as pp
    import pandapower.networks as networks

    logging.getLogger("pandapower").setLevel(logging.CRITICAL)
    net = getattr(networks, given.net)()
    tables = profiles(net, given.hours)
    series, spent = timed(
        fb.run_timeseries, net, profiles=tables, labels=given.labels, budget=given.budget, jobs=1,
        log=[("res_bus", "vm_pu"), ("res_bus", "lam_p"), ("res_line", "loading_percent"), ("res_gen", "p_mw")],
    )  # fmt: skip
    rungs, counts = np.unique(series.answer.rung, return_counts=True)
    row: dict[str, Any] = {
        "net": given.net, "hours": given.hours, "labels": given.labels, "year": spent, "parts": dict(series.seconds),
        "outcomes": series.answer.outcomes(),
        "rungs": dict(zip(rungs.tolist(), counts.tolist(), strict=True)),
        "worst_violation": float(np.nanmax(np.maximum(series.answer.max_equality, series.answer.max_inequality))),
    }  # fmt: skip
    print(json.dumps(row), flush=True)

    each, apart, failed = [], [], 0
    numba = find_spec("numba") is not None
    pp.runopp(copy.deepcopy(net), numba=numba)  # what is compiled once is not counted against it
    for hour in np.linspace(0, given.hours - 1, given.beside).astype(int):
        one = copy.deepcopy(net)
        for (table, column), frame in tables.items():
            one[table][column] = frame.iloc[hour].to_numpy()
        try:
            _, took = timed(pp.runopp, one, numba=numba)
            apart.append(100.0 * (series.answer.objective[hour] / one.res_cost - 1.0))
        except pp.OPFNotConverged:
            failed += 1
            continue
        each.append(took)
        mean = {key: float(np.mean([t[key] for t in each])) for key in took}
        row["runopp"] = {
            "hours": len(each), "failed": failed, "numba": numba, "each": mean,
            "year": {key: value * given.hours for key, value in mean.items()},
            "cost_percent_from_runopp": {"mean": float(np.mean(apart)), "most": float(np.max(np.abs(apart)))},
        }  # fmt: skip
        row["times_faster"] = row["runopp"]["year"]["processor"] / spent["processor"]
        if given.out:
            given.out.write_text(json.dumps({"rows": [row], **describe_machine(1)}, indent=1) + "\n")
    print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
