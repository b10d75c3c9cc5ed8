"""Every model's mean as a program of its own: written, read back, and compared with the model."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from feasibly.answer._complementarity import solve_plainly
from feasibly.answer.belief import mean_function
from feasibly.model.belief import Covariance, Model
from feasibly.model.complementarity import pivot, solve
from feasibly.model.deterministic import Network
from feasibly.model.kernel import Kernel, fit_gp
from feasibly.model.linear import fit_ridge
from feasibly.model.networks import Architecture
from feasibly.model.posterior import BayesianNetwork
from feasibly.model.scale import Scale
from feasibly.model.scaling import REPAIRS, OutputMap
from feasibly.precision import double
from feasibly.runtimes._onnx import prune
from tests.proxies import trained

INPUTS, OUTPUTS = 3, 4


def _rows(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, INPUTS))


def _network(repair: str) -> Network:
    lower = np.array([-1.0, 0.0, -np.inf, -np.inf])
    upper = np.array([1.0, np.inf, 2.0, np.inf])
    net = Architecture(INPUTS, (8,), (2, 2))
    scale = Scale(np.array([0.1, 0.5, 1.0, -1.0]), np.array([1.0, 2.0, 0.5, 1.0]))
    outputs = OutputMap(scale, lower, upper, repair)
    return Network(
        net, Scale.of(_rows(20)), outputs, net.initial(0), Covariance.pooled(np.ones((2, OUTPUTS)))
    )


def _bayesian() -> BayesianNetwork:
    sure = _network("sigmoid")
    spread = np.full(sure.architecture.size, -2.0, dtype=np.float32)
    return BayesianNetwork(
        sure.architecture,
        sure.inputs,
        sure.outputs,
        sure.parameters,
        spread,
        np.ones(OUTPUTS),
        sure.covariance,
        count=5,
    )


@functools.cache
def _model(name: str) -> tuple[Model, np.ndarray]:
    x = _rows(30)
    y = np.stack([np.sin(x[:, 0]), x[:, 1] ** 2, x.sum(axis=1), np.ones(30)], axis=1)
    if name == "ridge":
        return fit_ridge(x, y), _rows(6, 1)
    if name in ("rbf", "arccosine"):
        return fit_gp(x, y, (Kernel(name, 0.1, 1.5),)), np.concatenate([_rows(5, 1), x[:1]])
    if name == "bayesian":
        return _bayesian(), _rows(6, 1)
    if name == "response":
        proxy, data = trained("grid3", "response")
        assert proxy.model.kind == "response"
        return proxy.model, data.x[:6]
    return _network(name), _rows(6, 1)


SINGLE = ("bayesian", *REPAIRS)


@pytest.mark.parametrize("name", ["ridge", "rbf", "arccosine", "response", *SINGLE])
def test_stablehlo(name: str) -> None:
    """Any number of rows; 1e-9, and single precision's own digits where a network computes in it."""
    model, x = _model(name)
    with double():
        shape = jax.export.symbolic_shape(f"rows, {x.shape[1]}")
        made = jax.export.export(jax.jit(mean_function(model)))(jax.ShapeDtypeStruct(shape, np.float64))
        read = jax.export.deserialize(bytearray(made.serialize()))
        for rows in (x, x[:1]):
            np.testing.assert_allclose(
                read.call(rows), model.predict(rows).mean, rtol=0, atol=1e-6 if name in SINGLE else 1e-9
            )


@pytest.mark.parametrize("name", ["ridge", "arccosine", "response", "bayesian", "sigmoid"])
def test_onnx(name: str, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    to_onnx = pytest.importorskip("jax2onnx").to_onnx
    model, x = _model(name)
    with double():
        made: Any = to_onnx(
            mean_function(model, frozen=True),
            [("rows", x.shape[1])],
            enable_double_precision=True,
            input_names=["x"],
            output_names=["y"],
        )
    quiet = runtime.SessionOptions()
    quiet.log_severity_level = 3
    session = runtime.InferenceSession(prune(made).SerializeToString(), quiet)
    for rows in (x, x[:1]):
        np.testing.assert_allclose(
            session.run(["y"], {"x": rows})[0], model.predict(rows).mean, rtol=0, atol=1e-6
        )


def test_the_complementarity_problem_in_plain_operations() -> None:
    """The same multipliers as the solver that gathers and scatters, from far and near starts."""
    random = np.random.default_rng(3)
    root = random.normal(size=(9, 9))
    matrix, base = root @ root.T + 0.1 * np.eye(9), random.random(9) > 0.5
    pivoted = pivot(matrix, base)
    q = random.normal(size=(20, 9))
    previous = np.zeros_like(q)
    with double():
        found, settled = solve_plainly(pivoted, jax.numpy.asarray(q), previous, 9, (40, 40))
        active = np.tile(base[:, None], (1, 20))
        expected, _, done = solve(pivoted, q.T, previous.T, active, 9, (40, 40))
    assert np.asarray(settled).all()
    assert np.asarray(done).all()
    np.testing.assert_allclose(found, np.asarray(expected).T, atol=1e-8)
    slack = np.asarray(found) @ matrix - q
    assert (slack > -1e-6).all()
    assert (np.asarray(found) * slack < 1e-6).all()
