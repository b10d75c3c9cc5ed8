"""Where to draw a bus whose place on the map is unknown."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import shortest_path

from feasibly.problem.grid import Grid

Array = NDArray[np.float64]


def place_buses(grid: Grid) -> tuple[Array, bool]:
    """Coordinates `(buses, 2)` to draw at, and whether they are those of the map."""
    if grid.n_buses and np.isfinite(grid.position).all() and np.ptp(grid.position, axis=0).min() > 0:
        shrink = np.cos(np.radians(grid.position[:, 1].mean()))
        return grid.position * np.array([shrink, 1.0]), True
    return spread_graph(grid.n_buses, grid.branch_from, grid.branch_to), False


def spread_graph(count: int, start: NDArray[np.int64], end: NDArray[np.int64]) -> Array:
    """A drawing of a graph in which distances resemble numbers of hops.

    The two leading eigenvectors of the centred squared hop distances (a spectral layout), then some rounds that
    move every node to where its distances to all others fit best, near ones counting most. The same graph gives the
    same drawing.
    """
    if count < 3:
        return np.stack([np.arange(count, dtype=np.float64), np.zeros(count)], axis=1)
    edges = coo_array((np.ones(len(start)), (start, end)), shape=(count, count)).tocsr()
    hops = np.asarray(shortest_path(edges, directed=False, unweighted=True))
    connected = np.isfinite(hops)
    hops[~connected] = hops[connected].max() + 2.0
    place = _spectral(hops)
    return _relax(place, hops, rounds=80 if count <= 600 else 25)


def _spectral(hops: Array) -> Array:
    from scipy.sparse.linalg import eigsh

    square = hops**2
    centred = -0.5 * (square - square.mean(axis=0) - square.mean(axis=1)[:, None] + square.mean())
    # A fixed start makes ARPACK, and with it the drawing, repeatable.
    start = np.cos(np.arange(len(hops)))
    values, vectors = (
        eigsh(centred, k=2, which="LA", v0=start)
        if len(hops) > 40
        else tuple(p[..., -2:] for p in np.linalg.eigh(centred))
    )
    vectors = vectors * np.where(vectors[np.abs(vectors).argmax(axis=0), [0, 1]] < 0, -1.0, 1.0)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 1e-9)))[:, ::-1]


def _relax(place: Array, hops: Array, rounds: int) -> Array:
    far = hops + np.eye(len(hops))
    weight = far**-2.0
    np.fill_diagonal(weight, 0.0)
    total = weight.sum(axis=1)
    # Nodes on one spot would stay together for ever.
    place = place + 1e-3 * np.stack([np.sin(np.arange(len(place))), np.cos(np.arange(len(place)))], axis=1)
    for _ in range(rounds):
        square = np.sum(place**2, axis=1)
        distance = np.sqrt(np.maximum(square[:, None] + square - 2.0 * place @ place.T, 1e-12))
        pull = weight * hops / distance
        moved = (weight @ place + pull.sum(axis=1)[:, None] * place - pull @ place) / total[:, None]
        place = 0.5 * (place + moved)
    return np.asarray(place - place.mean(axis=0))
