"""A Gaussian process with one kernel for all outputs, its hyper-parameters chosen by leave-one-out.

One eigendecomposition a candidate kernel gives the leave-one-out residuals of every noise level at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from feasibly._codec import record
from feasibly.model.belief import Belief, Covariance, Model
from feasibly.model.scale import Scale, score

Array = NDArray[np.float64]

NOISES = np.logspace(-6, 1, 15)


@record("kernel")
@dataclass(frozen=True)
class Kernel:
    """`linear + weight * shape`, on standardised inputs divided by the root of their number.

    `shape` is `rbf` with the given length, or `arccosine` (order 1: the kernel of an infinitely wide ReLU layer).
    """

    shape: str
    weight: float
    length: float

    def between(self, a: Array, b: Array) -> Array:
        """The matrix of `kernel(row of a, row of b)`."""
        inner = a @ b.T
        if self.shape == "rbf":
            distance = np.sum(a**2, axis=1)[:, None] + np.sum(b**2, axis=1) - 2.0 * inner
            curved = np.exp(-0.5 * np.maximum(distance, 0.0) / self.length**2)
        else:
            norms = np.sqrt(np.outer(1.0 + np.sum(a**2, axis=1), 1.0 + np.sum(b**2, axis=1)))
            cosine = np.clip((1.0 + inner) / norms, -1.0, 1.0)
            angle = np.arccos(cosine)
            curved = norms * (np.sqrt(1.0 - cosine**2) + (np.pi - angle) * cosine) / np.pi
        return np.asarray(inner + self.weight * curved)

    def own(self, a: Array) -> Array:
        """`kernel(row, row)` for every row."""
        square = np.sum(a**2, axis=1)
        return np.asarray(square + self.weight * (np.ones(len(a)) if self.shape == "rbf" else 1.0 + square))


CANDIDATES = (
    Kernel("rbf", 0.1, 1.5),
    Kernel("rbf", 0.1, 3.0),
    Kernel("rbf", 1.0, 3.0),
    Kernel("arccosine", 0.1, 1.0),
)


@record(
    "kernel-model",
    shapes={
        "inputs.mean": "inputs", "points": "rows inputs", "offset": "outputs", "weights": "rows outputs",
        "basis": "rows rows", "spectrum": "rows", "unit": "outputs", "covariance.diagonal": "outputs",
    },
)  # fmt: skip
@dataclass(frozen=True)
class KernelModel(Model):
    """An exact Gaussian process posterior."""

    inputs: Scale
    points: Array
    kernel: Kernel
    offset: Array
    weights: Array
    basis: Array
    spectrum: Array
    """Eigenvectors and eigenvalues (noise added) of the kernel matrix of the points."""
    noise: float
    unit: Array
    """Root of the noise variance of each output, in its units, per unit of kernel noise."""
    covariance: Covariance

    def predict(self, x: Array) -> Belief:
        """The posterior mean and the predictive standard deviation."""
        points = self._placed(x)
        cross = self.kernel.between(points, self.points)
        projected = (cross @ self.basis) ** 2 / self.spectrum
        latent = np.maximum(self.kernel.own(points) - np.sum(projected, axis=1), 0.0)
        return Belief(self.offset + cross @ self.weights, np.sqrt(latent + self.noise)[:, None] * self.unit)

    def draws(self, x: Array, count: int, seed: int) -> Iterator[Array]:
        """Functions drawn from the posterior, jointly over the rows of `x`; outputs share errors as in `covariance`."""
        points = self._placed(x)
        cross = self.kernel.between(points, self.points)
        reach = cross @ self.basis
        latent = self.kernel.between(points, points) - (reach / self.spectrum) @ reach.T
        values, vectors = np.linalg.eigh(latent)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        mean = self.offset + cross @ self.weights
        random = np.random.default_rng(seed)
        ratio = self.unit / np.maximum(np.sqrt(self.covariance.variance), 1e-300)
        for _ in range(count):
            common = (
                random.standard_normal((len(x), self.covariance.factor.shape[1])) @ self.covariance.factor.T
            )
            own = random.standard_normal((len(x), len(self.unit))) * np.sqrt(self.covariance.diagonal)
            yield mean + (root @ (common + own)) * ratio

    def _placed(self, x: Array) -> Array:
        return np.asarray(self.inputs.apply(x) / np.sqrt(x.shape[1]))


def fit_gp(x: Array, y: Array, kernels: tuple[Kernel, ...] = CANDIDATES) -> KernelModel:
    """A Gaussian process with the kernel and noise that have the best leave-one-out score."""
    inputs, outputs = Scale.of(x), Scale.of(y)
    points = np.asarray(inputs.apply(x) / np.sqrt(x.shape[1]))
    target = outputs.apply(y)
    best = np.inf
    for kernel in kernels:
        values, vectors = np.linalg.eigh(kernel.between(points, points))
        values = np.maximum(values, 0.0)
        rotated = vectors.T @ target
        squares = vectors**2
        for relative in NOISES:
            noise = float(relative)
            spectrum = values + noise
            # Leave-one-out residual: [K^-1 y]_i / [K^-1]_ii.
            residuals = (vectors @ (rotated / spectrum[:, None])) / (squares @ (1.0 / spectrum))[:, None]
            error = score(residuals)
            if error < best:
                best = error
                chosen = kernel, noise, vectors, spectrum, rotated, residuals
    kernel, noise, vectors, spectrum, rotated, residuals = chosen
    # Scale of each output's variance: leave-one-out residuals over their predicted variance 1 / [K^-1]_ii.
    predicted = 1.0 / ((vectors**2) @ (1.0 / spectrum))
    unit = np.sqrt(np.mean(residuals**2 / predicted[:, None], axis=0)) * outputs.std
    return KernelModel(
        inputs=inputs,
        points=points,
        kernel=kernel,
        offset=outputs.mean,
        weights=(vectors @ (rotated / spectrum[:, None])) * outputs.std,
        basis=vectors,
        spectrum=spectrum,
        noise=noise,
        unit=unit,
        covariance=Covariance.pooled(residuals * outputs.std),
    )
