"""One case for every primitive that the translator knows: a function of `x` (3) and `y` (6) that uses it.

`inside` is the range that the arguments are drawn from, within the domain of the function and away from kinks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.ad_checkpoint import checkpoint_name

WIDE = (-2.0, 2.0)
POSITIVE = (0.2, 3.0)
UNIT = (-0.9, 0.9)
MATRIX = np.array([[1.0, 0.0, -2.0], [0.5, 3.0, 0.0], [0.0, 0.0, 0.0], [1.5, -1.0, 0.25]])
PLACES = np.array([5, 0, 3, 0])


@dataclass(frozen=True)
class Case:
    primitive: str
    function: Callable[[Any, Any], Any]
    inside: tuple[float, float] = WIDE


def _unary(primitive: str, function: Callable[[Any], Any], inside: tuple[float, float] = WIDE) -> Case:
    return Case(primitive, lambda x, y: function(y * x[0]) if inside is WIDE else function(y), inside)


@jax.custom_jvp
def _cube(a: Any) -> Any:
    return a**3


_cube.defjvp(lambda primals, tangents: (_cube(*primals), 3.0 * primals[0] ** 2 * tangents[0]))


@jax.custom_vjp
def _fourth(a: Any) -> Any:
    return a**4


_fourth.defvjp(lambda a: (_fourth(a), a), lambda a, g: (4.0 * a**3 * g,))


def _known_while(x: Any, y: Any) -> Any:
    return lax.while_loop(
        lambda c: c[0] < 4, lambda c: (c[0] + 1, jnp.sin(c[1]) + x[0]), (jnp.asarray(1), y)
    )[1]


def _scanned(x: Any, y: Any) -> Any:
    last, all_ = lax.scan(lambda c, row: (c * row[0] + x[1], c + row[1]), x[0], y.reshape(3, 2))
    _, back = lax.scan(lambda c, row: (c + row, c * row), x[2], y, reverse=True)
    return jnp.concatenate([last[None], all_, back])


CASES = [
    _unary("neg", lambda a: -a),
    _unary("sin", jnp.sin),
    _unary("cos", jnp.cos),
    _unary("tan", jnp.tan, UNIT),
    _unary("asin", jnp.arcsin, UNIT),
    _unary("acos", jnp.arccos, UNIT),
    _unary("atan", jnp.arctan),
    _unary("sinh", jnp.sinh),
    _unary("cosh", jnp.cosh),
    _unary("tanh", jnp.tanh),
    _unary("asinh", jnp.arcsinh),
    _unary("acosh", jnp.arccosh, (1.2, 4.0)),
    _unary("atanh", jnp.arctanh, UNIT),
    _unary("exp", jnp.exp),
    _unary("exp2", jnp.exp2),
    _unary("expm1", jnp.expm1),
    _unary("log", jnp.log, POSITIVE),
    _unary("log1p", jnp.log1p, UNIT),
    _unary("sqrt", jnp.sqrt, POSITIVE),
    _unary("rsqrt", lax.rsqrt, POSITIVE),
    _unary("cbrt", jnp.cbrt, POSITIVE),
    _unary("square", jnp.square),
    _unary("abs", jnp.abs),
    _unary("sign", lambda a: a * jnp.sign(a)),
    _unary("floor", lambda a: a * jnp.floor(a)),
    _unary("ceil", lambda a: a * jnp.ceil(a)),
    Case("round", lambda x, y: y * jnp.round(y) + y * lax.round(x[0], lax.RoundingMethod.AWAY_FROM_ZERO)),
    _unary("erf", lax.erf),
    _unary("erfc", lax.erfc),
    _unary("logistic", jax.nn.sigmoid),
    Case("is_finite", lambda x, y: jnp.where(jnp.isfinite(y), y * x[0], 0.0)),
    Case("not", lambda x, y: jnp.where(~(y > x[0]), y, x[1])),
    Case("copy", lambda x, y: jnp.array(y * x[0], copy=True)),
    Case("stop_gradient", lambda x, y: jax.nn.logsumexp(y * x[0])),
    Case("name", lambda x, y: checkpoint_name(y * x[0], "here")),
    Case("reduce_precision", lambda x, y: lax.reduce_precision(y * x[0], 11, 52)),
    Case("add", lambda x, y: y + x[0]),
    Case("add_any", lambda x, y: jax.grad(lambda a: jnp.sum(jnp.sin(a) * a))(y)),
    Case("sub", lambda x, y: x[1] - y),
    Case("mul", lambda x, y: y * y[::-1]),
    Case("div", lambda x, y: x[0] / y, POSITIVE),
    Case("rem", lambda x, y: lax.rem(y, x[0]), POSITIVE),
    Case("pow", lambda x, y: y ** x[0] + y**2.5 + 1.5**y, POSITIVE),
    Case("integer_pow", lambda x, y: y**3 + y**-2 + x[0] ** 7, POSITIVE),
    Case("atan2", lambda x, y: jnp.arctan2(y, x[0])),
    Case("max", lambda x, y: jnp.maximum(y, x[0])),
    Case("min", lambda x, y: jnp.minimum(y, x[0])),
    Case("clamp", lambda x, y: lax.clamp(-0.5, y, 0.7) * x[0]),
    Case("eq", lambda x, y: jnp.where(y[:3] == x, 0.0, y[3:])),
    Case("ne", lambda x, y: jnp.where(y[:3] != x, y[3:] * x, 1.0)),
    Case("lt", lambda x, y: jnp.where(y < x[0], y, x[1] * y)),
    Case("le", lambda x, y: jnp.where(y <= x[0], y, x[1] * y)),
    Case("gt", lambda x, y: jnp.where(y > x[0], y, x[1] * y)),
    Case("ge", lambda x, y: jnp.where(y >= x[0], y, x[1] * y)),
    Case("and", lambda x, y: jnp.where((y > 0.0) & (y < 1.0), y * y, y)),
    Case("or", lambda x, y: jnp.where((y < 0.0) | (y > 1.0), y * y, y)),
    Case("xor", lambda x, y: jnp.where((y < 0.0) ^ (x[0] > 0.0), y * y, y)),
    Case("reshape", lambda x, y: y.reshape(2, 3) * x),
    Case("broadcast_in_dim", lambda x, y: jnp.broadcast_to(x[:, None], (3, 2)) * y.reshape(3, 2)),
    Case("squeeze", lambda x, y: jnp.squeeze(y.reshape(6, 1), 1) * x[0]),
    Case("transpose", lambda x, y: y.reshape(2, 3).T * x[:, None]),
    Case("rev", lambda x, y: lax.rev(y.reshape(2, 3), (0, 1)) * x),
    Case("slice", lambda x, y: lax.slice(y.reshape(2, 3), (0, 0), (2, 3), (1, 2)) * x[0] + y[1]),
    Case("split", lambda x, y: jnp.split(y, 3)[1] * x[0] + lax.split(y, (1, 2, 3))[1]),
    Case("stack", lambda x, y: jnp.stack([y[:3], x * x, y[3:]], axis=1)),
    Case("unstack", lambda x, y: lax.unstack(y.reshape(2, 3), axis=1)[1] * x[0]),
    Case("tile", lambda x, y: jnp.tile(y.reshape(2, 3), (2, 2)) * x[0]),
    Case("device_put", lambda x, y: jax.device_put(y * x[0])),
    Case("optimization_barrier", lambda x, y: lax.optimization_barrier((y * x[0], x))[0]),
    Case("concatenate", lambda x, y: jnp.concatenate([y.reshape(2, 3), x[None], MATRIX], axis=0)),
    Case("pad", lambda x, y: lax.pad(y.reshape(2, 3), x[0], ((1, 0, 1), (-1, 2, 0)))),
    Case("dynamic_slice", lambda x, y: lax.dynamic_slice(y, (jnp.asarray(4),), (3,)) * x),
    Case("dynamic_update_slice", lambda x, y: lax.dynamic_update_slice(y, x[:2] ** 2, (jnp.asarray(2),))),
    Case("gather", lambda x, y: y[PLACES] * x[0] + y.reshape(2, 3)[[0, 1, 1, 0], [2, 0, 1, 1]]),
    Case("scatter", lambda x, y: (y * y).at[np.array([4, 1])].set(x[:2])),
    Case(
        "scatter-add", lambda x, y: jnp.sin(y).at[PLACES].add(y[:4] * x[0]).at[np.array([[1], [2]])].add(x[1])
    ),
    Case("scatter-sub", lambda x, y: y.at[PLACES].subtract(y[:4] * x[0])),
    Case("scatter-mul", lambda x, y: y.at[np.array([2, 4])].multiply(x[:2], unique_indices=True)),
    Case("scatter-min", lambda x, y: y.at[PLACES].min(x[0])),
    Case("scatter-max", lambda x, y: y.at[PLACES].max(x[0])),
    Case(
        "iota", lambda x, y: y * lax.iota(np.float64, 6) + x[0] * lax.broadcasted_iota(np.float64, (2, 6), 0)
    ),
    Case("reduce_sum", lambda x, y: jnp.sum((y * x[0]).reshape(2, 3), axis=0) + jnp.sum(y)),
    Case("reduce_prod", lambda x, y: jnp.prod(y.reshape(2, 3), axis=1) * x[0]),
    Case("reduce_max", lambda x, y: jnp.max(y.reshape(2, 3), axis=0) + jnp.max(x)),
    Case("reduce_min", lambda x, y: jnp.min(y.reshape(2, 3), axis=1) + jnp.min(x)),
    Case("reduce_and", lambda x, y: jnp.where(jnp.all(y.reshape(2, 3) > -1.0, axis=0), x, y[:3])),
    Case("reduce_or", lambda x, y: jnp.where(jnp.any(y.reshape(2, 3) > 1.0, axis=0), x, y[:3])),
    Case("cumsum", lambda x, y: jnp.cumsum(y.reshape(2, 3), axis=1) * x + lax.cumsum(x, reverse=True)),
    Case("cumprod", lambda x, y: jnp.cumprod(y * x[0])),
    Case("cummax", lambda x, y: lax.cummax(y.reshape(2, 3), axis=0) * x),
    Case("cummin", lambda x, y: lax.cummin(y, reverse=True) * x[0]),
    Case("dot_general", lambda x, y: MATRIX @ (y[:3] * x) + y.reshape(2, 3) @ x @ np.ones((2, 4)) + y @ y),
    Case("select_n", lambda x, y: lax.select_n((y > 0).astype(np.int32) + (y > 1), y, y * y, y * x[0])),
    Case("convert_element_type", lambda x, y: y * (y > x[0]).astype(np.float64) + (y > 0).astype(np.int32)),
    Case("jit", lambda x, y: jax.jit(lambda a: a * jnp.sin(a))(y) * x[0]),
    Case("custom_jvp_call", lambda x, y: _cube(y * x[0])),
    Case("custom_vjp_call", lambda x, y: _fourth(y * x[0])),
    Case("remat2", lambda x, y: jax.checkpoint(lambda a: jnp.sin(a) * x[0])(y)),
    Case("scan", _scanned),
    Case("while", _known_while),
    Case(
        "cond",
        lambda x, y: lax.cond(x[0] > 0.0, jnp.sin, lambda a: a * a, y) + lax.switch(1, [jnp.cos, jnp.exp], y),
    ),
]
