"""An input outside what was learnt is flagged by every interface in the same words, whichever input it is.

Where there is no answer at all that is said instead: the solver has looked.
"""

from __future__ import annotations

import csv
import functools
import html
import tempfile
from pathlib import Path

import numpy as np
import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

import feasibly as fb
from feasibly.cli import app
from feasibly.serve.app import build_app
from feasibly.serve.shelf import Shelf
from tests.grids import GRID3
from tests.proxies import trained
from tests.serve.conftest import make_desk, wait_until_ready

OUTSIDE, INFEASIBLE = fb.AnswerOutcome.OUTSIDE, fb.AnswerOutcome.INFEASIBLE
ADVICE = OUTSIDE.advice


@functools.cache
def varied() -> fb.Proxy:
    with tempfile.TemporaryDirectory() as folder:
        path = GRID3.write(Path(folder) / "grid.json")
        problem = fb.load_problem(path, vary=("load", "branch", "generator", "cost", "rating"))
    data = fb.label(problem, fb.sample(problem, 80, seed=1), jobs=1)
    return fb.fit(problem, data, "ridge", labels=25, budget=300.0)


def beyond(proxy: fb.Proxy) -> dict[str, np.ndarray]:
    """For every kind of input a row that is as usual but for one entry of that kind (or one outage too many)."""
    problem, rows = proxy.problem, {}
    assert proxy.box is not None
    low, high = proxy.box
    for kind, where in problem.inputs.items():
        for end, value in (("above", 1.5 * high), ("below", 0.7 * low)):
            row = np.array(problem.nominal)
            if kind in ("branch", "generator"):  # one may be out, and these are two
                row[[problem.inputs["branch"].start, problem.inputs["generator"].start]] = 0.0
            else:
                row[where.start] = value[where.start]
            rows[f"{kind} {end}"] = row
    return rows


def expected(proxy: fb.Proxy, rows: dict[str, np.ndarray]) -> dict[str, fb.AnswerOutcome]:
    """Of `conditioned`, by what labelling finds."""
    solved = fb.label(proxy.problem, np.stack(list(rows.values())), jobs=1).solved
    return {kind: OUTSIDE if there else INFEASIBLE for kind, there in zip(rows, solved, strict=True)}


@pytest.fixture(scope="module")
def both() -> dict[str, tuple[fb.Proxy, dict[str, np.ndarray]]]:
    own = trained("toy")[0]
    far = {"own above": own.problem.nominal + 50.0, "own below": own.problem.nominal - 50.0}
    return {"grid": (varied(), beyond(varied())), "own": (own, far)}


def test_in_python(both: dict[str, tuple[fb.Proxy, dict[str, np.ndarray]]]) -> None:
    kinds = set(both["grid"][0].problem.inputs)
    assert kinds == {"pd", "qd", "branch", "generator", "c1", "c2", "rating"}
    for proxy, rows in both.values():
        for answer, wanted in (
            ("mean", dict.fromkeys(rows, OUTSIDE)),
            ("conditioned", expected(proxy, rows)),
        ):
            found = proxy.predict(np.stack(list(rows.values())), answer)
            assert dict(zip(rows, found.outcome, strict=True)) == wanted
            missing = [outcome is INFEASIBLE for outcome in found.outcome]
            np.testing.assert_array_equal(np.isnan(found.y).all(axis=1), missing)
        assert proxy.predict(proxy.problem.nominal).outcome[0] is fb.AnswerOutcome.OK


def test_in_the_command_line(both: dict[str, tuple[fb.Proxy, dict[str, np.ndarray]]], tmp_path: Path) -> None:
    proxy, rows = both["grid"]
    proxy.save(tmp_path / "model")
    with (tmp_path / "in.csv").open("w", newline="") as out:
        csv.writer(out).writerows([proxy.problem.input_names, *rows.values()])
    words = ["predict", tmp_path / "model", tmp_path / "in.csv", "--out", tmp_path / "out.csv", "--per-unit"]
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    wanted = list(expected(proxy, rows).values())
    for outcome in (OUTSIDE, INFEASIBLE):
        assert f"{wanted.count(outcome)} {outcome.name}: {outcome.advice}" in " ".join(done.stdout.split())
    with (tmp_path / "out.csv").open(newline="") as written:
        assert [line["outcome"] for line in csv.DictReader(written)] == [outcome.name for outcome in wanted]


def test_in_a_screening(both: dict[str, tuple[fb.Proxy, dict[str, np.ndarray]]], tmp_path: Path) -> None:
    both["grid"][0].save(tmp_path / "model")
    (tmp_path / "hours.csv").write_text("hour,factor\n0,1.0\n1,1.9\n")
    words = ["screen", tmp_path / "model", tmp_path / "hours.csv", "--out", tmp_path / "out.zarr"]
    done = CliRunner().invoke(
        app, [str(word) for word in (*words, "--outages", "branch_1_2", "--answer", "mean")]
    )
    assert done.exit_code == 0, done.output
    assert f"2 OUTSIDE: {ADVICE}" in " ".join(done.stdout.split())  # one hour, with the outage and without
    assert ADVICE in html.unescape((tmp_path / "out.html").read_text())


def test_in_the_server(both: dict[str, tuple[fb.Proxy, dict[str, np.ndarray]]]) -> None:
    models = {name: proxy for name, (proxy, _) in both.items()}
    desk = make_desk(Shelf((), models, warm=(1,)))
    with TestClient(build_app(desk, print), base_url="http://127.0.0.1") as client:
        wait_until_ready(client)
        for name, (proxy, rows) in both.items():
            names = proxy.problem.input_names
            asked = [dict(zip(names, row.tolist(), strict=True)) for row in rows.values()]
            plain = client.post(f"/models/{name}/answer", json={"inputs": asked}).json()
            wanted = list(expected(proxy, rows).values())
            assert [row["outcome"] for row in plain["rows"]] == [outcome.name for outcome in wanted]
            assert [row["advice"] for row in plain["rows"]] == [outcome.advice for outcome in wanted]
            x = np.stack(list(rows.values()))
            tensor = {"name": "x", "datatype": "FP64", "shape": list(x.shape), "data": x.ravel().tolist()}
            v2 = client.post(f"/v2/models/{name}/infer", json={"inputs": [tensor]}).json()["outputs"]
            shown = wanted.index(OUTSIDE)
            page = client.post(f"/models/{name}/look", json={"x": x[shown].tolist()}).json()
            assert (page["outcome"], page["advice"]) == ("OUTSIDE", ADVICE)
            lines = [",".join(names), *(",".join(map(repr, row.tolist())) for row in rows.values())]
            table = client.post(f"/models/{name}/table?answer=mean", content="\n".join(lines)).json()
            assert set(table["outcome"]) == {"OUTSIDE"}
            said = next(out["data"] for out in v2 if out["name"] == "outcome")
            assert said == [outcome.name for outcome in wanted]
