"""Checks of a problem's definition: small functions that return lists of faults."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax.experimental import checkify
from numpy.typing import ArrayLike, NDArray

from feasibly.precision import double, twin
from feasibly.problem._smooth import ADVICE, find_kinks
from feasibly.problem.errors import Fault, is_spread

if TYPE_CHECKING:
    from feasibly.problem.core import Problem

Array = NDArray[np.float64]


@dataclass
class Data:
    """The checked arrays of a definition."""

    lower: Array
    upper: Array
    box: tuple[Array, Array] | None
    spread: float | None
    nominal: Array
    start: Array
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    blocks: dict[str, slice]
    inputs: dict[str, slice]


def check_data(
    *,
    lower: ArrayLike,
    upper: ArrayLike,
    box: tuple[ArrayLike, ArrayLike] | None,
    spread: float | None,
    sampler: Callable[..., Any] | None,
    nominal: ArrayLike | None,
    start: ArrayLike | None,
    input_names: Sequence[str] | None,
    output_names: Sequence[str] | None,
    blocks: Mapping[str, slice] | None,
    inputs: Mapping[str, slice] | None,
) -> tuple[list[Fault], Data]:
    """Everything about a definition that can be checked without calling its functions."""
    faults: list[Fault] = []
    low = _vector("lower", lower, faults)
    high = _vector("upper", upper, faults)
    if len(low) != len(high):
        faults.append(Fault("bounds", f"lower has {len(low)} entries and upper has {len(high)}"))
    elif len(low) == 0:
        faults.append(Fault("bounds", "there are no outputs"))
    if not len(low) or len(low) != len(high):
        return faults, _NOTHING
    faults += _crossed(low, high)

    ways = [
        way for way, given in (("box", box), ("spread", spread), ("sampler", sampler)) if given is not None
    ]
    if len(ways) != 1:
        said = " and ".join(ways) if ways else "none"
        faults.append(
            Fault("inputs", f"exactly one of box, spread and sampler says how they are drawn; given: {said}")
        )
    ends: tuple[Array, Array] | None = None
    if box is not None and not (isinstance(box, (tuple, list)) and len(box) == 2):
        faults.append(Fault("box", "must be a pair (low, high)"))
    elif box is not None:
        ends = _vector("box low", box[0], faults), _vector("box high", box[1], faults)
        if len(ends[0]) != len(ends[1]):
            faults.append(Fault("box", f"low has {len(ends[0])} entries and high has {len(ends[1])}"))
            ends = None
        elif np.isinf(ends[0]).any() or np.isinf(ends[1]).any():
            faults.append(Fault("box", "both ends must be finite"))
        elif (ends[0] > ends[1]).any():
            faults.append(Fault("box", f"low exceeds high at {_places(ends[0] > ends[1])}"))
    if spread is not None and not is_spread(spread):
        faults.append(Fault("spread", f"must be a number of zero or more, not {spread!r}"))
        spread = None
    if sampler is not None and not callable(sampler):
        faults.append(Fault("sampler", f"must be a function of a generator, got {type(sampler).__name__}"))

    middle: Array
    if nominal is not None:
        middle = _vector("nominal", nominal, faults)
        if np.isinf(middle).any():
            faults.append(Fault("nominal", f"not finite at {_places(np.isinf(middle))}"))
        if ends is not None and len(middle) != len(ends[0]):
            faults.append(Fault("nominal", f"has {len(middle)} entries and the box has {len(ends[0])}"))
    elif ends is not None:
        middle = (ends[0] + ends[1]) / 2.0
    else:
        if box is None:
            faults.append(Fault("nominal", "is needed where no box is given"))
        middle = np.zeros(0)

    first = _vector("start", start, faults) if start is not None else _middle(low, high)
    if len(first) != len(low):
        faults.append(Fault("start", f"has {len(first)} entries for {len(low)} outputs"))

    names_in = _names("input_names", input_names, len(middle), "x", faults)
    names_out = _names("output_names", output_names, len(low), "y", faults)
    chosen = dict(blocks) if blocks is not None else {"y": slice(0, len(low))}
    faults += _uncovered("blocks", chosen, len(low), "outputs")
    parts = dict(inputs) if inputs is not None else {"x": slice(0, len(middle))}
    faults += _uncovered("inputs", parts, len(middle), "inputs")
    width = None if spread is None else float(spread)
    return faults, Data(low, high, ends, width, middle, first, names_in, names_out, chosen, parts)


_NOTHING = Data(np.zeros(0), np.zeros(0), None, None, np.zeros(0), np.zeros(0), (), (), {}, {})


def _vector(where: str, values: ArrayLike, faults: list[Fault]) -> Array:
    try:
        array = np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        faults.append(Fault(where, "is not a list of numbers"))
        return np.zeros(0)
    if array.ndim != 1:
        faults.append(Fault(where, f"must be a vector, got shape {array.shape}"))
        return np.zeros(0)
    if np.isnan(array).any():
        faults.append(Fault(where, f"is NaN at {_places(np.isnan(array))}"))
    array.setflags(write=False)
    return array


def _crossed(low: Array, high: Array) -> list[Fault]:
    faults = []
    if (low > high).any():
        faults.append(Fault("bounds", f"lower exceeds upper at {_places(low > high)}"))
    if (low == np.inf).any() or (high == -np.inf).any():
        faults.append(Fault("bounds", "a lower bound of inf or an upper bound of -inf leaves no value"))
    return faults


def _middle(low: Array, high: Array) -> Array:
    inner_low = np.where(np.isfinite(low), low, np.where(np.isfinite(high), high - 1.0, 0.0))
    inner_high = np.where(np.isfinite(high), high, np.where(np.isfinite(low), low + 1.0, 0.0))
    middle: Array = (inner_low + inner_high) / 2.0
    return middle


def _names(
    where: str, names: Sequence[str] | None, size: int, prefix: str, faults: list[Fault]
) -> tuple[str, ...]:
    if names is None:
        return tuple(f"{prefix}{i}" for i in range(size))
    if isinstance(names, str):
        faults.append(Fault(where, "must be a list of names, not one text"))
        return ()
    chosen = tuple(str(name) for name in names)
    if len(chosen) != size:
        faults.append(Fault(where, f"has {len(chosen)} names for {size} values"))
    if len(set(chosen)) != len(chosen):
        twice = sorted({name for name in chosen if chosen.count(name) > 1})[:3]
        faults.append(Fault(where, f"a name stands twice: {', '.join(twice)}"))
    return chosen


def _uncovered(where: str, blocks: Mapping[str, slice], size: int, what: str) -> list[Fault]:
    position = 0
    for name, part in blocks.items():
        if not isinstance(part, slice):
            return [Fault(where, f"block {name!r} must be a slice, got {type(part).__name__}")]
        if part.step not in (None, 1) or part.start != position or part.stop is None or part.stop < position:
            return [Fault(where, f"block {name!r} must start at {position}, where the one before it ends")]
        position = part.stop
    if position != size:
        return [Fault(where, f"they cover {position} of {size} {what}")]
    return []


def _places(mask: NDArray[np.bool_]) -> str:
    where = np.flatnonzero(mask)
    shown = ", ".join(str(i) for i in where[:5])
    return f"position {shown}" if len(where) <= 5 else f"position {shown} and {len(where) - 5} more"


def check_functions(problem: Problem) -> list[Fault]:
    """Trace each function and, for a user's own problem, evaluate it at the nominal point."""
    faults: list[Fault] = []
    rows: dict[str, int] = {}
    for which in ("objective", "equality", "inequality", "violation"):
        function = getattr(problem, which)
        if function is None:
            if which == "objective":
                faults.append(Fault(which, "is missing"))
            continue
        if not callable(function):
            faults.append(Fault(which, f"must be a function of (x, y), got {type(function).__name__}"))
            continue
        found = _traced(which, function, problem, rows)
        if not found and problem.spec is None:  # the built-in families check their arrays instead
            found = _finite(which, function, problem)
            _warn_of_rounded(which, function, problem)
            if which != "violation":  # which is measured, not solved
                _warn_of_kinks(which, function, problem)
        faults += found
    if problem.violation is not None and rows.get("violation") != rows.get("inequality"):
        had = rows.get("inequality", 0)
        faults.append(Fault("violation", f"has {rows.get('violation', 0)} rows and inequality has {had}"))
    return faults


def _traced(which: str, function: Callable[..., Any], problem: Problem, rows: dict[str, int]) -> list[Fault]:
    try:
        with double():
            out = jax.eval_shape(twin(function), problem.nominal, problem.start)
    except (jax.errors.TracerArrayConversionError, jax.errors.ConcretizationTypeError) as error:
        advice = "use jax.numpy throughout and jnp.where instead of if"
        return [Fault(which, f"JAX cannot trace it ({type(error).__name__}); {advice}")]
    except Exception as error:  # the user's own function: whatever it raises is its fault, told in one line
        return [Fault(which, f"fails when called: {type(error).__name__}: {str(error).splitlines()[0]}")]
    wanted = 0 if which == "objective" else 1
    if not hasattr(out, "shape"):
        return [Fault(which, f"must return one array, got {type(out).__name__}")]
    if len(out.shape) != wanted:
        kind = "a scalar" if wanted == 0 else "a vector"
        return [Fault(which, f"must return {kind}, got shape {out.shape}")]
    if not np.issubdtype(out.dtype, np.floating):
        return [Fault(which, f"must return real numbers, got {out.dtype}")]
    rows[which] = out.shape[0] if wanted else 0
    return []


def _finite(which: str, function: Callable[..., Any], problem: Problem) -> list[Fault]:
    # JAX answers y[5] of two outputs with y[1] and says nothing; checkify makes it say so.
    checked = checkify.checkify(twin(function), errors=checkify.index_checks)
    with double():
        wrong, found = jax.jit(checked)(problem.nominal, problem.start)
        value, message = np.asarray(found), wrong.get()
    if message is not None:
        return [Fault(which, message.splitlines()[0].strip().rstrip("."))]
    if np.isfinite(value).all():
        return []
    at = "" if value.ndim == 0 else f" at {_places(~np.isfinite(value))}"
    return [
        Fault(which, f"is not finite{at} for the nominal input and the starting point; pass another start")
    ]


def _warn_of_rounded(which: str, function: Callable[..., Any], problem: Problem) -> None:
    """Constants made by `jax.numpy` outside `double()` carry errors of 1e-8 into everything measured."""
    with double():
        constants = jax.make_jaxpr(twin(function))(problem.nominal, problem.start).consts
    if any(isinstance(constant, jax.Array) and constant.dtype == np.float32 for constant in constants):
        warnings.warn(
            f"{which} of problem {problem.name!r} uses a jax.numpy array of float32 as a constant, which is "
            "exact to seven digits only; make it a numpy array",
            stacklevel=5,
        )


def _warn_of_kinks(which: str, function: Callable[..., Any], problem: Problem) -> None:
    """Solvers and sensitivities follow slopes, and stall where there is none."""
    kinks = find_kinks(function, problem.nominal, problem.start)
    if kinks:
        named = {"max": "max or min", "step": "rounding or signs"}
        words = "; ".join(f"{named.get(kind, kind)}: {ADVICE[kind]}" for kind in kinks)
        warnings.warn(
            f"{which} of problem {problem.name!r} is not smooth in its outputs, and solving may stop at the iteration "
            f"limit or answers be poor where it has a kink ({words})",
            stacklevel=5,
        )
