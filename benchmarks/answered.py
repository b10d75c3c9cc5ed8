"""What benchmarks of answers share: labels solved once, a proxy of each case, and a JSON document that grows by case.

Labels, and instances that the proxy has not seen, come from one draw; `--keep FOLDER` keeps them for the next
benchmark, and the proxy for the next one of the same commit. Times are processor seconds, which a busy machine disturbs
less than the clock.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import feasibly as fb
from feasibly.report.machine import describe_machine

LABELS, BUDGET = 256, 300.0


@dataclass(frozen=True)
class Case:
    """A proxy, and solved instances that it was not shown."""

    name: str
    proxy: fb.Proxy
    unseen: fb.Dataset


def case_of(name: str, options: argparse.Namespace) -> Case:
    """Label, train, and set the unseen instances apart."""
    problem = fb.load_problem(name)
    wanted = options.labels + options.instances
    short, commit = name.split(":")[-1], str(describe_machine()["commit"])
    store = None if options.keep is None else options.keep / f"{short}.zarr"
    model = None if options.keep is None else options.keep / f"{short}-{options.labels}-{commit[:12]}"
    data = fb.label(problem, count=wanted, seed=0, out=store, jobs=1)
    if model is not None and model.exists():
        proxy = fb.Proxy.load(model)
    else:
        proxy = fb.fit(problem, data, labels=min(options.labels, data.n_labels - 8), budget=options.budget)
        if model is not None:
            proxy.save(model)
    rest = data.take(data.solved & data.unseen(proxy.keys))
    return Case(name, proxy, rest.take(np.arange(min(options.instances, len(rest)))))


def run(
    about: str, doc: str, measure: Callable[[Case, argparse.Namespace], list[dict[str, Any]]], **more: int
) -> None:
    """Measure every case named on the command line, and keep the rows after each one."""
    parser = argparse.ArgumentParser(description=doc.split("\n")[0])
    parser.add_argument("cases", nargs="+")
    parser.add_argument("--instances", type=int, default=100)
    parser.add_argument("--labels", type=int, default=LABELS)
    parser.add_argument("--budget", type=float, default=BUDGET)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    for option, usual in more.items():
        parser.add_argument(f"--{option}", type=int, default=usual)
    options = parser.parse_args()
    rows = json.loads(options.out.read_text())["rows"] if options.out.exists() else []
    for name in options.cases:
        found = measure(case_of(name, options), options)
        for row in found:
            row["commit"] = describe_machine()["commit"]  # of other rows it may be an earlier one
            print(json.dumps(row), flush=True)
        rows = [row for row in rows if row["case"] != name] + found
        document = {"about": about, **describe_machine(), "rows": rows}
        options.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """What `call` returns and the processor seconds it took; the first time it may compile, so it is called twice."""
    call()
    began = time.process_time()
    return call(), time.process_time() - began


def quantiles(values: np.ndarray) -> dict[str, float]:
    """Of what is finite; empty if nothing is."""
    finite = values[np.isfinite(values)]
    return {f"{q}": float(np.percentile(finite, q)) for q in (0, 50, 95, 100)} if len(finite) else {}
