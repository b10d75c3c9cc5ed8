"""Problems that are no grids: those that peers publish figures for, and those that are awkward in their own way.

Every function makes one `fb.Problem`. FSNet's families are written from the description in its repository
(github.com/MOSSLab-MIT/FSNet): 100 variables within 5 of zero, 50 equalities `A y = x` with `x` within 1, 50
inequalities, and everything else drawn once from a seed. They are the same families, not the same draws.
"""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np

import feasibly as fb

VARIABLES, EQUALITIES, INEQUALITIES = 100, 50, 50


# ---- FSNet's smooth families ---------------------------------------------------------------------------------


def fsnet(kind: str, *, convex: bool, seed: int = 2025) -> fb.Problem:
    """`qp`, `qcqp` or `socp`; the nonconvex ones have sines and cosines in cost and constraints."""
    rng = np.random.default_rng(seed)
    n, m, k = VARIABLES, EQUALITIES, INEQUALITIES
    q, p = 0.5 * rng.uniform(size=n), rng.uniform(-1, 1, n)
    a = rng.uniform(-1, 1, (m, n))
    inequality = {"qp": _linear, "qcqp": _quadratic, "socp": _cones}[kind](rng, a, k, convex)

    def objective(x, y):
        return 0.5 * jnp.sum(q * y**2) + jnp.sum(p * (y if convex else jnp.sin(y)))

    return fb.Problem(
        objective, np.full(n, -5.0), np.full(n, 5.0), equality=lambda x, y: jnp.asarray(a) @ y - x,
        inequality=inequality, box=(-np.ones(m), np.ones(m)), name=f"{'convex' if convex else 'nonconvex'}-{kind}",
    )  # fmt: skip


def _linear(rng: np.random.Generator, a: np.ndarray, k: int, convex: bool) -> Callable:
    g = rng.uniform(-1, 1, (k, a.shape[1]))
    h = np.abs(g @ np.linalg.pinv(a)).sum(axis=1)  # so that every x within 1 has a feasible y
    if convex:
        return lambda x, y: jnp.asarray(g) @ y - h
    return lambda x, y: jnp.asarray(g) @ jnp.sin(y) - h * jnp.cos(x)


def _quadratic(rng: np.random.Generator, a: np.ndarray, k: int, convex: bool) -> Callable:
    g = rng.uniform(-1, 1, (k, a.shape[1]))
    h = np.abs(g @ np.linalg.pinv(a)).sum(axis=1)
    curved = rng.uniform(0, 0.1, (k, a.shape[1]))
    bend = (lambda y: y) if convex else jnp.cos
    return lambda x, y: 0.5 * jnp.asarray(curved) @ y**2 + jnp.asarray(g) @ bend(y) - h


def _cones(rng: np.random.Generator, a: np.ndarray, k: int, convex: bool) -> Callable:
    n = a.shape[1]
    inside = rng.uniform(-1, 1, n)
    g, h = rng.uniform(-1, 1, (k, k, n)), rng.uniform(-1, 1, (k, k))
    c = rng.uniform(-1, 1, (k, n))
    d = np.linalg.norm(g @ inside + h, axis=1) - c @ inside
    bend = (lambda y: y) if convex else jnp.cos
    # Squared, in units of the norm at that point: the norms themselves have no second derivative that could be written
    # out, 50 cones of 50 rows with 100 variables each.
    product, middle, rest = np.einsum("kri,krj->kij", g, g), np.einsum("kri,kr->ki", g, h), (h**2).sum(axis=1)
    unit = 2.0 * np.linalg.norm(g @ inside + h, axis=1)

    def inequality(x, y):
        z, side = bend(y), jnp.asarray(c) @ y + d
        square = jnp.einsum("kij,i,j->k", jnp.asarray(product), z, z) + 2.0 * jnp.asarray(middle) @ z + rest
        return jnp.concatenate([(square - side**2) / unit, -side])

    return inequality


# ---- many optima, kinks and bounds that move -----------------------------------------------------------------


def portfolio(*, smooth: bool = False, assets: int = 50, turnover: float = 0.3, seed: int = 0) -> fb.Problem:
    """Mean and variance with a limit on turnover: buys and sells as variables, or one smooth limit without them."""
    rng = np.random.default_rng(seed)
    loading = rng.normal(size=(assets, 5)) * 0.1
    risk = loading @ loading.T + np.diag(rng.uniform(0.01, 0.05, assets))
    usual = rng.normal(0.05, 0.03, assets)
    held = rng.dirichlet(np.ones(assets))
    box = usual - 0.02, usual + 0.02

    def value(x, w):
        return 2.0 * w @ jnp.asarray(risk) @ w - x @ w

    if smooth:
        return fb.Problem(
            value, np.zeros(assets), np.ones(assets), equality=lambda x, w: jnp.sum(w)[None] - 1.0,
            inequality=lambda x, w: (jnp.sum(jnp.sqrt((w - held) ** 2 + 1e-6)) - turnover)[None],
            box=box, start=held, name="portfolio-smooth",
        )  # fmt: skip

    def split(y):
        return y[:assets], y[assets : 2 * assets], y[2 * assets :]

    def objective(x, y):
        w, bought, sold = split(y)
        return value(x, w) + 0.002 * jnp.sum(bought + sold)

    def equality(x, y):
        w, bought, sold = split(y)
        return jnp.concatenate([w - held - bought + sold, jnp.sum(w)[None] - 1.0])

    def inequality(x, y):
        _, bought, sold = split(y)
        return (jnp.sum(bought + sold) - turnover)[None]

    return fb.Problem(
        objective, np.zeros(3 * assets), np.ones(3 * assets), equality=equality, inequality=inequality, box=box,
        start=np.concatenate([held, np.zeros(2 * assets)]), name="portfolio",
    )  # fmt: skip


def transport(sources: int = 8, sinks: int = 12, seed: int = 0) -> fb.Problem:
    """A linear program with whole-number costs, many of them equal: degenerate, and often with many optima."""
    rng = np.random.default_rng(seed)
    cost = rng.integers(1, 6, (sources, sinks)).astype(float)
    usual = rng.uniform(0.5, 1.5, sinks)
    capacity = np.full(sources, 1.3 * usual.sum() / sources)
    size = sources * sinks

    def equality(x, y):
        return jnp.sum(y.reshape(sources, sinks), axis=0) - x

    def inequality(x, y):
        return jnp.sum(y.reshape(sources, sinks), axis=1) - capacity

    return fb.Problem(
        lambda x, y: jnp.sum(jnp.asarray(cost).ravel() * y), np.zeros(size), np.full(size, 5.0), equality=equality,
        inequality=inequality, box=(0.8 * usual, 1.2 * usual), name="transport",
    )  # fmt: skip


def flat(groups: int = 10, each: int = 6, seed: int = 0) -> fb.Problem:
    """Only the sum of each group has a cost: who in it gives how much is open, within bounds."""
    rng = np.random.default_rng(seed)
    slope, curve = rng.uniform(1, 3, groups), rng.uniform(0.5, 1.0, groups)
    size = groups * each

    def objective(x, y):
        total = jnp.sum(y.reshape(groups, each), axis=1)
        return jnp.sum(curve * total**2 + slope * total)

    return fb.Problem(
        objective, np.zeros(size), np.ones(size), equality=lambda x, y: jnp.sum(y)[None] - jnp.sum(x)[None],
        box=(np.full(5, 3.0), np.full(5, 6.0)), name="flat",
    )  # fmt: skip


def moving(size: int = 200, seed: int = 0) -> fb.Problem:
    """Hundreds of bounds that change with the input, half of them in force."""
    rng = np.random.default_rng(seed)
    target, weight = rng.normal(size=size), rng.uniform(0.5, 2.0, size)
    rows = rng.normal(size=(20, size)) / np.sqrt(size)

    def objective(x, y):
        return jnp.sum(weight * (y - target) ** 2) / size

    return fb.Problem(
        objective, lambda x: -0.5 - x, lambda x: 0.5 + x,
        inequality=lambda x, y: jnp.asarray(rows) @ y - 1.0, box=(np.zeros(size), np.full(size, 0.5)), name="moving",
    )  # fmt: skip


# ---- model predictive control --------------------------------------------------------------------------------


def pendulum(steps: int = 20) -> fb.Problem:
    """Swing a pendulum to rest from any angle and speed, with little torque: 20 steps of 0.1 s, 60 variables."""
    return _control("pendulum", steps, _pendulum, (2.5, 2.0), (10.0, 10.0), (0.3, 0.1), 2.0, 0.01)


def cartpole(steps: int = 25) -> fb.Problem:
    """Balance a pole on a cart that may not go far: 25 steps of 0.05 s, 125 variables."""
    return _control(
        "cartpole",
        steps,
        _cartpole,
        (0.8, 0.4, 0.5, 0.5),
        (1.0, 1.2, 5.0, 8.0),
        (1.0, 5.0, 0.1, 0.1),
        15.0,
        0.001,
    )


def _pendulum(state, push):
    angle, speed = state
    return [speed, 9.81 * jnp.sin(angle) + 4.0 * push], 0.05


def _cartpole(state, push):
    _, angle, speed, turning = state
    sine, cosine = jnp.sin(angle), jnp.cos(angle)
    inner = (push + 0.05 * turning**2 * sine) / 1.1
    turn = (9.81 * sine - cosine * inner) / (0.5 * (4.0 / 3.0 - 0.1 * cosine**2 / 1.1))
    return [speed, turning, inner - 0.05 * turn * cosine / 1.1, turn], 0.05


def _control(
    name: str, steps: int, dynamics: Callable, start: tuple[float, ...], limits: tuple[float, ...],
    weights: tuple[float, ...], most: float, price: float,
) -> fb.Problem:  # fmt: skip
    size = len(start)

    def split(y):
        return y[: steps * size].reshape(steps, size), y[steps * size :]

    def objective(x, y):
        states, pushes = split(y)
        return jnp.sum(states**2 * jnp.asarray(weights)) + price * jnp.sum(pushes**2)

    def equality(x, y):
        states, pushes = split(y)
        before = jnp.concatenate([x[None], states[:-1]])

        def moved(state, push):
            change, step = dynamics(tuple(state.T), push)
            return state + step * jnp.stack(change, axis=1)

        middle = 0.5 * (moved(before, pushes) + moved(states, pushes)) - 0.5 * (
            states - before
        )  # the trapezoidal rule
        return (states - middle).ravel()

    ends = np.concatenate([np.tile(limits, steps), np.full(steps, most)])
    return fb.Problem(
        objective, -ends, ends, equality=equality, box=(-np.array(start), np.array(start)), name=name,
        start=np.zeros(len(ends)),
    )  # fmt: skip


FAMILIES: dict[str, Callable[[], fb.Problem]] = {
    "convex-qp": lambda: fsnet("qp", convex=True),
    "convex-qcqp": lambda: fsnet("qcqp", convex=True),
    "convex-socp": lambda: fsnet("socp", convex=True),
    "nonconvex-qp": lambda: fsnet("qp", convex=False),
    "nonconvex-qcqp": lambda: fsnet("qcqp", convex=False),
    "nonconvex-socp": lambda: fsnet("socp", convex=False),
    "portfolio": portfolio,
    "portfolio-smooth": lambda: portfolio(smooth=True),
    "transport": transport,
    "flat": flat,
    "moving": moving,
    "pendulum": pendulum,
    "cartpole": cartpole,
}
