"""Why a grid has no solution: the least by which its limits would have to give way.

    python benchmarks/giving_way.py FILE ...

Every limit (generation, voltage, flow, angle) may be exceeded, the power balance may not, and the sum of what is
exceeded (per unit) is made as small as can be. Above zero there is no solution near the point that was found; what is
exceeded there says which limits are at odds.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

import feasibly as fb
from feasibly.problem.families import grid_of
from feasibly.solve.nlp import Solver
from feasibly.solve.records import SolverOptions

WORDS = {"pg": "active power of generators", "qg": "reactive power of generators", "vm": "voltages"}
_SHOWN = 1e-5
_PULL = 1e-7
"""Weight of staying near the first guess, which makes the point unique where limits leave it free."""


def relaxed(problem: fb.Problem) -> fb.Problem:
    """The problem of `(y, above, below, beyond)`, in which only the balance and the references' angles must hold.

    Outputs leave their bounds by `above - below`, voltages not below nothing; inequalities are at most `beyond`.
    """
    n, count = problem.n_outputs, problem.n_inequalities
    soft = np.zeros(n, dtype=bool)
    for block in WORDS:
        soft[problem.blocks[block]] = True
    soft &= np.isfinite(problem.lower) | np.isfinite(problem.upper)
    places = np.flatnonzero(soft)
    k = len(places)
    below = np.full(k, np.inf)
    voltage = (places >= problem.blocks["vm"].start) & (places < problem.blocks["vm"].stop)
    below[voltage] = np.maximum(problem.lower[places[voltage]], 0.0)

    def at(z: Any) -> Any:
        return z[:n].at[places].add(z[n : n + k] - z[n + k : n + 2 * k])

    def objective(x: Any, z: Any) -> Any:
        return jnp.sum(z[n:]) + 0.5 * _PULL * jnp.sum((z[:n] - problem.start) ** 2)

    inequality = problem.inequality
    return fb.Problem(
        objective,
        np.concatenate([problem.lower, np.zeros(2 * k + count)]),
        np.concatenate([problem.upper, np.full(k, np.inf), below, np.full(count, np.inf)]),
        equality=lambda x, z: problem.equality(x, at(z)),
        inequality=None if inequality is None else lambda x, z: inequality(x, at(z)) - z[n + 2 * k :],
        nominal=problem.nominal,
        box=(problem.nominal, problem.nominal),
        start=np.concatenate(
            [problem.start, np.full(k, 0.1), np.minimum(0.1, 0.5 * below), np.full(count, 0.1)]
        ),
        name=f"{problem.name}, limits giving way",
    )


def least(problem: fb.Problem, seconds: float = 120.0) -> dict[str, Any] | None:
    """What is exceeded at the least infeasible point that was found, by kind; nothing where none was."""
    soft = relaxed(problem)
    options = SolverOptions(warm="none", max_seconds=seconds, max_iterations=1000, tolerance=1e-7)
    solved = Solver.build(soft, options).nominal
    if not solved.outcome.ok:
        return None
    n = problem.n_outputs
    k = (len(solved.y) - n - problem.n_inequalities) // 2
    moved = solved.y[n : n + k] - solved.y[n + k : n + 2 * k]
    y = solved.y[:n].copy()
    places = [
        i for block in WORDS for i in range(problem.blocks[block].start, problem.blocks[block].stop)
        if np.isfinite(problem.lower[i]) or np.isfinite(problem.upper[i])
    ]  # fmt: skip
    y[places] += moved
    grid = grid_of(problem)
    assert grid is not None
    found: dict[str, Any] = {"sum": float(np.sum(solved.y[n:]))}
    for block, words in WORDS.items():
        span = problem.blocks[block]
        low, high = problem.lower[span] - y[span], y[span] - problem.upper[span]
        off = np.maximum(low, high)
        worst = int(np.argmax(off))
        if off[worst] > _SHOWN:
            unit, base = (
                ("p.u.", 1.0) if block == "vm" else ("MW" if block == "pg" else "Mvar", grid.base_mva)
            )
            bus = grid.bus_id[worst if block == "vm" else grid.gen_bus[worst]]
            found[words] = {"count": int((off > _SHOWN).sum()), "most": float(off[worst] * base), "unit": unit,
                            "side": "below" if low[worst] > high[worst] else "above", "bus": int(bus)}  # fmt: skip
    if problem.n_inequalities:
        over = problem.violations(problem.nominal[None], y[None])[0]
        if over.max() > _SHOWN:
            found["flow and angle limits"] = {"count": int((over > _SHOWN).sum()), "most": float(over.max()),
                                              "unit": "p.u.", "side": "above"}  # fmt: skip
    return found


def say(found: dict[str, Any] | None) -> str:
    """In words."""
    if found is None:
        return "no point was found even with limits that give way"
    parts = [f"{row['count']} of its {kind}, the worst {row['most']:.3g} {row['unit']} {row['side']}"
             + (f" (bus {row['bus']})" if "bus" in row else "")
             for kind, row in found.items() if isinstance(row, dict)]  # fmt: skip
    return f"limits would have to give way: {'; '.join(parts)}" if parts else "all limits can hold"


def main() -> None:
    """Each file in turn."""
    from files import load

    for name in sys.argv[1:]:
        problem, _, _ = load(Path(name))
        print(name, say(least(problem)), flush=True)


if __name__ == "__main__":
    main()
