"""Many small quadratic programs that share one matrix, solved together.

Each row wants `lam >= 0`, `w = M lam - q >= 0` and `lam * w = 0`. `M` is the same for all rows, and so, nearly,
is the set of positive `lam`. The usual set is pivoted into the matrix once; what is left for a row is the few
places where it differs. They are found by the primal-dual active-set rule: flip every sign that is wrong, solve,
look again.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from feasibly._codec import record
from feasibly.model.settings import DEFAULT, ComplementaritySettings

Array = NDArray[np.float64]

SIZES = (8, 24, 72)
"""Sizes of the systems that are solved for a whole batch: the smallest that the row with the most differences fits in.
Most rows differ from the usual set in fewer than eight places, and the work grows with the cube."""


@record(
    "pivoted",
    shapes={"scale": "size", "base": "size", "offset": "size size", "matrix": "size size"},
    stored={"regularisation": "softness"},
)
class Pivoted(NamedTuple):
    """`M` scaled to a unit diagonal and pivoted on the usual active set `base`.

    `values = offset(q) + matrix @ z` gives the multipliers of base rows and the slacks of the others, while `z` holds
    the slacks of base rows and the multipliers of the others. All zero `z` is the usual case.
    """

    scale: Any
    base: Any
    regularisation: Any
    offset: Any
    matrix: Any


def pivot(
    matrix: Array, base: NDArray[np.bool_], settings: ComplementaritySettings = DEFAULT
) -> tuple[Pivoted, Pivoted]:
    """Prepare `matrix` (symmetric, positive semi-definite) for `solve`, with `base` usually active: soft and hard."""
    return _pivot(matrix, base, settings.soft), _pivot(matrix, base, settings.hard)


def _pivot(matrix: Array, base: NDArray[np.bool_], regularisation: float) -> Pivoted:
    size = len(matrix)
    scale = 1.0 / np.sqrt(np.maximum(np.diag(matrix), np.finfo(np.float64).tiny)) if size else np.zeros(0)
    scale = np.where(np.diag(matrix) > 1e-300, scale, 1.0) if size else scale
    scaled = matrix * scale[:, None] * scale + regularisation * np.eye(size)
    inside, outside = np.flatnonzero(base), np.flatnonzero(~base)
    inverse = np.linalg.inv(scaled[np.ix_(inside, inside)])
    inverse = (inverse + inverse.T) / 2.0
    carried = scaled[np.ix_(outside, inside)] @ inverse
    offset, pivoted = np.zeros((size, size)), np.zeros((size, size))
    offset[np.ix_(inside, inside)] = inverse
    offset[np.ix_(outside, inside)] = carried
    offset[outside, outside] = -1.0
    pivoted[np.ix_(inside, inside)] = inverse
    pivoted[np.ix_(inside, outside)] = -carried.T
    pivoted[np.ix_(outside, inside)] = carried
    pivoted[np.ix_(outside, outside)] = (
        scaled[np.ix_(outside, outside)] - carried @ scaled[np.ix_(inside, outside)]
    )
    return Pivoted(scale, np.asarray(base), np.float64(regularisation), offset, pivoted)


class Bordered(NamedTuple):
    """Changes of low rank to `M`, one an entry: `M - V C V'` pivoted is `matrix + across @ back`.

    With `u = C V' lam` as further unknowns, the problem is the old one with `q + V u`; what `u` does to the values, and
    what they do to it, is worked out once.
    """

    across: Any
    """What `u` adds to the values, `(entries, size, rank)`."""
    back: Any
    """What `z` makes of `u`, `(entries, rank, size)`."""
    first: Any
    """What the values at `z = 0` make of `u`, `(entries, rank, size)`."""


def border(pivoted: Pivoted, along: Array, middle: Array) -> Bordered:
    """`along` is `V`, `(entries, size, rank)`, and `middle` is `C`; an entry without a change comes first."""
    scaled = np.asarray(pivoted.scale)[:, None] * along
    base = np.asarray(pivoted.base)[:, None]
    inside, outside = np.swapaxes(scaled * base, 1, 2), np.swapaxes(scaled * ~base, 1, 2)
    across = np.asarray(pivoted.offset) @ scaled
    rank = along.shape[2]
    solved = np.linalg.solve(np.eye(rank) - middle @ (inside @ across), middle)
    parts = across, solved @ (inside @ np.asarray(pivoted.matrix) + outside), solved @ inside
    return Bordered(
        *(np.concatenate([np.zeros_like(part, shape=(1, *part.shape[1:])), part]) for part in parts)
    )


def solve(
    pivoted: tuple[Pivoted, Pivoted],
    q: Any,
    previous: Any,
    active: Any,
    max_changes: int,
    rounds: tuple[int, int],
    bordered: tuple[Bordered, Bordered] | None = None,
    *,
    settings: ComplementaritySettings = DEFAULT,
) -> tuple[Any, Any, Any]:
    """Multipliers, their active set, and whether a row settled, for `q` of shape `(size, rows)`.

    Args:
        pivoted: what `pivot` made.
        q: the right-hand sides, one a column.
        previous: multipliers to stay near, as far as the regularisation goes (none is left where they converge).
        active: a guess at the active set, `(size, rows)` booleans: the usual set, or the last answer.
        max_changes: how many differences from the usual set a row may have (static).
        rounds: at most so many, soft and hard.
        bordered: each row's own change of the matrix, if there is any.
        settings: numbers of the method (static).
    """
    (soft, hard), (softly, exact) = pivoted, bordered or (None, None)
    roughly, found, _ = _settle(soft, q, previous, active, max_changes, rounds[0], settings, softly)
    exactly, final, settled = _settle(hard, q, previous, found, max_changes, rounds[1], settings, exact)
    return jnp.where(settled, exactly, roughly), jnp.where(settled, final, found), settled


class _State(NamedTuple):
    """Where the rounds of `_settle` stand, a row each."""

    flipped: Any
    """Differences from the usual set that come next."""
    z: Any
    """What the differences that were tried last have to be,"""
    values: Any
    """and what that makes of the others (see `Pivoted`)."""
    tried: Any
    """Those differences: as many as there was room for."""
    fewest: Any
    """The fewest signs that were wrong: none in a row that has settled."""
    patience: Any
    """Rounds without progress before signs are flipped one at a time."""
    round: Any
    """How many are over, of all rows together."""


def _settle(
    pivoted: Pivoted,
    q: Any,
    previous: Any,
    active: Any,
    max_changes: int,
    rounds: int,
    settings: ComplementaritySettings,
    own: Bordered | None = None,
) -> tuple[Any, Any, Any]:
    scale, base, regularisation, offset, matrix = (jnp.asarray(part) for part in pivoted)
    start = (offset @ (scale[:, None] * q + regularisation * previous / scale[:, None])).T
    if own is not None:
        start = start + jnp.einsum("rnk,rkm,rm->rn", own.across, own.first, start)
    size, width = start.shape[1], start.shape[0]
    tolerance = settings.rounding * (1.0 + jnp.max(jnp.abs(start), axis=1, keepdims=True))
    rows = jnp.arange(width)[:, None]

    sizes = (*(few for few in SIZES if few < max_changes), max_changes)

    def differing(flipped: Any, most: int) -> tuple[Any, Any]:
        """What the first `most` changes of every row have to be, and which they are."""
        chosen, where = jax.lax.top_k(flipped.astype(jnp.float32), most)
        valid = chosen > 0.0
        both = valid[:, :, None] & valid[:, None, :]
        small = matrix[where[:, :, None], where[:, None, :]]
        if own is not None:
            here = jnp.take_along_axis(own.across, where[:, :, None], axis=1)
            small = small + here @ jnp.take_along_axis(own.back, where[:, None, :], axis=2)
        small = jnp.where(both, small, jnp.eye(most))
        right = jnp.where(valid, -jnp.take_along_axis(start, where, axis=1), 0.0)
        found = jnp.where(valid, jnp.linalg.solve(small, right[..., None])[..., 0], 0.0)
        z = jnp.zeros_like(start).at[rows, where].add(found)
        return z, jnp.zeros_like(flipped).at[rows, where].max(valid)

    def look(at: _State) -> _State:
        most = jnp.max(jnp.sum(at.flipped, axis=1))
        which = jnp.minimum(jnp.searchsorted(jnp.asarray(sizes), most), len(sizes) - 1)
        branches = [functools.partial(differing, most=room) for room in sizes]
        z, flipped = jax.lax.switch(which, branches, at.flipped)
        values = start + z @ matrix.T
        if own is not None:
            values = values + jnp.einsum("rnk,rkm,rm->rn", own.across, own.back, z)
        wrong = jnp.where(flipped, z, values) < -tolerance
        count = jnp.sum(wrong, axis=1)
        # Flip everything wrong while that helps; where it goes round in circles, flip the last one alone, which
        # cannot (Murty's rule, as the backup of Judice and Pires 1994).
        better = count < at.fewest
        patience = jnp.where(better, settings.patience, at.patience - 1)
        fewest = jnp.minimum(count, at.fewest)
        last = jnp.arange(size) == jnp.max(jnp.where(wrong, jnp.arange(size), -1), axis=1, keepdims=True)
        turn = jnp.where((patience >= 0)[:, None], wrong, wrong & last)
        return _State(flipped ^ turn, z, values, flipped, fewest, patience, at.round + 1)

    def unsettled(at: _State) -> Any:
        return (at.round < rounds) & jnp.any(at.fewest > 0)

    flipped = (active != base[:, None]).T
    blank = jnp.zeros_like(start)
    fewest = jnp.full(width, size + 1)
    first = _State(flipped, blank, blank, flipped, fewest, jnp.full(width, settings.patience), 0)
    end = jax.lax.while_loop(unsettled, look, first)
    multipliers = jnp.where(base, jnp.where(end.tried, 0.0, end.values), jnp.where(end.tried, end.z, 0.0))
    multipliers = jnp.maximum(multipliers, 0.0)
    return (scale[:, None] * multipliers.T), (end.tried != base).T, end.fewest == 0
