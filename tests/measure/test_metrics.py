"""The metrics against plain loops over rows, bounds and constraints."""

from __future__ import annotations

import json
import math
from dataclasses import fields

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

from feasibly.measure.metrics import Metrics, Rows, measure_rows, summarise
from feasibly.problem.core import Problem
from feasibly.problem.errors import ProblemError
from tests.grids import GRID3, GRID6
from tests.plain import PlainGrid
from tests.problems import CASES, make, near_start

Array = NDArray[np.float64]


def _loop(problem: Problem, x: Array, y: Array, best: Array) -> list[dict[str, float]]:
    """One row at a time, by the definitions in the paper and plain Python."""
    found = []
    for i in range(len(x)):
        cost = float(problem.objectives(x[i : i + 1], y[i : i + 1])[0])
        equal = [abs(float(v)) for v in problem.equalities(x[i : i + 1], y[i : i + 1])[0]]
        bounds = []
        for value, low, high in zip(y[i], problem.lower, problem.upper, strict=True):
            if math.isfinite(low):
                bounds.append(max(low - value, 0.0))
            if math.isfinite(high):
                bounds.append(max(value - high, 0.0))
        rows = [max(float(v), 0.0) for v in problem.violations(x[i : i + 1], y[i : i + 1])[0]]
        every = rows + bounds
        found.append({
            "gap_percent": 100.0 * abs(cost - best[i]) / abs(best[i]),
            "signed_gap_percent": 100.0 * (cost - best[i]) / abs(best[i]),
            "max_eq": max(equal, default=0.0),
            "mean_eq": sum(equal) / len(equal) if equal else 0.0,
            "max_ineq": max(every, default=0.0),
            "mean_ineq": sum(every) / len(every) if every else 0.0,
            "max_bound": max(bounds, default=0.0),
            "objective": cost,
        })  # fmt: skip
    return found


@pytest.mark.parametrize("name", CASES)
def test_metrics_agree_with_a_plain_loop(name: str) -> None:
    problem = make(name)
    x, y = near_start(problem, 9, seed=1, width=0.4)
    best = np.linspace(-3.0, 5.5, 9)
    rows = measure_rows(problem, x, y, best)
    loop = _loop(problem, x, y, best)
    for field in fields(Rows):
        wanted = [row[field.name] for row in loop]
        np.testing.assert_allclose(
            getattr(rows, field.name), wanted, rtol=1e-10, atol=1e-12, err_msg=field.name
        )
    whole = summarise(rows)
    for key in (
        "gap_percent",
        "signed_gap_percent",
        "max_eq",
        "mean_eq",
        "max_ineq",
        "mean_ineq",
        "max_bound",
    ):
        assert getattr(whole, key) == pytest.approx(sum(row[key] for row in loop) / 9, rel=1e-10, abs=1e-12)
    feasible = [max(row["max_eq"], row["max_ineq"]) < 1e-4 for row in loop]
    assert whole.share_feasible == sum(feasible) / 9
    assert whole.count == 9


@pytest.mark.parametrize(("name", "tables"), [("grid3", GRID3), ("grid6", GRID6)])
def test_grid_metrics_agree_with_complex_arithmetic(name: str, tables: object) -> None:
    """The whole way from tables to metrics, with nothing of the package on the other side."""
    problem, plain = make(name), PlainGrid(tables)  # type: ignore[arg-type]
    x, y = near_start(problem, 5, seed=8)
    rows = measure_rows(problem, x, y)
    for i in range(len(x)):
        flows = plain.flows(x[i], y[i])
        equal = np.abs(np.concatenate([flows.balance.real, flows.balance.imag]))
        assert rows.max_eq[i] == pytest.approx(equal.max(), rel=1e-11)
        assert rows.mean_eq[i] == pytest.approx(equal.mean(), rel=1e-11)
        limits = np.maximum(plain.violations(flows), 0.0)
        assert rows.max_ineq[i] == pytest.approx(max(limits.max(), rows.max_bound[i]), rel=1e-11)


def test_the_metric_reports_natural_units() -> None:
    """|y| - 2 where the smooth function says (y^2 - 4) / 4."""
    problem = Problem(
        lambda x, y: y[0],
        [-np.inf],
        [np.inf],
        inequality=lambda x, y: (y**2 - 4.0) / 4.0,
        violation=lambda x, y: jnp.abs(y) - 2.0,
        box=([0.0], [1.0]),
    )
    rows = measure_rows(problem, np.zeros((3, 1)), [[1.0], [3.0], [-5.0]])
    np.testing.assert_allclose(rows.max_ineq, [0.0, 1.0, 3.0])


def test_percentiles_and_share() -> None:
    problem = Problem(lambda x, y: y[0], [0.0], [np.inf], box=([0.0], [1.0]))
    y = np.array([[0.0], [-1e-5], [-1e-3], [-1.0]])
    whole = summarise(measure_rows(problem, np.zeros((4, 1)), y, np.ones(4)))
    assert whole.share_feasible == 0.5
    assert whole.percentiles["max_bound"]["p100"] == 1.0
    assert whole.percentiles["max_bound"]["p50"] == pytest.approx((1e-5 + 1e-3) / 2)
    assert whole.max_bound == pytest.approx((1e-5 + 1e-3 + 1.0) / 4)
    assert summarise(measure_rows(problem, np.zeros((4, 1)), y), tolerance=1e-2).share_feasible == 0.75


def test_the_signed_gap_keeps_its_sign_when_costs_are_negative() -> None:
    problem = Problem(lambda x, y: y[0], [-np.inf], [np.inf], box=([0.0], [1.0]))
    rows = measure_rows(problem, np.zeros((2, 1)), [[-9.0], [-11.0]], [-10.0, -10.0])
    np.testing.assert_allclose(rows.signed_gap_percent, [10.0, -10.0])
    np.testing.assert_allclose(rows.gap_percent, [10.0, 10.0])


def test_answers_that_are_not_finite_never_vanish() -> None:
    problem = make("toy")
    x, y = near_start(problem, 4, seed=0)
    y[2, 0] = np.nan
    rows = measure_rows(problem, x, y, np.ones(4))
    for key in ("gap_percent", "max_eq", "mean_eq", "max_ineq", "mean_ineq", "max_bound"):
        assert np.isnan(getattr(rows, key)).tolist() == [False, False, True, False], key
    whole = summarise(rows, tolerance=1e9)
    assert math.isnan(whole.max_eq)
    assert math.isnan(whole.percentiles["max_eq"]["p50"])
    assert whole.share_feasible == 0.75


def test_without_a_reference_there_is_no_gap() -> None:
    x, y = near_start(make("toy"), 3, seed=0)
    whole = summarise(measure_rows(make("toy"), x, y))
    assert math.isnan(whole.gap_percent)
    assert math.isfinite(whole.max_eq)


def test_no_rows_at_all() -> None:
    problem = make("grid3")
    rows = measure_rows(problem, np.zeros((0, 4)), np.zeros((0, 10)), np.zeros(0))
    assert len(rows) == 0
    whole = summarise(rows)
    assert whole.count == 0
    assert math.isnan(whole.max_eq)
    assert math.isnan(whole.share_feasible)


def test_a_reference_of_the_wrong_length() -> None:
    x, y = near_start(make("toy"), 3, seed=0)
    with pytest.raises(ProblemError, match="reference: expected 3 costs"):
        measure_rows(make("toy"), x, y, [1.0, 2.0])


def test_metrics_are_plain_values() -> None:
    x, y = near_start(make("toy"), 3, seed=0)
    whole = summarise(measure_rows(make("toy"), x, y, np.ones(3)))
    again = json.loads(json.dumps(whole.as_dict(), allow_nan=False))
    assert Metrics(**again) == whole


def test_float32_answers_are_measured_in_float64() -> None:
    """The answer is rounded, the measuring is not: the residual of the rounded answer, to the last digit."""
    problem = make("grid6")
    x, y = near_start(problem, 2, seed=3)
    narrow = y.astype(np.float32)
    np.testing.assert_array_equal(
        measure_rows(problem, x, narrow).max_eq, measure_rows(problem, x, narrow.astype(np.float64)).max_eq
    )
