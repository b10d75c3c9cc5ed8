"""Where buses are drawn: by their coordinates, or so that distances on paper follow distances in the network."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components, dijkstra

from feasibly.problem.grid import Grid

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

WHOLE = 3000
"""Up to so many buses every pair counts; beyond, distances to a few hundred of them do."""
PIVOTS = 200
STEPS = 40
MOST_REGIONS = 8


def from_coordinates(grid: Grid) -> Array | None:
    """Positions `(buses, 2)` in the unit square where the file says where most buses are."""
    complete = grid.position.shape == (grid.n_buses, 2)
    known = np.asarray(np.isfinite(grid.position).all(axis=1)) if complete else np.zeros(0, dtype=bool)
    if (
        known.size
        and known.mean() >= 0.9
        and len(np.unique(grid.position[known], axis=0)) > 0.5 * grid.n_buses
    ):
        return _fit(_on_the_map(grid, known))
    return None


def from_network(grid: Grid) -> Array:
    """Positions `(buses, 2)` in the unit square from the network alone."""
    drawn = _from_distances(grid)
    if np.ptp(drawn[:, 1]) > np.ptp(drawn[:, 0]):  # screens are wide
        drawn = drawn[:, ::-1]
    return _fit(drawn)


def regions(grid: Grid) -> tuple[Ints, list[str], str]:
    """An area a bus, their names, and where they are from: `file`, or `network` where the file names none.

    Parts of the network grow from buses that are far from each other, each bus going to the nearest.
    """
    if len(grid.area) == grid.n_buses and len(np.unique(grid.area)) > 1:
        numbers, at = np.unique(grid.area, return_inverse=True)
        return at.astype(np.int64), [f"Area {number}" for number in numbers], "file"
    count = int(np.clip(round(grid.n_buses ** (1 / 3)), 2, MOST_REGIONS))
    graph = _graph(grid)
    nearest = np.full(grid.n_buses, np.inf)
    owner = np.zeros(grid.n_buses, dtype=np.int64)
    seed = 0
    for number in range(count):
        reach = dijkstra(graph, directed=False, indices=seed)
        closer = reach < nearest
        owner[closer], nearest[closer] = number, reach[closer]
        seed = int(np.argmax(np.where(np.isfinite(nearest), nearest, -1.0)))
    return owner, [f"Region {chr(ord('A') + number)}" for number in range(count)], "network"


def _on_the_map(grid: Grid, known: NDArray[np.bool_]) -> Array:
    """Longitude shrunk to its length at this latitude; a bus without coordinates lies among its neighbours."""
    position = np.array(grid.position, dtype=np.float64)
    graph = _graph(grid)
    for bus in np.flatnonzero(~known):
        near = graph[bus].indices
        near = near[known[near]] if len(near) else near
        position[bus] = position[near].mean(axis=0) if len(near) else position[known].mean(axis=0)
    position[:, 0] *= np.cos(np.deg2rad(np.clip(np.median(position[:, 1]), -80, 80)))
    position[:, 1] *= -1.0  # north is up, and the page counts downwards
    return position


def _from_distances(grid: Grid) -> Array:
    """Stress majorisation on the largest island and each smaller one, packed side by side."""
    graph = _graph(grid)
    count, island = connected_components(graph, directed=False)
    placed = np.zeros((grid.n_buses, 2))
    right = 0.0
    for number in sorted(range(count), key=lambda i: -int((island == i).sum())):
        members = np.flatnonzero(island == number)
        part = _untangle(graph[members][:, members])
        part -= part.min(axis=0)
        placed[members] = part + np.array([right, 0.0])
        right += part[:, 0].max() + 2.0
    return placed


def _untangle(graph: sparse.csr_array) -> Array:
    size = graph.shape[0]
    if size <= 2:
        return np.array([[0.0, 0.0], [1.0, 0.0]])[:size]
    start = _pivot_mds(graph)
    return _majorise(graph, start) if size <= WHOLE else start


def _pivot_mds(graph: sparse.csr_array) -> Array:
    """A first layout from distances to buses far from each other."""
    size = graph.shape[0]
    nearest, pivot, rows = np.full(size, np.inf), 0, []
    for _ in range(min(PIVOTS, size)):
        reach = dijkstra(graph, directed=False, indices=pivot)
        rows.append(reach)
        nearest = np.minimum(nearest, reach)
        pivot = int(np.argmax(nearest))
    square = np.stack(rows, axis=1) ** 2
    centred = -0.5 * (square - square.mean(axis=0) - square.mean(axis=1, keepdims=True) + square.mean())
    _, vectors = np.linalg.eigh(centred.T @ centred)
    placed = centred @ vectors[:, :-3:-1]
    placed /= np.maximum(np.abs(placed).max(), 1e-12) / np.sqrt(size)
    # Buses that hang off the same place coincide; a little of their number keeps them apart.
    angle = 2.399963 * np.arange(size)
    return np.asarray(placed + 0.05 * np.stack([np.cos(angle), np.sin(angle)], axis=1))


def _majorise(graph: sparse.csr_array, start: Array) -> Array:
    """Move all buses at once until distances on paper are those in the network, near pairs first of all."""
    size = len(start)
    want = dijkstra(graph, directed=False)
    np.fill_diagonal(want, 1.0)
    weight = 1.0 / want**2
    np.fill_diagonal(weight, 0.0)
    laplacian = np.diag(weight.sum(axis=1)) - weight
    inverse = np.linalg.inv(laplacian + 1.0 / size)  # the layout's centre is free, and stays where it is
    # A drawing needs three digits, and pairs are many.
    pull, inverse = (weight * want).astype(np.float32), inverse.astype(np.float32)
    at = (start - start.mean(axis=0)).astype(np.float32)
    for _ in range(STEPS if size > 600 else 4 * STEPS):
        x, y = at.T
        ratio = np.sqrt((x[:, None] - x) ** 2 + (y[:, None] - y) ** 2)
        np.divide(pull, np.maximum(ratio, 1e-6, out=ratio), out=ratio)
        moved = inverse @ (ratio.sum(axis=1)[:, None] * at - ratio @ at)
        settled = np.abs(moved - at).max() < 1e-3
        at = moved
        if settled:
            break
    return at.astype(np.float64)


def _graph(grid: Grid) -> sparse.csr_array:
    """Buses as neighbours, one step a branch: lengths are not in the file, and impedances make hairballs."""
    f, t = grid.branch_from, grid.branch_to
    apart = f != t
    ones = np.ones(int(apart.sum()))
    graph = sparse.coo_array((ones, (f[apart], t[apart])), shape=(grid.n_buses, grid.n_buses)).tocsr()
    graph = graph + graph.T
    graph.data[:] = 1.0
    return sparse.csr_array(graph)


def _fit(position: Array) -> Array:
    low, high = position.min(axis=0), position.max(axis=0)
    size = max(float((high - low).max()), 1e-9)
    return np.asarray((position - low) / size)
