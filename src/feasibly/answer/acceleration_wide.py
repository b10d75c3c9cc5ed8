"""The extrapolation of `acceleration` for batches on a device: compiled, rows last, a history that is handed on.

The same combination of the last few steps. What differs is where it lives: the history is a record of arrays that goes
through the compiled loop, and from pass to pass.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp

from feasibly.answer.acceleration import RIDGE

Parts = tuple[Any, ...]
"""Decisions, multipliers of equalities and those of candidates, or steps of them; `(size, rows)` each."""


class History(NamedTuple):
    """The last steps of each row, and what convergence asks of the newest."""

    points: Parts
    """Where rows were, the newest first: `(depth, size, rows)` each."""
    steps: Parts
    """The steps from there."""
    known: Any
    """How many of these belong to what a row is doing now."""
    taken: Any
    """Steps since a row began."""
    length: Any
    """The longest move of a decision in the last plain step: within the trust region, not accelerated."""
    sound: Any
    """Whether the active set of that step was that of its own complementarity problem."""


def no_history(depth: int, parts: Parts) -> History:
    """Of rows that begin, at these points."""
    rows = parts[0].shape[-1]
    empty = tuple(jnp.zeros((depth, *part.shape)) for part in parts)
    none = jnp.zeros(rows, dtype=jnp.int32)
    return History(empty, empty, none, none, jnp.full(rows, jnp.inf), jnp.zeros(rows, dtype=bool))


def accelerated(
    history: History, point: Parts, step: Parts, afresh: Any, shortened: Any, weights: Any
) -> tuple[Parts, History]:
    """The step to take instead of `step` from `point`, and what is known after it; as `Acceleration`, which see."""
    depth = history.points[0].shape[0]
    known = jnp.where(afresh | shortened, 0, history.known)
    counts = jnp.arange(depth)[:, None] < known
    turns = [
        jnp.where(counts[:, None], now - before, 0.0) for now, before in zip(step, history.steps, strict=True)
    ]
    share = _shares(step[0], turns[0], weights)
    found = tuple(
        now - jnp.sum(share[:, None] * (jnp.where(counts[:, None], at - before, 0.0) + turn), axis=0)
        for now, at, before, turn in zip(step, point, history.points, turns, strict=True)
    )

    def newest(part: Any, now: Any) -> Any:
        return jnp.concatenate([now[None], part[: depth - 1]])

    return found, history._replace(
        points=tuple(newest(part, now) for part, now in zip(history.points, point, strict=True)),
        steps=tuple(newest(part, now) for part, now in zip(history.steps, step, strict=True)),
        known=jnp.where(shortened, 0, jnp.minimum(known + 1, depth)),
        taken=history.taken + 1,
    )


def _shares(step: Any, turns: Any, weights: Any) -> Any:
    """By how much each of the last steps counts, `(depth, rows)`: least squares, row by row."""
    depth = turns.shape[0]
    weighted = turns * weights[:, None]
    gram = jnp.stack([jnp.sum(weighted[i] * turns, axis=1) for i in range(depth)])
    right = jnp.sum(weighted * step, axis=1)
    own = jnp.stack([gram[i, i] for i in range(depth)])
    scale = jnp.where(own > 0.0, 1.0 / jnp.sqrt(jnp.maximum(own, 1e-300)), 0.0)
    gram = gram * scale[:, None] * scale
    gram = gram + jnp.where(scale > 0.0, RIDGE, 1.0)[:, None] * jnp.eye(depth)[:, :, None]
    share = (
        jnp.moveaxis(jnp.linalg.solve(jnp.moveaxis(gram, -1, 0), (right * scale).T[..., None])[..., 0], 0, -1)
        * scale
    )
    return jnp.where(jnp.isfinite(share), share, 0.0)
