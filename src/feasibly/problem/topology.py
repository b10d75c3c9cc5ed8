"""What holds a grid together: bridges, the buses that an outage cuts off, and how transformers turn angles."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import spsolve

from feasibly.problem.extras import EQUALITIES
from feasibly.problem.grid import Grid

Mask = NDArray[np.bool_]
Ints = NDArray[np.int64]


def islands(grid: Grid, on: Mask | None = None) -> Ints:
    """The island of every bus, numbered from 0, with the branches that are `on` (all of them unless told)."""
    ends = np.stack([grid.branch_from, grid.branch_to])
    ends = ends if on is None else ends[:, on]
    links = coo_array((np.ones(ends.shape[1]), (ends[0], ends[1])), shape=(grid.n_buses, grid.n_buses))
    return np.asarray(connected_components(links, directed=False)[1], dtype=np.int64)


def bridges(grid: Grid) -> Mask:
    """Which branches have no way round: without one of them the grid falls apart. Parallel ones never are.

    A branch is a bridge if no branch from the subtree below it reaches above it (Tarjan 1974), here with a stack of our
    own since grids are deeper than Python recurses.
    """
    n, m = grid.n_buses, grid.n_branches
    around: list[list[tuple[int, int]]] = [[] for _ in range(n)]
    for k, (a, b) in enumerate(zip(grid.branch_from.tolist(), grid.branch_to.tolist(), strict=True)):
        around[a].append((b, k))
        around[b].append((a, k))
    found = np.zeros(m, dtype=bool)
    order = np.full(n, -1)
    least = np.zeros(n, dtype=np.int64)
    count = 0
    for root in range(n):
        if order[root] >= 0:
            continue
        order[root] = least[root] = count
        count += 1
        stack = [(root, -1, iter(around[root]))]
        while stack:
            here, came, ways = stack[-1]
            for there, k in ways:
                if k == came:
                    continue
                if order[there] < 0:
                    order[there] = least[there] = count
                    count += 1
                    stack.append((there, k, iter(around[there])))
                    break
                least[here] = min(least[here], order[there])
            else:
                stack.pop()
                if stack:
                    above = stack[-1][0]
                    least[above] = min(least[above], least[here])
                    found[came] = least[here] > order[above]
    return found


def cut_off(grid: Grid, on: Mask, whole: Ints | None = None) -> list[Ints]:
    """The groups of buses that lose their connection when only the branches `on` are in service.

    Of each island of the whole grid (`islands(grid)`, which may be passed) the part with its reference bus stays;
    every other part is a group, its buses by position.
    """
    before = islands(grid) if whole is None else whole
    now = islands(grid, on)
    kept = {int(before[bus]): int(now[bus]) for bus in grid.reference[::-1]}
    groups = []
    for part in range(int(now.max()) + 1):
        members = np.flatnonzero(now == part)
        if kept[int(before[members[0]])] != part:
            groups.append(members)
    return groups


_TURNED = 0.35
"""Radians. Shifts above this are vector groups of transformers; below, flat angles are a start as good as any."""


def angles_without_load(grid: Grid) -> NDArray[np.float64]:
    """Angles that transformers' phase shifts alone would give the buses, in radians; zero where all shifts are small.

    A transformer that turns angles by 150 degrees leaves a flat start on the far side of the sines, from which
    neither an interior point method nor Newton's comes back. In a mesh whose shifts disagree these are least squares.
    """
    angles = np.zeros(grid.n_buses)
    if not (np.abs(grid.shift) > _TURNED).any():
        return angles
    links, of_links = _links(grid)
    ends = np.concatenate([np.stack([grid.branch_from, grid.branch_to], axis=1), links])
    turned = np.concatenate([grid.shift, of_links])
    rows = np.arange(len(ends))
    signs = np.ones(len(ends))
    across = coo_array(
        (np.concatenate([signs, -signs]), (np.concatenate([rows, rows]), ends.T.ravel())),
        shape=(len(ends), grid.n_buses),
    ).tocsr()
    whole = connected_components(across.T @ across, directed=False)[1]
    held = np.isin(np.arange(grid.n_buses), grid.reference)
    free = np.flatnonzero(~held & np.isin(whole, whole[held]))
    if len(free):
        some = across[:, free].tocsc()
        angles[free] = np.asarray(spsolve((some.T @ some).tocsc(), some.T @ turned)).ravel()
    return angles


def _links(grid: Grid) -> tuple[Ints, NDArray[np.float64]]:
    """The two buses of every branch without impedance, and its phase shift."""
    extras = grid.extras
    if extras is None:
        return np.zeros((0, 2), dtype=np.int64), np.zeros(0)
    first = 2 * grid.n_generators + grid.n_buses
    wanted = np.flatnonzero(extras.equal_kind == EQUALITIES.index("link angle"))
    rows = [extras.equal[extras.equal[:, 0] == row] for row in wanted]
    found = [entries[np.argsort(-entries[:, 2]), 1].astype(np.int64) - first for entries in rows]
    return np.array(found, dtype=np.int64).reshape(-1, 2), extras.equal_to[wanted]
