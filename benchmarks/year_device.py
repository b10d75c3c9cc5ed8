"""Cells of a year on an accelerator: hours of a profile crossed with every single outage, by `conditioned` alone.

    python benchmarks/year_device.py MODEL --hours 568 --out FILE.json [--batch 65536]

The profile is that of benchmarks/year.py. Where this runs there is no solver: rows that shared operators do not reach
are counted, and left. Times are of whole calls, NumPy in and checked NumPy out, after one that compiles.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

import feasibly as fb
from feasibly.answer.record import AnswerOutcome
from feasibly.screening.plan import make_plan
from profiles import HOURS, loads_of_a_year


def main() -> None:
    """Read the command line, answer, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("--hours", type=int, default=568)
    parser.add_argument("--batch", type=int, default=65_536)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    proxy = fb.Proxy.load(args.model)
    names, values = loads_of_a_year(proxy.problem, args.hours)
    plan = make_plan(proxy.problem, dict(zip(names, values.T, strict=True)))
    x = plan.rows(0, args.hours)
    x = x[np.random.default_rng(0).permutation(len(x))]  # outages mixed, as batches of a year have them
    began = time.perf_counter()
    proxy.predict(x[: args.batch], "conditioned")
    compiling = time.perf_counter() - began
    seconds, held, outcomes = [], 0, dict.fromkeys((kind.name for kind in AnswerOutcome), 0)
    for first in range(0, len(x), args.batch):
        some = x[first : first + args.batch]
        began = time.perf_counter()
        found = proxy.predict(some, "conditioned")
        seconds.append((time.perf_counter() - began) / len(some))
        worst = np.maximum(found.max_equality, found.max_inequality)
        held += int((worst < 1e-6).sum())
        for outcome in found.outcome:
            outcomes[outcome.name] += 1
    cell = float(np.median(seconds))
    result: dict[str, Any] = {
        "benchmark": "year_device", "device": jax.devices()[0].device_kind, "hours": args.hours, "cells": len(x),
        "first_call_seconds": compiling, "microseconds_a_cell": 1e6 * cell, "share_below_1e-6": held / len(x),
        "outcomes": outcomes, "minutes_for_the_year": cell * HOURS * len(plan.names) / 60.0,
    }  # fmt: skip
    args.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
