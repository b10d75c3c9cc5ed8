"""What commands say while one waits: what is done, and how long it usually takes."""

from __future__ import annotations

import queue
from dataclasses import replace
from pathlib import Path

import pytest

import feasibly as fb
from feasibly._cli import console
from tests.cli.conftest import invoke


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every line that could be shown, whether or not the wait is long enough for it."""
    lines: list[str] = []
    tell = console.Meter.tell

    def spy(
        self: console.Meter, note: str = "", done: float | None = None, total: float | None = None
    ) -> None:
        tell(self, note, done, total)
        lines.append(f"{self._doing}: {note}")

    monkeypatch.setattr(console.Meter, "tell", spy)
    return lines


@pytest.fixture(scope="module")
def slow(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model, with a training that took its time."""
    proxy = fb.Proxy.load(home / "model")
    assert proxy.calibration is not None
    proxy.record = replace(proxy.record, seconds={"conditioning": 21.0})
    proxy.calibration = replace(proxy.calibration, row_seconds=0.5, solving_seconds=2.0)
    folder = tmp_path_factory.mktemp("slow") / "model"
    proxy.save(folder)
    return folder


def test_commands_say_how_long_it_usually_takes(
    home: Path, slow: Path, tmp_path: Path, said: list[str]
) -> None:
    for words, line in (
        (("predict", slow, home / "inputs.csv", "--out", tmp_path / "1.csv"), "7 rows usually take 3.5 s"),
        (
            ("predict", slow, home / "inputs.csv", "--out", tmp_path / "2.csv", "--answer", "solved"),
            "7 rows usually take 14 s",
        ),
        (("evaluate", slow, home / "rows", "--limit", "5"), "5 rows usually take 2.5 s"),
        (("certify", slow, home / "rows", "--confidence", "0.8", "--no-save"), "60 rows usually take 60 s"),
    ):
        said.clear()
        assert invoke(*words).exit_code == 0
        assert any(f"preparing took 21 s in training; {line}" in each for each in said), said
    said.clear()
    assert (
        invoke(
            "predict", slow, home / "inputs.csv", "--out", tmp_path / "3.csv", "--answer", "mean"
        ).exit_code
        == 0
    )
    assert not any("usually" in each for each in said)


def test_training_and_comparing_say_what_is_left(home: Path, tmp_path: Path, said: list[str]) -> None:
    words = ("train", home / "rows", "--method", "ridge", "--budget", "40", "--out", tmp_path / "made")
    assert invoke(*words).exit_code == 0
    assert "training ridge: at most 40 s" in said
    assert any(each.endswith("s left") for each in said)
    said.clear()
    words = ("compare", home / "rows", "--methods", "ridge,gp", "--answers", "mean", "--budget", "20")
    assert invoke(*words, "--jobs", "1", "--labels", "30").exit_code == 0
    assert "comparing: 2 trainings, at most 40 s for all of them, and then the answers" in said
    assert any("of 2 trainings done; " in each for each in said)


def test_a_wait_is_told_of_before_three_seconds_are_over(monkeypatch: pytest.MonkeyPatch) -> None:
    assert next(console._moments()) < 3.0
    due: queue.Queue[float] = queue.Queue()
    heard: queue.Queue[str] = queue.Queue()
    monkeypatch.setattr(console, "_moments", lambda: iter(due.get, None))
    monkeypatch.setattr(console, "say", heard.put)
    with console.Meter("opening model") as meter:
        due.put(0.0)
        assert heard.get(timeout=60).endswith("s] opening model ...")
        meter.turn_to("answering 7 instances")
        due.put(0.0)
        assert heard.get(timeout=60).endswith("s] answering 7 instances ...")
        due.put(1e6)  # the end comes before this moment does, and is not waited for
    assert heard.empty()
