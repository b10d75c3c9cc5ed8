"""What only a process of its own can show: exit statuses, signals, what is on which stream."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import feasibly as fb
from feasibly._cli.columns import read_table, write_table
from tests.cli.conftest import CASE

FEASIBLY = [sys.executable, "-m", "feasibly.cli"]


BEHIND = ["sh", "-c", 'trap "" INT; exec "$@"', "behind"]
"""Starts a command as a shell's background job: with Ctrl-C ignored."""


def start(
    *words: object, folder: Path, before: list[str] | None = None, **setting: str
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*(before or []), *FEASIBLY, *map(str, words)],
        cwd=folder,
        env=os.environ | setting,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    try:
        out, err = process.communicate(timeout=300)
    finally:
        process.kill()
    return process.returncode, out, err


def wait_for(there: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    while process.poll() is None and not there():
        time.sleep(0.002)


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "from feasibly.cli import app\n"
        "for words in (['--help'], ['train', '--help'], ['demo', '--help']):\n"
        "    try: app(words)\n"
        "    except SystemExit as leaving: assert leaving.code == 0, leaving.code\n"
        "heavy = {'jax', 'casadi', 'numpy', 'xarray', 'pyarrow', 'matplotlib', 'rich.progress'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--budget SECONDS" in done.stdout


@pytest.mark.parametrize("words", [("--debug", "case", "nonconvex:3"), ("case", "nonconvex:3", "--debug")])
def test_debug_shows_the_traceback_and_keeps_the_status(tmp_path: Path, words: tuple[str, ...]) -> None:
    status, out, err = ended(start(*words, folder=tmp_path))
    assert (status, out) == (2, "")
    assert "Traceback (most recent call last)" in err
    assert err.rstrip().splitlines()[-1].startswith("error: 'nonconvex:3' should read")


def test_a_bug_is_owned_up_to(tmp_path: Path) -> None:
    """Status 1 and a sentence, for an error that nobody foresaw."""
    code = (
        "import feasibly._cli.describe as describe, feasibly.cli as cli, sys\n"
        "def fail(problem): raise ZeroDivisionError('oh')\n"
        "describe.describe_problem = fail\n"
        "sys.argv = ['feasibly', 'case', 'nonconvex:3,1,1']\n"
        "cli.main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "this is a bug in feasibly (ZeroDivisionError: oh)" in done.stderr
    assert "Traceback" not in done.stderr


def test_json_is_alone_on_standard_output(tmp_path: Path) -> None:
    """Even when C code prints there, as solvers and their libraries like to do."""
    code = (
        "import os, sys, feasibly as fb, feasibly.cli as cli, feasibly._cli.data_commands as commands\n"
        "load = commands.load\n"
        "def noisy(*words, **more):\n"
        "    os.write(1, b'banner'); print('note')\n"
        "    return load(*words, **more)\n"
        "commands.load = noisy\n"
        f"sys.argv = ['feasibly', 'label', '{CASE}', '--count', '4', '--jobs', '2', '--out', 'rows', '--json']\n"
        "if __name__ == '__main__': cli.main()\n"
    )
    (tmp_path / "noisy.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "noisy.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rows"] == 4
    assert "banner" in done.stderr
    assert "note" in done.stderr


@pytest.mark.parametrize(
    ("before", "sent", "wanted"),
    [(None, signal.SIGINT, 130), (BEHIND, signal.SIGINT, 130), (None, signal.SIGTERM, 143)],
)
def test_a_signal_while_labelling_keeps_what_was_solved(
    tmp_path: Path, before: list[str] | None, sent: signal.Signals, wanted: int
) -> None:
    words = ("label", "nonconvex:40,15,20", "--count", 4000, "--jobs", 1, "--out", tmp_path / "rows")
    process = start(*words, folder=tmp_path, before=before)
    chunks = tmp_path / "rows" / "outcome" / "c"
    wait_for(lambda: chunks.is_dir() and len(os.listdir(chunks)) > 2, process)
    process.send_signal(sent)
    status, out, err = ended(process)
    assert (status, out) == (wanted, ""), err
    assert "run the same command again for the rest" in err
    assert "Traceback" not in err
    assert 0 < fb.Dataset.open(tmp_path / "rows").n_labels < 4000


def test_ctrl_c_while_training_saves_the_best_so_far(home: Path, tmp_path: Path) -> None:
    words = ("train", home / "rows", "--method", "mse", "--budget", 120, "--out", tmp_path / "model")
    process = start(*words, "--set", "learning_rate=0.003", folder=tmp_path)
    assert process.stderr is not None
    seen = ""
    while process.poll() is None and "step" not in seen:
        seen += process.stderr.readline()
    assert "left" in seen
    process.send_signal(signal.SIGINT)
    status, out, err = ended(process)
    assert status == 130, err
    assert "interrupted: the best proxy until then is saved in" in err
    assert "saved in" in out, err
    record = fb.Proxy.load(tmp_path / "model").record
    assert record.history
    assert "interrupted" in record.note
    assert record.settings["learning_rate"] == 0.003
    assert (record.method, record.unlabelled) == ("mse", 0)


def test_a_signal_while_the_default_compiles_saves_what_there_is(home: Path, tmp_path: Path) -> None:
    """Where no exception could get in: another thread has what there is, ridge before anything else was learnt."""
    words = ("train", home / "rows", "--budget", 300, "--out", tmp_path / "model")
    nothing_kept = str(tmp_path / "compiled")  # or it might be done before the signal comes
    process = start(*words, folder=tmp_path, before=BEHIND, JAX_COMPILATION_CACHE_DIR=nothing_kept)
    assert process.stderr is not None
    seen = ""
    while process.poll() is None and "training response" not in seen:
        seen += process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    status, out, err = ended(process)
    assert status == 143, err
    assert "saved in" in out, err
    assert "training cannot be resumed" in err
    record = fb.Proxy.load(tmp_path / "model").record
    assert (record.method, record.asked) in {("ridge", "response"), ("response", "")}
    assert (
        "interrupted" in record.note or not record.asked
    )  # unless it was done within the moment it is given


def test_a_signal_while_answering_leaves_nothing_behind(home: Path, tmp_path: Path) -> None:
    x = np.random.Generator(np.random.Philox(key=2)).uniform(-1.0, 1.0, (60_000, 3))
    write_table(tmp_path / "in.parquet", {f"x{i}": x[:, i] for i in range(3)})
    words = (
        "predict",
        home / "model",
        tmp_path / "in.parquet",
        "--answer",
        "solved",
        "--out",
        tmp_path / "out.csv",
    )
    process = start(*words, folder=tmp_path)
    assert process.stderr is not None
    while process.poll() is None and "answering" not in process.stderr.readline():
        pass
    process.send_signal(signal.SIGINT)
    status, out, err = ended(process)
    assert (status, out) == (130, ""), err
    assert "interrupted" in err
    assert os.listdir(tmp_path) == ["in.parquet"]


def test_killed_while_writing_answers(home: Path, tmp_path: Path) -> None:
    """At the moment the answers are being written: what was there before is still there, whole."""
    x = np.random.Generator(np.random.Philox(key=2)).uniform(-1.0, 1.0, (60_000, 3))
    write_table(tmp_path / "in.parquet", {f"x{i}": x[:, i] for i in range(3)})
    out = tmp_path / "out.csv"
    out.write_text("before\n1\n")
    process = start(
        "predict", home / "model", tmp_path / "in.parquet", "--out", out, "--force", "--answer", "mean",
        folder=tmp_path,
    )  # fmt: skip
    wait_for(lambda: any(name.endswith(".part") for name in os.listdir(tmp_path)), process)
    process.kill()
    status, _, err = ended(process)
    if status == -signal.SIGKILL:
        assert out.read_text() == "before\n1\n"
    else:  # it was quicker than we were
        assert status == 0, err
        assert read_table(out).rows == len(x)


def test_a_closed_pipe_is_no_bug(home: Path, tmp_path: Path) -> None:
    """`feasibly case ... --json | head -1` ends quietly."""
    process = start("case", home / "grid.m", "--json", folder=tmp_path)
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    err = process.stderr.read()
    process.wait()
    assert "bug" not in err
    assert "Traceback" not in err


@pytest.mark.parametrize(("sent", "wanted"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_while_importing_ends_quietly(sent: signal.Signals, wanted: int) -> None:
    """As it comes in the first second, before the command line is there."""
    code = (
        "import os, sys\n"
        "class Press:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == 'typer': os.kill(os.getpid(), {int(sent)})\n"
        "sys.meta_path.insert(0, Press())\n"
        "sys.argv = ['feasibly', 'case', 'nonconvex:3,1,1']\n"
        "from feasibly.__main__ import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (wanted, "")
    assert done.stderr == "interrupted; nothing was left half-written\n"


@pytest.mark.parametrize("jobs", [(), ("--jobs", 1)])
def test_a_signal_while_comparing_keeps_what_was_finished(
    home: Path, tmp_path: Path, jobs: tuple[object, ...]
) -> None:
    """Rows of trainings that ended stay; one that was cut short is no entry of a table, nor a model to go on with."""
    words = (
        "compare",
        home / "rows",
        "--methods",
        "ridge,mse",
        "--answers",
        "mean",
        "--budget",
        100,
        "--labels",
        40,
    )
    store = tmp_path / "kept"
    process = start(*words, "--store", store, *jobs, folder=tmp_path)
    wait_for(lambda: any(store.rglob("*ridge*")) and any(store.rglob("*.json")), process)
    assert process.stderr is not None
    seen = ""
    while process.poll() is None and "step" not in seen:
        seen += process.stderr.readline()
    assert "2 trainings" in seen or "of 2 trainings done" in seen
    process.send_signal(signal.SIGTERM)
    status, out, err = ended(process)
    assert (status, out) == (143, ""), err
    assert "Traceback" not in err
    left = [path.name for path in store.rglob("*") if path.name.startswith(".") or path.suffix == ".part"]
    assert left == []
    assert not any("mse" in path.name for path in store.rglob("*"))
