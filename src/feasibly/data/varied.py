"""What varies among the rows of a foreign dataset, as the blocks of an AC-OPF's input."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from feasibly.problem.acopf import SPREAD, acopf
from feasibly.problem.core import Problem
from feasibly.problem.drawing import VARY, Draws
from feasibly.problem.grid import Grid

Array = NDArray[np.float64]


def vary_of(problem: Problem) -> tuple[str, ...]:
    """What the input of an AC-OPF is made of."""
    return ("load",) if problem.spec is None else tuple(problem.spec.get("vary", ("load",)))


def in_order(kinds: Mapping[str, bool]) -> tuple[str, ...]:
    """`load` and those of `kinds` that vary."""
    return tuple(kind for kind in VARY if kind == "load" or kinds.get(kind, False))


def join_inputs(problem: Problem, parts: Mapping[str, Array]) -> Array:
    """Rows of the input from its blocks; what is not given is nominal."""
    rows = len(next(iter(parts.values())))
    x = np.tile(problem.nominal, (rows, 1))
    for name, part in problem.inputs.items():
        if name in parts:
            x[:, part] = parts[name]
    return x


def covering(
    problem: Problem, grid: Grid, low: Array, high: Array, most_out: int, warnings: list[str]
) -> Problem:
    """The AC-OPF of `grid`, made of what `problem` is made of, whose declared range covers inputs from `low` to `high`
    with at most `most_out` elements out of service."""
    vary = vary_of(problem)
    made = acopf(grid, vary=vary)
    moved = np.maximum(np.abs(high - made.nominal), np.abs(low - made.nominal))

    def widest(names: tuple[str, ...], least: float) -> float:
        parts = [made.inputs[name] for name in names if name in made.inputs]
        if not parts:
            return least
        nominal, reach = (
            np.concatenate([values[part] for part in parts]) for values in (made.nominal, moved)
        )
        still = (nominal == 0.0) & (reach > 0.0)
        if still.any():
            what = {"pd": "loads", "c1": "costs", "rating": "ratings"}[names[0]]
            warnings.append(
                f"{int(still.sum())} {what} vary around a nominal value of zero, so that the declared range "
                "leaves them out"
            )
        relative = reach[nominal != 0.0] / np.abs(nominal[nominal != 0.0])
        # A hundredth is fine enough for a range; rounding first keeps 0.2 from becoming 0.21.
        return max(least, float(np.ceil(round(float(relative.max(initial=0.0)) * 100.0, 6)) / 100.0))

    spread = widest(("pd", "qd"), SPREAD)
    if vary == ("load",):
        return acopf(grid, spread=spread)
    usual = Draws()
    costs, ratings = widest(("c1", "c2"), usual.cost_spread), widest(("rating",), usual.rating_spread)
    if ratings >= 1.0:
        warnings.append(
            "some ratings are more than twice the nominal ones; the declared range leaves them out"
        )
    draws = Draws(
        outages="single" if most_out <= 1 else most_out,
        # Costs that differ by more than themselves have changed places rather than been scaled.
        costs="scaled" if costs < 1.0 else "permuted",
        cost_spread=min(costs, 0.99),
        rating_spread=min(ratings, 0.99),
    )
    return acopf(grid, spread=spread, vary=vary, draws=draws)
