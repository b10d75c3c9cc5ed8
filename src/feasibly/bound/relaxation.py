"""The second-order cone relaxation of AC-OPF as a problem of the usual kind, so that it can be solved and learnt.

Where every cone is tight, as it is at nearly every optimum, the relaxation is AC-OPF with the angle difference of
each pair of buses set free: around a loop they need not add up to zero. In that form it has the shape of AC-OPF itself,
smooth, with no more variables than there are generators, buses and pairs. Nothing rests on cones being tight: this only
finds multipliers, and `cone` turns any multipliers into a bound.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from feasibly.bound.cone import Cone, Instance, Multipliers, coefficients
from feasibly.precision import double
from feasibly.problem.acopf import closing, with_zero
from feasibly.problem.core import Problem
from feasibly.problem.point import Point

Array = NDArray[np.float64]

NEARLY = 1e-3
"""A pair whose pull is within this share of the largest price of turning counts as leaving its cone."""

WIDEST = np.pi / 2 - 0.05
"""Where a pair has no usable limit on its angle, the search for multipliers stays within this."""


def relaxation(
    cone: Cone,
    box: tuple[Array, Array] | None = None,
    loose: NDArray[np.int64] | None = None,
    *,
    problem: Problem,
    shedding: bool = False,
) -> Problem:
    """AC-OPF with free angle differences: `x` as in `problem`, `y = [pg, qg, vm, angle of every pair, share]`.

    Pairs listed in `loose` (all unless told) may also leave their cone's surface: `share` is what their product of
    voltages is of the largest that the cone allows. With `shedding` the cost is the sum of what balances lack, by
    which they may be off: least zero unless there is no feasible point.

    Equalities: active then reactive balance of every bus. Inequalities: apparent power at the rated ends, then squared
    currents at the limited ones.
    """
    grid = cone.grid
    n, g, k = grid.n_buses, grid.n_generators, cone.n_pairs
    blocks = {
        "pg": slice(0, g),
        "qg": slice(g, 2 * g),
        "vm": slice(2 * g, 2 * g + n),
        "angle": slice(2 * g + n, 2 * g + n + k),
    }
    loose = np.arange(k) if loose is None else loose
    if len(loose):
        blocks["share"] = slice(2 * g + n + k, 2 * g + n + k + len(loose))
    last = 2 * g + n + k + len(loose)
    lacking = 4 * n if shedding else 0
    if shedding:
        blocks["lack"] = slice(last, last + lacking)
    turn_low, turn_high = pair_angles(cone)
    lower = np.concatenate([grid.pmin, grid.qmin, grid.vmin, turn_low, np.zeros(len(loose) + lacking)])
    upper = np.concatenate(
        [grid.pmax, grid.qmax, grid.vmax, turn_high, np.ones(len(loose)), np.full(lacking, np.inf)]
    )
    switched = "branch" in problem.inputs
    own = np.zeros(n, dtype=np.complex128)
    if not switched:
        np.add.at(own, cone.end_bus, cone.own)
    np.add.at(own, grid.shunt_bus, grid.gs + 1j * grid.bs)
    ends = grid.n_branches
    current = grid.current[cone.limited % max(ends, 1)]
    inputs = problem.inputs

    def known(x: Any) -> Instance:
        return Instance(*(part[:, 0] for part in Instance.of(grid, inputs, x[:, None])))

    def coupled(y: Any, at: Any, on: Any) -> tuple[Any, Any]:
        """Power through the coupling terms at these branch ends."""
        vm, turn = y[blocks["vm"]], y[blocks["angle"]]
        pair = cone.end_pair[at]
        share = jnp.ones(k)
        if len(loose):
            share = share.at[loose].set(y[blocks["share"]])
        size = share[pair] * vm[cone.pair_from[pair]] * vm[cone.pair_to[pair]]
        c, s = size * jnp.cos(turn[pair]), size * cone.end_sign[at] * jnp.sin(turn[pair])
        here = on[at % max(ends, 1)] if switched else 1.0
        other = cone.other[at]
        return here * (other.real * c + other.imag * s), here * (other.real * s - other.imag * c)

    def objective(x: Any, y: Any) -> Any:
        if shedding:
            return jnp.sum(y[blocks["lack"]])
        pg, at = y[blocks["pg"]], known(x)
        return jnp.sum(at.running * ((at.c2 * pg + at.c1) * pg + at.c0))

    def equality(x: Any, y: Any) -> Any:
        at = known(x)
        square = y[blocks["vm"]] ** 2
        p, q = coupled(y, np.arange(2 * ends), at.on)
        if switched:
            both = jnp.concatenate([at.on, at.on]) * square[cone.end_bus]
            p, q = p + cone.own.real * both, q - cone.own.imag * both
        active = (-own.real * square - at.load_p).at[cone.end_bus].add(-p)
        reactive = (own.imag * square - at.load_q).at[cone.end_bus].add(-q)
        active = active.at[grid.gen_bus].add(at.running * y[blocks["pg"]])
        reactive = reactive.at[grid.gen_bus].add(at.running * y[blocks["qg"]])
        balance = jnp.concatenate([active, reactive])
        if shedding:
            more, less = jnp.split(y[blocks["lack"]], 2)
            balance = balance + more - less
        return balance

    def squared(y: Any, at: Any, on: Any) -> tuple[Any, Any]:
        p, q = coupled(y, at, on)
        square = y[blocks["vm"]][cone.end_bus[at]] ** 2
        here = on[at % max(ends, 1)] if switched else 1.0
        p, q = p + here * cone.own[at].real * square, q - here * cone.own[at].imag * square
        return p**2 + q**2, square

    def some(rows: np.ndarray) -> Any:
        rated, limited = rows[rows < len(cone.rated)], rows[rows >= len(cone.rated)] - len(cone.rated)

        def inequality(x: Any, y: Any) -> Any:
            at = known(x)
            power, _ = squared(y, cone.rated[rated], at.on)
            flow, square = squared(y, cone.limited[limited], at.on)
            most = at.rate[cone.rated[rated] % max(ends, 1)]
            return jnp.concatenate(
                [
                    (power - most**2) / (2.0 * most),
                    (flow / square - current[limited] ** 2) / (2.0 * current[limited]),
                ]
            )

        return inequality

    rows = len(cone.rated) + len(current)
    out = "generator" in inputs
    start = np.concatenate(
        [
            _middle(grid.pmin, grid.pmax),
            _middle(grid.qmin, grid.qmax),
            np.ones(n),
            np.zeros(k),
            np.ones(len(loose)),
            np.full(lacking, 0.1),
        ]
    )
    return Problem(
        objective,
        closing(lower, 2 * g, inputs["generator"]) if out else lower,
        closing(upper, 2 * g, inputs["generator"]) if out else upper,
        equality=equality,
        inequality=some(np.arange(rows)) if rows else None,
        some_inequalities=some if rows else None,
        box=box,
        spread=0.2 if box is None else None,
        nominal=problem.nominal,
        start=np.clip(start, lower, upper),
        blocks=blocks,
        inputs=dict(inputs),
        widest=(with_zero(np.minimum, lower, 2 * g), with_zero(np.maximum, upper, 2 * g)) if out else None,
        name=f"{grid.name}, relaxed",
    )


def pair_angles(cone: Cone) -> tuple[Array, Array]:
    """The range of every pair's angle difference that its branches allow together."""
    low, high = np.full(cone.n_pairs, -WIDEST), np.full(cone.n_pairs, WIDEST)
    grid = cone.grid
    for limit, branches, upper in ((grid.angmax, cone.above, True), (grid.angmin, cone.below, False)):
        pair, sign = cone.end_pair[branches], cone.end_sign[branches]
        value = sign * limit[branches]
        as_high = (sign > 0.0) == upper
        np.minimum.at(high, pair[as_high], value[as_high])
        np.maximum.at(low, pair[~as_high], value[~as_high])
    return low, np.maximum(high, low)


def to_multipliers(cone: Cone, problem: Problem, x: Array, point: Point) -> Multipliers:
    """The free numbers of the bound from points of `relaxation` for inputs `x`, rows last."""
    y, duals = point.y, point.duals
    grid = cone.grid
    n = grid.n_buses
    vm, turn = y[:, problem.blocks["vm"]], y[:, problem.blocks["angle"]]
    size = vm[:, cone.pair_from] * vm[:, cone.pair_to]
    c, s = size * np.cos(turn), size * np.sin(turn)

    def flow(at: NDArray[np.int64]) -> NDArray[np.complex128]:
        product = c[:, cone.end_pair[at]] + 1j * cone.end_sign[at] * s[:, cone.end_pair[at]]
        return np.asarray(
            np.conj(cone.own[at]) * vm[:, cone.end_bus[at]] ** 2 + np.conj(cone.other[at]) * product
        )

    rates = np.broadcast_to(grid.rate, (len(x), grid.n_branches))
    if "rating" in problem.inputs:
        rates = rates.copy()
        rates[:, np.isfinite(grid.rate)] = x[:, problem.inputs["rating"]]
    rate = rates[:, cone.rated % max(grid.n_branches, 1)]
    limit = grid.current[cone.limited % max(grid.n_branches, 1)]
    z = duals.inequality[:, : len(cone.rated)] * flow(cone.rated) / rate
    current = duals.inequality[:, len(cone.rated) :] / (2.0 * limit)
    # Along its bound the angle moves s - tan(limit) c by |V_i V_j| / cos(limit).
    steep = np.cos(turn) / size
    first = len(cone.above)
    angle = np.zeros((len(y), first + len(cone.below)))
    low, high = pair_angles(cone)
    press = {True: duals.upper[:, problem.blocks["angle"]], False: duals.lower[:, problem.blocks["angle"]]}
    # Of parallel branches the tightest one holds the angle; of equal ones, whichever way round, each takes its share.
    holding = []
    count = {True: np.zeros(cone.n_pairs), False: np.zeros(cone.n_pairs)}
    for at, limits, upper, place in (
        (cone.above, grid.angmax, True, 0),
        (cone.below, grid.angmin, False, first),
    ):
        pair, sign = cone.end_pair[at], cone.end_sign[at]
        value, as_high = sign * limits[at], (sign > 0.0) == upper
        end = np.where(as_high, high[pair], low[pair])
        for way in (True, False):
            mine = np.flatnonzero(np.isclose(value, end, rtol=0.0, atol=1e-12) & (as_high == way))
            np.add.at(count[way], pair[mine], 1.0)
            holding.append((way, place + mine, pair[mine]))
    for way, places, pairs in holding:
        angle[:, places] = press[way][:, pairs] * steep[:, pairs] / count[way][pairs]
    tilt = np.log(vm[:, cone.pair_to] / vm[:, cone.pair_from])
    prices = -duals.equality
    parts = (prices[:, :n], prices[:, n:], z.real, z.imag, current, angle, tilt)
    return Multipliers(*(np.ascontiguousarray(part.T) for part in parts))


def leaving(cone: Cone, problem: Problem, x: Array, y: Array, m: Multipliers) -> NDArray[np.int64]:
    """Pairs whose multipliers pull them off their cone's surface in some row, where a pair held on it cannot go.

    On the surface `(b, d)` points against `(c, s)`. Where it points along, the least of the Lagrangian is inside.
    """
    with double():
        on = Instance.of(cone.grid, problem.inputs, jnp.asarray(x.T)).on
        linear = coefficients(cone, Multipliers(*(jnp.asarray(part) for part in m)), on)
        turn = y[:, problem.blocks["angle"]].T
        along = np.asarray(linear.c) * np.cos(turn) + np.asarray(linear.s) * np.sin(turn)
    scale = float(np.max(np.abs(m.active), initial=0.0))
    return np.flatnonzero((along > -NEARLY * scale).any(axis=1))


def _middle(low: Array, high: Array) -> Array:
    both = np.isfinite(low) & np.isfinite(high)
    return np.clip(
        np.where(both, (np.where(both, low, 0.0) + np.where(both, high, 0.0)) / 2.0, 0.0), low, high
    )
