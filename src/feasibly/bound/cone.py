"""The dual of the second-order cone relaxation of AC-OPF (Jabr), as a function of free multipliers.

The relaxation replaces products of voltages by variables of their own: `w_i` for `|V_i|^2` and `c + i s` for
`V_i conj(V_j)`, one for each pair of buses with a branch between them, with `c^2 + s^2 <= w_i w_j`. Every feasible
dispatch is a point of it, so what bounds its cost from below bounds the cost of every dispatch.

Take any prices of active and reactive power at the buses, any vector `z` for each branch end with a limit, and any
multipliers that are not negative for angle and current limits. On feasible points power balances, `z . S <= |z| rate`,
and the others' terms are not positive, so that

    cost  >=  cost + price . (load + flows + shunts - generation) + sum (z . S - |z| rate) + ...

The right side is a sum of terms in one generator each, and a part linear in `w`, `c`, `s`. Generators are minimised
over their ranges in closed form. A pair's `b c + d s` is at least `-|(b, d)| sqrt(w_i w_j)`, and that at least
`-(u w_i + v w_j)` for any `u, v >= 0` with `4 u v = b^2 + d^2`; `u = |(b, d)| e^t / 2` has one free number `t`. What is
left is linear in `w` and minimised over its range. So each choice of numbers gives a bound, and the largest of all
choices is the value of the relaxation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from feasibly.problem.grid import Grid

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


class Multipliers(NamedTuple):
    """Free numbers of the bound. Rows go last where there are several."""

    active: Any
    """Price of active power at every bus, cost per unit."""
    reactive: Any
    """Price of reactive power at every bus."""
    z_p: Any
    """Active part of `z`, at the from ends and then the to ends of branches with a rating."""
    z_q: Any
    """Reactive part of `z`."""
    current: Any
    """Of current limits at the from ends, then the to ends; negative ones count as zero."""
    angle: Any
    """Of angle limits, upper then lower; negative ones count as zero."""
    tilt: Any
    """`t` of every pair: at best the logarithm of `|V_j| / |V_i|`."""


class Instance(NamedTuple):
    """What an input says of the grid, rows last: loads, what is in service, costs and ratings."""

    load_p: Any
    load_q: Any
    on: Any
    """Of every branch: 1 in service, 0 out."""
    running: Any
    """Of every generator."""
    c2: Any
    c1: Any
    c0: Any
    rate: Any
    """Of every branch; infinite where it has none."""

    @staticmethod
    def of(grid: Grid, inputs: Mapping[str, slice], x: Any) -> Instance:
        """From inputs `(n_inputs, rows)` with these blocks; what is no input is as the grid has it."""
        rows = x.shape[1]

        def usual(values: Array) -> Any:
            return jnp.broadcast_to(values[:, None], (len(values), rows))

        def block(name: str, values: Array) -> Any:
            return x[inputs[name]] if name in inputs else usual(values)

        nothing = jnp.zeros((grid.n_buses, rows))
        rated = np.flatnonzero(np.isfinite(grid.rate))
        base = grid.base_mva
        return Instance(
            nothing.at[grid.load_bus].add(block("pd", grid.pd)),
            nothing.at[grid.load_bus].add(block("qd", grid.qd)),
            block("branch", np.ones(grid.n_branches)),
            block("generator", np.ones(grid.n_generators)),
            block("c2", grid.cost[:, 0] / base**2) * base**2 if "c2" in inputs else usual(grid.cost[:, 0]),
            block("c1", grid.cost[:, 1] / base) * base if "c1" in inputs else usual(grid.cost[:, 1]),
            usual(grid.cost[:, 2]),
            usual(grid.rate).at[rated].set(block("rating", grid.rate[rated])),
        )

    @property
    def without_cost(self) -> Instance:
        """The same where everything is free: a bound above zero then proves that nothing is feasible."""
        return self._replace(c2=0.0 * self.c2, c1=0.0 * self.c1, c0=0.0 * self.c0)


@dataclass(frozen=True, eq=False)
class Cone:
    """A grid's relaxation: index arrays and coefficients, made once."""

    grid: Grid
    pair_from: Ints
    pair_to: Ints
    end_bus: Ints
    """Bus of every branch end, from ends first."""
    end_pair: Ints
    end_sign: Array
    own: NDArray[np.complex128]
    other: NDArray[np.complex128]
    rated: Ints
    """Branch ends with a rating."""
    limited: Ints
    """Branch ends with a current limit."""
    above: Ints
    """Branches with a usable upper limit on their angle difference."""
    below: Ints
    """Branches with a usable lower one: the same, since both sides have to be."""

    @staticmethod
    def of(grid: Grid) -> Cone:
        """The relaxation of `grid`."""
        f, t = grid.branch_from, grid.branch_to
        low, high = np.minimum(f, t), np.maximum(f, t)
        pairs, which = np.unique(np.stack([low, high], axis=1), axis=0, return_inverse=True)
        which = which.ravel()
        sign = np.where(f <= t, 1.0, -1.0)
        y_ff, y_ft, y_tf, y_tt = grid.admittances()
        ends = lambda members: np.concatenate([members, members + grid.n_branches])  # noqa: E731
        # tan is a limit on s / c where c is positive, and it is if the angle is held below a right one from both sides.
        # With one side open it may be anything, so that the other limits nothing in the relaxation.
        usable = np.flatnonzero(np.maximum(np.abs(grid.angmin), np.abs(grid.angmax)) < np.pi / 2 - 1e-6)
        return Cone(
            grid=grid,
            pair_from=pairs[:, 0],
            pair_to=pairs[:, 1],
            end_bus=np.concatenate([f, t]),
            end_pair=np.concatenate([which, which]),
            end_sign=np.concatenate([sign, -sign]),
            own=np.concatenate([y_ff, y_tt]),
            other=np.concatenate([y_ft, y_tf]),
            rated=ends(np.flatnonzero(np.isfinite(grid.rate))),
            limited=ends(np.flatnonzero(np.isfinite(grid.current))),
            above=usable,
            below=usable,
        )

    @property
    def n_pairs(self) -> int:
        """Pairs of buses with a branch between them."""
        return len(self.pair_from)


class Linear(NamedTuple):
    """Coefficients of the Lagrangian in the voltage products."""

    w: Any
    c: Any
    s: Any


def in_service(cone: Cone, m: Multipliers, on: Any) -> Multipliers:
    """The same without multipliers of limits that do not apply, their branches being out."""
    ends = jnp.concatenate([on, on])
    return m._replace(
        z_p=m.z_p * ends[cone.rated],
        z_q=m.z_q * ends[cone.rated],
        current=m.current * ends[cone.limited],
        angle=m.angle * on[np.concatenate([cone.above, cone.below])],
    )


def coefficients(cone: Cone, m: Multipliers, on: Any) -> Linear:
    """What multiplies `w`, `c` and `s`, for multipliers and branches `on`, rows last."""
    grid = cone.grid
    columns = m.active.shape[1:]
    lift = (...,) + (None,) * len(columns)
    m, ends = in_service(cone, m, on), jnp.concatenate([on, on])
    p, q = m.active[cone.end_bus], m.reactive[cone.end_bus]
    p, q = p.at[cone.rated].add(m.z_p), q.at[cone.rated].add(m.z_q)
    own_p, own_q, other_p, other_q = (
        part[lift] * ends for part in (cone.own.real, cone.own.imag, cone.other.real, cone.other.imag)
    )
    sign = cone.end_sign[lift]
    w = jnp.zeros((grid.n_buses, *columns)).at[cone.end_bus].add(p * own_p - q * own_q)
    w = w.at[grid.shunt_bus].add(
        m.active[grid.shunt_bus] * grid.gs[lift] - m.reactive[grid.shunt_bus] * grid.bs[lift]
    )
    c = jnp.zeros((cone.n_pairs, *columns)).at[cone.end_pair].add(p * other_p - q * other_q)
    s = jnp.zeros((cone.n_pairs, *columns)).at[cone.end_pair].add(sign * (p * other_q + q * other_p))
    if len(cone.limited):
        k, at = jnp.maximum(m.current, 0.0), cone.limited
        far = np.roll(cone.end_bus, grid.n_branches)[at]
        cross = cone.own[at] * np.conj(cone.other[at])
        w = w.at[cone.end_bus[at]].add(k * (np.abs(cone.own[at]) ** 2)[lift])
        w = w.at[far].add(k * (np.abs(cone.other[at]) ** 2)[lift])
        c = c.at[cone.end_pair[at]].add(2.0 * k * cross.real[lift])
        s = s.at[cone.end_pair[at]].add(-2.0 * k * (cone.end_sign[at] * cross.imag)[lift])
    alpha = jnp.maximum(m.angle, 0.0)
    first = len(cone.above)
    for at, part, limit, way in (
        (cone.above, alpha[:first], grid.angmax, 1.0),
        (cone.below, alpha[first:], grid.angmin, -1.0),
    ):
        if len(at):
            pair = cone.end_pair[at]
            s = s.at[pair].add(way * part * cone.end_sign[at][lift])
            c = c.at[pair].add(-way * part * np.tan(limit[at])[lift])
    return Linear(w, c, s)


def lower_bound(cone: Cone, m: Multipliers, at: Instance) -> Any:
    """A number that the cost of no feasible dispatch of `at` is below, for any finite `m`; rows last.

    Rounding is allowed for: what is returned is less than the exact value of the same formula. A price at which a
    generator without a limit would earn without end is moved to where it does not.
    """
    grid = cone.grid
    m = in_service(cone, _affordable(cone, m, at), at.on)
    lift = (..., None)
    linear = coefficients(cone, m, at.on)
    half = jnp.sqrt(linear.c**2 + linear.s**2) / 2.0
    u, v = half * jnp.exp(m.tilt), half * jnp.exp(-m.tilt)
    left = linear.w.at[cone.pair_from].add(-u).at[cone.pair_to].add(-v)
    low, high = (np.maximum(grid.vmin, 0.0) ** 2)[lift], (grid.vmax**2)[lift]
    at_buses = jnp.where(left > 0.0, left * low, left * high)
    price_p, price_q = m.active[grid.gen_bus], m.reactive[grid.gen_bus]
    # A generator that is out stands at zero and costs nothing. (Not a product: its range may be open.)
    out = at.running < 0.5
    made = jnp.where(out, 0.0, _cheapest(at.c2, at.c1 - price_p, grid.pmin[lift], grid.pmax[lift]))
    held = jnp.where(out, 0.0, _cheapest(jnp.zeros_like(at.c2), -price_q, grid.qmin[lift], grid.qmax[lift]))
    pushed = jnp.sqrt(m.z_p**2 + m.z_q**2) * jnp.concatenate([at.rate, at.rate])[cone.rated]
    current = jnp.maximum(m.current, 0.0) * (_twice(grid.current, cone.limited) ** 2)[lift]
    fixed = jnp.where(out, 0.0, at.c0)
    parts = (m.active * at.load_p, m.reactive * at.load_q, at_buses, made, held, -pushed, -current, fixed)
    total = sum(jnp.sum(part, axis=0) for part in parts)
    size = sum(jnp.sum(jnp.abs(part), axis=0) for part in parts) + _gross(cone, m, lift)
    operations = sum(part.shape[0] for part in parts) + 2 * len(cone.end_bus) + 64
    return total - 4.0 * float(np.finfo(np.float64).eps) * operations * size


def _affordable(cone: Cone, m: Multipliers, at: Instance) -> Multipliers:
    """Prices that no generator with an open range can earn on without end."""
    grid = cone.grid
    straight, free = at.c2 == 0.0, jnp.zeros_like(at.c1)
    prices = []
    for price, low, high, cost, open_ in (
        (m.active, grid.pmin, grid.pmax, at.c1, straight),
        (m.reactive, grid.qmin, grid.qmax, free, jnp.ones_like(straight)),
    ):
        if np.isfinite(low).all() and np.isfinite(high).all():
            prices.append(price)
            continue
        lift = (..., None)
        most, least = jnp.full_like(price, jnp.inf), jnp.full_like(price, -jnp.inf)
        most = most.at[grid.gen_bus].min(jnp.where(np.isposinf(high)[lift] & open_, cost, jnp.inf))
        least = least.at[grid.gen_bus].max(jnp.where(np.isneginf(low)[lift] & open_, cost, -jnp.inf))
        prices.append(jnp.minimum(jnp.maximum(price, least), most))
    return m._replace(active=prices[0], reactive=prices[1])


def _gross(cone: Cone, m: Multipliers, lift: Any) -> Any:
    """Magnitudes of everything that the coefficients of `w` are summed from, times the largest `w`.

    Summing numbers in any order is off by at most their count times the unit of rounding times the sum of their
    magnitudes; coefficients are differences, and much smaller than that sum.
    """
    grid = cone.grid
    p = jnp.abs(m.active[cone.end_bus]).at[cone.rated].add(jnp.abs(m.z_p))
    q = jnp.abs(m.reactive[cone.end_bus]).at[cone.rated].add(jnp.abs(m.z_q))
    wide = 2.0 * jnp.cosh(m.tilt)
    ends = (p + q) * (np.abs(cone.own)[lift] + np.abs(cone.other)[lift] * wide[cone.end_pair])
    total = jnp.sum(ends, axis=0)
    shunts = (np.abs(grid.gs) + np.abs(grid.bs))[lift]
    total = total + jnp.sum((jnp.abs(m.active) + jnp.abs(m.reactive))[grid.shunt_bus] * shunts, axis=0)
    at = cone.limited
    square = ((np.abs(cone.own[at]) + np.abs(cone.other[at])) ** 2)[lift]
    total = total + jnp.sum(jnp.abs(m.current) * square * wide[cone.end_pair[at]], axis=0)
    held = np.concatenate([cone.above, cone.below])
    slopes = np.concatenate([grid.angmax[cone.above], grid.angmin[cone.below]])
    steep = (1.0 + np.abs(np.tan(slopes)))[lift]
    total = total + jnp.sum(jnp.abs(m.angle) * steep * wide[cone.end_pair[held]], axis=0)
    return total * float(np.max(grid.vmax**2, initial=0.0))


def _twice(limit: Array, ends: Ints) -> Array:
    return np.asarray(limit[ends % max(len(limit), 1)])


def _cheapest(square: Any, slope: Any, low: Any, high: Any) -> Any:
    """The least of `square p^2 + slope p` over `low <= p <= high`; a range may be open, a cost bend down."""
    at = jnp.where(square > 0.0, -slope / jnp.where(square > 0.0, 2.0 * square, 1.0), 0.0)
    flat = jnp.where(slope > 0.0, low, jnp.where(slope < 0.0, high, jnp.clip(0.0, low, high)))
    p = jnp.where(square > 0.0, jnp.clip(at, low, high), flat)
    ends = jnp.minimum((square * low + slope) * low, (square * high + slope) * high)
    return jnp.where(square < 0.0, ends, (square * p + slope) * p)
