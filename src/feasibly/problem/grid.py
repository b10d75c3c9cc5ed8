"""A grid as arrays: per unit on the case's base, radians, in-service elements only, file order."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from feasibly._codec import record
from feasibly.problem.errors import GridWarning
from feasibly.problem.extras import Extras

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@record(
    "grid",
    shapes={
        **dict.fromkeys(("bus_id", "vmin", "vmax"), "buses"), "position": "buses 2", "reference": "*",
        **dict.fromkeys(("gen_id", "gen_bus", "pmin", "pmax", "qmin", "qmax"), "generators"), "cost": "generators 3",
        **dict.fromkeys(("load_id", "load_bus", "pd", "qd"), "loads"),
        **dict.fromkeys(("shunt_bus", "gs", "bs"), "shunts"),
        **dict.fromkeys(
            ("branch_id", "branch_from", "branch_to", "r", "x", "g_from", "b_from", "g_to", "b_to", "tap", "shift",
             "rate", "current", "angmin", "angmax"), "branches"),
    },
    indices=dict.fromkeys(("reference", "gen_bus", "load_bus", "shunt_bus", "branch_from", "branch_to"), "buses"),
)  # fmt: skip
@dataclass(frozen=True, eq=False)
class Grid:
    """What an AC optimal power flow needs to know of a grid.

    `*_bus`, `branch_from`, `branch_to` and `reference` are positions in the bus arrays, not bus numbers; the
    numbers of the file are in `bus_id`. A limit that is absent is infinite. Costs: $/h for power per unit.
    """

    name: str
    base_mva: float
    bus_id: Ints
    vmin: Floats
    vmax: Floats
    reference: Ints
    gen_id: Ints
    gen_bus: Ints
    pmin: Floats
    pmax: Floats
    qmin: Floats
    qmax: Floats
    cost: Floats
    """Columns c2, c1, c0."""
    load_id: Ints
    load_bus: Ints
    pd: Floats
    qd: Floats
    shunt_bus: Ints
    gs: Floats
    bs: Floats
    branch_id: Ints
    branch_from: Ints
    branch_to: Ints
    r: Floats
    x: Floats
    g_from: Floats
    b_from: Floats
    g_to: Floats
    b_to: Floats
    tap: Floats
    shift: Floats
    rate: Floats
    current: Floats
    angmin: Floats
    angmax: Floats
    position: Floats
    """Longitude and latitude a bus, NaN where the file has none."""
    warnings: tuple[str, ...] = field(default=())
    extras: Extras | None = None
    """DC lines, branches without impedance, costs with corners and the like; most grids have none."""
    area: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """The number of the area of each bus; empty where the file names none."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, np.ndarray):
                value.setflags(write=False)

    @property
    def n_buses(self) -> int:
        """In-service buses."""
        return len(self.bus_id)

    @property
    def n_generators(self) -> int:
        """In-service generators."""
        return len(self.gen_bus)

    @property
    def n_branches(self) -> int:
        """In-service branches, parallel ones counted each."""
        return len(self.branch_from)

    @property
    def n_loads(self) -> int:
        """Loads, several at one bus counted each."""
        return len(self.load_bus)

    def tell(self) -> None:
        """Warn of everything that the reader of its file should know."""
        for note in self.warnings:
            warnings.warn(f"{self.name}: {note}", GridWarning, stacklevel=3)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Every array by name; `from_arrays` is the way back. Files had them so, before the codec."""
        found = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in _NOT_ARRAYS}
        if len(self.area):
            found["area"] = self.area
        return found if self.extras is None else found | self.extras.arrays()

    @staticmethod
    def from_arrays(name: str, base_mva: float, arrays: Mapping[str, NDArray[Any]]) -> Grid:
        """The grid that `arrays` came from. Raises `KeyError` naming an array that is missing."""
        kept: dict[str, Any] = {
            f.name: _copied(arrays[f.name]) for f in fields(Grid) if f.name not in _NOT_ARRAYS
        }
        if "area" in arrays:
            kept["area"] = _copied(arrays["area"])
        return Grid(name=name, base_mva=float(base_mva), extras=Extras.from_arrays(arrays), **kept)

    @property
    def digest(self) -> str:
        """A hash of everything that shapes the problem (names, warnings, areas and the map left out)."""
        digest = hashlib.sha256(repr(float(self.base_mva)).encode())
        for key, array in self.arrays().items():
            if key not in ("position", "area"):
                digest.update(key.encode() + np.ascontiguousarray(array + 0.0).tobytes())
        return digest.hexdigest()[:32]

    def admittances(self) -> tuple[NDArray[np.complex128], ...]:
        """`Yff, Yft, Ytf, Ytt` of every branch: pi model with an ideal transformer at the from side."""
        series = 1.0 / np.asarray(self.r + 1j * self.x, dtype=np.complex128)
        ratio = np.asarray(self.tap * np.exp(1j * self.shift), dtype=np.complex128)
        y_ff = (series + (self.g_from + 1j * self.b_from)) / self.tap**2
        y_tt = series + (self.g_to + 1j * self.b_to)
        return y_ff, -series / np.conj(ratio), -series / ratio, y_tt


_NOT_ARRAYS = ("name", "base_mva", "warnings", "extras", "area")


def _copied(array: NDArray[Any]) -> NDArray[Any]:
    kind = np.int64 if np.issubdtype(np.asarray(array).dtype, np.integer) else np.float64
    return np.array(array, dtype=kind)
