"""What varies in a grid beside its loads, and how it is drawn: outages, costs, ratings.

Every block of the input has a random stream of its own, made from the seed and the block's name, and every row takes
the same number of words from it: row i depends on the seed and on i alone, and loads are those of the same grid with
nothing else varying.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from feasibly._codec import record
from feasibly.problem.errors import Fault, FeasiblyError, is_spread
from feasibly.problem.grid import Grid
from feasibly.problem.topology import bridges, cut_off, islands

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

VARY = ("load", "branch", "generator", "cost", "rating")
"""What may vary, in the order of the input."""

BLOCKS: Mapping[str, tuple[str, ...]] = {
    "load": ("pd", "qd"),
    "branch": ("branch",),
    "generator": ("generator",),
    "cost": ("c1", "c2"),
    "rating": ("rating",),
}
"""The blocks of the input that each of `VARY` stands for."""

_STREAMS = {"outage": 1, "cost": 2, "rating": 3}
_RARE = 1e-6
"""A number of outages that so few draws exceed is not of the kind that was drawn."""


@dataclass(frozen=True)
class Refusal:
    """Why a row has no answer, known without solving it."""

    kind: Literal["islanded", "infeasible"]
    why: str


class Drawing(Protocol):
    """How inputs are drawn that are no plain range, and which of them make sense."""

    @property
    def identity(self) -> str:
        """What tells it from others, as a text."""

    def box(self, spread: float) -> tuple[Array, Array]:
        """The least and largest value of every input."""

    @property
    def n_plain(self) -> int:
        """How many of the first inputs a box covers."""

    def fill(self, plain: Array, seed: int) -> Array:
        """Whole inputs: `plain`, drawn from the box, and what is drawn otherwise."""

    def faults(self, x: Array) -> list[Fault]:
        """Inputs that cannot be."""

    def unlike(self, x: Array) -> Mask:
        """Rows that are not of the kind that is drawn."""

    def refused(self, x: Array) -> dict[int, Refusal]:
        """Rows without an answer, and why."""


@record("draws")
@dataclass(frozen=True)
class Draws:
    """How what varies is drawn.

    Attributes:
        outages: `"single"`: one element is out in every row, half the time a branch that is no bridge, half the time a
            generator (of the kinds that vary), as PGLearn draws them. `"each"`: the same single outages in turn, row
            after row. A whole number k: any k elements that vary, bridges left in service. A share below 1: each of
            those elements is out with this probability. `"none"`: statuses are inputs and all are 1.
        costs: `"scaled"`: every generator's costs times a factor of its own, within `cost_spread` of 1; `"permuted"`:
            the generators' costs change places.
        ratings: `"line"`: every rating times a factor of its own, within `rating_spread` of 1; `"season"`: one factor
            for all lines of a row.
        islands: let the parts of a grid that an outage splits balance each on its own. Otherwise such a row has the
            outcome ISLANDED.
    """

    outages: str | int | float = "single"
    costs: str = "scaled"
    cost_spread: float = 0.3
    ratings: str = "line"
    rating_spread: float = 0.2
    islands: bool = False

    def __post_init__(self) -> None:
        faults = []
        if isinstance(self.outages, str):
            if self.outages not in ("single", "each", "none"):
                faults.append(
                    f"outages must be single, each, none, a number or a probability, not {self.outages!r}"
                )
        elif not _is_outages(self.outages):
            faults.append(
                f"outages must be a whole number of elements or a probability below 1, not {self.outages!r}"
            )
        if self.costs not in ("scaled", "permuted"):
            faults.append(f"costs must be scaled or permuted, not {self.costs!r}")
        if self.ratings not in ("line", "season"):
            faults.append(f"ratings must be drawn by line or by season, not {self.ratings!r}")
        for name in ("cost_spread", "rating_spread"):
            if not is_spread(getattr(self, name)) or getattr(self, name) >= 1.0:
                faults.append(f"{name} must be at least 0 and below 1, not {getattr(self, name)!r}")
        if faults:
            raise FeasiblyError("; ".join(faults))


def _is_outages(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return False
    number = float(value)
    return 0.0 <= number < 1.0 or (number == int(number) and number >= 1.0)


def check_vary(vary: Any) -> tuple[str, ...]:
    """What varies, each once and in the order of `VARY`."""
    asked = (vary,) if isinstance(vary, str) else tuple(vary)
    unknown = [str(name) for name in asked if name not in VARY]
    if unknown or not asked:
        said = f"{', '.join(unknown)} cannot vary" if unknown else "nothing varies"
        raise FeasiblyError(f"{said}; choose from {', '.join(VARY)}")
    return tuple(name for name in VARY if name in asked)


@dataclass(frozen=True, eq=False)
class GridDrawing:
    """The inputs of a grid of which more than the loads varies."""

    grid: Grid
    vary: tuple[str, ...]
    draws: Draws
    inputs: Mapping[str, slice]
    nominal: Array
    names: Mapping[str, list[str]]
    _bridges: Mask = field(init=False)
    _whole: NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_bridges", bridges(self.grid))
        object.__setattr__(self, "_whole", islands(self.grid))

    @property
    def identity(self) -> str:
        """What varies and how it is drawn."""
        return f"vary={self.vary} draws={sorted(asdict(self.draws).items())}"

    @property
    def n_plain(self) -> int:
        """How many of the first inputs a box covers: the loads."""
        return 2 * self.grid.n_loads if "load" in self.vary else 0

    # ---- drawing ---------------------------------------------------------------------------------------

    def box(self, spread: float) -> tuple[Array, Array]:
        """The least and largest value of every input."""
        low, high = self.nominal.copy(), self.nominal.copy()

        def around(name: str, by: float) -> None:
            part = self.inputs[name]
            ends = self.nominal[part] * (1.0 - by), self.nominal[part] * (1.0 + by)
            low[part], high[part] = np.minimum(*ends), np.maximum(*ends)

        for name in self.inputs:
            if name in ("pd", "qd"):
                around(name, spread)
            elif name in ("branch", "generator"):
                low[self.inputs[name]] = 0.0
            elif name == "rating":
                around(name, self.draws.rating_spread)
            elif self.draws.costs == "scaled":
                around(name, self.draws.cost_spread)
            else:
                part = self.inputs[name]
                low[part], high[part] = self.nominal[part].min(), self.nominal[part].max()
        return low, high

    def fill(self, plain: Array, seed: int) -> Array:
        """Whole inputs: the loads `plain`, then statuses, costs and ratings."""
        rows = len(plain)
        x = np.tile(self.nominal, (rows, 1))
        x[:, : self.n_plain] = plain
        if "branch" in self.vary or "generator" in self.vary:
            self._draw_outages(x, seed)
        if "cost" in self.vary:
            part1, part2 = self.inputs["c1"], self.inputs["c2"]
            unit = _units(rows, self.grid.n_generators, seed, "cost")
            if self.draws.costs == "scaled":
                factor = 1.0 + self.draws.cost_spread * (2.0 * unit - 1.0)
                x[:, part1] *= factor
                x[:, part2] *= factor
            else:
                order = np.argsort(unit, axis=1, kind="stable")
                x[:, part1], x[:, part2] = self.nominal[part1][order], self.nominal[part2][order]
        if "rating" in self.vary:
            part = self.inputs["rating"]
            width = part.stop - part.start if self.draws.ratings == "line" else 1
            x[:, part] *= 1.0 + self.draws.rating_spread * (2.0 * _units(rows, width, seed, "rating") - 1.0)
        return x

    def single_outages(self, *, bridging: bool = False) -> NDArray[np.int64]:
        """Positions in the input of every element that a single outage may take; of bridges too if told."""
        found = []
        if "branch" in self.vary:
            start = self.inputs["branch"].start
            allowed = np.arange(self.grid.n_branches) if bridging else np.flatnonzero(~self._bridges)
            found.append(start + allowed)
        if "generator" in self.vary:
            found.append(self.inputs["generator"].start + np.arange(self.grid.n_generators))
        return np.concatenate(found) if found else np.zeros(0, dtype=np.int64)

    def _draw_outages(self, x: Array, seed: int) -> None:
        how, able = self.draws.outages, self.single_outages()
        rows = np.arange(len(x))
        if how == "none" or not len(able):
            return
        if how == "each":
            x[rows, able[rows % len(able)]] = 0.0
        elif how == "single":
            unit = _units(len(x), 2, seed, "outage")
            split = self.inputs["generator"].start if "generator" in self.vary else np.inf
            kinds = [kind for kind in (able[able < split], able[able >= split]) if len(kind)]
            kind = np.minimum((unit[:, 0] * len(kinds)).astype(np.int64), len(kinds) - 1)
            for k, places in enumerate(kinds):
                mine = kind == k
                chosen = np.minimum((unit[mine, 1] * len(places)).astype(np.int64), len(places) - 1)
                x[rows[mine], places[chosen]] = 0.0
        else:
            unit = _units(len(x), len(able), seed, "outage")
            number = float(how)
            if number < 1.0:
                out = unit < number
            else:
                out = np.argsort(np.argsort(unit, axis=1, kind="stable"), axis=1) < int(number)
            row, place = np.nonzero(out)
            x[row, able[place]] = 0.0

    # ---- judging ---------------------------------------------------------------------------------------

    def faults(self, x: Array) -> list[Fault]:
        """Statuses that are neither 0 nor 1, negative costs, ratings that are not positive."""
        faults: list[Fault] = []

        def look(block: str, wrong: Callable[[Array], Mask], advice: str, where: Mask | None = None) -> None:
            if block not in self.inputs:
                return
            part = self.inputs[block]
            values = x[:, part]
            bad = np.argwhere(wrong(values) & np.isfinite(values) & (True if where is None else where[part]))
            if len(bad):
                row, place = bad[0]
                more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
                name = self.names[block][place]
                faults.append(Fault(f"row {row}", f"{name} is {values[row, place]:g}{more}; {advice}"))

        for block in ("branch", "generator"):
            look(
                block,
                lambda v: (v != 0.0) & (v != 1.0),
                "a status is 1 for an element in service and 0 for one that is out",
            )
        cheap = self.nominal >= 0.0  # a negative cost of the file itself may stay one
        for block in ("c1", "c2"):
            look(block, lambda v: v < 0.0, "a generator's cost must not be negative", cheap)
        look(
            "rating",
            lambda v: v <= 0.0,
            "a rating must be positive; to take a branch out, set its status to 0",
        )
        return faults

    def unlike(self, x: Array) -> Mask:
        """Rows with more out of service than is ever drawn, or with a bridge out."""
        able = self.single_outages()
        every = self.single_outages(bridging=True)
        if not len(every):
            return np.zeros(len(x), dtype=bool)
        out = x[:, every] < 0.5
        others = ~np.isin(every, able)
        return np.asarray((out.sum(axis=1) > self._most()) | out[:, others].any(axis=1))

    def _most(self) -> int:
        """The largest number of elements that a draw takes out."""
        how = self.draws.outages
        if isinstance(how, str):
            return 0 if how == "none" else 1
        if float(how) >= 1.0:
            return int(how)
        from scipy.stats import binom

        return int(binom.isf(_RARE, len(self.single_outages()), float(how)))

    def refused(self, x: Array) -> dict[int, Refusal]:
        """Rows whose outages split the grid, with the buses cut off; with `islands`, those with a part that has no
        generator."""
        if "branch" not in self.inputs:
            return {}
        g, branch = self.grid, x[:, self.inputs["branch"]] > 0.5
        unit = np.ones((len(x), g.n_generators), dtype=bool)
        if "generator" in self.inputs:
            unit = x[:, self.inputs["generator"]] > 0.5
        suspects = np.flatnonzero((~branch).sum(axis=1) + (~branch[:, self._bridges]).sum(axis=1) > 1)
        found: dict[int, Refusal] = {}
        known: dict[bytes, list[NDArray[np.int64]]] = {}
        for row in suspects.tolist():
            pattern = np.packbits(branch[row]).tobytes()
            if pattern not in known:
                known[pattern] = cut_off(g, branch[row], self._whole)
            groups = known[pattern]
            if not groups:
                continue
            if not self.draws.islands:
                cut = np.concatenate(groups)
                found[row] = Refusal(
                    "islanded", f"{self._outages(branch[row])} out cuts off {_buses(g.bus_id[cut])}"
                )
                continue
            parts = islands(g, branch[row])
            powered = np.isin(np.arange(int(parts.max()) + 1), parts[g.gen_bus[unit[row]]])
            if not powered.all():
                dark = np.flatnonzero(~powered[parts])
                why = f"{self._outages(branch[row])} out leaves {_buses(g.bus_id[dark])} without a generator"
                found[row] = Refusal("infeasible", why)
        return found

    def _outages(self, on: Mask) -> str:
        g, out = self.grid, np.flatnonzero(~on)
        named = [f"{g.bus_id[g.branch_from[k]]}-{g.bus_id[g.branch_to[k]]}" for k in out[:3]]
        more = f" and {len(out) - 3} more" if len(out) > 3 else ""
        return f"branch{'' if len(out) == 1 else 'es'} {', '.join(named)}{more}"


def _buses(numbers: NDArray[np.int64]) -> str:
    shown = ", ".join(str(number) for number in numbers[:8])
    more = f" and {len(numbers) - 8} more" if len(numbers) > 8 else ""
    return f"bus{'' if len(numbers) == 1 else 'es'} {shown}{more}"


def _units(rows: int, width: int, seed: int, stream: str) -> Array:
    """Uniform numbers in [0, 1), `width` of them a row."""
    key = np.array([seed, _STREAMS[stream]], dtype=np.uint64)
    words = np.random.Philox(key=key).random_raw(rows * width)
    unit = np.asarray(words >> np.uint64(11), dtype=np.float64) * 2.0**-53
    return unit.reshape(rows, width)
