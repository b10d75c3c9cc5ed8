"""Layouts kept on disk: two thousand buses take seconds to untangle, and are the same tomorrow."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from feasibly._files import write_whole
from feasibly.problem.grid import Grid
from feasibly.serve.layout import from_coordinates, from_network

Array = NDArray[np.float64]

VERSION = 1
"""Of the way buses are laid out: another one makes other drawings."""


class Drawings:
    """Positions of buses, worked out once a grid and kept in `folder` (nowhere where there is none)."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder

    def place(self, grid: Grid) -> tuple[Array, str]:
        """Positions `(buses, 2)` in the unit square, and what they are: `coordinates` or `layout`."""
        known = from_coordinates(grid)
        if known is not None:
            return known, "coordinates"
        path = None if self._folder is None else self._folder / f"{grid.digest}-{VERSION}.npy"
        kept = None if path is None else _read(path, grid.n_buses)
        if kept is not None:
            return kept, "layout"
        made = from_network(grid)
        if path is not None:
            with contextlib.suppress(OSError):  # a full or read-only disk costs time, not a drawing
                _write(path, made)
        return made, "layout"


def _read(path: Path, buses: int) -> Array | None:
    """What was kept, unless it is damaged."""
    try:
        found = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    sound = isinstance(found, np.ndarray) and found.shape == (buses, 2) and found.dtype == np.float32
    if not sound or not np.isfinite(found).all() or found.min() < -0.01 or found.max() > 1.01:
        return None
    return found.astype(np.float64)


def _write(path: Path, position: Array) -> None:
    """Whole or not at all, whoever else writes it."""
    held = io.BytesIO()
    np.save(held, position.astype(np.float32), allow_pickle=False)
    write_whole(path, held.getvalue())
