"""The power equations once more: plain NumPy, complex arithmetic, and nothing of the package."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tests.grids import Tables

Complex = NDArray[np.complex128]
Array = NDArray[np.float64]


def read_matpower(text: str) -> Tables:
    """The four tables of a MATPOWER file, by regular expression."""
    text = re.sub(r"%.*", "", text)

    def rows(name: str) -> list[list[float]]:
        found = re.search(rf"mpc\.{name}\s*=\s*\[(.*?)\]", text, re.DOTALL)
        assert found is not None, name
        lines = (line.split() for line in re.split(r"[;\n]", found.group(1)))
        return [[float(cell) for cell in line] for line in lines if line]

    base = re.search(r"mpc\.baseMVA\s*=\s*([\d.eE+]+)", text)
    assert base is not None
    bus, gen, branch = (np.array(rows(name)) for name in ("bus", "gen", "branch"))
    return Tables(bus, gen[:, :10], branch[:, :13], rows("gencost"), base=float(base.group(1)))


@dataclass(frozen=True)
class Flows:
    """What a voltage profile does to a grid; one column a row of answers."""

    balance: Complex
    """Generation - load - what the network takes, a bus each."""
    at_from: Complex
    at_to: Complex
    voltage: Complex
    cost: Array


class PlainGrid:
    """One grid in service, evaluated one row at a time."""

    def __init__(self, tables: Tables) -> None:
        base = tables.base
        bus = tables.bus[tables.bus[:, 1] != 4]
        self.place = {int(number): i for i, number in enumerate(bus[:, 0])}
        on = tables.branch[:, 10] > 0
        branch = tables.branch[on]
        half = np.stack([branch[:, 4] / 2.0] * 2, axis=1)
        charging = half if tables.charging is None else tables.charging[on]
        running = tables.gen[:, 7] > 0
        self.n = len(bus)
        self.f = np.array([self.place[int(number)] for number in branch[:, 0]])
        self.t = np.array([self.place[int(number)] for number in branch[:, 1]])
        self.series = 1.0 / (branch[:, 2] + 1j * branch[:, 3])
        ratio = np.where(branch[:, 8] == 0, 1.0, branch[:, 8])
        self.ratio = ratio * np.exp(1j * np.pi * branch[:, 9] / 180.0)
        self.charging = 1j * charging
        self.shunt = (bus[:, 4] + 1j * bus[:, 5]) / base
        self.gen = [self.place[int(number)] for number in tables.gen[running, 0]]
        loaded = (bus[:, 2] != 0) | (bus[:, 3] != 0)
        self.load = np.flatnonzero(loaded)
        self.base = base
        self.costs = [row for row, runs in zip(tables.gencost, running, strict=False) if runs]
        self.rate = np.where(branch[:, 5] == 0, np.inf, branch[:, 5] / base)
        current = np.zeros(len(branch)) if tables.current is None else tables.current[on]
        self.current = np.where(current == 0, np.inf, current / base)
        free = (branch[:, 11] == 0) & (branch[:, 12] == 0)
        self.angmin = np.where(free | (branch[:, 11] <= -360), -np.inf, branch[:, 11] * np.pi / 180.0)
        self.angmax = np.where(free | (branch[:, 12] >= 360), np.inf, branch[:, 12] * np.pi / 180.0)

    @property
    def admittance(self) -> Complex:
        """The bus admittance matrix."""
        matrix = np.diag(self.shunt).astype(np.complex128)
        for k, (f, t) in enumerate(zip(self.f, self.t, strict=True)):
            tap, ys = self.ratio[k], self.series[k]
            matrix[f, f] += (ys + self.charging[k, 0]) / abs(tap) ** 2
            matrix[f, t] += -ys / np.conj(tap)
            matrix[t, f] += -ys / tap
            matrix[t, t] += ys + self.charging[k, 1]
        return matrix

    def flows(self, x: Array, y: Array) -> Flows:
        """Evaluate one input and one decision."""
        g, n = len(self.gen), self.n
        pg, qg, vm, va = np.split(y, [g, 2 * g, 2 * g + n])
        voltage = vm * np.exp(1j * va)
        injected = np.zeros(n, dtype=np.complex128)
        for bus, power in zip(self.gen, pg + 1j * qg, strict=True):
            injected[bus] += power
        demand = x[: len(self.load)] + 1j * x[len(self.load) :]
        injected[self.load] -= demand
        balance = injected - voltage * np.conj(self.admittance @ voltage)
        # The branch as a circuit: an ideal transformer at the from end, then the pi section behind it.
        behind = voltage[self.f] / self.ratio
        through = self.series * (behind - voltage[self.t])
        current_from = (through + self.charging[:, 0] * behind) / np.conj(self.ratio)
        current_to = -through + self.charging[:, 1] * voltage[self.t]
        cost = 0.0
        for row, power in zip(self.costs, pg * self.base, strict=True):
            cost += float(np.polyval(row[4 : 4 + int(row[3])], power))
        return Flows(
            balance, voltage[self.f] * np.conj(current_from), voltage[self.t] * np.conj(current_to), voltage,
            np.array(cost),
        )  # fmt: skip

    def violations(self, flows: Flows) -> Array:
        """|S| - rate at both ends, |S| - |V| current limit at both ends, angle differences."""
        rated, limited = np.isfinite(self.rate), np.isfinite(self.current)
        angle = np.angle(flows.voltage[self.f] / flows.voltage[self.t])
        above, below = np.isfinite(self.angmax), np.isfinite(self.angmin)
        v_from, v_to = abs(flows.voltage[self.f]), abs(flows.voltage[self.t])
        return np.concatenate([
            abs(flows.at_from[rated]) - self.rate[rated],
            abs(flows.at_to[rated]) - self.rate[rated],
            abs(flows.at_from[limited]) - v_from[limited] * self.current[limited],
            abs(flows.at_to[limited]) - v_to[limited] * self.current[limited],
            angle[above] - self.angmax[above],
            self.angmin[below] - angle[below],
        ])  # fmt: skip
