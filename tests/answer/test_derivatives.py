"""Derivatives of answers against central differences of solved instances."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import feasibly as fb
from feasibly.precision import double
from feasibly.solve.settings import DEFAULT
from tests.problems import make
from tests.proxies import having, trained, unseen

STEP = 1e-4


def _differences(problem: fb.Problem, x: np.ndarray, directions: np.ndarray) -> np.ndarray:
    """Central differences of solved instances along each direction: `(rows, n_outputs, k)`."""
    columns = []
    for along in directions.T:
        ahead, behind = (fb.label(problem, x + sign * STEP * along, jobs=1).y for sign in (1.0, -1.0))
        columns.append((ahead - behind) / (2.0 * STEP))
    return np.stack(columns, axis=2)


def _settled(problem: fb.Problem) -> np.ndarray:
    """Outputs that the optimum settles: reactive power may be split in any way between generators at one bus."""
    loose = problem.blocks.get("qg", slice(0, 0))
    return np.setdiff1d(np.arange(problem.n_outputs), np.arange(loose.start, loose.stop))


def _directions(problem: fb.Problem, count: int = 2) -> np.ndarray:
    random = np.random.Generator(np.random.Philox(key=3))
    return random.standard_normal((problem.n_inputs, count))


@pytest.mark.parametrize("name", ["grid3", "grid6", "toy", "unconstrained"])
def test_sensitivity_is_that_of_solved_instances(name):
    problem = make(name)
    proxy, data = trained(name)
    x, _, _ = unseen(proxy, data, 4)
    along = _directions(problem)
    found = proxy.sensitivity(x, along)
    assert found.shape == (4, problem.n_outputs, 2)
    off = np.abs(found - _differences(problem, x, along))[:, _settled(problem)].max(axis=(1, 2))
    size = np.abs(found).max()
    # A row within a step of where another constraint begins to press has no one derivative to agree on.
    assert np.sort(off)[-2] < 1e-4 * size
    assert np.median(off) < 1e-5 * size


def test_where_the_short_way_is_not_sound_the_whole_system_is_factored():
    proxy, data = trained("grid3")
    x, _, _ = unseen(proxy, data, 2)
    along = _directions(proxy.problem)
    expected = proxy.sensitivity(x, along)
    never = having(proxy, solver=replace(DEFAULT, condensed_residual=-1.0))
    np.testing.assert_allclose(never.sensitivity(x, along), expected, atol=1e-5 * np.abs(expected).max())


def test_an_optimum_that_jumps_has_no_derivative():
    """`x y0 + y1` with `y0 + y1 = 1`: at 1 any point will do, and beside it there is one."""
    problem = fb.Problem(
        lambda x, y: x[0] * y[0] + y[1],
        [0.0, 0.0],
        [1.0, 1.0],
        equality=lambda x, y: (y[0] + y[1] - 1.0)[None],
        box=([0.5], [1.5]),
    )
    proxy = fb.fit(problem, fb.label(problem, count=40, seed=0, jobs=1), "ridge", budget=300)
    moves = proxy.sensitivity(np.array([[1.0], [0.7], [1.3]]))
    assert np.isnan(moves[0]).all()
    assert np.abs(moves[1:]).max() < 1e-6


@pytest.mark.parametrize("one_by_one", [False, True])
def test_threads_get_their_own_derivatives(one_by_one, monkeypatch):
    """One by one too, where functions have one memory each."""
    proxy, data = trained("grid6")
    x, _, _ = unseen(proxy, data, 8)
    along, settled = _directions(proxy.problem, 1), _settled(proxy.problem)
    if one_by_one:
        monkeypatch.setattr(type(proxy.ladder.driver.rowwise), "_before_batch", lambda self, count: count)
    expected = proxy.sensitivity(x, along)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda row: proxy.sensitivity(x[row % 8], along)[0], range(64)))
    for row, moves in enumerate(found):
        wanted = expected[row % 8, settled]
        assert np.allclose(moves[settled], wanted, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize("name", ["grid6", "toy"])
def test_the_function_differentiates_forwards_and_backwards(name):
    problem = make(name)
    proxy, data = trained(name)
    x, _, _ = unseen(proxy, data, 3)
    along = _directions(problem, 1)[:, 0]
    expected = proxy.sensitivity(x, along[:, None])[:, :, 0]
    settled = _settled(problem)
    f = proxy.function("polished")
    with double():
        rows = jnp.asarray(x)
        y, forwards = jax.jit(jax.vmap(lambda row: jax.jvp(f, (row,), (jnp.asarray(along),))))(rows)
        assert np.allclose(y, proxy.predict(x, "polished").y, atol=1e-6)
        near = 1e-5 * np.abs(expected).max()
        assert np.allclose(forwards[:, settled], expected[:, settled], atol=near)
        if name == "grid6":  # compiling it takes long, and it is the same mathematics
            return
        weights = np.zeros(problem.n_outputs)
        weights[settled] = np.linspace(-1.0, 1.0, len(settled))
        backwards = jax.jit(jax.vmap(jax.grad(lambda row: jnp.asarray(weights) @ f(row))))(rows)
        assert np.allclose(np.asarray(backwards) @ along, expected @ weights, rtol=1e-4, atol=1e-6)
        one = jax.jacobian(f)(rows[0])
        assert one.shape == (problem.n_outputs, problem.n_inputs)
        assert np.allclose((np.asarray(one) @ along)[settled], expected[0, settled], atol=near)


def test_the_function_is_jax_and_nothing_else_where_shared_operators_serve():
    proxy, data = trained("toy")
    x, _, _ = unseen(proxy, data, 3)
    far = np.array([[40.0, -40.0]])  # outside of what was learnt, where the operators end nowhere
    with double():
        pure = proxy.function("conditioned", unreached="nan")
        both = proxy.function("conditioned")
        assert "callback" not in str(jax.make_jaxpr(pure)(x[0]))
        assert "callback" in str(jax.make_jaxpr(both)(x[0]))
        answers = jax.jit(jax.vmap(pure))(jnp.asarray(x))
        assert np.allclose(answers, proxy.predict(x, "conditioned").y, atol=1e-6)
        every = np.asarray(jax.jit(jax.vmap(both))(jnp.asarray(np.concatenate([x, far]))))
    assert np.allclose(every[:3], answers)
    assert np.allclose(every[3], proxy.predict(far, "conditioned").y[0], atol=1e-6)


def test_a_row_that_is_handed_to_the_solver_is_answered_on_one_core_too(tmp_path):
    """Its program waits for the solver in the only thread there is: nothing that needs another may be asked for."""
    proxy, _ = trained("grid3")
    proxy.save(tmp_path / "model")
    script = f"""
import os
os.sched_setaffinity(0, {{min(os.sched_getaffinity(0))}})
import jax
jax.config.update("jax_enable_x64", True)
import numpy as np
import feasibly as fb
proxy = fb.Proxy.load({str(tmp_path / "model")!r})
f = jax.jit(jax.vmap(lambda x: jax.jvp(proxy.function("solved"), (x,), (x,))))
for seed in range(3):
    x = fb.sample(proxy.problem, 5, seed=seed)
    y, _ = f(x)
    assert np.allclose(y, proxy.predict(x, "solved").y, atol=1e-6)
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=300)


def test_rows_that_the_program_does_not_reach_are_named_or_solved(monkeypatch):
    from feasibly.answer import implicit

    made = implicit.conditioned_program

    def gets_nowhere(driver, model, *, optimal=False):
        rest = made(driver, model, optimal=optimal)
        return lambda x: rest(x)._replace(off=jnp.full(x.shape[0], jnp.inf))

    monkeypatch.setattr(implicit, "conditioned_program", gets_nowhere)
    proxy, data = trained("toy")
    x, _, _ = unseen(proxy, data, 2)
    with double():
        assert np.isnan(proxy.function("conditioned", unreached="nan")(jnp.asarray(x[0]))).all()
        found = jax.jit(jax.vmap(proxy.function("conditioned")))(jnp.asarray(x))
    assert np.allclose(found, proxy.predict(x, "conditioned").y, atol=1e-7)


def test_what_cannot_be_differentiated_is_said():
    proxy, data = trained("toy")
    with pytest.raises(fb.FeasiblyError, match="by a program in JAX alone"):
        proxy.function("solved", unreached="nan")
    with pytest.raises(fb.FeasiblyError, match="`solver` or `nan`"):
        proxy.function(unreached="ignore")
    f = proxy.function()
    with pytest.raises(fb.FeasiblyError, match="jax_enable_x64"):
        f(jnp.asarray(data.x[0]))
    with double(), pytest.raises(fb.FeasiblyError, match="takes one input"):
        f(jnp.asarray(data.x[:2]))
    with pytest.raises(fb.FeasiblyError, match="not near one"):
        proxy.function("mean")
    with pytest.raises(fb.FeasiblyError, match="directions should have shape"):
        proxy.sensitivity(data.x[:1], np.zeros((7, 1)))
