"""AC optimal power flow in polar form, after the paper's appendix A.

`x = [pd, qd]` over the loads, `y = [pg, qg, vm, va]` over generators and buses; per unit and radians.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from feasibly.problem.core import Problem
from feasibly.problem.grid import Grid

SPREAD = 0.2
"""How far loads vary around their nominal value unless told otherwise, as in OPFData."""


def acopf(grid: Grid, *, spread: float = SPREAD, name: str | None = None) -> Problem:
    """The AC optimal power flow of `grid`, whose loads vary by `spread` around their nominal values.

    Equalities: active then reactive power balance of every bus (generation - load - shunts - flows).
    Inequalities: apparent-power limits at the from ends, then the to ends; current limits likewise; upper
    then lower angle differences. Limits enter squared, `(|S|^2 - r^2) / (2 r)`, which is smooth at zero flow
    and equal to `|S| - r` to first order at the limit; the metrics report `|S| - r` itself.
    """
    n, g = grid.n_buses, grid.n_generators
    blocks = {
        "pg": slice(0, g),
        "qg": slice(g, 2 * g),
        "vm": slice(2 * g, 2 * g + n),
        "va": slice(2 * g + n, 2 * g + 2 * n),
    }
    va_low, va_high = np.full(n, -np.inf), np.full(n, np.inf)
    va_low[grid.reference] = va_high[grid.reference] = 0.0
    lower = np.concatenate([grid.pmin, grid.qmin, grid.vmin, va_low])
    upper = np.concatenate([grid.pmax, grid.qmax, grid.vmax, va_high])
    functions = _functions(grid, blocks)
    constrained = _has_inequalities(grid)
    start = np.concatenate(
        [_inside(grid.pmin, grid.pmax), _inside(grid.qmin, grid.qmax), np.ones(n), np.zeros(n)]
    )
    start = np.clip(start, lower, upper)
    buses = grid.bus_id
    return Problem(
        functions["objective"],
        lower,
        upper,
        equality=functions["equality"],
        inequality=functions["inequality"] if constrained else None,
        violation=functions["violation"] if constrained else None,
        spread=spread,
        nominal=np.concatenate([grid.pd, grid.qd]),
        start=start,
        input_names=[*_names("pd", buses[grid.load_bus]), *_names("qd", buses[grid.load_bus])],
        output_names=[
            *_names("pg", buses[grid.gen_bus]), *_names("qg", buses[grid.gen_bus]),
            *_names("vm", buses), *_names("va", buses),
        ],
        blocks=blocks,
        name=grid.name if name is None else name,
        spec={"family": "acopf", "spread": spread, "grid": grid},
        some_inequalities=functions["some"] if constrained else None,
    )  # fmt: skip


def _functions(grid: Grid, blocks: dict[str, slice]) -> dict[str, Callable[..., Any]]:
    n, loads = grid.n_buses, grid.n_loads
    f, t = grid.branch_from, grid.branch_to
    y_ff, y_ft, y_tf, y_tt = grid.admittances()
    # What a bus draws in proportion to its own voltage squared: branch ends and shunts, added up once.
    own = np.zeros(n, dtype=np.complex128)
    np.add.at(own, f, y_ff)
    np.add.at(own, t, y_tt)
    np.add.at(own, grid.shunt_bus, grid.gs + 1j * grid.bs)
    draws = np.concatenate([f, t])
    c2, c1, c0 = grid.cost.T
    c0_total = float(c0.sum())

    rated = np.flatnonzero(np.isfinite(grid.rate))
    limited = np.flatnonzero(np.isfinite(grid.current))
    rate, current = grid.rate[rated], grid.current[limited]
    # Two bounds on an angle difference of parallel branches are one: keep every row, they are cheap.
    capped_above = np.flatnonzero(np.isfinite(grid.angmax))
    capped_below = np.flatnonzero(np.isfinite(grid.angmin))

    def split(y: Any) -> tuple[Any, Any, Any, Any]:
        pg, qg, vm, va = (y[blocks[key]] for key in ("pg", "qg", "vm", "va"))
        return pg, qg, vm, va

    def exchanged(vm: Any, va: Any) -> tuple[Any, Any, Any, Any]:
        """Active and reactive power through the coupling terms, at the from and the to ends."""
        angle = va[f] - va[t]
        product = vm[f] * vm[t]
        cos, sin = product * jnp.cos(angle), product * jnp.sin(angle)
        p_from = y_ft.real * cos + y_ft.imag * sin
        q_from = y_ft.real * sin - y_ft.imag * cos
        p_to = y_tf.real * cos - y_tf.imag * sin
        q_to = -y_tf.real * sin - y_tf.imag * cos
        return p_from, q_from, p_to, q_to

    def objective(x: Any, y: Any) -> Any:
        pg = y[blocks["pg"]]
        return jnp.sum((c2 * pg + c1) * pg) + c0_total

    def equality(x: Any, y: Any) -> Any:
        pg, qg, vm, va = split(y)
        p_from, q_from, p_to, q_to = exchanged(vm, va)
        square = vm * vm
        active = (-own.real * square).at[draws].add(-jnp.concatenate([p_from, p_to]))
        reactive = (own.imag * square).at[draws].add(-jnp.concatenate([q_from, q_to]))
        active = active.at[grid.gen_bus].add(pg).at[grid.load_bus].add(-x[:loads])
        reactive = reactive.at[grid.gen_bus].add(qg).at[grid.load_bus].add(-x[loads:])
        return jnp.concatenate([active, reactive])

    def squared_flows(y: Any) -> tuple[Any, Any, Any]:
        _, _, vm, va = split(y)
        p_from, q_from, p_to, q_to = exchanged(vm, va)
        from_square, to_square = vm[f] ** 2, vm[t] ** 2
        at_from = (p_from + y_ff.real * from_square) ** 2 + (q_from - y_ff.imag * from_square) ** 2
        at_to = (p_to + y_tt.real * to_square) ** 2 + (q_to - y_tt.imag * to_square) ** 2
        return at_from, at_to, vm

    def angle_rows(y: Any) -> list[Any]:
        va = y[blocks["va"]]
        above = va[f[capped_above]] - va[t[capped_above]] - grid.angmax[capped_above]
        below = grid.angmin[capped_below] - va[f[capped_below]] + va[t[capped_below]]
        return [above, below]

    def limit_rows(y: Any, apparent: Callable[[Any, Any], Any]) -> Any:
        rows = []
        if len(rated) or len(limited):
            at_from, at_to, vm = squared_flows(y)
            rows += [apparent(at_from[rated], rate), apparent(at_to[rated], rate)]
            for square, end in ((at_from, f), (at_to, t)):
                rows.append(apparent(square[limited], vm[end[limited]] * current))
        return jnp.concatenate(rows + angle_rows(y))

    def inequality(x: Any, y: Any) -> Any:
        return limit_rows(y, lambda square, most: (square - most * most) / (2.0 * most))

    def some(rows: np.ndarray) -> Callable[[Any, Any], Any]:
        """The inequalities at `rows` alone: flows of those branch ends, nothing else."""
        ends = ((rated, rate, 0), (rated, rate, 1), (limited, current, 0), (limited, current, 1))
        sizes = [*(len(members) for members, _, _ in ends), len(capped_above), len(capped_below)]
        first = np.cumsum([0, *sizes])
        picked = [rows[(rows >= a) & (rows < b)] - a for a, b in itertools.pairwise(first)]
        above, below = capped_above[picked[4]], capped_below[picked[5]]

        def inequality(x: Any, y: Any) -> Any:
            _, _, vm, va = split(y)
            parts = []
            for k, ((members, limit, end), pick) in enumerate(zip(ends, picked[:4], strict=True)):
                b = members[pick]
                if not len(b):
                    continue
                here, there = (t[b], f[b]) if end else (f[b], t[b])
                own_y, other_y = (y_tt[b], y_tf[b]) if end else (y_ff[b], y_ft[b])
                angle, product, square = va[here] - va[there], vm[here] * vm[there], vm[here] ** 2
                cos, sin = product * jnp.cos(angle), product * jnp.sin(angle)
                p = other_y.real * cos + other_y.imag * sin + own_y.real * square
                q = other_y.real * sin - other_y.imag * cos - own_y.imag * square
                most = limit[pick] if k < 2 else vm[here] * limit[pick]
                parts.append((p * p + q * q - most * most) / (2.0 * most))
            parts.append(va[f[above]] - va[t[above]] - grid.angmax[above])
            parts.append(grid.angmin[below] - va[f[below]] + va[t[below]])
            return jnp.concatenate(parts)

        return inequality

    def violation(x: Any, y: Any) -> Any:
        return limit_rows(y, lambda square, most: jnp.sqrt(square) - most)

    return {
        "objective": objective,
        "equality": equality,
        "inequality": inequality,
        "violation": violation,
        "some": some,
    }


def _has_inequalities(grid: Grid) -> bool:
    limits = (grid.rate, grid.current, grid.angmin, grid.angmax)
    return any(np.isfinite(limit).any() for limit in limits)


def _inside(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """The middle of a range, or zero moved into it where an end is open."""
    both = np.isfinite(low) & np.isfinite(high)
    middle = np.zeros(len(low))
    middle[both] = (low[both] + high[both]) / 2.0
    return np.clip(middle, low, high)


def _names(kind: str, numbers: Sequence[int] | np.ndarray) -> list[str]:
    """`pg_12`, and `pg_12_2` for the second element at bus 12."""
    seen: Counter[int] = Counter()
    names = []
    for number in numbers:
        seen[int(number)] += 1
        nth = seen[int(number)]
        names.append(f"{kind}_{number}" if nth == 1 else f"{kind}_{number}_{nth}")
    return names
