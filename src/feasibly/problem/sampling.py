"""Drawing inputs. Row i depends on the seed and i alone, so more rows never change earlier ones."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from feasibly.problem.core import Problem
from feasibly.problem.errors import Fault, ProblemError, is_spread, is_whole

DESIGNS = ("uniform", "sobol", "correlated")

FACTOR = (0.75, 1.1)
"""Between what the system-wide factor of correlated draws lies, unless told."""
NOISE = 0.1
"""How far each input of a correlated draw strays from the factor times nominal, unless told."""


def sample(
    problem: Problem,
    count: int,
    seed: int = 0,
    *,
    spread: float | None = None,
    design: str = "uniform",
    factor: tuple[float, float] | None = None,
    noise: float | None = None,
) -> NDArray[np.float64]:
    """Draw `count` inputs of `problem`: shape `(count, n_inputs)`.

    Args:
        problem: whose declared range or sampler is drawn from.
        count: how many rows.
        seed: the same seed gives the same rows, on any machine.
        spread: for a grid, how far each load's P and Q vary independently around nominal (0.2 unless told).
        design: `uniform`; `sobol` for a scrambled sequence that covers the range more evenly; or, for a grid,
            `correlated`: all loads rise and fall together, by one factor a row, each with noise of its own.
        factor: lowest and highest system-wide factor of correlated draws ((0.75, 1.1) unless told).
        noise: how far each input of a correlated draw strays from factor times nominal (0.1 unless told).

    Examples:
        More rows never change those before them:

        >>> problem = fb.nonconvex(variables=10, equalities=4, inequalities=6)
        >>> few, many = fb.sample(problem, 2, seed=1), fb.sample(problem, 5, seed=1)
        >>> many.shape, bool((many[:2] == few).all())
        ((5, 4), True)
    """
    faults = []
    if not is_whole(count) or count < 0:
        faults.append(Fault("count", f"must be a whole number of rows, got {count}"))
    if not is_whole(seed) or not 0 <= seed < 2**64:
        faults.append(Fault("seed", f"must be a whole number of zero or more and below 2**64, got {seed}"))
    if design not in DESIGNS:
        faults.append(Fault("design", f"must be one of {', '.join(DESIGNS)}, got {design!r}"))
    elif design != "uniform" and problem.box() is None:
        faults.append(Fault("design", f"{design!r} needs a box, and this problem has a sampler of its own"))
    if faults:
        raise ProblemError(f"sampling of problem {problem.name!r}", faults)
    box = input_range(problem, spread=spread, design=design, factor=factor, noise=noise)
    if box is None:
        return _drawn(problem, int(count), int(seed))
    drawing = problem.drawing
    width = problem.n_inputs if drawing is None else drawing.n_plain
    low, high = (end[:width] for end in box)
    if design == "correlated":
        strays = NOISE if noise is None else noise
        plain = _correlated(problem.nominal[:width], int(count), int(seed), factor or FACTOR, strays)
    elif not width:
        plain = np.zeros((int(count), 0))
    else:
        unit = _uniform if design == "uniform" else _sobol
        plain = low + unit(int(count), width, int(seed)) * (high - low)
    return plain if drawing is None else drawing.fill(plain, int(seed))


def input_range(
    problem: Problem,
    *,
    spread: float | None = None,
    design: str = "uniform",
    factor: tuple[float, float] | None = None,
    noise: float | None = None,
) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Between what inputs drawn by `sample` with these settings lie; `None` for a problem with a sampler of its own.

    Raises:
        ProblemError: a setting that this design or this problem does not take.
    """
    faults = []
    if design != "correlated":
        for name, value in (("factor", factor), ("noise", noise)):
            if value is not None:
                faults.append(
                    Fault(name, f"applies to the design 'correlated', not to {design!r}; leave it out")
                )
        if faults:
            raise ProblemError(f"sampling of problem {problem.name!r}", faults)
        return problem.box(spread)
    low, high = FACTOR if factor is None else factor
    around = NOISE if noise is None else noise
    if problem.spread is None:
        faults.append(Fault("design", "'correlated' draws vary around nominal loads; this problem has none"))
    if spread is not None:
        faults.append(Fault("spread", "correlated draws have a factor and a noise instead; leave it out"))
    if not 0.0 <= low <= high < np.inf:
        faults.append(
            Fault("factor", f"must be two numbers in rising order, zero or more, not {low} and {high}")
        )
    if not is_spread(around):
        faults.append(Fault("noise", f"must be zero or more, not {around}"))
    if faults:
        raise ProblemError(f"sampling of problem {problem.name!r}", faults)
    ends = [problem.nominal * part * (1.0 + sign * around) for part in (low, high) for sign in (-1.0, 1.0)]
    box = np.min(ends, axis=0), np.max(ends, axis=0)
    if problem.drawing is None:
        return box
    plain, rest = problem.drawing.n_plain, problem.drawing.box(0.0)
    return np.append(box[0][:plain], rest[0][plain:]), np.append(box[1][:plain], rest[1][plain:])


def _correlated(
    nominal: NDArray[np.float64], count: int, seed: int, factor: tuple[float, float], noise: float
) -> NDArray[np.float64]:
    unit = _uniform(count, 1 + len(nominal), seed)
    system = factor[0] + unit[:, :1] * (factor[1] - factor[0])
    return nominal * system * (1.0 + noise * (2.0 * unit[:, 1:] - 1.0))


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
