"""Shared operators as a device wants them: dense, in one piece, applied to all rows of a batch by matrix products.

Large problems have sparse factorisations on the processor, where those are quicker. An accelerator cannot use them, and
has the memory and the arithmetic for the inverse itself: it is made once, when a model first answers there.
"""

from __future__ import annotations

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

PRECISION: Any = "highest"
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
    """In single precision, all digits of it: with the ten bits that a GPU takes unasked nothing converged."""
    return jnp.matmul(matrix, vectors.astype(matrix.dtype), precision=PRECISION).astype(vectors.dtype)


def operator_on_device(driver: Driver, index: int) -> Operator:
    """Shared operator `index` of a driver, dense whatever it is on the processor."""
    c = driver.calibration
    if not c.sparse:
        known = driver.operator(index)
        return Operator(
            known.centre, known.candidates, known.free, DeviceInverse(*known.inverse), known.std
        )
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
