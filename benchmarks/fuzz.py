"""Thousands of bad tables, stores, models, options and requests: is there ever a traceback, a hang or a wrong answer?

python benchmarks/fuzz.py --cases 10000 --out benchmarks/results/fuzz.json [--seed 0] [--only models:17]

Every case is made from the seed, its kind and its number, so that a finding can be asked for again with `--only`. A
case is fine if it is refused in a sentence, or answered as the undamaged input would have been. It is a finding if
there is a traceback or a bug is owned up to, if it takes more than ten seconds of processor time, or if an answer
changed in silence.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import math
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from typer.testing import CliRunner

import feasibly as fb
from damage import CASE, Home, odd_command, odd_request, odd_table, spoil, spoil_folder
from feasibly.cli import app
from feasibly.report.machine import describe_machine

SLOW = 10.0
SHARES = {"models": 0.3, "stores": 0.15, "tables": 0.25, "options": 0.1, "requests": 0.2}

RUNNER = CliRunner()


class SilentError(AssertionError):
    """An answer changed and nobody said so."""


def command(words: list[str]) -> tuple[str, str]:
    """Run a command here; `refused` or `done`, and what it said."""
    done = RUNNER.invoke(app, words, catch_exceptions=True)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    said = done.stderr
    if done.exit_code not in (0, 2) or "Traceback" in said or "bug in feasibly" in said:
        raise RuntimeError(f"status {done.exit_code}: {said[-500:]}")
    return ("done" if done.exit_code == 0 else "refused"), (said if done.exit_code else done.stdout)


def one_sentence(work: Callable[[], Any]) -> str:
    """`done`, or `refused` where a `FeasiblyError` says why; anything else is a finding."""
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            work()
    except fb.FeasiblyError as error:
        if not str(error).strip():
            raise RuntimeError("refused without a word") from error
        return "refused"
    return "done"


def try_model(home: Home, pick: random.Random) -> str:
    """A damaged model is refused, or answers as it did."""
    folder = home.fresh() / "model"
    shutil.copytree(home.folder / "model", folder)
    for _ in range(pick.choice((1, 1, 1, 2))):
        if any(folder.rglob("*")):
            spoil_folder(folder, pick)

    def work() -> None:
        again = fb.Proxy.load(folder)
        if not np.array_equal(again.predict(home.x, "mean").y, home.mean):
            raise SilentError("the model answers otherwise")

    return one_sentence(work)


def try_store(home: Home, pick: random.Random) -> str:
    """A damaged store is refused, or gives the rows it gave; rows it lost count as not solved."""
    folder = home.fresh() / "rows"
    shutil.copytree(home.folder / "rows", folder)
    spoil_folder(folder, pick)

    def work() -> None:
        data = fb.Dataset.open(folder)
        _ = data.n_labels, data.duals, data.keys, data.provenance, data.outcomes()
        kept = np.array(data.outcome) == 0
        for name, before in home.data.items():
            now = np.array(getattr(data, name))
            if name != "outcome" and (
                now.shape != before.shape or not np.array_equal(now[kept], before[kept])
            ):
                raise SilentError(f"{name} changed")

    return one_sentence(work)


def try_table(home: Home, pick: random.Random) -> str:
    """A bad table is refused, or every row of it is answered or flagged."""
    work = home.fresh()
    ending = pick.choice(("csv", "csv", "csv", "parquet", "npz"))
    path = work / f"in.{ending}"
    if ending == "csv" and pick.random() < 0.7:
        odd_table(home, pick, path)
    else:
        path.write_bytes(spoil((home.folder / f"in.{ending}").read_bytes(), pick))
    out = work / f"out.{pick.choice(('csv', 'parquet', 'npz'))}"
    words = [
        "predict",
        str(home.folder / "model"),
        str(path),
        "--out",
        str(out),
        "--answer",
        "mean",
        "--json",
    ]
    ended, said = command(words)
    if ended == "done":
        told = json.loads(said)
        if sum(told["outcomes"].values()) != told["rows"]:
            raise SilentError("rows without an outcome")
    elif out.exists():
        raise RuntimeError("refused, and yet something was written")
    return ended


def try_options(home: Home, pick: random.Random) -> str:
    """Options that make no sense are refused."""
    home.fresh()
    return command(odd_command(home, pick))[0]


def try_request(home: Home, pick: random.Random) -> str:
    """A bad request gets a status below 500 and a JSON sentence."""
    client = home.server()
    address, raw, kind = odd_request(home, pick)
    method = pick.choice(("POST", "POST", "POST", "POST", "GET", "PUT"))
    answered = client.request(method, address, content=raw, headers={"content-type": kind})
    if answered.status_code >= 500 and answered.status_code != 503:
        raise RuntimeError(f"status {answered.status_code}: {answered.text[:300]}")
    if answered.status_code != 200 and not answered.json().get("error"):
        raise RuntimeError(f"status {answered.status_code} without a sentence")
    return "done" if answered.status_code == 200 else "refused"


KINDS: dict[str, Callable[[Home, random.Random], str]] = {
    "models": try_model, "stores": try_store, "tables": try_table, "options": try_options, "requests": try_request,
}  # fmt: skip


def run_case(home: Home, seed: int, kind: str, number: int) -> tuple[str, float, str]:
    """What became of a case: its outcome, its processor seconds, and what went wrong."""
    pick = random.Random(f"{seed}:{kind}:{number}")
    began = time.process_time()
    try:
        outcome, wrong = KINDS[kind](home, pick), ""
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(last.filename).name}:{last.lineno}"
        outcome, wrong = "wrong", f"{type(error).__name__}: {' '.join(str(error).split())[:300]} ({where})"
    seconds = time.process_time() - began
    return ("slow", seconds, wrong) if seconds > SLOW and not wrong else (outcome, seconds, wrong)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--seconds", type=float, default=math.inf, help="begin no further case after this long"
    )
    parser.add_argument("--only", help="one case, as in models:17")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    out = args.out.absolute() if args.out else None
    with tempfile.TemporaryDirectory(prefix="feasibly-fuzz-") as folder, standing_in(Path(folder) / "here"):
        home = Home(Path(folder))
        if args.only:
            kind, _, number = args.only.partition(":")
            print(run_case(home, args.seed, kind, int(number)))
            return
        found = campaign(home, args)
        if home.client is not None:
            home.client.__exit__(None, None, None)
    if out is not None:
        out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(
        json.dumps(
            {key: found[key] for key in ("cases", "outcomes", "slowest_seconds", "findings")}, indent=1
        )
    )


@contextlib.contextmanager
def standing_in(folder: Path) -> Iterator[None]:
    """A folder of its own to run commands in: one that takes a nonsense word for a path writes here and not there."""
    folder.mkdir()
    with contextlib.chdir(folder):
        yield


def campaign(home: Home, args: argparse.Namespace) -> dict[str, Any]:
    """All cases, kind by kind."""
    kinds = args.kinds.split(",")
    whole = sum(SHARES[kind] for kind in kinds)
    began = time.monotonic()
    outcomes: dict[str, Counter[str]] = {kind: Counter() for kind in kinds}
    slowest = dict.fromkeys(kinds, 0.0)
    findings = []
    done = 0
    # Kind after kind in turn, each as often as its share: a campaign that is cut short has tried all of them.
    turns = sorted(
        ((number + 0.5) / SHARES[kind], kind, number)
        for kind in kinds
        for number in range(round(args.cases * SHARES[kind] / whole))
    )
    for _, kind, number in turns:
        if time.monotonic() - began > args.seconds:
            break
        outcome, seconds, wrong = run_case(home, args.seed, kind, number)
        outcomes[kind][outcome] += 1
        slowest[kind] = max(slowest[kind], seconds)
        done += 1
        if outcome in ("wrong", "slow"):
            findings.append(
                {"case": f"{kind}:{number}", "seed": args.seed, "seconds": seconds, "what": wrong}
            )
            print(findings[-1], file=sys.stderr, flush=True)
        if done % 1000 == 0:
            print(f"{done} cases, {len(findings)} findings", file=sys.stderr, flush=True)
    return {
        "benchmark": "fuzz", **describe_machine(), "problem": CASE, "seed": args.seed, "cases": done,
        "wall_seconds": time.monotonic() - began, "outcomes": {kind: dict(counts) for kind, counts in outcomes.items()},
        "slowest_seconds": slowest, "findings": findings,
    }  # fmt: skip


if __name__ == "__main__":
    main()
