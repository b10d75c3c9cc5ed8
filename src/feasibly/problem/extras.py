"""What a grid has beyond generators, loads, shunts and branches: linear parts, kept as sparse tables.

DC lines, branches without impedance, piecewise-linear costs, costs of reactive power, capability curves and loads of
constant power factor all come down to more variables `u` after `va`, and to rows that are linear in `y = [pg, qg, vm,
va, u]`. So one small algebra serves them all, on disk and in the problem.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from feasibly._codec import record

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Function = Callable[[Any, Any], Any]

BLOCKS = (
    "pdc_from",
    "pdc_to",
    "qdc_from",
    "qdc_to",
    "plink",
    "qlink",
    "cost_pg",
    "cost_qg",
    "cost_pdc",
    "reserve",
)
"""Blocks of further outputs in their order: power drawn from the grid into a DC line at its from bus, power it delivers
at its to bus, reactive power it injects at both; power through a branch without impedance; what a piecewise-linear cost
comes to, in units of `money`; power that a generator holds in reserve."""

CORNERS = BLOCKS.index("cost_pg")
EQUALITIES = (
    "DC line losses",
    "link voltage",
    "link angle",
    "power factor",
    "DC line set point",
    "user constraint",
)
INEQUALITIES = ("cost segment", "capability curve", "link limit", "user constraint", "interface limit", "reserve",
                "reserve zone")  # fmt: skip
PREFIX = "extra_"


@record(
    "extras",
    shapes={
        **dict.fromkeys(("kind", "number", "low", "high", "start"), "variables"),
        "price_at": "prices", "price": "prices 3", "inject": "* 3", "equal": "* 3", "less": "* 3",
        **dict.fromkeys(("equal_to", "equal_kind", "equal_number"), "equalities"),
        **dict.fromkeys(("less_than", "less_kind", "less_number"), "inequalities"),
        "disc": "discs 3", "disc_number": "discs",
    },
)  # fmt: skip
@dataclass(frozen=True, eq=False)
class Extras:
    """Further variables and the rows that they, generators and voltages take part in; per unit, radians, $/h.

    `kind` is a position in `BLOCKS`, `EQUALITIES` or `INEQUALITIES`; `number` a row of the file, or for costs the bus.
    Tables `inject`, `equal` and `less` have columns row, column, value; columns count all of `y`.
    """

    kind: Ints
    number: Ints
    low: Floats
    high: Floats
    start: Floats
    price_at: Ints
    """Positions in `y` that cost something."""
    price: Floats
    """Columns c2, c1, c0."""
    inject: Floats
    """Into the balances: active power of every bus, then reactive."""
    equal: Floats
    equal_to: Floats
    equal_kind: Ints
    equal_number: Ints
    less: Floats
    less_than: Floats
    less_kind: Ints
    less_number: Ints
    disc: Floats
    """Positions of two outputs and the most that the root of the sum of their squares may be."""
    disc_number: Ints

    def __post_init__(self) -> None:
        for f in fields(self):
            getattr(self, f.name).setflags(write=False)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Every array by name."""
        return {PREFIX + f.name: getattr(self, f.name) for f in fields(self)}

    @staticmethod
    def from_arrays(arrays: Mapping[str, NDArray[Any]]) -> Extras | None:
        """The extras among `arrays`, if there are any. Raises `KeyError` naming an array that is missing."""
        if not any(key.startswith(PREFIX) for key in arrays):
            return None
        kept: dict[str, Any] = {}
        for f in fields(Extras):
            kind = np.int64 if f.type == "Ints" else np.float64
            kept[f.name] = np.array(arrays[PREFIX + f.name], dtype=kind)
        return Extras(**kept)

    # ---- what the problem needs ------------------------------------------------------------------------

    def blocks(self, first: int) -> dict[str, slice]:
        """Slices of `y` behind its first `first` entries."""
        found = {}
        for i, name in enumerate(BLOCKS):
            count = int((self.kind == i).sum())
            if count:
                found[name] = slice(first, first + count)
                first += count
        return found

    def names(self) -> list[str]:
        """`pdc_from_1`; a second one of a kind and number ends in `_2`."""
        seen: Counter[tuple[int, int]] = Counter()
        found = []
        for kind, number in zip(self.kind.tolist(), self.number.tolist(), strict=True):
            seen[kind, number] += 1
            nth = seen[kind, number]
            found.append(f"{BLOCKS[kind]}_{number}" + (f"_{nth}" if nth > 1 else ""))
        return found

    @property
    def n_equalities(self) -> int:
        """Rows behind the power balances."""
        return len(self.equal_to)

    @property
    def n_inequalities(self) -> int:
        """Rows behind the limits of branches."""
        return len(self.less_than) + len(self.disc)

    def touches_generators(self, generators: int) -> bool:
        """Whether a row or a cost concerns a generator, so that it could not simply be switched off."""
        columns = np.concatenate([self.equal[:, 1], self.less[:, 1], self.price_at])
        return bool((columns < 2 * generators).any())

    def objective(self, base: Function) -> Function:
        """`base` and what the rest costs."""
        at, (c2, c1, c0) = self.price_at, self.price.T
        constant = float(c0.sum())
        if not len(at):
            return base

        def objective(x: Any, y: Any) -> Any:
            return base(x, y) + jnp.sum((c2 * y[at] + c1) * y[at]) + constant

        return objective

    def equality(self, base: Function) -> Function:
        """The balances with what is injected, then the rows of our own."""
        rows, columns, values = _triplets(self.inject)
        own = self._rows(self.equal, self.equal_to)

        def equality(x: Any, y: Any) -> Any:
            return jnp.concatenate([base(x, y).at[rows].add(values * y[columns]), own(y)])

        return equality

    def inequality(self, base: Function | None, *, natural: bool = False) -> Function | None:
        """The rows of `base`, then ours; `natural` for the metrics, smooth otherwise."""
        if not self.n_inequalities:
            return base
        lines = self._rows(self.less, self.less_than)
        p, q, most = self.disc[:, 0].astype(np.int64), self.disc[:, 1].astype(np.int64), self.disc[:, 2]

        def inequality(x: Any, y: Any) -> Any:
            square = y[p] ** 2 + y[q] ** 2
            discs = jnp.sqrt(square) - most if natural else (square - most * most) / (2.0 * most)
            parts = [lines(y), discs]
            return jnp.concatenate(parts if base is None else [base(x, y), *parts])

        return inequality

    def some(self, base: Callable[[Ints], Function] | None, count: int) -> Callable[[Ints], Function] | None:
        """The rows at some positions alone; the first `count` are those of `base`."""
        if not self.n_inequalities:
            return base
        ours = self.inequality(None)
        assert ours is not None

        def pick(rows: Ints) -> Function:
            first, last = rows[rows < count], rows[rows >= count] - count
            before = base(first) if base is not None and len(first) else None

            def inequality(x: Any, y: Any) -> Any:
                parts = [] if before is None else [before(x, y)]
                return jnp.concatenate([*parts, ours(x, y)[last]])

            return inequality

        return pick

    @staticmethod
    def _rows(table: Floats, right: Floats) -> Callable[[Any], Any]:
        rows, columns, values = _triplets(table)

        def evaluate(y: Any) -> Any:
            return jnp.asarray(-right).at[rows].add(values * y[columns])

        return evaluate


def _triplets(table: Floats) -> tuple[Ints, Ints, Floats]:
    return table[:, 0].astype(np.int64), table[:, 1].astype(np.int64), np.ascontiguousarray(table[:, 2])
