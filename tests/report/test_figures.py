"""Figures: every axis named with its unit, numbers beside every picture, the same bytes every time."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from feasibly.problem.core import Problem
from feasibly.problem.families import grid_of
from feasibly.report import figures, paperfigures
from feasibly.report.drawing import Drawing, style
from feasibly.report.layout import place_buses, spread_graph
from feasibly.report.proven import draw_proven
from feasibly.report.published import ROBUSTNESS_118, TABLES
from feasibly.report.render import summarise
from feasibly.report.studies import LINES, SIZES
from tests.report.test_render import row


def _random(*shape: int) -> Any:
    return np.random.Generator(np.random.Philox(key=5)).lognormal(-7.0, 1.0, shape)


def _history(power: float) -> list[dict[str, Any]]:
    return [{"seconds": 0.5 * k, "stage": "sup", "max_eq": 0.3 / k**power} for k in range(1, 20)]


def _drawings(problem: Problem) -> dict[str, Drawing]:
    grid = grid_of(problem)
    assert grid is not None
    y = problem.start + 0.01 * _random(7, problem.n_outputs)
    three = {n: {"mean error": 1e-3, "MPV": 1e-5 * n, "total variance": 2e-5} for n in (5, 10, 20)}
    block = {"2 x MPV": 2e-4, "paper's V_e": 1e-4, "total variance": 3e-4, "outputs": 3.0}
    block["outputs where 2 x MPV is too small"] = 1.0
    points = [
        {
            "minutes": t.budget / 60, "labels": t.labels, "method": r.method, "answer": r.answer, "metric": m,
            "mean": r.values[m], "least": 0.9 * r.values[m], "largest": 1.1 * r.values[m], "published": r.values[m],
        }
        for t in ROBUSTNESS_118 for r in t.rows for m in paperfigures.GROWTH
    ]  # fmt: skip
    return {
        "spread": figures.draw_spread({"ridge, mean": _random(50), "gp, svp": [0.0, 1e-3, None]}, "max_eq"),
        "agreement": figures.draw_agreement(problem, y, y + 1e-3),
        "grid": figures.draw_grid(grid, _random(grid.n_buses), "mean voltage error"),
        "prices": figures.draw_grid(grid, [30.0, -2.0, 31.0], "mean price", "$ per MWh", logarithmic=False),
        "proven": draw_proven(_random(60)),
        "bounds": figures.draw_bounds(grid.bus_id.tolist(), _random(3), {"Hoeffding": 0.01, "betting": _random(3)}),
        "learning": figures.draw_learning({"mae": _history(0.5), "gp": _history(1.0)}, flat={"ridge": (0.1, 0.2)}),
        "budget": figures.draw_budget({"ridge": {"sup": 0.5, "total": 0.5}, "mae": {"compile": 3.0, "sup": 2.0}}),
        "growth": paperfigures.draw_growth(
            {size: summarise([row("ridge", "mean", 0.01)]) for size in SIZES.values()},
            {SIZES[name]: TABLES[name][0] for name in SIZES}, LINES,
        ),
        "robustness": paperfigures.draw_robustness(points, "svp"),
        "mpv": paperfigures.draw_mpv({("case57", "gp"): {"vm": block, "va": block}, ("case118", "gp"): {"vm": block}}),
        "convergence": paperfigures.draw_convergence({"vm": three}, {"vm": three}),
    }  # fmt: skip


@pytest.fixture(scope="module")
def drawings(grid3: Problem) -> dict[str, Drawing]:
    return _drawings(grid3)


def test_every_axis_says_what_it_shows(drawings: dict[str, Drawing]) -> None:
    for name, drawing in drawings.items():
        for axis in drawing.figure.axes:
            if axis.axison and axis.get_visible():
                words = f"{axis.get_xlabel()} {axis.get_ylabel()} {axis.get_title()}"
                assert words.strip(), name


def test_units_stand_on_the_axes(drawings: dict[str, Drawing]) -> None:
    units = {
        "spread": "(p.u.)", "agreement": "(rad)", "grid": "(p.u.)", "bounds": "(p.u.)", "learning": "(s)",
        "budget": "(s)",
        "growth": "(%)", "robustness": "(p.u.)", "mpv": "p.u.", "convergence": "p.u.",
    }  # fmt: skip
    for name, unit in units.items():
        said = " ".join(f"{axis.get_xlabel()} {axis.get_ylabel()}" for axis in drawings[name].figure.axes)
        assert unit in said, name


def test_numbers_are_columns_of_one_length(drawings: dict[str, Drawing]) -> None:
    for name, drawing in drawings.items():
        assert len({len(column) for column in drawing.numbers.values()}) == 1, name
        lines = list(csv.reader(io.StringIO(drawing.to_csv())))
        assert lines[0] == [str(key) for key in drawing.numbers]
        assert len(lines) > 1, name
        assert drawing.caption


def test_pictures_are_pictures_and_repeat(drawings: dict[str, Drawing], tmp_path: Path) -> None:
    paths = drawings["grid"].save(tmp_path, "grid")
    assert [path.suffix for path in paths] == [".pdf", ".svg", ".png", ".csv"]
    assert paths[0].read_bytes().startswith(b"%PDF")
    assert ElementTree.fromstring(paths[1].read_bytes()).tag.endswith("svg")
    assert paths[2].read_bytes().startswith(b"\x89PNG")
    assert drawings["grid"].image("svg") == paths[1].read_bytes()


def test_the_callers_own_style_is_left_alone() -> None:
    import matplotlib

    matplotlib.rcParams["font.size"] = 7.5
    with style():
        assert matplotlib.rcParams["font.size"] == 10.0
    assert matplotlib.rcParams["font.size"] == 7.5
    matplotlib.rcParams["font.size"] = 10.0


def test_the_spread_counts_every_instance() -> None:
    values = np.arange(1.0, 101.0)
    numbers = figures.draw_spread({"ridge": values}).numbers
    assert numbers["instances"] == [100]
    assert (numbers["p0"], numbers["p50"], numbers["p100"]) == ([1.0], [50.5], [100.0])


def test_proven_gaps_are_all_counted() -> None:
    drawing = draw_proven([0.1, 0.2, 0.2, 0.5, np.nan, -np.inf], "conditioned")
    assert sum(drawing.numbers["instances"]) == 4
    assert "none more than 0.5 %" in drawing.caption
    assert "2 without a proof" in drawing.caption


def test_agreement_counts_what_it_does_not_draw(grid3: Problem) -> None:
    y = np.repeat(grid3.start[None], 400, axis=0)
    off = y.copy()
    off[123, grid3.blocks["vm"].start] += 0.25
    numbers = figures.draw_agreement(grid3, y, off, points=10).numbers
    place = list(numbers["block"]).index("vm")
    assert numbers["largest_error"][place] == pytest.approx(0.25)
    assert numbers["values"][place] == 400 * 3


def test_errors_of_buses_against_complex_numbers(grid3: Problem) -> None:
    from feasibly.problem.sampling import sample

    x = sample(grid3, 4, seed=0)
    y = grid3.start + 0.02 * _random(4, grid3.n_outputs)
    z = y + 0.01
    found = figures.bus_errors(grid3, x, z, y)
    vm, va = grid3.blocks["vm"], grid3.blocks["va"]
    expected = [
        np.mean(
            [
                abs(z[k, vm][i] * np.exp(1j * z[k, va][i]) - y[k, vm][i] * np.exp(1j * y[k, va][i]))
                for k in range(4)
            ]
        )
        for i in range(3)
    ]
    assert found["voltage error"] == pytest.approx(expected)
    balance = np.abs(grid3.equalities(x, z)[:, :3] + 1j * grid3.equalities(x, z)[:, 3:])
    assert found["power mismatch"] == pytest.approx(balance.mean(axis=0))


def test_slivers_of_time_are_added_up() -> None:
    numbers = figures.draw_budget({"a": {"big": 99.0, "tiny": 0.001, "other": 0.2, "total": 99.201}}).numbers
    assert set(numbers) == {"label", "big"}


# ---- layout ----------------------------------------------------------------------------------------------


def test_a_chain_is_drawn_as_one() -> None:
    count = 60
    place = spread_graph(count, np.arange(count - 1), np.arange(1, count))
    steps = np.linalg.norm(np.diff(place, axis=0), axis=1)
    assert steps == pytest.approx(np.ones(count - 1), rel=0.2)
    assert np.linalg.norm(place[0] - place[-1]) == pytest.approx(count - 1, rel=0.1)
    assert np.array_equal(place, spread_graph(count, np.arange(count - 1), np.arange(1, count)))


def test_islands_and_twins_do_not_fall_together() -> None:
    start, end = np.array([0, 1, 3, 0, 0]), np.array([1, 2, 4, 5, 6])
    place = spread_graph(7, start, end)
    gaps = np.linalg.norm(place[:, None] - place[None], axis=2) + 9.0 * np.eye(7)
    assert np.isfinite(place).all()
    assert gaps.min() > 0.3


@pytest.mark.parametrize("count", [1, 2])
def test_tiny_graphs_have_a_place(count: int) -> None:
    assert spread_graph(count, np.zeros(0, dtype=int), np.zeros(0, dtype=int)).shape == (count, 2)


def test_the_map_is_used_where_it_is_complete(grid3: Problem) -> None:
    from dataclasses import replace

    grid = grid_of(grid3)
    assert grid is not None
    position = np.array([[10.0, 60.0], [11.0, 60.5], [12.0, 59.5]])
    place, mapped = place_buses(replace(grid, position=position))
    assert mapped
    assert place[:, 0] == pytest.approx(position[:, 0] * 0.5)
    assert not place_buses(grid)[1]
    unknown = np.where(np.arange(3)[:, None] == 1, np.nan, position)
    assert not place_buses(replace(grid, position=unknown))[1]
