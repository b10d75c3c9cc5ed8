"""Shared operators as a device wants them: dense, in one piece, applied to all rows of a batch by matrix products.

Large problems have sparse factorisations on the processor, where those are quicker. An accelerator cannot use them, and
has the memory and the arithmetic for the inverse itself: it is made there, once, when a model first answers.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from feasibly.answer.calibration import Centre
from feasibly.answer.candidates import Candidates, in_order
from feasibly.answer.driver import Driver
from feasibly.answer.operator import DenseInverse, Operator, build_operator, free_variables
from feasibly.answer.system import Saved
from feasibly.model.belief import Covariance, Model
from feasibly.model.complementarity import pivot
from feasibly.model.sparse import Sparse
from feasibly.precision import double

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

LARGE = 4096
"""Matrices of so many rows are multiplied in three passes of a GPU's quick format, which together keep 15 bits or more
of each factor. On case2000 a product takes 1.3 us instead of 2.9, and answers are the same to 4e-7; of smaller ones it
is no quicker."""
WHILE_INVERTING = 9
"""How many matrices of an operator's size, in single precision, there have to be room for while it is made."""
SHARE_OF_OPERATORS = 0.8
"""Of the device's free memory that this, with the operators there are then, may take."""


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

    def proximal_gradient(self, away: Any) -> Any:
        """The gradient of the proximal term at a distance `away` from its mean."""
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


NARROWED = 4
"""On sparse operators every bound is a candidate, on the device at most one in so many of them (`narrowed`: one in six
of case2000_goc's)."""


def operators_fit(driver: Driver, free_memory: float) -> bool:
    """Whether the device has room for the operators of this model."""
    c, search = driver.calibration, driver.search
    size = len(free_variables(search)) + search.n_equalities
    candidates = len(c.candidates) / (NARROWED if c.sparse else 1)
    entries = size * (size + 2 * candidates)
    return 4 * entries * (len(c.centres) - 1 + WHILE_INVERTING) < SHARE_OF_OPERATORS * free_memory


def operator_on_device(driver: Driver, index: int) -> Operator:
    """Shared operator `index` of a driver, dense whatever it is on the processor."""
    known = driver.operator(index)
    if not driver.calibration.sparse:
        inverse = DeviceInverse(*known.inverse)
    else:
        with double():
            inverse = _inverse_there(driver, index)
    return Operator(known.centre, known.candidates, known.free, inverse, known.std)


def narrowed(driver: Driver, model: Model, box: tuple[Array, Array] | None) -> Driver:
    """The same driver with candidate bounds that answers come near; a sparse one has all, at next to no cost.

    What answers come near is seen on what the model believes about inputs drawn from the box. A row that breaks another
    bound is found out by the check, and left to the processor.
    """
    c, search = driver.calibration, driver.search
    if not c.sparse:
        return driver
    low, high = box if box is not None else (c.centres[0].x, c.centres[0].x)
    x = low + (high - low) * np.random.default_rng(0).random((c.settings.device_draws, len(low)))
    y = model.predict(x).mean
    slack = c.candidates.slack(search, y, np.zeros((len(x), search.n_inequalities)))
    errors = driver.covariance.variance
    off = np.concatenate(
        in_order(
            errors[c.candidates.lower], errors[c.candidates.upper], np.zeros(len(c.candidates.inequality))
        )
    )
    # Of case2000's 4941 candidates 761 are kept, and of 192 rows none meets another. Without the belief's errors, one
    # row in six did.
    near = (
        slack.min(axis=0) < c.settings.sparse_reach * np.sqrt(slack.var(axis=0) + off) + c.settings.touching
    )
    near[c.candidates.bounds :] = True
    pressed = np.any([_presses(driver, centre) for centre in c.centres], axis=0)
    kept = np.flatnonzero(near | c.base | pressed)
    parts = c.candidates.split(np.isin(np.arange(len(c.candidates)), kept))
    lists = (c.candidates.lower, c.candidates.upper, c.candidates.inequality)
    duals = np.concatenate([np.arange(search.n_equalities), search.n_equalities + kept])
    covariance = c.duals.covariance
    covariance = Covariance(factor=covariance.factor[duals], diagonal=covariance.diagonal[duals])
    multipliers = replace(
        c.duals, offset=c.duals.offset[duals], loads=c.duals.loads[:, duals], covariance=covariance
    )
    room = c.settings.changes_room
    fewer = replace(
        c,
        candidates=Candidates(*(part[chosen] for part, chosen in zip(lists, parts, strict=True))),
        base=c.base[kept],
        max_changes=max(min(c.max_changes, len(kept), room * (len(kept) // room**2 + 2)), 1),
        centres=tuple(centre._replace(lam=centre.lam[kept]) for centre in c.centres),
        duals=multipliers,
    )
    return driver.having(fewer)


def _presses(driver: Driver, centre: Centre) -> NDArray[np.bool_]:
    """Candidates that press at a centre: an interior-point method leaves every one a multiplier, if a tiny one."""
    search, candidates = driver.search, driver.calibration.candidates
    x, y = centre.x[None], centre.y[None]
    return np.asarray(centre.lam > candidates.slack(search, y, search.inequalities(x, y))[0])


def _inverse_there(driver: Driver, index: int) -> DeviceInverse:
    """As `build_operator`, which see, in the device's own memory from the sparse derivatives on."""
    c, search = driver.calibration, driver.search
    candidates, system, s = c.candidates, c.systems[index], c.settings
    free, there = free_variables(search), jax.device_put
    precision = c.weight / (driver.covariance.variance[free] + s.belief_floor**2)
    position = np.full(search.n_outputs, -1)
    position[free] = np.arange(len(free))
    low, high = position[candidates.lower], position[candidates.upper]
    jacobian, normals = (dense_there(part, across=position) for part in (system.jacobian, system.normals))
    metric = dense_there(system.hessian, position, position)
    blocks, response, gram, regular = _invert(
        jacobian, normals, metric, precision, low, high, s.curvature_floor, s.least_curvature
    )
    if (
        not float(regular) > s.rank_tolerance
    ):  # equalities that repeat one another: by singular values, on the processor
        dense = np.diag(precision / c.weight)
        plain = build_operator(
            search, Saved(system), c.centres[index], candidates, c.base, dense, c.weight, c.radius, s
        ).inverse
        return DeviceInverse(*plain)._replace(precision=there(precision))
    gram = np.asarray(gram)
    return DeviceInverse(
        blocks=blocks,
        response=response,
        normals=normals.astype(jnp.float32),
        precision=there(precision),
        gram=there(gram),
        pivoted=there(pivot(gram, c.base, s.complementarity)),
        radius=there(c.radius[free]),
        low=there(low),
        high=there(high),
    )


def dense_there(matrix: Sparse, down: Ints | None = None, across: Ints | None = None) -> Any:
    """A sparse matrix in the device's memory; rows and columns at these positions, or none where that is negative."""
    rows, columns = matrix.places.T
    shape = list(matrix.shape)
    for axis, positions in enumerate((down, across)):
        if positions is not None:
            shape[axis] = int(positions.max(initial=-1)) + 1
    rows = rows if down is None else down[rows]
    columns = columns if across is None else across[columns]
    kept = (rows >= 0) & (columns >= 0)
    return jnp.zeros(shape).at[rows[kept], columns[kept]].add(matrix.values[kept])


@jax.jit
def _null_space(jacobian: Any, metric: Any, floor: Any, curvature: Any) -> tuple[Any, ...]:
    """A basis of the null space, the pseudo-inverse, the inverse on that space times the basis; how regular that is."""
    rows = jacobian.shape[0]
    long = jnp.maximum(jnp.sqrt(jnp.sum(jacobian**2, axis=1)), 1e-300)
    full, triangle = jnp.linalg.qr((jacobian / long[:, None]).T, mode="complete")
    diagonal = jnp.abs(jnp.diagonal(triangle))
    null, across = full[:, rows:], full[:, :rows]
    right = jax.scipy.linalg.solve_triangular(triangle[:rows], across.T).T / long
    reduced = null.T @ (metric @ null)
    values, vectors = jnp.linalg.eigh((reduced + reduced.T) / 2.0)
    least = floor * jnp.maximum(jnp.max(values, initial=0.0), curvature)
    raised = jnp.where(values >= least, values, jnp.maximum(jnp.abs(values), least))
    solved = (vectors / raised) @ (vectors.T @ null.T)
    return null, right, solved, jnp.min(diagonal, initial=1.0) / jnp.max(diagonal, initial=1.0)


@jax.jit
def _put_together(null: Any, right: Any, solved: Any, metric: Any) -> Any:
    """`[-G, -R; -R', C]`."""
    bent = metric @ right
    turned = solved @ bent
    towards = right - null @ turned
    corner = right.T @ bent - (right.T @ (metric @ null)) @ turned
    parts = [[-(null @ solved), -towards], [-towards.T, (corner + corner.T) / 2.0]]
    return jnp.block([[part.astype(jnp.float32) for part in line] for line in parts])


@jax.jit
def _across(null: Any, right: Any, solved: Any, metric: Any, normals: Any) -> tuple[Any, Any]:
    """`[G; R'] A'` and `A G A'`, for normals of all candidates."""
    columns = null @ (solved @ normals.T)
    duals = right.T @ (normals.T - metric @ columns)
    gram = normals @ columns
    return jnp.concatenate([columns, duals]), (gram + gram.T) / 2.0


def _invert(
    jacobian: Any,
    normals: Any,
    metric: Any,
    precision: Array,
    low: Ints,
    high: Ints,
    floor: float,
    curvature: float,
) -> tuple[Any, Any, Any, Any]:
    """Blocks, response and gram of `DenseInverse`, and how far the equalities are from repeating one another."""
    metric = (metric + metric.T) / 2.0
    metric = metric.at[jnp.diag_indices(len(precision))].add(precision)
    null, right, solved, regular = _null_space(jacobian, metric, floor, curvature)
    size = len(precision)
    below = jnp.zeros((len(low), size)).at[np.arange(len(low)), low].set(-1.0)
    above = jnp.zeros((len(high), size)).at[np.arange(len(high)), high].set(1.0)
    every = jnp.concatenate(in_order(below, above, normals))
    response, gram = _across(null, right, solved, metric, every)
    return _put_together(null, right, solved, metric), -response.astype(jnp.float32), gram, regular
