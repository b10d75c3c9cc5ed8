"""Proxies exported, read back by JAX alone and by ONNX Runtime without JAX."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import feasibly as fb
from tests.proxies import trained


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A grid's proxy in both formats, inputs, and what it answers itself."""
    folder = tmp_path_factory.mktemp("exported")
    proxy, data = trained("grid3")
    fb.export(proxy, folder / "grid.stablehlo")
    x = data.x[data.solved][:12]
    answer = proxy.predict(x, "conditioned")
    assert answer.ok.all()
    np.savez(
        folder / "expected.npz", x=x, y=answer.y, cost=answer.objective, mean=proxy.model.predict(x).mean
    )
    return folder


def _run(code: str, folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr


def test_jax_alone_reads_stablehlo(folder: Path) -> None:
    """Without feasibly: conditioned answers for any number of rows, with their violations."""
    _run(
        "import sys, numpy as np, jax\n"
        "jax.config.update('jax_enable_x64', True)\n"
        "given = np.load('expected.npz')\n"
        "program = jax.export.deserialize(bytearray(open('grid.stablehlo', 'rb').read()))\n"
        "for rows in (12, 5):\n"
        "    out = program.call(given['x'][:rows])\n"
        "    assert np.abs(out['y'] - given['y'][:rows]).max() < 1e-4\n"
        "    assert np.abs(out['objective'] / given['cost'][:rows] - 1).max() < 1e-7\n"
        "    assert out['max_equality'].max() < 1e-6 and out['max_inequality'].max() < 1e-6\n"
        "assert not any(name.startswith('feasibly') for name in sys.modules)\n",
        folder,
    )


def test_the_example_answers_without_jax(tmp_path: Path) -> None:
    """An ONNX file of a grid, asked by ONNX Runtime where JAX cannot be imported."""
    pytest.importorskip("jax2onnx")
    proxy, _ = trained("grid3")
    made = fb.export(proxy, tmp_path / "grid.onnx")
    assert (made.answer, made.difference < 1e-6) == ("mean", True)
    example = Path(__file__).parents[2] / "examples" / "onnx_without_jax.py"
    code = (
        "import runpy, sys\n"
        "sys.modules['jax'] = sys.modules['feasibly'] = None\n"
        f"sys.argv = ['example', 'grid.onnx']\n"
        f"runpy.run_path({str(example)!r}, run_name='__main__')\n"
    )
    _run(code, tmp_path)


def test_facts_say_what_x_and_y_are(folder: Path) -> None:
    proxy, _ = trained("grid3")
    facts = json.loads((folder / "grid.stablehlo.json").read_text())
    assert facts["answer"] == "conditioned"
    assert facts["fingerprint"] == proxy.problem.fingerprint
    assert facts["inputs"]["x"]["names"] == list(proxy.problem.input_names)
    assert set(facts["inputs"]["x"]["units"]) == {"per unit of 100 MVA"}
    units = dict(zip(facts["outputs"]["y"]["names"], facts["outputs"]["y"]["units"], strict=True))
    assert {units["vm_1"], units["va_1"], units["pg_1"]} == {"per unit", "rad", "per unit of 100 MVA"}
    assert facts["outputs"]["y"]["upper"][0] == proxy.problem.upper[0]
    assert None in facts["outputs"]["y"]["lower"]  # angles are open, and JSON has no infinity
    assert facts["largest_difference"] < 1e-9


def test_mean_as_stablehlo_of_a_problem_of_ones_own(tmp_path: Path) -> None:
    proxy, data = trained("toy")
    made = fb.export(proxy, tmp_path / "toy.stablehlo", "mean")
    assert made.difference < 1e-9
    facts = json.loads(made.facts.read_text())
    assert set(facts["inputs"]["x"]["units"]) == {""}
    _ = data


@pytest.mark.parametrize(
    ("name", "answer", "words"),
    [
        ("a.txt", None, "should end in .stablehlo or .onnx"),
        ("a.onnx", "conditioned", "ONNX carries mean answers alone"),
        ("a.stablehlo", "svp", "choose conditioned or mean"),
        ("nowhere/a.stablehlo", None, "there is no folder"),
    ],
)
def test_what_cannot_be_written(tmp_path: Path, name: str, answer: str | None, words: str) -> None:
    proxy, _ = trained("toy")
    with pytest.raises(fb.FeasiblyError, match=words):
        fb.export(proxy, tmp_path / name, answer)
    assert not list(tmp_path.iterdir())


def test_files_are_not_replaced_unasked(tmp_path: Path) -> None:
    proxy, _ = trained("toy")
    (tmp_path / "toy.stablehlo.json").write_text("mine")
    with pytest.raises(fb.FeasiblyError, match=r"toy\.stablehlo\.json is there already"):
        fb.export(proxy, tmp_path / "toy.stablehlo", "mean")
    assert (tmp_path / "toy.stablehlo.json").read_text() == "mine"
    fb.export(proxy, tmp_path / "toy.stablehlo", "mean", overwrite=True)


def test_the_command_writes_and_refuses(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from feasibly.cli import app

    proxy, _ = trained("grid3")
    proxy.save(tmp_path / "model")
    words = [
        "export",
        str(tmp_path / "model"),
        str(tmp_path / "grid.stablehlo"),
        "--answer",
        "mean",
        "--json",
    ]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["answer"] == "mean"
    assert told["difference"] < 1e-9
    assert json.loads(Path(told["facts"]).read_text())["problem"] == proxy.problem.name
    refused = CliRunner().invoke(app, words)
    assert refused.exit_code == 2
    assert "exists already" in " ".join(refused.stderr.split())
