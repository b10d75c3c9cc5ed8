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
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from typer.testing import CliRunner

import feasibly as fb
from feasibly._cli.columns import write_table
from feasibly.cli import app
from feasibly.report.machine import describe_machine

CASE = "nonconvex:6,2,3"
SLOW = 10.0
SHARES = {"models": 0.4, "stores": 0.15, "tables": 0.3, "options": 0.1, "requests": 0.05}

RUNNER = CliRunner()


class Home:
    """What is damaged: a small problem's labels and a model of it, and what they answer while they are whole."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.work = folder / "work"
        problem = fb.load_problem(CASE)
        data = fb.label(problem, count=64, seed=0, jobs=1, out=folder / "rows")
        self.proxy = fb.fit(problem, data, labels=48, budget=3600.0)
        fb.certify(self.proxy, data, 0.8, answers=["mean"])
        self.proxy.save(folder / "model")
        self.x = np.array(data.x[:5])
        self.columns = {name: self.x[:, i] for i, name in enumerate(problem.input_names)}
        for ending in ("csv", "parquet", "npz"):
            write_table(folder / f"in.{ending}", self.columns)
        self.data = {
            name: np.array(getattr(data, name)) for name in ("x", "y", "objective", "seconds", "outcome")
        }
        self.mean = self.proxy.predict(self.x, "mean").y
        self.client: Any = None

    def fresh(self) -> Path:
        """An empty folder to work in."""
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir()
        return self.work

    def server(self) -> Any:
        """A running server of the model, made on first use."""
        if self.client is None:
            from starlette.testclient import TestClient

            from feasibly.serve.app import build_app
            from feasibly.serve.desk import Desk
            from feasibly.serve.limits import Limits
            from feasibly.serve.shelf import Shelf

            desk = Desk(Shelf([], {"it": self.proxy}, warm=(1,)), Limits(rows=64, body_bytes=100_000))
            self.client = TestClient(
                build_app(desk, _raise), base_url="http://127.0.0.1:8000", raise_server_exceptions=True
            )
            self.client.__enter__()
            while self.client.get("/v2/health/ready").status_code != 200:
                time.sleep(0.05)
        return self.client


def _raise(error: Exception) -> None:
    raise error


# ---- what is asked -----------------------------------------------------------------------------------------


def spoil(raw: bytes, pick: random.Random) -> bytes:
    """A file with something wrong: bits, bytes, stretches, or its end."""
    if not raw:
        return b"x"
    how = pick.randrange(6)
    at = pick.randrange(len(raw))
    if how == 0:
        return raw[:at] + bytes([raw[at] ^ (1 << pick.randrange(8))]) + raw[at + 1 :]
    if how == 1:
        return raw[:at]
    if how == 2:
        return raw[:at] + pick.randbytes(pick.randrange(1, 9)) + raw[at:]
    if how == 3:
        return raw[:at] + raw[at + pick.randrange(1, 40) :]
    if how == 4:
        return pick.randbytes(pick.randrange(0, 300))
    end = min(at + pick.randrange(1, 60), len(raw))
    return raw[:at] + pick.randbytes(end - at) + raw[end:]


def spoil_folder(folder: Path, pick: random.Random) -> str:
    """Damage one file of a folder, or lose it."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    chosen = pick.choice(files)
    if pick.random() < 0.15:
        chosen.unlink()
        return f"lost {chosen.relative_to(folder)}"
    raw = chosen.read_bytes()
    if chosen.suffix == ".json" and pick.random() < 0.5:
        with contextlib.suppress(ValueError):  # damaged already
            chosen.write_text(spoil_json(raw.decode(), pick))
            return f"changed {chosen.relative_to(folder)}"
    chosen.write_bytes(spoil(raw, pick))
    return f"damaged {chosen.relative_to(folder)}"


ODD: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    1e308,
    10**400,
    "",
    "x",
    [],
    {},
    [[]],
    {"is": "linear"},
    "nan",
    -0.0,
    [None] * 3,
)


def spoil_json(text: str, pick: random.Random) -> str:
    """JSON that is still JSON, with one value replaced, lost or nested."""
    document = json.loads(text)
    places: list[tuple[Any, Any]] = []

    def walk(value: Any) -> None:
        items = (
            value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        )
        for key, inner in list(items):
            places.append((value, key))
            walk(inner)

    walk(document)
    if places:
        holder, key = pick.choice(places)
        if isinstance(holder, dict) and pick.random() < 0.3:
            del holder[key]
        elif pick.random() < 0.1:
            deep: Any = 1
            for _ in range(pick.choice((10, 500))):
                deep = [deep]
            holder[key] = deep
        else:
            holder[key] = pick.choice(ODD)
    return json.dumps(document)


WORDS = (
    "", "nan", "inf", "-inf", "1e999", "abc", "1,5", "0x10", "１", "1e-320", "None", "1;2", "\x00", '"', "1" * 400,
    " ", "-0", "1_000", "1e400", "TRUE", "\u202e1", "=1+1",
)  # fmt: skip


def odd_table(home: Home, pick: random.Random, path: Path) -> None:
    """A CSV that is nearly right."""
    names = list(home.columns)
    rows = [[repr(float(value)) for value in row] for row in home.x[: pick.randrange(0, 5)]]
    how = pick.randrange(7)
    if how == 0 and rows:
        pick.choice(rows)[pick.randrange(len(names))] = pick.choice(WORDS)
    elif how == 1:
        names[pick.randrange(len(names))] = pick.choice((*names, "", "y0", "X0", " x0"))
    elif how == 2 and rows:
        pick.choice(rows).append("1")
    elif how == 3 and rows:
        pick.choice(rows).pop()
    elif how == 4:
        names.append(pick.choice(("extra", names[0])))
        rows = [[*row, "7"] for row in rows]
    elif how == 5:
        pick.shuffle(names)
    between = pick.choice((",", ",", ",", ",", ",", ";", "\t"))
    text = "\n".join(between.join(row) for row in [names, *rows])
    path.write_text(
        text + pick.choice(("\n", "", "\n\n", "\r\n")), encoding=pick.choice(("utf-8", "utf-16", "utf-8-sig"))
    )


OPTIONS: dict[str, tuple[tuple[str, ...], ...]] = {
    "predict": (("--answer",), ("--tolerance",), ("--seed",), ("--region",), ("--std",), ("--ignore-extra",)),
    "evaluate": (("--answer",), ("--tolerance",), ("--limit",), ("--seed",)),
    "certify": (
        ("--confidence",),
        ("--answers",),
        ("--variant",),
        ("--range",),
        ("--alpha",),
        ("--tolerance",),
    ),
    "train": (
        ("--method",),
        ("--budget",),
        ("--labels",),
        ("--unlabelled",),
        ("--trials",),
        ("--seed",),
        ("--set",),
    ),
    "label": (("--count",), ("--seed",), ("--spread",), ("--design",), ("--jobs",), ("--engine",)),
    "case": (("--costs",), ("--spread",)),
    "compare": (("--methods",), ("--answers",), ("--budget",), ("--labels",)),
}
VALUES = (
    "0", "1", "2", "-1", "0.5", "nan", "inf", "-inf", "1e-9", "1e-300", "1e300", "99999999999999999999", "mean",
    "magic", "mean,mean", ",", "a=b", "y0=1", "width=2", "=", "true", "", "local", "sobol", "uniform", "each", "cross",
    "ridge",
    "gp", "response", "../..", "\x1b[31m", "ü",
)  # fmt: skip
LONG = {"--count": "4", "--budget": "1e-9", "--jobs": "1"}
"""What would rightly take long is asked for in small."""


def odd_command(home: Home, pick: random.Random) -> list[str]:
    """A command with options that may not make sense."""
    command = pick.choice(sorted(OPTIONS))
    model, data, work = home.folder / "model", home.folder / "rows", home.work
    fixed = {
        "predict": [model, home.folder / "in.csv", "--out", work / "out.csv"],
        "evaluate": [model, data],
        "certify": [model, data, "--no-save"],
        "train": [data, "--out", work / "made"],
        "label": [CASE, "--out", work / "rows"],
        "case": [CASE],
        "compare": [data],
    }[command]
    words = [command, *map(str, fixed)]
    if pick.random() < 0.15:
        at = pick.randrange(1, len(words))
        words[at] = pick.choice(
            (*VALUES, str(home.folder), str(home.folder / "in.csv"), str(work / "nowhere"))
        )
    asked = dict.fromkeys(pick.sample([option for (option,) in OPTIONS[command]], k=pick.randrange(0, 3)))
    needed = {
        "train": ("--budget",),
        "label": ("--count", "--jobs"),
        "compare": ("--budget", "--methods", "--answers"),
    }
    for option in asked:
        words += [option] if option in ("--std", "--ignore-extra") else [option, pick.choice(VALUES)]
    usual = LONG | {"--methods": "ridge", "--answers": "mean"}
    for option in needed.get(command, ()):
        if option not in asked:
            words += [option, usual[option]]
    # A budget, a count or a number of processes that is large and sound is no nonsense, only long.
    for i, word in enumerate(words[:-1]):
        large = words[i + 1] in ("1e300", "99999999999999999999")
        if word in ("--count", "--jobs", "--unlabelled", "--trials") and large:
            words[i + 1] = "3"
        if word == "--budget" and words[i + 1] in ("1", "2", "0.5", "1e300", "99999999999999999999"):
            words[i + 1] = "1e-9"
    return words


# ---- what is found -----------------------------------------------------------------------------------------


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
    good = {"x": home.x[:2].tolist()}
    v2 = {
        "inputs": [
            {"name": "x", "shape": [2, home.x.shape[1]], "datatype": "FP64", "data": home.x[:2].tolist()}
        ]
    }
    address, body = pick.choice((("/models/it/answer", good), ("/v2/models/it/infer", v2)))
    text = json.dumps(body)
    how = pick.randrange(4)
    raw = text.encode()
    if how == 1:
        raw = spoil_json(text, pick).encode()
    elif how == 2:
        raw = spoil(raw, pick)
    elif how == 3:
        address = address.replace("it", pick.choice(("nowhere", "..", "it%00", "it/it", "")))
    answered = client.request(pick.choice(("POST", "POST", "POST", "GET", "PUT")), address, content=raw)
    if answered.status_code >= 500 and answered.status_code != 503:
        raise RuntimeError(f"status {answered.status_code}: {answered.text[:300]}")
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
    with tempfile.TemporaryDirectory(prefix="feasibly-fuzz-") as folder:
        home = Home(Path(folder))
        if args.only:
            kind, _, number = args.only.partition(":")
            print(run_case(home, args.seed, kind, int(number)))
            return
        found = campaign(home, args)
        if home.client is not None:
            home.client.__exit__(None, None, None)
    if args.out is not None:
        args.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(
        json.dumps(
            {key: found[key] for key in ("cases", "outcomes", "slowest_seconds", "findings")}, indent=1
        )
    )


def campaign(home: Home, args: argparse.Namespace) -> dict[str, Any]:
    """All cases, kind by kind."""
    kinds = args.kinds.split(",")
    whole = sum(SHARES[kind] for kind in kinds)
    began = time.monotonic()
    outcomes: dict[str, Counter[str]] = {}
    slowest: dict[str, float] = {}
    findings = []
    done = 0
    for kind in kinds:
        counts: Counter[str] = outcomes.setdefault(kind, Counter())
        for number in range(round(args.cases * SHARES[kind] / whole)):
            if time.monotonic() - began > args.seconds:
                break
            outcome, seconds, wrong = run_case(home, args.seed, kind, number)
            counts[outcome] += 1
            slowest[kind] = max(slowest.get(kind, 0.0), seconds)
            done += 1
            if outcome in ("wrong", "slow"):
                findings.append(
                    {"case": f"{kind}:{number}", "seed": args.seed, "seconds": seconds, "what": wrong}
                )
                print(findings[-1], file=sys.stderr, flush=True)
        print(f"{kind}: {dict(counts)}, slowest {slowest.get(kind, 0.0):.2f} s", file=sys.stderr, flush=True)
    return {
        "benchmark": "fuzz", **describe_machine(), "problem": CASE, "seed": args.seed, "cases": done,
        "wall_seconds": time.monotonic() - began, "outcomes": {kind: dict(counts) for kind, counts in outcomes.items()},
        "slowest_seconds": slowest, "findings": findings,
    }  # fmt: skip


if __name__ == "__main__":
    main()
