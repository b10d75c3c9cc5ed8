"""A tour of nonsense: each gets its sentence, exit status 2, and nothing on standard output."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from feasibly._cli.columns import match_inputs, read_table, write_table
from feasibly._cli.files import FileError, writing
from feasibly._cli.model_commands import answer_lines
from feasibly._cli.train_command import parse_settings
from feasibly._files import plain
from feasibly._words import counted, duration
from feasibly.answer.record import Answer, AnswerOutcome
from feasibly.problem.core import Problem
from feasibly.problem.errors import FeasiblyError
from tests.cli.conftest import CASE, invoke


def check(words: tuple[object, ...], sentence: str) -> None:
    done = invoke(*words)
    assert done.exit_code == 2, (words, done.output, done.exception)
    assert sentence in " ".join(done.stderr.split()), done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


COMMANDS = [
    (("case", "nowhere.m"), "there is no file 'nowhere.m'"),
    (("case", "pglib:case57"), "PGLib-OPF has no case 'case57'; cases like it: case57_ieee"),
    (("case", "nonconvex:3"), "should read nonconvex:VARIABLES,EQUALITIES,INEQUALITIES"),
    (("case", "nonconvex:3,5,1"), "5 leave no freedom for 3 variables"),
    (("case", CASE, "--spread", "0.1"), "--spread apply to grids"),
    (("case",), "Missing argument 'CASE'"),
    (("cas", "x"), "No such command 'cas'"),
    (("label", CASE, "--count", "0", "--out", "d"), "should be greater than or equal to 1"),
    (("label", CASE, "--count", "4"), "Missing option '--out'"),
    (("label", CASE, "--vary", "load,wind", "--out", "d"), "wind cannot vary; choose from load, branch"),
    (("label", CASE, "--vary", "load,branch", "--out", "d"), "--vary apply to grids"),
    (("label", CASE, "--outages", "2", "--out", "d"), "says how branch or generator is drawn; name it in --vary"),
    (("label", CASE, "--vary", "branch", "--outages", "many", "--out", "d"), "outages must be single, each, none"),
    (("label", CASE, "--count", "4", "--design", "grid", "--out", "d"), "'grid' is not one of"),
    (("label", CASE, "--count", "4", "--address", "tcp://x:1", "--out", "d"), "address"),
    (("label", CASE, "--count", "4", "--seed", "7", "--jobs", "1", "--out", "{home}/rows"), "seed 0, now 7"),
    (("label", "{home}/grid.m", "--count", "4", "--jobs", "1", "--out", "{home}/rows"), "another problem"),
    (("label", CASE, "--count", "4", "--jobs", "1", "--out", "{home}"), "is not a dataset"),
    (("label", CASE, "--count", "4", "--jobs", "1", "--out", "{home}/grid.m/d"), "Not a directory"),
    (("import", "opfdata", "nowhere", "--out", "d"), "there is nothing at nowhere"),
    (("import", "opfdata", "{home}/grid.m", "--out", "d"), "no OPFData instance"),
    (("import", "pglearn", "{home}", "--out", "d"), "case.json"),
    (("train", "nowhere", "--out", "m"), "there is no dataset at nowhere"),
    (("train", "{home}/model", "--out", "m"), "not a dataset"),
    (("train", "{home}/rows", "--method", "magic", "--out", "m"), "there is no method 'magic'; choose one of ridge"),
    (("train", "{home}/rows", "--labels", "999", "--out", "m"), "999 labels were asked for and the data has 60"),
    (("train", "{home}/rows", "--budget", "0", "--out", "m"), "budget must be a positive number"),
    (("train", "{home}/rows", "--budget", "nan", "--out", "m"), "budget must be a positive number"),
    (("train", "{home}/rows", "--budget", "inf", "--out", "m"), "budget must be a positive number"),
    (("train", "{home}/rows", "--budget", "-1", "--out", "m"), "budget must be a positive number"),
    (("train", "{home}/rows", "--out", "{home}/rows"), "exists already"),
    (("train", "{home}/rows", "--force", "--out", "{home}/rows"), "not a saved proxy and will not be replaced"),
    (("train", "{home}/rows", "--out", "{home}/grid.m/m"), "is a file, not a folder"),
    (("train", "{home}/rows", "--method", "ridge", "--set", "width=2", "--out", "m"), "width"),
    (("train", "{home}/rows", "--method", "mse", "--set", "magic=2", "--out", "m"), "magic"),
    (("train", "{home}/rows", "--set", "width", "--out", "m"), "--set wants key=value"),
    (("predict", "nowhere", "{home}/inputs.csv", "--out", "o.csv"), "there is no model at nowhere"),
    (("predict", "{home}/rows", "{home}/inputs.csv", "--out", "o.csv"), "is a dataset, not a model"),
    (("predict", "{home}/model", "nowhere.csv", "--out", "o.csv"), "there is no file nowhere.csv"),
    (("predict", "{home}/model", "{home}/grid.m", "--out", "o.csv"), "grid.m must end in .csv, .parquet or .npz"),
    (("predict", "{home}/model", "{home}/inputs.csv", "--out", "o.xlsx"), "o.xlsx must end in .csv"),
    (("predict", "{home}/model", "{home}/inputs.csv", "--out", "{home}/inputs.csv"), "never replaces"),
    (("predict", "{home}/model", "{home}/inputs.csv", "--out", "o.csv", "--answer", "magic"), "no answer 'magic'"),
    (("predict", "{home}/model", "{home}/inputs.csv", "--out", "o.csv", "--tolerance", "-1"), "zero or more"),
    (("evaluate", "{home}/model", "{home}/grid-rows"), "another problem"),
    (("evaluate", "{home}/model", "{home}/model"), "is a model, not a dataset"),
    (("evaluate", "{home}/model", "{home}/rows", "--answer", "magic"), "no answer 'magic'"),
    (("certify", "{home}/model", "{home}/grid-rows"), "another problem"),
    (("certify", "{home}/model", "{home}/rows", "--confidence", "1.5"), "confidence"),
    (("certify", "{home}/model", "{home}/rows", "--confidence", "0.999"), "labels"),
    (("certify", "{home}/model", "{home}/rows", "--answers", "magic"), "no answer 'magic'"),
    (("certify", "{home}/model", "{home}/rows", "--range", "y=much"), "--range wants NAME=R"),
    (("evaluate", "{home}/model", "nowhere"), "there is no dataset at nowhere"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "sentence"), COMMANDS, ids=lambda value: value if isinstance(value, str) else None
)
def test_commands(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(path.name for path in home.iterdir())
    check(tuple(word.format(home=home) for word in words), sentence)
    assert list(tmp_path.iterdir()) == []
    assert sorted(path.name for path in home.iterdir()) == before


FILES: dict[str, tuple[str, str]] = {
    "missing": ("x0,x1\n0,0\n", "x2 is missing"),
    "extra": ("x0,x1,x2,wind\n0,0,0,9\n", "wind is not an input (--ignore-extra leaves such columns out)"),
    "twice": ("x0,x1,x2,x1\n0,0,0,0\n", "x1 stands more than once"),
    "another problem's": ("pd_1,pd_2\n1,2\n", "x0, x1, x2 are missing; pd_1, pd_2 are no inputs"),
    "words": ("x0,x1,x2\n0,0,0\n0,high,0\n", "x1 holds 'high' in row 2, which is not a number"),
    "hole": ("x0,x1,x2\n0,0,0\n0,,0\n", "x1 is empty or not finite in row 2"),
    "nan": ("x0,x1,x2\n0,nan,inf\n", "x1 is empty or not finite in row 1, and so are 1 more cells"),
    "ragged": ("x0,x1,x2\n0,0,0\n0,0\n", "cannot be read as .csv"),
    "semicolons": ("x0;x1;x2\n0,5;0;0\n", "semicolons"),
    "no rows": ("x0,x1,x2\n", "has no rows"),
    "nothing": ("", "cannot be read as .csv"),
}


@pytest.mark.parametrize("name", FILES)
def test_inputs(home: Path, tmp_path: Path, name: str) -> None:
    content, sentence = FILES[name]
    (tmp_path / "in.csv").write_text(content)
    check(("predict", home / "model", tmp_path / "in.csv", "--out", tmp_path / "out.csv"), sentence)
    assert [path.name for path in tmp_path.iterdir()] == ["in.csv"]


def test_inputs_that_are_no_tables(home: Path, tmp_path: Path) -> None:
    (tmp_path / "in.parquet").write_text("x0,x1,x2\n")
    (tmp_path / "in.npz").write_text("x0,x1,x2\n")
    np.savez(tmp_path / "wide.npz", x=np.zeros((2, 5)))
    np.savez(tmp_path / "uneven.npz", x0=np.zeros(2), x1=np.zeros(3), x2=np.zeros(2))
    np.savez(tmp_path / "objects.npz", x0=np.array([{}], dtype=object))
    for name, sentence in (
        ("in.parquet", "cannot be read as .parquet"),
        ("in.npz", "cannot be read as .npz"),
        ("wide.npz", "x has 5 columns and nonconvex:8,3,5 has 3 inputs"),
        ("uneven.npz", "different lengths"),
        ("objects.npz", "cannot be read as .npz"),
    ):
        check(("predict", home / "model", tmp_path / name, "--out", tmp_path / "out.csv"), sentence)


def test_extra_columns_may_be_passed_over(home: Path, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("wind,x0,x1,x2\n9,0,0,0\n")
    words = ("predict", home / "model", tmp_path / "in.csv", "--out", tmp_path / "o.csv", "--answer", "mean")
    assert invoke(*words).exit_code == 2
    assert invoke(*words, "--ignore-extra").exit_code == 0


def test_loads_in_megawatts(tmp_path: Path, grid3: Problem) -> None:
    megawatts = 100.0 * np.stack([0.9 * grid3.nominal, 1.1 * grid3.nominal])
    for factor in (1.0, 0.01):
        values = factor * megawatts
        path = tmp_path / f"{factor}.csv"
        write_table(path, {name: values[:, i] for i, name in enumerate(grid3.input_names)})
        if factor == 1.0:
            with pytest.raises(
                FileError, match=r"about 100 times the usual ones.*divide them by the base of 100 MVA"
            ):
                match_inputs(grid3, read_table(path))
        else:
            assert np.allclose(match_inputs(grid3, read_table(path)), values)


def _truncate(store: Path) -> None:
    chunk = max((store / "y" / "c").iterdir())
    chunk.unlink() if chunk.is_file() else shutil.rmtree(chunk)


def _garble(store: Path) -> None:
    (store / "zarr.json").write_text("{")


@pytest.mark.parametrize(("damage", "sentence"), [(_truncate, "truncated"), (_garble, "damaged")])
def test_damaged_stores(home: Path, tmp_path: Path, damage: Callable[[Path], None], sentence: str) -> None:
    shutil.copytree(home / "rows", tmp_path / "rows")
    damage(tmp_path / "rows")
    check(("evaluate", home / "model", tmp_path / "rows"), sentence)


@pytest.mark.parametrize("name", ["proxy.json", "arrays.safetensors"])
def test_damaged_models(home: Path, tmp_path: Path, name: str) -> None:
    shutil.copytree(home / "model", tmp_path / "model")
    file = tmp_path / "model" / name
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    words = ("predict", tmp_path / "model", home / "inputs.csv", "--out", tmp_path / "out.csv")
    done = invoke(*words)
    assert done.exit_code == 2
    assert "damaged" in done.stderr or "truncated" in done.stderr


def test_settings() -> None:
    given = ["width=2", "rate=1e-3", "deep=true", "loss=mae", 'word="2"', "none=null"]
    expected = {"width": 2, "rate": 1e-3, "deep": True, "loss": "mae", "word": "2", "none": None}
    assert parse_settings(given) == expected
    assert isinstance(parse_settings(["width=2"])["width"], int)
    for bad, why in (
        (["a=1", "a=2"], "twice"), (["a=[1]"], "one number"), (["a=NaN"], "finite"), (["seed=1"], "--seed"),
        (["__import__('os')=1"], "key=value"),
    ):  # fmt: skip
        with pytest.raises(FeasiblyError, match=why):
            parse_settings(bad)
    assert parse_settings(["a=__import__('os')"]) == {"a": "__import__('os')"}


def test_files_appear_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "answers.csv"
    target.write_text("before")

    def interrupted() -> None:
        with writing(target) as partial:
            partial.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert target.read_text() == "before"
    with writing(target) as partial:
        partial.write_text("whole")
        assert target.read_text() == "before"
    assert target.read_text() == "whole"
    folder = tmp_path / "folder"
    for content in ("one", "two"):
        with writing(folder) as partial:
            partial.mkdir()
            (partial / "file").write_text(content)
        assert (folder / "file").read_text() == content
    with pytest.raises(FileError, match="cannot be written"), writing(target / "below") as partial:
        pytest.fail("a file is no folder")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["answers.csv", "folder"]


def test_what_became_of_answers_in_words() -> None:
    kinds = (AnswerOutcome.OK, AnswerOutcome.OK, AnswerOutcome.INFEASIBLE)
    none = np.zeros(3)
    found = Answer(
        np.zeros((3, 1)), np.zeros((3, 1)), none, none, none, kinds, ("conditioned", "solved", "solved"), 0.1
    )
    assert answer_lines(found, "auto") == [
        "  2 OK: every constraint holds.",
        f"  1 INFEASIBLE: {AnswerOutcome.INFEASIBLE.advice}",
        "  Answered by: conditioned 1, solved 2.",
    ]
    assert len(answer_lines(found, "solved")) == 2


def test_numbers_in_words() -> None:
    seconds = {
        85e-6: "85 us",
        3.14e-3: "3.14 ms",
        0.9996: "1.0 s",
        42.4: "42 s",
        200: "3 min 20 s",
        7500: "2 h 5 min",
    }
    assert {value: duration(value) for value in seconds} == seconds
    assert (counted(1, "row"), counted(1200, "row"), counted(2, "branch", "branches")) == (
        "1 row", "1,200 rows", "2 branches",
    )  # fmt: skip
    given = {
        "a": np.array([1.0, np.nan]),
        "b": float("inf"),
        "c": np.int64(3),
        "d": Path("x"),
        "e": (np.True_, None),
    }
    assert plain(given) == {"a": [1.0, None], "b": None, "c": 3, "d": "x", "e": [True, None]}


@pytest.mark.parametrize("flags", [0x01, 0x40, 0x20])
def test_an_archive_that_cannot_be_opened(home: Path, tmp_path: Path, flags: int) -> None:
    """Encrypted, or so its header says: what a flipped bit makes of an .npz file (found by fuzzing)."""
    path = tmp_path / "in.npz"
    np.savez(path, x=np.zeros((2, 3)))
    raw = bytearray(path.read_bytes())
    for mark, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        raw[raw.index(mark) + place] |= flags
    path.write_bytes(raw)
    check(("predict", home / "model", path, "--out", tmp_path / "out.csv", "--answer", "mean"), "in.npz")
