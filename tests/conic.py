"""The second-order cone relaxation of AC-OPF (Jabr), written down for an independent conic solver.

Nothing here is shared with the package but the arrays of the grid: rows are put together by hand and Clarabel solves
them. Variables: pg, qg, w (squared voltages), then c and s (real and imaginary part of V_i conj(V_j)) for every pair of
buses with a branch between them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from feasibly.problem.grid import Grid


@dataclass
class Conic:
    """How the relaxation of one instance ended."""

    status: str
    value: float
    balance: np.ndarray
    """Multipliers of the active, then the reactive balances: what one more unit of load costs."""


class _Rows:
    """Rows of a sparse matrix, put together an entry at a time."""

    def __init__(self, width: int, count: int = 0) -> None:
        self._width, self._count = width, count
        self._entries: list[tuple[int, int, float]] = []

    def append(self, at: list[int], values: list[float]) -> None:
        self._count += 1
        self.add(self._count - 1, at, values)

    def add(self, row: int, at: list[int], values: list[float]) -> None:
        self._entries += [(row, place, value) for place, value in zip(at, values, strict=True)]

    def matrix(self) -> sparse.csr_matrix:
        row, column, value = zip(*self._entries, strict=True)
        return sparse.csr_matrix((value, (row, column)), (self._count, self._width))


def relax(
    grid: Grid, pd: np.ndarray, qd: np.ndarray, tolerance: float = 1e-9, *, lacking: bool = False
) -> Conic:
    """Solve the relaxation for one instance; with `lacking` the least sum by which balances must be off."""
    import clarabel

    n, g, m = grid.n_buses, grid.n_generators, grid.n_branches
    pairs: dict[tuple[int, int], int] = {}
    for f, t in zip(grid.branch_from, grid.branch_to, strict=True):
        pairs.setdefault((min(f, t), max(f, t)), len(pairs))
    k = len(pairs)
    at_w, at_c, at_s = 2 * g, 2 * g + n, 2 * g + n + k
    size = 2 * g + n + 2 * k
    y_ff, y_ft, y_tf, y_tt = grid.admittances()

    def ends() -> Any:
        """For both ends of each branch: own bus, other bus, pair, sign of s, own and coupling admittance."""
        for b in range(m):
            f, t = int(grid.branch_from[b]), int(grid.branch_to[b])
            pair = pairs[min(f, t), max(f, t)]
            sign = 1.0 if f < t else -1.0
            yield b, f, pair, sign, y_ff[b], y_ft[b]
            yield b, t, pair, -sign, y_tt[b], y_tf[b]

    # S = conj(own) w + conj(coupling) (c + i sign s)
    p_rows, q_rows = _Rows(size), _Rows(size)
    balance = _Rows(size, 2 * n)
    for _, bus, pair, sign, own, other in ends():
        at = [at_w + bus, at_c + pair, at_s + pair]
        p, q = [own.real, other.real, sign * other.imag], [-own.imag, -other.imag, sign * other.real]
        p_rows.append(at, p)
        q_rows.append(at, q)
        balance.add(bus, at, p)
        balance.add(n + bus, at, q)
    for bus, gs, bs in zip(grid.shunt_bus, grid.gs, grid.bs, strict=True):
        balance.add(bus, [at_w + bus], [gs])
        balance.add(n + bus, [at_w + bus], [-bs])
    for i, bus in enumerate(grid.gen_bus):
        balance.add(bus, [i], [-1.0])
        balance.add(n + bus, [g + i], [-1.0])
    load_p, load_q = np.zeros(n), np.zeros(n)
    np.add.at(load_p, grid.load_bus, pd)
    np.add.at(load_q, grid.load_bus, qd)

    rows = [balance.matrix()]
    right: list[np.ndarray] = [np.concatenate([-load_p, -load_q])]
    cones: list[Any] = [clarabel.ZeroConeT(2 * n)]
    low = np.concatenate([grid.pmin, grid.qmin, grid.vmin**2])
    high = np.concatenate([grid.pmax, grid.qmax, grid.vmax**2])
    box, most = _Rows(size), []
    for i in range(at_c):
        for bound, sign in ((high[i], 1.0), (low[i], -1.0)):
            if np.isfinite(bound):
                box.append([i], [sign])
                most.append(sign * bound)
    for b in range(m):
        f, t = int(grid.branch_from[b]), int(grid.branch_to[b])
        pair, sign = pairs[min(f, t), max(f, t)], 1.0 if f < t else -1.0
        for limit, way in ((grid.angmax[b], 1.0), (grid.angmin[b], -1.0)):
            if max(abs(grid.angmin[b]), abs(grid.angmax[b])) < np.pi / 2 - 1e-6:  # else c may be negative
                box.append([at_s + pair, at_c + pair], [way * sign, -way * np.tan(limit)])
                most.append(0.0)
        if np.isfinite(grid.current[b]):  # |I|^2 is linear in the products of voltages
            for own, other, bus, far, turn in (
                (y_ff[b], y_ft[b], f, t, sign),
                (y_tt[b], y_tf[b], t, f, -sign),
            ):
                cross = own * np.conj(other)
                box.append(
                    [at_w + bus, at_w + far, at_c + pair, at_s + pair],
                    [abs(own) ** 2, abs(other) ** 2, 2.0 * cross.real, -2.0 * turn * cross.imag],
                )
                most.append(grid.current[b] ** 2)
    rows.append(box.matrix())
    right.append(np.array(most))
    cones.append(clarabel.NonnegativeConeT(len(most)))
    surface = _Rows(size)
    for (i, j), pair in pairs.items():  # c^2 + s^2 <= w_i w_j
        surface.append([at_w + i, at_w + j], [-1.0, -1.0])
        surface.append([at_w + i, at_w + j], [-1.0, 1.0])
        surface.append([at_c + pair], [-2.0])
        surface.append([at_s + pair], [-2.0])
        cones.append(clarabel.SecondOrderConeT(4))
    rows.append(surface.matrix())
    right.append(np.zeros(4 * k))
    p_all, q_all = p_rows.matrix(), q_rows.matrix()
    for e in range(2 * m):
        if np.isfinite(grid.rate[e // 2]):
            rows.append(sparse.vstack([sparse.csr_matrix((1, size)), -p_all[e], -q_all[e]]))
            right.append(np.array([grid.rate[e // 2], 0.0, 0.0]))
            cones.append(clarabel.SecondOrderConeT(3))
    c2, c1, c0 = grid.cost.T
    curved = sparse.diags(np.concatenate([2.0 * c2, np.zeros(size - g)])).tocsc()
    slope = np.concatenate([c1, np.zeros(size - g)])
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = tolerance
    matrix = sparse.csc_matrix(sparse.vstack(rows))
    if lacking:
        off = sparse.eye(matrix.shape[0], 2 * n)
        own = sparse.eye(4 * n)
        matrix = sparse.csc_matrix(sparse.bmat([[matrix, sparse.hstack([off, -off])], [None, -own]]))
        right.append(np.zeros(4 * n))
        cones.append(clarabel.NonnegativeConeT(4 * n))
        curved, c0 = sparse.csc_matrix((size + 4 * n,) * 2), np.zeros(1)
        slope = np.concatenate([np.zeros(size), np.ones(4 * n)])
    solver = clarabel.DefaultSolver(curved, slope, matrix, np.concatenate(right), cones, settings)
    found = solver.solve()
    return Conic(str(found.status), found.obj_val + c0.sum(), np.array(found.z[: 2 * n]))
