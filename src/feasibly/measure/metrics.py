"""The paper's five columns and more, in float64, over all constraints."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from feasibly.problem.core import Problem
from feasibly.problem.errors import Fault, ProblemError

TOLERANCE = 1e-4
"""Below this, a violation counts as none in `share_feasible`."""

PERCENTILES = (50, 95, 100)

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Rows:
    """The measures of each instance: arrays of one length."""

    gap_percent: Array
    """|cost - cost*| / |cost*| in percent; NaN without a reference."""
    signed_gap_percent: Array
    max_eq: Array
    mean_eq: Array
    max_ineq: Array
    mean_ineq: Array
    max_bound: Array
    objective: Array

    def __len__(self) -> int:
        return len(self.objective)

    @property
    def worst(self) -> Array:
        """The largest violation of any kind."""
        return np.maximum(self.max_eq, self.max_ineq)


@dataclass(frozen=True)
class Metrics:
    """Averages over instances, as the paper's tables print them, with the spread beside them.

    `max_eq` is the mean over instances of the largest |equality|; `max_ineq` counts bounds, limits and angles
    alike; `max_bound` counts bounds alone, as the published tables do. Per unit for grids.
    """

    count: int
    gap_percent: float
    signed_gap_percent: float
    max_eq: float
    mean_eq: float
    max_ineq: float
    mean_ineq: float
    max_bound: float
    share_feasible: float
    percentiles: dict[str, dict[str, float]]

    def as_dict(self) -> dict[str, object]:
        """Plain values, ready for JSON."""
        return asdict(self)


def measure_rows(problem: Problem, x: ArrayLike, y: ArrayLike, reference: ArrayLike | None = None) -> Rows:
    """Measure each answer `y` to each input `x`; `reference` is the true optimal cost of each, if known."""
    x, y = problem.check_rows(x, y)
    objective = problem.objectives(x, y)
    equal = np.abs(problem.equalities(x, y))
    bounds = problem.bound_violations(y, x)
    unequal = np.concatenate([np.maximum(problem.violations(x, y), 0.0), bounds], axis=1)
    if reference is None:
        signed = np.full(len(x), np.nan)
    else:
        best = np.asarray(reference, dtype=np.float64)
        if best.shape != (len(x),):
            fault = Fault("reference", f"expected {len(x)} costs, got shape {best.shape}")
            raise ProblemError(f"data for problem {problem.name!r}", [fault])
        signed = 100.0 * (objective - best) / np.maximum(np.abs(best), np.finfo(np.float64).tiny)
    return Rows(
        gap_percent=np.abs(signed),
        signed_gap_percent=signed,
        max_eq=_largest(equal),
        mean_eq=_average(equal),
        max_ineq=_largest(unequal),
        mean_ineq=_average(unequal),
        max_bound=_largest(bounds),
        objective=objective,
    )


def summarise(rows: Rows, tolerance: float = TOLERANCE) -> Metrics:
    """Average `rows`. An answer that is not finite makes its averages NaN rather than vanish from them."""
    percentiles = {}
    for name in ("gap_percent", "max_eq", "mean_eq", "max_ineq", "mean_ineq", "max_bound"):
        values = getattr(rows, name)
        percentiles[name] = {
            f"p{q}": float(np.percentile(values, q)) if len(values) else float("nan") for q in PERCENTILES
        }
    with np.errstate(invalid="ignore"):
        share = float(np.mean(rows.worst < tolerance)) if len(rows) else float("nan")
    return Metrics(
        count=len(rows),
        gap_percent=_mean(rows.gap_percent),
        signed_gap_percent=_mean(rows.signed_gap_percent),
        max_eq=_mean(rows.max_eq),
        mean_eq=_mean(rows.mean_eq),
        max_ineq=_mean(rows.max_ineq),
        mean_ineq=_mean(rows.mean_ineq),
        max_bound=_mean(rows.max_bound),
        share_feasible=share,
        percentiles=percentiles,
    )


def _largest(values: Array) -> Array:
    return np.max(values, axis=1) if values.shape[1] else np.zeros(len(values))


def _average(values: Array) -> Array:
    return np.mean(values, axis=1) if values.shape[1] else np.zeros(len(values))


def _mean(values: Array) -> float:
    return float(np.mean(values)) if len(values) else float("nan")
