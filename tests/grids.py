"""Small grids, written here and nowhere else: tables in MATPOWER's columns, and the files made of them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Table = NDArray[np.float64]


@dataclass(frozen=True)
class Tables:
    """A grid as a file has it: MW, Mvar, degrees, bus numbers, out-of-service elements included.

    `charging` has a row `b_from, b_to` a branch (per unit) where the two ends differ, which MATPOWER's format
    cannot say; `current` a limit a branch (MVA at 1 p.u.), 0 for none.
    """

    bus: Table
    """bus_i type Pd Qd Gs Bs area Vm Va baseKV zone Vmax Vmin"""
    gen: Table
    """bus Pg Qg Qmax Qmin Vg mBase status Pmax Pmin"""
    branch: Table
    """fbus tbus r x b rateA rateB rateC ratio angle status angmin angmax"""
    gencost: list[list[float]]
    """model startup shutdown n c(n-1) ... c0"""
    base: float = 100.0
    charging: Table | None = None
    current: Table | None = None
    extra: str = field(default="")
    """More MATPOWER text, at the end of the file."""

    def edited(self, **cells: tuple[int, int, float]) -> Tables:
        """A copy with one cell of a table replaced: `edited(bus=(row, column, value))`."""
        changed: dict[str, Any] = {}
        for name, (row, column, value) in cells.items():
            table = [list(line) for line in getattr(self, name)]
            table[row][column] = value
            changed[name] = table if name == "gencost" else np.array(table, dtype=np.float64)
        return replace(self, **changed)

    def matpower(self) -> str:
        """The text of a MATPOWER file."""
        parts = ["function mpc = grid", "mpc.version = '2';", f"mpc.baseMVA = {self.base!r};"]
        for name in ("bus", "gen", "branch", "gencost"):
            rows = getattr(self, name)
            if name == "gencost":  # a table has rows of one length
                widest = max((len(row) for row in rows), default=0)
                rows = [[*row, *[0.0] * (widest - len(row))] for row in rows]
            if len(rows):
                lines = ";\n".join(" ".join(_number(v) for v in row) for row in rows)
                parts.append(f"mpc.{name} = [\n{lines};\n];")
        return "\n".join([*parts, self.extra, ""])

    def powermodels(self) -> str:
        """The text of a PowerModels JSON file: per unit and radians, each element under its row's number."""
        base = self.base
        half = self.branch[:, 4] / 2.0
        charging = np.stack([half, half], axis=1) if self.charging is None else self.charging
        current = np.zeros(len(self.branch)) if self.current is None else self.current
        document: dict[str, Any] = {
            "name": "grid", "baseMVA": base, "per_unit": True, "source_type": "matpower",
            "source_version": "2", "bus": {}, "gen": {}, "branch": {}, "load": {}, "shunt": {}, "dcline": {},
            "storage": {}, "switch": {},
        }  # fmt: skip
        for row in self.bus:
            number = int(row[0])
            document["bus"][str(number)] = {
                "index": number, "bus_i": number, "bus_type": int(row[1]), "area": 1, "zone": 1, "vm": row[7],
                "va": np.deg2rad(row[8]), "base_kv": row[9], "vmax": row[11], "vmin": row[12],
            }  # fmt: skip
            if row[2] or row[3]:
                index = len(document["load"]) + 1
                load = {
                    "index": index,
                    "load_bus": number,
                    "pd": row[2] / base,
                    "qd": row[3] / base,
                    "status": 1,
                }
                document["load"][str(index)] = load
            if row[4] or row[5]:
                index = len(document["shunt"]) + 1
                shunt = {
                    "index": index,
                    "shunt_bus": number,
                    "gs": row[4] / base,
                    "bs": row[5] / base,
                    "status": 1,
                }
                document["shunt"][str(index)] = shunt
        for index, (row, cost) in enumerate(zip(self.gen, self.gencost, strict=True), start=1):
            terms = cost[4 : 4 + int(cost[3])]
            powers = range(len(terms) - 1, -1, -1)
            document["gen"][str(index)] = {
                "index": index, "gen_bus": int(row[0]), "gen_status": int(row[7]), "pg": row[1] / base,
                "qg": row[2] / base, "qmax": row[3] / base, "qmin": row[4] / base, "vg": row[5],
                "mbase": row[6], "pmax": row[8] / base, "pmin": row[9] / base, "model": int(cost[0]),
                "ncost": int(cost[3]),
                "cost": [c * base**power for c, power in zip(terms, powers, strict=True)],
                "startup": 0.0, "shutdown": 0.0,
            }  # fmt: skip
        for index, row in enumerate(self.branch, start=1):
            b_from, b_to = charging[index - 1]
            branch = {
                "index": index, "f_bus": int(row[0]), "t_bus": int(row[1]), "br_r": row[2], "br_x": row[3],
                "g_fr": 0.0, "g_to": 0.0, "b_fr": b_from, "b_to": b_to, "tap": row[8] or 1.0,
                "shift": np.deg2rad(row[9]), "transformer": bool(row[8]), "br_status": int(row[10]),
                "angmin": np.deg2rad(row[11]), "angmax": np.deg2rad(row[12]),
            }  # fmt: skip
            if row[5]:
                branch["rate_a"] = row[5] / base
            if current[index - 1]:
                branch["c_rating_a"] = current[index - 1] / base
            document["branch"][str(index)] = branch
        return json.dumps(document, indent=1)

    def write(self, path: Path) -> Path:
        """Write the file that `path`'s ending asks for."""
        path.write_text(self.powermodels() if path.suffix == ".json" else self.matpower(), encoding="utf-8")
        return path


def tables(bus: ArrayLike, gen: ArrayLike, branch: ArrayLike, cost: list[list[float]], **more: Any) -> Tables:
    """Tables from the columns that matter: the constant ones are filled in.

    `bus`: number, type, Pd, Qd, Gs, Bs, Vmax, Vmin. `gen`: bus, Qmax, Qmin, status, Pmax, Pmin. `branch`:
    from, to, r, x, b, rate, ratio, angle, status, angmin, angmax. `cost`: from the highest power down.
    """
    b, g, e = (np.array(rows, dtype=np.float64) for rows in (bus, gen, branch))
    one, zero = np.ones((len(b), 1)), np.zeros((len(b), 1))
    buses = np.hstack([b[:, :6], one, one, zero, 230.0 * one, one, b[:, 6:]])
    ones, zeros = np.ones((len(g), 1)), np.zeros((len(g), 1))
    generators = np.hstack([g[:, :1], zeros, zeros, g[:, 1:3], ones, 100.0 * ones, g[:, 3:]])
    branches = np.hstack([e[:, :6], np.zeros((len(e), 2)), e[:, 6:]])
    costs = [[2.0, 0.0, 0.0, float(len(row)), *row] for row in cost]
    return Tables(buses, generators, branches, costs, **more)


def _number(value: float) -> str:
    if np.isnan(value):
        return "NaN"
    if np.isinf(value):
        return "Inf" if value > 0 else "-Inf"
    return repr(int(value)) if value == int(value) else repr(float(value))


GRID3 = tables(
    bus=[
        [1, 3, 0, 0, 0, 0, 1.1, 0.9],
        [2, 1, 80, 20, 0, 5, 1.1, 0.9],
        [3, 2, 60, 15, 0, 0, 1.1, 0.9],
    ],
    gen=[
        [1, 100, -100, 1, 200, 0],
        [3, 60, -60, 1, 100, 10],
    ],
    branch=[
        [1, 2, 0.01, 0.08, 0.02, 70, 0, 0, 1, -30, 30],
        [2, 3, 0.02, 0.10, 0.02, 0, 0, 0, 1, -30, 30],
        [1, 3, 0.01, 0.09, 0.00, 0, 0, 0, 1, 0, 0],
    ],
    cost=[[0.02, 20, 0], [30, 5]],
)
"""Three buses in a triangle; a quadratic and a linear cost; the limit of branch 1-2 binds."""

GRID6 = tables(
    # Numbers with gaps, as in real files; rising, since a JSON object has no order but that of its keys.
    bus=[
        [2, 1, 70, 25, 2, 10, 1.06, 0.94],
        [4, 1, 45, -10, 0, -4, 1.06, 0.94],
        [6, 1, 55, 18, 0, 0, 1.06, 0.94],
        [9, 4, 0, 0, 0, 0, 1.06, 0.94],
        [10, 2, 20, 5, 0, 0, 1.06, 0.94],
        [31, 3, 0, 0, 0, 0, 1.06, 0.94],
        [57, 2, 0, 0, 0, 0, 1.06, 0.94],
    ],
    gen=[
        [31, 120, -80, 1, 150, 0],
        [10, 40, -30, 1, 60, 5],
        [10, 30, -20, 1, 50, 0],
        [10, 99, -99, 0, 99, 0],
        [57, 60, -40, 1, 90, 10],
    ],
    branch=[
        [31, 10, 0.012, 0.07, 0.03, 65, 0, 0, 1, -30, 30],
        [10, 2, 0.020, 0.11, 0.04, 60, 0, 0, 1, -30, 30],
        [10, 2, 0.025, 0.12, 0.04, 45, 0, 0, 1, -30, 30],
        [2, 4, 0.015, 0.09, 0.02, 0, 0.97, 0, 1, -20, 20],
        [4, 57, 0.000, 0.06, 0.00, 80, 1.02, -3, 1, -30, 30],
        [57, 6, 0.018, 0.10, 0.03, 35, 0, 0, 1, -30, 30],
        [6, 31, 0.022, 0.13, 0.05, 75, 0, 0, 1, -360, 360],
        [31, 4, 0.020, 0.15, 0.02, 70, 0.99, 2, 1, 0, 0],
        [2, 6, 0.030, 0.20, 0.01, 50, 0, 0, 0, -30, 30],
    ],
    cost=[[0.04, 18, 100], [0.01, 32, 0], [0.02, 28, 10], [1, 1, 1], [25, 0]],
    charging=np.array(
        [
            [0.010, 0.020],
            [0.02, 0.02],
            [0.015, 0.025],
            [0.00, 0.02],
            [0.0, 0.0],
            [0.015, 0.015],
            [0.03, 0.02],
            [0.01, 0.01],
            [0.0, 0.0],
        ]
    ),
    current=np.array([0, 62, 0, 0, 0, 0, 80, 0, 0], dtype=np.float64),
)
"""Six buses and an isolated seventh: taps, shifts, shunts, parallel branches, two generators at one bus, one
out of service, a negative load, current limits, unequal charging. Only PowerModels JSON can say it all."""
