"""What holds a grid together: bridges, and the buses that an outage cuts off."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

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
