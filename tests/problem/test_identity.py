"""Fingerprints, storage of built-in families, and two precisions side by side."""

from __future__ import annotations

import copy
import functools
import pickle
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from feasibly._codec import pack
from feasibly.precision import double, twin
from feasibly.problem.acopf import acopf
from feasibly.problem.core import Problem
from feasibly.problem.drawing import Draws
from feasibly.problem.families import describe, grid_of, load_problem, rebuild
from feasibly.problem.nonconvex import nonconvex
from tests.grids import GRID3, GRID6
from tests.problems import CASES, make, near_start


def _own(weight: float = 1.0, lower: float = 0.0, limit: float = 0.5, **more: Any) -> Problem:
    return Problem(
        lambda x, y: weight * jnp.sum((y - x) ** 2),
        [lower, 0.0],
        [1.0, np.inf],
        inequality=lambda x, y: jnp.array([y[0] - y[1] - limit]),
        box=([0.0, 0.0], [1.0, 1.0]),
        **more,
    )


def test_equal_problems_share_a_fingerprint() -> None:
    assert _own().fingerprint == _own().fingerprint
    assert _own(name="another name").fingerprint == _own().fingerprint
    assert len(_own().fingerprint) == 32


@pytest.mark.parametrize(
    "changed",
    [
        {"weight": 1.001},
        {"lower": -0.1},
        {"limit": 0.501},
        {"output_names": ["a", "b"]},
        {"blocks": {"a": slice(0, 1), "b": slice(1, 2)}},
    ],
)
def test_changed_problems_do_not(changed: dict[str, Any]) -> None:
    assert _own(**changed).fingerprint != _own().fingerprint


def test_grids_are_told_apart_by_every_number(tmp_path: Path) -> None:
    first = load_problem(GRID3.write(tmp_path / "one.m")).fingerprint
    assert load_problem(GRID3.write(tmp_path / "another.m")).fingerprint == first
    for cell in ({"bus": (1, 2, 80.001)}, {"branch": (0, 3, 0.0801)}, {"gencost": (0, 4, 0.021)}):
        changed = GRID3.edited(**cell)  # type: ignore[arg-type]
        assert load_problem(changed.write(tmp_path / "changed.m")).fingerprint != first


def test_family_members_are_told_apart() -> None:
    marks = {nonconvex(8, 3, 4, seed).fingerprint for seed in range(3)} | {nonconvex(8, 3, 5, 0).fingerprint}
    assert len(marks) == 4


def test_fingerprints_do_not_feel_the_global_switch() -> None:
    plain = _own().fingerprint, nonconvex(8, 3, 4).fingerprint
    with double():
        assert (_own().fingerprint, nonconvex(8, 3, 4).fingerprint) == plain


@pytest.mark.parametrize("name", ["grid3", "grid6", "nonconvex"])
def test_built_in_families_come_back_from_their_description(name: str) -> None:
    problem = make(name)
    described = describe(problem)
    assert described is not None
    again = rebuild(*described)
    assert again.fingerprint == problem.fingerprint
    assert again.name == problem.name
    assert again.spread == problem.spread
    x, y = near_start(problem, 3, seed=4)
    np.testing.assert_array_equal(again.equalities(x, y), problem.equalities(x, y))


@pytest.mark.parametrize("vary", [("load",), ("load", "branch")])
def test_descriptions_of_grids_from_before_they_were_records_are_read(vary: tuple[str, ...]) -> None:
    grid = grid_of(make("grid6"))
    assert grid is not None
    problem = acopf(grid, vary=vary)
    plain: dict[str, object] = {
        "family": "acopf",
        "spread": problem.spread,
        "name": grid.name,
        "base_mva": grid.base_mva,
    }
    if vary != ("load",):
        plain |= {"vary": list(vary), "draws": asdict(Draws())}
    assert rebuild(plain, grid.arrays()).fingerprint == problem.fingerprint


def test_a_stored_grid_that_does_not_fit_together_is_named() -> None:
    described = describe(make("grid6"))
    assert described is not None
    plain, arrays = described
    with pytest.raises(ValueError, match=r"'grid\.r' has changed since it was written"):
        rebuild(plain, arrays | {"grid.r": arrays["grid.r"] + 1e-9})
    for name, wrong in (("rate", arrays["grid.rate"][1:]), ("gen_bus", arrays["grid.gen_bus"] + 6)):
        marred = {**plain, "grid": {**plain["grid"], name: pack(wrong, f"grid.{name}").plain}}
        with pytest.raises(ValueError, match=rf"grid\.{name} (is .*, not|does not count buses)"):
            rebuild(marred, arrays | {f"grid.{name}": wrong})


def test_a_users_own_problem_has_no_description() -> None:
    assert describe(make("toy")) is None
    assert grid_of(make("toy")) is None


def test_a_problem_is_not_pickled() -> None:
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(make("toy"))
    with pytest.raises(TypeError, match="not pickled"):
        copy.deepcopy(make("toy"))


# ---- precision ---------------------------------------------------------------------------------------------


def test_a_users_own_jax_code_stays_in_float32() -> None:
    assert jnp.ones(3).dtype == jnp.float32
    problem = _own()
    x, y = near_start(problem, 4, seed=0)
    assert problem.objectives(x, y).dtype == np.float64
    assert problem.inequalities(x, y).dtype == np.float64
    assert problem.fingerprint
    assert jnp.ones(3).dtype == jnp.float32
    assert not jax.config.jax_enable_x64


def test_measuring_is_exact_where_float32_would_not_be() -> None:
    problem = Problem(lambda x, y: jnp.sum(y) + 1e-12, [0.0], [2.0], box=([0.0], [1.0]))
    assert problem.objectives([[0.0]], [[1.0]])[0] == 1.0 + 1e-12


WEIGHT = np.array([0.1, 0.2])


def _weighted(x: Any, y: Any) -> Any:
    return jnp.sum(WEIGHT * (y - x) ** 2)


def _through_a_helper(x: Any, y: Any) -> Any:
    return _weighted(x, y)


def _in_a_closure() -> Any:
    weight = np.array([0.1, 0.2])

    def square(x: Any, y: Any) -> Any:
        return weight * (y - x) ** 2

    return lambda x, y: jnp.sum(square(x, y))


def _in_a_partial() -> Any:
    def objective(weight: Any, x: Any, y: Any) -> Any:
        return jnp.sum(weight * (y - x) ** 2)

    return functools.partial(objective, np.array([0.1, 0.2]))


def _in_a_default() -> Any:
    def objective(x: Any, y: Any, weight: Any = np.array([0.1, 0.2])) -> Any:  # noqa: B008
        return jnp.sum(weight * (y - x) ** 2)

    return objective


@pytest.mark.parametrize("order", ["ours first", "theirs first"])
@pytest.mark.parametrize(
    "make_objective",
    [lambda: _weighted, lambda: _through_a_helper, _in_a_closure, _in_a_partial, _in_a_default],
    ids=["global", "helper", "closure", "partial", "default"],
)
def test_a_users_function_serves_both_precisions(make_objective: Any, order: str) -> None:
    """Their own float32 code around the same function and arrays works before, beside and after ours."""
    objective = make_objective()
    single = jax.jit(jax.grad(objective, argnums=1))
    if order == "theirs first":
        assert single(jnp.zeros(2), jnp.ones(2)).dtype == jnp.float32
    problem = Problem(objective, [0, 0], [1, 1], box=([0, 0], [1, 1]))
    found = problem.objectives([[0.3, 0.4]], [[0.1, 0.7]])
    assert found[0] == pytest.approx(0.1 * 0.04 + 0.2 * 0.09, rel=1e-15)
    gradient = single(jnp.zeros(2), jnp.ones(2))
    assert gradient.dtype == jnp.float32
    np.testing.assert_allclose(gradient, [0.2, 0.4], rtol=1e-6)
    assert objective(jnp.zeros(2), jnp.ones(2)).dtype == jnp.float32


def test_changing_an_array_later_does_not_change_the_problem() -> None:
    weight = np.array([1.0, 1.0])
    problem = Problem(lambda x, y: jnp.sum(weight * y), [0, 0], [1, 1], box=([0], [1]))
    mark = problem.fingerprint
    weight[:] = 5.0
    assert problem.objectives([[0.0]], [[1.0, 1.0]])[0] == 2.0
    again = Problem(lambda x, y: jnp.sum(weight * y), [0, 0], [1, 1], box=([0], [1]))
    assert again.fingerprint != mark


def test_recursive_helpers_survive() -> None:
    table = np.array([1.0, 2.0, 3.0])

    def total(y: Any, k: int) -> Any:
        return table[k] * y[k] + (total(y, k - 1) if k else 0.0)

    problem = Problem(lambda x, y: total(y, 2), np.zeros(3), np.ones(3), box=([0], [1]))
    assert problem.objectives([[0.0]], [[1.0, 1.0, 1.0]])[0] == 6.0


def test_double_is_local_and_a_twin_is_another_function() -> None:
    with double():
        assert jnp.ones(1).dtype == jnp.float64
    assert jnp.ones(1).dtype == jnp.float32

    def square(x: Any) -> Any:
        return x * x

    assert twin(square) is not square
    assert twin(square)(3.0) == 9.0


# ---- batches -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("rows", [0, 1, 3, 1025])
def test_a_batch_is_its_rows(name: str, rows: int) -> None:
    problem = make(name)
    x, y = near_start(problem, rows, seed=6)
    shapes = {
        "objectives": (rows,),
        "equalities": (rows, problem.n_equalities),
        "inequalities": (rows, problem.n_inequalities),
        "violations": (rows, problem.n_inequalities),
    }
    for which, shape in shapes.items():
        whole = getattr(problem, which)(x, y)
        assert whole.shape == shape
        assert whole.dtype == np.float64
        for i in {0, rows // 2, rows - 1} if rows else ():
            np.testing.assert_allclose(
                whole[i], getattr(problem, which)(x[i : i + 1], y[i : i + 1])[0], atol=1e-12
            )


def test_bound_violations_count_finite_bounds_alone() -> None:
    problem = _own()
    found = problem.bound_violations([[-0.5, 3.0], [1.25, -1.0]])
    # Columns: the two lower bounds, then the one finite upper bound.
    np.testing.assert_array_equal(found, [[0.5, 0.0, 0.0], [0.0, 1.0, 0.25]])


def test_grids_with_different_spread_are_one_grid(tmp_path: Path) -> None:
    path = GRID6.write(tmp_path / "grid.json")
    one, other = load_problem(path), load_problem(path, spread=0.4)
    assert one.fingerprint == other.fingerprint
    assert one.spread, other.spread == (0.2, 0.4)


def test_a_renamed_bus_is_another_problem(tmp_path: Path) -> None:
    bus, gen, branch = GRID3.bus.copy(), GRID3.gen.copy(), GRID3.branch.copy()
    bus[2, 0] = gen[1, 0] = branch[1, 1] = branch[2, 1] = 33
    renamed = replace(GRID3, bus=bus, gen=gen, branch=branch)
    first = load_problem(GRID3.write(tmp_path / "grid.m"))
    assert load_problem(renamed.write(tmp_path / "renamed.m")).fingerprint != first.fingerprint
