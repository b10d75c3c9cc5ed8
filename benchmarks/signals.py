"""Ctrl-C and SIGTERM at random moments of `label`, `train`, `predict` and `certify`: is anything lost or half-written?

python benchmarks/signals.py --moments 25 --out benchmarks/results/signals.json [--seed 0] [--at-a-time 2]

Each command runs once undisturbed, to learn how long it takes, and then again and again, with a signal at a random
moment of that time. A run is fine if it ends with 130 (Ctrl-C) or 143 (SIGTERM), or with 0 where it was done before the
signal came; if nothing but whole results lies where it wrote; if what was there before is still there, whole; and if
`train` left a model that answers. In the first second, while Python and the command line are being imported, there is
nothing to save, and before that a signal ends it as it ends every process (-2, -15): these count apart.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

import feasibly as fb
from feasibly._cli.columns import read_table, write_table
from feasibly.report.machine import describe_machine

CASE = "nonconvex:20,8,10"
COMMANDS = ("label", "train", "predict", "certify")
SIGNALS = {signal.SIGINT: 130, signal.SIGTERM: 143}
NOTHING = "interrupted; nothing was left half-written"
PATIENCE = 120.0
"""Seconds after a signal within which a command has to have ended; machines may be busy."""


def make_home(folder: Path) -> None:
    problem = fb.load_problem(CASE)
    data = fb.label(problem, count=160, seed=0, jobs=1, out=folder / "rows")
    fb.fit(problem, data, "ridge", labels=60, budget=3600.0).save(folder / "model")
    x = fb.sample(problem, 3000, seed=5)
    write_table(folder / "in.parquet", {name: x[:, i] for i, name in enumerate(problem.input_names)})


def words_of(command: str, home: Path, work: Path, pick: random.Random) -> list[str]:
    model = work / "model"
    if command == "label":
        return ["label", CASE, "--count", "2500", "--jobs", pick.choice("12"), "--out", str(work / "rows")]
    if command == "train":
        method = pick.choice(("response", "mse", "sandwich-bnn", "ridge", "gp"))
        return [
            "train",
            str(home / "rows"),
            "--method",
            method,
            "--budget",
            "40",
            "--out",
            str(work / "made"),
        ]
    shutil.copytree(home / "model", model)
    if command == "predict":
        out = work / "out.csv"
        return ["predict", str(model), str(home / "in.parquet"), "--answer", "polished", "--out", str(out)]
    return [
        "certify",
        str(model),
        str(home / "rows"),
        "--confidence",
        "0.8",
        "--answers",
        "mean,conditioned,auto",
    ]


def left_behind(command: str, home: Path, work: Path, status: int) -> str:
    """What is wrong with what lies there, in words; empty where all is well."""
    names = sorted(os.listdir(work))
    strays = [name for name in names if name.startswith(".") or name.endswith(".part")]
    if strays:
        return f"left behind: {', '.join(strays)}"
    if command == "label":
        if not (work / "rows").exists():
            return "" if status != 0 else "nothing was stored"
        try:
            data = fb.Dataset.open(work / "rows")
        except fb.FeasiblyError as error:
            return "" if "interrupted while it was being made" in str(error) else f"the store: {error}"
        return "" if np.isfinite(data.y[data.solved]).all() else "labels that are not finite"
    if command == "train":
        if "made" not in names:
            return "no model was saved"
        proxy = fb.Proxy.load(work / "made")
        rows = fb.Dataset.open(home / "rows").x[:3]
        return "" if np.isfinite(proxy.predict(rows, "mean").y).all() else "the model does not answer"
    proxy = fb.Proxy.load(work / "model")
    if command == "predict":
        written = work / "out.csv"
        return "" if not written.exists() or read_table(written).rows == 3000 else "the answers are cut short"
    return "no certificate" if status == 0 and proxy.certificate is None else ""


def run(command: str, home: Path, seed: int, number: int, usual: float) -> dict[str, Any]:
    """One command and one signal; without a usual time, the command alone."""
    pick = random.Random(f"{seed}:{command}:{number}")
    with tempfile.TemporaryDirectory(prefix="feasibly-signal-") as folder:
        work = Path(folder)
        words = words_of(command, home, work, pick)
        began = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, "-m", "feasibly", *words],
            cwd=work, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        sent, moment = pick.choice(tuple(SIGNALS)), pick.uniform(0.0, usual)
        try:
            process.wait(timeout=moment if usual else None)
        except subprocess.TimeoutExpired:
            process.send_signal(sent)
        waiting = time.monotonic()
        try:
            _, said = process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            _, said = process.communicate()
        status, ended = process.returncode, time.monotonic()
        found: dict[str, Any] = {
            "command": command, "case": number, "words": words[2:4] if command == "train" else [], "signal": sent.name,
            "moment": round(moment, 2), "status": status, "seconds_to_end": round(ended - waiting, 2),
        }  # fmt: skip
        if not usual:
            return found | {"seconds": ended - began, "wrong": said if status else ""}
        early = status in (-sent, SIGNALS[sent]) and not said.replace(NOTHING, "").strip()
        wrong = ""
        if not early and status not in (0, SIGNALS[sent]):
            wrong = f"status {status}: {said[-300:]}"
        elif "Traceback" in said:
            wrong = said[-300:]
        elif not early or (work / "made").exists() or command != "train":
            wrong = left_behind(command, home, work, status)
        return found | {"before_it_began": early, "wrong": wrong}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--moments", type=int, default=25, help="for each command")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--at-a-time", type=int, default=2)
    parser.add_argument("--commands", default=",".join(COMMANDS))
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    rows: list[dict[str, Any]] = []
    usual: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="feasibly-signals-") as folder:
        home = Path(folder)
        make_home(home)
        for command in args.commands.split(","):
            alone = run(command, home, args.seed, -1, 0.0)
            usual[command] = alone["seconds"]
            print(
                f"{command}: {alone['seconds']:.0f} s undisturbed, status {alone['status']}",
                file=sys.stderr,
                flush=True,
            )
            with ThreadPoolExecutor(args.at_a_time) as pool:
                asked = [
                    pool.submit(run, command, home, args.seed, i, usual[command]) for i in range(args.moments)
                ]
                for future in asked:
                    rows.append(future.result())
                    if rows[-1]["wrong"]:
                        print(rows[-1], file=sys.stderr, flush=True)
    statuses = {
        command: dict(Counter(str(row["status"]) for row in rows if row["command"] == command))
        for command in usual
    }
    found = {
        "benchmark": "signals", **describe_machine(), "problem": CASE, "seed": args.seed, "at_a_time": args.at_a_time,
        "undisturbed_seconds": usual, "statuses": statuses, "wrong": [row for row in rows if row["wrong"]],
        "rows": rows,
    }  # fmt: skip
    if args.out is not None:
        args.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({key: found[key] for key in ("undisturbed_seconds", "statuses", "wrong")}, indent=1))


if __name__ == "__main__":
    main()
