"""What the fuzzing campaign damages, and the ways it does so; every choice is drawn from the generator it is given."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np

import feasibly as fb
from feasibly._cli.columns import write_table

CASE = "nonconvex:6,2,3"


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


def odd_request(home: Home, pick: random.Random) -> tuple[str, bytes, str]:
    """Where a request goes, its body and what it says it is: nearly right, or not at all."""
    rows = home.x[:2].tolist()
    tensor = {"name": "x", "shape": [2, home.x.shape[1]], "datatype": "FP64", "data": rows}
    named = [dict(zip(home.columns, row, strict=True)) for row in rows]
    answer = pick.choice(("mean", "svp", "conditioned", "polished", "auto", "solved"))
    table = (home.folder / "in.csv").read_bytes()
    address, body = pick.choice((
        ("/v2/models/it/infer", {"inputs": [tensor], "parameters": {"answer": answer}, "outputs": [{"name": "y"}]}),
        ("/v2/models/it/infer", {"id": "7", "inputs": [tensor], "parameters": {"answer": "mean", "tolerance": 1e-4}}),
        ("/models/it/answer", {"inputs": named, "answer": answer, "promise": True}),
        ("/models/it/answer", {"inputs": named[0], "answer": "mean", "prove": False}),
        ("/models/it/look", {"x": rows[0], "answer": answer, "full": True, "promise": True}),
        ("/models/it/solver", {"x": rows[0]}),
        ("/models/it/table", table),
        ("/v2/repository/models/it/load", {}),
        ("/v2/repository/index", {"ready": True}),
    ))  # fmt: skip
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    how = pick.randrange(5)
    if how == 1 and isinstance(body, dict):
        raw = spoil_json(raw.decode(), pick).encode()
    elif how == 2:
        raw = spoil(raw, pick)
    elif how == 3:
        address = address.replace(
            "it", pick.choice(("nowhere", "..", "it%00", "it/it", "", "%2e%2e%2fmodel")), 1
        )
    elif how == 4:
        raw = pick.choice(
            (b"[" * 100_000, b'{"x":' * 5000, b"9" * 90_000, b'{"x": NaN}', b"\xff\xfe", b" " * 99_999)
        )
    return address, raw, pick.choice(("application/json", "text/csv", "application/octet-stream"))
