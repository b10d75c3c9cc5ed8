"""A tour of bad definitions: one error lists everything wrong, each in a sentence."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from feasibly.problem.core import Problem
from feasibly.problem.errors import FeasiblyError, ProblemError
from feasibly.problem.families import load_problem, rebuild
from feasibly.problem.nonconvex import nonconvex
from feasibly.problem.sampling import sample

NAN, INF = float("nan"), float("inf")
BOX = ([0.0, 0.0], [1.0, 1.0])


def _nearest(x: Any, y: Any) -> Any:
    return jnp.sum((y - x) ** 2)


def _define(
    objective: Any = _nearest, lower: Any = (0.0, 0.0), upper: Any = (1.0, 1.0), **more: Any
) -> Problem:
    more.setdefault("box", BOX)
    return Problem(objective, lower, upper, **more)


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "crossed bounds": ({"lower": (2, 0)}, "bounds: lower exceeds upper at position 0"),
    "NaN bound": ({"lower": (NAN, 0)}, "lower: is NaN at position 0"),
    "infinite on the wrong side": ({"lower": (INF, 0), "upper": (INF, 1)}, "leaves no value"),
    "bounds of two lengths": ({"lower": (0, 0, 0)}, "bounds: lower has 3 entries and upper has 2"),
    "no outputs": ({"lower": (), "upper": ()}, "bounds: there are no outputs"),
    "bounds as a matrix": ({"lower": [[0, 0]]}, "lower: must be a vector, got shape (1, 2)"),
    "bounds of words": ({"lower": ["a", "b"]}, "lower: is not a list of numbers"),
    "no objective": ({"objective": None}, "objective: is missing"),
    "an objective that is no function": (
        {"objective": 3},
        "objective: must be a function of (x, y), got int",
    ),
    "a float of a tracer": ({"objective": lambda x, y: float(y[0])}, "objective: JAX cannot trace it"),
    "an if": ({"objective": lambda x, y: y[0] if y[0] > 0 else y[1]}, "jnp.where instead of if"),
    "NumPy inside": ({"objective": lambda x, y: np.sum(np.sin(y))}, "use jax.numpy throughout"),
    "NaN at the nominal point": (
        {"objective": lambda x, y: jnp.log(y[0] - 10.0)},
        "objective: is not finite for the nominal input and the starting point",
    ),
    "NaN in one row": (
        {"equality": lambda x, y: jnp.array([y[0], jnp.sqrt(y[1] - 3.0)])},
        "equality: is not finite at position 1",
    ),
    "an exception": (
        {"objective": lambda x, y: 1 / 0},
        "objective: fails when called: ZeroDivisionError: division by zero",
    ),
    "the wrong arguments": ({"objective": lambda y: y[0]}, "objective: fails when called: TypeError"),
    "an index past the end": ({"objective": lambda x, y: y[0] + x[7]}, "index 7 is out of bounds"),
    "shapes that do not fit": ({"objective": lambda x, y: jnp.sum(y + jnp.ones(3))}, "incompatible shapes"),
    "a vector objective": ({"objective": lambda x, y: y}, "objective: must return a scalar, got shape (2,)"),
    "a complex objective": (
        {"objective": lambda x, y: jnp.sum(y * 1j)},
        "objective: must return real numbers, got complex128",
    ),
    "a truth value": ({"equality": lambda x, y: y > 0}, "equality: must return real numbers, got bool"),
    "a scalar constraint": ({"equality": lambda x, y: y[0]}, "equality: must return a vector, got shape ()"),
    "a matrix of constraints": (
        {"inequality": lambda x, y: jnp.outer(y, y)},
        "inequality: must return a vector, got shape (2, 2)",
    ),
    "a list of constraints": (
        {"equality": lambda x, y: [y[0], y[1]]},
        "equality: must return one array, got list",
    ),
    "nothing returned": ({"objective": lambda x, y: None}, "objective: must return one array, got NoneType"),
    "violations of other rows": (
        {"inequality": lambda x, y: y, "violation": lambda x, y: y[:1]},
        "violation: has 1 rows and inequality has 2",
    ),
    "violations alone": ({"violation": lambda x, y: y}, "violation: has 2 rows and inequality has 0"),
    "box of two lengths": ({"box": ([0], [1, 1])}, "box: low has 1 entries and high has 2"),
    "crossed box": ({"box": ([2, 0], [1, 1])}, "box: low exceeds high at position 0"),
    "infinite box": ({"box": ([-INF, 0], [1, 1])}, "box: both ends must be finite"),
    "box with three parts": ({"box": (0, 1, 2)}, "box: must be a pair (low, high)"),
    "box and spread": ({"spread": 0.2}, "exactly one of box, spread and sampler"),
    "no way to draw": ({"box": None, "nominal": [0, 0]}, "says how they are drawn; given: none"),
    "spread without nominal": ({"box": None, "spread": 0.2}, "nominal: is needed where no box is given"),
    "negative spread": ({"box": None, "spread": -1, "nominal": [1, 1]}, "spread: must be a number of zero"),
    "spread in words": ({"box": None, "spread": "wide", "nominal": [1, 1]}, "spread: must be a number"),
    "sampler that is no function": (
        {"box": None, "sampler": 3, "nominal": [1, 1]},
        "sampler: must be a function of a generator, got int",
    ),
    "nominal of another length": ({"nominal": [0.5]}, "nominal: has 1 entries and the box has 2"),
    "NaN nominal": ({"nominal": [NAN, 0]}, "nominal: is NaN at position 0"),
    "start of another length": ({"start": [1]}, "start: has 1 entries for 2 outputs"),
    "blocks that leave some out": ({"blocks": {"a": slice(0, 1)}}, "blocks: they cover 1 of 2 outputs"),
    "blocks that overlap": (
        {"blocks": {"a": slice(0, 2), "b": slice(1, 2)}},
        "blocks: block 'b' must start at 2, where the one before it ends",
    ),
    "blocks that are lists": ({"blocks": {"a": [0, 1]}}, "blocks: block 'a' must be a slice, got list"),
    "a name twice": ({"output_names": ["a", "a"]}, "output_names: a name stands twice: a"),
    "too few names": ({"input_names": ["a"]}, "input_names: has 1 names for 2 values"),
    "names as one text": ({"output_names": "ab"}, "output_names: must be a list of names"),
}


@pytest.mark.parametrize("which", BAD)
def test_bad_definitions_are_refused_in_a_sentence(which: str) -> None:
    arguments, sentence = BAD[which]
    with pytest.raises(ProblemError, match=re.escape(sentence)):
        _define(**arguments)


def test_one_error_lists_everything() -> None:
    with pytest.raises(ProblemError) as caught:
        _define(lower=(2.0, NAN), output_names=["a", "a"], blocks={"a": slice(0, 1)}, nominal=[0.5])
    assert {fault.where for fault in caught.value.faults} == {
        "bounds", "lower", "output_names", "blocks", "nominal",
    }  # fmt: skip
    assert "for 5 reasons" in str(caught.value)


def test_functions_are_all_checked_at_once() -> None:
    with pytest.raises(ProblemError) as caught:
        _define(lambda x, y: y, equality=lambda x, y: y[0], inequality=lambda x, y: 1 / 0)
    assert [fault.where for fault in caught.value.faults] == ["objective", "equality", "inequality"]


def test_float32_constants_are_warned_of() -> None:
    constant = jnp.array([0.1, 0.2])
    with pytest.warns(UserWarning, match="make it a numpy array"):
        _define(lambda x, y: jnp.sum((y - constant) ** 2))


CALLS: dict[str, tuple[Callable[[], object], str]] = {
    "negative count": (lambda: sample(_define(), -1), "count: must be a whole number of rows, got -1"),
    "half a row": (lambda: sample(_define(), 2.5), "count: must be a whole number of rows"),  # type: ignore[arg-type]
    "count in words": (lambda: sample(_define(), "many"), "count: must be a whole number"),  # type: ignore[arg-type]
    "negative seed": (lambda: sample(_define(), 3, seed=-1), "seed: must be a whole number"),
    "huge seed": (lambda: sample(_define(), 3, seed=2**64), "seed: must be a whole number"),
    "unknown design": (lambda: sample(_define(), 3, design="x"), "design: must be one of uniform, sobol"),
    "spread for a box": (lambda: sample(_define(), 3, spread=0.1), "so a spread does not apply"),
    "inputs too wide": (
        lambda: _define().objectives([[1, 2, 3]], [[1, 2]]),
        "inputs: expected shape (rows, 2), got (1, 3)",
    ),
    "rows that do not match": (
        lambda: _define().objectives([[1, 2]], [[1, 2], [3, 4]]),
        "rows: 1 inputs and 2 outputs",
    ),
    "inputs in words": (lambda: _define().objectives([["a", "b"]], [[1, 2]]), "inputs: expected 2 numbers"),
    "no freedom left": (lambda: nonconvex(5, 5, 2), "equalities: 5 leave no freedom for 5 variables"),
    "no variables": (lambda: nonconvex(0, 1, 1), "variables: must be a whole number of at least 1"),
    "family with two sizes": (lambda: load_problem("nonconvex:1,2"), "should read nonconvex:VARIABLES"),
    "unknown family": (lambda: rebuild({"family": "sudoku"}, {}), "family 'sudoku' are not known"),
    "stored without sizes": (lambda: rebuild({"family": "nonconvex"}, {}), "lacks 'variables'"),
}


@pytest.mark.parametrize("which", CALLS)
def test_bad_calls_are_refused_in_a_sentence(which: str) -> None:
    call, sentence = CALLS[which]
    with pytest.raises(FeasiblyError, match=re.escape(sentence)):
        call()


def test_a_sampler_that_returns_the_wrong_shape() -> None:
    problem = _define(box=None, sampler=lambda generator: generator.random(3), nominal=[0.5, 0.5])
    with pytest.raises(ProblemError, match="sampler: returned shape"):
        sample(problem, 2)
