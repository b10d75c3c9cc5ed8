"""The second-order cone relaxation of AC-OPF as a problem of the usual kind, so that it can be solved and learnt.

Where every cone is tight, as it is at nearly every optimum, the relaxation is AC-OPF with the angle difference of
each pair of buses set free: around a loop they need not add up to zero. In that form it has the shape of AC-OPF itself,
smooth, with no more variables than there are generators, buses and pairs. Nothing rests on cones being tight: this only
finds multipliers, and `cone` turns any multipliers into a bound.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from feasibly.bound.cone import Cone, Instance, Multipliers, coefficients
from feasibly.precision import double
from feasibly.problem.acopf import closing, with_zero
from feasibly.problem.core import Problem
from feasibly.problem.errors import FeasiblyError
from feasibly.problem.families import grid_of
from feasibly.problem.grid import Grid
from feasibly.problem.point import Duals, Point
from feasibly.problem.sampling import sample

Array = NDArray[np.float64]

NEARLY = 1e-3
"""A pair whose pull is within this share of the largest price of turning counts as leaving its cone."""

FORM = 3
"""How pairs that leave their cones are written, saved with what learnt from it: an angle and a length in the first
form, a vector in the unit disk in the second."""

WIDEST = np.pi / 2 - 0.05
"""Where a pair has no usable limit on its angle, the search for multipliers stays within this."""

FARTHEST, NEAR = 2.0, 0.05
"""Upper bound of how far inside a pair is, and where solvers start."""

KNOWN = ("pd", "qd", "branch", "generator", "c1", "c2", "rating")
"""Inputs that the relaxation knows."""
_SEED = 1 << 41
"""Of the points at which a relaxation is compared with its problem."""


def relaxation(
    cone: Cone,
    box: tuple[Array, Array] | None = None,
    loose: NDArray[np.int64] | None = None,
    *,
    problem: Problem,
    first_guess: Callable[[], Array | None] | None = None,
) -> Problem:
    """AC-OPF with free angle differences: `x` as in `problem`, `y = [pg, qg, vm, angle, inside]`.

    Pairs listed in `loose` (all unless told) may also leave their cone's surface. Over the largest that the cone
    allows, their product of voltages is `cos(angle) - inside + i sin(angle)`: on the surface `inside` is at its bound
    of zero, and the pair is like the others. (A length beside the angle leaves the angle free where the length is
    small; a vector in the unit disk presses on a curve, and where the press is hard steps end at once: the lanes lost
    a quarter of 179_goc__api's rows.)

    Equalities: active then reactive balance of every bus. Inequalities: apparent power at the rated ends, squared
    currents at the limited ones, then of loose pairs the upper limits of angles and the lower ones.
    """
    grid = cone.grid
    n, g, k = grid.n_buses, grid.n_generators, cone.n_pairs
    loose = np.arange(k) if loose is None else loose
    sizes = {"pg": g, "qg": g, "vm": n, "angle": k, "inside": len(loose)}
    blocks, last = {}, 0
    for name, size in sizes.items():
        if size or name in ("pg", "qg", "vm", "angle"):
            blocks[name] = slice(last, last + size)
        last += size
    turn_low, turn_high = pair_angles(cone)
    turn_low[loose], turn_high[loose] = -WIDEST, WIDEST
    lower = np.concatenate([grid.pmin, grid.qmin, grid.vmin, turn_low, np.zeros(len(loose))])
    upper = np.concatenate([grid.pmax, grid.qmax, grid.vmax, turn_high, np.full(len(loose), FARTHEST)])
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

    def direction(y: Any) -> tuple[Any, Any]:
        """Of every pair, the product of voltages over that of their magnitudes."""
        turn = y[blocks["angle"]]
        along = jnp.cos(turn)
        return along.at[loose].add(-y[blocks["inside"]]) if len(loose) else along, jnp.sin(turn)

    def coupled(y: Any, at: Any, on: Any) -> tuple[Any, Any]:
        """Power through the coupling terms at these branch ends."""
        vm, pair = y[blocks["vm"]], cone.end_pair[at]
        along, across = direction(y)
        size = vm[cone.pair_from[pair]] * vm[cone.pair_to[pair]]
        c, s = size * along[pair], size * cone.end_sign[at] * across[pair]
        here = on[at % max(ends, 1)] if switched else 1.0
        other = cone.other[at]
        return here * (other.real * c + other.imag * s), here * (other.real * s - other.imag * c)

    def objective(x: Any, y: Any) -> Any:
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
        return jnp.concatenate([active, reactive])

    def squared(y: Any, at: Any, on: Any) -> tuple[Any, Any]:
        p, q = coupled(y, at, on)
        square = y[blocks["vm"]][cone.end_bus[at]] ** 2
        here = on[at % max(ends, 1)] if switched else 1.0
        p, q = p + here * cone.own[at].real * square, q - here * cone.own[at].imag * square
        return p**2 + q**2, square

    sides = Sides.of(cone, loose)
    flows = len(cone.rated) + len(current)

    def some(rows: np.ndarray) -> Any:
        rated, limited = rows[rows < len(cone.rated)], rows[rows >= len(cone.rated)] - len(cone.rated)
        limited, side = limited[limited < len(current)], rows[rows >= flows] - flows
        place, of_along, of_across = (part[side] for part in sides)

        def inequality(x: Any, y: Any) -> Any:
            at = known(x)
            power, _ = squared(y, cone.rated[rated], at.on)
            flow, square = squared(y, cone.limited[limited], at.on)
            most = at.rate[cone.rated[rated] % max(ends, 1)]
            parts = [
                (power - most**2) / (2.0 * most),
                (flow / square - current[limited] ** 2) / (2.0 * current[limited]),
            ]
            if len(side):
                turn = y[blocks["angle"]][loose[place]]
                along = jnp.cos(turn) - y[blocks["inside"]][place]
                parts.append(of_along * along + of_across * jnp.sin(turn))
            return jnp.concatenate(parts)

        return inequality

    rows = flows + len(sides.place)
    out = "generator" in inputs
    start = np.concatenate(
        [
            _middle(grid.pmin, grid.pmax),
            _middle(grid.qmin, grid.qmax),
            np.ones(n),
            np.zeros(k),
            np.full(len(loose), NEAR),
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
        first_guess=first_guess,
    )


class Sides(NamedTuple):
    """What holds the angles of loose pairs: `of_along (cos(angle) - inside) + of_across sin(angle) <= 0`."""

    place: NDArray[np.int64]
    """Among the loose pairs."""
    of_along: Array
    of_across: Array

    @staticmethod
    def of(cone: Cone, loose: NDArray[np.int64]) -> Sides:
        """Upper limits, then lower ones."""
        low, high = (part[loose] for part in pair_angles(cone))
        above, below = np.flatnonzero(high < WIDEST), np.flatnonzero(low > -WIDEST)
        return Sides(
            np.concatenate([above, below]),
            np.concatenate([-np.sin(high[above]), np.sin(low[below])]),
            np.concatenate([np.cos(high[above]), -np.cos(low[below])]),
        )


def loose_rows(cone: Cone, loose: NDArray[np.int64]) -> NDArray[np.int64]:
    """The inequalities that hold the angles of loose pairs."""
    first = len(cone.rated) + len(cone.limited)
    return np.arange(first, first + len(Sides.of(cone, loose).place))


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


def to_multipliers(
    cone: Cone, problem: Problem, x: Array, point: Point, loose: NDArray[np.int64]
) -> Multipliers:
    """The free numbers of the bound from points of `relaxation` for inputs `x`, rows last."""
    y, duals = point.y, point.duals
    grid = cone.grid
    n = grid.n_buses
    vm = y[:, problem.blocks["vm"]]
    size = vm[:, cone.pair_from] * vm[:, cone.pair_to]
    c, s = (way(y[:, problem.blocks["angle"]]) for way in (np.cos, np.sin))
    if len(loose):
        c[:, loose] -= y[:, problem.blocks["inside"]]
    c, s = size * c, size * s

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
    power, current, held = np.split(duals.inequality, np.cumsum([len(cone.rated), len(cone.limited)]), axis=1)
    z = power * flow(cone.rated) / rate
    low, high = pair_angles(cone)
    press = _pressing(cone, problem, duals, held, loose)
    first = len(cone.above)
    angle = np.zeros((len(y), first + len(cone.below)))
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
        # Along its limit the angle moves s - tan(limit) c by |V_i V_j| / cos(limit).
        steep = np.cos(high if way else low)[pairs] / size[:, pairs]
        angle[:, places] = press[way][:, pairs] * steep / count[way][pairs]
    tilt = np.log(vm[:, cone.pair_to] / vm[:, cone.pair_from])
    prices = -duals.equality
    parts = (prices[:, :n], prices[:, n:], z.real, z.imag, current / (2.0 * limit), angle, tilt)
    return Multipliers(*(np.ascontiguousarray(part.T) for part in parts))


def _pressing(
    cone: Cone, problem: Problem, duals: Duals, held: Array, loose: NDArray[np.int64]
) -> dict[bool, Array]:
    """Multipliers of the upper (`True`) and lower limits of every pair's angle: of bounds, of loose pairs of `held`."""
    angle = problem.blocks["angle"]
    found = {True: duals.upper[:, angle].copy(), False: duals.lower[:, angle].copy()}
    sides = Sides.of(cone, loose)
    above = sides.of_across > 0.0
    for way, rows in ((True, above), (False, ~above)):
        found[way][:, loose] = 0.0
        found[way][:, loose[sides.place[rows]]] = held[:, rows]
    return found


def leaving(
    cone: Cone, problem: Problem, x: Array, y: Array, m: Multipliers, loose: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Pairs whose multipliers pull them off their cone's surface in some row, where a pair held on it cannot go.

    On the surface `(b, d)` points against `(c, s)`. Where it points along, the least of the Lagrangian is inside.
    """
    firm = np.setdiff1d(np.arange(cone.n_pairs), loose)
    with double():
        on = Instance.of(cone.grid, problem.inputs, jnp.asarray(x.T)).on
        linear = coefficients(cone, Multipliers(*(jnp.asarray(part) for part in m)), on)
        turn = y[:, problem.blocks["angle"]][:, firm].T
        along = np.asarray(linear.c)[firm] * np.cos(turn) + np.asarray(linear.s)[firm] * np.sin(turn)
        ends = jnp.concatenate([on, on])
        there = np.asarray(jnp.zeros((cone.n_pairs, len(y))).at[cone.end_pair].max(ends))[firm] > 0.0
    scale = float(np.max(np.abs(m.active), initial=0.0))
    return firm[(there & (along > -NEARLY * scale)).any(axis=1)]


def known_grid(problem: Problem) -> Grid:
    """The grid behind a problem, or a sentence about why nothing is proven for it."""
    grid = grid_of(problem)
    if grid is None:
        raise FeasiblyError(f"{problem.name} is not a grid")
    if grid.extras is not None:
        raise FeasiblyError(
            f"{problem.name} has DC lines, costs with corners or other parts that proofs do not know; leave out prove"
        )
    other = [name for name in problem.inputs if name not in KNOWN]
    if other:
        raise FeasiblyError(
            f"{problem.name} has inputs that proofs do not know ({', '.join(other)}); leave out prove"
        )
    return grid


def check_same(problem: Problem, relaxed: Problem, cone: Cone, loose: NDArray[np.int64]) -> None:
    """Make sure that the relaxation is one of this very problem: on points that both know they must agree.

    A problem may come to have more in it than the grid says (other costs, other elements); a bound for the grid alone
    would then be wrong.
    """
    grid = cone.grid
    g, n, rated = grid.n_generators, grid.n_buses, len(cone.rated)
    low = np.concatenate([grid.pmin, grid.qmin, grid.vmin])
    high = np.concatenate([grid.pmax, grid.qmax, grid.vmax])
    rows = rated + len(cone.limited) + int(np.isfinite(grid.angmax).sum() + np.isfinite(grid.angmin).sum())
    same = (problem.n_outputs, problem.n_equalities, problem.n_inequalities) == (2 * g + 2 * n, 2 * n, rows)
    same = (
        same
        and np.array_equal(problem.bounds(problem.nominal[None])[0][0, : len(low)], low)
        and np.array_equal(problem.bounds(problem.nominal[None])[1][0, : len(high)], high)
    )
    if same:
        random = np.random.Generator(np.random.Philox(key=_SEED))
        x = np.stack([problem.nominal, sample(problem, 1, seed=_SEED)[0]])
        y = problem.start + 0.1 * random.standard_normal((2, problem.n_outputs))
        va = y[:, 2 * g + n :]
        turn = va[:, cone.pair_from] - va[:, cone.pair_to]
        z = np.concatenate([y[:, : 2 * g + n], turn, np.zeros((len(y), len(loose)))], axis=1)
        values = [
            (p.objectives(x, at)[:, None], p.equalities(x, at), p.inequalities(x, at)[:, :rated])
            for p, at in ((problem, y), (relaxed, z))
        ]
        same = all(np.allclose(a, b, rtol=1e-9, atol=1e-9) for a, b in zip(*values, strict=True))
    if not same:
        raise FeasiblyError(
            f"{problem.name} has more in it than the relaxation that proofs are made from knows; leave out prove"
        )


def _middle(low: Array, high: Array) -> Array:
    both = np.isfinite(low) & np.isfinite(high)
    return np.clip(
        np.where(both, (np.where(both, low, 0.0) + np.where(both, high, 0.0)) / 2.0, 0.0), low, high
    )
