"""The translator against JAX itself: values and Jacobians."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import casadi
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jax import lax

from feasibly.precision import double, twin
from feasibly.problem.core import Problem
from feasibly.problem.nonconvex import nonconvex
from feasibly.solve import translate as translator
from feasibly.solve.translate import TranslationError, translate, translate_function
from tests.solve.primitives import CASES, Case

N_X, N_Y = 3, 6


def names_in(jaxpr: Any) -> Iterator[str]:
    """Every primitive of a jaxpr, those of inner ones included."""
    for equation in jaxpr.eqns:
        yield equation.primitive.name
        for inner in jax.tree.leaves(
            list(equation.params.values()),
            is_leaf=lambda leaf: hasattr(leaf, "eqns") or hasattr(leaf, "jaxpr"),
        ):
            if hasattr(inner, "jaxpr"):
                yield from names_in(inner.jaxpr)
            elif hasattr(inner, "eqns"):
                yield from names_in(inner)


def assert_same(
    function: Callable[..., Any],
    points: list[tuple[np.ndarray, np.ndarray]],
    jacobian: Callable[..., Any] = jax.jacfwd,
) -> None:
    x, y = casadi.SX.sym("x", N_X), casadi.SX.sym("y", N_Y)
    column = translate_function(function, x, y)
    slopes = [casadi.jacobian(column, symbol) for symbol in (x, y)]
    translated = casadi.Function("translated", [x, y], [column, *slopes])

    def flat(a: Any, b: Any) -> Any:
        return jnp.ravel(twin(function)(a, b))

    for at in points:
        with double():
            where = [jnp.asarray(part) for part in at]
            wanted = [flat(*where), *jacobian(flat, argnums=(0, 1))(*where)]
        for ours, theirs in zip(translated(*at), wanted, strict=True):
            theirs = np.atleast_1d(np.asarray(theirs, dtype=np.float64))
            scale = max(1.0, float(np.abs(theirs).max(initial=0.0)))
            np.testing.assert_allclose(
                np.asarray(ours).reshape(theirs.shape), theirs, rtol=1e-12, atol=1e-12 * scale
            )


def draw_points(case: Case, count: int = 3) -> list[tuple[np.ndarray, np.ndarray]]:
    generator = np.random.default_rng(len(case.primitive) * 1000 + ord(case.primitive[0]))
    return [
        (generator.uniform(*case.inside, N_X), generator.uniform(*case.inside, N_Y)) for _ in range(count)
    ]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.primitive)
def test_primitive_agrees_with_jax(case: Case) -> None:
    with double():
        traced = jax.make_jaxpr(twin(case.function))(np.zeros(N_X), np.zeros(N_Y))
    assert case.primitive in set(names_in(traced.jaxpr)), "the case does not use what it is meant to test"
    # A function with a reverse rule of its own has no forward one.
    assert_same(
        case.function, draw_points(case), jax.jacrev if case.primitive == "custom_vjp_call" else jax.jacfwd
    )


def test_every_known_primitive_has_a_case() -> None:
    tables = ("UNARY", "BINARY", "MOVEMENT", "SCATTER", "REDUCTION", "_INLINED", "_CONTROL")
    known = {name for table in tables for name in getattr(translator, table)}
    assert known == {case.primitive for case in CASES}


# ---- random expressions ------------------------------------------------------------------------------------

SMOOTH = [
    jnp.sin,
    jnp.cos,
    jnp.tanh,
    jnp.arctan,
    jnp.arcsinh,
    jax.nn.sigmoid,
    lax.erf,
    lambda a: jnp.exp(-a * a),
]
MOVES: list[Callable[[Any], Any]] = [
    lambda a: a[::-1],
    lambda a: a[np.array([5, 0, 3, 3, 1, 2])],
    lambda a: jnp.roll(a, 2),
    lambda a: a.reshape(2, 3).T.ravel(),
    lambda a: jnp.concatenate([a[4:], a[:4]]),
    lambda a: jnp.zeros(6).at[np.array([0, 2, 2, 5, 1, 0])].add(a),
    jnp.cumsum,
    lambda a: jnp.outer(a[:2], a[3:]).ravel(),
    lambda a: a - jnp.mean(a),
    lambda a: np.arange(36.0).reshape(6, 6) @ a / 20.0,
]
JOINS = [
    jnp.add,
    jnp.subtract,
    jnp.multiply,
    lambda a, b: a / (1.5 + b * b),
    lambda a, b: jnp.arctan2(a, 2.0 + b * b),
    lambda a, b: jnp.sqrt(1.0 + a * a + b * b),
    lambda a, b: jnp.where(np.array([1, 0, 1, 1, 0, 0], dtype=bool), a, b),
    lambda a, b: (1.2 + jnp.sin(a)) ** jnp.cos(b),
]

expressions = st.recursive(
    st.sampled_from(["x", "y"]),
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(range(len(SMOOTH))), inner).map(lambda t: ("smooth", *t)),
        st.tuples(st.sampled_from(range(len(MOVES))), inner).map(lambda t: ("move", *t)),
        st.tuples(st.sampled_from(range(len(JOINS))), inner, inner).map(lambda t: ("join", *t)),
    ),
    max_leaves=8,
)


def interpret(tree: Any, x: Any, y: Any) -> Any:
    if tree == "x":
        return jnp.concatenate([x, x * x])
    if tree == "y":
        return y
    kind, which, *operands = tree
    table: list[Callable[..., Any]] = {"smooth": SMOOTH, "move": MOVES, "join": JOINS}[kind]
    return table[which](*[interpret(operand, x, y) for operand in operands])


@settings(max_examples=80, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(tree=expressions, seed=st.integers(0, 2**16))
def test_random_expressions_agree_with_jax(tree: Any, seed: int) -> None:
    generator = np.random.default_rng(seed)
    point = generator.uniform(-1.0, 1.0, N_X), generator.uniform(-1.0, 1.0, N_Y)
    assert_same(lambda x, y: interpret(tree, x, y), [point])


# ---- whole problems, refusals ------------------------------------------------------------------------------


def test_problem_functions_agree_with_jax() -> None:
    problem = nonconvex(20, 10, 20, seed=3)
    made = translate(problem)
    evaluate = casadi.Function("all", [made.x, made.y], [made.objective, made.equality, made.inequality])
    generator = np.random.default_rng(0)
    x, y = generator.normal(size=(4, problem.n_inputs)), generator.normal(size=(4, problem.n_outputs))
    wanted = problem.objectives(x, y), problem.equalities(x, y), problem.inequalities(x, y)
    for k in range(4):
        for ours, theirs in zip(evaluate(x[k], y[k]), wanted, strict=True):
            np.testing.assert_allclose(np.asarray(ours).ravel(), np.ravel(theirs[k]), rtol=1e-12, atol=1e-12)


def test_sparse_data_stay_sparse() -> None:
    y = casadi.SX.sym("y", N_Y)
    column = translate_function(lambda a: np.diag(np.arange(1.0, 7.0)) @ a, y)
    assert casadi.jacobian(column, y).nnz() == N_Y


def test_absent_constraints_are_empty() -> None:
    problem = Problem(lambda x, y: jnp.sum((y - x) ** 2), np.zeros(2), np.ones(2), box=([0, 0], [1, 1]))
    made = translate(problem)
    assert made.equality.shape == (0, 1)
    assert made.inequality.shape == (0, 1)


def sorted_outputs(x: Any, y: Any) -> Any:
    return jnp.sort(y)


REFUSED: list[tuple[str, Callable[..., Any], str]] = [
    ("sort", sorted_outputs, "no such operation"),
    ("argmax", lambda x, y: y[jnp.argmax(y)], "no such operation"),
    ("convert_element_type", lambda x, y: jnp.real(jnp.exp(1j * y)), "complex"),
    ("convert_element_type", lambda x, y: y * y.astype(int), "whole numbers"),
    ("dynamic_slice", lambda x, y: lax.dynamic_slice(y, ((y[0] > 0).astype(int),), (2,)), "index depends"),
    ("lgamma", lambda x, y: lax.lgamma(y), "no such operation"),
    ("while", lambda x, y: lax.while_loop(lambda a: a[0] < 1.0, lambda a: a + 1.0, y), "number of its steps"),
    ("scan", lambda x, y: lax.fori_loop(0, 20_000, lambda i, a: a * 0.5, y), "too long"),
    ("div", lambda x, y: y * ((y > 0).astype(int) // 2), "whole numbers"),
]


@pytest.mark.parametrize(("primitive", "function", "why"), REFUSED, ids=[f"{r[0]}-{r[2]}" for r in REFUSED])
def test_refusal_names_operation_and_place(primitive: str, function: Callable[..., Any], why: str) -> None:
    x, y = casadi.SX.sym("x", N_X), casadi.SX.sym("y", N_Y)
    with pytest.raises(TranslationError, match=why) as refusal:
        translate_function(function, x, y)
    assert refusal.value.primitive == primitive
    assert "test_translate.py:" in refusal.value.where


def test_refusal_gives_the_very_line() -> None:
    with pytest.raises(TranslationError) as refusal:
        translate_function(sorted_outputs, casadi.SX.sym("x", N_X), casadi.SX.sym("y", N_Y))
    line = sorted_outputs.__code__.co_firstlineno + 1
    assert f"test_translate.py:{line} (sorted_outputs)" in str(refusal.value)
