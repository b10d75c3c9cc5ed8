"""Elements recognised from instance to instance where each instance lists only those in service.

An element is known by what does not change about it: a branch by its buses and parameters, a generator by its bus and
limits. Instances whose lists are the whole grid's, less what is out, are put together into the whole grid; each is then
a row of statuses, costs and ratings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feasibly.data.varied import in_order
from feasibly.problem.grid import Grid

Array = NDArray[np.float64]
Arrays = Mapping[str, NDArray[Any]]
Key = tuple[float, ...]

GENERATOR = ("gen_bus", "pmin", "pmax", "qmin", "qmax")
BRANCH = ("branch_from", "branch_to", "r", "x", "b_from", "b_to", "tap", "shift", "angmin", "angmax")
_OF_GENERATOR = (*GENERATOR, "gen_id", "cost")
_OF_BRANCH = (*BRANCH, "branch_id", "g_from", "g_to", "rate", "current")
_COMMON = ("base", "vmin", "vmax", "reference", "load_bus", "shunt_bus", "gs", "bs")
"""What may not differ at all."""
_ALIKE = 0.7
"""An instance with fewer elements in common than this share is of another grid."""


class Mismatch(ValueError):  # noqa: N818 - a reason to leave an instance out, caught where it is flagged
    """An instance that is not one of the whole grid."""


@dataclass(frozen=True, eq=False)
class Row:
    """One instance in terms of the whole grid: statuses, and what its elements carry."""

    branch: Array
    generator: Array
    rate: Array
    cost: Array
    """Columns c2, c1, c0; the whole grid's where an element is out."""

    def spread_out(self, values: Array) -> Array:
        """One value for each generator that is listed, as one for each of the whole grid: zero where it is out."""
        found = np.zeros(len(self.generator))
        found[self.generator == 1.0] = values
        return found


class Whole:
    """The whole grid that instances are parts of.

    Attributes:
        arrays: those of a `Grid`, loads left out.
    """

    def __init__(self, arrays: Arrays) -> None:
        self.arrays = arrays
        self._branch = {key: i for i, key in enumerate(_keys(arrays, BRANCH))}
        self._generator = {key: i for i, key in enumerate(_keys(arrays, GENERATOR))}

    @staticmethod
    def of(instances: Sequence[Arrays]) -> Whole:
        """Put the elements of all `instances` together, in the order that they keep among each other."""
        merged: dict[str, NDArray[Any]] = {}
        for own, carried in ((BRANCH, _OF_BRANCH), (GENERATOR, _OF_GENERATOR)):
            order: list[Key] = []
            where: dict[Key, tuple[int, int]] = {}
            for number, one in enumerate(instances):
                keys = _keys(one, own)
                for place, key in enumerate(keys):
                    where.setdefault(key, (number, place))
                order = _merge(order, keys)
            for name in carried:
                found = [where[key] for key in order]
                merged[name] = np.array([instances[number][name][place] for number, place in found])
        merged["branch_id"] = np.arange(1, len(merged["r"]) + 1)
        merged["gen_id"] = np.arange(1, len(merged["pmin"]) + 1)
        return Whole({**instances[0], **merged})

    @staticmethod
    def of_grid(grid: Grid) -> Whole:
        """A grid that is known."""
        return Whole({**grid.arrays(), "base": np.array([grid.base_mva])})

    def resembles(self, one: Arrays) -> bool:
        """Whether an instance is of this grid, give or take a few elements."""
        if not all(_same(one[name], self.arrays[name]) for name in _COMMON):
            return False
        mine, theirs = {*self._branch, *self._generator}, {*_keys(one, BRANCH), *_keys(one, GENERATOR)}
        return len(mine & theirs) >= _ALIKE * max(len(mine), len(theirs))

    def row(self, one: Arrays) -> Row:
        """An instance in terms of the whole grid.

        Raises:
            Mismatch: with what does not fit.
        """
        for name in _COMMON:
            if not _same(one[name], self.arrays[name]):
                raise Mismatch("its buses, loads or shunts are not those of the first instances")
        branch = _places(_keys(one, BRANCH), self._branch, "branch")
        generator = _places(_keys(one, GENERATOR), self._generator, "generator")
        rate, cost = np.array(self.arrays["rate"]), np.array(self.arrays["cost"])
        rate[branch], cost[generator] = one["rate"], one["cost"]
        return Row(_status(branch, len(rate)), _status(generator, len(cost)), rate, cost)

    def varying(self, rows: Sequence[Row]) -> tuple[str, ...]:
        """What differs among rows."""
        return in_order({
            "branch": any((row.branch == 0.0).any() for row in rows),
            "generator": any((row.generator == 0.0).any() for row in rows),
            "cost": any(not _same(row.cost, self.arrays["cost"]) for row in rows),
            "rating": any(not _same(row.rate, self.arrays["rate"]) for row in rows),
        })  # fmt: skip

    def inputs(self, rows: Sequence[Row], vary: Sequence[str]) -> dict[str, Array]:
        """The blocks of the input beside the loads.

        Raises:
            Mismatch: something differs that may not vary.
        """
        base = float(self.arrays["base"][0])
        rate, cost = self.arrays["rate"], self.arrays["cost"]
        rated = np.isfinite(rate)
        for row in rows:
            wrong = {
                "branch": (row.branch == 0.0).any(),
                "generator": (row.generator == 0.0).any(),
                "cost": not _same(row.cost[:, :2], cost[:, :2]),
                "rating": not _same(row.rate[rated], rate[rated]),
            }
            bad = [kind for kind, differs in wrong.items() if differs and kind not in vary]
            if bad or not _same(row.cost[:, 2], cost[:, 2]) or not (np.isfinite(row.rate) == rated).all():
                raise Mismatch("its topology, limits or costs are not those of the first instance")
        return {
            "branch": np.array([row.branch for row in rows]),
            "generator": np.array([row.generator for row in rows]),
            "c1": np.array([row.cost[:, 1] / base for row in rows]),
            "c2": np.array([row.cost[:, 0] / base**2 for row in rows]),
            "rating": np.array([row.rate[rated] for row in rows]),
        }


def _keys(arrays: Arrays, names: Sequence[str]) -> list[Key]:
    """What each element is known by, with a number where several are alike."""
    seen: Counter[Key] = Counter()
    keys = []
    for values in zip(*(arrays[name] for name in names), strict=True):
        key = tuple(float(f"{float(value):.9g}") for value in values)
        seen[key] += 1
        keys.append((*key, float(seen[key])))
    return keys


def _merge(order: list[Key], keys: list[Key]) -> list[Key]:
    """The shortest list that both are parts of, as far as one pass finds it."""
    merged, at, known = [], 0, set(order)
    for key in keys:
        if key in known:
            while order[at] != key:
                merged.append(order[at])
                at += 1
            at += 1
        merged.append(key)
    return [*merged, *order[at:]]


def _places(keys: Sequence[Key], known: Mapping[Key, int], what: str) -> NDArray[np.int64]:
    places = [known.get(key, -1) for key in keys]
    if -1 in places:
        raise Mismatch(f"its {what} number {places.index(-1) + 1} is not in the grid of the first instances")
    return np.array(places, dtype=np.int64)


def _status(places: NDArray[np.int64], count: int) -> Array:
    status = np.zeros(count)
    status[places] = 1.0
    return status


def _same(a: NDArray[Any], b: NDArray[Any]) -> bool:
    return a.shape == b.shape and bool(np.allclose(a, b, rtol=1e-9, atol=1e-12, equal_nan=True))
