"""The complementarity problem of `complementarity` for batches so wide that no row should wait for another.

Most rows keep the active set they come with: it is tried first, for all rows at once, and where every sign is right
that is the answer, whatever way others take to it. The rest go through the usual rounds, in batches that become
narrower as rows settle; the few that differ from the usual set in many places come last. Rows go last in every array,
and small systems are inverted pivot by pivot for all rows together: what an accelerator likes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from feasibly.model.complementarity import Pivoted
from feasibly.model.settings import DEFAULT, ComplementaritySettings
from feasibly.model.small_systems import Solver, by_pivots

NARROWER, FEWER = (1, 4, 32), (1, 8, 64)
"""How many times narrower batches become as rows settle: rounds at one width go on until the next is wide enough. The
second for rows that differ in many places."""


class _Settled(NamedTuple):
    """What rounds came to, rows last."""

    lam: Any
    flipped: Any
    """Differences from the usual set."""
    fewest: Any
    """The fewest signs that were wrong: none in a row that has settled."""
    patience: Any
    over: Any
    """Rows that came to more differences than there was room for."""

    @property
    def settled(self) -> Any:
        return (self.fewest == 0) & ~self.over


def solve_wide(
    pivoted: tuple[Pivoted, Pivoted],
    q: Any,
    previous: Any,
    active: Any,
    max_changes: int,
    rounds: tuple[Any, Any],
    small: Solver = by_pivots,
    settings: ComplementaritySettings = DEFAULT,
) -> tuple[Any, Any, Any]:
    """As `complementarity.solve`: multipliers, their active set, and whether a row settled; `small` solves systems."""
    q, previous, active = jnp.asarray(q), jnp.asarray(previous), jnp.asarray(active)
    rows = q.shape[1]
    usual = jnp.asarray(pivoted[0].base)[:, None]
    both = jax.tree.map(lambda *parts: jnp.stack([jnp.asarray(part) for part in parts]), *pivoted)
    max_changes = min(max_changes, settings.most)
    few = min(max_changes, -(-max_changes // (2 * settings.few)) * settings.few)
    kinds = jnp.asarray([1, 0, 1])  # hard: what is at hand; soft; hard from where that ends
    most_rounds = jnp.stack([jnp.asarray(1), jnp.asarray(rounds[0]), jnp.asarray(rounds[1])])

    def through(phases: tuple[int, int], most: int, narrower: tuple[int, ...], found: Any, last: bool) -> Any:
        """Multipliers, differences, rows that have settled and rows that do not fit, after these phases.

        Where nobody comes after them, rows go on with as many differences as fit.
        """
        widths = sorted({max(rows // factor, min(rows, 16)) for factor in narrower}, reverse=True)

        def phase(number: Any, found: Any) -> Any:
            lam, flipped, settled, over = found
            # One program for soft and hard: compiling it twice takes twice as long.
            kind = jax.tree.map(lambda part: part[kinds[number]], both)
            waiting = ~settled & ~over
            new = _settle(
                kind, q, previous, flipped, waiting, most, most_rounds[number], widths, small, last, settings
            )
            exact = waiting & new.settled & (kinds[number] == 1)
            taken = exact | (waiting & ~new.over & (kinds[number] == 0))
            return (
                jnp.where(taken, new.lam, lam),
                jnp.where(taken, new.flipped, flipped),
                settled | exact,
                over | (waiting & new.over),
            )

        return jax.lax.fori_loop(*phases, phase, found)

    none = jnp.zeros(rows, dtype=bool)
    blank = (previous, active != usual, none, none)
    lam, flipped, settled, over = through((0, 3), few, NARROWER, blank, max_changes <= few)
    if max_changes > few:
        others = (lam, flipped, settled | ~over, none)
        lam, flipped, done, _ = through((1, 3), max_changes, FEWER, others, True)
        settled = settled | (done & ~others[2])
    # So many that nobody knows which: the next step had better begin anew.
    lost = ~settled & (jnp.sum(flipped, axis=0) > few)
    flipped = flipped & ~lost
    return lam, flipped != usual, settled


def _settle(
    pivoted: Pivoted,
    q: Any,
    previous: Any,
    flipped: Any,
    which: Any,
    most: int,
    rounds: Any,
    widths: list[int],
    small: Solver,
    cut: bool,
    settings: ComplementaritySettings,
) -> _Settled:
    """At most so many rounds for the rows `which`, as many of them as the first of `widths` has room for."""
    size, rows = q.shape
    places = jnp.arange(size)[:, None]
    patient, share = settings.patience, settings.worst_alone if cut else settings.worst

    def look(start: Any, at: _Settled) -> _Settled:
        lam, lack, tried = _try(pivoted, start, at.flipped, most, small, settings.rounding)
        wrong = lack > 0.0
        count = jnp.sum(wrong, axis=0)
        # Flip what is most wrong while that helps; where it goes round in circles, flip the last one alone.
        patience = jnp.where(count < at.fewest, patient, at.patience - 1)
        last = places == jnp.max(jnp.where(wrong, places, -1), axis=0)
        every = wrong & (lack >= share * jnp.max(lack, axis=0))
        turn = jnp.where(patience >= 0, every, wrong & last)
        over = at.over if cut else at.over | (tried != at.flipped).any(axis=0)
        return _Settled(lam, tried ^ turn, jnp.minimum(count, at.fewest), patience, over)

    def waiting(at: _Settled) -> Any:
        return (at.fewest > 0) & ~at.over

    none = jnp.zeros(rows, dtype=bool)
    # Rows that are not asked for have settled.
    found = _Settled(previous, flipped, jnp.where(which, size + 1, 0), jnp.full(rows, patient), none)
    round_ = jnp.asarray(0)
    for width, enough in zip(widths, (*widths[1:], 0), strict=True):

        def stage(given: Any, width: int = width, enough: int = enough) -> Any:
            found, round_ = given
            here = None if width == rows else jnp.nonzero(waiting(found), size=width, fill_value=rows)[0]

            def taken(part: Any) -> Any:
                return part if here is None else part.at[..., here].get(mode="clip")

            start = _start(pivoted, taken(q), taken(previous))
            local = jax.tree.map(taken, found)

            def unfinished(state: Any) -> Any:
                return (state[1] < rounds) & (jnp.sum(waiting(state[0])) > enough)

            local, round_ = jax.lax.while_loop(
                unfinished, lambda state: (look(start, state[0]), state[1] + 1), (local, round_)
            )
            if here is None:
                return local, round_
            put = jax.tree.map(lambda old, new: old.at[..., here].set(new, mode="drop"), found, local)
            return put, round_

        wanted = (round_ < rounds) & (jnp.sum(waiting(found)) > enough)
        found, round_ = jax.lax.cond(wanted, stage, lambda given: given, (found, round_))
    return found._replace(over=found.over | (which & (found.patience == patient) & (found.fewest > size)))


def _start(pivoted: Pivoted, q: Any, previous: Any) -> Any:
    """Everybody's values while nothing differs from the usual set."""
    scale = jnp.asarray(pivoted.scale)[:, None]
    return pivoted.offset @ (scale * q + pivoted.regularisation * previous / scale)


def _try(
    pivoted: Pivoted, start: Any, flipped: Any, most: int, small: Solver, rounding: float
) -> tuple[Any, Any, Any]:
    """Solve for the first `most` differences of every row: multipliers, by how much signs are wrong, what was tried."""
    matrix, base = jnp.asarray(pivoted.matrix), jnp.asarray(pivoted.base)[:, None]
    size, most = start.shape[0], most + most % 2
    places = jnp.arange(size, dtype=jnp.int32)[:, None]
    # Sums of zeros and ones are exact in any precision, and a product with a triangle is quicker than a scan.
    order = jnp.asarray(np.tri(size, dtype=np.float32)) @ flipped.astype(jnp.float32)
    flipped = flipped & (order <= most)
    slot = jnp.where(flipped, order.astype(jnp.int32) - 1, most)  # the last one is for everything else
    blank = jnp.zeros((most + 1, start.shape[1]), dtype=jnp.int32)
    where = blank.at[slot, jnp.arange(start.shape[1])].set(jnp.broadcast_to(places, slot.shape))[:most]
    total = jnp.minimum(order[-1], most).astype(jnp.int32)
    found = small(matrix, where, total, -jnp.take_along_axis(start, where, axis=0))
    found = jnp.concatenate([found, jnp.zeros_like(found[:1])])
    amounts = jnp.take_along_axis(found, slot, axis=0)
    values = start + matrix @ amounts
    tolerance = rounding * (1.0 + jnp.max(jnp.abs(start), axis=0))
    lack = jnp.maximum(-jnp.where(flipped, amounts, values) - tolerance, 0.0)
    lam = jnp.where(base, jnp.where(flipped, 0.0, values), amounts)
    return jnp.asarray(pivoted.scale)[:, None] * jnp.maximum(lam, 0.0), lack, flipped
