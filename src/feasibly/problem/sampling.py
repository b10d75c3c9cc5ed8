"""Drawing inputs. Row i depends on the seed and i alone, so more rows never change earlier ones."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from feasibly.problem.core import Problem
from feasibly.problem.errors import Fault, ProblemError, is_whole

DESIGNS = ("uniform", "sobol")


def sample(
    problem: Problem, count: int, seed: int = 0, *, spread: float | None = None, design: str = "uniform"
) -> NDArray[np.float64]:
    """Draw `count` inputs of `problem`: shape `(count, n_inputs)`.

    Args:
        problem: whose declared range or sampler is drawn from.
        count: how many rows.
        seed: the same seed gives the same rows, on any machine.
        spread: for a grid, how far each load's P and Q vary independently around nominal (0.2 unless told).
        design: `uniform`, or `sobol` for a scrambled sequence that covers the range more evenly.
    """
    faults = []
    if not is_whole(count) or count < 0:
        faults.append(Fault("count", f"must be a whole number of rows, got {count}"))
    if not is_whole(seed) or not 0 <= seed < 2**64:
        faults.append(Fault("seed", f"must be a whole number of zero or more and below 2**64, got {seed}"))
    if design not in DESIGNS:
        faults.append(Fault("design", f"must be one of {', '.join(DESIGNS)}, got {design!r}"))
    box = problem.box(spread)
    if box is None and design != "uniform":
        faults.append(Fault("design", f"{design!r} needs a box, and this problem has a sampler of its own"))
    if faults:
        raise ProblemError(f"sampling of problem {problem.name!r}", faults)
    if box is None:
        return _drawn(problem, int(count), int(seed))
    low, high = box
    unit = _uniform if design == "uniform" else _sobol
    return low + unit(int(count), problem.n_inputs, int(seed)) * (high - low)


def _uniform(count: int, width: int, seed: int) -> NDArray[np.float64]:
    # Raw words of a counter-based generator: NumPy promises their stream for ever, unlike Generator.random.
    words = np.random.Philox(key=seed).random_raw(count * width)
    unit = np.asarray(words >> np.uint64(11), dtype=np.float64) * 2.0**-53
    return unit.reshape(count, width)


def _sobol(count: int, width: int, seed: int) -> NDArray[np.float64]:
    """Sobol points under a digital shift: every bit of an input is flipped or not, alike in all rows.

    The shift comes from the same promised stream as `_uniform`; the scrambling in SciPy uses a `Generator`,
    whose stream may change with NumPy's version.
    """
    from scipy.stats import qmc

    if width > qmc.Sobol.MAXDIM:
        fault = Fault("design", f"sobol covers at most {qmc.Sobol.MAXDIM} inputs, not {width}")
        raise ProblemError("sampling", [fault])
    bits = 30
    rows = 1 << max(count - 1, 0).bit_length()  # SciPy warns of other sizes; the prefix is what we return
    points = np.asarray(
        qmc.Sobol(width, scramble=False, bits=bits).random(rows)[:count] * 2.0**bits, np.uint64
    )
    shift = np.random.Philox(key=seed).random_raw(width) >> np.uint64(64 - bits)
    return ((points ^ shift) + 0.5) * 2.0**-bits


def _drawn(problem: Problem, count: int, seed: int) -> NDArray[np.float64]:
    assert problem.sampler is not None
    rows = np.empty((count, problem.n_inputs))
    for i in range(count):
        key = np.array([seed, i], dtype=np.uint64)
        row = np.asarray(problem.sampler(np.random.Generator(np.random.Philox(key=key))), dtype=np.float64)
        if row.shape != (problem.n_inputs,):
            fault = Fault("sampler", f"returned shape {row.shape}, expected ({problem.n_inputs},)")
            raise ProblemError(f"sampling of problem {problem.name!r}", [fault])
        rows[i] = row
    return rows
