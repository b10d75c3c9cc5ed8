"""AC optimal power flow in polar form, after the paper's appendix A.

`x = [pd, qd]` over the loads, `y = [pg, qg, vm, va]` over generators and buses; per unit and radians. On request `x`
goes on with statuses of branches and generators (1 in service, 0 out), costs `c1, c2` in the file's units ($/MWh,
$/MW^2h) and ratings (per unit, of branches that have one).
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from feasibly.problem.core import Problem
from feasibly.problem.drawing import BLOCKS, VARY, Draws, GridDrawing, check_vary
from feasibly.problem.errors import FeasiblyError
from feasibly.problem.extras import Extras
from feasibly.problem.grid import Grid
from feasibly.problem.topology import angles_without_load

SPREAD = 0.2
"""How far loads vary around their nominal value unless told otherwise, as in OPFData."""


def acopf(
    grid: Grid,
    *,
    spread: float = SPREAD,
    name: str | None = None,
    vary: str | Sequence[str] = ("load",),
    draws: Draws | None = None,
) -> Problem:
    """The AC optimal power flow of `grid`, whose loads vary by `spread` around their nominal values.

    `vary` says what else is an input (`drawing.VARY`), `draws` how that is drawn. A branch that is out carries nothing
    and has no limit; a generator that is out stands at zero, between bounds that meet there, and has no fixed cost.

    Equalities: active then reactive power balance of every bus (generation - load - shunts - flows).
    Inequalities: apparent-power limits at the from ends, then the to ends; current limits likewise; upper
    then lower angle differences. Limits enter squared, `(|S|^2 - r^2) / (2 r)`, which is smooth at zero flow
    and equal to `|S| - r` to first order at the limit; the metrics report `|S| - r` itself. What a grid has beyond
    that (`Grid.extras`) adds blocks behind `va` and rows behind those above.
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
    extras = grid.extras
    if extras is not None:
        blocks |= extras.blocks(len(lower))
        lower, upper = np.concatenate([lower, extras.low]), np.concatenate([upper, extras.high])
    varied = check_vary(vary)
    if extras is not None and {"generator", "cost"} & set(varied) and extras.touches_generators(g):
        raise FeasiblyError(
            f"{grid.name} has generators with piecewise-linear costs, capability curves or power factors; their "
            "statuses and costs cannot be inputs"
        )
    inputs, nominal, names = _inputs(grid, varied)
    functions = _functions(grid, blocks, inputs)
    constrained = _has_inequalities(grid)
    start = np.concatenate(
        [_inside(grid.pmin, grid.pmax), _inside(grid.qmin, grid.qmax), np.ones(n), angles_without_load(grid)]
    )
    if extras is not None:
        functions = _with_extras(functions if constrained else functions | _NO_INEQUALITIES, extras, grid)
        constrained = constrained or bool(extras.n_inequalities)
        start = np.concatenate([start, extras.start])
    start = np.clip(start, lower, upper)
    buses = grid.bus_id
    spec: dict[str, Any] = {"family": "acopf", "spread": spread, "grid": grid}
    drawing = None
    if varied != ("load",):
        chosen = Draws() if draws is None else draws
        drawing = GridDrawing(grid, varied, chosen, inputs, nominal, names)
        spec |= {"vary": list(varied), "draws": chosen}
    elif draws is not None:
        raise FeasiblyError(f"draws say how more than loads vary; pass vary too, from {', '.join(VARY)}")
    out = "generator" in inputs
    return Problem(
        functions["objective"],
        closing(lower, 2 * g, inputs["generator"]) if out else lower,
        closing(upper, 2 * g, inputs["generator"]) if out else upper,
        equality=functions["equality"],
        inequality=functions["inequality"] if constrained else None,
        violation=functions["violation"] if constrained else None,
        spread=spread,
        nominal=nominal,
        start=start,
        input_names=[name for names_of in names.values() for name in names_of],
        output_names=[
            *_names("pg", buses[grid.gen_bus]), *_names("qg", buses[grid.gen_bus]),
            *_names("vm", buses), *_names("va", buses), *([] if extras is None else extras.names()),
        ],
        blocks=blocks,
        inputs=inputs,
        widest=(with_zero(np.minimum, lower, 2 * g), with_zero(np.maximum, upper, 2 * g)) if out else None,
        name=grid.name if name is None else name,
        spec=spec,
        some_inequalities=functions["some"] if constrained else None,
        drawing=drawing,
    )  # fmt: skip


def _inputs(grid: Grid, vary: Sequence[str]) -> tuple[dict[str, slice], np.ndarray, dict[str, list[str]]]:
    """The blocks of the input, its nominal value, and the names in each block."""
    buses, base = grid.bus_id, grid.base_mva
    loads, units = buses[grid.load_bus], buses[grid.gen_bus]
    ends = [f"{buses[a]}_{buses[b]}" for a, b in zip(grid.branch_from, grid.branch_to, strict=True)]
    rated = np.flatnonzero(np.isfinite(grid.rate))
    branch = _names("branch", ends)
    known = {
        "pd": (grid.pd, _names("pd", loads)),
        "qd": (grid.qd, _names("qd", loads)),
        "branch": (np.ones(grid.n_branches), branch),
        "generator": (np.ones(grid.n_generators), _names("generator", units)),
        "c1": (grid.cost[:, 1] / base, _names("c1", units)),
        "c2": (grid.cost[:, 0] / base**2, _names("c2", units)),
        "rating": (grid.rate[rated], [f"rating{branch[k].removeprefix('branch')}" for k in rated]),
    }
    inputs, values, names, first = {}, [], {}, 0
    for block in (block for kind in vary for block in BLOCKS[kind]):
        value, names[block] = known[block]
        inputs[block] = slice(first, first + len(value))
        first += len(value)
        values.append(value)
    return inputs, np.concatenate(values), names


def closing(bound: np.ndarray, outputs: int, status: slice) -> Callable[[Any], Any]:
    """`bound`, whose first `outputs` (active, then reactive power) are zero where a generator is out."""
    power, rest = bound[:outputs], bound[outputs:]

    def at(x: Any) -> Any:
        on = x[status]
        # Not a product: an open end times zero is no number.
        return jnp.concatenate([jnp.where(jnp.concatenate([on, on]) > 0.5, power, 0.0), rest])

    return at


def with_zero(pick: Callable[..., Any], bound: np.ndarray, outputs: int) -> np.ndarray:
    """The widest that `closing` makes of a bound."""
    widest = bound.copy()
    widest[:outputs] = pick(widest[:outputs], 0.0)
    return widest


def _functions(
    grid: Grid, blocks: dict[str, slice], inputs: dict[str, slice]
) -> dict[str, Callable[..., Any]]:
    n, base = grid.n_buses, grid.base_mva
    f, t = grid.branch_from, grid.branch_to
    y_ff, y_ft, y_tf, y_tt = grid.admittances()
    switched = "branch" in inputs
    # What a bus draws in proportion to its own voltage squared: shunts, and branch ends where none can go out, added
    # up once.
    own = np.zeros(n, dtype=np.complex128)
    if not switched:
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

    def flows(vm: Any, va: Any) -> tuple[Any, Any, Any, Any]:
        """All that enters each branch, at the from and the to ends."""
        p_from, q_from, p_to, q_to = exchanged(vm, va)
        from_square, to_square = vm[f] ** 2, vm[t] ** 2
        return (
            p_from + y_ff.real * from_square, q_from - y_ff.imag * from_square,
            p_to + y_tt.real * to_square, q_to - y_tt.imag * to_square,
        )  # fmt: skip

    def in_service(x: Any, pg: Any) -> Any:
        return x[inputs["generator"]] * pg if "generator" in inputs else pg

    def demand(x: Any, key: str) -> Any:
        return x[inputs[key]] if key in inputs else getattr(grid, key)

    def ratings(x: Any) -> Any:
        return x[inputs["rating"]] if "rating" in inputs else rate

    def objective(x: Any, y: Any) -> Any:
        pg = y[blocks["pg"]]
        square, slope = (x[inputs["c2"]] * base**2, x[inputs["c1"]] * base) if "c1" in inputs else (c2, c1)
        if "generator" not in inputs:
            return jnp.sum((square * pg + slope) * pg) + c0_total
        return jnp.sum(x[inputs["generator"]] * ((square * pg + slope) * pg + c0))

    def equality(x: Any, y: Any) -> Any:
        pg, qg, vm, va = split(y)
        square = vm * vm
        if switched:
            p_from, q_from, p_to, q_to = (x[inputs["branch"]] * flow for flow in flows(vm, va))
        else:
            p_from, q_from, p_to, q_to = exchanged(vm, va)
        active = (-own.real * square).at[draws].add(-jnp.concatenate([p_from, p_to]))
        reactive = (own.imag * square).at[draws].add(-jnp.concatenate([q_from, q_to]))
        active = active.at[grid.gen_bus].add(in_service(x, pg)).at[grid.load_bus].add(-demand(x, "pd"))
        reactive = reactive.at[grid.gen_bus].add(in_service(x, qg)).at[grid.load_bus].add(-demand(x, "qd"))
        return jnp.concatenate([active, reactive])

    def squared_flows(x: Any, y: Any) -> tuple[Any, Any, Any]:
        _, _, vm, va = split(y)
        p_from, q_from, p_to, q_to = flows(vm, va)
        at_from, at_to = p_from**2 + q_from**2, p_to**2 + q_to**2
        if switched:
            at_from, at_to = x[inputs["branch"]] * at_from, x[inputs["branch"]] * at_to
        return at_from, at_to, vm

    def capped(x: Any, rows: Any, members: np.ndarray) -> Any:
        """Limits on angle differences, which hold with room to spare where the branch is out."""
        if not switched:
            return rows
        on = x[inputs["branch"]][members]
        return on * rows - (1.0 - on)

    def angle_rows(x: Any, y: Any, above: np.ndarray, below: np.ndarray) -> list[Any]:
        va = y[blocks["va"]]
        return [
            capped(x, va[f[above]] - va[t[above]] - grid.angmax[above], above),
            capped(x, grid.angmin[below] - va[f[below]] + va[t[below]], below),
        ]

    def limit_rows(x: Any, y: Any, apparent: Callable[[Any, Any], Any]) -> Any:
        rows = []
        if len(rated) or len(limited):
            at_from, at_to, vm = squared_flows(x, y)
            most = ratings(x)
            rows += [apparent(at_from[rated], most), apparent(at_to[rated], most)]
            for square, end in ((at_from, f), (at_to, t)):
                rows.append(apparent(square[limited], vm[end[limited]] * current))
        return jnp.concatenate(rows + angle_rows(x, y, capped_above, capped_below))

    def inequality(x: Any, y: Any) -> Any:
        return limit_rows(x, y, lambda square, most: (square - most * most) / (2.0 * most))

    def some(rows: np.ndarray) -> Callable[[Any, Any], Any]:
        """The inequalities at `rows` alone: flows of those branch ends, nothing else."""
        ends = ((rated, 0), (rated, 1), (limited, 0), (limited, 1))
        sizes = [*(len(members) for members, _ in ends), len(capped_above), len(capped_below)]
        first = np.cumsum([0, *sizes])
        picked = [rows[(rows >= a) & (rows < b)] - a for a, b in itertools.pairwise(first)]
        above, below = capped_above[picked[4]], capped_below[picked[5]]

        def inequality(x: Any, y: Any) -> Any:
            _, _, vm, va = split(y)
            parts = []
            for k, ((members, end), pick) in enumerate(zip(ends, picked[:4], strict=True)):
                b = members[pick]
                if not len(b):
                    continue
                here, there = (t[b], f[b]) if end else (f[b], t[b])
                own_y, other_y = (y_tt[b], y_tf[b]) if end else (y_ff[b], y_ft[b])
                angle, product, square = va[here] - va[there], vm[here] * vm[there], vm[here] ** 2
                cos, sin = product * jnp.cos(angle), product * jnp.sin(angle)
                p = other_y.real * cos + other_y.imag * sin + own_y.real * square
                q = other_y.real * sin - other_y.imag * cos - own_y.imag * square
                most = ratings(x)[pick] if k < 2 else vm[here] * current[pick]
                flow = p * p + q * q
                flow = x[inputs["branch"]][b] * flow if switched else flow
                parts.append((flow - most * most) / (2.0 * most))
            return jnp.concatenate(parts + angle_rows(x, y, above, below))

        return inequality

    def violation(x: Any, y: Any) -> Any:
        return limit_rows(x, y, lambda square, most: jnp.sqrt(square) - most)

    return {
        "objective": objective,
        "equality": equality,
        "inequality": inequality,
        "violation": violation,
        "some": some,
    }


def _with_extras(functions: dict[str, Any], extras: Extras, grid: Grid) -> dict[str, Any]:
    """The same functions with further outputs, costs and rows; those of the grid come first."""
    rated, limited, above, below = (
        int(np.isfinite(limit).sum()) for limit in (grid.rate, grid.current, grid.angmax, grid.angmin)
    )
    return {
        "objective": extras.objective(functions["objective"]),
        "equality": extras.equality(functions["equality"]),
        "inequality": extras.inequality(functions["inequality"]),
        "violation": extras.inequality(functions["violation"], natural=True),
        "some": extras.some(functions["some"], 2 * rated + 2 * limited + above + below),
    }


_NO_INEQUALITIES: dict[str, Any] = {"inequality": None, "violation": None, "some": None}


def _has_inequalities(grid: Grid) -> bool:
    limits = (grid.rate, grid.current, grid.angmin, grid.angmax)
    return any(np.isfinite(limit).any() for limit in limits)


def _inside(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """The middle of a range, or zero moved into it where an end is open."""
    both = np.isfinite(low) & np.isfinite(high)
    middle = np.zeros(len(low))
    middle[both] = (low[both] + high[both]) / 2.0
    return np.clip(middle, low, high)


def _names(kind: str, places: Sequence[Any] | np.ndarray) -> list[str]:
    """`pg_12`, and `pg_12_2` for the second element at bus 12; `branch_4_7` between two buses."""
    seen: Counter[str] = Counter()
    names = []
    for place in places:
        number = str(place)
        seen[number] += 1
        nth = seen[number]
        names.append(f"{kind}_{number}" if nth == 1 else f"{kind}_{number}_{nth}")
    return names
