"""The command itself: a process that listens, answers, and stops when asked."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from typer.testing import CliRunner

from feasibly.cli import app


def _start(*words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "feasibly", "serve", *words, "--port", "0"]
    return subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _address(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    for line in process.stderr:
        if found := re.search(r"http://\S+?(?=;)", line):
            return found.group()
    raise AssertionError("it never listened")


def _get(address: str) -> int:
    try:
        with urllib.request.urlopen(address, timeout=30) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as error:
        return error.code


def _listens(address: str) -> bool:
    try:
        socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), timeout=60).close()
    except ConnectionError:
        return False
    return True


def test_it_listens_answers_and_stops_when_asked(shelved: Path, tmp_path: Path) -> None:
    process = _start(str(shelved / "grid3"), "--cache", str(tmp_path / "cache"), "--batch", "1")
    try:
        address = _address(process)
        assert address.startswith("http://127.0.0.1:")
        while _get(f"{address}/v2/health/ready") != 200:
            assert process.poll() is None
            time.sleep(0.1)
        asked = urllib.request.Request(f"{address}/models/grid3/answer", b"{}")
        with urllib.request.urlopen(asked, timeout=60) as reply:
            assert json.load(reply)["rows"][0]["outcome"] == "OK"
        assert os.listdir(tmp_path / "cache")
        # Asked to stop while a request is half sent: it is finished and answered all the same.
        with socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), timeout=60) as line:
            line.sendall(
                b"POST /models/grid3/answer HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n"
                b"Expect: 100-continue\r\n\r\n"
            )
            assert line.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"  # the request was taken
            line.sendall(b"{")
            process.send_signal(signal.SIGTERM)
            while _listens(address):  # until it was heard
                time.sleep(0.01)
            assert process.poll() is None
            line.sendall(b"}")
            assert line.recv(65536).startswith(b"HTTP/1.1 200")
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere"], "there is no folder"),
        (["."], "no model"),
        (["{model}", "--token-file", "nothing"], "token file"),
        (["{model}", "--host", "no.such.host.invalid"], "cannot listen"),
    ],
)
def test_what_cannot_be_served_is_said(
    shelved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    filled = [word.replace("{model}", str(shelved / "grid3")) for word in words]
    done = CliRunner().invoke(app, ["serve", *filled, "--port", "0"])
    assert done.exit_code == 2
    assert said in done.output
