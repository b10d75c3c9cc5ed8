"""Shared operators as a device wants them: dense, in one piece, applied to all rows of a batch by matrix products.

Large problems have sparse factorisations on the processor, where those are quicker. An accelerator cannot use them, and
has the memory and the arithmetic for the inverse itself: it is made once, when a model first answers there.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from feasibly.answer.candidates import in_order
from feasibly.answer.driver import Driver
from feasibly.answer.operator import DenseInverse, Operator, build_operator, free_variables
from feasibly.answer.system import Saved
from feasibly.precision import double

Array = NDArray[np.float64]

LARGE = 4096
"""Matrices of so many rows are multiplied in three passes of a GPU's quick format, which together keep 15 bits or more
of each factor. On case2000 a product takes 1.3 us instead of 2.9, and answers are the same to 4e-7; of smaller ones it
is no quicker."""
SHARE_OF_OPERATORS = 0.25
"""Of the device's free memory that the operators of one model may take."""


class DeviceInverse(DenseInverse):
    """The same inverse, with products that the device does at its best, and a belief that may be a diagonal."""

    __slots__ = ()

    def solve(self, slope: Any, equality: Any) -> Any:
        """Step and change of the equalities' multipliers for residuals `(free, rows)` and `(equalities, rows)`."""
        return product(self.blocks, jnp.concatenate([slope, equality]))

    def respond(self, change: Any) -> Any:
        """What a change of the candidates' multipliers adds to `solve`."""
        return product(self.response, change)

    def along_normals(self, step: Any) -> Any:
        """How a step changes each candidate, to first order."""
        return jnp.concatenate(in_order(-step[self.low], step[self.high], product(self.normals, step)))

    def pull(self, away: Any) -> Any:
        """The gradient of the belief's term at a distance `away` from its mean."""
        return self.precision[:, None] * away if self.precision.ndim == 1 else product(self.precision, away)


def product(matrix: Any, vectors: Any) -> Any:
    """In single precision, most digits of it: with the ten bits that a GPU takes unasked nothing converged."""
    way = _large() if matrix.shape[0] >= LARGE else "highest"
    return jnp.matmul(matrix, vectors.astype(matrix.dtype), precision=way).astype(vectors.dtype)


@functools.cache
def _large() -> Any:
    """How large matrices are multiplied on the default device."""
    way = jax.lax.DotAlgorithmPreset.TF32_TF32_F32_X3
    return way if jax.default_backend() == "gpu" and precise(way) else "highest"


def precise(way: Any) -> bool:
    """Whether the default device knows this way of multiplying, and keeps enough digits by it."""
    left, right = np.random.default_rng(0).standard_normal((2, 256, 256)).astype(np.float32)
    try:
        with jax.ensure_compile_time_eval():
            found = np.asarray(jax.jit(functools.partial(jnp.matmul, precision=way))(left, right))
    except Exception:  # whatever it is that this device cannot do
        return False
    known = left.astype(np.float64) @ right
    return float(np.linalg.norm(found - known)) < 1e-4 * float(np.linalg.norm(known))


def operator_on_device(driver: Driver, index: int) -> Operator:
    """Shared operator `index` of a driver, dense whatever it is on the processor."""
    c = driver.calibration
    if not c.sparse:
        known = driver.operator(index)
        return Operator(known.centre, known.candidates, known.free, DeviceInverse(*known.inverse), known.std)
    free = free_variables(driver.search)
    belief = 1.0 / (driver.covariance.variance[free] + c.settings.belief_floor**2)
    made = build_operator(
        driver.search, Saved(c.systems[index]), c.centres[index], c.candidates, c.base, np.diag(belief), c.weight,
        c.trust, c.settings,
    )  # fmt: skip
    with double():
        inverse = DeviceInverse(*made.inverse)._replace(precision=jax.device_put(c.weight * belief))
    return Operator(made.centre, made.candidates, made.free, inverse, made.std)


def operators_fit(driver: Driver, free_memory: float) -> bool:
    """Whether the device has room for the operators of this model."""
    c, search = driver.calibration, driver.search
    size = len(free_variables(search)) + search.n_equalities
    entries = size * (size + 2 * len(c.candidates))
    return 4 * entries * len(c.centres) < SHARE_OF_OPERATORS * free_memory
