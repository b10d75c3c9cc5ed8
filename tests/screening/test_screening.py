"""Hours crossed with outages: the plan, the store that resumes, the page, and nonsense."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import feasibly as fb
from feasibly.problem.acopf import acopf
from feasibly.problem.families import grid_of
from feasibly.problem.read import read_grid
from feasibly.screening.plan import make_plan
from feasibly.screening.run import ScreenInterrupt
from feasibly.solve import solve
from tests.cli.conftest import invoke
from tests.grids import GRID3

FACTOR = np.array([0.85, 0.95, 1.05, 1.1, 0.9])


@pytest.fixture(scope="module")
def problem(tmp_path_factory: pytest.TempPathFactory) -> fb.Problem:
    grid = read_grid(GRID3.edited(branch=(0, 5, 90.0)).write(tmp_path_factory.mktemp("grid") / "grid.json"))
    return acopf(grid, vary=("load", "branch", "generator"))


@pytest.fixture(scope="module")
def proxy(problem: fb.Problem) -> fb.Proxy:
    return fb.fit(problem, fb.label(problem, count=30, seed=1, jobs=1), "ridge", budget=900)


@pytest.fixture(scope="module")
def result(proxy: fb.Proxy, tmp_path_factory: pytest.TempPathFactory) -> fb.Screening:
    out = tmp_path_factory.mktemp("screen") / "hours.zarr"
    return fb.screen(proxy, {"hour": np.arange(5), "factor": FACTOR}, "all", out, batch=12, full=True)


def test_every_hour_meets_every_outage(problem: fb.Problem) -> None:
    plan = make_plan(problem, {"factor": FACTOR})
    assert plan.names == ("none", "branch_1_2", "branch_2_3", "branch_1_3", "generator_1", "generator_3")
    x = plan.rows(1, 3).reshape(6, 2, -1)
    np.testing.assert_allclose(x[0, 1, :2], 1.05 * problem.nominal[:2])
    assert (x[0, :, 4:] == 1.0).all()
    for outage in range(5):
        assert (np.flatnonzero(x[outage + 1, 0] == 0.0) == [4 + outage]).all()
    some = make_plan(problem, {"factor": FACTOR}, "generators,branch_1_3")
    assert some.names == ("none", "generator_1", "generator_3", "branch_1_3")


def test_cells_are_what_the_solver_says(problem: fb.Problem, result: fb.Screening) -> None:
    assert result.finished
    assert result.cost.shape == (5, 6)
    plan = make_plan(problem, {"factor": FACTOR})
    exact = solve(problem, plan.rows(0, 5))
    wanted = np.array([one.objective for one in exact]).reshape(6, 5).T
    ok = np.array([one.outcome.ok for one in exact]).reshape(6, 5).T
    np.testing.assert_array_equal(result.outcome == 0, ok)
    np.testing.assert_allclose(result.cost[ok], wanted[ok], rtol=1e-4)
    assert ok[:, 0].all()
    assert not ok.all()  # without its larger generator the grid cannot serve its loads
    assert np.nanmax(result.violation) < 1e-4
    vm = result.y[..., problem.blocks["vm"]]
    np.testing.assert_allclose(result.lowest_voltage[ok], vm.min(axis=-1)[ok], rtol=1e-6)
    place = result.lowest_voltage_bus[ok]
    np.testing.assert_allclose(np.take_along_axis(vm[ok], place[:, None], 1)[:, 0], vm[ok].min(axis=1))
    np.testing.assert_allclose(result.bus_highest, np.nanmax(vm, axis=1), rtol=1e-6)


def test_loadings_are_those_of_the_limits(problem: fb.Problem, result: fb.Screening) -> None:
    x = make_plan(problem, {"factor": FACTOR}).rows(0, 5)
    y = result.y.swapaxes(0, 1).reshape(len(x), -1)
    known = np.isfinite(y).all(axis=1)
    both = problem.violations(x[known], y[known])[:, :2].max(
        axis=1
    )  # |S| - rate of the one branch with a limit
    on = x[known, problem.inputs["branch"].start] == 1.0
    loading = result.loading.T.reshape(-1)[known]
    np.testing.assert_allclose(loading[on], (both[on] + 0.9) / 0.9, rtol=1e-5)
    assert (loading[~on] == 0.0).all()


def test_an_interrupted_screening_goes_on_where_it_stopped(
    proxy: fb.Proxy, result: fb.Screening, tmp_path: Path
) -> None:
    profile = {"hour": np.arange(5), "factor": FACTOR}
    told: list[int] = []

    def stop(progress: Any) -> None:
        told.append(progress.done)
        if len(told) == 2:
            raise KeyboardInterrupt

    with pytest.raises(ScreenInterrupt, match="4 of 5 hours are in"):
        fb.screen(proxy, profile, "all", tmp_path / "out.zarr", batch=12, progress=stop)
    half = fb.Screening(tmp_path / "out.zarr")
    assert not half.finished
    assert half.outcomes()["UNANSWERED"] == 6
    half.write_page(tmp_path / "half.html")
    assert "not finished" in (tmp_path / "half.html").read_text()
    again: list[Any] = []
    whole = fb.screen(proxy, profile, "all", tmp_path / "out.zarr", batch=12, progress=again.append)
    assert [(one.done, one.resumed) for one in again] == [(5, 4)]
    assert whole.finished
    np.testing.assert_allclose(whole.cost, result.cost, rtol=1e-7)
    with pytest.raises(fb.FeasiblyError, match="another profile, outages or problem"):
        fb.screen(proxy, {"factor": FACTOR[:3]}, "all", tmp_path / "out.zarr")
    with pytest.raises(fb.FeasiblyError, match="another answer"):
        fb.screen(proxy, profile, "all", tmp_path / "out.zarr", answer="solved")


def test_several_processes_find_the_same(
    proxy: fb.Proxy, result: fb.Screening, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile = {"hour": np.arange(5), "factor": FACTOR}
    told: list[Any] = []

    def here(*_: object) -> None:
        raise AssertionError("cells were answered in this process")

    monkeypatch.setattr("feasibly.screening.run.answer_block", here)  # of this process alone
    both = fb.screen(
        proxy, profile, "all", tmp_path / "out.zarr", batch=12, full=True, jobs=2, progress=told.append
    )
    assert sorted(one.done for one in told)[-1] == 5
    assert both.finished
    for name in ("cost", "outcome", "violation", "lowest_voltage_bus", "branch_loading", "y"):
        np.testing.assert_allclose(getattr(both, name), getattr(result, name), rtol=1e-7, atol=1e-9)
    with pytest.raises(fb.FeasiblyError, match="jobs must be a whole number"):
        fb.screen(proxy, profile, "all", tmp_path / "none.zarr", jobs=0)


def test_the_page_is_one_file_that_names_what_matters(result: fb.Screening, tmp_path: Path) -> None:
    result.write_page(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert "5 hours under 5 single outages" in text
    assert "<td>generator_1</td><td class=n>5</td>" in text
    assert text.count("<polyline") == 2
    assert "data:image/png;base64," in text
    assert not re.search(r"(src|href)=\"(?!data:)", text)
    assert " nan" not in text


def test_the_command(proxy: fb.Proxy, tmp_path: Path) -> None:
    proxy.save(tmp_path / "model")
    profile = tmp_path / "hours.csv"
    profile.write_text("hour,factor\n0,0.9\n1,1.0\n")
    out = tmp_path / "out.zarr"
    done = invoke("screen", tmp_path / "model", profile, "--outages", "branches", "--out", out)
    assert done.exit_code == 0, done.output
    assert "2 hours under 3 outages" in done.stdout
    assert (tmp_path / "out.html").is_file()
    profile.write_text("hour,factor\n0,0.9\n2,1.0\n")
    done = invoke("screen", tmp_path / "model", profile, "--out", tmp_path / "b.zarr")
    assert done.exit_code == 2
    assert "between row 1 and row 2 hour moves by 2 instead of 1" in " ".join(done.stderr.split())


TIMES = ["2026-01-01T00", "2026-01-01T01", "2026-01-01T04"]


@pytest.mark.parametrize(
    ("profile", "outages", "said"),
    [
        ({"factor": [1.0, np.nan]}, "all", "no value for pd_2 in row 2"),
        ({"factor": []}, "all", "the profile has no hours"),
        (
            {"pd_2": [1.0]},
            "all",
            "the profile lacks pd_3 and 2 more; give every load a column, or all of them one",
        ),
        ({"factor": [1.0], "wind": [2.0]}, "all", "column 'wind' is no input of"),
        ({"factor": ["much"]}, "all", "holds something that is not a number"),
        ({"factor": [1.0, 1.0, 1.0], "time": TIMES}, "all", "time moves by"),
        ({"factor": [1.0], "branch_1_2": [0.0]}, "all", "leave statuses to the screening"),
        ({"factor": [1.0], "generator_1": [0.5]}, "all", "a status is 1 for an element in service"),
        ({"factor": [1.0]}, "branch_9_9", "there is no outage 'branch_9_9'"),
        ({"factor": [1.0]}, "", "no outage was asked for"),
        ([[1.0, 2.0]], "all", "an hour a row and 4 columns"),
        ("year.csv", "all", "must be a table of numbers"),
    ],
)
def test_what_cannot_be_screened(problem: fb.Problem, profile: Any, outages: str, said: str) -> None:
    if isinstance(profile, dict):
        profile = {name: np.asarray(values) for name, values in profile.items()}
    with pytest.raises(fb.FeasiblyError, match=re.escape(said)) as error:
        make_plan(problem, profile, outages)
    assert "\n" not in str(error.value)


def test_a_model_without_statuses_cannot_screen(problem: fb.Problem) -> None:
    grid = grid_of(problem)
    assert grid is not None
    with pytest.raises(
        fb.FeasiblyError, match=re.escape('train one with vary=("load", "branch", "generator")')
    ):
        make_plan(acopf(grid), {"factor": FACTOR})


def test_a_flipped_bit_in_a_result_is_noticed(result: fb.Screening, tmp_path: Path) -> None:
    shutil.copytree(result.path, tmp_path / "copy")
    chunk = next(file for file in sorted((tmp_path / "copy" / "cost" / "c").rglob("*")) if file.is_file())
    spoilt = bytearray(chunk.read_bytes())
    spoilt[len(spoilt) // 2] ^= 1
    chunk.write_bytes(spoilt)
    with pytest.raises(fb.FeasiblyError, match="damaged: cost cannot be read"):
        _ = fb.Screening(tmp_path / "copy").cost
