"""Nodal prices of a grid: what one more MWh costs at every bus, and why.

The multipliers of the power balances are what one more unit of load changes the least cost by. A price has three
parts: the price at the reference bus (energy), what moving power from there loses on the way (losses), and the rest,
which limits on flows, angles, voltages and reactive power are the cause of (congestion).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import splu

from feasibly.problem.core import Problem
from feasibly.problem.flows import in_service, units_running, voltages
from feasibly.problem.grid import Grid

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class PriceParts:
    """Active prices taken apart: `(rows, buses)` each, currency per MWh; they add up to the price."""

    energy: Array
    """The price at the reference bus of the same island."""
    losses: Array
    """What losses add: the reference bus delivers, buses with a unit in service hold their voltages, others their
    reactive power."""
    congestion: Array
    """The rest: limits on flows, angle differences, voltages and reactive power."""


def nodal_prices(grid: Grid, equality: Array) -> tuple[Array, Array]:
    """Active and reactive prices, `(rows, buses)` each, from the multipliers of the equalities.

    An equality is generation minus load, so more load is the same as less of it: hence the sign.
    """
    n = grid.n_buses
    return -equality[:, :n] / grid.base_mva, -equality[:, n : 2 * n] / grid.base_mva


def price_parts(problem: Problem, grid: Grid, x: Array, y: Array, prices: Array) -> PriceParts:
    """Energy, losses and congestion at every bus; NaN for a row whose power flow equations are singular there."""
    v, on, running = voltages(problem, y), in_service(problem, grid, x), units_running(problem, grid, x)
    energy, losses = np.full_like(prices, np.nan), np.full_like(prices, np.nan)
    for row in range(len(y)):
        if np.isfinite(prices[row]).all() and np.isfinite(v[row]).all():
            energy[row], losses[row] = _deliver(grid, v[row], on[row], running[row], prices[row])
    return PriceParts(energy, losses, prices - energy - losses)


def _deliver(
    grid: Grid, v: NDArray[np.complex128], on: Array, running: Array, prices: Array
) -> tuple[Array, Array]:
    n = grid.n_buses
    _, island = connected_components(_links(grid, on), directed=False)
    first = {int(island[bus]): int(bus) for bus in grid.reference[::-1]}
    home = np.array([first.get(int(i), int(grid.reference[0])) for i in island])
    energy = prices[home]
    rest = np.setdiff1d(np.arange(n), grid.reference)
    held = np.unique(grid.gen_bus[running > 0.0])
    loads = np.setdiff1d(np.arange(n), held)
    by_angle, by_size = _sensitivities(grid, v, on)
    state = [by_angle[:, rest], by_size[:, loads]]
    moved = sparse.hstack(state, format="csc")
    system = sparse.vstack([moved.real[rest], moved.imag[loads]]).T.tocsc()
    right = -(moved.real[grid.reference].T @ prices[grid.reference])
    try:
        found = splu(system).solve(np.asarray(right).ravel())
    except RuntimeError:
        return np.full(n, np.nan), np.full(n, np.nan)
    delivered = prices.copy()
    delivered[rest] = found[: len(rest)]
    return energy, delivered - energy


def _links(grid: Grid, on: Array) -> sparse.csr_matrix:
    size = (grid.n_buses, grid.n_buses)
    return sparse.csr_matrix((on, (grid.branch_from, grid.branch_to)), shape=size)


def _sensitivities(
    grid: Grid, v: NDArray[np.complex128], on: Array
) -> tuple[sparse.csc_matrix, sparse.csc_matrix]:
    """How complex power into the grid at every bus changes with angles and with voltage magnitudes."""
    n, f, t = grid.n_buses, grid.branch_from, grid.branch_to
    y_ff, y_ft, y_tf, y_tt = (on * part for part in grid.admittances())
    values = np.concatenate([y_ff, y_ft, y_tf, y_tt, grid.gs + 1j * grid.bs])
    rows = np.concatenate([f, f, t, t, grid.shunt_bus])
    columns = np.concatenate([f, t, f, t, grid.shunt_bus])
    bus = sparse.csr_matrix((values, (rows, columns)), shape=(n, n))
    current = bus @ v
    here, toward = sparse.diags(v), sparse.diags(v / np.abs(v))
    by_angle = 1j * here @ (sparse.diags(current) - bus @ here).conj()
    by_size = here @ (bus @ toward).conj() + sparse.diags(np.conj(current)) @ toward
    return by_angle.tocsc(), by_size.tocsc()
